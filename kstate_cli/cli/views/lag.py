"""What ``kstate lag`` prints: a line for each store, for each log of each task, lines of JSON, and gauges."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.check.snapshot_reader import Lag, LogLag, UnknownLag, log_lags, sum_of, together
from kstate_cli.cli.columns import Column
from kstate_cli.cli.output import print_line, say, table
from kstate_cli.cli.views.stores import age_text, count_text, lag_members, problem_lines
from kstate_cli.errors import ConditionNotMet, KstateError
from kstate_cli.statedir.find import unknown_selection
from kstate_cli.texts import plural, some

if TYPE_CHECKING:
    from kstate_cli.cli.lines.outlook import LagLine, LagLogLine
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.statedir.model import Application
    from kstate_cli.statedir.problems import Problem

_MAX_LISTED: Final = 5
_REASONS: Final = {
    UnknownLag.NO_OFFSET: "the store has no offset",
    UnknownLag.NO_LOG: "no source contains the log",
    UnknownLag.BELOW: "the log no longer contains the next record",
    UnknownLag.ABOVE: "the offset is beyond the end of the log",
}


@dataclass(frozen=True, slots=True)
class StoreLag:
    """A store with all its tasks."""

    name: str
    tasks: dict[str, tuple[LogLag, ...]]
    """The logs of the store in each task."""

    @property
    def lag(self) -> Lag | None:
        """Return the lag of all tasks; None if it is unknown of one of them."""
        return together([log for logs in self.tasks.values() for log in logs])

    @property
    def part(self) -> Lag | None:
        """Return the lag of the tasks where it is known; None if it is known of none."""
        parts = [lag for logs in self.tasks.values() if (lag := together(logs)) is not None]
        return sum_of(parts) if parts else None

    @property
    def unknown(self) -> list[str]:
        """Return the tasks with an unknown lag."""
        return [task for task, logs in self.tasks.items() if together(logs) is None]


def read_stores(
    application: Application, sources: LogSources, tasks: Sequence[str], stores: Sequence[str]
) -> list[StoreLag]:
    """Return the selected stores by name. Raise UsageError if none matches, and as the sources of logs do."""
    of_places = log_lags(application, sources.sources(application))
    by_store: dict[str, dict[str, tuple[LogLag, ...]]] = {}
    for (task, name), logs in of_places.items():
        if (not tasks or task in tasks) and (not stores or name in stores):
            by_store.setdefault(name, {})[task] = logs
    if not by_store and (tasks or stores):
        raise unknown_selection(application, tasks, stores)
    return [StoreLag(name, by_store[name]) for name in sorted(by_store)]


def show_lags(stores: Sequence[StoreLag], *, verbose: bool, quiet: bool) -> None:
    """Print a line for each store; with ``verbose`` a line for each log of each task instead."""
    if verbose:
        names = ("store", "task", "partition", "last offset", "log end", "lag", "oldest unread")
        rows = [
            _log_row(standing.name, task, log)
            for standing in stores
            for task, logs in standing.tasks.items()
            for log in logs
        ]
        right = frozenset({"partition", "last offset", "log end", "lag", "oldest unread"})
        table(None, names, rows, right=right, quiet=quiet)
    else:
        columns = ["store", "tasks", "lag", "oldest unread"]
        # Mostly all lags are known, and a column of dashes would only be read.
        has_unknown = any(standing.unknown for standing in stores)
        if has_unknown:
            columns.append("unknown")
        table(
            None,
            [Column(name, right=name != "store") for name in columns],
            [
                (
                    standing.name,
                    len(standing.tasks),
                    _sum_text(standing),
                    age_text(standing.part),
                    *((len(standing.unknown) or "-",) if has_unknown else ()),
                )
                for standing in stores
            ],
            quiet=quiet,
        )
    # Flushed, since the messages go to the other stream, which may be the same terminal.
    sys.stdout.flush()
    logs_of_all = (log for standing in stores for logs in standing.tasks.values() for log in logs)
    if verbose and any(map(_has_offsets_without_records, logs_of_all)):
        say(
            "the lag counts only existing records. It excludes offsets of transaction markers and of records that "
            "compaction has removed",
            quiet=quiet,
        )
    _say_unknown(stores, quiet=quiet)


def _has_offsets_without_records(log: LogLag) -> bool:
    """Return whether some of the offsets between the store and the log end are no records of the lag."""
    if log.lag is None or log.offset is None or log.log_end is None or not log.lag.records.exact:
        return False
    return max(0, log.log_end - log.offset - 1) > log.lag.records.count


def show_total(stores: Sequence[StoreLag], end: str) -> None:
    """Print the last line: the lag of all stores. ``end``: the end of the logs as text."""
    parts = [standing.part for standing in stores if standing.part is not None]
    unknown = sum(len(standing.unknown) for standing in stores)
    total = sum_of(parts) if parts else None
    records = "records"
    if total is not None and total.records.count == 1:
        records = "record"
    behind = f"{count_text(total)} {records} behind {end}"
    if unknown:
        behind += f", and {plural(unknown, 'lag')} {'is' if unknown == 1 else 'are'} unknown"
    print_line(f"{plural(len(stores), 'store')}: {behind}")


def _sum_text(standing: StoreLag) -> str:
    """Return the sum over all tasks; with an unknown one at least the sum of the others."""
    if standing.lag is not None or standing.part is None:
        return count_text(standing.lag)
    # Of an upper bound nothing remains where a part is unknown.
    return f"at least {standing.part.records.count:,}" if standing.part.records.exact else "?"


def _log_row(store: str, task: str, log: LogLag) -> tuple[object, ...]:
    partition = "-" if log.key is None else log.key.partition
    offset = "-" if log.offset is None else log.offset
    end = "?" if log.log_end is None else log.log_end
    return store, task, partition, offset, end, count_text(log.lag), age_text(log.lag)


def _say_unknown(stores: Sequence[StoreLag], *, quiet: bool) -> None:
    """Print why lags are unknown, the stores with the same reason together."""
    places: dict[UnknownLag, list[str]] = {}
    for standing in stores:
        for task, logs in standing.tasks.items():
            for code in dict.fromkeys(log.unknown for log in logs if log.unknown is not None):
                places.setdefault(code, []).append(f"{task}/{standing.name}")
    for code, names in places.items():
        say(f"kstate does not know the lag, because {_REASONS[code]}: {some(names, _MAX_LISTED)}", quiet=quiet)


def above_limit(stores: Sequence[StoreLag], max_lag: int | None) -> KstateError | None:
    """Return the error for stores that are more than ``max_lag`` records behind, as far as their lag is known."""
    if max_lag is None:
        return None
    names = [
        standing.name for standing in stores if standing.part is not None and standing.part.records.count > max_lag
    ]
    if not names:
        return None
    return ConditionNotMet(
        f"{plural(len(names), 'store')} {'is' if len(names) == 1 else 'are'} more than {plural(max_lag, 'record')} "
        f"behind: {some(names, _MAX_LISTED)}",
        hint="let the application catch up, or restore the stores from a newer dump",
    )


def gauges(stores: Sequence[StoreLag]) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """Yield the gauges of each store in each task; an unknown lag has none, because 0 would be wrong."""
    for standing in stores:
        for task, logs in standing.tasks.items():
            lag = together(logs)
            if lag is None:
                continue
            yield "kstate_store_lag_records", (task, standing.name), lag.records.count
            if lag.seconds is not None:
                yield "kstate_store_lag_seconds", (task, standing.name), lag.seconds


def lag_lines(application: Application, stores: Sequence[StoreLag], problems: Sequence[Problem]) -> Iterator[LagLine]:
    """Yield a line for each log of each task, one for each store, the problems, and the summary."""
    for standing in stores:
        for task, logs in standing.tasks.items():
            yield from (_log_line(standing.name, task, log) for log in logs)
    for standing in stores:
        yield {
            "type": "store",
            "store": standing.name,
            "tasks": len(standing.tasks),
            "unknown_tasks": standing.unknown,
            **lag_members(standing.lag),
        }
    yield from problem_lines(problems)
    parts = [standing.lag for standing in stores]
    complete = [part for part in parts if part is not None]
    total = None
    # If the lag of one part is unknown, no sum is printed: it would look like that of all.
    if complete and len(complete) == len(parts):
        total = sum_of(complete)
    yield {
        "type": "summary",
        "stores": len(stores),
        "unknown": sum(len(standing.unknown) for standing in stores),
        **lag_members(total),
        "running": application.running,
        "as_of": application.as_of,
    }


def _log_line(store: str, task: str, log: LogLag) -> LagLogLine:
    topic, partition = None, None
    if log.key is not None:
        topic, partition = log.key.topic, log.key.partition
    return {
        "type": "log",
        "task": task,
        "store": store,
        "topic": topic,
        "partition": partition,
        "offset": log.offset,
        "log_start": log.log_start,
        "log_end": log.log_end,
        "lag_unknown": log.unknown and log.unknown.value,
        **lag_members(log.lag),
    }

"""``kstate inspect-position``: print changelog offsets, Positions and lag, and test a bound."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from kstate_cli import option
from kstate_cli.cli.columns import Column
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import (
    App,
    At,
    BootstrapServer,
    Dump,
    KafkaSettings,
    LogOffsets,
    OutputFormat,
    Quiet,
    Stores,
    Tasks,
    bound_of,
)
from kstate_cli.cli.output import Format, output_of, print_line, say, table, waiting
from kstate_cli.errors import ConditionNotMet
from kstate_cli.texts import plural, some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from kstate_cli.check.snapshot_reader import Lag
    from kstate_cli.cli.lines.stores import InspectPositionLine, InspectPositionStoreLine
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.cli.output import Output
    from kstate_cli.formats.offsets import PositionBound
    from kstate_cli.statedir.model import Application
    from kstate_cli.statedir.problems import Problem

HELP_EXAMPLES: Final = {
    "inspect-position": (
        Example("Show the offset and the Position of one store", "inspect-position /data/app --store count"),
        Example(
            "Show how far each store lags behind the broker's logs",
            "inspect-position /data/app --bootstrap-server broker:9092",
        ),
        Example(
            "Exit with code 3 unless all stores have reached offset 1234", "inspect-position /data/app --at in:0=1234"
        ),
    ),
}

_MAX_LISTED: Final = 5
"""Names of stores in a message."""


def inspect_position(
    app: App,
    task: Tasks = None,
    store: Stores = None,
    merge: Annotated[bool, typer.Option(option.MERGE, help="Also print the merged Position of all stores.")] = False,
    at: At = None,
    offsets: LogOffsets = None,
    bootstrap_server: BootstrapServer = None,
    kafka_settings: KafkaSettings = None,
    from_changelog: Dump = None,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Show each store's changelog offset, IQv2 Position and lag.

    The lag is the number of records that a store has not read yet. To determine the lag, kstate needs a broker, a dump,
    or a file with log offsets. With a broker, kstate also shows how old each store's first unread record is.

    The exit code is 1 if rows may be missing, and 3 if kstate cannot read a store or an offset file, or if a store has
    not reached the Position in --at.
    """
    from kstate_cli.cli.options.logs import LogSources
    from kstate_cli.cli.views.stores import say_incomplete_stores
    from kstate_cli.statedir.find import find_application
    from kstate_cli.statedir.scan import read_application

    bound = bound_of(at or ())
    logs = LogSources(offsets, bootstrap_server, kafka_settings, from_changelog)
    # Options are checked before the directory is read, which may take minutes.
    logs.validate()
    path = find_application(app)
    results: Output[InspectPositionLine] = output_of(output, path, quiet=quiet)
    with waiting("reading offsets and logs", quiet=quiet):
        application = read_application(path)
        selection = _select_stores(application, logs, task or (), store or ())
    behind = _behind(selection.rows, bound)
    doubts = [problem for problem in application.all_problems() if problem.doubt and not application.running]
    problems = [*selection.wrong, *doubts]
    results.show(
        _lines(application, selection, problems, merge=merge), partial(_show, selection, merge=merge, quiet=quiet)
    )
    for problem in problems:
        say(problem.reasoned)
    is_incomplete = say_incomplete_stores(
        application, {(row["task"], row["store"]) for row in selection.rows}, quiet=quiet
    )
    # The totals come last, because a terminal scrolls a long table away.
    sys.stdout.flush()
    if not selection.lag_texts:
        results.remark(
            f"to see the lag of each store, pass {option.BOOTSTRAP_SERVER} HOST:PORT or {option.FROM_CHANGELOG} DUMP"
        )
    results.text(partial(_sum_up, selection, application, behind, has_bound=not bound.is_unbounded))
    sys.stdout.flush()
    _raise_unmet(application, selection.wrong, behind)
    return warnings_code(doubts or is_incomplete)


@dataclass(frozen=True)
class _PositionRows:
    """The selected stores, and their problems."""

    rows: list[InspectPositionStoreLine]
    """With the members of JSON, and their lag."""
    lag_texts: list[str]
    """The lag of each row for people; empty without log ends."""
    wrong: list[Problem]

    @property
    def merged(self) -> dict[str, dict[int, int]] | None:
        """Return the merged Position of all rows; None if one of them cannot be read."""
        from kstate_cli.formats.offsets import Position

        merged = Position.empty()
        for row in self.rows:
            if row["position"] is None:
                return None
            merged = merged.merge(Position.from_map(row["position"]))
        return merged.as_map()


def _select_stores(
    application: Application, logs: LogSources, tasks: Collection[str], stores: Collection[str]
) -> _PositionRows:
    """Return the rows of the selected stores. Raise UsageError if no store has such a name."""
    from kstate_cli.check.snapshot_reader import lags
    from kstate_cli.cli.views.stores import fatal_problems, lag_members, lag_text, store_rows
    from kstate_cli.statedir.find import unknown_selection

    selected = [
        row
        for row in store_rows(application)
        if (not tasks or row["task"] in tasks) and (not stores or row["store"] in stores)
    ]
    places = {(row["task"], row["store"]) for row in selected}
    wrong = fatal_problems(application, places, everything=not tasks and not stores)
    if not selected and not wrong:
        raise unknown_selection(application, tasks, stores)
    sources = logs.sources(application)
    lag: Mapping[tuple[str, str], Lag] = {}
    if sources:
        lag = lags(application, sources, places=places)
    of_rows = [lag.get((row["task"], row["store"])) for row in selected]
    rows = [
        # The cast is safe, which mypy cannot know: the row of a store has no members beyond those of its type.
        cast("InspectPositionStoreLine", {**row, **lag_members(behind)})
        for row, behind in zip(selected, of_rows, strict=True)
    ]
    lag_texts: list[str] = []
    if sources:
        lag_texts = [lag_text(behind) for behind in of_rows]
    return _PositionRows(rows, lag_texts, wrong)


def _behind(rows: list[InspectPositionStoreLine], bound: PositionBound) -> list[str]:
    """Return the stores that are not up to a bound; each row gets the member ``up_to_bound``."""
    from kstate_cli.formats.offsets import Position, is_permitted
    from kstate_cli.formats.topic_partition import TaskId

    behind = []
    for row in rows:
        partition = TaskId.parse(row["task"]).partition
        # The bound is about partitions of tasks, and a global store has none.
        if bound.is_unbounded or partition is None:
            continue
        # A Position that cannot be read is unknown, so it counts as below every bound.
        row["up_to_bound"] = row["position"] is not None and is_permitted(
            Position.from_map(row["position"]), bound, partition
        )
        if not row["up_to_bound"]:
            behind.append(f"{row['task']}/{row['store']}")
    return behind


def _lines(
    application: Application, selection: _PositionRows, problems: list[Problem], *, merge: bool
) -> Iterator[InspectPositionLine]:
    from kstate_cli.cli.views.stores import problem_lines

    yield from selection.rows
    if merge:
        yield {"type": "merged", "position": selection.merged}
    yield from problem_lines(problems)
    yield {
        "type": "summary",
        "stores": len(selection.rows),
        "behind": sum(not row.get("up_to_bound", True) for row in selection.rows),
        "running": application.running,
        "as_of": application.as_of,
    }


def _raise_unmet(application: Application, wrong: list[Problem], behind: list[str]) -> None:
    """Raise ConditionNotMet if something cannot be read, or a store is not up to the bound."""
    from kstate_cli.cli.views.stores import unreadable_error

    if wrong:
        raise unreadable_error(application, wrong)
    if behind:
        raise ConditionNotMet(
            f"{plural(len(behind), 'store')} {'is' if len(behind) == 1 else 'are'} below the --at bound: "
            f"{some(behind, _MAX_LISTED)}",
            hint=(
                "let the application process more input, or restore the stores from a newer dump. Then run the "
                "command again"
            ),
        )


def _show(selection: _PositionRows, *, merge: bool, quiet: bool) -> None:
    """Print the table; the lag is a last column if the logs are known, the merged Position a last row."""
    from kstate_cli.cli.views.stores import short_place

    cells: list[tuple[Any, ...]] = [
        (row["task"], row["store"], short_place(row["offsets_in"]), _text(row["changelog"]), _text(row["position"]))
        for row in selection.rows
    ]
    more: tuple[str, ...] = ()
    if selection.lag_texts:
        more = ("lag",)
        cells = [(*row, lag) for row, lag in zip(cells, selection.lag_texts, strict=True)]
    if merge:
        cells.append(("", "(merged)", "", "", _text(selection.merged), *("" for _ in more)))
    columns: list[str | Column] = ["task", "store", Column("offset in", spare=1), "changelog offset", "position", *more]
    table(None, columns, cells, quiet=quiet)


def _sum_up(selection: _PositionRows, application: Application, behind: list[str], *, has_bound: bool) -> None:
    """Print one line: the number of stores, whether they have reached the bound, and of when the offsets are."""
    parts = [plural(len(selection.rows), "store")]
    if has_bound:
        parts.append(f"{len(behind)} below the bound" if behind else "all have reached the bound")
    if application.running:
        parts.append(f"running (pid {application.pid}), so these are the offsets as of the last flush")
    print_line("; ".join(parts))


def _text(offsets: Mapping[str, Mapping[int, int]] | None) -> list[str]:
    from kstate_cli.formats.topic_partition import typed_offsets

    if offsets is None:
        return ["unreadable"]
    return typed_offsets(offsets) or ["-"]

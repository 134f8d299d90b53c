"""Rows, words and problems of stores, as ``ls``, ``inspect-position``, ``verify`` and ``check`` print them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from kstate_cli.cli.output import say, waiting
from kstate_cli.clock import duration_text
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import short_name
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import silent_remark
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets, by_topic
from kstate_cli.offsets.resolve import resolve
from kstate_cli.releases import RELEASES, opens_in
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.names import CHECKPOINT
from kstate_cli.statedir.problems import Place, Problem, ProblemCode

if TYPE_CHECKING:
    from kstate_cli.change.lost import LostCopy
    from kstate_cli.check.snapshot_reader import Lag
    from kstate_cli.cli.lines.shared import LagMembers, ProblemLine
    from kstate_cli.cli.lines.stores import LsStoreLine, LsSumLine, StoreLine
    from kstate_cli.errors import KstateError
    from kstate_cli.statedir.model import Database


def store_rows(app: Application, *, transactional: bool = False) -> list[StoreLine]:
    """Return a row for each store with a directory, and for each store that only has an offset.

    ``transactional`` says that the application has transactional stores, which the directory does not show.
    """
    rows: list[StoreLine] = []
    # ``resolve`` assigns each offset of a .checkpoint to its store, which the file alone does not tell.
    for task in resolve(app, transactional=transactional):
        rows += [_store_row(app, task, offsets) for offsets in task.stores]
        # Stores without a directory come after the others.
        rows += [_absent_row(app, task, name, offsets) for name, offsets in sorted(task.absent.items())]
    return rows


def _store_row(app: Application, task: TaskOffsets, offsets: StoreOffsets) -> StoreLine:
    """Return the row of a store with a directory."""
    store = offsets.store
    # A store with segments has a database for each.
    problems = [p for d in store.databases for p in d.problems]
    return {
        "type": "store",
        "task": task.task.name,
        "store": store.name,
        "kind": store.kind.name,
        "kind_certain": store.kind.certain,
        "kind_from": store.kind.inferred_from,
        "offsets_in": offsets.offsets_in,
        "changelog": task.offsets_shown(offsets),
        "position": offsets.position_shown,
        "status": store.status,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": sorted(store.sst_formats),
        "opens_in": list(
            ()
            if any(p.fatal for p in problems)
            else opens_in(kinds=frozenset({store.kind.name}), families=store.families, sst_formats=store.sst_formats)
        ),
        "column_families": sorted(store.families),
        "segments": _starts(store.databases) if store.segmented else None,
        "segments_without_offset": _starts(offsets.silent),
        "rows": None if any(p.fatal for p in problems) else sum(d.rows for d in store.databases),
        "rows_exact": False,
        "bytes": sum(d.size for d in store.databases),
        "leftovers": list(task.task.leftovers),
        "unclean": [str(reason) for reason in task.unclean if reason.store == store.name],
    }


def _starts(segments: Iterable[Database]) -> list[int]:
    # Only databases of a segmented store are passed, and the name of each of these states its start.
    return [cast("int", segment.segment_start) for segment in segments]


def _absent_row(app: Application, task: TaskOffsets, name: str, offsets: Mapping[TopicPartition, int]) -> StoreLine:
    """Return the row of a store without a directory: a custom store, one in memory, or a removed one."""
    return {
        "type": "store",
        "task": task.task.name,
        "store": name,
        # This is no kind of Kafka Streams: nothing is known but the offset.
        "kind": "no-directory",
        "kind_certain": False,
        "kind_from": "an offset without a RocksDB database, so the store is custom or was removed",
        "offsets_in": "store-file" if name in task.task.store_files else "checkpoint",
        "changelog": by_topic(offsets),
        "position": {},
        "status": None,
        "running": app.running,
        "as_of": app.as_of,
        "sst_formats": [],
        "opens_in": [],
        "column_families": [],
        "segments": None,
        "segments_without_offset": [],
        "rows": None,
        "rows_exact": False,
        "bytes": 0,
        "leftovers": list(task.task.leftovers),
        "unclean": [],
    }


_MEANINGS: Final = {
    "+ts": "values have timestamps",
    "+time": "keys are ordered by time",
    "+hdr": "values have headers",
    "fk-subscr": "subscriptions of a foreign-key join",
    "list": "several values per key",
    "grace": "records that wait until their grace period ends",
}
_NO_DIRECTORY: Final = "no-directory"
_PLACES: Final = {"column-family": "store", "checkpoint": CHECKPOINT, "store-file": "own file", "none": "-"}
_FEW = 2

Offsets = Mapping[str, Mapping[int, int]]
"""Topic -> partition -> offset."""


def keys_text(line: LsStoreLine | LsSumLine) -> str:
    """Return the keys of a store, or of all its tasks; ``?`` if they cannot be read, in one of the tasks."""
    if line["rows"] is None:
        # Without a byte there is nothing that could not be read: a store in memory, or a removed one.
        return "?" if line["bytes"] else "-"
    if line["rows_exact"]:
        return str(line["rows"])
    return f"~{line['rows']}"


def short_kind(name: str, *, certain: bool) -> str:
    """Return ``kv+ts`` for ``timestamped-key-value``; a question mark follows a guessed kind."""
    if name == _NO_DIRECTORY:
        return "no files"  # nor is that a guess
    if certain:
        return short_name(name)
    return f"{short_name(name)}?"


def short_place(name: str) -> str:
    """Return where the offset of a store is: ``store`` is the RocksDB of the store itself."""
    return _PLACES.get(name, name)


def short_offsets(offsets: Offsets | None, *, all_of_them: bool) -> str:
    """Return the offset of a store, or ``partition=offset`` for each of several; ``?`` if it is unknown."""
    if offsets is None:
        return "?"
    # Only global stores, which may have several partitions, have more than one offset.
    offset_pairs = sorted((p, o) for of_topic in offsets.values() for p, o in of_topic.items())
    if len(offset_pairs) <= 1:
        return str(offset_pairs[0][1]) if offset_pairs else "-"
    texts = [f"{p}={o}" for p, o in offset_pairs]
    if not all_of_them and len(texts) > _FEW:
        texts = [texts[0], "…", texts[-1]]
    return " ".join(texts)


def span(names: Sequence[str]) -> str:
    """Return ``3.6-4.2`` for consecutive releases, else all of them."""
    if not names:
        return "none"
    # Releases are compared by their order in the table of releases: as a text, 3.10 would come before 3.2.
    release_names = [release.name for release in RELEASES]
    # If releases in between are missing, all are listed: a range would claim that those open the store too.
    if release_names.index(names[-1]) - release_names.index(names[0]) != len(names) - 1:
        return " ".join(names)
    if len(names) == 1:
        return names[0]
    return f"{names[0]}-{names[-1]}"


def legend(rows: Iterable[StoreLine]) -> list[str]:
    """Return the meaning of each sign in these rows of ``store_rows``."""
    # Made a list, since it is read several times below.
    rows = list(rows)
    kinds = [short_kind(row["kind"], certain=row["kind_certain"]) for row in rows]
    signs = [f"{mark}: {meaning}" for mark, meaning in _MEANINGS.items() if any(mark in kind for kind in kinds)]
    if any(kind.endswith("?") for kind in kinds):
        signs.append("? after a kind: kstate inferred it (see ls --spec)")
    return signs + [text for text, has_sign in _SIGNS.items() if any(map(has_sign, rows))]


def _offsets(row: StoreLine) -> set[int]:
    return {offset for of_topic in (row["changelog"] or {}).values() for offset in of_topic.values()}


_SIGNS: Final[Mapping[str, Callable[[StoreLine], bool]]] = {
    "~ before a number: an estimate": lambda row: bool(row["rows"]) and not row["rows_exact"],
    ("? alone: kstate cannot read the value"): lambda row: (
        row["changelog"] is None or (row["rows"] is None and bool(row["bytes"]))
    ),
    f"{OFFSET_UNKNOWN}: the offset is unknown": lambda row: OFFSET_UNKNOWN in _offsets(row),
    "P=N: partition P is at offset N": lambda row: sum(map(len, (row["changelog"] or {}).values())) > 1,
}
"""The meaning of a sign, and whether it is in the cells of a row."""


def say_incomplete_stores(
    application: Application, places: Collection[tuple[str, str]] | None = None, *, quiet: bool
) -> bool:
    """Name the stores that may lack rows of a segment, and return if there is one.

    ``places`` are the (task, store) to check; None stands for all.
    """
    # Nothing is said about a running application: it has segments that are not flushed yet, so a missing offset is no
    # sign of lost rows.
    if application.running:
        return False
    stores = [(task.name, store) for task in application.tasks for store in task.stores]
    remarks = [silent_remark(store) for task, store in stores if places is None or (task, store.name) in places]
    for remark in filter(None, remarks):
        say(remark, quiet=quiet)
    return any(remarks)


def fatal_problems(app: Application, places: Collection[tuple[str, str]], *, everything: bool) -> list[Problem]:
    """Return the fatal problems of the selected (task, store), of files of their tasks, and of unlisted directories.

    ``everything`` includes all problems of the application, because the user selected nothing.
    """
    from kstate_cli.statedir.names import position_file, store_checkpoint
    from kstate_cli.statedir.problems import both_places, task_place

    fatal = [problem for problem in app.all_problems() if problem.fatal]
    if everything:
        return fatal
    # Files of the task that have the offset or the Position of a selected store count too.
    own = [task_place(task) / name(store) for task, store in places for name in (position_file, store_checkpoint)]
    own += [task_place(task) / CHECKPOINT for task, _ in places]
    folders = [folder for task, store in places for folder in both_places(task, store)]
    return [problem for problem in fatal if problem.place in own or any(map(problem.place.within, folders))]


def unreadable_error(app: Application, problems: Sequence[Problem]) -> KstateError:
    """Return the error for stores whose offsets are unknown because something cannot be read."""
    from kstate_cli.errors import ConditionNotMet
    from kstate_cli.texts import command

    return ConditionNotMet(
        (
            "kstate could not read all files: "
            f"{', '.join(dict.fromkeys(problem.place.text for problem in problems[:_MAX_NAMED]))}"
        ),
        hint=f"to predict the next start: {command('check', app.path, '--for', 'RELEASE')}",
    )


def problem_lines(problems: Iterable[Problem]) -> Iterator[ProblemLine]:
    """Yield a line for each problem."""
    for problem in problems:
        # The problem may be of a file of the task, and then has no store.
        store = problem.place.store
        yield {
            "type": "problem",
            "task": problem.place.task,
            "store": None if store is None else store.name,
            "code": problem.code.value,
            "path": "/".join(problem.place.names) or ".",
            "message": problem.description,
            "rule": problem.rule,
        }


def backups_of_missing(app: Path, *, quiet: bool) -> list[LostCopy]:
    """Return the backups of stores that APP no longer has. Raise Refused if they cannot be read."""
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lost import lost_copies

    # Every entry of both directories is listed.
    with waiting("comparing the directory with its backups", quiet=quiet):
        return list(lost_copies(app, read_runs(app)))


def say_backups(copies: Sequence[LostCopy], *, quiet: bool) -> None:
    """Print a line for each backup, for people."""
    for copy in copies:
        say(f"run {copy.run.name}: {copy.sentences}", quiet=quiet)


def as_problem(copy: LostCopy) -> Problem:
    """Return the backup as a problem, for programs."""
    return Problem(ProblemCode.ONLY_KEPT, Place(), f"run {copy.run.name}: {copy.text}", copy.ways)


def lag_members(lag: Lag | None) -> LagMembers:
    """Return ``lag``, ``lag_exact`` and ``lag_seconds``; null if unknown."""
    if lag is None:
        return {"lag": None, "lag_exact": None, "lag_seconds": None}
    seconds = lag.seconds
    if seconds is not None:
        seconds = round(seconds, 3)
    return {"lag": lag.records.count, "lag_exact": lag.records.exact, "lag_seconds": seconds}


def lag_text(lag: Lag | None) -> str:
    """Return the lag for people: ``120, 4 s``; ``?`` if unknown."""
    if lag is None or not lag.seconds:
        return count_text(lag)
    return f"{count_text(lag)}, {duration_text(lag.seconds)}"


def count_text(lag: Lag | None) -> str:
    """Return the records of a lag for people: ``120``, ``at most 120``; ``?`` if unknown."""
    if lag is None:
        return "?"
    if not lag.records.exact:
        return f"at most {lag.records.count:,}"
    return f"{lag.records.count:,}"


def age_text(lag: Lag | None) -> str:
    """Return the age of a lag for people: ``4 s``; ``-`` without a lag, ``?`` if unknown."""
    if lag is None or lag.seconds is None:
        return "?"
    if not lag.seconds:
        return "-"
    return duration_text(lag.seconds)


_MAX_NAMED: Final = 5

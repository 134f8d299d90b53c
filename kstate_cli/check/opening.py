"""Whether a release opens the databases of a store (``RocksDBStore.openDB``, ``AbstractSegments.openExisting``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kstate_cli.check import streams_log
from kstate_cli.check.codes.layout import (
    DOES_NOT_OPEN,
    HEADERS_STORE,
    OFFSETS_IN_COLUMN_FAMILY,
    SEGMENT_DOES_NOT_OPEN,
    SST_NOT_NAMED,
    SST_TOO_NEW,
    UNKNOWN_COLUMN_FAMILY,
)
from kstate_cli.check.findings import Finding
from kstate_cli.check.rule import Obstacle
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.families import OFFSETS_CF, STATISTICS_CF
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.store_kinds import headers_families, known_families
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.statedir.places import Place
from kstate_cli.statedir.problems import ProblemCode


@dataclass(frozen=True, slots=True)
class Opening:
    """How opening a store ends."""

    findings: tuple[Finding, ...] = ()
    obstacle: Obstacle | None = None
    swallowed: bool = False
    """Up to 4.2 a segmented store opens without the segment that does not, and without all that come after it."""
    recreated: bool = False
    """RocksDB makes a new database where CURRENT is missing."""


def judge_opening(snapshot: Snapshot, task: Task, store: Store) -> Opening:
    """How the release gets on with the databases of one store."""
    recreated = False
    for database in store.databases:
        obstacle = _obstacle(snapshot, task, store, database)
        recreated |= _without_current(database) and obstacle is None
        if obstacle is None:
            continue
        swallowed = store.segmented and not snapshot.asked.into_family
        code = SEGMENT_DOES_NOT_OPEN if swallowed and obstacle.code == DOES_NOT_OPEN else obstacle.code
        more = ": the store opens silently without it, and without every later segment" if swallowed else ""
        finding = snapshot.finding(code, obstacle.text + more, task, store.name)
        location = streams_log.STORE_NOT_OPENED.format(database.path.name, database.path)
        messages = obstacle.messages if obstacle.by_streams else (location, *obstacle.messages)
        shown_obstacle = Obstacle(code, obstacle.text, obstacle.file, messages)
        return Opening((finding,), shown_obstacle, swallowed, recreated)
    return Opening(recreated=recreated)


def doubts(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    """SSTs that no MANIFEST names: a crash leaves them, and so does a MANIFEST that has lost its end."""
    for database in store.databases:
        for problem in database.problems:
            if problem.doubt:
                yield snapshot.finding(SST_NOT_NAMED, problem.text, task, store.name)


def _without_current(database: Database) -> bool:
    return any(problem.code is ProblemCode.NO_CURRENT for problem in database.problems)


def _obstacle(snapshot: Snapshot, task: Task, store: Store, database: Database) -> Obstacle | None:
    shown = Place.of(task.app, database.path).text
    return (
        _families(snapshot, store, database, shown)
        or _formats(snapshot, database, shown)
        or _damage(snapshot, database, shown)
    )


def _families(snapshot: Snapshot, store: Store, database: Database, shown: str) -> Obstacle | None:
    families = set(database.column_families)
    if snapshot.asked.into_family:
        unknown = sorted(families - known_families())
        if not unknown:
            return None
        message = streams_log.UNEXPECTED_FAMILY.format(unknown[0], database.path.name)
        return Obstacle(UNKNOWN_COLUMN_FAMILY, f"column family {unknown[0]}", shown, (message,), by_streams=True)
    # RocksDB opens its own family by itself, whatever families are named to it.
    extra = families - (known_families() - headers_families() - {OFFSETS_CF}) - {STATISTICS_CF}
    if not extra:
        return None
    if extra & headers_families():
        code, text = HEADERS_STORE, f"a store with record headers ({store.kind.name})"
    elif OFFSETS_CF in extra:
        code, text = OFFSETS_IN_COLUMN_FAMILY, "its RocksDB has the column family offsets"
    else:
        code, text = UNKNOWN_COLUMN_FAMILY, f"column family {', '.join(sorted(extra))}"
    names = sorted(extra) if len(extra) == 1 else []
    return Obstacle(code, text, shown, (streams_log.FAMILIES_NOT_OPENED.format(", ".join(names)),))


def _formats(snapshot: Snapshot, database: Database, shown: str) -> Obstacle | None:
    newest = max(database.sst_formats, default=0)
    reads = snapshot.asked.release.reads_sst_format
    if newest <= reads:
        return None
    text = f"SST format {newest}, and {snapshot.asked.release} reads {reads} at most"
    return Obstacle(SST_TOO_NEW, text, shown, (streams_log.FORMAT_VERSION.format(newest),))


def _damage(snapshot: Snapshot, database: Database, shown: str) -> Obstacle | None:
    """SSTs that the MANIFEST names and that are not there, or not in their size; a value that is no offset."""
    for problem in database.problems:
        no_current = problem.code is ProblemCode.NO_CURRENT
        if no_current and (logs := snapshot.write_ahead[database.path]):
            message = streams_log.LOG_WITHOUT_CURRENT
            return Obstacle(DOES_NOT_OPEN, f"CURRENT is missing, and {logs[0]} is there", shown, (message,))
        if not problem.fatal or no_current:
            continue
        if problem.code is ProblemCode.SST:
            name = problem.place.name
            return Obstacle(DOES_NOT_OPEN, f"{name} {problem.description}", problem.place.text, (name,))
        if problem.code in (ProblemCode.DOES_NOT_OPEN, ProblemCode.NO_MANIFEST):
            return Obstacle(DOES_NOT_OPEN, problem.description, shown, ())
        if problem.code is ProblemCode.NOT_A_LONG:
            message = streams_log.NOT_A_LONG
            return Obstacle(DOES_NOT_OPEN, problem.description, shown, (message,), by_streams=True)
    return None


def java_text(error: MalformedBytesError) -> str:
    """What Java's exception says for bytes that ``OffsetCheckpoint.read`` does not take."""
    return error.streams_message or error.streams_exception or ""

"""Rules for the opening of one store at a start (``RocksDBStore.openDB``, ``AbstractSegments``). Offsets come later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kstate_cli import streams_log
from kstate_cli.check.codes.layout import (
    DOES_NOT_OPEN,
    HEADERS_STORE,
    OFFSETS_IN_COLUMN_FAMILY,
    SEGMENT_DOES_NOT_OPEN,
    SEGMENT_OFF_GRID,
    SESSIONS_BEFORE_HEADERS,
    SST_NOT_NAMED,
    SST_TOO_NEW,
    UNKNOWN_COLUMN_FAMILY,
    UNKNOWN_KIND,
)
from kstate_cli.check.codes.offsets import GLOBAL_STATUS_OPEN, OFFSET_WITHOUT_STORE
from kstate_cli.check.files import ObstacleAndFindings, segment_obstacle, store_file_obstacle
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.rule import Obstacle, Rule, StoreCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.store_kinds import OFFSETS_CF, STATISTICS_CF, all_families, headers_families, store_kind
from kstate_cli.releases import knows_headers, readable_by
from kstate_cli.statedir.model import (
    Database,
    Store,
    Task,
    has_rows_without_headers,
    may_be_misread_with_headers,
    misread_with_headers,
    without_headers,
)
from kstate_cli.statedir.names import store_folder
from kstate_cli.statedir.problems import Place, ProblemCode


def _kind(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    kind = draft.store.kind.name
    if readable_by(without_headers(kind), snapshot.request.release):
        return draft
    text = f"{snapshot.request.release} does not support {kind} stores"
    return replace(draft.with_findings(snapshot.finding(UNKNOWN_KIND, text, draft.task, draft.store.name)), ended=True)


def _files(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return _failing(draft, store_file_obstacle(snapshot, draft.task, draft.store))


def _failing(draft: StoreCheckDraft, failure: ObstacleAndFindings) -> StoreCheckDraft:
    return draft.with_findings(*failure[1]).failing(failure[0])


def _segments(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    foreign, findings = segment_obstacle(snapshot, draft.task, draft.store)
    draft = draft.with_findings(*findings)
    if foreign is None or snapshot.request.into_family:
        return draft.failing(foreign)
    if draft.store.empty:
        return draft
    # Up to 4.2 Streams ignores the error: the store opens without the rows of its segments.
    return draft.without_rows(foreign.code)


def _databases(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    opening = judge_opening(snapshot, draft.task, draft.store)
    draft = replace(draft.with_findings(*opening.findings), recreated=opening.recreated)
    if opening.obstacle is None or not opening.swallowed:
        return draft.failing(opening.obstacle)
    return replace(draft.without_rows(opening.obstacle.code), closed=True)


def _global_databases(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    """Judge the databases of a global store: Streams skips none that does not open."""
    opening = judge_opening(snapshot, draft.task, draft.store)
    return draft.with_findings(*opening.findings).failing(opening.obstacle)


def _sessions(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return draft.with_findings(*misread_sessions(snapshot, draft.task, draft.store))


def _doubts(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    return draft.with_findings(*doubts(snapshot, draft.task, draft.store))


def _no_database(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    # A negative offset is not that of a record. So the store may never have had a row.
    if draft.store.databases or not any(offset >= 0 for offset in draft.read.offsets.values()):
        return draft
    text = "the store has an offset, but no database, so its rows are lost"
    finding = snapshot.finding(OFFSET_WITHOUT_STORE, text, draft.task, draft.store.name)
    return draft.with_findings(finding).without_rows(finding.code)


def _misplaced_segments(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    """Add a finding for segments whose start (in the name of their folder) is not a multiple of the segment interval.

    Streams computes the names of segments from the times of rows, so it never opens a segment with another name.
    """
    skipped = snapshot.misplaced_segments(draft.task, draft.store)
    if not skipped:
        return draft
    starts = ", ".join(str(d.segment_start) for d in skipped)
    text = (
        f"the segment numbers {starts} are not multiples of a segment interval. Streams does not open these "
        "segments, so their rows are missing"
    )
    finding = snapshot.finding(SEGMENT_OFF_GRID, text, draft.task, draft.store.name)
    return draft.with_findings(finding).without_rows(finding.code)


def _recreated(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    if not draft.recreated:
        return draft
    text = "CURRENT is missing, so RocksDB creates an empty database"
    finding = snapshot.finding(DOES_NOT_OPEN, text, draft.task, draft.store.name)
    return draft.with_findings(finding).without_rows(finding.code)


def _global_status(snapshot: Snapshot, draft: StoreCheckDraft) -> StoreCheckDraft:
    task, store = draft.task, draft.store
    request = snapshot.request
    if draft.fatal is not None or not (request.into_family and request.exactly_once and store.status == "open"):
        return draft
    text = f"the store's status is open, so {request.release} fails at every start"
    not_valid, because = streams_log.INVALID_STATE
    messages = (not_valid.format(store.name), because)
    file = f"{task.name}/{store_folder(store.name, segmented=False)}"
    finding = snapshot.finding(GLOBAL_STATUS_OPEN, text, task, store.name)
    return draft.with_findings(finding).failing(Obstacle(finding.code, text, file, messages))


STORE_RULES: tuple[Rule[StoreCheckDraft], ...] = (
    Rule("a later release added this kind of store (kstate_cli/releases.py)", _kind),
    Rule("StoreQueryUtils.readPositionFromCheckpoint, LegacyCheckpointingStateStore.init", _files),
    Rule("AbstractSegments.segmentIdFromSegmentName", _segments),
    Rule("RocksDBStore.openRocksDB, AbstractSegments.openExisting", _databases),
    Rule("RocksDBTimeOrderedSessionStoreWithHeaders (KIP-1285)", _sessions),
    Rule("VersionSet::Recover (RocksDB)", _doubts),
    Rule("OffsetCheckpoint keeps the offset of a store whose directory was removed", _no_database),
    Rule("AbstractSegments.segmentName", _misplaced_segments),
    Rule("DBImpl::Recover (RocksDB) creates a database with create_if_missing", _recreated),
)
"""The rules for stores of tasks, in the order of Streams."""
GLOBAL_STORE_RULES: tuple[Rule[StoreCheckDraft], ...] = (
    Rule("StoreQueryUtils.readPositionFromCheckpoint, LegacyCheckpointingStateStore.init", _files),
    Rule("RocksDBStore.openRocksDB", _global_databases),
    Rule("VersionSet::Recover (RocksDB)", _doubts),
    Rule("GlobalStateManagerImpl.initialize, AbstractColumnFamilyAccessor.open", _global_status),
)
"""The rules for global stores."""


def misread_sessions(snapshot: Snapshot, task: Task, store: Store) -> tuple[Finding, ...]:
    """Return a finding if the release misreads rows of a store, or would do so with ``dsl.store.format=HEADERS``.

    The store opens without an error, but each row that is read is wrong.
    """
    if not knows_headers(snapshot.request.release):
        return ()
    if has_rows_without_headers(store):
        return _misread(
            snapshot, task, store, ("the store was opened as a store with headers, but its rows have no headers")
        )
    if not may_be_misread_with_headers(store):
        return ()
    # Stores of some kinds have the same bytes. Then only the topology shows whether headers are read.
    certain = misread_with_headers(store.kind.name) is not None
    elsewhere = [twin for other in snapshot.siblings(task) for twin in other.stores if twin.name == store.name]
    if any(store_kind(twin.kind.name).misread_before for twin in elsewhere):
        return _misread(
            snapshot, task, store, ("other tasks have this store with headers, but in this task its rows have none")
        )
    if snapshot.request.headers_format:
        if certain:
            return _misread(snapshot, task, store, "the store's rows have no headers")
        text = "if the store's rows are on-window-close sessions, they have no headers"
        return _misread(snapshot, task, store, text, Level.WARNING)
    if certain:
        text = "you do not have to do anything, unless the application sets dsl.store.format=HEADERS"
        return _misread(snapshot, task, store, text, Level.EXPECTED)
    return ()


def _misread(
    snapshot: Snapshot, task: Task, store: Store, text: str, level: Level | None = None
) -> tuple[Finding, ...]:
    return (snapshot.finding(SESSIONS_BEFORE_HEADERS, text, task, store.name, level),)


@dataclass(frozen=True, slots=True)
class Opening:
    """The result of opening a store."""

    findings: tuple[Finding, ...] = ()
    obstacle: Obstacle | None = None
    swallowed: bool = False
    """Up to 4.2 Streams ignores the error: a segmented store opens without this segment and all later ones."""
    recreated: bool = False
    """RocksDB creates a new database because CURRENT is missing."""


def judge_opening(snapshot: Snapshot, task: Task, store: Store) -> Opening:
    """Judge how the release opens the databases of one store. The first database that does not open decides."""
    recreated = False
    for database in store.databases:
        obstacle = _obstacle(snapshot, task, store, database)
        recreated |= _without_current(database) and obstacle is None
        if obstacle is None:
            continue
        code, text = obstacle.code, obstacle.text
        swallowed = store.segmented and not snapshot.request.into_family
        if swallowed:
            text += (
                ". This database is a segment, and Streams silently opens the store without it and all later segments"
            )
            if code == DOES_NOT_OPEN:
                code = SEGMENT_DOES_NOT_OPEN
        finding = snapshot.finding(code, text, task, store.name)
        messages = obstacle.messages
        if not obstacle.by_streams:
            # RocksDBStore wraps the error of RocksDB in a ProcessorStateException, whose message comes first.
            messages = (streams_log.STORE_NOT_OPENED.format(database.path.name, database.path), *messages)
        shown_obstacle = Obstacle(code, obstacle.text, obstacle.file, messages)
        return Opening((finding,), shown_obstacle, swallowed, recreated)
    return Opening(recreated=recreated)


def doubts(snapshot: Snapshot, task: Task, store: Store) -> Iterator[Finding]:
    """Yield a finding for SSTs that no MANIFEST names: a crash leaves them, and so does a MANIFEST without its end."""
    for database in store.databases:
        for problem in database.problems:
            if problem.doubt:
                yield snapshot.finding(SST_NOT_NAMED, problem.text, task, store.name)


def _without_current(database: Database) -> bool:
    return any(problem.code is ProblemCode.NO_CURRENT for problem in database.problems)


def _obstacle(snapshot: Snapshot, task: Task, store: Store, database: Database) -> Obstacle | None:
    path = Place.of(task.app, database.path).text
    return (
        _families(snapshot, store, database, path)
        or _formats(snapshot, database, path)
        or _damage(snapshot, database, path)
    )


def _families(snapshot: Snapshot, store: Store, database: Database, path: str) -> Obstacle | None:
    """Return why the release cannot open a database with these column families; None if it can."""
    # RocksDB opens a database only if Streams names all of its column families.
    families = set(database.column_families)
    if snapshot.request.into_family:
        unknown = sorted(families - all_families())
        if not unknown:
            return None
        message = streams_log.UNEXPECTED_FAMILY.format(unknown[0], database.path.name)
        return Obstacle(
            UNKNOWN_COLUMN_FAMILY,
            f"the store has the unknown column family {unknown[0]}",
            path,
            (message,),
            by_streams=True,
        )
    # RocksDB always opens its own column family for statistics.
    extra = families - (all_families() - headers_families() - {OFFSETS_CF}) - {STATISTICS_CF}
    if not extra:
        return None
    if extra & headers_families():
        code, text = HEADERS_STORE, f"the store has record headers ({store.kind.name})"
    elif OFFSETS_CF in extra:
        code, text = OFFSETS_IN_COLUMN_FAMILY, 'the database has the column family "offsets"'
    else:
        code, text = UNKNOWN_COLUMN_FAMILY, f"the store has the unknown column family {', '.join(sorted(extra))}"
    names = ""
    if len(extra) == 1:
        # If there are several, RocksDB lists them in any order. So only the beginning of the message is certain.
        (names,) = extra
    return Obstacle(code, text, path, (streams_log.FAMILIES_NOT_OPENED.format(names),))


def _formats(snapshot: Snapshot, database: Database, path: str) -> Obstacle | None:
    # One SST that RocksDB cannot read is enough that the whole database does not open.
    newest = max(database.sst_formats, default=0)
    reads = snapshot.request.release.reads_sst_format
    if newest <= reads:
        return None
    text = f"an SST has format {newest}, but {snapshot.request.release} reads formats up to {reads}"
    return Obstacle(SST_TOO_NEW, text, path, (streams_log.FORMAT_VERSION.format(newest),))


def _damage(snapshot: Snapshot, database: Database, path: str) -> Obstacle | None:
    """Judge damage of a database: SSTs that are missing or have another size, and offsets that are not a long."""
    for problem in database.problems:
        no_current = problem.code is ProblemCode.NO_CURRENT
        # RocksDB refuses to create a database if there is a write-ahead log. Without one it creates an empty database
        # (create_if_missing).
        if no_current and (logs := snapshot.write_ahead[database.path]):
            message = streams_log.LOG_WITHOUT_CURRENT
            return Obstacle(DOES_NOT_OPEN, f"CURRENT is missing, but {logs[0]} exists", path, (message,))
        # If a problem is not fatal, RocksDB opens the database all the same.
        if not problem.fatal or no_current:
            continue
        if problem.code is ProblemCode.SST:
            name = problem.place.name
            return Obstacle(DOES_NOT_OPEN, f"{name}: {problem.description}", problem.place.text, (name,))
        if problem.code in (ProblemCode.DOES_NOT_OPEN, ProblemCode.NO_MANIFEST):
            return Obstacle(DOES_NOT_OPEN, problem.description, path, ())
        if problem.code is ProblemCode.NOT_A_LONG:
            message = streams_log.NOT_A_LONG
            return Obstacle(DOES_NOT_OPEN, problem.description, path, (message,), by_streams=True)
    return None

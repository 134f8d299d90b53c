"""What becomes of one store of one task: left, caught up, rebuilt, or refused, by rules that each have a name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.change.plan import note, warning
from kstate_cli.dump_reader.model import PartitionDump
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.store_kinds import expires, store_kind
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition
from kstate_cli.logs import log_of
from kstate_cli.offsets.ages import Age, age_of
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import may_be_ahead
from kstate_cli.releases import readable_by
from kstate_cli.restore.planning.as_of import another_log, as_of_after, log_since
from kstate_cli.restore.planning.judge import Action, Permissions, Verdict, judge
from kstate_cli.restore.planning.obstacles import damage_of, forgetful, incompatible, older_layout, unfit_name
from kstate_cli.restore.planning.plan import (
    Outcome,
    Refusal,
    RestoredPartition,
    RestoreSnapshot,
    StoreWork,
    UnchangedStore,
)
from kstate_cli.specification.draft import BY_NAMES, StoreSpec, literal, table_of
from kstate_cli.statedir.names import CHECKPOINT
from kstate_cli.texts import close_to, command, plural, quoted, suggest

_LOG = logging.getLogger(__name__)


class _StoreRefusedError(Exception):
    """A store cannot be restored, for the reason in the message."""


class _OnlyCopyError(_StoreRefusedError):
    """The present store may be the only copy of some records."""


class _NotInDumpError(_StoreRefusedError):
    """The dump lacks a topic, or a partition, that the store is restored from."""


@dataclass(frozen=True, slots=True)
class _StoreCase:
    """One store to restore, and what the directory has of it."""

    task: str
    spec: StoreSpec
    task_offsets: TaskOffsets | None
    existing: StoreOffsets | None
    """None if it has no database, even if a file states an offset of it."""
    unclean: bool
    """Its task may hold uncommitted rows, so that all of it is rebuilt."""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return f"{self.task}/{self.spec.name}"


def judge_store(
    snapshot: RestoreSnapshot, task: str, spec: StoreSpec, task_offsets: TaskOffsets | None, *, unclean: bool
) -> list[Outcome]:
    """Return the work on one store, or why it stays or is refused, with remarks on it."""
    case = _StoreCase(task, spec, task_offsets, _existing(spec, task_offsets), unclean)
    try:
        return list(_outcomes(snapshot, case))
    except _StoreRefusedError as error:
        _LOG.debug("%s: refused: %s", case.title, error)
        refusal = Refusal(f"{case.title}: {error}", not_in_dump=isinstance(error, _NotInDumpError))
        if isinstance(error, _OnlyCopyError):
            refusal = replace(refusal, only_copies=(spec.name,))
        return [refusal]


def _outcomes(snapshot: RestoreSnapshot, case: _StoreCase) -> Iterator[Outcome]:
    """Yield what becomes of one store. Raises _StoreRefusedError."""
    _refuse_unrestorable(snapshot, case)
    dumps = _partitions(snapshot, case)
    if not dumps:
        yield _without_dump(snapshot, case)
        return
    _refuse_without_headers(snapshot, case)
    damage = damage_of(snapshot.problems, case.task, case.spec)
    if damage:
        yield warning(f"{case.title}: {damage}")
    # A damaged store, or one of a task that was not closed, is rebuilt whatever its offset, which says nothing of its
    # rows.
    permissions = _permissions(snapshot.options.permissions, case, damage)
    _refuse_absent_partitions(case, dumps)
    before = None
    if case.existing is not None:
        before = age_of(snapshot.ages, case.task, case.existing)
    parts = _rebuild_together(
        tuple(_judge_partition(snapshot, case, dump, permissions, before) for dump in dumps), permissions
    )
    _refuse_by_verdicts(parts)
    for part in parts:
        if part.verdict.invalid or part.verdict.doubtful:
            rebuilds = ", so kstate rebuilds it" if part.verdict.action is Action.REBUILD else ""
            yield warning(f"{case.title}: {part.verdict.why}{rebuilds}")
    # A global store has work if any of its partitions must be caught up.
    if {part.verdict.action for part in parts} == {Action.LEAVE}:
        yield _unchanged(snapshot, case, parts[0].verdict)
        return
    work = _work(snapshot, case, parts, before)
    yield from (
        note(f"{why}. `kstate clean` deletes the backup of this store only if you name its run")
        for why in work.only_copy
    )
    yield work


def _refuse_by_verdicts(parts: Iterable[RestoredPartition]) -> None:
    for part in parts:
        if part.verdict.action is not Action.REFUSE:
            continue
        if part.verdict.only_copy:
            raise _OnlyCopyError(part.verdict.why)
        raise _StoreRefusedError(part.verdict.why)


def _existing(spec: StoreSpec, task_offsets: TaskOffsets | None) -> StoreOffsets | None:
    if task_offsets is None:
        return None
    existing = next((state for state in task_offsets.stores if state.store.name == spec.name), None)
    if existing is not None and not existing.store.segmented and not existing.store.databases:
        return None  # an empty folder
    return existing


def _refuse_unrestorable(snapshot: RestoreSnapshot, case: _StoreCase) -> None:
    """Refuse what the release does not read, the file system does not take, or whose live segments are not clear."""
    spec, release = case.spec, snapshot.options.release
    # Streams of that release would not open such a store, or read its rows as another layout.
    if not readable_by(spec.kind, release):
        raise _StoreRefusedError(f"{release} does not support {spec.kind} stores")
    unfit = unfit_name(snapshot, spec)
    if unfit is not None:
        raise _StoreRefusedError(unfit)
    if expires(spec.kind) and not (spec.retention_ms and spec.segment_interval_ms):
        raise _StoreRefusedError(
            f"kstate does not know the store's retention. Add retention_ms = … to {table_of(spec.name)}"
        )


def _partitions(snapshot: RestoreSnapshot, case: _StoreCase) -> list[PartitionDump]:
    """Return the partitions that the dump has for a store: all of the topic for a global store, else at most one."""
    topic = case.spec.changelog or ""
    # The task N_3 has partition 3 of its changelogs; ``global`` has every partition of the topic.
    number = TaskId.parse(case.task).partition or 0
    for key, damage in sorted(snapshot.dump.damaged.items()):
        if key.topic == topic and (case.spec.is_global or number == key.partition):
            raise _StoreRefusedError(f"the dump is damaged: {damage}")
    if case.spec.is_global:
        return [dump for key, dump in sorted(snapshot.dump.partitions.items()) if key.topic == case.spec.changelog]
    dumped = snapshot.dump.partitions.get(TopicPartition(topic, number))
    if dumped is None:
        return []
    return [dumped]


def _without_dump(snapshot: RestoreSnapshot, case: _StoreCase) -> Outcome:
    """Leave a store that the dump does not have, if it is whole and the user did not name it.

    Return a warning if the partition may be empty. Else raise _NotInDumpError.
    """
    lacks = f"the dump does not contain {case.spec.changelog}"
    if case.task != GLOBAL:
        lacks += f", partition {TaskId.parse(case.task).partition}"
    # If the user names the store, leaving it silently would look like a restoration.
    is_named = case.spec.name in snapshot.options.stores
    requested = is_named or snapshot.options.permissions.rebuild
    # Streams would restore a store without offset at its start, or wipe that of an unclean task: it needs the dump.
    if case.existing is not None and case.existing.has_offset and not case.unclean and not requested:
        _LOG.debug("%s: unchanged", case.title)
        return UnchangedStore(case.task, case.spec.name, lacks)
    # A writer without a manifest leaves no file for a partition without records. If the specification states the
    # number of partitions, the user vouches for the partition.
    may_be_empty = snapshot.dump.manifest is None and not has_stated_partitions(case.spec)
    if may_be_empty and case.existing is None and not is_named:
        return warning(f"kstate does not restore {case.title}, because {lacks}")
    raise _NotInDumpError(f"{lacks}{without_topic(snapshot, case.spec)}")


def has_stated_partitions(spec: StoreSpec) -> bool:
    """Return whether the number of partitions is complete: an inferred one is a lower bound."""
    return spec.partitions is not None and "partitions" not in spec.inferred


def without_topic(snapshot: RestoreSnapshot, spec: StoreSpec) -> str:
    """Return what to write in the specification if the dump has no partition of the changelog of a store."""
    topics = {key.topic for key in snapshot.dump.partitions}
    if spec.changelog in topics:
        return ""
    table = table_of(spec.name)
    advice = ""
    if spec.inferred.get("changelog") == BY_NAMES:
        advice = f". If the application disables logging for the store, set logged = false in {table}"
    # The topic of another store would be a wrong one, however similar its name is.
    free = topics - {other.changelog for other in snapshot.spec.stores}
    name = close_to(spec.changelog or "", free)
    if name is not None and _is_mistyped(spec.changelog or "", name):
        advice += f" (did you mean {name}? Then set changelog = {literal(name)} in {table})"
    return advice


def _is_mistyped(name: str, similar: str) -> bool:
    """Return whether the names differ by at most two characters, as after a typing error."""
    from difflib import SequenceMatcher

    changes = SequenceMatcher(None, name, similar, autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for tag, a, b, c, d in changes if tag != "equal") <= 2


def _refuse_without_headers(snapshot: RestoreSnapshot, case: _StoreCase) -> None:
    if store_kind(case.spec.kind).needs_headers and not snapshot.dump.headers_of(case.spec.changelog):
        files = "the dump has none"
        if snapshot.dump.has_headers:
            files = f"some of the dump's files for {case.spec.changelog} have none"
        raise _StoreRefusedError(f"its rows need record headers, but {files}. Write the dump with includeHeaders=true")


def _permissions(permissions: Permissions, case: _StoreCase, damage: str | None) -> Permissions:
    """Return what the user permits. If the store itself must be rebuilt, ``rebuild`` gets that reason."""
    existing = case.existing
    if damage:
        return replace(permissions, rebuild=f"kstate cannot use the existing data ({damage})")
    if case.unclean:
        return replace(permissions, rebuild="its task was not closed cleanly")
    if case.task_offsets is not None and existing is not None and may_be_ahead(existing.store, case.task_offsets):
        # A versioned store that already has records beyond its offset gets other versions if they are replayed.
        return replace(
            permissions,
            rebuild="the application was killed, and this versioned store may already contain records past its offset",
        )
    return permissions


def _refuse_absent_partitions(case: _StoreCase, dumps: Iterable[PartitionDump]) -> None:
    """Refuse a global store if the dump lacks a partition of its topic: the rows of that partition would be lost."""
    spec, existing = case.spec, case.existing
    if not spec.is_global:
        return
    keys: set[TopicPartition] = set()
    if existing is not None:
        keys = {key for key in existing.offsets if key.topic == spec.changelog}
    if spec.partitions is not None and has_stated_partitions(spec):
        keys |= {TopicPartition(spec.changelog or "", number) for number in range(spec.partitions)}
    absent = sorted(keys - {dump.key for dump in dumps})
    if absent:
        raise _NotInDumpError(f"the dump does not contain {', '.join(map(str, absent))}")


def _judge_partition(
    snapshot: RestoreSnapshot, case: _StoreCase, dump: PartitionDump, permissions: Permissions, before: Age | None
) -> RestoredPartition:
    """Return what becomes of the store by one partition.

    ``before`` is what kstate knows of the age of the store's data.
    """
    committed = _committed(snapshot, case, dump)
    facts = _facts(snapshot, dump.key)
    other = as_of_ms = offset = None
    if before is not None:
        as_of_ms = before.as_of_ms
        # Judged before any offset: in another log offsets mean nothing, and "past the end of the dump" would hide that.
        other = another_log(snapshot.record_digest, dump, facts, before)
    if other is not None and not permissions.by_user:
        raise _OnlyCopyError(
            f"the store was restored from a different log than {dump.key}: {other}. Do not start the application"
        )
    log = log_of(dump, committed, facts)
    if before is not None:
        log = log_since(log, snapshot.dump, before)
    existing = case.existing
    if existing is not None:
        offset = existing.offsets.get(dump.key)
    verdict = judge(
        log,
        offset,
        is_global=case.spec.is_global,
        has_rows=existing is not None and not existing.store.empty,
        permissions=permissions,
        as_of_ms=as_of_ms,
    )
    _refuse_emptied(dump, verdict, permissions)
    return RestoredPartition(dump, log, replace(verdict, only_copy=verdict.only_copy or other is not None))


def _committed(snapshot: RestoreSnapshot, case: _StoreCase, dump: PartitionDump) -> int | None:
    """Return the offset that the group has committed of a source topic; None for a changelog."""
    if not case.spec.source_topic:
        return None
    key = dump.key
    # The offset in the manifest is of the time of the dump. That of the broker is newer, and that of the user goes
    # first.
    committed = snapshot.dump.committed.get(key)
    facts = snapshot.options.facts.get(key)
    if facts is not None and facts.committed is not None:
        committed = facts.committed
    committed = snapshot.options.committed.get(key, committed)
    # A group commits no offset of a partition from which it never got a record. Kafka Streams takes 0 then, and
    # restores nothing (``StoreChangelogReader``). Aborted records and markers may be in the log.
    never_used = dump.rows == 0 and dump.log_start == 0
    if committed is None and never_used and (facts is None or facts.end == dump.log_end):
        return 0
    if committed is None:
        raise _StoreRefusedError(
            f"{key} is a source topic, and values beyond the group's committed offset do not belong to the table yet. "
            f"{suggest(f'Pass {option.COMMITTED_OFFSETS} FILE or set', option.COMMITTED_OFFSETS) or 'Set'} committed "
            "in the manifest"
        )
    return committed


def _facts(snapshot: RestoreSnapshot, key: TopicPartition) -> LogFacts | None:
    """Return what the broker states about a log, None if no broker was asked."""
    facts = snapshot.options.facts.get(key)
    # The broker was asked for every topic: an answer that lacks one is an answer.
    if facts is None and snapshot.options.from_broker:
        raise _StoreRefusedError(
            f"the broker does not have {key}. The topic was deleted, or this is a different cluster. Find the cause "
            "before you start the application. Otherwise, the application restores from a log without these records"
        )
    return facts


def _refuse_emptied(dump: PartitionDump, verdict: Verdict, permissions: Permissions) -> None:
    """Refuse an empty full dump if an older one has rows."""
    # Only an empty full dump has ``older_full``: a topic that was deleted between two dumps gives one.
    if dump.older_full is None or permissions.allow_empty or verdict.action is not Action.REBUILD:
        return
    generation, rows = dump.older_full
    ways = (
        f". To restore from that generation, pass {option.FULL_DUMP} {quoted(str(generation))}. To restore an empty "
        f"store, pass {option.ALLOW_EMPTY}"
    )
    raise _StoreRefusedError(
        f"the newest full dump of {dump.key} contains no records, but generation {generation} contains "
        f"{plural(rows, 'record')}{suggest(ways, option.FULL_DUMP, option.ALLOW_EMPTY)}"
    )


def _rebuild_together(parts: tuple[RestoredPartition, ...], permissions: Permissions) -> tuple[RestoredPartition, ...]:
    """Return the partitions of a store with one action: if one partition of a global store must be rebuilt, all are.

    The partitions share one database, which is built new. A partition whose log is empty then gives no rows, as in
    Streams.
    """
    actions = {part.verdict.action for part in parts}
    if len(actions) == 1 or Action.REBUILD not in actions:
        return parts
    others = replace(permissions, rebuild="kstate must rebuild another partition of the same topic")
    together = []
    for part in parts:
        if part.verdict.action in (Action.LEAVE, Action.CATCH_UP):
            # A refusal stays: a partition that stands in the way does so for the whole store.
            verdict = judge(part.log, None, is_global=True, has_rows=False, permissions=others)
            part = replace(part, verdict=verdict)
        together.append(part)
    return tuple(together)


def _unchanged(snapshot: RestoreSnapshot, case: _StoreCase, verdict: Verdict) -> UnchangedStore:
    assert case.existing is not None  # nothing else has an offset to stay at
    why = incompatible(snapshot, case.existing.store)
    if why is not None:
        raise _StoreRefusedError(why)
    _LOG.debug("%s: unchanged: %s", case.title, verdict.why)
    return UnchangedStore(case.task, case.spec.name, verdict.why)


def _work(
    snapshot: RestoreSnapshot, case: _StoreCase, parts: tuple[RestoredPartition, ...], before: Age | None
) -> StoreWork:
    """Return the work on a store that is caught up or rebuilt."""
    rebuild = any(part.verdict.action is Action.REBUILD for part in parts)
    # A rebuild replaces all files, so release and layout of the existing store matter only for catching up.
    if not rebuild and case.existing is not None:
        _refuse_catching_up(snapshot, case.spec, case.existing)
    verb = "rebuild" if rebuild else "catch up"
    _LOG.debug("%s: %s: %s", case.title, verb, "; ".join(part.verdict.why for part in parts))
    offsets = _offsets_after(case, parts, rebuild=rebuild)
    as_of = as_of_after(parts, rebuild=rebuild, before=before)
    return StoreWork(case.task, case.spec, parts, rebuild, case.existing, offsets, as_of)


def _offsets_after(case: _StoreCase, parts: Sequence[RestoredPartition], *, rebuild: bool) -> dict[TopicPartition, int]:
    """Return the offsets of a store after its restoration: the last record's, or, of a global store, the next one's."""
    offsets = {}
    for part in parts:
        last, old = part.log.last, None
        if case.existing and not rebuild:
            old = case.existing.offsets.get(part.log.key)
        if part.verdict.action is Action.LEAVE and old is not None:
            offsets[part.log.key] = old
        elif last is not None:
            offsets[part.log.key] = last
            if case.spec.is_global:
                # A global store states the next offset to read (GlobalStateManagerImpl).
                offsets[part.log.key] += 1
        elif not case.spec.is_global:
            offsets[part.log.key] = OFFSET_UNKNOWN
        elif part.log.start is not None:
            # Streams seeks to any number that a global store states, and fails at -4. So this is the start of the log.
            offsets[part.log.key] = part.log.start
    return offsets


def _refuse_catching_up(snapshot: RestoreSnapshot, spec: StoreSpec, existing: StoreOffsets) -> None:
    """Refuse to add records to a store of another release or layout, or one that drops files by itself."""
    # Catching up adds records and leaves the database otherwise as it is. An offset in the place of the other release
    # would stay there, and one of the two would be wrong.
    if snapshot.into_family != existing.store.has_offsets_family:
        to = snapshot.options.release
        home = CHECKPOINT
        if snapshot.into_family:
            home = 'the column family "offsets"'
        migrate = suggest(f"Pass {option.REBUILD} or migrate", option.REBUILD) or "Migrate"
        raise _StoreRefusedError(
            f"its offset is not in {home}, where {to} keeps offsets. {migrate} the directory first: "
            f"{command('migrate', snapshot.app, option.TO, to.version)}"
        )
    older = older_layout(existing.store, spec.kind)
    if older is not None:
        rebuild = f". To rebuild the store, pass {option.REBUILD} {option.STORE} {quoted(spec.name)}"
        # For each record Streams also deletes the row in the older column family; the sorted files go to one family
        # only.
        raise _StoreRefusedError(
            f"its column family {older} still contains rows in an older "
            f"layout{suggest(rebuild, option.REBUILD, option.STORE)}"
        )
    reason = forgetful(existing.store) or incompatible(snapshot, existing.store)
    if reason is not None:
        raise _StoreRefusedError(reason)

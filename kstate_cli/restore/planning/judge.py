"""Judge one store of one task: it stays, is caught up, or is rebuilt from the earliest offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kstate_cli import option
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.logs import DeleteCoverage, Log, Where, delete_coverage
from kstate_cli.texts import moment, span_text, suggest


class Action(Enum):
    """What becomes of a store."""

    LEAVE = "leave"
    CATCH_UP = "catch up"
    REBUILD = "rebuild"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action and its reason; for CATCH_UP the offset after which records are applied."""

    action: Action
    why: str
    after: int | None = None
    invalid: bool = False
    """The offset is not in the broker's log (KIP-406)."""
    doubtful: bool = False
    """Worth a warning: the store may not belong to this log."""
    unsure: bool = False
    """Whether deletes were forgotten between store and dump is unknown."""
    only_copy: bool = False
    """The store may have records that no log has any more: ``clean`` must not delete it by its age."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the user permits, or vouches for."""

    rebuild: str | None = None
    """Why the present store is replaced whatever its offset; None if it is not."""
    allow_empty: bool = False
    """A store with rows may be replaced by an empty one, if its changelog is empty."""
    complete: bool = False
    """The dump begins where the log begins, even if its first record is above the log start."""
    wipe_invalid: bool = True
    """A store whose offset the broker's log no longer has is rebuilt (KIP-406) instead of refused."""
    by_user: bool = False
    """The user asked for the rebuild; otherwise a fault of the store requires it."""
    accept_resurrected: bool = False
    """Rows whose deletes the log has forgotten may stay."""


def judge(
    log: Log,
    offset: int | None,
    *,
    is_global: bool,
    has_rows: bool,
    permissions: Permissions,
    as_of_ms: int | None = None,
) -> Verdict:
    """Return what becomes of a store, by the rules of docs/internals/restoring.md#judging.

    ``offset`` is that of the store: the last applied record of a task store, the next one of a global store; -4 and
    None mean that it is unknown. Only start and end of the *broker's* log make an offset invalid, never those of the
    dump. ``as_of_ms`` is as of when the data of the store is, in ms since 1970; None if that is unknown.
    """
    following = _next_offset(offset, is_global=is_global)
    beyond = following is not None and log.where(following) is Where.ABOVE
    # The store is ahead of the broker's log. Tested before all other rules, also those about damage, because the store
    # may have records that nothing else has.
    if beyond and log.live and not permissions.by_user:
        return Verdict(Action.REFUSE, _lost(log, following), only_copy=True)
    verdict = _judge(log, offset, following, has_rows=has_rows, permissions=permissions, as_of_ms=as_of_ms)
    if beyond and verdict.action is Action.REBUILD:
        # The user asked for the rebuild, or no broker was asked and the store is damaged. The store that is replaced
        # may be the only copy of its records, so its backup stays until the user names it to ``clean``.
        return replace(verdict, only_copy=True)
    return verdict


def _next_offset(offset: int | None, *, is_global: bool) -> int | None:
    """Return the offset that a store needs next: a global store states it, a task store its last record."""
    if offset is None or offset == OFFSET_UNKNOWN:
        return None
    if is_global:
        return offset
    return offset + 1


def _lost(log: Log, following: int | None) -> str:
    return (
        f"its next offset {following} is above the end {log.end} of {log.key} on the broker, so this log was "
        "truncated or recreated. Do not start the application: it would restore from an incomplete log"
    )


def _judge(
    log: Log,
    offset: int | None,
    following: int | None,
    *,
    has_rows: bool,
    permissions: Permissions,
    as_of_ms: int | None,
) -> Verdict:
    """Judge a store by the rules that follow after that of the only copy. ``following`` is the offset it needs next."""
    # By -4, Streams states that a store is consistent and has no offset. It is empty like its log, so nothing is
    # missing.
    if offset == OFFSET_UNKNOWN and not has_rows and log.last is None and not permissions.rebuild:
        return Verdict(Action.LEAVE, "it is empty, like its changelog")
    if permissions.rebuild or following is None:
        return _rebuild(log, permissions.rebuild or "it has no offset", has_rows=has_rows, permissions=permissions)
    # The next offset counts, not the last one: a store whose last record was just below the log start lacks nothing.
    where = log.where(following)
    # Only an offset below the broker's log start lets the consumer report OffsetOutOfRange (KIP-406).
    if where is Where.BELOW:
        why = f"its next offset {following} is below the log start {log.start}"
        return _invalid(log, why, has_rows=has_rows, permissions=permissions)
    if where is Where.ABOVE:
        return _beyond_dump(log, following)
    # The store has all records of the dump. Offsets up to the end may be transaction markers or compacted records.
    if log.last is None or following > log.last:
        return _past_dump(log, following, has_rows=has_rows, permissions=permissions, as_of_ms=as_of_ms)
    if not _covers(log, following, permissions):
        return Verdict(
            Action.REFUSE,
            (
                f"the dump begins at offset {log.covered_from}, but the store needs the records from offset "
                f"{following} on, so some records may be missing{_way_out(log)}"
            ),
        )
    return _catch_up(log, following, has_rows=has_rows, permissions=permissions, as_of_ms=as_of_ms)


def _beyond_dump(log: Log, following: int) -> Verdict:
    """Leave a store that is beyond the end of the log that the dump recorded, with a doubt.

    Either the application ran on after the dump was taken, or the topic was created again. That cannot be told here,
    and a healthy store is never wiped on a guess.
    """
    return Verdict(
        Action.LEAVE,
        (
            f"it is past the end of the dump, because its next offset {following} is above the recorded log end "
            f"{log.end}. Either the application has run since the dump was read, or the log was truncated or "
            f"recreated, and this store is the only copy. To find out, pass {option.BOOTSTRAP_SERVER}"
        ),
        doubtful=True,
    )


def _past_dump(log: Log, following: int, *, has_rows: bool, permissions: Permissions, as_of_ms: int | None) -> Verdict:
    """Leave a store that has all records of the dump, unless deletes may be hidden behind its last record."""
    past = Verdict(Action.LEAVE, f"it is past the end of the dump (next offset {following})")
    # Compaction may have removed tombstones after the last record of the dump, unless that is the last offset of the
    # log: the active segment is not cleaned.
    if not log.hides_deletes(following):
        return past
    verdict = _catch_up(log, following, has_rows=has_rows, permissions=permissions, as_of_ms=as_of_ms)
    if verdict.action is not Action.CATCH_UP:
        return verdict
    if verdict.unsure:
        return replace(past, why=_maybe_deleted(log, following), doubtful=True)
    return past


def _catch_up(log: Log, following: int, *, has_rows: bool, permissions: Permissions, as_of_ms: int | None) -> Verdict:
    """Catch up a store if the log still has every delete since its data.

    Else it is rebuilt or refused, or it is unsure.

    A store without rows is always caught up, since it has nothing to delete.
    """
    why = f"from offset {following}"
    caught_up = Verdict(Action.CATCH_UP, why, after=following - 1)
    if not has_rows:
        return caught_up
    # What was deleted before ``unknown_before_ms`` is unknown, so no retention proves that the log has all deletes.
    if None not in (as_of_ms, log.unknown_before_ms) and (as_of_ms or 0) < (log.unknown_before_ms or 0):
        return _too_old(
            log,
            caught_up,
            (
                "tombstones written after its data and before the dump may be missing. Either delete.retention.ms "
                "was shorter in that period, or kstate does not know how long the period was (because the dump or "
                "the host is different, or the clock was changed)"
            ),
            permissions=permissions,
        )
    # If the topic is not compacted, tombstones go only with the log start, which was compared with the offset already.
    if not log.forgets:
        return caught_up
    ended = log.read_by(following)
    deletes_heard = delete_coverage(as_of_ms, ended, log.retention_ms)
    # A dump that is read in rounds has missed deletes itself if one of its rounds came too late.
    deaf = log.late_round(following)
    if deaf is not None and not permissions.accept_resurrected:
        duration = span_text(deaf.ended_ms - deaf.continues_ms)
        late = f"the records from offset {deaf.start} on were read {duration} after the preceding ones"
        return Verdict(
            Action.REFUSE,
            (
                f"tombstones may be missing from the dump itself, because {late} (delete.retention.ms is "
                f"{span_text(log.retention_ms)}). Write a new full dump or pass {option.ACCEPT_RESURRECTED}"
            ),
        )
    if deletes_heard is DeleteCoverage.YES:
        return caught_up
    # An unknown age is no refusal: the age of stores that Streams wrote is recorded nowhere, and nearly all are young
    # enough.
    if deletes_heard is DeleteCoverage.UNKNOWN:
        return replace(caught_up, unsure=True)
    assert as_of_ms is not None
    assert ended is not None
    old = (
        f"its data is from {moment(as_of_ms)}. The dump was read {span_text(ended - as_of_ms)} later, so tombstones "
        f"from that period may be missing (delete.retention.ms is {span_text(log.retention_ms)})"
    )
    return _too_old(log, caught_up, old, permissions=permissions)


def _maybe_deleted(log: Log, following: int) -> str:
    return (
        f"it is past the dump's last record (next offset {following}), but kstate does not know how old its data is. "
        f"Tombstones at offsets {following} to {(log.read_end or following) - 1} may be "
        f"missing{suggest(f'. To rebuild the store, pass {option.REBUILD}', option.REBUILD)}"
    )


def _too_old(log: Log, caught_up: Verdict, old: str, *, permissions: Permissions) -> Verdict:
    """Judge a store with rows whose log may have forgotten deletes: rebuilt, unless the user accepts these rows."""
    # The user vouches for the rows; the reason stays visible in the plan.
    if permissions.accept_resurrected:
        return replace(caught_up, why=f"{caught_up.why}; {old}")
    rebuilt = _rebuild(log, old, has_rows=True, permissions=permissions)
    # The one hint that helps if the dump is no base for a rebuild.
    if rebuilt.action is Action.REFUSE:
        way_out = suggest(
            f". To catch up the store anyway, pass {option.ACCEPT_RESURRECTED}", option.ACCEPT_RESURRECTED
        )
        return replace(rebuilt, why=f"{rebuilt.why}{way_out}")
    return rebuilt


def _invalid(log: Log, why: str, *, has_rows: bool, permissions: Permissions) -> Verdict:
    """Wipe and rebuild a store with an invalid offset (KIP-406), unless the user forbids it."""
    if not permissions.wipe_invalid:
        return Verdict(
            Action.REFUSE, f"{why}. To rebuild the store, pass {option.ON_INVALID_OFFSET} rebuild", invalid=True
        )
    return _rebuild(log, why, has_rows=has_rows, permissions=permissions, invalid=True)


def _rebuild(log: Log, why: str, *, has_rows: bool, permissions: Permissions, invalid: bool = False) -> Verdict:
    """Return the verdict to rebuild a store, or the refusal if the dump is no base for that; ``why`` is the reason."""
    # The log is empty but the store is not, as after a topic was created again, or with a wrong dump. The rebuild would
    # succeed and leave an empty store, so the user must permit it.
    if log.first is None and has_rows and not permissions.allow_empty:
        return Verdict(
            Action.REFUSE,
            (
                f"{why}, but the changelog has no records, so kstate would empty the "
                f"store{suggest(f'. To permit this, pass {option.ALLOW_EMPTY}', option.ALLOW_EMPTY)}"
            ),
        )
    if log.first is not None and not _covers(log, log.start or 0, permissions):
        start_text = ""
        if log.start is not None:
            start_text = f" {log.start}"
        return Verdict(
            Action.REFUSE,
            f"{why}, but the dump begins at offset {log.covered_from}, above the log start{start_text}. kstate cannot "
            f"rebuild a store from an incremental dump{_way_out(log)}",
        )
    # A rebuild needs every delete too: if the cleaner removed a tombstone while the dump was read, the deleted row is
    # still in the dump.
    slow = _too_slow(log)
    if slow is not None and log.first is not None and not permissions.accept_resurrected:
        return Verdict(
            Action.REFUSE,
            (
                f"{why}, but {slow}. kstate cannot rebuild a store from such a dump. Read more partitions in "
                f"parallel{suggest(f', or pass {option.ACCEPT_RESURRECTED}', option.ACCEPT_RESURRECTED)}"
            ),
        )
    return Verdict(Action.REBUILD, why, invalid=invalid)


def _too_slow(log: Log) -> str | None:
    """Return why deletes may be missing since a dump was read too slowly; None if it was fast enough, or unknown."""
    reading = log.reading
    deaf = log.late_round()
    if deaf is not None and log.forgets:
        return (
            f"offsets {deaf.start} to {deaf.end - 1} of the dump were read "
            f"{span_text(deaf.ended_ms - deaf.continues_ms)} after the preceding records. Tombstones from that "
            f"period may be missing (delete.retention.ms is {span_text(log.retention_ms)})"
        )
    if (
        reading is None
        or log.rounds
        or not log.forgets
        or delete_coverage(reading.started_ms, reading.ended_ms, log.retention_ms) is not DeleteCoverage.NO
    ):
        return None
    return (
        f"reading the dump took {span_text(reading.ended_ms - reading.started_ms)}, so tombstones from that period "
        f"may be missing (delete.retention.ms is {span_text(log.retention_ms)})"
    )


def _covers(log: Log, offset: int, permissions: Permissions) -> bool:
    """Return True if nothing from ``offset`` on is missing. No option overrides where the reading began."""
    # Where the reading began is a fact: records before it were skipped, whatever the user states.
    if log.begin is not None:
        return log.begin <= offset
    return permissions.complete or log.first is None or log.first <= offset


def _way_out(log: Log) -> str:
    if log.begin is not None:
        return ""
    confirm = suggest(f"pass {option.DUMP_IS_COMPLETE} or ", option.DUMP_IS_COMPLETE)
    return f". If compaction has removed all earlier records, {confirm}set start in the manifest"

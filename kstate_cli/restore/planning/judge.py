"""What a restoration does with one store of one task: leave it, catch it up, or rebuild it from the earliest offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.logs.log import DeleteCoverage, Log, Where, delete_coverage, moment, span_text


class Action(Enum):
    """What is done with a store."""

    LEAVE = "leave"
    CATCH_UP = "catch up"
    REBUILD = "rebuild"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An action and the reason for it; for CATCH_UP the offset after which records are taken."""

    action: Action
    why: str
    after: int | None = None
    invalid: bool = False
    """The offset is not in the broker's log (KIP-406)."""
    doubtful: bool = False
    """Worth a warning: what is there may not belong to this log."""
    unsure: bool = False
    """Nobody knows whether deletes were forgotten between the store and the dump."""
    only_copy: bool = False
    """What is there may have records that no log has any more: it must not go unseen, nor by its age."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the user vouches for."""

    rebuild: str | None = None
    """Why what is there is ignored; None where it is not."""
    allow_empty: bool = False
    """A store with rows may be replaced by what an empty changelog gives."""
    complete: bool = False
    """The dump begins where the log begins, even if its first record is above the log start."""
    wipe_invalid: bool = True
    """A store whose offset the broker's log no longer has is rebuilt (KIP-406), not refused."""
    asked: bool = False
    """The user has asked for the rebuild, not something that is wrong with the store."""
    resurrected: bool = False
    """Rows whose deletes were forgotten meanwhile may stay."""


def judge(
    log: Log,
    offset: int | None,
    *,
    is_global: bool,
    has_rows: bool,
    allowed: Allowed,
    as_of_ms: int | None = None,
) -> Verdict:
    """The rules of docs/internals/restoring.md#judging.

    ``offset`` is the store's own: the last applied record of a task store, the next one of a global store; None where
    there is none. Only the *broker's* log start and end make an offset invalid; -4 and None are unknown. ``as_of_ms``
    is when the store was as its offset says, in ms since 1970; None where nobody knows.
    """
    following = None if offset is None or offset == OFFSET_UNKNOWN else offset if is_global else offset + 1
    beyond = following is not None and log.where(following) is Where.ABOVE
    if beyond and log.live and not allowed.asked:
        return Verdict(Action.REFUSE, _lost(log, following), only_copy=True)
    verdict = _judge(log, offset, following, has_rows=has_rows, allowed=allowed, as_of_ms=as_of_ms)
    return replace(verdict, only_copy=True) if beyond and verdict.action is Action.REBUILD else verdict


def _lost(log: Log, following: int | None) -> str:
    return (
        f"its next offset {following} lies above the end {log.end} of the broker's log of {log.key}: that log was cut "
        "or made anew. Do not start the application: it would restore from a log that has lost these records"
    )


def _judge(
    log: Log, offset: int | None, following: int | None, *, has_rows: bool, allowed: Allowed, as_of_ms: int | None
) -> Verdict:
    if offset == OFFSET_UNKNOWN and not has_rows and log.last is None and not allowed.rebuild:
        return Verdict(Action.LEAVE, "empty, as its changelog is")
    if allowed.rebuild or following is None:
        return _rebuild(log, allowed.rebuild or "it has no offset", has_rows=has_rows, allowed=allowed)
    where = log.where(following)
    if where is Where.BELOW:
        why = f"its next offset {following} lies below the log start {log.start}"
        return _invalid(log, why, has_rows=has_rows, allowed=allowed)
    if where is Where.ABOVE:
        # Either the application ran on after the dump was taken, or the topic was made anew. A healthy store is never
        # wiped on a guess.
        return Verdict(
            Action.LEAVE,
            f"already past the dump: its next offset {following} lies above the log end {log.end} that the dump "
            "recorded: the application ran on since, or the log was cut or made anew, and this may be the only copy "
            "(--bootstrap-server asks the broker)",
            doubtful=True,
        )
    if log.last is None or following > log.last:
        past = Verdict(Action.LEAVE, f"already past the dump (next offset {following})")
        if not log.hides_deletes(following):
            return past
        verdict = _catch_up(log, following, has_rows=has_rows, allowed=allowed, as_of_ms=as_of_ms)
        if verdict.action is not Action.CATCH_UP:
            return verdict
        return replace(past, why=_maybe_deleted(log, following), doubtful=True) if verdict.unsure else past
    if not _covers(log, following, allowed):
        return Verdict(
            Action.REFUSE,
            f"the dump begins at offset {log.covered_from} and the store needs {following}: what lies between may be "
            f"missing{_way_out(log)}",
        )
    return _catch_up(log, following, has_rows=has_rows, allowed=allowed, as_of_ms=as_of_ms)


def _catch_up(log: Log, following: int, *, has_rows: bool, allowed: Allowed, as_of_ms: int | None) -> Verdict:
    """Only within the time in which the log has kept every tombstone; without rows there is nothing to delete."""
    why = f"from offset {following}"
    caught_up = Verdict(Action.CATCH_UP, why, after=following - 1)
    if not has_rows:
        return caught_up
    if None not in (as_of_ms, log.unknown_before_ms) and (as_of_ms or 0) < (log.unknown_before_ms or 0):
        return _too_old(
            log,
            caught_up,
            "deletes between its data and the dump may be forgotten: delete.retention.ms was shorter then, or nobody "
            "knows how much time passed (another dump or host, or clocks that were set)",
            allowed=allowed,
        )
    if not log.forgets:
        return caught_up
    ended = log.read_by(following)
    deletes_heard = delete_coverage(as_of_ms, ended, log.retention_ms)
    deaf = log.late_round(following)
    if deaf is not None and not allowed.resurrected:
        duration = span_text(deaf.ended_ms - deaf.continues_ms)
        late = f"from offset {deaf.start} on it was read {duration} after what is before"
        return Verdict(
            Action.REFUSE,
            f"{why}, but the dump itself has missed deletes: {late} (delete.retention.ms is "
            f"{span_text(log.retention_ms)}): begin a new full, or --accept-resurrected",
        )
    if deletes_heard is DeleteCoverage.YES:
        return caught_up
    if deletes_heard is DeleteCoverage.UNKNOWN:
        return replace(caught_up, unsure=True)
    assert as_of_ms is not None
    assert ended is not None
    old = (
        f"its data is of {moment(as_of_ms)}, and the dump was read {span_text(ended - as_of_ms)} later: deletes in "
        f"between may be forgotten (delete.retention.ms is {span_text(log.retention_ms)})"
    )
    return _too_old(log, caught_up, old, allowed=allowed)


def _maybe_deleted(log: Log, following: int) -> str:
    return (
        f"already past the last record of the dump (next offset {following}), but nobody knows when its data was "
        f"written: deletes at offsets {following} to {(log.read_end or following) - 1} may be forgotten (--rebuild)"
    )


def _too_old(log: Log, caught_up: Verdict, old: str, *, allowed: Allowed) -> Verdict:
    """Judge a store with rows whose log may have forgotten deletes: rebuilt, unless the user accepts these rows."""
    if allowed.resurrected:
        return replace(caught_up, why=f"{caught_up.why}; {old}")
    rebuilt = _rebuild(log, old, has_rows=True, allowed=allowed)
    if rebuilt.action is Action.REFUSE:
        return replace(rebuilt, why=f"{rebuilt.why}; --accept-resurrected catches it up all the same")
    return rebuilt


def _invalid(log: Log, why: str, *, has_rows: bool, allowed: Allowed) -> Verdict:
    """KIP-406: the store is wiped and rebuilt, unless that is not wanted."""
    if not allowed.wipe_invalid:
        return Verdict(Action.REFUSE, f"{why} (--on-invalid-offset rebuild wipes it and begins anew)", invalid=True)
    return _rebuild(log, why, has_rows=has_rows, allowed=allowed, invalid=True)


def _rebuild(log: Log, why: str, *, has_rows: bool, allowed: Allowed, invalid: bool = False) -> Verdict:
    if log.first is None and has_rows and not allowed.allow_empty:
        return Verdict(
            Action.REFUSE,
            f"{why}, but the changelog has no records: the store would be emptied (--allow-empty does it)",
        )
    start = 0 if log.start is None else log.start
    if log.first is not None and not _covers(log, start, allowed):
        known = "" if log.start is None else f" {log.start}"
        return Verdict(
            Action.REFUSE,
            f"{why}, but the dump begins at offset {log.covered_from}, above the log start{known}: an incremental dump "
            f"cannot be the base of a rebuild{_way_out(log)}",
        )
    slow = _too_slow(log)
    if slow is not None and log.first is not None and not allowed.resurrected:
        return Verdict(
            Action.REFUSE,
            f"{why}, but {slow}: it cannot be the base of a rebuild (dump more in parallel; --accept-resurrected takes "
            "it all the same)",
        )
    return Verdict(Action.REBUILD, f"{why}: rebuilt from the earliest offset", invalid=invalid)


def _too_slow(log: Log) -> str | None:
    """Why a reading may have missed deletes of what it had read itself; None where it did not, or nobody knows."""
    one = log.reading
    deaf = log.late_round()
    if deaf is not None and log.forgets:
        return (
            f"offsets {deaf.start} to {deaf.end - 1} of the dump were read "
            f"{span_text(deaf.ended_ms - deaf.continues_ms)} after what is before them was complete: deletes may be "
            f"forgotten meanwhile (delete.retention.ms is {span_text(log.retention_ms)})"
        )
    if (
        one is None
        or log.rounds
        or not log.forgets
        or delete_coverage(one.started_ms, one.ended_ms, log.retention_ms) is not DeleteCoverage.NO
    ):
        return None
    return (
        f"reading the dump took {span_text(one.ended_ms - one.started_ms)}: deletes may be forgotten meanwhile "
        f"(delete.retention.ms is {span_text(log.retention_ms)})"
    )


def _covers(log: Log, offset: int, allowed: Allowed) -> bool:
    """Whether nothing from ``offset`` on is missing. Where reading began is a fact that no flag overrules."""
    if log.begin is not None:
        return log.begin <= offset
    return allowed.complete or log.first is None or log.first <= offset


def _way_out(log: Log) -> str:
    if log.begin is not None:
        return ""
    return " (compacted away, not left out: --dump-is-complete, or start in the manifest)"

"""How far each store is behind the ends of its logs, whatever the next start makes of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kstate_cli import clock
from kstate_cli.check.counting import counted
from kstate_cli.check.logs import LogSource
from kstate_cli.check.outcome import Outcome, Prediction, Records
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.offsets.resolve import resolve
from kstate_cli.statedir.model import Application


@dataclass(frozen=True, slots=True)
class Lag:
    """What a store has not seen of its logs."""

    records: Records
    seconds: float | None
    """How old the first record is that it has not seen; 0 where it has seen all, None where nobody says."""


_UNKNOWN: Final = frozenset({Outcome.FAILS, Outcome.HANGS, Outcome.NOT_REACHED, Outcome.UNKNOWN})
_RESTORES: Final = frozenset(
    {Outcome.OPENS, Outcome.OPENS_EMPTY, Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED}
)


def until_running(predictions: Iterable[Prediction]) -> Records | None:
    """What the next start restores before it is RUNNING; None where it is not known of every store, or it never is.

    Stores in memory, which are restored at every start, are nothing that a directory shows.
    """
    total, exact = 0, True
    for one in predictions:
        if one.outcome in _UNKNOWN or (one.outcome in _RESTORES and one.records is None):
            return None
        if one.outcome in _RESTORES and one.records is not None:
            total += one.records.count
            exact = exact and one.records.exact and one.or_else is None
    return Records(total, exact)


def lags(
    app: Application,
    sources: Sequence[LogSource],
    *,
    exactly_once: bool | None = None,
    places: Collection[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], Lag]:
    """By task and store. A store is left out without a valid offset, and where its log is not known or has it not.

    ``exactly_once``: None where nobody says. Then no record of an aborted transaction counts where the log is read, and
    nothing is taken for a marker where it is not. ``places``: only these are asked about. Raises UsageError and
    DumpError for what cannot be read.
    """
    following = {place: one for place, one in _following(app).items() if places is None or place in places}
    wanted: dict[TopicPartition, set[int]] = {}
    for offsets in following.values():
        for key, first in offsets.items():
            wanted.setdefault(key, set()).add(first)
    for source in sources:
        source.prepare(wanted, transactional=exactly_once is not False)
    known_lags = {}
    for place, offsets in following.items():
        parts = [_behind(sources, key, first, transactional=bool(exactly_once)) for key, first in offsets.items()]
        known = [one for one in parts if one is not None]
        if known and len(known) == len(parts):
            known_lags[place] = _together(known)
    return known_lags


def _following(app: Application) -> dict[tuple[str, str], Mapping[TopicPartition, int]]:
    """The next offset of each log that a store is made from; of a global store its file says it, of others one less."""
    following: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
    for resolved in resolve(app):
        task = resolved.task
        of_stores = {one.store.name: one.offsets for one in resolved.stores} | dict(resolved.absent)
        for name, offsets in of_stores.items():
            if offsets and min(offsets.values()) >= 0 and (task.is_global or len(offsets) == 1):
                more = 0 if task.is_global else 1
                following[task.name, name] = {key: offset + more for key, offset in offsets.items()}
    return following


def _behind(sources: Sequence[LogSource], key: TopicPartition, first: int, *, transactional: bool) -> Lag | None:
    source = next((one for one in sources if one.log(key) is not None), None)
    log = None if source is None else source.log(key)
    if source is None or log is None or log.where(first) is not Where.INSIDE:
        return None
    records = counted(sources, key, first, transactional=transactional)
    if records is None:
        return None
    at = source.time_of(key, first)
    seconds = None if at is None else max(0.0, (clock.now_ms() - at) / 1000)
    return Lag(records, 0.0 if records.exact and not records.count else seconds)


def _together(parts: Sequence[Lag]) -> Lag:
    """Of a global store, which is made from all partitions of its topic."""
    records = Records(sum(one.records.count for one in parts), all(one.records.exact for one in parts))
    seconds = [one.seconds for one in parts if one.seconds is not None]
    return Lag(records, max(seconds) if len(seconds) == len(parts) else None)

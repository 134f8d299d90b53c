"""The lag of each store behind the ends of its logs, whatever the next start does with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kstate_cli import clock
from kstate_cli.check.findings import Outcome, Prediction, Records
from kstate_cli.check.logs import LogSource
from kstate_cli.check.snapshot_reader import count_records
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Where
from kstate_cli.offsets.resolve import resolve
from kstate_cli.statedir.model import Application


@dataclass(frozen=True, slots=True)
class Lag:
    """The records of its logs that a store has not applied."""

    records: Records
    seconds: float | None
    """The age of the first record that it has not applied; 0 if it has applied all, None if no source states it."""


_UNKNOWN: Final = frozenset({Outcome.FAILS, Outcome.HANGS, Outcome.NOT_REACHED, Outcome.UNKNOWN})
_RESTORES: Final = frozenset(
    {Outcome.OPENS, Outcome.OPENS_EMPTY, Outcome.RESTORES, Outcome.RESTORES_ALL, Outcome.WIPED}
)


def until_running(predictions: Iterable[Prediction]) -> Records | None:
    """Return the records that the next start restores before RUNNING; None if that is unknown, or never comes.

    Stores in memory are restored at every start too, and no directory shows them.
    """
    total, exact = 0, True
    for prediction in predictions:
        if prediction.outcome in _UNKNOWN or (prediction.outcome in _RESTORES and prediction.records is None):
            return None
        if prediction.outcome in _RESTORES and prediction.records is not None:
            total += prediction.records.count
            exact = exact and prediction.records.exact and prediction.or_else is None
    return Records(total, exact)


def lags(
    app: Application,
    sources: Sequence[LogSource],
    *,
    exactly_once: bool | None = None,
    places: Collection[tuple[str, str]] | None = None,
) -> dict[tuple[str, str], Lag]:
    """By task and store. A store is left out without a valid offset, and where its log is not known or has it not.

    ``exactly_once``: None if nobody says. Then no record of an aborted transaction counts where the log is read, and
    nothing is taken for a marker where it is not. ``places``: only these are asked about. Raises UsageError and
    DumpError for what cannot be read.
    """
    following = {place: offsets for place, offsets in _following(app).items() if places is None or place in places}
    first_offsets: dict[TopicPartition, set[int]] = {}
    for offsets in following.values():
        for key, first in offsets.items():
            first_offsets.setdefault(key, set()).add(first)
    # All offsets at once, so that a source reads each log once.
    for source in sources:
        source.prepare(first_offsets, transactional=exactly_once is not False)
    result = {}
    for place, offsets in following.items():
        parts = [_behind(sources, key, first, transactional=bool(exactly_once)) for key, first in offsets.items()]
        complete = [lag for lag in parts if lag is not None]
        if complete and len(complete) == len(parts):
            result[place] = _together(complete)
    return result


def _following(app: Application) -> dict[tuple[str, str], Mapping[TopicPartition, int]]:
    """Return the next offset of each log of a store: a global store states it, another store states the one before."""
    following: dict[tuple[str, str], Mapping[TopicPartition, int]] = {}
    for resolved in resolve(app):
        task = resolved.task
        of_stores = {state.store.name: state.offsets for state in resolved.stores} | dict(resolved.absent)
        for name, offsets in of_stores.items():
            if offsets and min(offsets.values()) >= 0 and (task.is_global or len(offsets) == 1):
                more = 0 if task.is_global else 1
                following[task.name, name] = {key: offset + more for key, offset in offsets.items()}
    return following


def _behind(sources: Sequence[LogSource], key: TopicPartition, first: int, *, transactional: bool) -> Lag | None:
    source = next((source for source in sources if source.log(key) is not None), None)
    log = None if source is None else source.log(key)
    if source is None or log is None or log.where(first) is not Where.INSIDE:
        return None
    records = count_records(sources, key, first, transactional=transactional)
    if records is None:
        return None
    at = source.time_of(key, first)
    seconds = None if at is None else max(0.0, (clock.now_ms() - at) / 1000)
    return Lag(records, 0.0 if records.exact and not records.count else seconds)


def _together(parts: Sequence[Lag]) -> Lag:
    """Return the lag of a global store, which is built from all partitions of its topic."""
    records = Records(sum(lag.records.count for lag in parts), all(lag.records.exact for lag in parts))
    seconds = [lag.seconds for lag in parts if lag.seconds is not None]
    return Lag(records, max(seconds) if len(seconds) == len(parts) else None)

"""Plan what is read: which topics, and of each partition the new records or all of them, and why.

The rules: docs/internals/changelogs.md#growing. Whether a delete may be forgotten depends on the time between two
readings. The broker's clock cannot be read through librdkafka without writing a record, and a host's time of day can be
set. So every manifest records both the time of day and the time since the start of the host, and the next call takes
the longer of the two (docs/internals/changelogs.md#time-of-a-dump).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.clock import BootTime
from kstate_cli.dump_reader.growing import Full, Grown
from kstate_cli.dump_reader.model import ClockMark
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog, legal_topic, readings_of_changelog
from kstate_cli.logs.log import (
    RETENTION_MS,
    DeleteCoverage,
    delete_coverage,
    moment,
    most_ms,
    set_back,
    span_text,
)
from kstate_cli.specification.model import PROCESSOR, Spec
from kstate_cli.texts import did_you_mean, some

_LEAST_RANGE: Final = 500_000
_MOST_RANGE: Final = 4_000_000
_RANGES_PER_SLOT: Final = 3
"""So that no task works alone at the end, and none has so little that its start shows."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition of one round."""

    key: TopicPartition
    facts: LogFacts
    start: int
    end: int
    """Below this: the last stable offset."""
    asked_ms: int
    """Before the broker was asked: every record that was there then is below ``end``."""
    continues: Full | None
    """What is added to; None where a full begins."""
    why: str | None = None
    """Why what the dump has is not continued, where it has something."""

    @property
    def records(self) -> int:
        """At most so many."""
        return self.end - self.start

    @property
    def open_from(self) -> int | None:
        """Where a transaction begins that is open; None where there is none."""
        return self.end if self.end < self.facts.end else None

    @property
    def held_back(self) -> int:
        """Offsets that an open transaction holds back: the next call reads them."""
        return max(0, self.facts.end - self.end)

    @property
    def must_read(self) -> bool:
        """Whether there are offsets to read."""
        return self.records > 0


def plan_round(
    grown: Grown | None,
    facts: Mapping[TopicPartition, LogFacts],
    asked_ms: int,
    *,
    full: bool,
    unknown_time: str | None = None,
) -> list[PartitionPlan]:
    """A plan for every partition that the broker has of what is dumped.

    ``unknown_time``: why nobody knows how much time has passed since the last reading.
    """
    known = {} if grown is None else grown.newest()
    return [_plan(key, known.get(key), told, asked_ms, unknown_time, full=full) for key, told in sorted(facts.items())]


def _plan(
    key: TopicPartition, before: Full | None, facts: LogFacts, asked_ms: int, unknown_time: str | None, *, full: bool
) -> PartitionPlan:
    why = None if before is None else "a new full was asked for" if full else not_continued(before, facts, asked_ms)
    if why is None and before is not None and unknown_time is not None and _forgets(before, facts):
        why = f"deletes may be forgotten: how long ago the last reading was is not known: {unknown_time}"
    if before is None or why is not None:
        return anew(key, facts, why, asked_ms)
    return PartitionPlan(key, facts, before.end, max(_end(facts), before.end), asked_ms, before)


def anew(key: TopicPartition, facts: LogFacts, why: str | None, asked_ms: int) -> PartitionPlan:
    """A full of its own."""
    return PartitionPlan(key, facts, facts.start, max(_end(facts), facts.start), asked_ms, None, why)


def up_to(plan: PartitionPlan, end: int) -> PartitionPlan:
    """Return the plan of a reading that was interrupted at ``end``.

    Not every record that the log had when the broker was asked is in the dump then. So the time from which deletes have
    to be heard stays that of the reading before. A record that a reading has seen keeps its delete for
    ``delete.retention.ms`` from that reading on, and the next reading must end within that time.
    """
    return replace(plan, end=end, asked_ms=plan.asked_ms if plan.continues is None else plan.continues.as_of_ms)


def _end(facts: LogFacts) -> int:
    return facts.end if facts.stable_end is None else facts.stable_end


def not_continued(before: Full, facts: LogFacts, now_ms: int) -> str | None:
    """Why a full is not added to; None where it is."""
    if None not in (before.topic_id, facts.topic_id) and before.topic_id != facts.topic_id:
        return f"the topic was made anew (id {before.topic_id}, now {facts.topic_id})"
    if before.leader_epoch is not None and facts.leader_epoch is not None and facts.leader_epoch < before.leader_epoch:
        return f"it is another log: leader epoch {facts.leader_epoch}, and it was {before.leader_epoch}"
    if facts.end < before.end:
        return f"the log was cut: it ends at {facts.end}, and was read up to {before.end}"
    if facts.start > before.end:
        return f"a gap: the log begins at {facts.start}, and was read up to {before.end}"
    retention = retention_of(before, facts)
    if not _forgets(before, facts):
        return None
    first = before.ranges[0]
    if set_back(first.continues_ms, first.ended_ms, retention):
        return "the clock of the host was set back while it was read: how long that took is not known"
    if delete_coverage(first.continues_ms, first.ended_ms, retention) is DeleteCoverage.NO:
        return f"it was read too slowly to be a base (delete.retention.ms is {span_text(retention)})"
    return too_late(before, facts, now_ms)


def _forgets(before: Full, facts: LogFacts) -> bool:
    return before.compacted or facts.compacted is not False


def too_late(before: Full, facts: LogFacts, ended_ms: int) -> str | None:
    """Why a reading that ended at that time has not heard of every delete since the one before; None where it has."""
    retention = retention_of(before, facts)
    if not _forgets(before, facts):
        return None
    if set_back(before.as_of_ms, ended_ms, retention):
        return (
            f"deletes may be forgotten: the last reading was at {moment(before.as_of_ms)}, which is still to come "
            "by the clock of this host: how long ago it was is not known"
        )
    if delete_coverage(before.as_of_ms, ended_ms, retention) is not DeleteCoverage.NO:
        return None
    return (
        f"deletes may be forgotten: the last reading is {span_text(ended_ms - before.as_of_ms)} old "
        f"(delete.retention.ms is {span_text(retention)})"
    )


def retention_of(before: Full | None, facts: LogFacts) -> int:
    """The least ``delete.retention.ms`` that was ever seen of it."""
    return _least(facts.delete_retention_ms, before.delete_retention_ms if before is not None else None)


def _least(*told: int | None) -> int:
    return min((one for one in told if one is not None), default=RETENTION_MS)


def unknown_before(previous: Full | None, facts: LogFacts, began_ms: int, *, unknown_time: bool) -> int | None:
    """Return the time before which nothing is continued by a full that began at ``began_ms``; None if all may be.

    ``previous`` is the newest full of the partition before it. Tombstones may have gone sooner than the new full knows:
    before it their retention was shorter, or how much time has passed is not known (``unknown_time``).
    """
    if previous is None:
        return None
    shorter = previous.compacted and (
        facts.compacted is False or retention_of(previous, facts) < _least(facts.delete_retention_ms)
    )
    if shorter or (unknown_time and _forgets(previous, facts)):
        return began_ms
    return previous.unknown_before_ms


def continued_until(full: Full) -> int | None:
    """When the next reading of a full has to have ended, ms since 1970, or it begins anew: as far as the dump knows.

    None where the log is not compacted, and forgets no delete: what its retention removes is a gap, which nobody can
    foretell by time alone.
    """
    return full.as_of_ms + most_ms(_least(full.delete_retention_ms)) if full.compacted else None


def ranges(plans: Iterable[PartitionPlan], slots: int) -> list[tuple[PartitionPlan, int, int]]:
    """What is to be read, cut so that all slots have work: the plan, and the offsets ``start`` to below ``end``."""
    looked_at: Sequence[PartitionPlan] = [one for one in plans if one.must_read]
    total = sum(one.records for one in looked_at)
    each = min(max(total // (max(1, slots) * _RANGES_PER_SLOT), _LEAST_RANGE), _MOST_RANGE)
    cut: list[tuple[int, tuple[PartitionPlan, int, int]]] = []
    for one in looked_at:
        parts = max(1, -(-one.records // each))
        step = -(-one.records // parts)
        bounds = [one.start + step * part for part in range(parts)] + [one.end]
        cut += [(number, (one, start, end)) for number, (start, end) in enumerate(pairwise(bounds)) if start < end]
    # The first ranges of all partitions come first: where a call is interrupted, what has a gap before it is lost.
    # Of them the long ones come first, so that none is left for the end.
    return [part for _, part in sorted(cut, key=lambda entry: (entry[0], entry[1][1] - entry[1][2]))]


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Topics:
    """What is dumped, and what is not although its name begins as that of the application."""

    wanted: tuple[str, ...]
    foreign: tuple[tuple[str, str], ...] = ()
    """(topic, application that it seems to be of)."""


def of_spec(spec: Spec) -> tuple[str, ...]:
    """What the stores of a specification are restored from, but those that Streams itself restores at each start."""
    stores = (store for store in spec.stores if not store.in_memory and store.source != PROCESSOR)
    return tuple(sorted({store.changelog for store in stores if store.changelog is not None}))


def chosen(app: str | None, named: Mapping[str, str], on_broker: Iterable[str], groups: Collection[str]) -> Topics:
    """The topics of the broker that are asked for. Raises UsageError for one that it has not.

    ``named``: topic -> where it is named. ``app``: the application whose changelogs are found by their names, too.

    ``my-app-2-count-changelog`` is a changelog of ``my-app`` as well as of ``my-app-2``: where the broker knows a group
    of that name, which every application has, it is taken for the other one's, unless it is named itself.
    """
    known = set(on_broker)
    missing = [topic for topic in named if topic not in known]
    if missing:
        bad = [topic for topic in missing if not legal_topic(topic)]
        raise UsageError(
            f"{named[missing[0]]} {missing[0]!r}: "
            + ("that is no name of a topic" if bad else "the broker has no such topic"),
            hint=f"{did_you_mean(missing[:1], known)}a topic that this user may not describe is not shown either",
        )
    wanted: set[str] = set(named)
    foreign: list[tuple[str, str]] = []
    if app is not None:
        own, others = own_changelogs(app, known, groups)
        foreign = [(topic, of) for topic, of in others if topic not in wanted]
        wanted.update(own)
        if not own and not others:
            raise UsageError(
                f"--app {app!r}: the broker has no changelog that begins with it"
                + (f"; there are {some(sorted(filter(is_changelog, known)), _SHOWN)}" if known else ""),
                hint="give the application.id; a topic that this user may not describe is not shown",
            )
    return Topics(tuple(sorted(wanted)), tuple(sorted(foreign)))


def own_changelogs(
    app: str, on_broker: Iterable[str], groups: Collection[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """The changelogs that an application has by their names; and those (topic, application) that are another one's.

    Of ``my-app-2-count-changelog`` a group decides: see :func:`chosen`.
    """
    own: list[str] = []
    foreign: list[tuple[str, str]] = []
    for topic in sorted(on_broker):
        if topic.startswith(f"{app}-") and is_changelog(topic):
            others = [
                prefix
                for prefix, _ in readings_of_changelog(topic)
                if len(prefix) > len(app) and prefix.startswith(f"{app}-") and prefix in groups
            ]
            if others:
                foreign.append((topic, max(others, key=len)))
            else:
                own.append(topic)
    return own, foreign


_STEP_MS = 1


class RoundClock:
    """The clock of one round, on the scale of those before it: milliseconds since 1970, or somewhat more."""

    def __init__(self, grown: Grown | None) -> None:
        """Continue the time of the newest manifest; None for a dump that does not exist yet."""
        self._anchor = clock.boot_time()
        self._wall_ms = clock.now_ms()
        self._max_error_ms = clock.max_error_ms()
        before = None if grown is None else grown.clock
        self._scale = (before.scale if before is not None else "") or secrets.token_hex(8)
        self.why_unknown = None if grown is None else self._why_unknown(before)
        """Why nobody knows how much time has passed since the newest manifest; None if that is known."""
        self._base_ms = max(self._wall_ms, *self._bounds(grown, before))

    def now_ms(self) -> int:
        """Return the time of the dump."""
        return self.at(clock.boot_time()) or self._base_ms

    def at(self, moment: BootTime) -> int | None:
        """Return the time of the dump at a moment of this host; None for one of another host."""
        return None if moment.boot != self._anchor.boot else self._base_ms + max(0, moment.ms - self._anchor.ms)

    def mark(self) -> ClockMark:
        """Return what the next call continues."""
        now = clock.boot_time()
        return ClockMark(
            now.boot, now.ms, self.at(now) or self._base_ms, clock.now_ms(), clock.max_error_ms(), self._scale
        )

    def _why_unknown(self, before: ClockMark | None) -> str | None:
        if before is None:
            return "its manifest was written by a version that did not record it"
        if before.boot == self._anchor.boot:
            return None
        if before.max_error_ms is None or self._max_error_ms is None:
            return "another host made that call, or this one was restarted, and their clocks are not synchronized"
        return None

    def _bounds(self, grown: Grown | None, before: ClockMark | None) -> list[int]:
        """Return what the time is at least."""
        if grown is None:
            return [0]
        latest = max((one.latest_ms for one in grown.fulls), default=0) + _STEP_MS
        if before is None:
            return [latest]
        if before.boot == self._anchor.boot:
            return [latest, before.time_ms + self._anchor.ms - before.boot_ms]
        errors = (before.max_error_ms or 0) + (self._max_error_ms or 0)
        return [latest, before.time_ms + max(0, self._wall_ms - before.wall_ms) + errors]

"""Plan a round from a request: which topics, and of each partition the new records or all of them, and why.

The rules: docs/internals/changelogs.md#growing. Whether a delete may be forgotten depends on the time between two
readings. The broker's clock cannot be read through librdkafka without writing a record, and a host's time of day can be
set. So every manifest records both the time of day and the time since the start of the host, and the next call takes
the longer of the two (docs/internals/changelogs.md#time-of-a-dump).
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from kstate_cli import clock, option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.clock import BootTime
from kstate_cli.dump_reader.growing import newest_fulls
from kstate_cli.dump_reader.model import ClockMark, Full, Grown
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition, is_changelog, legal_topic, own_changelogs
from kstate_cli.logs import (
    RETENTION_MS,
    DeleteCoverage,
    delete_coverage,
    most_ms,
    set_back,
)
from kstate_cli.spark.context import SparkSettings
from kstate_cli.spark.engine import EngineChoice
from kstate_cli.specification.draft import PROCESSOR, Spec
from kstate_cli.texts import did_you_mean, hint_with_suggestion, moment, some, span_text

# Records. A smaller range takes less time than the start of its task and consumer.
_LEAST_RANGE: Final = 500_000
# Records. A range that fails, or is interrupted, is read again as a whole.
_MOST_RANGE: Final = 4_000_000
_RANGES_PER_SLOT: Final = 3
"""Several ranges for each slot, so that no task works alone at the end; each is large compared with its start."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The plan for one partition in one round."""

    key: TopicPartition
    facts: LogFacts
    start: int
    end: int
    """Exclusive: the last stable offset."""
    request_ms: int
    """Before the request for the facts: every record that the log had then is below ``end``."""
    continues: Full | None
    """The full dump that grows; None if a new one begins."""
    why: str | None = None
    """Why a full dump that exists is not continued."""

    @property
    def records(self) -> int:
        """The maximum number of records."""
        return self.end - self.start

    @property
    def open_from(self) -> int | None:
        """The first offset of an open transaction; None without one."""
        if self.end >= self.facts.end:
            return None
        return self.end

    @property
    def held_back(self) -> int:
        """The number of offsets that an open transaction holds back. The next call reads them."""
        return max(0, self.facts.end - self.end)

    @property
    def must_read(self) -> bool:
        """Whether the plan has offsets to read."""
        return self.records > 0


def plan_round(
    grown: Grown | None,
    facts: Mapping[TopicPartition, LogFacts],
    request_ms: int,
    *,
    full: bool,
    unknown_time: str | None = None,
) -> list[PartitionPlan]:
    """Return a plan for every partition of the topics to dump.

    ``unknown_time``: why the time since the last reading is unknown; None if it is known.
    """
    newest = newest_fulls(grown)
    return [_plan(key, newest.get(key), log, request_ms, unknown_time, full=full) for key, log in sorted(facts.items())]


def _plan(
    key: TopicPartition, before: Full | None, facts: LogFacts, request_ms: int, unknown_time: str | None, *, full: bool
) -> PartitionPlan:
    """Return the plan of one partition: it continues the full dump ``before``, or reads the whole log and says why."""
    if before is None:
        return new_full(key, facts, None, request_ms)
    why: str | None = "you requested a new full dump"
    if not full:
        why = not_continued(before, facts, request_ms)
    if why is None and unknown_time is not None and _forgets(before, facts):
        why = (
            "tombstones may be missing, because kstate does not know how much time has passed since it last read "
            f"the log ({unknown_time})"
        )
    if why is not None:
        return new_full(key, facts, why, request_ms)
    return PartitionPlan(key, facts, before.end, max(readable_end(facts), before.end), request_ms, before)


def new_full(key: TopicPartition, facts: LogFacts, why: str | None, request_ms: int) -> PartitionPlan:
    """Return the plan of a new full dump."""
    return PartitionPlan(key, facts, facts.start, max(readable_end(facts), facts.start), request_ms, None, why)


def up_to(plan: PartitionPlan, end: int) -> PartitionPlan:
    """Return the plan of a reading that was interrupted at ``end``.

    Not every record that the log had when the broker was asked is in the dump then. So the time from which deletes have
    to be heard stays that of the reading before. A record that a reading has seen keeps its delete for
    ``delete.retention.ms`` from that reading on, and the next reading must end within that time.
    """
    if plan.continues is None:
        return replace(plan, end=end)
    return replace(plan, end=end, request_ms=plan.continues.as_of_ms)


def readable_end(facts: LogFacts) -> int:
    """Return the exclusive end up to which read_committed reads: the last stable offset, if the broker reports it."""
    return facts.end if facts.stable_end is None else facts.stable_end


def not_continued(before: Full, facts: LogFacts, now_ms: int) -> str | None:
    """Return why the records in a log cannot be added to a full dump of it; None if they can."""
    if None not in (before.topic_id, facts.topic_id) and before.topic_id != facts.topic_id:
        return f"the topic was recreated (id {before.topic_id}, now {facts.topic_id})"
    if before.leader_epoch is not None and facts.leader_epoch is not None and facts.leader_epoch < before.leader_epoch:
        return (
            f"the log was replaced: its leader epoch is {facts.leader_epoch}, but was {before.leader_epoch} when "
            "kstate read it"
        )
    # A log never gets shorter by itself. An unclean leader election did this, or a disk that was restored from a copy.
    if facts.end < before.end:
        return f"the log was truncated: it ends at {facts.end}, but kstate had read up to {before.end}"
    # Records were deleted before kstate read them: what they changed or deleted is unknown.
    if facts.start > before.end:
        return f"records are missing: the log begins at {facts.start}, but kstate had read only up to {before.end}"
    retention = retention_of(before, facts)
    if not _forgets(before, facts):
        return None
    # The first range counts: its reading began at the log start, where any tombstone may have been about to expire.
    first = before.ranges[0]
    # Reached for a compacted log only: another one keeps every record until its retention, which shows as a gap above.
    if set_back(first.continues_ms, first.ended_ms, retention):
        return "the host's clock was set back while kstate read the log, so kstate does not know how long the read took"
    if delete_coverage(first.continues_ms, first.ended_ms, retention) is DeleteCoverage.NO:
        return (
            "kstate read the log so slowly that tombstones may be missing (delete.retention.ms is "
            f"{span_text(retention)})"
        )
    return too_late(before, facts, now_ms)


def _forgets(before: Full, facts: LogFacts) -> bool:
    return before.compacted or facts.compacted is not False


def too_late(before: Full, facts: LogFacts, ended_ms: int) -> str | None:
    """Return why a reading that ended at ``ended_ms`` may lack deletes since the one before; None if it has all."""
    retention = retention_of(before, facts)
    if not _forgets(before, facts):
        return None
    if set_back(before.as_of_ms, ended_ms, retention):
        return (
            "tombstones may be missing. According to this host's clock, kstate last read the log in the future "
            f"({moment(before.as_of_ms)}), so kstate does not know how much time has passed"
        )
    if delete_coverage(before.as_of_ms, ended_ms, retention) is not DeleteCoverage.NO:
        return None
    return (
        f"tombstones may be missing, because kstate last read the log {span_text(ended_ms - before.as_of_ms)} ago "
        f"(delete.retention.ms is {span_text(retention)})"
    )


def retention_of(before: Full | None, facts: LogFacts) -> int:
    """Return the shortest ``delete.retention.ms`` of the partition so far, in ms."""
    if before is None:
        return _least_retention(facts.delete_retention_ms)
    return _least_retention(facts.delete_retention_ms, before.delete_retention_ms)


def _least_retention(*retentions: int | None) -> int:
    # The shortest, as a tombstone of that time lived no longer; the default of Kafka if no source states any.
    return min((retention for retention in retentions if retention is not None), default=RETENTION_MS)


def unknown_before(previous: Full | None, facts: LogFacts, began_ms: int, *, unknown_time: bool) -> int | None:
    """Return the time (ms) at which a store must have been up to date to be continued by a full dump; None if any may.

    To continue a store, the dump must have all deletes since the store was last up to date. The full dump in question
    began at ``began_ms``, and ``previous`` is the newest one before it. Tombstones may have been removed sooner than
    the full dump knows: their retention was shorter before, or the time that passed is unknown (``unknown_time``). Then
    only stores that were up to date at ``began_ms`` may be continued.
    """
    if previous is None:
        return None
    shorter = previous.compacted and (
        facts.compacted is False or retention_of(previous, facts) < _least_retention(facts.delete_retention_ms)
    )
    if shorter or (unknown_time and _forgets(previous, facts)):
        return began_ms
    return previous.unknown_before_ms


def continued_until(full: Full) -> int | None:
    """Return the time, ms since 1970, by which the next reading must end so that the full dump can be continued.

    None if the log is not compacted, and so forgets no delete. The records that its retention removes are a gap, which
    time alone does not predict.
    """
    if not full.compacted:
        return None
    return full.as_of_ms + most_ms(_least_retention(full.delete_retention_ms))


def ranges(plans: Iterable[PartitionPlan], slots: int) -> list[tuple[PartitionPlan, int, int]]:
    """Divide plans into ranges of offsets, so that all ``slots``, the readers at a time, have work until the end.

    Return the plan, ``start``, and ``end``, which is exclusive, of each range, in the order in which to read them.
    """
    plans_to_read: Sequence[PartitionPlan] = [plan for plan in plans if plan.must_read]
    total = sum(plan.records for plan in plans_to_read)
    each = min(max(total // (max(1, slots) * _RANGES_PER_SLOT), _LEAST_RANGE), _MOST_RANGE)
    cut: list[tuple[int, tuple[PartitionPlan, int, int]]] = []
    for plan in plans_to_read:
        # The number of parts is rounded up, so that no range is longer than ``each``.
        parts = max(1, -(-plan.records // each))
        step = -(-plan.records // parts)
        bounds = [plan.start + step * part for part in range(parts)] + [plan.end]
        cut += [(number, (plan, start, end)) for number, (start, end) in enumerate(pairwise(bounds)) if start < end]
    # The first ranges of all partitions come first: if a call is interrupted, only ranges without a gap before them
    # count. Among the first ranges, as among the second ones and so on, the long ones lead, so that none runs alone at
    # the end.
    return [part for _, part in sorted(cut, key=lambda entry: (entry[0], entry[1][1] - entry[1][2]))]


_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics to dump, and topics of other applications whose names begin in the same way."""

    names: tuple[str, ...]
    foreign: tuple[tuple[str, str], ...] = ()
    """(topic, application to which it seems to belong)."""


def of_spec(spec: Spec) -> tuple[str, ...]:
    """Return the topics from which kstate restores the stores of a specification; none for in-memory stores."""
    stores = (store for store in spec.stores if not store.in_memory and store.source != PROCESSOR)
    return tuple(sorted({store.changelog for store in stores if store.changelog is not None}))


def select_topics(
    app: str | None, topics: Mapping[str, str], on_broker: Iterable[str], groups: Collection[str]
) -> Topics:
    """Return the topics to dump. Raises UsageError for a topic that the broker does not have.

    ``topics``: topic -> the option or file that names it. ``app``: the application whose changelogs are added.

    ``my-app-2-count-changelog`` may belong to ``my-app`` or to ``my-app-2``. Every application has a group of its name:
    if the broker has a group ``my-app-2``, the topic counts as the changelog of that one, unless ``topics`` has it.
    """
    topics_on_broker = set(on_broker)
    missing = [topic for topic in topics if topic not in topics_on_broker]
    if missing:
        reason = "the broker does not have this topic"
        if not all(map(legal_topic, missing)):
            reason = "this is not a valid topic name"
        raise UsageError(
            f"{topics[missing[0]]} {missing[0]!r}: {reason}",
            hint=hint_with_suggestion(
                did_you_mean(missing[:1], topics_on_broker), "the broker hides topics that this user may not describe"
            ),
        )
    names: set[str] = set(topics)
    foreign: list[tuple[str, str]] = []
    if app is not None:
        own, others = own_changelogs(app, topics_on_broker, groups)
        foreign = [(topic, of) for topic, of in others if topic not in names]
        names.update(own)
        if not own and not others:
            message = f"{option.APP} {app!r}: the broker has no changelog with this prefix"
            if topics_on_broker:
                message += f". Its changelogs are {some(sorted(filter(is_changelog, topics_on_broker)), _MOST_NAMES)}"
            raise UsageError(
                message,
                hint=("pass the application.id. The broker hides topics that this user may not describe"),
            )
    return Topics(tuple(sorted(names)), tuple(sorted(foreign)))


_STEP_MS = 1


class RoundClock:
    """The clock of one round, in the time of the dump: milliseconds since 1970, or somewhat more.

    This time never runs slower than a clock that cannot be set.
    """

    def __init__(self, grown: Grown | None) -> None:
        """Continue the time of the newest manifest, which ``grown`` has; None for a dump that does not exist yet."""
        # The clocks are read at one moment: a later time is this one plus what CLOCK_BOOTTIME has counted since.
        self._anchor = clock.boot_time()
        self._wall_ms = clock.now_ms()
        self._max_error_ms = clock.max_error_ms()
        before: ClockMark | None = None
        self.why_unknown: str | None = None
        """Why the time since the newest manifest is unknown; None if it is known."""
        self._scale = ""
        if grown is not None:
            before = grown.clock
            self.why_unknown = self._why_unknown(before)
        if before is not None:
            self._scale = before.scale
        # A scale tells which times can be compared. Manifests of old versions have none, and neither has a new dump.
        self._scale = self._scale or secrets.token_hex(8)
        # The largest of the bounds is taken: if it is too late, a full dump only begins early; if it were too early,
        # deletes would be missed.
        self._base_ms = max(self._wall_ms, *self._bounds(grown, before))

    def now_ms(self) -> int:
        """Return the time of the dump."""
        return self.at(clock.boot_time()) or self._base_ms

    def at(self, moment: BootTime) -> int | None:
        """Return the time of the dump at a moment of this host; None for one of another host."""
        if moment.boot != self._anchor.boot:
            return None
        return self._base_ms + max(0, moment.ms - self._anchor.ms)

    def mark(self) -> ClockMark:
        """Return the mark that the manifest records and the next call continues."""
        now = clock.boot_time()
        return ClockMark(
            now.boot, now.ms, self.at(now) or self._base_ms, clock.now_ms(), clock.max_error_ms(), self._scale
        )

    def _why_unknown(self, before: ClockMark | None) -> str | None:
        if before is None:
            return "an older version of kstate wrote the manifest without the time"
        if before.boot == self._anchor.boot:
            return None
        # Times of day of two hosts, or of two starts, can only be compared if both were synchronized.
        if before.max_error_ms is None or self._max_error_ms is None:
            return (
                "the previous run was on another host, or this host was restarted, and their clocks are not "
                "synchronized"
            )
        return None

    def _bounds(self, grown: Grown | None, before: ClockMark | None) -> list[int]:
        """Return lower bounds (ms) of the time of the dump now, by what the newest manifest recorded."""
        if grown is None:
            return [0]
        latest = max((full.latest_ms for full in grown.fulls), default=0) + _STEP_MS
        if before is None:
            return [latest]
        if before.boot == self._anchor.boot:
            return [latest, before.time_ms + self._anchor.ms - before.boot_ms]
        # Both errors are added: the first clock may have been fast, and this one slow.
        errors = (before.max_error_ms or 0) + (self._max_error_ms or 0)
        return [latest, before.time_ms + max(0, self._wall_ms - before.wall_ms) + errors]


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The topics to dump, the broker and the destination."""

    bootstrap: str
    settings: Mapping[str, str] = field(repr=False)
    """Settings of the Kafka client, which may contain passwords."""
    out: str
    """As :func:`kstate_cli.dump_writer.stores.destination` returns it."""
    app: str | None
    """The application whose changelogs are selected by their names."""
    topics: Mapping[str, str]
    """Further topics -> the option or file that names them."""
    engine: EngineChoice
    spark: SparkSettings
    workers: int
    bytes_per_second: int | None = None
    full: bool = False
    keep: int | None = None
    """The number of full dumps of each partition that stay; None: all."""
    dry_run: bool = False
    group: str | None = None
    """The application.id whose committed offsets are recorded; None: ``app``."""


class DumpWatcher:
    """Callbacks for progress; each may be overridden."""

    def planned(self, plans: Sequence[PartitionPlan], grown: Grown | None) -> None:
        """Called with the plans of a round before it reads."""

    def began(self, records: int) -> None:
        """Called before at most so many records are read."""

    def at(self, records: int, size: int) -> None:
        """Called with the records and bytes read so far, from another thread."""

    def warning(self, text: str) -> None:
        """Called with each warning."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The outcome of a round."""

    plans: tuple[PartitionPlan, ...]
    """One for each partition; the last one of a partition that was planned again."""
    generation: int | None
    """None if no manifest was written: nothing was new, or it was a dry run."""
    records: int = 0
    size: int | None = 0
    """Bytes of the new files. For a dry run an estimate from the files of the dump; None if there are none yet."""
    files: int = 0
    seconds: float = 0.0
    joined: int = 0
    """The number of small files that became parts of larger ones."""
    dropped: int = 0
    """The number of full dumps that are no longer part of the dump."""
    removed: int = 0
    """The number of removed files: of dead runs, and such as were joined or dropped long ago."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Facts that are no warnings. Every kind of output prints only these two kinds of text."""
    by_partition: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Records and bytes of the files of each partition that has any; estimates for a dry run."""

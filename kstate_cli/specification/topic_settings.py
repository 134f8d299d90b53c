"""What a broker or a dump states about changelogs, compared with the bytes of their stores.

Streams creates a changelog once, with settings that follow from the store. ``retention.ms`` is the retention of windows
and sessions plus ``windowstore.changelog.additional.retention.ms``, a day by default
(``WindowedChangelogTopicConfig``). ``min.compaction.lag.ms`` is the history retention of a versioned store plus a day
(``VersionedChangelogTopicConfig``).

Operators change settings, and Streams never reads them again. If they contradict the bytes, the user must decide: a
retention too small loses rows, and a store with another segment interval opens empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kstate_cli.broker.facts import Facts
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key, has_retention
from kstate_cli.formats.topic_partition import TopicPartition, changelog_prefix, changelog_topic, legal_topic
from kstate_cli.specification.draft import Question, SpecDraft, StoreDraft
from kstate_cli.specification.infer import Evidence, Inference
from kstate_cli.specification.intervals import (
    MIN_INTERVAL_MS,
    Interval,
    default_segment_interval,
    histories_of,
    versioned_span,
)
from kstate_cli.specification.model import IN_MEMORY, SOURCE_TOPIC
from kstate_cli.specification.topology import FROM
from kstate_cli.statedir.model import Application, Database, Task


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One topic: its partitions, and those settings that were set for the topic itself (None: not, or not known)."""

    partitions: int | None
    """None where some are not told of: a dump need not have all."""
    written: frozenset[int] = frozenset()
    """Partitions that ever had a record."""
    retention_ms: int | None = None
    min_compaction_lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ToldTopics:
    """What one source says of topics with legal names."""

    by: str
    """``the broker`` or ``the dump``."""
    topics: Mapping[str, TopicSettings]
    live: bool = False
    """A topic that is not among them is not there, or this user may not see it."""


def told_by_broker(facts: Facts) -> ToldTopics:
    """By what a broker answered."""
    written = _by_topic((key, one.end > 0) for key, one in facts.items())
    return ToldTopics(
        "the broker",
        {
            key.topic: TopicSettings(*written[key.topic], one.retention_ms, one.min_compaction_lag_ms)
            for key, one in facts.items()
            if key.topic in written
        },
        live=True,
    )


def told_by_dump(dump: Dump) -> ToldTopics:
    """By a dump: of each topic what the reading of it that ended last saw; only what its manifest says."""
    written = _by_topic((key, bool(one.log_end)) for key, one in dump.partitions.items())
    newest: dict[str, PartitionDump] = {}
    for key, one in dump.partitions.items():
        if key.topic in written and (key.topic not in newest or _ended(newest[key.topic]) < _ended(one)):
            newest[key.topic] = one
    topics = {}
    for topic, one in newest.items():
        reading = one.reading
        kept, lag = (None, None) if reading is None else (reading.retention_ms, reading.min_compaction_lag_ms)
        topics[topic] = TopicSettings(*written[topic], kept, lag)
    return ToldTopics("the dump", topics)


def _ended(one: PartitionDump) -> int:
    return -1 if one.reading is None else one.reading.ended_ms


def _by_topic(partitions: Iterable[tuple[TopicPartition, bool]]) -> dict[str, tuple[int | None, frozenset[int]]]:
    """How many partitions each topic has, and which of them ever had a record."""
    numbers: dict[str, set[int]] = {}
    written: dict[str, set[int]] = {}
    for key, has_records in partitions:
        if legal_topic(key.topic):
            numbers.setdefault(key.topic, set()).add(key.partition)
            written.setdefault(key.topic, set()).update([key.partition] if has_records else [])
    return {
        topic: (len(known) if max(known) == len(known) - 1 else None, frozenset(written[topic]))
        for topic, known in numbers.items()
    }


DAY_MS: Final = 86_400_000
"""What Streams adds to the retention, unless told otherwise, and to the history retention, always."""

_NARROW: Final = 100


@dataclass(frozen=True, slots=True)
class Shown:
    """What the bytes of a store show."""

    interval: Interval = field(default_factory=Interval)
    span_ms: int = 0
    """Between the starts of the first and the last segment of one task."""
    segments: int = 0
    """Of a versioned store: how many logical segments the last one of a task is after the first one."""
    absent: str | None = None
    """Why a store without a directory can only be in memory, as far as the directory tells; None where it cannot."""
    partitions: frozenset[int] = frozenset()
    """Of the tasks here that would have such a store."""

    @property
    def narrow(self) -> bool:
        """Of a versioned store: the rows leave so little room for its segment interval that nothing fits by chance."""
        most, least = self.interval.greatest, self.interval.least
        return self.interval.wrong is None and most is not None and (most - least) * _NARROW <= least

    def least(self, kind: str, interval_ms: int) -> int:
        """The least retention with which Streams would have kept these segments.

        ``AbstractSegments.cleanupExpiredSegments``: none stays that begins an interval or more before the stream time
        less the retention, and the last segment has begun by then.
        """
        span = self.segments * interval_ms if has_key(kind, KeySchema.VERSIONED) else self.span_ms
        return max(1, span - interval_ms + 1)

    def agrees(self, kind: str, retention_ms: int) -> bool:
        """Whether the bytes allow this retention.

        Segments of windows and sessions follow from it. Those of a versioned store may have an interval of their own
        (KIP-889), but nobody gives them one that is longer than the history.
        """
        if retention_ms <= 0 or self.interval.wrong is not None:
            return False
        interval = default_segment_interval(kind, retention_ms)
        exact = self.interval.exact
        if has_key(kind, KeySchema.VERSIONED) and exact is not None and retention_ms >= exact:
            interval = exact
        return interval is not None and self.interval.fits(interval) and retention_ms >= self.least(kind, interval)


def settled(store: StoreDraft, application: str | None, shown: Shown, told: Sequence[ToldTopics]) -> StoreDraft:
    """What is known of a store once the topics are: more, or less where they contradict the bytes."""
    topic = store.changelog
    if topic is None and "changelog" in store.questions:
        return store  # whose settings these are nobody knows
    if topic is None and application is not None and not store.is_global:
        topic = changelog_topic(changelog_prefix(application, store.topology), store.name)
    said = [(one.by, one.topics[topic]) for one in told if topic is not None and topic in one.topics]
    store = _logged(store, topic, said, told)
    if not said or store.logged is False:
        return store
    store = _in_memory(store, shown, said)
    if "logged" in store.questions and store.changelog is None:
        return store
    return _retention(_partitions(store, said), shown, said)


def doubt_of(store: StoreDraft) -> str | None:
    """What is worth a look in a store that is known: a history that its segments do not confirm; None without that.

    They may have an interval of their own, or somebody has changed the topic.
    """
    kind, retention, interval = store.kind, store.retention_ms, store.segment_interval_ms
    if kind is None or retention is None or interval is None or not has_key(kind, KeySchema.VERSIONED):
        return None
    if default_segment_interval(kind, retention) == interval:
        return None
    usual = " or ".join(f"{least} to {most}" for least, most in histories_of(interval))
    without = f"; without one they are those of {usual}" if usual else ""
    return (
        f"{store.name}: retention_ms = {retention} is what its changelog says: right if its segments of {interval} ms "
        f"have an interval of their own in the code{without}"
    )


Said = Sequence[tuple[str, TopicSettings]]


def _know(store: StoreDraft, name: str, value: object, why: str) -> StoreDraft:
    questions = {key: question for key, question in store.questions.items() if key != name}
    values: dict[str, object] = {name: value}
    return replace(store, **values, inferred={**store.inferred, name: why}, questions=questions)  # type: ignore[arg-type]


def _ask(store: StoreDraft, name: str, why: str, *answers: object) -> StoreDraft:
    inferred = {key: text for key, text in store.inferred.items() if key != name}
    values: dict[str, object] = {name: None}
    questions = {**store.questions, name: Question(why, answers)}
    return replace(store, **values, inferred=inferred, questions=questions)  # type: ignore[arg-type]


def _logged(store: StoreDraft, topic: str | None, said: Said, told: Sequence[ToldTopics]) -> StoreDraft:
    if topic is None or store.is_global:
        return store
    if store.logged is False:
        if said:
            return _ask(store, "logged", f"{store.inferred['logged']}, but {_by(said)} has {topic}", True, False)
        live = next((one.by for one in told if one.live and one.topics), None)
        if live is not None:
            return _know(store, "logged", False, f"{store.inferred['logged']}, and {live} shows no {topic}")
    if said and "logged" in store.questions and store.changelog is None:
        return _know(store, "changelog", topic, f"its name, and {_by(said)} has it")
    return store


def _in_memory(store: StoreDraft, shown: Shown, said: Said) -> StoreDraft:
    # A store that is new in the topology has a topic as well, but no record of a task that is still here.
    if store.kind is None and shown.absent is not None and any(shown.partitions & one.written for _, one in said):
        return _know(store, "kind", IN_MEMORY, f"{shown.absent}, and its changelog, by {_by(said)}, records of them")
    return store


def _partitions(store: StoreDraft, said: Said) -> StoreDraft:
    said = [(by, one) for by, one in said if one.partitions is not None]
    counts = sorted({one.partitions or 0 for _, one in said})
    here = store.partitions or 0
    if not said:
        return store
    if len(counts) == 1 and counts[0] >= here:
        return _know(store, "partitions", counts[0], f"{_by(said)}: so many of its changelog")
    named = " and ".join(f"{by} says {one.partitions}" for by, one in said)
    highest = f", and its tasks here go up to {here - 1}" if here else ""
    return _ask(store, "partitions", f"{named}{highest}", *sorted({*counts, *([here] if here else [])}, reverse=True))


def _retention(store: StoreDraft, shown: Shown, said: Said) -> StoreDraft:
    kind = store.kind
    if kind is None or not has_retention(kind) or store.is_global or store.source == SOURCE_TOPIC:
        return store
    versioned = has_key(kind, KeySchema.VERSIONED)
    name = "min.compaction.lag.ms" if versioned else "retention.ms"
    settings = [(by, one.min_compaction_lag_ms if versioned else one.retention_ms) for by, one in said]
    values = {by: value for by, value in settings if value is not None}
    if not values or MAX_I64 in values.values():
        return store
    by_bytes = store.retention_ms
    candidates = sorted({value - DAY_MS for value in values.values()}, reverse=True)
    from_ = ", ".join(f"{name} = {value} of its changelog by {by}" for by, value in values.items())
    less = f"{from_}, less the {DAY_MS} that Streams adds"
    fitting = [one for one in candidates if shown.agrees(kind, one)]
    if len(candidates) == 1 and fitting:
        exact = shown.interval.exact
        own = exact is not None and default_segment_interval(kind, fitting[0]) != exact
        if shown.narrow if versioned else exact not in (None, MIN_INTERVAL_MS):
            return _know(
                store, "retention_ms", fitting[0], f"{less}; the segments here {'allow it' if own else 'agree'}"
            )
        # Who has changed the setting would go unnoticed.
        return _ask(store, "retention_ms", f"only the changelog tells it ({less}), and the rows here do not", *fitting)
    if by_bytes is not None:
        why = f"{less}, is {_among(candidates)}, and the segments here are those of {by_bytes}"
    elif len(candidates) > 1:
        why = f"{from_}: they differ"
    else:
        why = f"{less}, is {candidates[0]}, which contradicts the segments here"
    likely = [*([by_bytes] if by_bytes is not None else []), *_likely(store), *fitting]
    return _ask(store, "retention_ms", why, *dict.fromkeys(likely))


def _likely(store: StoreDraft) -> tuple[object, ...]:
    question = store.questions.get("retention_ms")
    return () if question is None else question.answers


def _among(candidates: Sequence[int]) -> str:
    return " or ".join(map(str, candidates))


def _by(said: Said) -> str:
    return " and ".join(dict.fromkeys(by for by, _ in said))


def shown_of(app: Application, store: StoreDraft, described: SpecDraft, inferred: Inference) -> Shown:
    """What ``app`` shows of one store."""
    by_task = [own for task in app.tasks for one in task.stores if one.name == store.name and (own := one.databases)]
    starts = [[d.segment_start for d in own if d.segment_start is not None] for own in by_task]
    known: Evidence | None = inferred.evidence.get(store.name)
    return Shown(
        Interval() if known is None else known.interval,
        max((max(one) - min(one) for one in starts if one), default=0),
        max(map(_versioned, by_task), default=0) if has_key(store.kind, KeySchema.VERSIONED) else 0,
        _absent(app, store, described) if inferred.draft.store(store.name) is None else None,
        frozenset(task.partition for task in app.tasks if _is_of(task, store) and task.partition is not None),
    )


def _versioned(databases: tuple[Database, ...]) -> int:
    return versioned_span(databases)


def _absent(app: Application, store: StoreDraft, described: SpecDraft) -> str | None:
    """Streams opens all stores of a task together, so that each that lies on disk has a directory then."""
    if described.store(store.name) is None or store.is_global or store.subtopology is None:
        return None
    tasks = [task for task in app.tasks if _is_of(task, store)]
    others = {one.name for task in tasks for one in task.stores}
    whole = all({one.name for one in task.stores} == others for task in tasks)
    if not tasks or not others or not whole or any(task.problems for task in tasks):
        return None
    return f"{FROM} has it, and the tasks of subtopology {store.subtopology} here have their other stores on disk"


def _is_of(task: Task, store: StoreDraft) -> bool:
    return not task.is_global and (task.topology, task.id.subtopology or 0) == (store.topology, store.subtopology)

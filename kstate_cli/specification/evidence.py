"""What the settings of a changelog say of its store, beside what the bytes of the store say.

Streams makes a changelog once, and gives it what follows from the store: ``retention.ms`` is the retention of windows
and sessions and ``windowstore.changelog.additional.retention.ms``, a day by default (``WindowedChangelogTopicConfig``);
``min.compaction.lag.ms`` is the history retention of a versioned store and a day (``VersionedChangelogTopicConfig``).
Operators change settings, and Streams never looks at them again: where they and the bytes do not say the same, somebody
has to say what is right. A retention too small loses rows, and a store with another segment interval opens empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key, has_retention
from kstate_cli.formats.topic_partition import changelog_prefix, changelog_topic
from kstate_cli.specification.draft import Question, StoreDraft
from kstate_cli.specification.intervals import MIN_INTERVAL_MS, default_segment_interval, histories_of
from kstate_cli.specification.model import IN_MEMORY, SOURCE_TOPIC
from kstate_cli.specification.times import Interval
from kstate_cli.specification.told_topics import ToldTopics, TopicSettings

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

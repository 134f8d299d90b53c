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
from kstate_cli.specification.draft import IN_MEMORY, SOURCE_TOPIC, Question, SpecDraft, StoreDraft
from kstate_cli.specification.infer import Inference
from kstate_cli.specification.intervals import (
    MIN_INTERVAL_MS,
    Interval,
    default_segment_interval,
    histories_of,
    versioned_span,
)
from kstate_cli.specification.topology import FROM
from kstate_cli.statedir.model import Application, Database, Task

DAY_MS: Final = 86_400_000
"""Streams adds it to the retention by default, and to the history retention always."""
_NARROW: Final = 100


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """One topic: its partitions, and the settings that were set for the topic itself (None: not set, or unknown)."""

    partitions: int | None
    """None if the source does not have all of them: a dump may have some."""
    partitions_with_records: frozenset[int] = frozenset()
    """Partitions that ever had a record."""
    retention_ms: int | None = None
    min_compaction_lag_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TopicReport:
    """The topics with legal names that one source reports."""

    by: str
    """``the broker`` or ``the dump``."""
    topics: Mapping[str, TopicSettings]
    live: bool = False
    """Whether a topic that is not in ``topics`` does not exist, or is hidden from this user."""


Statements = Sequence[tuple[str, TopicSettings]]
"""What each source states about one topic: (source, settings)."""


def report_of_broker(facts: Facts) -> TopicReport:
    """Return the topics in the answer of a broker."""
    # The end of a log never goes back: if it is above 0 there was a record, even if retention has removed it.
    partitions = _by_topic((key, log.end > 0) for key, log in facts.items())
    return TopicReport(
        "the broker",
        {
            key.topic: TopicSettings(*partitions[key.topic], log.retention_ms, log.min_compaction_lag_ms)
            for key, log in facts.items()
            if key.topic in partitions
        },
        live=True,
    )


def report_of_dump(dump: Dump) -> TopicReport:
    """Return the topics in a dump, by its manifest: each with the settings of the partition that was read last."""
    partitions = _by_topic((key, bool(part.log_end)) for key, part in dump.partitions.items())
    newest: dict[str, PartitionDump] = {}
    for key, part in dump.partitions.items():
        # Settings may change between two readings of partitions: those of the last are what Streams would see today.
        if key.topic in partitions and (key.topic not in newest or _ended(newest[key.topic]) < _ended(part)):
            newest[key.topic] = part
    topics = {}
    for topic, part in newest.items():
        reading = part.reading
        topics[topic] = TopicSettings(*partitions[topic])
        if reading is not None:
            lag = reading.min_compaction_lag_ms
            topics[topic] = replace(topics[topic], retention_ms=reading.retention_ms, min_compaction_lag_ms=lag)
    return TopicReport("the dump", topics)


def _ended(part: PartitionDump) -> int:
    return -1 if part.reading is None else part.reading.ended_ms


def _by_topic(partitions: Iterable[tuple[TopicPartition, bool]]) -> dict[str, tuple[int | None, frozenset[int]]]:
    """Return the number of partitions of each topic, None if some are missing, and those that ever had a record."""
    numbers: dict[str, set[int]] = {}
    with_records: dict[str, set[int]] = {}
    for key, has_records in partitions:
        if legal_topic(key.topic):
            numbers.setdefault(key.topic, set()).add(key.partition)
            topic_with_records = with_records.setdefault(key.topic, set())
            if has_records:
                topic_with_records.add(key.partition)
    return {topic: (_count_if_complete(own), frozenset(with_records[topic])) for topic, own in numbers.items()}


def _count_if_complete(partitions: set[int]) -> int | None:
    """Return the number of partitions; None if one below the highest is missing, so that higher ones may be too."""
    if max(partitions) != len(partitions) - 1:
        return None
    return len(partitions)


@dataclass(frozen=True, slots=True)
class ByteEvidence:
    """The evidence that the bytes of a store give for or against the settings of its changelog."""

    interval: Interval = field(default_factory=Interval)
    span_ms: int = 0
    """From the start of the first segment of a task to that of the last, the longest of all tasks."""
    segments: int = 0
    """Versioned stores: the number of the last logical segment of a task less that of the first."""
    absent: str | None = None
    """The reason why a store without a directory can only be in memory; None without such a reason."""
    partitions: frozenset[int] = frozenset()
    """The partitions of the tasks here that would have such a store."""

    @property
    def narrow(self) -> bool:
        """Versioned stores: whether the rows allow so few segment intervals that none fits by chance."""
        most, least = self.interval.greatest, self.interval.least
        return self.interval.wrong is None and most is not None and (most - least) * _NARROW <= least

    def least(self, kind: str, interval_ms: int) -> int:
        """Return the least retention with which Streams would have kept these segments.

        ``AbstractSegments.cleanupExpiredSegments`` removes a segment that begins an interval or more before the stream
        time less the retention, and the last segment has begun by then.
        """
        span = self.span_ms
        if has_key(kind, KeySchema.VERSIONED):
            span = self.segments * interval_ms
        return max(1, span - interval_ms + 1)

    def agrees(self, kind: str, retention_ms: int) -> bool:
        """Return whether the bytes allow this retention.

        The segments of windows and sessions follow from their retention. A versioned store may have a custom segment
        interval (KIP-889): an interval that the bytes prove is accepted if it is no longer than the retention.
        """
        if retention_ms <= 0 or self.interval.wrong is not None:
            return False
        interval = default_segment_interval(kind, retention_ms)
        exact = self.interval.exact
        if has_key(kind, KeySchema.VERSIONED) and exact is not None and retention_ms >= exact:
            interval = exact
        return interval is not None and self.interval.fits(interval) and retention_ms >= self.least(kind, interval)


def byte_evidence(app: Application, store: StoreDraft, described: SpecDraft, inferred: Inference) -> ByteEvidence:
    """Return the evidence of an application directory about one store."""
    stores = [other for task in app.tasks for other in task.stores if other.name == store.name and other.databases]
    evidence = inferred.evidence.get(store.name)
    segments = 0
    if has_key(store.kind, KeySchema.VERSIONED):
        segments = max((versioned_span(other.databases) for other in stores), default=0)
    absent = None
    if inferred.draft.store(store.name) is None:
        absent = _absent(app, store, described)
    interval = Interval()
    if evidence is not None:
        interval = evidence.interval
    return ByteEvidence(
        interval,
        max((_span_ms(other.databases) for other in stores), default=0),
        segments,
        absent,
        frozenset(task.partition for task in app.tasks if _has_store(task, store) and task.partition is not None),
    )


def _span_ms(databases: Iterable[Database]) -> int:
    starts = [database.segment_start for database in databases if database.segment_start is not None]
    return max(starts, default=0) - min(starts, default=0)


def _absent(app: Application, store: StoreDraft, described: SpecDraft) -> str | None:
    """Return why a store without a directory must be in memory; None if the tasks here prove nothing.

    Streams opens all stores of a task together: if the others have a directory, a store on disk would have one too.
    """
    if described.store(store.name) is None or store.is_global or store.subtopology is None:
        return None
    tasks = [task for task in app.tasks if _has_store(task, store)]
    others = {other.name for task in tasks for other in task.stores}
    # A task that lacks a further store was interrupted while it was created, and proves nothing about this one.
    complete = all({other.name for other in task.stores} == others for task in tasks)
    if not tasks or not others or not complete or any(task.problems for task in tasks):
        return None
    return (
        f"{FROM} contains the store, and the tasks of its sub-topology {store.subtopology} have their other stores on "
        "disk in this directory"
    )


def _has_store(task: Task, store: StoreDraft) -> bool:
    """Return whether a task is of the sub-topology of the store."""
    return not task.is_global and task.sub_topology == (store.topology, store.subtopology)


def apply_settings(
    store: StoreDraft, application: str | None, evidence: ByteEvidence, reports: Sequence[TopicReport]
) -> StoreDraft:
    """Return a draft of a store with the facts of its changelog, and questions where these contradict the bytes."""
    topic = store.changelog
    if topic is None and "changelog" in store.questions:
        return store  # the owner of these settings is unknown
    # The changelog is unknown or denied. The usual name is looked up, so that an existing topic can contradict "logged
    # = false".
    if topic is None and application is not None and not store.is_global:
        topic = changelog_topic(changelog_prefix(application, store.topology), store.name)
    statements = [
        (report.by, report.topics[topic]) for report in reports if topic is not None and topic in report.topics
    ]
    store = _logged(store, topic, statements, reports)
    if not statements or store.logged is False:
        return store
    store = _in_memory(store, evidence, statements)
    if "logged" in store.questions and store.changelog is None:
        return store
    return _retention(_partitions(store, statements), evidence, statements)


def doubt_of(store: StoreDraft) -> str | None:
    """Return a remark about a complete store: a history retention that its segments do not confirm; else None.

    The store may have a custom segment interval, or an operator has changed the topic.
    """
    kind, retention, interval = store.kind, store.retention_ms, store.segment_interval_ms
    if kind is None or retention is None or interval is None or not has_key(kind, KeySchema.VERSIONED):
        return None
    if default_segment_interval(kind, retention) == interval:
        return None
    usual = " or ".join(f"{least} to {most}" for least, most in histories_of(interval))
    without = ""
    if usual:
        without = f". Without a custom interval, the retention of such segments would be {usual} ms"
    return (
        f"{store.name}: retention_ms = {retention} comes from the store's changelog. This value is correct if the "
        f"code sets a custom segment interval of {interval} ms for the store{without}"
    )


def _with_value(store: StoreDraft, name: str, value: object, why: str) -> StoreDraft:
    """Return the draft with a value for a field, and without the question about it."""
    questions = {key: question for key, question in store.questions.items() if key != name}
    values: dict[str, object] = {name: value}
    return replace(store, **values, inferred={**store.inferred, name: why}, questions=questions)  # type: ignore[arg-type]


def _with_question(store: StoreDraft, name: str, why: str, *answers: object) -> StoreDraft:
    """Return the draft with a question about a field, and without its value."""
    inferred = {key: text for key, text in store.inferred.items() if key != name}
    values: dict[str, object] = {name: None}
    questions = {**store.questions, name: Question(why, answers)}
    return replace(store, **values, inferred=inferred, questions=questions)  # type: ignore[arg-type]


def _logged(store: StoreDraft, topic: str | None, statements: Statements, reports: Sequence[TopicReport]) -> StoreDraft:
    """Settle whether a store has a changelog: an existing topic of that name contradicts ``logged = false``."""
    if topic is None or store.is_global:
        return store
    if store.logged is False:
        if statements:
            why = f"{store.inferred['logged']}, but {_by(statements)} has {topic}"
            return _with_question(store, "logged", why, True, False)
        # A broker that shows no topic at all may hide them from this user, and then the absence of this one proves
        # nothing.
        live = next((report.by for report in reports if report.live and report.topics), None)
        if live is not None:
            return _with_value(store, "logged", False, f"{store.inferred['logged']}, and {live} has no {topic}")
    if statements and "logged" in store.questions and store.changelog is None:
        return _with_value(store, "changelog", topic, f"the name of the store, and {_by(statements)} has this topic")
    return store


def _in_memory(store: StoreDraft, evidence: ByteEvidence, statements: Statements) -> StoreDraft:
    # A store that is new in the topology has a topic as well, but no record of a task that is still here.
    has_records = any(evidence.partitions & settings.partitions_with_records for _, settings in statements)
    if store.kind is None and evidence.absent is not None and has_records:
        why = f"{evidence.absent}, but {_by(statements)} has a changelog with records of the store"
        return _with_value(store, "kind", IN_MEMORY, why)
    return store


def _partitions(store: StoreDraft, statements: Statements) -> StoreDraft:
    """Settle the number of partitions: a value if all reports agree and the tasks here fit it, else a question."""
    counts = {by: settings.partitions for by, settings in statements if settings.partitions is not None}
    if not counts:
        return store
    values, here = sorted(set(counts.values())), store.partitions or 0
    if len(values) == 1 and values[0] >= here:
        return _with_value(
            store, "partitions", values[0], f"the number of partitions of its changelog in {' and '.join(counts)}"
        )
    sources = " and ".join(f"{by} has {count}" for by, count in counts.items())
    highest = ""
    if here:
        highest = f", but the highest partition of its tasks in this directory is {here - 1}"
    # The largest number is offered first: too few partitions would leave tasks without their store.
    answers = sorted(filter(None, {*values, here}), reverse=True)
    return _with_question(store, "partitions", f"{sources}{highest}", *answers)


def _retention(store: StoreDraft, evidence: ByteEvidence, statements: Statements) -> StoreDraft:
    """Settle the retention: a value if settings and bytes agree and the bytes would show a change, else a question."""
    kind = store.kind
    if kind is None or not has_retention(kind) or store.is_global or store.source == SOURCE_TOPIC:
        return store
    setting, values = retention_settings(kind, statements)
    # MAX_I64 means "for ever", which tells nothing about the retention of the store.
    if not values or MAX_I64 in values.values():
        return store
    sources = ", ".join(f"{setting} = {value} of its changelog in {by}" for by, value in values.items())
    less = f"{sources}, minus the {DAY_MS} ms that Streams adds"
    candidates = sorted({value - DAY_MS for value in values.values()}, reverse=True)
    fitting = [candidate for candidate in candidates if evidence.agrees(kind, candidate)]
    if len(candidates) == 1 and fitting:
        return _agreed_retention(store, kind, fitting[0], evidence, less)
    why = _contradiction(store.retention_ms, candidates, sources, less)
    # The value that the segments prove is offered first, since a retention that is too small loses rows.
    by_bytes: list[object] = []
    if store.retention_ms is not None:
        by_bytes.append(store.retention_ms)
    return _with_question(store, "retention_ms", why, *dict.fromkeys([*by_bytes, *_answers(store), *fitting]))


def retention_settings(kind: str, statements: Statements) -> tuple[str, dict[str, int]]:
    """Return the setting that a kind's retention becomes in its changelog, and its value by source."""
    if has_key(kind, KeySchema.VERSIONED):
        setting = "min.compaction.lag.ms"
        values = [(by, settings.min_compaction_lag_ms) for by, settings in statements]
    else:
        setting = "retention.ms"
        values = [(by, settings.retention_ms) for by, settings in statements]
    return setting, {by: value for by, value in values if value is not None}


def _agreed_retention(store: StoreDraft, kind: str, retention: int, evidence: ByteEvidence, less: str) -> StoreDraft:
    """Settle a retention that all reports agree on and the bytes allow.

    ``less`` says how it follows from the setting.
    """
    exact = evidence.interval.exact
    # Segments of the least interval confirm no retention, since all those up to two minutes have it.
    is_confirmed = exact not in (None, MIN_INTERVAL_MS)
    if has_key(kind, KeySchema.VERSIONED):
        is_confirmed = evidence.narrow
    if not is_confirmed:
        # An operator may have changed the setting, and these bytes would not show it.
        why = f"only the changelog shows the retention ({less}). The rows in this directory do not show it"
        return _with_question(store, "retention_ms", why, retention)
    verdict = "confirm this value"
    if exact is not None and default_segment_interval(kind, retention) != exact:
        verdict = "allow this value"
    return _with_value(store, "retention_ms", retention, f"{less}. The segments in this directory {verdict}")


def _contradiction(by_bytes: int | None, candidates: Sequence[int], sources: str, less: str) -> str:
    """Return why the retention is a question, although the changelog states it."""
    if by_bytes is not None:
        return (
            f"{less}, is {' or '.join(map(str, candidates))}, but the segments in this directory match a retention "
            f"of {by_bytes}"
        )
    if len(candidates) > 1:
        return f"the settings differ ({sources})"
    return f"{less}, is {candidates[0]}, which contradicts the segments in this directory"


def _answers(store: StoreDraft) -> tuple[object, ...]:
    question = store.questions.get("retention_ms")
    if question is None:
        return ()
    return question.answers


def _by(statements: Statements) -> str:
    return " and ".join(dict.fromkeys(by for by, _ in statements))

"""Carry a plan out: create the topics, write and compare their records, apply their settings, copy the offsets.

Each step is repeated by a later run that finds it unfinished. The order is: topics, records, comparison, settings,
offsets. The new application has an offset only after everything else is complete, so it cannot begin before.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.client import admin_client, answered, ask_broker, denied
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.group_offsets import commit_offsets, read_committed
from kstate_cli.broker.settings import cause_of
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.seed.cluster import (
    EMPTY,
    UNKNOWN,
    Connection,
    TopicFacts,
    committed_offsets,
    read_cluster,
    topics_of,
    with_groups,
)
from kstate_cli.seed.erasure import batches_of, write_receipt
from kstate_cli.seed.input_offsets import target_offsets
from kstate_cli.seed.journal import SeedJournal, undo_command
from kstate_cli.seed.model import PlannedTopic, SeedPlan, SeedRequest
from kstate_cli.seed.moved_inputs import refuse_misplaced
from kstate_cli.seed.table_contents import compare_tables, refuse_differences
from kstate_cli.seed.writing import EMPTY_LOG, PartitionWriter, WrittenLog, read_logs, seed_producer
from kstate_cli.texts import some

_SECONDS: Final = 60.0
_AGAIN_SECONDS: Final = 0.2
_FOREVER: Final = str(MAX_I64)
_SEEDING: Final[Mapping[str, str]] = {
    # The broker must neither compact nor delete records before they are compared.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # Records keep their own times, however old or new.
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _FOREVER,
    "message.timestamp.after.max.ms": _FOREVER,
}
"""Settings of a topic while it is written. The final ones replace them."""
_FROM_THE_START: Final = ("max.message.bytes", "segment.bytes", "min.insync.replicas", "compression.type")
"""Final settings that matter for writing too."""


@dataclass(frozen=True, slots=True)
class SeedOutcome:
    """What a run has done."""

    topics: Mapping[str, int]
    """Target topic -> records of all its partitions."""
    created: int
    written: int
    """Records that this run has written; others were there from an earlier run."""

    @property
    def records(self) -> int:
        """The records of all topics."""
        return sum(self.topics.values())


class Watcher:
    """Callbacks for progress; each may be overridden."""

    def begin(self, text: str, records: int) -> None:
        """Note that a phase begins, with so many records at most."""

    def add(self, records: int) -> None:
        """Note so many more records."""


def carry_out(request: SeedRequest, plan: SeedPlan, journal: SeedJournal, watcher: Watcher) -> SeedOutcome:
    """Carry the plan out, or what an earlier run has left of it. Raises Refused and RunFailed."""
    if journal.first("planned") is None:
        journal.add(
            "planned",
            app=plan.app,
            source_app=plan.source_app,
            dump=request.source_text,
            digest=plan.digest,
            options=request.options_digest,
            choices=request.choices_digest,
            keeps_id=plan.keeps_id,
            cluster=read_cluster(request.target).cluster_id,
        )
    for refusal in refuse_continuation(request, plan, journal.events):
        raise refusal
    created = _create_topics(request.target, plan, journal)
    written, records = 0, _verified_records(request.target, plan, journal)
    if records is None:
        written, logs = _write(request, plan, watcher)
        _compare_again(request.target, plan, logs, watcher)
        records = _by_topic(logs)
        ends = ask_broker(request.target.bootstrap, request.target.settings, group=None, topics=plan.targets)
        for topic in plan.targets:
            # With transaction markers: what was compared has these ends, so an undo recognizes later records.
            journal.add("verified", topic=topic, ends=ends_of(topic, ends), records=records[topic])
    _apply_settings(request.target, plan)
    _check_source(request, plan, journal)
    # A mirror, compaction or retention may have changed the topics of tables while kstate was writing. On the same
    # cluster, only the log starts are compared.
    for refusal in refuse_differences(request, compare_tables(request, plan.facts, plan)):
        raise refusal
    _refuse_grown(request.target, plan, journal)
    if plan.offsets:
        _copy_offsets(request, plan, journal)
    if request.erased is not None and request.receipt is not None:
        write_receipt(request.receipt, plan.app, plan.digest, plan.topics, request.erased)
    outcome = SeedOutcome(records, created, written)
    journal.add(
        "done", source_app=plan.source_app, topics=len(plan.topics), records=outcome.records, copied=len(plan.offsets)
    )
    return outcome


def refuse_continuation(request: SeedRequest, plan: SeedPlan, events: Sequence[Mapping[str, Any]]) -> Iterator[Refused]:
    """Yield why the run of a journal cannot continue with this plan. ``events``: the lines of the journal."""
    undo = undo_command(request.journal, request.target.bootstrap)
    planned = next((event for event in events if event["event"] == "planned"), None)
    if any(event["event"] == "deleting" for event in events):
        yield Refused(
            f"an undo of the run in {request.journal} was interrupted, so topics of {plan.app} may be missing",
            hint=f"complete the undo, then run the command again: {undo}",
        )
    elif planned is not None and planned.get("digest") != plan.digest:
        yield Refused(
            f"the journal {request.journal} belongs to a different plan: the dump, the source or the options have "
            "changed since then",
            hint=f"pass the journal's dump and options, or undo that run: {undo}",
        )


def lost_topic(topic: str) -> RunFailed:
    """Return the error for a topic of the run that was deleted."""
    return RunFailed(
        f"{topic}, which this run created, no longer exists", hint="run the command again with a new journal"
    )


def ends_of(topic: str, logs: Mapping[TopicPartition, LogFacts]) -> dict[str, int]:
    """Return the log ends of a topic by partition, as the journal has them."""
    return {str(key.partition): log.end for key, log in sorted(logs.items()) if key.topic == topic}


def changed_topics(
    topics: Iterable[str], verified: Mapping[str, Mapping[str, Any]], logs: Mapping[TopicPartition, LogFacts]
) -> list[str]:
    """Return the topics that the run has not compared, or whose log ends have changed since then.

    ``verified``: the lines of the journal by topic.
    """
    return [topic for topic in topics if verified.get(topic, {}).get("ends") != ends_of(topic, logs)]


def _verified_records(target: Connection, plan: SeedPlan, journal: SeedJournal) -> Mapping[str, int] | None:
    """Return the records of each topic if an earlier run has compared all of them; None if one is missing.

    The broker may have compacted such a topic since then, because it has its final settings. Its log cannot be compared
    again, but its end shows that no other program has written to it.
    """
    verified = journal.topics("verified")
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=plan.targets)
    if changed_topics(plan.targets, verified, logs):
        return None
    # Lines of earlier versions have no number of records.
    return {topic.target: int(verified[topic.target].get("records", topic.records)) for topic in plan.topics}


def _create_topics(target: Connection, plan: SeedPlan, journal: SeedJournal) -> int:
    """Create the topics that do not exist, and check that the others are those that this seed has created."""
    created = 0
    with admin_client(target.bootstrap, target.settings) as admin:
        existing = topics_of(admin, plan.targets)
        for topic in plan.topics:
            recorded = journal.topics("created").get(topic.target)
            facts = existing.get(topic.target)
            if facts is None:
                if recorded is not None:
                    raise lost_topic(topic.target)
                journal.add("announced", topic=topic.target)
                _create(admin, topic)
                facts = _await_topic(admin, topic.target)
                created += 1
            elif recorded is None and not _writing_settings(topic).items() <= facts.settings.items():
                # A kill between announcement and creation leaves no topic. Kafka Streams may have created this one,
                # whose records the broker would compact or delete before they are compared.
                raise Refused(
                    f"{topic.target} does not have the settings that this run uses for topics",
                    hint=f"if this topic has no records, delete it. Otherwise, pass another {option.APP}",
                )
            if recorded is None:
                _take_over(target, topic, facts, journal)
            elif recorded.get("id") != facts.topic_id:
                raise RunFailed(
                    f"another program deleted {topic.target} and created it again",
                    hint=f"pass another {option.APP}. Or delete the topic and run the command again with a new journal",
                )
    return created


def _await_topic(admin: Any, topic: str) -> TopicFacts:
    """Return a topic that was just created: for a moment not every broker knows it. Raise RunFailed."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        if (facts := topics_of(admin, [topic]).get(topic)) is not None:
            return facts
        time.sleep(_AGAIN_SECONDS)
    raise RunFailed(f"the target created {topic}, but does not list it", hint=_to_describe(topic))


def _take_over(target: Connection, topic: PlannedTopic, facts: TopicFacts, journal: SeedJournal) -> None:
    """Record the id of a topic whose creation was announced, while it is empty. Raise Refused."""
    if topic.target not in journal.topics("announced"):
        raise Refused(f"{topic.target} exists, but this run did not create it", hint=f"pass another {option.APP}")
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=[topic.target])
    if facts.partitions != len(topic.partitions) or any(log.end for log in logs.values()):
        # A kill between creation and record leaves an empty topic. This one is of another program.
        raise Refused(
            f"{topic.target} is not the empty topic that this run was about to create",
            hint=f"pass another {option.APP}",
        )
    journal.add("created", topic=topic.target, id=facts.topic_id)


def _writing_settings(topic: PlannedTopic) -> dict[str, str]:
    """Return the settings of a topic while it is written."""
    return {**_SEEDING, **{name: topic.settings[name] for name in _FROM_THE_START if name in topic.settings}}


def _create(admin: Any, topic: PlannedTopic) -> None:
    _request_topic(admin, topic, _writing_settings(topic), only_validate=False)


def validate_topic(admin: Any, topic: PlannedTopic) -> None:
    """Let the target check whether it would create a topic with its final settings. Raise RunFailed if not."""
    _request_topic(admin, topic, topic.settings, only_validate=True)


def _request_topic(admin: Any, topic: PlannedTopic, settings: Mapping[str, str], *, only_validate: bool) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    new = NewTopic(topic.target, len(topic.partitions), topic.replicas, config=dict(settings))
    (future,) = admin.create_topics([new], request_timeout=_SECONDS, validate_only=only_validate).values()
    try:
        future.result()
    except KafkaException as error:
        cause = cause_of(error)
        hint = _next_step(cause, "Create on the topic or the cluster", "the settings of the source topic")
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            # It was not in the list of topics a moment ago.
            hint = _to_describe(topic.target)
        raise RunFailed(f"the target cannot create {topic.target}: {cause.str()}", hint=hint) from None


def _to_describe(topic: str) -> str:
    # The broker lists a topic only to users who may describe it.
    return f"grant Describe and DescribeConfigs on {topic}, then run the command again"


def _next_step(cause: Any, right: str, rejected: str) -> str:
    """Return the hint for a failed request: grant a right, correct the ``rejected`` settings, or check the broker."""
    action = "check the broker"
    if denied(cause):
        action = f"grant {right}"
    elif answered(cause):
        action = f"correct {rejected}"
    return f"{action}, then run the command again"


def _write(request: SeedRequest, plan: SeedPlan, watcher: Watcher) -> tuple[int, dict[TopicPartition, WrittenLog]]:
    """Write what the logs lack; return the records written, and what each log must have then."""
    logs: dict[TopicPartition, WrittenLog] = {}
    written = 0
    with seed_producer(request.target, plan.app) as producer:
        # Asked after init_transactions: the open transaction of a killed run is aborted by then.
        ends = ask_broker(
            request.target.bootstrap,
            request.target.settings,
            group=None,
            topics=plan.targets,
        )
        # A killed run has written the beginning of some of them.
        earlier = read_logs(request.target, [key for key, log in ends.items() if log.end], _silent)
        watcher.begin("writing", plan.records)
        for topic in plan.topics:
            keys = [TopicPartition(topic.target, records.partition) for records in topic.partitions]
            writers = [PartitionWriter(producer, key, earlier.get(key, EMPTY_LOG)) for key in keys]
            for place, batch in batches_of(topic.partitions):
                writers[place].add(batch)
                watcher.add(len(batch))
            for key, writer in zip(keys, writers, strict=True):
                logs[key] = writer.finish()
                written += logs[key].records - earlier.get(key, EMPTY_LOG).records
        producer.commit()
    return written, logs


def _silent(_records: int) -> None:
    """Show nothing."""


def _compare_again(
    target: Connection, plan: SeedPlan, logs: Mapping[TopicPartition, WrittenLog], watcher: Watcher
) -> None:
    """Read every log from its beginning, as an application would. Raise RunFailed if one is not as planned."""
    watcher.begin("comparing", plan.records)
    on_broker = read_logs(target, logs, watcher.add)
    for key, expected in sorted(logs.items()):
        if on_broker[key] != expected:
            raise RunFailed(
                f"{key} does not contain the records that kstate has written",
                hint=(
                    "check the broker, and find out which other program writes to the topic. kstate has not "
                    "committed any offsets"
                ),
            )


def _apply_settings(target: Connection, plan: SeedPlan) -> None:
    """Give each topic its final settings. Raise RunFailed, naming the topic and the broker's reason."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    with admin_client(target.bootstrap, target.settings) as admin:
        existing = topics_of(admin, plan.targets)
        for topic in plan.topics:
            now = existing[topic.target].settings
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in sorted(topic.settings.items())
                if now.get(name) != value
            ]
            entries += [
                ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
                for name in sorted(now.keys() - topic.settings.keys())
            ]
            if not entries:
                continue
            resource = ConfigResource(ResourceType.TOPIC, topic.target, incremental_configs=entries)
            (future,) = admin.incremental_alter_configs([resource], request_timeout=_SECONDS).values()
            try:
                future.result()
            except KafkaException as error:
                cause = cause_of(error)
                settings = "the settings of the source topic or the target"
                raise RunFailed(
                    f"the target cannot apply the settings of {topic.target}: {cause.str()}",
                    hint=_next_step(cause, "AlterConfigs on the topic", settings),
                ) from None


def _check_source(request: SeedRequest, plan: SeedPlan, journal: SeedJournal) -> None:
    """Read the source again: nothing may have changed since the plan. Raise Refused."""
    undo = undo_command(journal.path, request.target.bootstrap)
    source = with_groups(request.source, read_cluster(request.source), plan.source_app)
    stopped = {EMPTY, None}
    if request.source_stopped:
        # The logs and offsets below prove at least that no instance has processed a record meanwhile.
        stopped.add(UNKNOWN)
    if source.groups.get(plan.source_app) not in stopped:
        raise Refused(
            f"{plan.source_app} was started again while kstate was writing the changelogs",
            hint=f"stop the source application and write the dump again. Before another run, undo this one: {undo}",
        )
    logs = ask_broker(
        request.source.bootstrap,
        request.source.settings,
        group=plan.source_app,
        topics=sorted({key.topic for key in plan.logs}),
        stable=True,
    )
    changed = [
        str(key)
        for key, log in sorted(plan.logs.items())
        if key not in logs
        or (logs[key].end, logs[key].topic_id, logs[key].committed) != (log.end, log.topic_id, log.committed)
    ]
    if changed:
        raise Refused(
            f"the source has changed since kstate made the plan: {some(changed, 3)}",
            hint=f"write the dump again. Before another run, undo this one: {undo}",
        )
    if plan.directories is not None:
        plan.directories.check()
    expected = {**plan.committed, **plan.kept_offsets}
    # Without a partition, the request would be about all of them.
    if expected and expected != read_committed(
        request.source.bootstrap, request.source.settings, plan.source_app, expected
    ):
        raise Refused(
            f"the committed offsets of {plan.source_app} have changed since kstate made the plan",
            hint=f"write the dump again. Before another run, undo this one: {undo}",
        )
    # A producer that does not know the new number of partitions yet may have written meanwhile.
    refuse_misplaced(request.target, plan.moved, plan.offsets)
    # Seeding may take hours. Meanwhile a mirror may have sent a record twice, or retention has removed one.
    if not request.same_cluster and not target_offsets(request, plan.committed).items() <= plan.offsets.items():
        raise Refused(
            "the input topics of the target have changed since kstate made the plan",
            hint=f"stop the mirror that writes to these topics. Before another run, undo this one: {undo}",
        )


def _refuse_grown(target: Connection, plan: SeedPlan, journal: SeedJournal) -> None:
    """Raise RunFailed if a log has grown since it was compared.

    An instance of the new application may have been started and stopped since then, with neither members nor offsets.
    """
    logs = ask_broker(target.bootstrap, target.settings, group=None, topics=plan.targets)
    grown = changed_topics(plan.targets, journal.topics("verified"), logs)
    if grown:
        raise RunFailed(
            f"another program has written to {some(grown, 3)} since kstate compared the records",
            hint="stop the new application, delete its topics and its group, then run the command again with a new "
            "journal",
        )


def _copy_offsets(request: SeedRequest, plan: SeedPlan, journal: SeedJournal) -> None:
    """Commit the offsets of the new group, and read them again. Raise Refused and RunFailed."""
    target = request.target
    cluster = with_groups(target, read_cluster(target), plan.app)
    if cluster.groups.get(plan.app) not in (EMPTY, None):
        raise Refused(f"the group {plan.app} has members", hint="stop the new application, then run the command again")
    present = committed_offsets(target, cluster, plan.app)
    if any(plan.offsets.get(key) != committed for key, committed in present.items()):
        raise Refused(
            f"the group {plan.app} has offsets that kstate did not commit",
            hint="delete the group, then run the command again",
        )
    if journal.first("committing") is None:
        journal.announce_offsets(plan.offsets)
    commit_offsets(target.bootstrap, target.settings, plan.app, plan.offsets)
    if read_committed(target.bootstrap, target.settings, plan.app, plan.offsets) != plan.offsets:
        raise RunFailed(
            f"the broker does not have the offsets of {plan.app} that kstate committed",
            hint="run the command again",
        )


def _by_topic(logs: Mapping[TopicPartition, WrittenLog]) -> Mapping[str, int]:
    records = Counter[str]()
    for key, log in logs.items():
        records[key.topic] += log.records
    return records

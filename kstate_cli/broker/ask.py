"""Asks a broker for its logs, through librdkafka. Only reads: no topic is made, no offset committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstate_cli.broker.facts import LogFacts
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular import read_given

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS = 30.0
_COMPACTION = "cleanup.policy"


def client_settings(path: Path | None) -> dict[str, str]:
    """The lines ``name=value`` of a properties file for librdkafka (``security.protocol`` and the like). UsageError."""
    if path is None:
        return {}
    found = {}
    try:
        for number, line in enumerate(read_given(path).decode("utf-8").splitlines(), 1):
            text = line.strip()
            if not text or text.startswith(("#", "!")):
                continue
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(f"{path}, line {number}: not name=value")
            found[name.strip()] = value.strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return found


def ask_broker(
    bootstrap: str, settings: Mapping[str, str], *, group: str, topics: Iterable[str]
) -> dict[TopicPartition, LogFacts]:
    """Start, end, id, committed offset and cleanup policy of every partition of those of ``topics`` that there are.

    Raises UsageError for settings that librdkafka does not take, RunFailed where the broker does not answer.
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise UsageError(
            f"--bootstrap-server needs the Kafka client: {error}", hint="pip install 'kstate[kafka]'"
        ) from None
    conf: dict[str, Any] = {"log_level": 0, **settings, "bootstrap.servers": bootstrap}
    try:
        admin = AdminClient(conf)
    except (KafkaException, ValueError, TypeError) as error:
        raise UsageError(f"the Kafka client does not take these settings: {error}") from None
    try:
        return _ask(admin, group, sorted(set(topics)))
    except KafkaException as error:
        raise RunFailed(
            f"{bootstrap} does not answer: {error.args[0] if error.args else error}",
            hint="nothing has changed; look at the address and at --kafka-settings",
        ) from None


def _ask(admin: AdminClient, group: str, topics: list[str]) -> dict[TopicPartition, LogFacts]:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

    here = admin.list_topics(timeout=_SECONDS).topics
    topics = [topic for topic in topics if topic in here]
    if not topics:
        return {}
    described = admin.describe_topics(TopicCollection(topics), request_timeout=_SECONDS)
    ids = {topic: str(future.result().topic_id) for topic, future in described.items()}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    policies = {
        resource.name: future.result()[_COMPACTION].value
        for resource, future in admin.describe_configs(resources, request_timeout=_SECONDS).items()
    }
    keys = [Key(topic, partition) for topic in topics for partition in here[topic].partitions]
    bounds = [
        {
            (key.topic, key.partition): future.result().offset
            for key, future in admin.list_offsets(dict.fromkeys(keys, spec), request_timeout=_SECONDS).items()
        }
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    asked = ConsumerGroupTopicPartitions(group, keys)
    (committed,) = admin.list_consumer_group_offsets([asked], request_timeout=_SECONDS).values()
    read = {(one.topic, one.partition): one.offset for one in committed.result().topic_partitions or ()}
    return {
        TopicPartition(*place): LogFacts(
            start=bounds[0][place],
            end=end,
            topic_id=ids[place[0]],
            committed=read[place] if read.get(place, -1) >= 0 else None,
            policy=policies[place[0]],
        )
        for place, end in bounds[1].items()
    }

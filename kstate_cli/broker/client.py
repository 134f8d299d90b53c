"""Asks a broker for its logs, through librdkafka. Only reads: no topic is made, no offset committed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstate_cli.broker.facts import LogFacts
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id
from kstate_cli.regular import read_given

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import AdminClient

_SECONDS = 30.0
_AGAIN_SECONDS = 0.2
_COMPACTION = "cleanup.policy"
_DELETES_LIVE = "delete.retention.ms"


def client_settings(path: Path | None) -> dict[str, str]:
    """The lines ``name=value`` of a properties file for librdkafka (``security.protocol`` and the like). UsageError."""
    if path is None:
        return {}
    settings = {}
    try:
        for number, line in enumerate(read_given(path).decode("utf-8").splitlines(), 1):
            text = line.strip()
            if not text or text.startswith(("#", "!")):
                continue
            name, equals, value = text.partition("=")
            if not equals:
                raise UsageError(
                    f"{path}, line {number}: not name=value", hint="one setting a line, as in security.protocol=SSL"
                )
            settings[name.strip()] = value.strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name a file of settings of librdkafka") from None
    return settings


def ask_broker(
    bootstrap: str, settings: Mapping[str, str], *, group: str, topics: Iterable[str]
) -> dict[TopicPartition, LogFacts]:
    """Start, end, id, epoch, committed offset and cleaning of every partition of those of ``topics`` that there are.

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
        raise UsageError(
            f"the Kafka client does not take these settings: {error}", hint="correct --kafka-settings"
        ) from None
    try:
        return _ask(admin, group, sorted(set(topics)))
    except KafkaException as error:
        raise RunFailed(
            f"{bootstrap} does not answer: {error.args[0] if error.args else error}",
            hint="see whether the address is right, and --kafka-settings",
        ) from None


def _ask(admin: AdminClient, group: str, topics: list[str]) -> dict[TopicPartition, LogFacts]:
    from confluent_kafka import TopicCollection
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

    on_broker = admin.list_topics(timeout=_SECONDS).topics
    topics = [topic for topic in topics if topic in on_broker]
    if not topics:
        return {}
    described = admin.describe_topics(TopicCollection(topics), request_timeout=_SECONDS)
    ids = {topic: canonical_topic_id(str(future.result().topic_id)) for topic, future in described.items()}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    settings = {
        resource.name: future.result()
        for resource, future in admin.describe_configs(resources, request_timeout=_SECONDS).items()
    }
    keys = [Key(topic, partition) for topic in topics for partition in on_broker[topic].partitions]
    bounds = [
        {
            (key.topic, key.partition): future.result()
            for key, future in admin.list_offsets(dict.fromkeys(keys, spec), request_timeout=_SECONDS).items()
        }
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    ]
    read = _committed(admin, group, keys)
    return {
        TopicPartition(*place): LogFacts(
            start=bounds[0][place].offset,
            end=end.offset,
            topic_id=ids[place[0]],
            committed=read[place] if read.get(place, -1) >= 0 else None,
            policy=settings[place[0]][_COMPACTION].value,
            delete_retention_ms=int(settings[place[0]][_DELETES_LIVE].value),
            leader_epoch=end.leader_epoch,
        )
        for place, end in bounds[1].items()
    }


def _committed(admin: AdminClient, group: str, keys: list[Key]) -> dict[tuple[str, int], int]:
    """The group's offsets; a broker that has just started first reads them from its own topic, and says so."""
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

    deadline = time.monotonic() + _SECONDS
    soon = (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
    while True:
        asked = ConsumerGroupTopicPartitions(group, keys)
        (future,) = admin.list_consumer_group_offsets([asked], request_timeout=_SECONDS).values()
        try:
            return {(one.topic, one.partition): one.offset for one in future.result().topic_partitions or ()}
        except KafkaException as error:
            if error.args[0].code() not in soon or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_SECONDS)

"""Read what a cluster has: topics with their settings, groups with their states, and the offsets of a group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option
from kstate_cli.broker.client import admin_client, denied, offsets_of_group
from kstate_cli.broker.group_offsets import CommittedOffset, read_committed
from kstate_cli.broker.settings import cause_of
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id, is_internal

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS: Final = 30.0
EMPTY: Final = "EMPTY"
"""The state of a group with offsets and without members."""
UNKNOWN: Final = "UNKNOWN"
"""The state of a group that has committed offsets, and that librdkafka does not list: ``group.protocol=streams``."""
UNLISTED: Final = "its group has group.protocol=streams, and kstate's Kafka client cannot list the members"


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster, and the settings of the Kafka client for it."""

    bootstrap: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic of a cluster."""

    topic_id: str
    """KIP-516, as Kafka's own tools print it."""
    partitions: int
    replicas: int
    settings: Mapping[str, str]
    """The settings of the topic itself; defaults of the broker are not among them."""


@dataclass(frozen=True, slots=True)
class SeedCluster:
    """The topics and groups that this user may see."""

    topics: frozenset[str]
    groups: Mapping[str, str]
    """Group -> its state, in upper case: ``STABLE``, ``EMPTY``, …; see :func:`with_groups`."""
    brokers: int
    cluster_id: str | None = None
    """None if the broker does not report it."""


def read_cluster(connection: Connection) -> SeedCluster:
    """Return topics, groups and the number of brokers. Raises UsageError and RunFailed."""
    with admin_client(connection.bootstrap, connection.settings) as admin:
        metadata = admin.list_topics(timeout=_SECONDS)
        groups = admin.list_consumer_groups(request_timeout=_SECONDS).result()
        return SeedCluster(
            frozenset(metadata.topics),
            {group.group_id: str(getattr(group.state, "name", group.state)).upper() for group in groups.valid},
            len(metadata.brokers),
            metadata.cluster_id or None,
        )


def with_groups(connection: Connection, cluster: SeedCluster, *names: str) -> SeedCluster:
    """Return the cluster with these groups, also if librdkafka does not list them. Raises UsageError and RunFailed.

    It lists no group with ``group.protocol=streams`` (KIP-1071). Only the offsets of such a group prove that it
    exists; whether it has members remains unknown.
    """
    unlisted = {
        name: UNKNOWN for name in names if name not in cluster.groups and _partitions_with_offsets(connection, name)
    }
    return replace(cluster, groups={**cluster.groups, **unlisted})


def read_topics(connection: Connection, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Return these topics, without those that do not exist. Raises UsageError and RunFailed."""
    with admin_client(connection.bootstrap, connection.settings) as admin:
        return topics_of(admin, names)


def topics_of(admin: AdminClient, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Return these topics, without those that do not exist. Raises KafkaException."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import ConfigResource, ResourceType

    present = admin.list_topics(timeout=_SECONDS).topics
    # Describing a missing topic fails the whole request.
    names = [name for name in sorted(set(names)) if name in present]
    if not names:
        return {}
    described = {
        name: _permitted(future, f"topic {name}", "Describe")
        for name, future in admin.describe_topics(TopicCollection(names), request_timeout=_SECONDS).items()
    }
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    configured = {
        resource.name: _own_settings(_permitted(future, f"topic {resource.name}", "DescribeConfigs"))
        for resource, future in admin.describe_configs(resources, request_timeout=_SECONDS).items()
    }
    return {
        name: TopicFacts(
            canonical_topic_id(str(topic.topic_id)),
            len(topic.partitions),
            min(len(partition.replicas) for partition in topic.partitions),
            configured[name],
        )
        for name, topic in described.items()
    }


def refuse_hidden(admin: AdminClient, names: Iterable[str]) -> None:
    """Raise RunFailed if one of these topics, which the broker does not list, may exist: without Describe on it.

    A broker lists only topics that the user may describe. To a request by name it answers TOPIC_AUTHORIZATION_FAILED
    without the right, and UNKNOWN_TOPIC_OR_PARTITION only with it (``KafkaApis.handleTopicMetadataRequest``).
    """
    from confluent_kafka import KafkaError, KafkaException, TopicCollection

    for name in sorted(set(names)):
        # Each alone, because one missing topic fails the whole request.
        (future,) = admin.describe_topics(TopicCollection([name]), request_timeout=_SECONDS).values()
        try:
            _permitted(future, f"topic {name}", "Describe")
        except KafkaException as error:
            if cause_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def refuse_other_cluster(target: Connection, cluster: SeedCluster, planned: Mapping[str, Any]) -> None:
    """Raise Refused if the run was on another cluster. Journals of earlier versions do not contain its id."""
    recorded = planned.get("cluster")
    if recorded is not None and recorded != cluster.cluster_id:
        raise Refused(
            f"{target.bootstrap} is the cluster {cluster.cluster_id}, but the run wrote to the cluster {recorded}",
            hint=f"pass {option.BOOTSTRAP_SERVER} with the run's cluster",
        )


def _permitted(future: Any, place: str, right: str) -> Any:
    """Return the result of a request. Raise RunFailed, naming place and right, if this user lacks the right."""
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as error:
        if not denied(cause_of(error)):
            raise
        raise _not_permitted(place, right) from None


def _not_permitted(place: str, right: str) -> RunFailed:
    return RunFailed(
        f"the broker does not permit this user to describe the {place}",
        hint=f"grant {right} on the {place}, then run the command again",
    )


def _own_settings(entries: Mapping[str, Any]) -> dict[str, str]:
    from confluent_kafka.admin import ConfigSource

    return {
        name: str(entry.value)
        for name, entry in entries.items()
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def _partitions_with_offsets(connection: Connection, group: str) -> frozenset[TopicPartition]:
    """Return the partitions for which a group has committed an offset. Raises UsageError and RunFailed."""
    from confluent_kafka import KafkaException

    with admin_client(connection.bootstrap, connection.settings) as admin:
        try:
            entries = offsets_of_group(admin, group, stable=True)
        except KafkaException as error:
            if denied(cause_of(error)):
                raise _not_permitted(f"group {group}", "Describe") from None
            raise
    return frozenset(TopicPartition(entry.topic, entry.partition) for entry in entries if entry.offset >= 0)


def committed_offsets(
    connection: Connection, cluster: SeedCluster, group: str
) -> dict[TopicPartition, CommittedOffset]:
    """Return all offsets that a group has committed; none for a group that does not exist. Raises as above.

    ``cluster``: with the group, see :func:`with_groups`.
    """
    if group not in cluster.groups:
        return {}
    partitions = _partitions_with_offsets(connection, group)
    return read_committed(connection.bootstrap, connection.settings, group, partitions)


def internal_topics(application: str, cluster: SeedCluster) -> list[str]:
    """Return the topics through which an application sends records to itself, by their names.

    ``orders-eu-x-repartition`` is a topic of ``orders-eu`` if the cluster has a group of that name.
    """
    longer = tuple(f"{group}-" for group in cluster.groups if group.startswith(f"{application}-"))
    return sorted(
        topic
        for topic in cluster.topics
        if topic.startswith(f"{application}-") and is_internal(topic) and not topic.startswith(longer)
    )

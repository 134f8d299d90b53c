"""Ask a broker about its logs, its topics and the members of a group, through librdkafka.

All requests only read: kstate creates no topic, joins no group and commits no offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.settings import refused_by_client
from kstate_cli.deadline import contact
from kstate_cli.diagnosis import timed
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import AdminClient

_LOG = logging.getLogger(__name__)
_SECONDS: Final = 30.0
GRANTS = "grant Describe and DescribeConfigs on the topics, Read to dump them, and Describe on the group of --app"
"""What to do about a user who may not."""
_REFUSED_SECONDS = 5.0
"""Where every address refuses to be connected to. A broker that restarts does so for a moment."""
_GLANCE_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_COMPACTION = "cleanup.policy"
_DELETES_LIVE = "delete.retention.ms"
_RETENTION = "retention.ms"
_LAG = "min.compaction.lag.ms"


@contextmanager
def admin_client(bootstrap: str, settings: Mapping[str, str]) -> Iterator[AdminClient]:
    """A client that asks, and has ended with all its threads when this is left.

    Raises UsageError for settings that librdkafka does not take, RunFailed for no answer.
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise UsageError(
            f"--bootstrap-server needs the Kafka client: {error}", hint="pip install 'kstate[kafka]'"
        ) from None
    contact(bootstrap)
    heard: list[Any] = []
    conf: dict[str, Any] = {"log_level": 0, **settings, "bootstrap.servers": bootstrap, "error_cb": heard.append}
    try:
        admin = AdminClient(conf)
    except (KafkaException, ValueError, TypeError) as error:
        raise refused_by_client(error) from None
    try:
        # Else it ends where it is collected. An error that is being told holds it until Python itself ends, and by then
        # its threads would call Python.
        with admin:
            _connect(admin, heard)
            yield admin
    except KafkaException as error:
        raise _failed(bootstrap, error) from None


def _connect(admin: AdminClient, heard: list[Any]) -> None:
    """Waits for the first answer; not as long as for others where nobody listens, or lets this user in."""
    from confluent_kafka import KafkaException

    began = time.monotonic()
    while True:
        try:
            admin.list_topics(timeout=_GLANCE_SECONDS)
            return
        except KafkaException:
            admin.poll(0)
            waited = time.monotonic() - began
            reasons = {error.name(): error for error in heard}
            for name in ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT"):
                may_pass = name in ("_RESOLVE", "_TRANSPORT") and waited < _REFUSED_SECONDS
                if name in reasons and "_ALL_BROKERS_DOWN" in reasons and not may_pass:
                    raise KafkaException(reasons[name]) from None
            if waited > _SECONDS:
                raise


def _failed(bootstrap: str, error: Any) -> RunFailed:
    told = error.args[0] if error.args else error
    if denied(told):
        return RunFailed(f"{bootstrap} does not allow this user what is asked: {told.str()}", hint=GRANTS)
    return RunFailed(
        f"{bootstrap} does not answer: {_said(told)}", hint="see whether the address is right, and --kafka-settings"
    )


def _said(error: Any) -> str:
    return str(error.str()) if hasattr(error, "str") else str(error)


def denied(error: Any) -> bool:
    """Whether librdkafka's error says that this user may not do what was asked."""
    from confluent_kafka import KafkaError

    codes = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    )
    return isinstance(error, KafkaError) and error.code() in codes


def ask_broker(
    bootstrap: str, settings: Mapping[str, str], *, group: str | None, topics: Iterable[str], stable: bool = False
) -> dict[TopicPartition, LogFacts]:
    """Start, end, id, epoch, committed offset and cleaning of every partition of those of ``topics`` that there are.

    Without a ``group`` nothing is asked of committed offsets. ``stable``: the last stable offset as well.
    Raises UsageError for settings that librdkafka does not take, RunFailed where the broker does not answer.
    """
    names = sorted(set(topics))
    with admin_client(bootstrap, settings) as admin, timed(_LOG, f"asked {bootstrap} about {len(names)} topics"):
        return _ask(admin, group, names, stable=stable)


def names_on(admin: AdminClient) -> tuple[list[str], list[str]]:
    """The topics, and the groups that this user may see."""
    return sorted(partition_counts(admin)), groups_on(admin)


def groups_on(admin: AdminClient) -> list[str]:
    """The groups that this user may see."""
    groups = admin.list_consumer_groups(request_timeout=_SECONDS).result()
    return sorted(one.group_id for one in groups.valid)


def partition_counts(admin: AdminClient) -> dict[str, int]:
    """The topics that this user may see, and how many partitions each has."""
    return {name: len(one.partitions) for name, one in admin.list_topics(timeout=_SECONDS).topics.items()}


def _ask(admin: AdminClient, group: str | None, topics: list[str], *, stable: bool) -> dict[TopicPartition, LogFacts]:
    from confluent_kafka import IsolationLevel, TopicCollection
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
    # What a group has read lies in the log by then, and so below its end.
    read = {} if group is None else _committed(admin, group, keys)
    wanted = [(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)]
    if stable:
        wanted.append((OffsetSpec.latest(), IsolationLevel.READ_COMMITTED))
    # The beginning last: what is deleted meanwhile is not taken for what is there.
    wanted.append((OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED))
    bounds = [
        {
            (key.topic, key.partition): future.result()
            for key, future in admin.list_offsets(
                dict.fromkeys(keys, spec), isolation_level=isolation, request_timeout=_SECONDS
            ).items()
        }
        for spec, isolation in wanted
    ]
    return {
        TopicPartition(*place): LogFacts(
            start=min(bounds[-1][place].offset, end.offset),
            end=end.offset,
            topic_id=ids[place[0]],
            committed=read[place] if read.get(place, -1) >= 0 else None,
            policy=settings[place[0]][_COMPACTION].value,
            delete_retention_ms=int(settings[place[0]][_DELETES_LIVE].value),
            leader_epoch=end.leader_epoch,
            stable_end=bounds[1][place].offset if stable else None,
            retention_ms=_of_the_topic(settings[place[0]], _RETENTION),
            min_compaction_lag_ms=_of_the_topic(settings[place[0]], _LAG),
        )
        for place, end in bounds[0].items()
    }


def _of_the_topic(settings: Mapping[str, Any], name: str) -> int | None:
    """What the topic itself has; None where it only has what the broker gives to all, and for -1: without an end."""
    from confluent_kafka.admin import ConfigSource

    one = settings[name]
    value = int(one.value) if ConfigSource(one.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG else -1
    return None if value < 0 else value


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


_DEAD: Final = "DEAD"
"""What a coordinator says of a group that is not there, and librdkafka of one whose protocol it does not know."""
_NOT_DESCRIBED: Final = (
    "it has committed offsets, and is not of a protocol that the Kafka client describes: it has group.protocol=streams"
)
_NO_GROUP: Final = (
    "the broker has no group of this name, or one with group.protocol=streams that has not committed anything yet"
)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of the group: a thread of an instance."""

    id: str
    client: str
    """``client.id`` of the consumer. Without one of its own it is ``<application.id>-<processId>-StreamThread-…``."""
    host: str
    """The address that the broker sees it at."""
    instance: str | None
    """``group.instance.id``, of a static member (KIP-345)."""
    assigned: frozenset[TopicPartition]
    """The partitions of source topics that it reads: of its active tasks. Standby tasks have none."""


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A group as its coordinator describes it."""

    state: str
    """``STABLE``, ``EMPTY``, …"""
    protocol: str
    """``classic``, ``consumer``, …; ``unknown`` of a kind that the client does not know, and of no group."""
    members: tuple[GroupMember, ...]
    why: str | None = None
    """Why nothing is known of its members; None where they are known."""


def ask_group(bootstrap: str, settings: Mapping[str, str], group: str) -> StreamsGroup:
    """What the coordinator says of a group, and where it cannot be told, why.

    A ``streams`` group (KIP-1071) is none that librdkafka describes: to the version of the request that it sends the
    coordinator answers as for a group that is not there, and only offsets that the group has committed tell the two
    apart (a classic or consumer group that has some is there, be it empty). Raises UsageError and RunFailed as
    :func:`kstate_cli.broker.client.ask_broker`.
    """
    from confluent_kafka import KafkaException

    with admin_client(bootstrap, settings) as admin:
        (future,) = admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
        try:
            said = future.result()
        except KafkaException as error:
            told = error.args[0]
            if denied(told):
                raise
            return _unknown(str(told.str()))
        state = str(getattr(said.state, "name", said.state))
        if state == _DEAD and not said.members:
            return _unknown(_NOT_DESCRIBED if _has_committed(admin, group) else _NO_GROUP)
    protocol = str(getattr(getattr(said, "type", None), "name", "unknown")).lower()
    return StreamsGroup(state, protocol, tuple(sorted(map(_member, said.members), key=lambda one: one.id)))


def _unknown(why: str) -> StreamsGroup:
    return StreamsGroup("unknown", "unknown", (), why)


def _has_committed(admin: AdminClient, group: str) -> bool:
    """Whether the broker keeps offsets of the group, of whatever protocol it is."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    (future,) = admin.list_consumer_group_offsets(asked, request_timeout=_SECONDS).values()
    return any(one.offset >= 0 for one in future.result().topic_partitions)


def _member(said: Any) -> GroupMember:
    assigned = getattr(said.assignment, "topic_partitions", None) or ()
    return GroupMember(
        str(said.member_id),
        str(said.client_id),
        str(said.host),
        said.group_instance_id or None,
        frozenset(TopicPartition(one.topic, one.partition) for one in assigned),
    )

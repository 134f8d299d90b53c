"""The members of an application's group, and what they have been given. Only asks: nothing is joined, or committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.broker.client import admin_client, denied
from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_SECONDS: Final = 30.0
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

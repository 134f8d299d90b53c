"""The members of an application's group, and what they have been given. Only asks: nothing is joined, or committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.broker.client import admin_client, denied
from kstate_cli.formats.topic_partition import TopicPartition

_SECONDS: Final = 30.0


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
    """``classic``, ``consumer``, …; ``unknown`` of a kind that the client does not know."""
    members: tuple[GroupMember, ...]
    why: str | None = None
    """Why nothing is known of its members; None where they are known."""


def ask_group(bootstrap: str, settings: Mapping[str, str], group: str) -> StreamsGroup:
    """What the coordinator says of a group, and where it cannot be told, why.

    A ``streams`` group (KIP-1071) is none that librdkafka describes. Raises UsageError and RunFailed as
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
            return StreamsGroup("unknown", "unknown", (), str(told.str()))
    protocol = str(getattr(getattr(said, "type", None), "name", "unknown")).lower()
    state = str(getattr(said.state, "name", said.state))
    return StreamsGroup(state, protocol, tuple(sorted(map(_member, said.members), key=lambda one: one.id)))


def _member(said: Any) -> GroupMember:
    assigned = getattr(said.assignment, "topic_partitions", None) or ()
    return GroupMember(
        str(said.member_id),
        str(said.client_id),
        str(said.host),
        said.group_instance_id or None,
        frozenset(TopicPartition(one.topic, one.partition) for one in assigned),
    )

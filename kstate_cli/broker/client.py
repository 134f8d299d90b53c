"""Ask a broker about its logs, its topics and the members of a group, through librdkafka.

All requests only read: kstate creates no topic, joins no group and commits no offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kstate_cli import option
from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.settings import cause_of, refused_by_client
from kstate_cli.deadline import contact
from kstate_cli.diagnosis import timed
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import AdminClient

_Answer = TypeVar("_Answer")
_LOG = logging.getLogger(__name__)
_SECONDS: Final = 30.0
GRANTS = (
    "grant this user Describe and DescribeConfigs on the topics (also Read to dump them), and Describe on "
    f"the group passed with {option.APP}"
)
"""The hint for a user without the rights."""
_REFUSED_SECONDS = 5.0
"""Limit if every address refuses connections. A broker that restarts does so for a moment."""
_GLANCE_SECONDS = 1.0
_AGAIN_SECONDS = 0.2
_COMPACTION = "cleanup.policy"
_DELETES_LIVE = "delete.retention.ms"
_RETENTION = "retention.ms"
_LAG = "min.compaction.lag.ms"


@contextmanager
def admin_client(bootstrap: str, settings: Mapping[str, str]) -> Iterator[AdminClient]:
    """Yield an admin client, and stop it with all its threads afterwards.

    Raises UsageError for settings that librdkafka rejects, RunFailed if no broker answers.
    """
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise UsageError(
            f"{option.BOOTSTRAP_SERVER} needs the Kafka client: {error}", hint="pip install 'kstate[kafka]'"
        ) from None
    contact(bootstrap)
    # librdkafka reports the reason of a failed connection only to this callback. Requests themselves just time out.
    client_errors: list[Any] = []
    conf: dict[str, Any] = {
        "log_level": 0,
        **settings,
        "bootstrap.servers": bootstrap,
        "error_cb": client_errors.append,
    }
    try:
        admin = AdminClient(conf)
    except (KafkaException, ValueError, TypeError) as error:
        raise refused_by_client(error) from None
    try:
        # Without this block, the client would be stopped when Python deletes it. The traceback of an error may keep it
        # until Python itself ends. Then its threads would still call Python.
        with admin:
            _connect(admin, client_errors)
            yield admin
    except KafkaException as error:
        raise _failed(bootstrap, error) from None


def _connect(admin: AdminClient, client_errors: list[Any]) -> None:
    """Wait for the first answer of a broker. Raise KafkaException with the reason if none comes.

    The time limit is short if no broker listens, and a failed login is reported at once.
    """
    from confluent_kafka import KafkaException

    began = time.monotonic()
    while True:
        try:
            # The smallest request. A broker that answers it has accepted address, encryption and login.
            admin.list_topics(timeout=_GLANCE_SECONDS)
            return
        except KafkaException:
            # poll runs pending callbacks, so that ``client_errors`` is up to date.
            admin.poll(0)
            elapsed = time.monotonic() - began
            reasons = {error.name(): error for error in client_errors}
            # The most specific reason comes first: a failed login also appears as a closed connection.
            for name in ("_AUTHENTICATION", "_SSL", "_RESOLVE", "_TRANSPORT"):
                may_pass = name in ("_RESOLVE", "_TRANSPORT") and elapsed < _REFUSED_SECONDS
                if name in reasons and "_ALL_BROKERS_DOWN" in reasons and not may_pass:
                    raise KafkaException(reasons[name]) from None
            if elapsed > _SECONDS:
                raise


def _failed(bootstrap: str, error: Any) -> RunFailed:
    """Return the error for a failed request: missing rights, a rejected request, or no answer."""
    cause = cause_of(error)
    if denied(cause):
        return RunFailed(f"{bootstrap} does not permit this user to make this request: {cause.str()}", hint=GRANTS)
    if answered(cause):
        return RunFailed(
            f"{bootstrap} rejected the request: {_error_text(cause)}",
            hint="a topic may have been deleted, or a broker may be starting. Run the command again",
        )
    return RunFailed(
        f"{bootstrap} does not respond: {_error_text(cause)}",
        hint=f"check the address and the settings in {option.KAFKA_SETTINGS}",
    )


def _error_text(error: Any) -> str:
    # KafkaError has a text without the code of its class; other exceptions have only their own.
    if hasattr(error, "str"):
        return str(error.str())
    return str(error)


def answered(error: Any) -> bool:
    """Return whether a broker sent the error: librdkafka gives its own errors negative numbers."""
    from confluent_kafka import KafkaError

    return isinstance(error, KafkaError) and error.code() > 0


def denied(error: Any) -> bool:
    """Return whether an error of librdkafka states that this user lacks a right."""
    from confluent_kafka import KafkaError

    codes = (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
    return isinstance(error, KafkaError) and error.code() in codes


def may_pass(error: Any) -> bool:
    """Return whether the error of a consumed message may pass by itself, so that the next poll has records again."""
    from confluent_kafka import KafkaError

    # librdkafka looks for the coordinator of the group, which kstate never uses, so missing rights on it do not matter.
    return bool(error.retriable()) or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def ask_broker(
    bootstrap: str, settings: Mapping[str, str], *, group: str | None, topics: Iterable[str], stable: bool = False
) -> dict[TopicPartition, LogFacts]:
    """Return the facts about every partition of the ``topics`` that exist.

    These are start, end, topic id, leader epoch, committed offset and cleanup settings. Without a ``group``, committed
    offsets are not requested. ``stable`` requests the last stable offset too. Raises UsageError for settings that
    librdkafka rejects, RunFailed if the broker does not answer.
    """
    names = sorted(set(topics))
    with admin_client(bootstrap, settings) as admin, timed(_LOG, f"asked {bootstrap} about topics ({len(names)})"):
        from confluent_kafka import KafkaError

        # A new topic has no leader for a moment. And if a broker restarts, other brokers take over its partitions.
        electing = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
        return _ask_again(lambda: _ask(admin, group, names, stable=stable), electing)


def _ask_again(request: Callable[[], _Answer], passing: Collection[int]) -> _Answer:
    """Return the answer to a request.

    It is repeated for half a minute while it fails with an error code in ``passing``.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return request()
        except KafkaException as error:
            if cause_of(error).code() not in passing or time.monotonic() > deadline:
                raise
            time.sleep(_AGAIN_SECONDS)


def names_on(admin: AdminClient) -> tuple[list[str], list[str]]:
    """Return the topics and the groups that this user may see."""
    return sorted(partition_counts(admin)), groups_on(admin)


def groups_on(admin: AdminClient) -> list[str]:
    """Return the groups that this user may see."""
    groups = admin.list_consumer_groups(request_timeout=_SECONDS).result()
    return sorted(group.group_id for group in groups.valid)


def partition_counts(admin: AdminClient) -> dict[str, int]:
    """Return the number of partitions of each topic that this user may see."""
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=_SECONDS).topics.items()}


def _ask(admin: AdminClient, group: str | None, topics: list[str], *, stable: bool) -> dict[TopicPartition, LogFacts]:
    """Return the facts about the partitions of topics, with requests in an order that makes them consistent."""
    from confluent_kafka import IsolationLevel, TopicCollection
    from confluent_kafka import TopicPartition as Key
    from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

    on_broker = admin.list_topics(timeout=_SECONDS).topics
    # If one topic is missing, a request to describe them all fails. So missing topics are removed from the request.
    topics = [topic for topic in topics if topic in on_broker]
    if not topics:
        return {}
    # Topic ids (KIP-516) distinguish a recreated topic from the earlier one.
    described = admin.describe_topics(TopicCollection(topics), request_timeout=_SECONDS)
    ids = {topic: canonical_topic_id(str(future.result().topic_id)) for topic, future in described.items()}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    settings = {
        resource.name: future.result()
        for resource, future in admin.describe_configs(resources, request_timeout=_SECONDS).items()
    }
    keys = [Key(topic, partition) for topic in topics for partition in on_broker[topic].partitions]
    # Committed offsets are requested before the ends of the logs. So no committed offset is above an end.
    read: dict[tuple[str, int], int] = {}
    if group is not None:
        read = _committed(admin, group, keys)
    requests = [(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)]
    if stable:
        requests.append((OffsetSpec.latest(), IsolationLevel.READ_COMMITTED))
    # The log starts are requested last, so that records that are deleted meanwhile count as deleted.
    requests.append((OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED))
    bounds = [_offsets(admin, keys, *request) for request in requests]
    return {
        TopicPartition(*place): LogFacts(
            # The start is requested after the end, and may be above it by now. Then the log is empty.
            start=min(bounds[-1][place].offset, end.offset),
            end=end.offset,
            topic_id=ids[place[0]],
            # librdkafka uses -1001 and -1 for "no offset".
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


def _offsets(admin: AdminClient, keys: list[Key], spec: Any, isolation: Any) -> dict[tuple[str, int], Any]:
    """Return the ListOffsets result of each partition, by topic and partition."""
    futures = admin.list_offsets(dict.fromkeys(keys, spec), isolation_level=isolation, request_timeout=_SECONDS)
    return {(key.topic, key.partition): future.result() for key, future in futures.items()}


def _of_the_topic(settings: Mapping[str, Any], name: str) -> int | None:
    """Return the setting of the topic itself; None for the default of the broker, and for -1, which is no limit."""
    from confluent_kafka.admin import ConfigSource

    setting = settings[name]
    # Streams sets its topics explicitly, so only that tells about the store; a default is the operator's.
    if ConfigSource(setting.source) is not ConfigSource.DYNAMIC_TOPIC_CONFIG or int(setting.value) < 0:
        return None
    return int(setting.value)


def _committed(admin: AdminClient, group: str, keys: list[Key]) -> dict[tuple[str, int], int]:
    """Return the committed offsets of the group."""
    return {(entry.topic, entry.partition): entry.offset for entry in offsets_of_group(admin, group, keys)}


def offsets_of_group(
    admin: AdminClient, group: str, keys: list[Key] | None = None, *, stable: bool = False
) -> Sequence[Any]:
    """Return the committed offsets of the group for these partitions; None: for all that it has read.

    ``stable``: an offset in an open transaction is an error (KIP-447). A broker that has just started must first read
    the offsets from ``__consumer_offsets``, and returns errors meanwhile. Raises KafkaException.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

    soon = (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )

    def await_coordinator() -> None:
        (future,) = admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
        try:
            future.result()
        except KafkaException as error:
            # Any other error is about the group, and not about its coordinator.
            if cause_of(error).code() in soon:
                raise

    def request() -> Sequence[Any]:
        partitions = [ConsumerGroupTopicPartitions(group, keys)]
        answers = admin.list_consumer_group_offsets(partitions, require_stable=stable, request_timeout=_SECONDS)
        (future,) = answers.values()
        return future.result().topic_partitions or ()

    # If the answer to a request for offsets is NOT_COORDINATOR, librdkafka 2.16 ends the process with SIGSEGV. It uses
    # the consumer group of the client, which an AdminClient does not have (``rd_kafka_handle_OffsetFetch``).
    _ask_again(await_coordinator, soon)
    return _ask_again(request, soon)


_DEAD: Final = "DEAD"
"""The state of a group that does not exist, and librdkafka's state of one whose protocol it does not know."""
_NOT_DESCRIBED: Final = "the group has group.protocol=streams, which kstate's Kafka client does not support"
_NO_GROUP: Final = (
    "the broker has no group with this name, or the group has group.protocol=streams and has not committed an "
    "offset yet"
)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A consumer of the group: one thread of an instance."""

    id: str
    client: str
    """``client.id`` of the consumer, by default ``<application.id>-<processId>-StreamThread-…``."""
    host: str
    """The address from which it is connected."""
    instance: str | None
    """``group.instance.id``, of a static member (KIP-345)."""
    assigned: frozenset[TopicPartition]
    """The partitions of source topics of its active tasks. Standby tasks have none."""


@dataclass(frozen=True, slots=True)
class StreamsGroup:
    """A group as its coordinator describes it."""

    state: str
    """``STABLE``, ``EMPTY``, …"""
    protocol: str
    """``classic``, ``consumer``, …; ``unknown`` for a protocol that the client does not know, and for no group."""
    members: tuple[GroupMember, ...]
    why: str | None = None
    """Why its members are unknown; None if they are known."""


def ask_group(bootstrap: str, settings: Mapping[str, str], group: str) -> StreamsGroup:
    """Return the coordinator's description of a group, or the reason why there is none.

    librdkafka cannot describe a ``streams`` group (KIP-1071): for the version of its request, the coordinator answers
    as if the group did not exist. Only committed offsets show the difference. A classic or consumer group that has
    committed offsets exists, even if it is empty. Raises UsageError and RunFailed as :func:`ask_broker`.
    """
    from confluent_kafka import KafkaException

    with admin_client(bootstrap, settings) as admin:
        (future,) = admin.describe_consumer_groups([group], request_timeout=_SECONDS).values()
        try:
            description = future.result()
        except KafkaException as error:
            cause = error.args[0]
            if denied(cause):
                raise
            return _unknown(str(cause.str()))
        state = str(getattr(description.state, "name", description.state))
        if state == _DEAD and not description.members:
            why = _NO_GROUP
            if _has_committed(admin, group):
                why = _NOT_DESCRIBED
            return _unknown(why)
    protocol = str(getattr(getattr(description, "type", None), "name", "unknown")).lower()
    return StreamsGroup(state, protocol, tuple(sorted(map(_member, description.members), key=lambda member: member.id)))


def _unknown(why: str) -> StreamsGroup:
    return StreamsGroup("unknown", "unknown", (), why)


def _has_committed(admin: AdminClient, group: str) -> bool:
    """Return whether the broker has committed offsets of the group, whatever its protocol."""
    return any(entry.offset >= 0 for entry in offsets_of_group(admin, group))


def _member(description: Any) -> GroupMember:
    assigned = getattr(description.assignment, "topic_partitions", None) or ()
    return GroupMember(
        str(description.member_id),
        str(description.client_id),
        str(description.host),
        description.group_instance_id or None,
        frozenset(TopicPartition(partition.topic, partition.partition) for partition in assigned),
    )

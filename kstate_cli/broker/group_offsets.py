"""Read and commit the offsets of a consumer group with their exact metadata.

Kafka Streams commits metadata with each input offset: partition time and emitted windows, as Base64
(``TopicPartitionMetadata``). confluent-kafka appends a NUL byte to the metadata that it commits. Streams cannot decode
the result, and then silently forgets the partition time. So this module calls librdkafka directly, in which metadata is
bytes with a length. Connections, encryption and login are those of the Kafka client that the rest of kstate uses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import option
from kstate_cli.deadline import contact
from kstate_cli.errors import RunFailed, UsageError
from kstate_cli.formats.topic_partition import TopicPartition

_CONSUMER: Final = 1
"""``RD_KAFKA_CONSUMER`` of ``rd_kafka_type_t``."""
_NO_OFFSET: Final = -1001
"""``RD_KAFKA_OFFSET_INVALID``: the group has no offset for the partition."""
_TIMEOUT_MS: Final = 30_000
_ERROR_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset, as the coordinator has it."""

    offset: int
    """The next offset to read."""
    metadata: bytes = b""
    leader_epoch: int | None = None
    """Of the record before ``offset`` (KIP-320)."""


class _Element(ctypes.Structure):
    """``rd_kafka_topic_partition_t``; librdkafka keeps its layout over all 1.x and 2.x versions."""

    _fields_ = (
        ("topic", ctypes.c_char_p),
        ("partition", ctypes.c_int32),
        ("offset", ctypes.c_int64),
        ("metadata", ctypes.c_void_p),
        ("metadata_size", ctypes.c_size_t),
        ("opaque", ctypes.c_void_p),
        ("err", ctypes.c_int),
        ("private", ctypes.c_void_p),
    )


class _List(ctypes.Structure):
    """``rd_kafka_topic_partition_list_t``."""

    _fields_ = (("count", ctypes.c_int), ("size", ctypes.c_int), ("elements", ctypes.POINTER(_Element)))


_LIST = ctypes.POINTER(_List)
_FUNCTIONS: Final[Mapping[str, tuple[Any, tuple[Any, ...]]]] = {
    "rd_kafka_conf_new": (ctypes.c_void_p, ()),
    "rd_kafka_conf_set": (
        ctypes.c_int,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t),
    ),
    "rd_kafka_conf_destroy": (None, (ctypes.c_void_p,)),
    "rd_kafka_new": (ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    "rd_kafka_destroy": (None, (ctypes.c_void_p,)),
    "rd_kafka_topic_partition_list_new": (_LIST, (ctypes.c_int,)),
    "rd_kafka_topic_partition_list_destroy": (None, (_LIST,)),
    "rd_kafka_topic_partition_list_add": (ctypes.POINTER(_Element), (_LIST, ctypes.c_char_p, ctypes.c_int32)),
    "rd_kafka_topic_partition_get_leader_epoch": (ctypes.c_int32, (ctypes.POINTER(_Element),)),
    "rd_kafka_topic_partition_set_leader_epoch": (None, (ctypes.POINTER(_Element), ctypes.c_int32)),
    "rd_kafka_committed": (ctypes.c_int, (ctypes.c_void_p, _LIST, ctypes.c_int)),
    "rd_kafka_commit": (ctypes.c_int, (ctypes.c_void_p, _LIST, ctypes.c_int)),
    "rd_kafka_err2str": (ctypes.c_char_p, (ctypes.c_int,)),
}


def read_committed(
    bootstrap: str,
    settings: Mapping[str, str],
    group: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout_ms: int = _TIMEOUT_MS,
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that the group has committed for these partitions; partitions without an offset are missing.

    The request is stable (KIP-447): an offset in an open transaction is an error, never an older offset.
    Raises UsageError if librdkafka rejects a setting, RunFailed if the coordinator does not answer.
    """
    keys = sorted(set(partitions))
    if not keys:
        return {}
    with _client(bootstrap, settings, group) as (library, client), _partition_list(library, keys) as listed:
        _require(library, library.rd_kafka_committed(client, listed, timeout_ms), f"read the offsets of group {group}")
        committed: dict[TopicPartition, CommittedOffset] = {}
        for key, element in zip(keys, _elements(listed), strict=True):
            _require(library, element.err, f"read the offset of group {group} for {key}")
            if element.offset == _NO_OFFSET:
                continue
            epoch = library.rd_kafka_topic_partition_get_leader_epoch(ctypes.byref(element))
            committed[key] = CommittedOffset(element.offset, _metadata_of(element), None if epoch < 0 else epoch)
        return committed


def commit_offsets(
    bootstrap: str, settings: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commit these offsets for a group without members. Raises UsageError and RunFailed as :func:`read_committed`."""
    keys = sorted(offsets)
    if not keys:
        return
    with _client(bootstrap, settings, group) as (library, client), _partition_list(library, keys) as listed:
        for key, element in zip(keys, _elements(listed), strict=True):
            committed = offsets[key]
            element.offset = committed.offset
            _set_metadata(element, committed.metadata)
            if committed.leader_epoch is not None:
                library.rd_kafka_topic_partition_set_leader_epoch(ctypes.byref(element), committed.leader_epoch)
        # The call is synchronous: it returns after the coordinator has answered.
        _require(library, library.rd_kafka_commit(client, listed, 0), f"commit the offsets of group {group}")
        for key, element in zip(keys, _elements(listed), strict=True):
            _require(library, element.err, f"commit the offset of group {group} for {key}")


def _library() -> Any:
    """Return the librdkafka that the Kafka client has loaded. Raise UsageError if the client is missing."""
    try:
        from confluent_kafka import cimpl
    except ImportError as error:
        raise UsageError(f"this command needs the Kafka client: {error}", hint="pip install 'kstate[kafka]'") from None
    # dlsym also finds symbols of the libraries that this one depends on. So both use the same librdkafka.
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


@contextmanager
def _client(bootstrap: str, settings: Mapping[str, str], group: str) -> Iterator[tuple[Any, ctypes.c_void_p]]:
    """Yield librdkafka and a consumer of ``group`` that never subscribes, so that it is not a member of the group."""
    library = _library()
    contact(bootstrap)
    conf = {
        "log_level": "0",
        **settings,
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": "false",
        # librdkafka sets require_stable if this is read_committed.
        "isolation.level": "read_committed",
    }
    handle = ctypes.c_void_p(library.rd_kafka_conf_new())
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    for name, value in conf.items():
        if library.rd_kafka_conf_set(handle, name.encode(), value.encode(), text, _ERROR_BYTES) != 0:
            library.rd_kafka_conf_destroy(handle)
            # The message of librdkafka may contain the value, which may be a password.
            raise UsageError(f"the Kafka client rejects the setting {name}", hint=f"correct {option.KAFKA_SETTINGS}")
    client = ctypes.c_void_p(library.rd_kafka_new(_CONSUMER, handle, text, _ERROR_BYTES))
    if not client:
        library.rd_kafka_conf_destroy(handle)
        raise UsageError("the Kafka client rejects these settings", hint=f"correct {option.KAFKA_SETTINGS}")
    try:
        # The client owns the configuration now, so it is not destroyed here.
        yield library, client
    finally:
        library.rd_kafka_destroy(client)


@contextmanager
def _partition_list(library: Any, keys: list[TopicPartition]) -> Iterator[Any]:
    listed = library.rd_kafka_topic_partition_list_new(len(keys))
    try:
        for key in keys:
            library.rd_kafka_topic_partition_list_add(listed, key.topic.encode(), key.partition)
        yield listed
    finally:
        library.rd_kafka_topic_partition_list_destroy(listed)


def _elements(listed: Any) -> list[_Element]:
    # In the order in which they were added: librdkafka never sorts a list of its caller.
    return [listed.contents.elements[index] for index in range(listed.contents.count)]


def _metadata_of(element: _Element) -> bytes:
    if not element.metadata:
        return b""
    return ctypes.string_at(element.metadata, element.metadata_size)


def _set_metadata(element: _Element, metadata: bytes) -> None:
    """Give an element its metadata; the list releases it with ``free``, so ``malloc`` must have made it."""
    if not metadata:
        return
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t,)
    copy = libc.malloc(len(metadata))
    ctypes.memmove(copy, metadata, len(metadata))
    element.metadata, element.metadata_size = copy, len(metadata)


def _require(library: Any, error: int, action: str) -> None:
    """Raise RunFailed unless ``error``, a ``rd_kafka_resp_err_t``, is 0."""
    if error:
        text = library.rd_kafka_err2str(error).decode(errors="replace")
        raise RunFailed(
            f"kstate cannot {action}: {text}",
            hint=(
                "check that the broker is up and that this user has Read permission on the group and its topics. Then "
                "run the command again"
            ),
        )

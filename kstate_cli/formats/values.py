"""The values of store rows.

==================================== ==============================================================
plain                                the value itself: nothing to decode
timestamped                          ``ts:i64 ‖ value``; -1 is an unknown timestamp
headers                              ``hs:zz ‖ H ‖ ts:i64 ‖ value``, ``hs`` the length of ``H``
headers session                      ``hs:zz ‖ H ‖ aggregation``
index row of a time-ordered store    empty; ``00`` once a headers store has migrated it
list-value                           ``01 ‖ count:i32 ‖ count × (len:i32 ‖ entry)``, len -1 is null
foreign-key subscription             timestamped or headers value around ``SubscriptionWrapper``
grace buffer                         ``BufferValue``
==================================== ==============================================================

``H`` is empty for a record without headers, else ``n:zz ‖ n × (klen:zz ‖ key UTF-8 ‖ vlen:zz ‖ value)``, where vlen -1
is a null value; order and repeated keys are kept. A null value is a row that is not there, so no form has one.

Decoders raise :class:`~kstate_cli.formats.binary.MalformedBytesError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import Reader, i32, i64, zigzag

UNKNOWN_TIMESTAMP: Final = -1
"""Timestamp of a row that was written without one (``ConsumerRecord.NO_TIMESTAMP``)."""

_TIMESTAMP_BYTES: Final = 8
_NO_HEADERS: Final = b"\x00"
_NULL: Final = -1
_SAME_AS_PRIOR: Final = -2
_VARIABLE_SIZE: Final = 1
_LEFT: Final = 1
_HASH_BYTES: Final = 16
_NO_HASH_BIT: Final = 0x80
_VERSION_WITH_PARTITION: Final = 1
_PARTITION_BYTES: Final = 4
_CHANGELOG_TIME_BYTES: Final = 8

DELETE_KEY_NO_PROPAGATE: Final = 0
DELETE_KEY_AND_PROPAGATE: Final = 1
PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE: Final = 2
PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE: Final = 3


@dataclass(frozen=True, slots=True)
class Header:
    """One record header; ``value`` may be null."""

    key: str
    value: bytes | None


Headers = tuple[Header, ...]


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Return ``hs:zz ‖ H``; the single byte ``00`` without headers."""
    in_order = tuple(headers)
    if not in_order:
        return _NO_HEADERS
    body = bytearray(zigzag(len(in_order)))
    for header in in_order:
        key = header.key.encode("utf-8")
        body += zigzag(len(key)) + key
        if header.value is None:
            body += zigzag(_NULL)
        else:
            body += zigzag(len(header.value)) + header.value
    # The size counts only the headers after it, so that a reader can skip them without decoding them.
    return zigzag(len(body)) + bytes(body)


def encoded_sizes(below: int) -> list[bytes]:
    """Return ``zz`` of -1, 0, 1 and so on: how lengths are written, for a caller that writes many."""
    return [zigzag(size) for size in range(_NULL, below)]


def decode_headers(data: bytes) -> tuple[Headers, int]:
    """Return the headers of ``hs:zz ‖ H`` at the start of ``data``, and the offset of the byte after them."""
    reader = Reader(data, "headers")
    size = reader.zigzag("size of headers")
    # A reader that ends where the headers end: a header that runs past that must not take bytes of the value.
    body = Reader(reader.take(size, "headers"), "headers")
    if not size:
        return (), reader.offset
    count = body.zigzag("number of headers")
    if count < 0:
        raise body.fail(f"the number of headers is negative: {count}", "IllegalArgumentException")
    headers = []
    for _ in range(count):
        key = body.text(body.zigzag("length of header key"), "header key")
        length = body.zigzag("length of header value")
        value = None
        if length != _NULL:
            value = body.take(length, "header value")
        headers.append(Header(key, value))
    # Bytes after the last header would belong neither to the headers nor to the value, so they are refused.
    body.end()
    return tuple(headers), reader.offset


@dataclass(frozen=True, slots=True)
class TimestampedValue:
    """``ts:i64 ‖ value``: timestamped key-value and window stores, and base rows of time-ordered window stores."""

    timestamp: int
    value: bytes

    def to_bytes(self) -> bytes:
        """Return ``ts:i64 ‖ value``."""
        return i64(self.timestamp) + self.value

    @classmethod
    def from_bytes(cls, data: bytes) -> TimestampedValue:
        """Read ``ts:i64 ‖ value``."""
        reader = Reader(data, "timestamped value")
        return cls(reader.i64("timestamp"), reader.rest())


@dataclass(frozen=True, slots=True)
class HeadersValue:
    """``hs:zz ‖ H ‖ ts:i64 ‖ value``: headers key-value and window stores, base rows of time-ordered window ones."""

    headers: Headers
    timestamp: int
    value: bytes

    def to_bytes(self) -> bytes:
        """Return ``hs:zz ‖ H ‖ ts:i64 ‖ value``."""
        return encode_headers(self.headers) + i64(self.timestamp) + self.value

    @classmethod
    def from_bytes(cls, data: bytes) -> HeadersValue:
        """Read ``hs:zz ‖ H ‖ ts:i64 ‖ value``."""
        headers, offset = decode_headers(data)
        reader = Reader(data, "headers value", offset)
        return cls(headers, reader.i64("timestamp"), reader.rest())


@dataclass(frozen=True, slots=True)
class HeadersSessionValue:
    """``hs:zz ‖ H ‖ aggregation``: headers session stores."""

    headers: Headers
    value: bytes

    def to_bytes(self) -> bytes:
        """Return ``hs:zz ‖ H ‖ aggregation``."""
        return encode_headers(self.headers) + self.value

    @classmethod
    def from_bytes(cls, data: bytes) -> HeadersSessionValue:
        """Read ``hs:zz ‖ H ‖ aggregation``."""
        headers, offset = decode_headers(data)
        return cls(headers, data[offset:])


def strip_headers_to_timestamped(value: bytes) -> tuple[bytes, int]:
    """Turn ``hs ‖ H ‖ ts ‖ value`` into ``ts ‖ value``; return the number of dropped headers too.

    The value of an index row of a time-ordered store, which is empty or the one byte ``00``, gives ``(b"", 0)``.
    """
    # This is an index row: its value is empty, and Streams puts 00 before it when it moves the row to a family with
    # headers.
    if value in {b"", _NO_HEADERS}:
        return b"", 0
    stripped, dropped = _strip(value)
    # Checked, because a value that is too short for its timestamp would otherwise pass as a timestamped value.
    _check_timestamp(stripped)
    return stripped, dropped


def strip_headers_to_plain(value: bytes) -> tuple[bytes, int]:
    """Turn ``hs ‖ H ‖ ts ‖ value`` into ``value``; return the number of dropped headers too."""
    stripped, dropped = _strip(value)
    _check_timestamp(stripped)
    return stripped[_TIMESTAMP_BYTES:], dropped


def strip_session_headers(value: bytes) -> tuple[bytes, int]:
    """Turn ``hs ‖ H ‖ aggregation`` into ``aggregation``; return the number of dropped headers too.

    The empty value of an index row stays empty, and its migrated form ``00`` becomes empty.
    """
    if not value:
        return value, 0
    return _strip(value)


def strip_index_headers(value: bytes) -> tuple[bytes, int]:
    """Turn the value of an index row (key prefix ``01``) of a time-ordered headers store into the empty one.

    Such a row holds nothing, or ``00`` after a lazy migration; anything else is malformed.
    """
    if value not in {b"", _NO_HEADERS}:
        raise Reader(value, "index row").fail(
            f"the row has a value of {len(value)} bytes, but index rows have no value"
        )
    return b"", 0


@dataclass(frozen=True, slots=True)
class ListEntry:
    """One record that waits in an outer join (``LeftOrRightValueSerializer``): ``side:u8 ‖ value``, side 1 is left."""

    left: bool
    value: bytes


def encode_list(entries: Iterable[ListEntry | None]) -> bytes:
    """Return ``01 ‖ count:i32 ‖ count × (len:i32 ‖ side:u8 ‖ value)`` (``ListSerializer``, VARIABLE_SIZE)."""
    in_order = tuple(entries)
    out = bytearray((_VARIABLE_SIZE,))
    out += i32(len(in_order))
    for entry in in_order:
        if entry is None:
            out += i32(_NULL)
        else:
            out += i32(1 + len(entry.value)) + bytes((int(entry.left),)) + entry.value
    return bytes(out)


def decode_list(data: bytes) -> tuple[ListEntry | None, ...]:
    """Read what :func:`encode_list` writes; another strategy or side is malformed."""
    reader = Reader(data, "list value")
    strategy = reader.u8("strategy")
    # ``ListSerializer`` has other strategies for serdes of a fixed size; Streams uses only this one for its lists.
    if strategy != _VARIABLE_SIZE:
        raise reader.fail(f"the serialization strategy {strategy} is unknown")
    count = reader.i32("number of entries")
    if count < 0:
        raise reader.fail(f"the number of entries is negative: {count}")
    entries: list[ListEntry | None] = []
    for _ in range(count):
        length = reader.i32("length of entry")
        if length == _NULL:
            entries.append(None)
            continue
        # A reader of its own ends with the entry, so that no value reaches into the next one.
        entry = Reader(reader.take(length, "entry"), "list entry")
        side = entry.u8("side")
        if side > _LEFT:
            raise entry.fail(f"the side {side} is not valid")
        entries.append(ListEntry(side == _LEFT, entry.rest()))
    reader.end()
    return tuple(entries)


@dataclass(frozen=True, slots=True)
class SubscriptionWrapper:
    """The value inside a subscription store's row (``SubscriptionWrapperSerde``).

    ``hash`` is 16 bytes of Murmur3-128 or ``None``; ``partition`` is ``None`` in version 0 and a number in version 1.
    Bytes: ``b0 ‖ instruction:u8 ‖ [hash] ‖ primary key ‖ [partition:i32]``, where the low 7 bits of b0 are the version
    and its high bit says that there is no hash.
    """

    version: int
    instruction: int
    hash: bytes | None
    primary_key: bytes
    partition: int | None

    def to_bytes(self) -> bytes:
        """Return the bytes of the value.

        :class:`ValueError` for a combination of fields that Streams does not write.
        """
        if self.version not in {0, _VERSION_WITH_PARTITION}:
            raise ValueError(f"the version {self.version} is unknown")
        # Version 1 added the partition (Kafka 3.4). A reader learns only from the version whether its four bytes
        # follow.
        if (self.partition is None) != (self.version == 0):
            raise ValueError(f"a subscription of version {self.version} cannot have the partition {self.partition}")
        if not DELETE_KEY_NO_PROPAGATE <= self.instruction <= PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            raise ValueError(f"the instruction {self.instruction} is unknown")
        if self.hash is not None and len(self.hash) != _HASH_BYTES:
            raise ValueError(f"a hash should have {_HASH_BYTES} bytes, but has {len(self.hash)}")
        first, tail = self.version, b""
        if self.hash is None:
            first |= _NO_HASH_BIT
        if self.partition is not None:
            tail = i32(self.partition)
        return bytes((first, self.instruction)) + (self.hash or b"") + self.primary_key + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> SubscriptionWrapper:
        """Read the bytes that :meth:`to_bytes` gives; a version above 1 or an instruction above 3 is malformed."""
        reader = Reader(data, "subscription")
        first = reader.u8("version")
        # The highest bit says that there is no hash; the rest is the version.
        version = first & ~_NO_HASH_BIT
        if version > _VERSION_WITH_PARTITION:
            raise reader.fail(f"the version {version} is unknown", "UnsupportedVersionException")
        instruction = reader.u8("instruction")
        if instruction > PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
            raise reader.fail(f"the instruction {instruction} is unknown", "IllegalArgumentException")
        digest = None
        if not first & _NO_HASH_BIT:
            digest = reader.take(_HASH_BYTES, "hash")
        if version < _VERSION_WITH_PARTITION:
            return cls(version, instruction, digest, reader.rest(), None)
        if reader.remaining < _PARTITION_BYTES:
            raise reader.fail("no bytes are left for the partition", "NegativeArraySizeException")
        # The length of the primary key is not stored: it is what remains before the four bytes of the partition.
        primary_key = reader.take(reader.remaining - _PARTITION_BYTES, "primary key")
        return cls(version, instruction, digest, primary_key, reader.i32("partition"))


def subscription_version(value: bytes) -> int:
    """Return the version of the wrapper in ``ts:i64 ‖ W``, a row of a subscription store: 0, or 1 from Kafka 3.4 on."""
    return SubscriptionWrapper.from_bytes(TimestampedValue.from_bytes(value).value).version


@dataclass(frozen=True, slots=True)
class BufferValue:
    """A record in the grace buffer of a stream-table join (``BufferValue`` and ``ProcessorRecordContext``).

    Bytes: ``ts:i64 ‖ offset:i64 ‖ tlen:i32 ‖ topic ‖ partition:i32 ‖ n:i32 ‖ n × (klen:i32 ‖ key ‖ vlen:i32 ‖ value)
    ‖ prior ‖ old ‖ new``, the last three as ``len:i32 ‖ bytes``; length -1 is null, and -2 for ``old`` repeats
    ``prior``. ``trailing`` is empty in a row; it is ``time:i64`` in a changelog record, and stays in the row when
    Streams restores that record.
    """

    timestamp: int
    offset: int
    topic: str
    partition: int
    headers: Headers
    prior: bytes | None
    old: bytes | None
    new: bytes | None
    trailing: bytes = b""

    def to_bytes(self) -> bytes:
        """Return the bytes of the value; :class:`ValueError` if ``trailing`` is neither 0 nor 8 bytes."""
        # There are 8 bytes only in a changelog record, and in a row that Streams restored from one.
        if len(self.trailing) not in {0, _CHANGELOG_TIME_BYTES}:
            raise ValueError(
                f"a buffer value has {len(self.trailing)} trailing bytes instead of 0 or {_CHANGELOG_TIME_BYTES}"
            )
        topic = self.topic.encode("utf-8")
        out = bytearray(i64(self.timestamp) + i64(self.offset) + i32(len(topic)) + topic)
        out += i32(self.partition) + i32(len(self.headers))
        for header in self.headers:
            out += _sized(header.key.encode("utf-8")) + _sized(header.value)
        out += _sized(self.prior)
        if self.old is not None and self.old == self.prior:
            # The old value is nearly always the same as the prior one. Then Streams writes only -2.
            out += i32(_SAME_AS_PRIOR)
        else:
            out += _sized(self.old)
        return bytes(out + _sized(self.new) + self.trailing)

    @classmethod
    def from_bytes(cls, data: bytes) -> BufferValue:
        """Read the bytes that :meth:`to_bytes` gives."""
        reader = Reader(data, "buffer value")
        timestamp = reader.i64("timestamp")
        offset = reader.i64("offset")
        topic = reader.text(reader.i32("length of topic"), "topic")
        partition = reader.i32("partition")
        count = reader.i32("number of headers")
        # -1 is accepted and means no headers, as Streams does for the sake of old releases.
        if count < _NULL:
            raise reader.fail(f"the number of headers is negative: {count}", "SerializationException")
        headers = []
        for _ in range(count):
            key = reader.text(reader.i32("length of header key"), "header key")
            headers.append(Header(key, _take_sized(reader, reader.i32("length of header value"), "header value")))
        prior = _take_sized(reader, reader.i32("length of prior value"), "prior value")
        length = reader.i32("length of old value")
        old = prior
        if length != _SAME_AS_PRIOR:
            old = _take_sized(reader, length, "old value")
        new = _take_sized(reader, reader.i32("length of new value"), "new value")
        # A record of the changelog ends in a time of 8 bytes. Streams leaves it in the rows that it restores, and
        # ignores it there.
        if reader.remaining not in {0, _CHANGELOG_TIME_BYTES}:
            raise reader.fail(f"{reader.remaining} bytes follow the new value")
        return cls(timestamp, offset, topic, partition, tuple(headers), prior, old, new, reader.rest())


def _strip(value: bytes) -> tuple[bytes, int]:
    # The usual value: hs = 0, and nothing to decode.
    if value[:1] == _NO_HEADERS:
        return value[1:], 0
    headers, offset = decode_headers(value)
    return value[offset:], len(headers)


def _check_timestamp(stripped: bytes) -> None:
    Reader(stripped, "headers value").i64("timestamp")


def _sized(value: bytes | None) -> bytes:
    if value is None:
        return i32(_NULL)
    return i32(len(value)) + value


def _take_sized(reader: Reader, length: int, field: str) -> bytes | None:
    if length == _NULL:
        return None
    return reader.take(length, field)

"""Checks that rows decode as rows of the store's kind.

Each rule has two parts. The codec of ``formats`` decides about a row. A quick test looks at many rows at once, and
accepts only rows that the codec accepts. If it does not accept them, they are decoded one by one. A Python call for
each row would take longer than reading the row. So the quick tests create no objects and no messages, and leave rare
rows to the codec: those with headers of more than 8 KB, or with a header key that is not ASCII.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from kstate_cli.formats.keys import BASE_PREFIX, VersionedKey
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.layouts import Inner, KeySchema, ValueLayout
from kstate_cli.formats.store_kinds import DEFAULT_CF, StoreKind, store_kind, store_kinds
from kstate_cli.formats.values import (
    BufferValue,
    SubscriptionWrapper,
    decode_list,
    strip_index_headers,
)
from kstate_cli.formats.versioned import read_versions
from kstate_cli.rows.records import ValueReader, value_reader

Rows = list[bytes]
_TIMESTAMP = 8
_COMBINED = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class RowCheck:
    """The check for the rows of a column family.

    ``decode`` raises MalformedBytesError for a bad row. ``fits`` is the quick test of many rows: if it returns True,
    ``decode`` would raise for none of them.
    """

    decode: Callable[[bytes, bytes], object]
    fits: Callable[[Rows, Rows], bool]


def row_check_for(kind: Kind, family: str, *, segmented: bool) -> RowCheck | None:
    """Return the check for the rows of a column family; None if any bytes are correct.

    If the kind is uncertain, the check covers only what all kinds with that family have in common.
    """
    if kind.certain:
        layout = store_kind(kind.name).layout_in(family)
        # If the kind does not have this family, the family is checked as if the kind were uncertain.
        if layout is not None:
            return _rule(store_kind(kind.name), family, layout)
    return _promised(family, segmented=segmented)


def _promised(family: str, *, segmented: bool) -> RowCheck | None:
    """Return the check for what all kinds with that family have in common: key schema, and beginning of the value."""
    having = [
        (kind, layout)
        for kind in store_kinds()
        if kind.is_exact and kind.key.segmented is segmented and (layout := kind.layout_in(family)) is not None
    ]
    layouts, keys = {layout for _, layout in having}, {kind.key for kind, _ in having}
    layout = ValueLayout.PLAIN
    if len(layouts) == 1:
        layout = layouts.pop()
    if len(keys) == 1 and (segmented or layout is not ValueLayout.PLAIN):
        return _row_check_of(keys.pop(), layout, _index_values(family))
    if layout is ValueLayout.PLAIN:
        # There are several key schemas, and the values have no structure: any row would be correct for one of the
        # kinds.
        return None
    return _row_check_of(KeySchema.KEY, layout, _EMPTY)


# --- quick tests ------------------------------------------------------------------------------------------------------


def _lengths(key: int, value: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        # ``map`` and ``min`` run in C: one call for all rows instead of one for each.
        return min(map(len, keys)) >= key and min(map(len, values)) >= value

    return fits


def _headers(key: int, tail: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        # The usual row has no headers: hs is the one byte 00.
        least = 1 + tail
        return min(map(len, keys)) >= key and all(
            len(v) >= least if v[:1] == b"\0" else headers_end(v, tail) for v in values
        )

    return fits


def _time_ordered(key: int, base: Callable[[bytes], bool], index: frozenset[bytes]) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        if min(map(len, keys)) <= key:
            return False
        # The first byte of a key distinguishes base rows, 00, from index rows, 01.
        return all((k[0] == 0 and base(v)) or (k[0] == 1 and v in index) for k, v in zip(keys, values, strict=True))

    return fits


def _versioned(keys: Rows, values: Rows) -> bool:
    return min(map(len, keys)) >= _TIMESTAMP and all(
        # The first i64 of a key is its segment. In segment -1 (eight bytes ff) are the latest versions, begin:i64 ‖
        # value.
        segment_fits(v) if k[0] < 0x80 else k.startswith(b"\xff" * 8) and len(v) >= _TIMESTAMP
        for k, v in zip(keys, values, strict=True)
    )


def _list(keys: Rows, values: Rows) -> bool:
    return min(map(len, keys)) > _TIMESTAMP and all(k[_TIMESTAMP] <= 1 for k in keys) and all(map(list_fits, values))


def _combined(keys: Rows) -> bool:
    return min(map(len, keys)) >= _COMBINED.size and all(
        0 <= _COMBINED.unpack_from(k)[0] <= len(k) - _COMBINED.size for k in keys
    )


def _subscription(at: int) -> Callable[[Rows, Rows], bool]:
    def fits(keys: Rows, values: Rows) -> bool:
        return _combined(keys) and all(subscription_fits(v, at) for v in values)

    return fits


def _subscription_with_headers(keys: Rows, values: Rows) -> bool:
    # Without headers their size is one byte, 0. A row with headers is left to the codec.
    return _combined(keys) and all(v[:1] == b"\0" and subscription_fits(v, 1 + _TIMESTAMP) for v in values)


def _never(_keys: Rows, _values: Rows) -> bool:
    return False


# --- codecs -----------------------------------------------------------------------------------------------------------

Decoder = Callable[[bytes], object]


def _row(key: Decoder, value: Decoder) -> Callable[[bytes, bytes], object]:
    def decode(k: bytes, v: bytes) -> object:
        return key(k), value(v)

    return decode


def _prefixed(base: tuple[Decoder, Decoder], index: tuple[Decoder, Decoder]) -> Callable[[bytes, bytes], object]:
    def decode(k: bytes, v: bytes) -> object:
        key, value = base if k.startswith(BASE_PREFIX) else index
        return key(k), value(v)

    return decode


def _decode_versioned(key: bytes, value: bytes) -> object:
    return read_versions(VersionedKey.from_bytes(key), value)


def _anything(data: bytes) -> object:
    return data


def _time_first(key: KeySchema, value: Decoder, fits: Callable[[bytes], bool], index: frozenset[bytes]) -> RowCheck:
    decode = _prefixed((key.read, value), (key.read_index, strip_index_headers))
    return RowCheck(decode, _time_ordered(key.tail, fits, index))


# --- rules ------------------------------------------------------------------------------------------------------------

_EMPTY = frozenset({b""})
_EMPTY_OR_MIGRATED = frozenset({b"", b"\0"})
_FITS: dict[ValueLayout, Callable[[bytes], bool]] = {
    ValueLayout.PLAIN: lambda _: True,
    ValueLayout.TIMESTAMPED: lambda value: len(value) >= _TIMESTAMP,
    ValueLayout.HEADERS: lambda value: headers_end(value, _TIMESTAMP),
    ValueLayout.HEADERS_SESSION: lambda value: headers_end(value, 0),
}


def _index_values(family: str) -> frozenset[bytes]:
    """Return the values of an index row: empty, or a zero byte after Streams moved it to a family with headers."""
    if family == DEFAULT_CF:
        return _EMPTY
    return _EMPTY_OR_MIGRATED


def _rule(kind: StoreKind, family: str, layout: ValueLayout) -> RowCheck | None:
    """Return the check for the rows of a family of a certain kind; None if any bytes are correct."""
    if kind.inner is Inner.VERSIONS:
        return RowCheck(_decode_versioned, _versioned)
    if kind.inner is Inner.LIST:
        return RowCheck(_row(kind.key.read, decode_list), _list)
    if kind.inner is Inner.BUFFERED:
        # There is no quick test for these values, and buffers are small: each row is decoded.
        return RowCheck(_row(kind.key.read, BufferValue.from_bytes), _never)
    if kind.inner is Inner.SUBSCRIPTION:
        return _subscriptions(kind.key, layout)
    return _row_check_of(kind.key, layout, _index_values(family))


def _row_check_of(key: KeySchema, layout: ValueLayout, index: frozenset[bytes]) -> RowCheck | None:
    """Return the check by key schema and layout of the values; None if any bytes are correct.

    ``index`` has the values that index rows of time-ordered stores may have.
    """
    if key.time_ordered:
        return _time_first(key, value_reader(layout), _FITS[layout], index)
    # Keys and values are bytes of the application, so kstate has no rule for them.
    if not key.expires and layout is ValueLayout.PLAIN:
        return None
    of_key: Decoder = _anything
    if key.expires:
        of_key = key.read
    least = 0
    if layout.has_timestamps:
        least = _TIMESTAMP
    fits = _lengths(key.tail, least)
    if layout.has_headers:
        fits = _headers(key.tail, least)
    return RowCheck(_row(of_key, value_reader(layout)), fits)


def _subscriptions(key: KeySchema, layout: ValueLayout) -> RowCheck:
    """Return the check for subscriptions: rows of an older family have the older layout until Streams moves them."""
    if layout is ValueLayout.PLAIN:
        return RowCheck(_row(key.read, SubscriptionWrapper.from_bytes), _subscription(0))
    fits: Callable[[Rows, Rows], bool] = _subscription_with_headers
    if layout is ValueLayout.TIMESTAMPED:
        fits = _subscription(_TIMESTAMP)
    return RowCheck(_row(key.read, _within(value_reader(layout))), fits)


def _within(read: ValueReader) -> Decoder:
    def inner(data: bytes) -> object:
        return SubscriptionWrapper.from_bytes(read(data).value)

    return inner


_SMALL = 0x80
_SEGMENT = struct.Struct(">qq")
_VERSION = struct.Struct(">qi")
_I32 = struct.Struct(">i")
_NULL_HEADER = 1
_HASH_BYTES = 16
_PARTITION_BYTES = 4


def headers_end(value: bytes, tail: int) -> bool:
    """Return whether ``hs:zz ‖ H ‖ tail`` has valid headers, and after them at least ``tail`` bytes.

    ``hs`` is the size of the headers ``H``, a zig-zag varint (``decode_headers``). Also return False for a valid size
    of more than two bytes.
    """
    try:
        # The varint is read by hand, at most two bytes of it: a loop, or a reader object, would take most of the time.
        size = value[0]
        at = 1
        if size >= _SMALL:
            if value[1] >= _SMALL:
                return False
            size += (value[1] - 1) * _SMALL
            at = 2
        # In zig-zag encoding an odd number is negative.
        if size & 1:
            return False
        end = at + (size >> 1)
        if len(value) < end + tail:
            return False
        # The headers must end exactly where their size states.
        return not size or _headers_end_at(value, at) == end
    except IndexError:
        return False


def _headers_end_at(value: bytes, at: int) -> int:
    """Return the offset after ``count:zz ‖ count × (len:zz ‖ key ‖ len:zz ‖ value)`` at ``at``.

    Return -1 if the headers are invalid, or too rare for this test: then the codec decides. Raises IndexError if the
    value is too short.
    """
    count = value[at]
    if count >= _SMALL or count & 1:
        return -1
    at += 1
    for _ in range(count >> 1):
        length = value[at]
        if length >= _SMALL or length & 1:
            return -1
        key = value[at + 1 : at + 1 + (length >> 1)]
        # ASCII is valid UTF-8 and needs no decoding. Other keys are left to the codec.
        if not key.isascii():
            return -1
        at += 1 + (length >> 1)
        length = value[at]
        if length == _NULL_HEADER:
            at += 1
            continue
        if length & 1:
            return -1
        if length >= _SMALL:
            if value[at + 1] >= _SMALL:
                return -1
            length += (value[at + 1] - 1) * _SMALL
            at += 1
        at += 1 + (length >> 1)
    return at


def segment_fits(value: bytes) -> bool:
    """Return whether the value is ``next ‖ min ‖ (ts ‖ size) per version ‖ values`` (``SegmentValue``).

    Return False for a row whose only version is a tombstone: the codec decides about it.
    """
    try:
        later, least = _SEGMENT.unpack_from(value)
        at = _SEGMENT.size
        total = 0
        # The newest version comes first. The times decrease to the least one, which the beginning of the value states
        # too.
        while True:
            timestamp, size = _VERSION.unpack_from(value, at)
            if timestamp >= later or size < -1:
                return False
            at += _VERSION.size
            if size > 0:
                total += size
            if timestamp <= least:
                return bool(timestamp == least and at + total == len(value))
            later = timestamp
    except struct.error:
        return False


def list_fits(value: bytes) -> bool:
    """Return whether the bytes are ``01 ‖ count:i32 ‖ count × (len:i32 ‖ side:u8 ‖ value)``, without decoding them.

    ``len`` counts the byte of the side; -1 is a null entry, which has no further bytes. ``decode_list`` decodes the
    same bytes, and accepts the same ones.
    """
    try:
        # 1 means that each entry states its own length: Kafka Streams writes no other lists (decode_list).
        if value[0] != 1:
            return False
        (count,) = _I32.unpack_from(value, 1)
        if count < 0:
            return False
        at = 1 + _I32.size
        for _ in range(count):
            (length,) = _I32.unpack_from(value, at)
            at += _I32.size
            if length == -1:
                continue
            # An entry has at least the byte of its side: 0 is the right side of the join, 1 the left one.
            if length < 1 or value[at] > 1:
                return False
            at += length
    except (struct.error, IndexError):
        return False
    return at == len(value)


def subscription_fits(value: bytes, at: int) -> bool:
    """Return whether the value has a ``SubscriptionWrapper`` at offset ``at``."""
    if len(value) < at + 2:
        return False
    first = value[at]
    version = first & 0x7F
    if version > 1 or value[at + 1] > 3:
        return False
    size = 2
    # The highest bit of the first byte shows that there is no hash. Version 1 added the partition.
    if not first & _SMALL:
        size += _HASH_BYTES
    if version:
        size += _PARTITION_BYTES
    return len(value) >= at + size

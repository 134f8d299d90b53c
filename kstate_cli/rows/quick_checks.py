"""Quick yes-or-no forms of codecs of ``formats``: true only where the codec accepts; false asks the codec.

They make no objects and no messages, and give up on what is rare (a header of more than 8 KB, text that is not ASCII).
"""

from __future__ import annotations

import struct

_SMALL = 0x80
_SEGMENT = struct.Struct(">qq")
_VERSION = struct.Struct(">qi")
_I32 = struct.Struct(">i")
_NULL_HEADER = 1
_HASH_BYTES = 16
_PARTITION_BYTES = 4


def headers_end(value: bytes, tail: int) -> bool:
    """``hs:zz ‖ H ‖ tail``, at least ``tail`` bytes after the headers (``decode_headers``)."""
    try:
        size = value[0]
        at = 1
        if size >= _SMALL:
            if value[1] >= _SMALL:
                return False
            size += (value[1] - 1) * _SMALL
            at = 2
        # Zig-zag: an odd number is a negative one.
        if size & 1:
            return False
        end = at + (size >> 1)
        if len(value) < end + tail:
            return False
        if not size:
            return True
        count = value[at]
        if count >= _SMALL or count & 1:
            return False
        at += 1
        for _ in range(count >> 1):
            length = value[at]
            if length >= _SMALL or length & 1:
                return False
            key = value[at + 1 : at + 1 + (length >> 1)]
            if not key.isascii():
                return False
            at += 1 + (length >> 1)
            length = value[at]
            if length == _NULL_HEADER:
                at += 1
                continue
            if length & 1:
                return False
            if length >= _SMALL:
                if value[at + 1] >= _SMALL:
                    return False
                length += (value[at + 1] - 1) * _SMALL
                at += 1
            at += 1 + (length >> 1)
    except IndexError:
        return False
    return at == end


def segment_fits(value: bytes) -> bool:
    """``next ‖ min ‖ (ts ‖ size) per version ‖ values`` (``SegmentValue``); a degenerate row is left to the codec."""
    try:
        later, least = _SEGMENT.unpack_from(value)
        at = _SEGMENT.size
        total = 0
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
    """``01 ‖ count:i32 ‖ count × (len:i32 ‖ side:u8 ‖ value)`` (``decode_list``)."""
    try:
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
            if length < 1 or value[at] > 1:
                return False
            at += length
    except (struct.error, IndexError):
        return False
    return at == len(value)


def subscription_fits(value: bytes, at: int) -> bool:
    """``SubscriptionWrapper`` from offset ``at`` on."""
    if len(value) < at + 2:
        return False
    first = value[at]
    version = first & 0x7F
    if version > 1 or value[at + 1] > 3:
        return False
    needed = 2 + (0 if first & _SMALL else _HASH_BYTES) + (_PARTITION_BYTES if version else 0)
    return len(value) >= at + needed

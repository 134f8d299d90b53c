"""Serdes: what keys and values mean. Without one they are bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli.errors import UsageError


@dataclass(frozen=True, slots=True)
class Serde:
    """Turns what a caller writes into bytes and back. Both raise ValueError for what they cannot turn."""

    name: str
    serialize: Callable[[Any], bytes]
    deserialize: Callable[[bytes], Any]


def _same(data: bytes) -> bytes:
    if not isinstance(data, bytes):
        raise ValueError(f"{data!r} is not bytes")
    return data


BYTES: Final = Serde("bytes", _same, _same)


def _string(data: bytes) -> str:
    return data.decode("utf-8")


def _long(data: bytes) -> int:
    if len(data) != 8:
        raise ValueError(f"a long has 8 bytes, not {len(data)}")
    return int.from_bytes(data, "big", signed=True)


_NAMED: Final = {
    "bytes": BYTES,
    "string": Serde("string", lambda text: str(text).encode("utf-8"), _string),
    "long": Serde("long", lambda number: int(number).to_bytes(8, "big", signed=True), _long),
}


def serde_named(name: str) -> Serde:
    """The serde of that name. Raises UsageError where there is none."""
    try:
        return _NAMED[name]
    except KeyError:
        raise UsageError(f"{name!r} is no serde: {', '.join(sorted(_NAMED))}") from None


@dataclass(frozen=True, slots=True)
class StoreSerdes:
    """The serdes of one store, of its record keys (not of its windowed keys) and its values."""

    key: Serde = BYTES
    value: Serde = BYTES

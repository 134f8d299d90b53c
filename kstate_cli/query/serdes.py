"""Serdes: what keys and values mean. Without one they are bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


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


@dataclass(frozen=True, slots=True)
class StoreSerdes:
    """The serdes of one store, of its record keys (not of its windowed keys) and its values."""

    key: Serde = BYTES
    value: Serde = BYTES

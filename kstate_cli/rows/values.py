"""What queries answer with: values with a timestamp, versions, windowed keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from kstate_cli.formats.values import UNKNOWN_TIMESTAMP, Header

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class ValueAndTimestamp(Generic[V]):
    """A value, its timestamp (ms; -1 where the row has none, as in sessions) and, in stores with them, its headers."""

    value: V
    timestamp: int
    headers: tuple[Header, ...] = ()


def known(timestamp: int) -> int | None:
    """None for the timestamp of a row that was written without one."""
    return None if timestamp == UNKNOWN_TIMESTAMP else timestamp


@dataclass(frozen=True, slots=True)
class VersionedRecord(Generic[V]):
    """One version: valid from ``timestamp`` until before ``valid_to``; None while it is the latest."""

    value: V
    timestamp: int
    valid_to: int | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """In place of a key or value that is none: its bytes, where they are known, and what is wrong with them."""

    data: bytes | None
    why: str


class Windowed(NamedTuple, Generic[K]):
    """A key and its window, ms. The end of a session is inclusive; that of a window is not stored: None."""

    key: K
    start: int
    end: int | None

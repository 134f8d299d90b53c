"""How long a segment is: the rules of Streams, in milliseconds."""

from __future__ import annotations

from typing import Final

from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key, has_retention

MIN_INTERVAL_MS: Final = 60_000
"""Segments of window and session stores are never shorter."""
_HISTORIES: Final = ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000))
"""(history retention up to, parts, least interval) of versioned stores."""


def default_segment_interval(kind: str, retention_ms: int) -> int | None:
    """The segment interval that Streams chooses for a retention; None for a kind without segments of its own.

    ``max(retention / 2, 60000)`` for windows, sessions and joins (``Stores.persistentWindowStore``,
    ``RocksDbSessionBytesStoreSupplier``); by a table for versioned stores
    (``RocksDbVersionedKeyValueBytesStoreSupplier``).
    """
    if not has_retention(kind):
        return None
    if not has_key(kind, KeySchema.VERSIONED):
        return max(retention_ms // 2, MIN_INTERVAL_MS)
    for longest, parts, least in _HISTORIES:
        if retention_ms <= longest:
            return max(retention_ms // parts, least)
    return max(retention_ms // 24, 300_000)


def histories_of(interval_ms: int) -> tuple[tuple[int, int], ...]:
    """(least, greatest) history retentions whose versioned stores have segments so long unless told otherwise."""
    histories: list[tuple[int, int]] = []
    lower = 1
    for longest, parts, least in (*_HISTORIES, (None, 24, 300_000)):
        # history // parts == interval, or anything below when the interval is the least one.
        first = lower if interval_ms == least else max(lower, interval_ms * parts)
        last = interval_ms * parts + parts - 1
        if longest is not None:
            last, lower = min(last, longest), longest + 1
        if interval_ms >= least and first <= last:
            histories.append((first, last))
    return tuple(histories)

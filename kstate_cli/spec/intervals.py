"""How long a segment is: the rules of Streams, in milliseconds."""

from __future__ import annotations

from typing import Final

from kstate_cli.spec.model import RETAINED_KINDS, VERSIONED

MIN_INTERVAL_MS: Final = 60_000
"""Segments of window and session stores are never shorter."""


def default_segment_interval(kind: str, retention_ms: int) -> int | None:
    """The segment interval that Streams chooses for a retention; None for a kind without segments of its own.

    ``max(retention / 2, 60000)`` for windows, sessions and joins (``Stores.persistentWindowStore``,
    ``RocksDbSessionBytesStoreSupplier``); by a table for versioned stores
    (``RocksDbVersionedKeyValueBytesStoreSupplier``).
    """
    if kind not in RETAINED_KINDS:
        return None
    if kind != VERSIONED:
        return max(retention_ms // 2, MIN_INTERVAL_MS)
    for longest, parts, least in ((60_000, 3, 2_000), (300_000, 5, 20_000), (3_600_000, 12, 60_000)):
        if retention_ms <= longest:
            return max(retention_ms // parts, least)
    return max(retention_ms // 24, 300_000)

"""The names of the column families that Kafka Streams and RocksDB create."""

from __future__ import annotations

from typing import Final

DEFAULT_CF: Final = "default"
"""Every RocksDB has it: plain values, and what was written before a store got its newest layout."""
TIMESTAMPED_CF: Final = "keyValueWithTimestamp"
"""``RocksDBTimestampedStore``."""
HEADERS_CF: Final = "keyValueWithTimestampAndHeaders"
"""``RocksDBTimestampedStoreWithHeaders`` (KIP-1271)."""
SESSION_HEADERS_CF: Final = "sessionKeyValueWithHeaders"
WINDOW_HEADERS_CF: Final = "windowKeyValueWithHeaders"
OFFSETS_CF: Final = "offsets"
"""Changelog offsets, Position and status of a store (KIP-1035); it never holds a row."""
STATISTICS_CF: Final = "___rocksdb_stats_history___"
"""RocksDB adds it with ``persist_stats_to_disk``, and opens it by itself (``kPersistentStatsColumnFamilyName``)."""


def of_no_store(family: str) -> str:
    """Return what to print of a column family that no store of Streams has: its name, and the option that adds it."""
    return f"{family} (of the option persist_stats_to_disk)" if family == STATISTICS_CF else family

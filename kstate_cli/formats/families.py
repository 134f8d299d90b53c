"""The names of the column families that Kafka Streams creates."""

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

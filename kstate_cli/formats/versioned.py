"""The row values of versioned stores (``RocksDBVersionedStore`` and its segment value format).

A store keeps the latest version of a key in one row and older versions in rows of logical segments, chosen by the time
until which a version was valid. Keys are :class:`kstate_cli.formats.keys.VersionedKey`. Times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import Reader, i32, i64
from kstate_cli.formats.keys import VersionedKey

_TOMBSTONE: Final = -1


@dataclass(frozen=True, slots=True)
class LatestValue:
    """``validFrom:i64 ‖ value``; the latest version is never a tombstone: a deleted key has no such row."""

    valid_from: int
    value: bytes

    @property
    def newest_time(self) -> int:
        """The newest time that the row tells of."""
        return self.valid_from

    def to_bytes(self) -> bytes:
        """Return ``validFrom:i64 ‖ value``."""
        return i64(self.valid_from) + self.value

    @classmethod
    def from_bytes(cls, data: bytes) -> LatestValue:
        """Read ``validFrom:i64 ‖ value``; :class:`~kstate_cli.formats.binary.MalformedBytesError` if shorter."""
        reader = Reader(data, "latest value")
        return cls(reader.i64("timestamp"), reader.rest())


@dataclass(frozen=True, slots=True)
class Version:
    """One version, valid from ``valid_from`` until the next one; ``value`` is ``None`` for a tombstone."""

    valid_from: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SegmentValue:
    """The versions of one key in one segment, newest first; the newest is valid until ``next_timestamp``.

    Bytes: ``next:i64 ‖ min:i64 ‖ (ts:i64 ‖ size:i32) per version, newest first ‖ values, oldest first``. ``min`` is
    the time of the oldest version and the only sign where the list ends; size -1 is a tombstone, 0 an empty value. A
    row whose ``next`` equals ``min`` is *degenerate*: one tombstone and nothing else.
    """

    next_timestamp: int
    versions: tuple[Version, ...]

    @property
    def newest_time(self) -> int:
        """The newest time that the row tells of."""
        return self.next_timestamp

    @property
    def min_timestamp(self) -> int:
        """Time of the oldest version."""
        return self.versions[-1].valid_from

    @property
    def is_degenerate(self) -> bool:
        """Whether the row is a lone tombstone that is followed by nothing."""
        return self.next_timestamp == self.min_timestamp

    def to_bytes(self) -> bytes:
        """Return the bytes of the row value.

        :class:`ValueError` if the versions are out of order, or if there are none.
        """
        problem = _problem(self.next_timestamp, self.versions)
        if problem is not None:
            raise ValueError(problem)
        out = bytearray(i64(self.next_timestamp) + i64(self.min_timestamp))
        for version in self.versions:
            size = _TOMBSTONE
            if version.value is not None:
                size = len(version.value)
            out += i64(version.valid_from) + i32(size)
        for version in reversed(self.versions):
            out += version.value or b""
        return bytes(out)

    @classmethod
    def from_bytes(cls, data: bytes) -> SegmentValue:
        """Read the bytes that :meth:`to_bytes` gives.

        Raises :class:`~kstate_cli.formats.binary.MalformedBytesError` for times that do not fall from newest to oldest,
        a list without a version from the minimum timestamp, sizes below -1, and sizes that do not add up to the rest of
        the row.
        """
        reader = Reader(data, "segment value")
        next_timestamp = reader.i64("next timestamp")
        min_timestamp = reader.i64("minimum timestamp")
        entries: list[tuple[int, int]] = []
        # The number of versions is not stored: the list ends at the version from the minimum timestamp.
        while not entries or entries[-1][0] > min_timestamp:
            timestamp = reader.i64("timestamp of version")
            size = reader.i32("size of version")
            if size < _TOMBSTONE:
                raise reader.fail(f"the size {size} of version {timestamp} is not valid")
            entries.append((timestamp, size))
        # The list went past the minimum: it is not sorted, or no version is from that time.
        if entries[-1][0] != min_timestamp:
            raise reader.fail(f"version {entries[-1][0]} is older than the minimum {min_timestamp}")
        # Unlike the list, values are stored oldest first, so that a new version is appended to them.
        values = [None if size == _TOMBSTONE else reader.take(size, "value") for _, size in reversed(entries)]
        reader.end()
        versions = tuple(
            Version(timestamp, value) for (timestamp, _), value in zip(entries, reversed(values), strict=True)
        )
        problem = _problem(next_timestamp, versions)
        if problem is not None:
            raise reader.fail(problem)
        return cls(next_timestamp, versions)


def oldest_of_any_order(data: bytes) -> int:
    """Return the minimum timestamp of a segment value whose versions may be out of order.

    After a restart Streams files a late record behind older ones. It reads the list until it meets the version from the
    minimum timestamp (``RocksDBVersionedStoreSegmentValueFormatter``).

    Raises :class:`~kstate_cli.formats.binary.MalformedBytesError` where no version is from that time, a size is below
    -1, or sizes do not add up to the rest of the row.
    """
    reader = Reader(data, "segment value")
    reader.i64("next timestamp")
    min_timestamp = reader.i64("minimum timestamp")
    sizes: list[int] = []
    timestamp = None
    # The list is read as Streams reads it: until a version is from the minimum, in whatever order the others are.
    while timestamp != min_timestamp:
        timestamp, size = reader.i64("timestamp of version"), reader.i32("size of version")
        if size < _TOMBSTONE:
            raise reader.fail(f"the size {size} of version {timestamp} is not valid")
        sizes.append(size)
    for size in sizes:
        reader.take(max(size, 0), "value")
    reader.end()
    return min_timestamp


def read_versions(at: VersionedKey, data: bytes) -> LatestValue | SegmentValue:
    """Return the value of the row ``at``. :class:`~kstate_cli.formats.binary.MalformedBytesError` for what is none."""
    if at.is_latest:
        return LatestValue.from_bytes(data)
    return SegmentValue.from_bytes(data)


def _problem(next_timestamp: int, versions: tuple[Version, ...]) -> str | None:
    """Return why these versions, the newest first, cannot be a segment value; None if they can."""
    if not versions:
        return "the segment value has no versions"
    # A lone tombstone may end when it begins: Streams writes such a row, and its first real version replaces it.
    if next_timestamp == versions[-1].valid_from:
        if len(versions) == 1 and versions[0].value is None:
            return None
        return "only a single tombstone may end when it begins"
    later = next_timestamp
    for version in versions:
        if version.valid_from >= later:
            return f"version {version.valid_from} does not come before {later}"
        later = version.valid_from
    return None

"""Find the last record of each key of a slice, in bounded memory.

Most changelogs have keys of one length that differ in few bits. Such keys become numbers, and sorting the numbers finds
the last record of each key and the order of the rows at once (:mod:`~kstate_cli.restore.sorting.numbered_keys`). All
other keys go to buckets by a checksum: small hash tables are faster, and a hash table that grows takes twice its
memory. Either way, the keys so far are deduplicated with those that came since, as often as memory requires.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.restore.sorting.convert import Winners, buffers, gather, sort_order
from kstate_cli.restore.sorting.memory import (
    BUCKET_KEY_COPIES,
    BUCKET_KEYS,
    CONVERTED_SHARE,
    KEY_ARRAY_BYTES,
    KEY_OFFSET_BYTES,
    MOST_BUCKETS,
    MOST_WINDOWS,
    PART_SHARE,
    WAITING_SHARE,
)
from kstate_cli.restore.sorting.numbered_keys import NumberedKeys

if TYPE_CHECKING:
    import numpy.typing as npt

    from kstate_cli.restore.sorting.convert import Ints


def numbered(
    keys: pa.BinaryArray, first: int, lowest: bytes = b"", bound: bytes | None = None
) -> tuple[pa.BinaryArray, Ints]:
    """Return the keys from ``lowest`` up to ``bound`` (exclusive), and their record numbers from ``first`` on.

    Records without a key have a number, and are skipped.
    """
    return _within(keys, np.arange(first, first + len(keys), dtype=np.int64), lowest, bound)


def _within(keys: pa.BinaryArray, numbers: Ints, lowest: bytes, bound: bytes | None) -> tuple[pa.BinaryArray, Ints]:
    """Return the keys from ``lowest`` on and below ``bound`` that are not null, and their numbers."""
    # In the usual case all keys fit and none is null, so nothing is copied.
    if not keys.null_count and not lowest and bound is None:
        return keys, numbers
    mask = keys.is_valid()
    if lowest:
        mask = pc.and_(mask, pc.greater_equal(keys, pa.scalar(lowest, pa.binary())))
    if bound is not None:
        mask = pc.and_(mask, pc.less(keys, pa.scalar(bound, pa.binary())))
    # Comparing a null key gives null, which counts as false: Streams skips records without a key
    # (StoreChangelogReader).
    mask = mask.fill_null(False)
    return keys.filter(mask), numbers[mask.to_numpy(zero_copy_only=False)]


class LastOfEachKey:
    """Takes keys of a slice in the order of its records, and finds the winners."""

    def __init__(self, records: int, memory: int, row_bytes: int = 32, *, in_parts: bool = False) -> None:
        """Take ``memory`` in bytes.

        ``row_bytes`` is the memory that a row takes, beside its key, until its value is read.

        ``in_parts`` says that the keys are read part by part in the end, unless they are :attr:`whole`.
        """
        # The number of buckets is a power of two, so that the low bits of a key's checksum name its bucket.
        buckets = 1
        while buckets < MOST_BUCKETS and buckets * BUCKET_KEYS < records:
            buckets *= 2
        self._memory, self._row_bytes, self._in_parts = memory, row_bytes, in_parts
        self._buckets = buckets
        self._keys: NumberedKeys | BucketsOfKeys = NumberedKeys(records)
        self._used = 0
        self._full = False
        self._bound: bytes | None = None

    @property
    def bound(self) -> bytes | None:
        """The lowest key that was cut away, None where none was: neither it nor a higher one is to be added."""
        return self._bound

    @property
    def full(self) -> bool:
        """Return True if the keys, with their rows, take all memory: no more keys may be added."""
        return self._full

    @property
    def whole(self) -> bool:
        """Return True if all winners fit at once. Ask once all keys are added."""
        self._settle()
        # One array of keys needs both: memory, and offsets of 32 bits.
        return self._keys.bytes_of_rows(self._row_bytes) < self._memory and self._keys.size()[1] < KEY_ARRAY_BYTES

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> None:
        """Add keys, none of them null, and their record numbers: of one key the later record has the higher number."""
        if not len(keys):
            return
        # Keys were numbers until now, and these cannot be. All keys so far move to buckets.
        if not self._keys.add(keys, numbers):
            self._deal_out()
            # Moving may have dropped the highest keys. Those of this batch that belong to them must not come back.
            self._keys.add(*_within(keys, numbers, b"", self._bound))
        # Waiting keys are not measured yet. The keys can only be full here because their numbers have changed form, or
        # moved.
        was_full = self._full
        self._measure()
        if self._in_parts and self._full and not was_full:
            # The new form takes more memory: the highest keys are dropped before they are used.
            self._keep(self._fitting(CONVERTED_SHARE))
        # Merging the waiting keys takes as much memory again. They may take half of what the other keys take, but no
        # more than half of the free memory; and at least an eighth of all, since otherwise each batch would be merged
        # while there are few keys.
        most = max(self._memory // WAITING_SHARE, min(self._used, self._memory - self._used_bytes) // 2)
        if self._keys.waiting_bytes * self._keys.growth > min(most, KEY_ARRAY_BYTES // 2):
            self._settle()

    def cut(self, part: float) -> bytes | None:
        """Keep the lowest keys, so large a part of those that fit; return the lowest of the others.

        Returns None if no others remain.
        """
        self._settle()
        return self._keep(self._fitting(part))

    def _fitting(self, part: float) -> int:
        """Return the number of keys that is so large a part of all keys, or of as many as fit."""
        rows, size = self._keys.size()
        # Keys beyond the memory do not count: the part is one of those that fit.
        fitting = min(1.0, self._memory / max(self._used, 1))
        if self._as_one_array:
            fitting = min(fitting, KEY_ARRAY_BYTES / max(size, 1))
        return int(rows * part * fitting)

    def _keep(self, count: int) -> bytes | None:
        """Keep so many of the lowest keys, one at least."""
        # A range without a key would be read for ever.
        count = max(1, count)
        if count >= self._keys.size()[0]:
            return None
        self._bound = self._keys.cut(count)
        self._measure()
        return self._bound

    def finish(self) -> Winners:
        """Return the winners of all keys. Call it once."""
        self._settle()
        winners = self._keys.winners()
        # The values are next, and their model counts all but the order of rows as free.
        self._give_back()
        return winners

    def windows_together(self, rows: int) -> int:
        """Return how many windows of so many rows are read together. Ask once all keys are added."""
        self._settle()
        keys, size = self._keys.size()
        of_window = rows * size // max(keys, 1)
        return max(1, min(MOST_WINDOWS, self._memory // PART_SHARE // max(of_window, 1)))

    def parts(self, rows: int) -> Iterator[Winners]:
        """Yield the winners of all keys, so many rows at a time, in order. Call it once."""
        self._settle()
        yield from self._keys.parts(rows)
        self._give_back()

    def _give_back(self) -> None:
        """Give the memory of hash tables back to the system: the values need it."""
        # Arrow's pools keep freed memory for later. Without this, hash tables and values would add up to more than M.
        pa.default_memory_pool().release_unused()

    def _deal_out(self) -> None:
        """Move all keys to buckets, because some are no numbers, or not together with the others."""
        numbers = self._keys
        # Only numbers can refuse a key, since buckets take every one.
        assert isinstance(numbers, NumberedKeys)
        numbers.settle()
        rows, size = numbers.size()
        each = max(size // max(rows, 1), 1)
        if self._in_parts:
            # Keys that are read in parts get more copies in buckets, so fewer of them fit. Others were counted with the
            # copy.
            fitting = int(self._memory * CONVERTED_SHARE) // row_held(each, self._row_bytes)
            self._keep(min(fitting, KEY_ARRAY_BYTES // each))
        dealt = BucketsOfKeys(self._buckets)
        # The keys move part by part, so that numbers, keys and hash tables exist at once only for one part.
        for some in numbers.parts(max(1, self._memory // PART_SHARE // each)):
            dealt.add(some.keys, some.record)
        self._keys = dealt
        # The last reference to the numbers goes here, so that they do not take memory during the merge.
        del numbers
        self._settle()

    def _settle(self) -> None:
        self._keys.settle()
        self._measure()

    def _measure(self) -> None:
        keys = self._keys
        if self._in_parts:
            self._used = keys.bytes_in_parts(self._row_bytes)
        else:
            self._used = keys.bytes_of_rows(self._row_bytes)
        self._full = self._used >= self._memory or (self._as_one_array and keys.size()[1] >= KEY_ARRAY_BYTES)

    @property
    def _used_bytes(self) -> int:
        """The present memory of the keys: numbers that are read part by part will take twice as much."""
        if not self._in_parts or not isinstance(self._keys, NumberedKeys):
            return self._used
        distinct_bytes = self._keys.distinct_bytes
        if distinct_bytes is None:
            return self._used
        return distinct_bytes

    @property
    def _as_one_array(self) -> bool:
        """Numbers become keys part by part; all others, or those of a caller who takes all at once, in one array."""
        return not self._in_parts or isinstance(self._keys, BucketsOfKeys)


@dataclass(slots=True)
class _Bucket:
    keys: pa.BinaryArray
    record: Ints
    waiting: list[tuple[pa.BinaryArray, Ints]] = field(default_factory=list)


class BucketsOfKeys:
    """Takes keys of any kind."""

    growth = 1
    """Waiting keys are deduplicated bucket by bucket, so their memory does not grow."""

    def __init__(self, buckets: int) -> None:
        self._buckets = _empty(buckets)
        self._size = 0, 0
        self.waiting_bytes = 0

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """Divide the keys among the buckets."""
        self.waiting_bytes += keys.nbytes + numbers.nbytes
        if len(self._buckets) == 1:
            self._buckets[0].waiting.append((keys, numbers))
            return True
        # The checksum is over all bytes, not the first or the last: keys of a changelog share prefixes, and windows
        # suffixes.
        checksums = _checksums(keys) & (len(self._buckets) - 1)
        # A stable sort keeps the records of one key in their order, which :meth:`_deduplicate` depends on.
        order = np.argsort(checksums, kind="stable")
        dealt, numbers = gather(keys, order), numbers[order]
        ends = np.cumsum(np.bincount(checksums, minlength=len(self._buckets))).tolist()
        # Each bucket gets a slice of one gathered array: filtering for each bucket would read all keys as often.
        for bucket, begin, end in zip(self._buckets, [0, *ends], ends, strict=False):
            if end > begin:
                bucket.waiting.append((dealt.slice(begin, end - begin), numbers[begin:end]))
        return True

    def settle(self) -> None:
        """Deduplicate the keys that wait."""
        for bucket in self._buckets:
            if bucket.waiting:
                self._deduplicate(bucket)
        self.waiting_bytes = 0
        self._size = (
            sum(len(bucket.keys) for bucket in self._buckets),
            sum(bucket.keys.nbytes for bucket in self._buckets),
        )

    def size(self) -> tuple[int, int]:
        """Return the number of keys, and their bytes."""
        return self._size

    def bytes_of_rows(self, row_bytes: int) -> int:
        """Return the memory of rows; ``row_bytes`` does not include the key."""
        rows, size = self.size()
        return rows * row_bytes + size * BUCKET_KEY_COPIES

    def bytes_in_parts(self, row_bytes: int) -> int:
        """Return the same: all keys are sorted at once."""
        return self.bytes_of_rows(row_bytes)

    def cut(self, count: int) -> bytes:
        """Keep the ``count`` lowest keys; return the lowest of the others."""
        # Keys that wait may be among the lowest, so they are merged first.
        self.settle()
        buckets, winners = len(self._buckets), self.winners()
        bound: bytes = winners.keys[count].as_py()
        self._buckets = _empty(buckets)
        self.add(winners.keys.slice(0, count), winners.record[:count])
        # Only the slice stays: the rest is released before the merge copies the keys.
        del winners
        self.settle()
        return bound

    def parts(self, rows: int) -> Iterator[Winners]:
        """Yield the winners, so many rows at a time. Call it once."""
        winners = self.winners()
        for first in range(0, len(winners.keys), rows):
            yield Winners(winners.keys.slice(first, rows), winners.record[first : first + rows])

    def winners(self) -> Winners:
        """Return all winners. Call it once."""
        # Each key is in one bucket only, so the union needs no further deduplication.
        keys = pa.concat_arrays([bucket.keys for bucket in self._buckets])
        record = np.concatenate([bucket.record for bucket in self._buckets])
        # The buckets are copied into one array: sorting needs their memory.
        self._buckets = []
        order = sort_order(keys)
        return Winners(gather(keys, order), record[order])

    def _deduplicate(self, bucket: _Bucket) -> None:
        """Merge the keys of a bucket that wait with the others, and keep the last record of each key."""
        earlier = len(bucket.keys)
        numbers = np.concatenate([numbers for _, numbers in bucket.waiting])
        # The earlier keys come first, because the dictionary numbers keys in the order of their first appearance.
        together = pa.concat_arrays([bucket.keys, *(keys for keys, _ in bucket.waiting)])
        bucket.waiting = []
        coded = together.dictionary_encode()
        # The dictionary has a copy of each distinct key, so the joined array is not needed any more.
        del together
        # The earlier keys came first, each once, so their numbers have not changed.
        local = coded.indices.to_numpy(zero_copy_only=False)[earlier:]
        record = np.empty(len(coded.dictionary), dtype=np.int64)
        record[:earlier] = bucket.record
        # If a key occurs again, the last assignment stays, which is the rule of a changelog.
        record[local] = numbers
        bucket.keys, bucket.record = coded.dictionary, record


def row_held(key_bytes: int, row_bytes: int) -> int:
    """Return the memory of a row whose key has so many bytes."""
    return row_bytes + (key_bytes + KEY_OFFSET_BYTES) * BUCKET_KEY_COPIES


def _empty(buckets: int) -> list[_Bucket]:
    return [_Bucket(pa.array([], pa.binary()), np.empty(0, dtype=np.int64)) for _ in range(buckets)]


def _checksums(keys: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """Return the sum of each key's bytes, modulo 256."""
    offsets, data = buffers(keys)
    sums = np.zeros(len(keys), dtype=np.uint8)
    # An empty range would be given the byte that it begins at.
    some = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(some):
        # The addition wraps modulo 256, which is all that a bucket needs.
        sums[some] = np.add.reduceat(data[: offsets[-1]], offsets[:-1][some], dtype=np.uint8)
    return sums

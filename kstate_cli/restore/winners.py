"""Which record of a changelog is the last of its key, in bounded memory.

Most changelogs have keys of one length that differ in few bits. Those are numbers, and sorting numbers finds the last
record of each and the order of the rows at once. Other keys are dealt out to buckets by a checksum, so that no hash
table is large: small ones are faster, and growing one doubles it. In both ways what is known already is deduplicated
again with what came since, as often as memory asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstate_cli.byte_tables import binary_of, fixed_table
from kstate_cli.restore.convert import (
    buffers,
    from_word,
    low_bits,
    sort_order,
    taken,
    words,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_BUCKET_RECORDS = 1_000_000
_MOST_BUCKETS = 64
_WAITING_PART = 8
"""Keys wait until they take so small a part of a task's memory, or as much as those that are known."""
_KEY_COPIES = 2
_KEY_BYTES = 1 << 30
"""Half of what one array of pyarrow can hold."""
_WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class Winners:
    """The last record of each key that was added."""

    keys: pa.BinaryArray
    """Distinct changelog keys, sorted as RocksDB does."""
    record: Ints
    """For each key the number of its last record, counted over the slice's records."""


@dataclass(slots=True)
class _Bucket:
    keys: pa.BinaryArray
    record: Ints
    waiting: list[tuple[pa.BinaryArray, Ints]] = field(default_factory=list)


def numbered(
    keys: pa.BinaryArray, first: int, lowest: bytes = b"", bound: bytes | None = None
) -> tuple[pa.BinaryArray, Ints]:
    """Of records numbered from ``first`` on the keys from ``lowest`` up to ``bound`` (exclusive), and their numbers.

    Records without a key have a number, and are left out.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = np.arange(first, first + len(keys), dtype=np.int64)
    if not keys.null_count and not lowest and bound is None:
        return keys, numbers
    wanted = keys.is_valid()
    if lowest:
        wanted = pc.and_(wanted, pc.greater_equal(keys, pa.scalar(lowest, pa.binary())))
    if bound is not None:
        wanted = pc.and_(wanted, pc.less(keys, pa.scalar(bound, pa.binary())))
    wanted = wanted.fill_null(False)
    return keys.filter(wanted), numbers[wanted.to_numpy(zero_copy_only=False)]


class LastOfEachKey:
    """Takes keys of a slice in the order of its records, and tells the winners. ``memory`` in bytes."""

    def __init__(self, records: int, memory: int, row_bytes: int = 32) -> None:
        """``row_bytes``: what a row takes beside its key until its value is read."""
        buckets = 1
        while buckets < _MOST_BUCKETS and buckets * _BUCKET_RECORDS < records:
            buckets *= 2
        self._memory = memory
        self._row_bytes = row_bytes
        self._buckets = buckets
        self._known: _Numbers | _Buckets = _Numbers()
        self._waiting = 0
        self._held = 0
        self._full = False

    @property
    def full(self) -> bool:
        """Whether what is known, and what is made of it, takes all memory: no more keys are to be added."""
        return self._full

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> None:
        """Keys of the next records, none of them null, and the numbers of these records, which rise."""
        if not len(keys):
            return
        if not self._known.add(keys, numbers):
            self._deal_out()
            self._known.add(keys, numbers)
        self._waiting += keys.nbytes + numbers.nbytes
        # What waits takes as much again once it is known.
        most = max(self._memory // _WAITING_PART, min(self._held, self._memory - self._held) // 2)
        if self._waiting > min(most, _KEY_BYTES // 2):
            self._settle()

    def finish(self) -> Winners:
        """The winners of all that was added. Call it once."""
        import pyarrow as pa

        self._settle()
        winners = self._known.winners()
        # What hash tables took is wanted for the values.
        pa.default_memory_pool().release_unused()
        return winners

    def _deal_out(self) -> None:
        """There are keys that are no numbers."""
        dealt = _Buckets(self._buckets)
        assert isinstance(self._known, _Numbers)
        for keys, numbers in self._known.parts():
            dealt.add(keys, numbers)
        self._known = dealt

    def _settle(self) -> None:
        if not self._known.settle():
            self._deal_out()
            self._known.settle()
        rows, size = self._known.size()
        self._held = rows * self._row_bytes + size * _KEY_COPIES
        self._full = self._held >= self._memory or size >= _KEY_BYTES
        self._waiting = 0


class _Numbers:
    """Keys of one length, as long as one number of 64 bits tells them apart."""

    def __init__(self) -> None:
        self._table: npt.NDArray[np.uint8] | None = None
        self._record: Ints | None = None
        self._waiting: list[tuple[npt.NDArray[np.uint8], Ints]] = []

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """False for keys that are of several lengths, or of another one: nothing has changed then."""
        table = fixed_table(keys)
        before = self._table if self._table is not None else self._waiting[0][0] if self._waiting else table
        if table is None or before is None or table.shape[1] != before.shape[1]:
            return False
        self._waiting.append((table, numbers))
        return True

    def settle(self) -> bool:
        """False where the keys differ in more bits than a number has: nothing has changed then."""
        import numpy as np

        if not self._waiting:
            return True
        tables = [table for table, _ in self._waiting]
        numbers = [numbers for _, numbers in self._waiting]
        if self._table is not None and self._record is not None:
            tables.insert(0, self._table)
            numbers.insert(0, self._record)
        table = np.concatenate(tables)
        low = low_bits(table)
        bits = int(low.sum())
        if bits > _WORD_BITS:
            return False
        like = table[0].copy()
        (word,) = words(table, low)
        self._table = None
        self._waiting.clear()
        tables.clear()
        del table
        record = np.concatenate(numbers)
        numbers.clear()
        word, self._record = _last_of_each(word, record, bits)
        self._table = from_word(word, low, like)
        return True

    def parts(self) -> list[tuple[pa.BinaryArray, Ints]]:
        """All keys, and their records, in the order in which they came."""
        before = [] if self._table is None or self._record is None else [(self._table, self._record)]
        return [(binary_of(table), numbers) for table, numbers in [*before, *self._waiting]]

    def size(self) -> tuple[int, int]:
        """Keys, and their bytes."""
        return (0, 0) if self._table is None else (len(self._table), self._table.nbytes)

    def winners(self) -> Winners:
        """What is known."""
        import numpy as np
        import pyarrow as pa

        if self._table is None or self._record is None:
            return Winners(pa.array([], pa.binary()), np.empty(0, dtype=np.int64))
        return Winners(binary_of(self._table), self._record)


def _last_of_each(word: npt.NDArray[np.uint64], record: Ints, bits: int) -> tuple[npt.NDArray[np.uint64], Ints]:
    """The distinct numbers of ``bits`` bits, sorted, and the highest record of each."""
    import numpy as np

    shift = int(record.max()).bit_length()
    if bits + shift <= _WORD_BITS:
        # Number and record in one: sorting is faster than finding an order.
        word <<= np.uint64(shift)
        word |= record.view(np.uint64)
        word.sort()
        record = (word & np.uint64((1 << shift) - 1)).view(np.int64)
        word >>= np.uint64(shift)
        last = np.append(word[1:] != word[:-1], np.True_)
        return word[last], record[last]
    order = np.argsort(word)
    word = word[order]
    first = np.flatnonzero(np.append(np.True_, word[1:] != word[:-1]))
    return word[first], np.maximum.reduceat(record[order], first)


class _Buckets:
    """Keys of any kind."""

    def __init__(self, buckets: int) -> None:
        import numpy as np
        import pyarrow as pa

        self._buckets = [_Bucket(pa.array([], pa.binary()), np.empty(0, dtype=np.int64)) for _ in range(buckets)]

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """Deals them out."""
        import numpy as np

        if len(self._buckets) == 1:
            self._buckets[0].waiting.append((keys, numbers))
            return True
        checksums = _checksums(keys) & (len(self._buckets) - 1)
        order = np.argsort(checksums, kind="stable")
        dealt, numbers = taken(keys, order), numbers[order]
        ends = np.cumsum(np.bincount(checksums, minlength=len(self._buckets))).tolist()
        for bucket, begin, end in zip(self._buckets, [0, *ends], ends, strict=False):
            if end > begin:
                bucket.waiting.append((dealt.slice(begin, end - begin), numbers[begin:end]))
        return True

    def settle(self) -> bool:
        """Deduplicates what waits."""
        for bucket in self._buckets:
            if bucket.waiting:
                self._deduplicate(bucket)
        return True

    def size(self) -> tuple[int, int]:
        """Keys, and their bytes."""
        return sum(len(one.keys) for one in self._buckets), sum(one.keys.nbytes for one in self._buckets)

    def winners(self) -> Winners:
        """What is known. Call it once."""
        import numpy as np
        import pyarrow as pa

        keys = pa.concat_arrays([bucket.keys for bucket in self._buckets])
        record = np.concatenate([bucket.record for bucket in self._buckets])
        self._buckets = []
        order = sort_order(keys)
        return Winners(taken(keys, order), record[order])

    def _deduplicate(self, bucket: _Bucket) -> None:
        import numpy as np
        import pyarrow as pa

        known = len(bucket.keys)
        numbers = np.concatenate([numbers for _, numbers in bucket.waiting])
        together = pa.concat_arrays([bucket.keys, *(keys for keys, _ in bucket.waiting)])
        bucket.waiting = []
        coded = together.dictionary_encode()
        del together
        # Known keys come first, each once: they keep their codes.
        local = coded.indices.to_numpy(zero_copy_only=False)[known:]
        record = np.empty(len(coded.dictionary), dtype=np.int64)
        record[:known] = bucket.record
        # Where a code repeats, the last assignment stays: exactly the rule of a changelog.
        record[local] = numbers
        bucket.keys, bucket.record = coded.dictionary, record


def _checksums(keys: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The sum of each key's bytes, modulo 256."""
    import numpy as np

    offsets, data = buffers(keys)
    sums = np.zeros(len(keys), dtype=np.uint8)
    # An empty range would be given the byte that it begins at.
    some = np.flatnonzero(offsets[1:] > offsets[:-1])
    if len(some):
        sums[some] = np.add.reduceat(data[: offsets[-1]], offsets[:-1][some], dtype=np.uint8)
    return sums

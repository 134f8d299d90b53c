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
from kstate_cli.restore.convert import buffers, sort_order, taken
from kstate_cli.restore.key_numbers import WORD_BITS, count_of, differing_bits, keys_of, words

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_BUCKET_RECORDS = 1_000_000
_MOST_BUCKETS = 64
_WAITING_PART = 8
"""Keys wait until they take so small a part of a task's memory, or as much as those that are known."""
_KEY_BYTES = 1 << 30
"""Half of what one array of pyarrow can hold."""


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
        self._known: _Numbers | _Buckets = _Numbers(records)
        self._held = 0
        self._full = False

    @property
    def full(self) -> bool:
        """Whether what is known, and what is made of it, takes all memory: no more keys are to be added."""
        return self._full

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> None:
        """Keys, none of them null, and the numbers of their records: of one key the later one has the higher number."""
        if not len(keys):
            return
        if not self._known.add(keys, numbers):
            self._deal_out()
            self._known.add(keys, numbers)
        # What waits takes as much again once it is known.
        most = max(self._memory // _WAITING_PART, min(self._held, self._memory - self._held) // 2)
        if self._known.waiting_bytes * self._known.growth > min(most, _KEY_BYTES // 2):
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
        """Some keys are no numbers, or not together with the others."""
        dealt = _Buckets(self._buckets)
        assert isinstance(self._known, _Numbers)
        for keys, numbers in self._known.parts():
            dealt.add(keys, numbers)
        self._known = dealt

    def _settle(self) -> None:
        self._known.settle()
        rows, size = self._known.size()
        self._held = rows * self._row_bytes + size * self._known.key_copies
        self._full = self._held >= self._memory or size >= _KEY_BYTES


class _Numbers:
    """Keys of one length, as long as one number of 64 bits tells them apart.

    Where the number of the record fits into the same 64 bits it is there: sorting that is faster than finding an order,
    and nothing else is held of a key.
    """

    key_copies = 1
    growth = 2
    """A number that waits is small beside the row that it may become."""

    def __init__(self, records: int) -> None:
        """``records``: about how many there will be."""
        import numpy as np

        self._like: npt.NDArray[np.uint8] | None = None
        """A key, whose other bits are those of all."""
        self._bits = np.empty(0, dtype=np.uint8)
        """Of each byte those that tell keys apart."""
        self._shift = records.bit_length()
        self._known = self._none()
        self._waiting: list[_Some] = []
        self.waiting_bytes = 0

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """False for keys of several lengths, of another one, or of too many bits: nothing has changed then."""
        import numpy as np

        table = fixed_table(keys)
        if table is None or (self._like is not None and len(self._like) != table.shape[1]):
            return False
        like = table[0].copy() if self._like is None else self._like
        before = self._bits if self._like is not None else np.zeros(len(like), dtype=np.uint8)
        bits = before | differing_bits(table) | (like ^ table[0])
        shift = max(self._shift, int(numbers.max()).bit_length())
        if count_of(bits) > WORD_BITS:
            return False
        if self._like is None:
            self._like, self._bits, self._shift = like, bits, shift
            self._known = self._none()
        elif shift != self._shift or bool((bits != before).any()):
            self._recode(bits, shift)
        some = self._coded(table, numbers)
        self._waiting.append(some)
        self.waiting_bytes += some.nbytes
        return True

    def settle(self) -> None:
        """Deduplicates what waits."""
        import numpy as np

        if not self._waiting:
            return
        words = np.concatenate([self._known.word, *(some.word for some in self._waiting)])
        records = None
        if self._known.record is not None:
            records = np.concatenate([self._known.record, *(_of(some) for some in self._waiting)])
        self._waiting.clear()
        self.waiting_bytes = 0
        self._known = self._none()
        self._known = _last_of_each(words, records, self._shift)

    def parts(self) -> list[tuple[pa.BinaryArray, Ints]]:
        """All keys, and their records, in the order in which they came."""
        self.settle()
        keys, record = self._told()
        return [(keys, record)] if len(keys) else []

    def size(self) -> tuple[int, int]:
        """Keys, and their bytes."""
        rows = len(self._known.word)
        return rows, rows * (0 if self._like is None else len(self._like))

    def winners(self) -> Winners:
        """What is known. Call it once."""
        return Winners(*self._told())

    def _told(self) -> tuple[pa.BinaryArray, Ints]:
        import numpy as np
        import pyarrow as pa

        known, self._known = self._known, self._none()
        if self._like is None or not len(known.word):
            return pa.array([], pa.binary()), np.empty(0, dtype=np.int64)
        word, record = known.parted(self._shift)
        del known
        return binary_of(keys_of(word, self._bits, self._like)), record

    def _none(self) -> _Some:
        import numpy as np

        nothing = np.empty(0, dtype=np.int64)
        return _Some(nothing.view(np.uint64), None if self._together else nothing)

    @property
    def _together(self) -> bool:
        return count_of(self._bits) + self._shift <= WORD_BITS

    def _coded(self, table: npt.NDArray[np.uint8], numbers: Ints) -> _Some:
        import numpy as np

        (word,) = words(table, self._bits)
        if not self._together:
            return _Some(word, numbers)
        word <<= np.uint64(self._shift)
        word |= numbers.view(np.uint64)
        return _Some(word, None)

    def _recode(self, bits: npt.NDArray[np.uint8], shift: int) -> None:
        """More bits tell keys, or records, apart than were thought of."""
        self.settle()
        assert self._like is not None
        word, record = self._known.parted(self._shift)
        table = keys_of(word, self._bits, self._like)
        self._bits, self._shift = bits, shift
        self._known = self._coded(table, record) if len(table) else self._none()


@dataclass(frozen=True, slots=True)
class _Some:
    """Keys as numbers, and the numbers of their records."""

    word: npt.NDArray[np.uint64]
    record: Ints | None
    """None where ``word`` has it in its low bits."""

    @property
    def nbytes(self) -> int:
        return self.word.nbytes + (0 if self.record is None else self.record.nbytes)

    def parted(self, shift: int) -> tuple[npt.NDArray[np.uint64], Ints]:
        """Keys and records each."""
        import numpy as np

        if self.record is not None:
            return self.word, self.record
        record = (self.word & np.uint64((1 << shift) - 1)).view(np.int64)
        return self.word >> np.uint64(shift), record


def _of(some: _Some) -> Ints:
    assert some.record is not None
    return some.record


def _last_of_each(word: npt.NDArray[np.uint64], record: Ints | None, shift: int) -> _Some:
    """The distinct keys, sorted, and the highest record of each."""
    import numpy as np

    if record is None:
        word.sort()
        key = word >> np.uint64(shift)
        return _Some(word[np.append(key[1:] != key[:-1], np.True_)], None)
    order = np.argsort(word)
    word = word[order]
    first = np.flatnonzero(np.append(np.True_, word[1:] != word[:-1]))
    return _Some(word[first], np.maximum.reduceat(record[order], first))


class _Buckets:
    """Keys of any kind."""

    key_copies = 2
    growth = 1

    def __init__(self, buckets: int) -> None:
        import numpy as np
        import pyarrow as pa

        self._buckets = [_Bucket(pa.array([], pa.binary()), np.empty(0, dtype=np.int64)) for _ in range(buckets)]
        self.waiting_bytes = 0

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """Deals them out."""
        import numpy as np

        self.waiting_bytes += keys.nbytes + numbers.nbytes
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

    def settle(self) -> None:
        """Deduplicates what waits."""
        for bucket in self._buckets:
            if bucket.waiting:
                self._deduplicate(bucket)
        self.waiting_bytes = 0

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

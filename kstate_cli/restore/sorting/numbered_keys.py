"""Find the last record of each key, if keys are numbers: keys of one length that differ in at most 64 bits.

If the number of the record fits into the same 64 bits, it is stored there: sorting these is faster than finding an
order, and a key takes no other memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kstate_cli.formats.binary import binary_of, fixed_table
from kstate_cli.restore.sorting.convert import WORD_BITS, Winners, count_of, differing_bits, keys_of, words
from kstate_cli.restore.sorting.memory import NUMBERED_ROW_BYTES, RECODE_BYTES, RECODE_ROWS

if TYPE_CHECKING:
    import numpy.typing as npt

    from kstate_cli.restore.sorting.convert import Ints


@dataclass(frozen=True, slots=True)
class _NumberSet:
    """Keys as numbers, and the numbers of their records."""

    word: npt.NDArray[np.uint64]
    record: Ints | None
    """None where ``word`` has it in its low bits."""

    @property
    def nbytes(self) -> int:
        if self.record is None:
            return self.word.nbytes
        return self.word.nbytes + self.record.nbytes

    def between(self, first: int, last: int) -> _NumberSet:
        """Return a copy of some numbers."""
        # Copies, never views: the arrays of the distinct keys are resized in place, which numpy refuses, or a view
        # would not survive.
        if self.record is None:
            return _NumberSet(self.word[first:last].copy(), None)
        return _NumberSet(self.word[first:last].copy(), self.record[first:last].copy())

    def where(self, mask: npt.NDArray[np.bool_]) -> _NumberSet:
        """Return a copy of the numbers that ``mask`` has."""
        if self.record is None:
            return _NumberSet(self.word[mask], None)
        return _NumberSet(self.word[mask], self.record[mask])

    def parted(self, shift: int) -> tuple[npt.NDArray[np.uint64], Ints]:
        """Return keys and records apart."""
        if self.record is not None:
            return self.word, self.record
        # The low bits: record numbers stay below 2^63, so that the same bytes are an int64 without a copy.
        record = (self.word & np.uint64((1 << shift) - 1)).view(np.int64)
        return self.word >> np.uint64(shift), record


class NumberedKeys:
    """Takes keys as long as they are such numbers."""

    growth = 2
    """A waiting number exists twice while it is settled: behind the distinct ones, and for the merge."""

    def __init__(self, records: int) -> None:
        """Take about ``records`` keys."""
        self._like: npt.NDArray[np.uint8] | None = None
        """A key, whose other bits are those of all."""
        self._bits = np.empty(0, dtype=np.uint8)
        """For each byte the bits in which keys differ."""
        # The bits that a record number takes, by the footers of the dump. If a slice has more records than they state,
        # ``add`` makes room for one more bit.
        self._shift = records.bit_length()
        self._distinct = self._none()
        """Distinct and sorted. No view of it is given away: it grows and shrinks where it is."""
        self._waiting: list[_NumberSet] = []
        self.waiting_bytes = 0

    def add(self, keys: pa.BinaryArray, numbers: Ints) -> bool:
        """Add keys and the numbers of their records.

        Return False, and change nothing, for keys that do not fit together.

        These are keys of several lengths, of another length than before, or that differ in too many bits.
        """
        table = fixed_table(keys)
        if table is None or (self._like is not None and len(self._like) != table.shape[1]):
            return False
        if self._like is None:
            # The key is copied: a view would keep the whole first batch in memory.
            like = table[0].copy()
            before = np.zeros(len(like), dtype=np.uint8)
        else:
            like, before = self._like, self._bits
        # The keys of this batch may also differ from those of earlier batches, in a byte that is the same in all of
        # them.
        bits = before | differing_bits(table) | (like ^ table[0])
        shift = max(self._shift, int(numbers.max()).bit_length())
        # Nothing has changed yet, so the caller can move all keys, with this batch, to buckets.
        if count_of(bits) > WORD_BITS:
            return False
        # These are the first keys, so there are no numbers yet that would have to be made again.
        if self._like is None:
            self._like, self._bits, self._shift = like, bits, shift
            self._distinct = self._none()
        elif shift != self._shift or bool((bits != before).any()):
            self._recode(bits, shift)
        some = self._coded(table, numbers)
        self._waiting.append(some)
        self.waiting_bytes += some.nbytes
        return True

    def settle(self) -> None:
        """Merge the keys that wait with the others, and keep the last record of each key."""
        if not self._waiting:
            return
        if self._together:
            # The array is extended in place: a second one of all keys would double their memory.
            earlier = len(self._distinct.word)
            _put_behind(self._distinct.word, [some.word for some in self._waiting])
            self._waiting.clear()
            # Only the new keys are sorted: the earlier ones are in order, and :func:`_keep_last` merges both.
            self._distinct.word[earlier:].sort()
            _keep_last(self._distinct.word, self._shift)
        else:
            self._settle_apart()
        self.waiting_bytes = 0

    def _settle_apart(self) -> None:
        """Do as :meth:`settle` for keys whose record does not fit into the 64 bits of the key."""
        word = np.concatenate([some.word for some in self._waiting])
        record = np.concatenate([_of(some) for some in self._waiting])
        self._waiting.clear()
        order = np.argsort(word)
        word = np.concatenate((self._distinct.word, word[order]))
        record = np.concatenate((_of(self._distinct), record[order]))
        # The old arrays are released before the sort, which needs a copy of everything.
        self._distinct = self._none()
        order = np.argsort(word, kind="stable")  # only merges, as in _keep_last
        word = word[order]
        first = np.flatnonzero(np.append(np.True_, word[1:] != word[:-1]))
        # The highest record is the last one of a key: numbers rise with offsets.
        self._distinct = _NumberSet(word[first], np.maximum.reduceat(record[order], first))

    def cut(self, count: int) -> bytes:
        """Keep the ``count`` lowest keys; drop all above, and return the lowest of those."""
        first = self._distinct.between(count, count + 1)
        (number,), _ = first.parted(self._shift)
        # The key is made before the arrays are cut, since its number is then gone.
        (bound,) = self._winners_of(first).keys.to_pylist()
        # refcheck=False, because numpy counts the attribute as a reference. No view of the array leaves this class.
        self._distinct.word.resize(count, refcheck=False)
        if self._distinct.record is not None:
            self._distinct.record.resize(count, refcheck=False)
        # Waiting keys have numbers of the same form, so they can be compared. Those from the bound on belong to the
        # next range, which reads all records again.
        self._waiting = [some.where(some.parted(self._shift)[0] < number) for some in self._waiting]
        self.waiting_bytes = sum(some.nbytes for some in self._waiting)
        assert isinstance(bound, bytes)
        return bound

    def size(self) -> tuple[int, int]:
        """Return the number of keys, and their bytes."""
        if self._like is None:
            return 0, 0
        rows = len(self._distinct.word)
        return rows, rows * len(self._like)

    def bytes_of_rows(self, row_bytes: int) -> int:
        """Return the memory of rows that become keys at once; ``row_bytes`` does not include the key."""
        rows, size = self.size()
        return rows * row_bytes + size

    def bytes_in_parts(self, row_bytes: int) -> int:
        """Return the memory of rows that become keys part by part."""
        if self._together:
            return self.size()[0] * NUMBERED_ROW_BYTES
        return self.bytes_of_rows(row_bytes)

    def winners(self) -> Winners:
        """Return all winners. Call it once."""
        distinct, self._distinct = self._distinct, self._none()
        return self._winners_of(distinct)

    def parts(self, rows: int) -> Iterator[Winners]:
        """Yield the winners, so many rows at a time."""
        for first in range(0, len(self._distinct.word), rows):
            yield self._winners_of(self._distinct.between(first, first + rows))

    def _winners_of(self, some: _NumberSet) -> Winners:
        if self._like is None or not len(some.word):
            return Winners(pa.array([], pa.binary()), np.empty(0, dtype=np.int64))
        word, record = some.parted(self._shift)
        # The numbers are no longer needed once they are parted; the keys take their memory.
        del some
        return Winners(binary_of(keys_of(word, self._bits, self._like)), record)

    def _none(self) -> _NumberSet:
        word = np.empty(0, dtype=np.uint64)
        if self._together:
            return _NumberSet(word, None)
        return _NumberSet(word, np.empty(0, dtype=np.int64))

    @property
    def distinct_bytes(self) -> int | None:
        """The memory of the distinct keys; None if settling takes copies of all."""
        if self._together:
            return self._distinct.nbytes
        return None

    @property
    def _together(self) -> bool:
        return count_of(self._bits) + self._shift <= WORD_BITS

    def _coded(self, table: npt.NDArray[np.uint8], numbers: Ints) -> _NumberSet:
        # Keys are never more than one number, because ``add`` refuses keys that differ in more bits.
        (word,) = words(table, self._bits)
        if not self._together:
            return _NumberSet(word, numbers)
        word <<= np.uint64(self._shift)
        # Key in the high bits, record in the low ones: a sort by the whole word puts the last record of a key last.
        word |= numbers.view(np.uint64)
        return _NumberSet(word, None)

    def _recode(self, bits: npt.NDArray[np.uint8], shift: int) -> None:
        """Use more bits for keys, or for records.

        The numbers are made again in place, and their order stays the same.
        """
        # Waiting keys are merged first, so that only one array has to be changed.
        self.settle()
        assert self._like is not None
        distinct, before, shift_before = self._distinct, self._bits, self._shift
        self._bits, self._shift = bits, shift
        count = len(distinct.word)
        # If a record does not fit into the 64 bits of its key any more, records get an array of their own.
        if distinct.record is None and not self._together:
            self._distinct = _NumberSet(distinct.word, np.empty(count, dtype=np.int64))
        # Part by part: meanwhile keys exist as bytes, which take several times as much memory as the numbers.
        rows = max(1, min(RECODE_ROWS, RECODE_BYTES // len(self._like)))
        for first in range(0, count, rows):
            block = slice(first, first + rows)
            # ``between`` copies, so that the block may be overwritten below while its old numbers are read.
            word, record = distinct.between(first, first + rows).parted(shift_before)
            some = self._coded(keys_of(word, before, self._like), record)
            self._distinct.word[block] = some.word
            if self._distinct.record is not None:
                self._distinct.record[block] = _of(some)


def _of(some: _NumberSet) -> Ints:
    assert some.record is not None
    return some.record


def _put_behind(word: npt.NDArray[np.uint64], parts: list[npt.NDArray[np.uint64]]) -> None:
    """Append ``parts`` to ``word`` in place."""
    end = len(word)
    # realloc moves the array or grows it where it is; a concatenation would hold all keys twice.
    word.resize(end + sum(len(part) for part in parts), refcheck=False)
    for part in parts:
        word[end : end + len(part)] = part
        end += len(part)


def _keep_last(word: npt.NDArray[np.uint64], shift: int) -> None:
    """Sort in place, and of numbers that are equal above the lowest ``shift`` bits keep only the highest."""
    # The array has two sorted parts. A stable sort detects that and only merges them, through a copy of the smaller
    # part, in a third of the time.
    word.sort(kind="stable")
    count = 0
    for first in range(0, len(word), RECODE_ROWS):
        some = word[first : first + RECODE_ROWS]
        # The same numbers shifted by one: each is compared with its successor, which may be in the next block. The very
        # last has none.
        following = word[first + 1 : first + 1 + RECODE_ROWS]
        is_last = np.ones(len(some), dtype=np.bool_)
        is_last[: len(following)] = (some[: len(following)] ^ following) >> np.uint64(shift) != 0
        last = some[is_last]
        # What is kept is never more than what was read, so no number is overwritten before it is compared.
        word[count : count + len(last)] = last
        count += len(last)
        # Views must be gone before the array is resized below.
        del some, following
    word.resize(count, refcheck=False)

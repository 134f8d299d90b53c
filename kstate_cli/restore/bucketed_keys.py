"""Which record is the last of each key, where keys are of any length.

They are dealt out to buckets by a checksum, so that no hash table is large: small ones are faster, and growing one
doubles it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kstate_cli.restore.convert import buffers, sort_order, taken
from kstate_cli.restore.winners_told import Winners

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_KEY_COPIES: Final = 2
"""Of keys there are copies while they are put in order."""
_POSITION_BYTES: Final = 4
"""What an array has for each key, beside its bytes."""


@dataclass(slots=True)
class _Bucket:
    keys: pa.BinaryArray
    record: Ints
    waiting: list[tuple[pa.BinaryArray, Ints]] = field(default_factory=list)


class BucketsOfKeys:
    """Takes keys of any kind."""

    growth = 1
    """What waits becomes known bucket by bucket."""

    def __init__(self, buckets: int) -> None:
        self._buckets = _empty(buckets)
        self._size = 0, 0
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
        self._size = sum(len(one.keys) for one in self._buckets), sum(one.keys.nbytes for one in self._buckets)

    def size(self) -> tuple[int, int]:
        """Keys, and their bytes."""
        return self._size

    def held(self, row_bytes: int) -> int:
        """What rows take; ``row_bytes`` without their keys."""
        rows, size = self.size()
        return rows * row_bytes + size * _KEY_COPIES

    def held_in_parts(self, row_bytes: int) -> int:
        """The same: all keys are put in order at once."""
        return self.held(row_bytes)

    def cut(self, count: int) -> bytes:
        """Keeps the ``count`` lowest keys; returns the lowest of the others."""
        self.settle()
        buckets, told = len(self._buckets), self.winners()
        bound: bytes = told.keys[count].as_py()
        self._buckets = _empty(buckets)
        self.add(told.keys.slice(0, count), told.record[:count])
        del told
        self.settle()
        return bound

    def parts(self, rows: int) -> Iterator[Winners]:
        """What is known, so many rows at a time. Call it once."""
        told = self.winners()
        for first in range(0, len(told.keys), rows):
            yield Winners(told.keys.slice(first, rows), told.record[first : first + rows])

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


def row_held(key_bytes: int, row_bytes: int) -> int:
    """What a row takes whose key has so many bytes."""
    return row_bytes + (key_bytes + _POSITION_BYTES) * _KEY_COPIES


def _empty(buckets: int) -> list[_Bucket]:
    import numpy as np
    import pyarrow as pa

    return [_Bucket(pa.array([], pa.binary()), np.empty(0, dtype=np.int64)) for _ in range(buckets)]


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

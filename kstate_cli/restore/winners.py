"""Which record of a changelog is the last of its key, in bounded memory.

Keys are dealt out to buckets by a checksum, so that no hash table is large: small ones are faster, and growing one
doubles it. What is known already is deduplicated again with what came since, as often as memory asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kstate_cli.restore.convert import buffers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints

_BUCKET_RECORDS = 1_000_000
_MOST_BUCKETS = 64
_WAITING_PART = 8
"""Keys wait until they take so small a part of a task's memory, or as much as those that are known."""


@dataclass(frozen=True, slots=True)
class Winners:
    """The last record of each key of a slice."""

    keys: pa.BinaryArray
    """Distinct changelog keys, in no particular order."""
    record: Ints
    """For each key the number of its last record, counted over the slice's records."""
    codes: npt.NDArray[np.int32] | None = None
    """For each record the number of its key, -1 for a null key."""


@dataclass(slots=True)
class _Bucket:
    keys: pa.BinaryArray
    record: Ints
    waiting: list[tuple[pa.BinaryArray, Ints]] = field(default_factory=list)
    codes: list[tuple[Ints, npt.NDArray[np.int32]]] = field(default_factory=list)


class LastOfEachKey:
    """Takes the keys of a slice in the order of its records, and tells the winners. ``memory`` in bytes."""

    def __init__(self, records: int, memory: int, *, with_codes: bool = False) -> None:
        import numpy as np
        import pyarrow as pa

        buckets = 1
        while buckets < _MOST_BUCKETS and buckets * _BUCKET_RECORDS < records:
            buckets *= 2
        self._buckets = [_Bucket(pa.array([], pa.binary()), np.empty(0, dtype=np.int64)) for _ in range(buckets)]
        self._most_waiting = memory // _WAITING_PART
        self._with_codes = with_codes
        self._waiting = 0
        self.records = 0
        self.null_keys = 0

    def add(self, keys: pa.BinaryArray) -> None:
        """The keys of the next records, null where a record has none."""
        import numpy as np
        import pyarrow as pa

        numbers = np.arange(self.records, self.records + len(keys), dtype=np.int64)
        self.records += len(keys)
        if keys.null_count:
            self.null_keys += keys.null_count
            numbers = numbers[keys.is_valid().to_numpy(zero_copy_only=False)]
            keys = keys.drop_null()
        if not len(keys):
            return
        if len(self._buckets) == 1:
            self._buckets[0].waiting.append((keys, numbers))
        else:
            checksums = _checksums(keys) & (len(self._buckets) - 1)
            order = np.argsort(checksums, kind="stable")
            dealt, numbers = keys.take(pa.array(order)), numbers[order]
            ends = np.cumsum(np.bincount(checksums, minlength=len(self._buckets))).tolist()
            for bucket, begin, end in zip(self._buckets, [0, *ends], ends, strict=False):
                if end > begin:
                    bucket.waiting.append((dealt.slice(begin, end - begin), numbers[begin:end]))
        self._waiting += keys.nbytes + numbers.nbytes
        known = sum(bucket.keys.nbytes + bucket.record.nbytes for bucket in self._buckets)
        if self._waiting > max(self._most_waiting, known):
            self._settle()

    def finish(self) -> Winners:
        """The winners of all that was added. Call it once."""
        import numpy as np
        import pyarrow as pa

        self._settle()
        codes = None
        if self._with_codes:
            codes = np.full(self.records, -1, dtype=np.int32)
            base = 0
            for bucket in self._buckets:
                for numbers, local in bucket.codes:
                    codes[numbers] = local + base
                base += len(bucket.keys)
        keys = pa.concat_arrays([bucket.keys for bucket in self._buckets])
        record = np.concatenate([bucket.record for bucket in self._buckets])
        self._buckets = []
        # What hash tables took is wanted for the order of the rows, which is numpy's.
        pa.default_memory_pool().release_unused()
        return Winners(keys, record, codes)

    def _settle(self) -> None:
        for bucket in self._buckets:
            if bucket.waiting:
                self._deduplicate(bucket)
        self._waiting = 0

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
        if self._with_codes:
            bucket.codes.append((numbers, local.astype(np.int32)))


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

"""The files of a slice: its records are read from the dump in batches, and its rows are written in layers.

A layer has rows for one database in the order of their keys, in files about as large as RocksDB makes its own.

RocksDB keeps the filter of a file in one block, and its index in another. Those of a file of several GiB take tens of
MiB, which may be more than a shard of a block cache holds: where indexes and filters are kept in it
(``cache_index_and_filter_blocks``), every lookup would read them again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.reader import iter_slice, read_slice
from kstate_cli.releases import release
from kstate_cli.restore.jobs import SliceJob, SortedFile
from kstate_cli.restore.sorting.memory import (
    BATCH_SHARE,
    LEAST_BATCH_RECORDS,
    MOST_BATCH_BYTES,
    MOST_BATCH_RECORDS,
    SLICE_BATCHES,
    WRITE_ROWS,
)
from kstate_cli.restore.staging import Staging
from kstate_cli.rocks.create import OBJECTS, SortedFileWriter

LOOK_ROWS: Final = OBJECTS
"""So many rows are put at once; then the size of the file is checked."""


@dataclass(slots=True)
class Layers:
    """What an attempt at a slice writes: for each segment one layer, or several."""

    job: SliceJob
    staging: Staging
    attempt: str
    files: list[SortedFile] = field(default_factory=list)
    """Those that are complete, of all layers."""
    _files_of: Counter[int | None] = field(init=False, default_factory=Counter)
    """By segment: how many have begun."""
    _layers_begun: int = field(init=False, default=0)
    """Layers."""

    def open(self, segment: int | None) -> Layer:
        """Open the next layer, which wins over those before it."""
        number, self._layers_begun = self._layers_begun, self._layers_begun + 1
        return Layer(self, segment, number)

    def aside(self) -> str:
        """Return a path for keys or values that wait: the opener unlinks it."""
        return self.staging.new_file(f"{self.job.label}-{self.attempt}.waiting")

    def writer(self, segment: int | None) -> SortedFileWriter:
        """Return the writer for the next file of a segment; every file gets its own name."""
        number = self._files_of[segment]
        self._files_of[segment] += 1
        # The attempt is part of the name: if Spark runs a task twice, at once or after a failure, neither run writes a
        # file of the other.
        parts = [self.job.label, self.attempt]
        if segment is not None:
            parts.insert(1, str(segment))
        if number:
            parts.append(str(number))
        return SortedFileWriter(self.staging.new_file(f"{'-'.join(parts)}.sst"), release(self.job.release))


class NoLayers(Layers):
    """What an attempt that only reads writes: nothing but keys that wait, in files without a name."""

    def open(self, segment: int | None) -> Layer:  # noqa: ARG002
        """Return a layer that takes rows, and keeps none."""
        return _NoLayer()


class Layer:
    """Rows in the order of their keys. Raises RocksError and OSError."""

    def __init__(self, layers: Layers, segment: int | None, number: int) -> None:
        self._layers, self._segment, self._number = layers, segment, number
        # RocksDB may count every file that a database with rows ingests as one more place where a read looks. So a
        # layer for such a database is one file, however large; 0 means without a limit.
        self._most = 0
        if segment not in layers.job.existing:
            self._most = layers.job.file_bytes
        self._writer = layers.writer(segment)

    def put(self, keys: pa.BinaryArray, values: pa.BinaryArray, *, deletes: bool) -> None:
        """Write rows: all keys of a layer rise strictly."""
        for first in range(0, len(keys), LOOK_ROWS):
            # Between two puts, never within one: a file may be a little larger than the limit, and no row is looked at
            # for it.
            if self._most and self._writer.size >= self._most:
                self._complete()
                self._writer = self._layers.writer(self._segment)
            self._writer.put(keys.slice(first, LOOK_ROWS), values.slice(first, LOOK_ROWS), deletes=deletes)

    def close(self) -> None:
        """Complete the last file. Without a row or a delete there is none."""
        self._complete()

    def _complete(self) -> None:
        writer = self._writer
        digest = writer.finish()
        # Without a row RocksDB's writer would fail, so there is no file and nothing to ingest.
        if digest is not None:
            size, path = os.path.getsize(writer.path), self._layers.staging.publish(writer.path)
            self._layers.files.append(
                SortedFile(self._segment, path, writer.rows, writer.deletes, size, digest, layer=self._number)
            )


class _NoLayer(Layer):
    def __init__(self) -> None:
        """Make a layer without a writer."""

    def put(self, keys: pa.BinaryArray, values: pa.BinaryArray, *, deletes: bool) -> None:
        """Keep none of the rows."""

    def close(self) -> None:
        """Complete no file."""


class CountSink(Protocol):
    """Where counts go."""

    records: int
    null_keys: int
    data_bytes: int


def batches(job: SliceJob, columns: tuple[str, ...], passage: Passage) -> Generator[pa.Table, None, None]:
    """Yield the records of the slice, in the order of their offsets. Raises DumpError and OSError.

    The caller closes the generator, which may have threads that read ahead.
    """
    filesystem = open_location(job.dump_uri)[0]
    if job.slice.ordered:
        # The files are read batch by batch, so that no row group is in memory as a whole.
        yield from iter_slice(job.slice, columns, filesystem, batch_records(job), batch_bytes(job), passage)
        return
    # Records out of order are sorted as a whole, for which such slices are small enough.
    table = read_slice(job.slice, columns, filesystem, passage)
    rows = batch_records(job)
    for first in range(0, len(table), rows):
        yield table.slice(first, rows)


def batch_records(job: SliceJob) -> int:
    """Return the most records of a batch."""
    return min(max(LEAST_BATCH_RECORDS, job.slice.rows // SLICE_BATCHES), MOST_BATCH_RECORDS)


def batch_bytes(job: SliceJob) -> int:
    """Return the most bytes of a batch."""
    return min(job.memory // BATCH_SHARE, MOST_BATCH_BYTES)


def rows_together(job: SliceJob) -> int:
    """Return the most rows that are handed to the writer together."""
    # By the average record of the slice: rows become Python objects together, and values of a megabyte must not do so
    # by tens of thousands.
    each = max(job.slice.bytes // max(job.slice.rows, 1), 1)
    return max(1, min(WRITE_ROWS, max(job.memory // BATCH_SHARE, 1) // each))


VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own."""
LEAN: Final = "jemalloc", "system"
"""A pool that takes about as much memory as is in use."""
USUAL: Final = "mimalloc", "system"
"""Arrow's: it takes up to twice that, and is a little faster with memory that it has had before."""


def choose_pool(*, fits: bool) -> None:
    """Choose Arrow's memory pool by whether the data of a slice ``fits`` its memory, unless the user names a pool.

    Memory that a process gets for the first time costs time: the kernel clears it, and the host of a virtual machine
    may have to find it first. A large slice uses most of its memory again and again, and a small one does not.
    """
    if VARIABLE in os.environ:
        # Arrow itself obeys the variable, and the choice of the user comes first.
        return
    there = pa.supported_memory_backends()
    # Not every build of Arrow has each pool, but all have "system".
    name = next(pool for pool in (LEAN if fits else USUAL) if pool in there)
    pa.set_memory_pool(getattr(pa, f"{name}_memory_pool")())

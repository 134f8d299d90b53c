"""Read the records of a slice in batches of the needed columns, and choose Arrow's memory pool for it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.reader import iter_slice, read_slice
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.sorting.memory import (
    BATCH_SHARE,
    LEAST_BATCH_RECORDS,
    MOST_BATCH_BYTES,
    MOST_BATCH_RECORDS,
    SLICE_BATCHES,
    WRITE_ROWS,
)

if TYPE_CHECKING:
    import pyarrow as pa
import os
from typing import Final


class CountSink(Protocol):
    """Where counts go."""

    records: int
    null_keys: int
    data_bytes: int


def batches(job: SliceJob, columns: tuple[str, ...], passage: Passage) -> Generator[pa.Table, None, None]:
    """Yield the records of the slice, in the order of their offsets. Raises DumpError and OSError.

    It may have threads that read ahead, so the caller closes it.
    """
    filesystem = open_location(job.dump_uri)[0]
    if job.slice.ordered:
        yield from iter_slice(job.slice, columns, filesystem, batch_records(job), batch_bytes(job), passage)
        return
    # Out of order it has to be sorted as a whole; such slices are small enough for that.
    table = read_slice(job.slice, columns, filesystem)
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
    each = max(job.slice.bytes // max(job.slice.rows, 1), 1)
    return max(1, min(WRITE_ROWS, max(job.memory // BATCH_SHARE, 1) // each))


VARIABLE: Final = "ARROW_DEFAULT_MEMORY_POOL"
"""Arrow's own."""
LEAN: Final = "jemalloc", "system"
"""A pool that takes about as much memory as is in use."""
USUAL: Final = "mimalloc", "system"
"""Arrow's: it takes up to twice that, and is a little faster with memory that it has had before."""


def choose_pool(*, fits: bool) -> None:
    """Choose Arrow's memory pool for a slice that ``fits`` its memory, or does not, unless the user names one.

    Memory that a process never had costs time: the kernel clears it, and the host of a virtual machine may have to find
    it first. A large slice reuses nearly all memory that it takes, a small one does not.
    """
    import pyarrow as pa

    if VARIABLE in os.environ:
        return
    there = pa.supported_memory_backends()
    name = next(pool for pool in (LEAN if fits else USUAL) if pool in there)
    pa.set_memory_pool(getattr(pa, f"{name}_memory_pool")())

"""The memory model of the sort engine: what the budget pays for, and what each part of a task may use.

The user sets the budget of a host. It pays for the JVM of Spark and for each Python worker, and the rest is divided
evenly among the tasks: ``SliceJob.memory``, here called M::

    M = (budget - JVM_BYTES - tasks × WORKER_BYTES) / tasks

A task uses M in two phases, and gives the memory of the first back before the second begins:

1. Keys (``winners``, ``row_order``): the keys of a slice, with the order of their rows, take ``KEYS_SHARE`` of M. Keys
   that do not fit are taken range by range. Of each range only the numbers of its records remain::

       keys as numbers   rows × NUMBERED_ROW_BYTES                        <= KEYS_SHARE × M
       other keys        rows × ROW_BYTES + keys × BUCKET_KEY_COPIES      <= KEYS_SHARE × M
       finished ranges   rows × PLACE_BYTES                               <= KEYS_SHARE × M

2. Values (``values_in_order``): of what the order of rows and the batches in flight leave, values take
   ``VALUES_SHARE``. Values that do not fit wait in a file::

       in flight         BATCH_COPIES × batch + SORTED_COPIES × batch / SORTED_SHARE
       values            <= VALUES_SHARE × (M - keys in memory - places - in flight)

An example with the usual M of 1,536 MiB, and values of 1 KiB: a range has up to 60 million keys that are numbers. Their
places take 460 MiB. Batches of 64 MiB take 384 MiB in flight, so values may take 345 MiB before they wait in a file.

The rest is no reserve that could be spent: hash tables double as they grow, Arrow's allocator leaves holes
between batches that come and go, and RocksDB's writer buffers one file. ``tests/bench/restore_memory.py`` measures the
whole, and ``tests/processes/test_slice_memory.py`` holds a task to M.

A name that ends in ``_SHARE`` is a part of a budget: a number below 1 multiplies it, a whole number divides it. Names
in ``_BYTES``, ``_ROWS`` and ``_RECORDS`` are amounts. A name in ``_COPIES`` counts how often the same data exists. No
other module of the sort engine has such a constant, except tables that belong to one format (``row_values``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli import option
from kstate_cli.errors import UsageError
from kstate_cli.host import memory_here
from kstate_cli.texts import size_text, suggest

MIB: Final = 1024 * 1024

# Fixed costs come off the budget before it is divided. Were they left to the tasks, a host with many processors would
# exceed it by the sum of its idle workers.
# The budget of a host.

JVM_BYTES: Final = 700 * MIB
"""Spark's JVM with its heap of 512 MiB, and the interpreter of the driver."""
WORKER_BYTES: Final = 150 * MIB
"""A Python worker with numpy, Arrow and rocksdict imported, before it reads anything."""
LEAST_TASK_BYTES: Final = 48 * MIB
"""The least M: below it kstate refuses the budget instead of dividing a slice into ever smaller ranges."""
USUAL_TASK_BYTES: Final = 1536 * MIB
"""The M that kstate takes by itself, if half of the host's memory has it: one slice per partition needs no merge."""
SMALL_BYTES: Final = 64 * MIB
"""Uncompressed records that one process sorts in about the time in which Spark starts."""

# The driver cuts slices with these, before any row is read: footers of Parquet files give records and uncompressed
# bytes, so every figure is per record or per byte.
# The size of a slice.

MOST_SLICE_RECORDS: Final = 160_000_000
"""The records that are lost if a task dies. Larger slices write fewer rows several times, so the bound is high."""
RECORD_BYTES: Final = 120
"""A record beside its key, if a slice out of order is sorted as a whole: numbers, and their order."""
RECORD_KEY_COPIES: Final = 3
"""A key then exists as read, in order, and in the row; arrays of keys add offsets to each."""
ARRAY_BYTES: Final = 2_000_000_000
"""The bytes of one binary array: pyarrow's offsets have 32 bits, so it holds just under 2 GiB."""
HISTORY_RECORD_BYTES: Final = 250
"""A record of a versioned store beside key and value: numbers in several orders."""
HISTORY_COPIES: Final = 4
"""Key and value of such a record exist as they were read, sorted, as columns, and in rows."""
REPLAYED_VERSION_BYTES: Final = 1_000
"""A version of a key that is replayed record by record: Python objects take far more than columns."""

# Batches: records and rows that are read, or handed to RocksDB, at once.

LEAST_BATCH_RECORDS: Final = 32_768
MOST_BATCH_RECORDS: Final = 131_072
"""Fewer records cost a call each, and more gain nothing."""
SLICE_BATCHES: Final = 64
"""The batches of a small slice: memory that the process never used before has to be cleared by the kernel first."""
BATCH_SHARE: Final = 16
"""A batch takes at most a sixteenth of M: it exists ``BATCH_COPIES`` times beside keys and values."""
MOST_BATCH_BYTES: Final = 64 * MIB
"""A batch also stays within the caches of the processor, and far from 32-bit offsets."""
WRITE_ROWS: Final = 32_768
"""Rows that become Python objects together, which is the only form that RocksDB's writer takes."""
INDEX_ROWS: Final = 32_768
"""The same for index rows."""
HISTORY_WRITE_ROWS: Final = 16_384
"""The same for rows of versioned stores, which are larger."""
BLOCK_ROWS: Final = 131_072
"""Rows of one vectorised step: index arrays take eight bytes for each byte of a key, so the whole would not fit."""
RECODE_ROWS: Final = 262_144
RECODE_BYTES: Final = 8 * MIB
"""Keys that change their numbers together: at most so many rows, and so many bytes."""
COMPARED_KEYS: Final = 64
"""Keys that one comparison covers side by side: numpy is fast on long rows, and slow on short ones."""

# A figure here is what a task holds at its peak, not what it keeps: a key exists as read and as a number, and arrays of
# numbers have their sort order beside them.
# Phase 1: keys.

KEYS_SHARE: Final = 0.6
"""Keys and the order of rows, of M. The rest holds the batch that is read and a hash table while it doubles."""
ROW_BYTES: Final = 32
"""A row beside its key, until its value is read: record, place, and two arrays that sort them."""
SEGMENTED_ROW_BYTES: Final = 64
"""The same for stores with segments: the time of each key, its segment, and the order by segment."""
INDEXED_ROW_BYTES: Final = 120
"""The same for time-ordered stores, whose row keys are made from the changelog keys."""
NUMBERED_ROW_BYTES: Final = 16
"""The same if keys are numbers and become keys part by part: key and record in one word, then record and place."""
PLACE_BYTES: Final = 12
"""A row of a finished range: its record (4 bytes), and later its place (8 bytes)."""
LEAST_RANGE_SHARE: Final = 0.5
MOST_RANGE_SHARE: Final = 0.9
"""The keys that stay as a full range is cut, by how much of the slice was read: it will grow to about M again."""
WAITING_SHARE: Final = 8
"""New keys wait until they take an eighth of the budget, or as much as the deduplicated ones.

Deduplicating seldom is faster. Afterwards all keys may take up to a quarter more than their share: numbers, which are
released for places before there are any values.
"""
CONVERTED_SHARE: Final = 0.9
"""The keys that stay if numbers become longer numbers, or keys, which take more than they did."""
BUCKET_KEYS: Final = 1_000_000
MOST_BUCKETS: Final = 64
"""Keys of any length are divided into hash tables of about so many keys: one that grows takes twice its memory."""
BUCKET_KEY_COPIES: Final = 2
"""Keys exist twice while they are sorted."""
KEY_OFFSET_BYTES: Final = 4
"""The offset that an array stores for each key."""
KEY_ARRAY_BYTES: Final = 1 << 30
"""Keys in one array: half of what pyarrow can hold, so that waiting keys can join them."""
PART_SHARE: Final = 16
"""Keys that numbers become together take at most a sixteenth of the budget; a window is never divided."""
MOST_WINDOWS: Final = 16
"""Windows of rows that numbers become together: more at once gain nothing."""

# Values are the largest part of most changelogs, and only the last value of each key is needed. So they are read after
# the keys have decided which records win.
# Phase 2: values.

VALUES_SHARE: Final = 0.5
"""Values, of the remaining memory: batches that come and go among them leave holes of up to 0.7 times their size."""
BATCH_COPIES: Final = 4
"""A batch exists as read, as the needed values, and in the order of rows."""
SORTED_SHARE: Final = 2
"""Values are sorted once they take half of a batch: a few at a time would give each window next to nothing."""
SORTED_COPIES: Final = 4
"""They then exist as one array and in the order of rows, beside those before them and the bytes being written."""
VALUE_ROW_BYTES: Final = 32
"""A row beside its value while it is sorted: number, window, place, size."""
FILE_SPARE: Final = 2
"""A part of the file takes at most half of the memory for values: sizes are exact only after everything is read."""
MOST_FILE_PARTS: Final = 256
"""Parts of a file: each has a batch of its own from every round of sorting, so more parts mean smaller reads."""
FILE_WRITE_BYTES: Final = 1 << 20
"""Bytes that are written to the file together, around the page cache."""
READ_AHEAD: Final = 4
"""Batches of the file that are read before they are needed."""


def usual_memory(slots: int, *, jvm: bool = True) -> int:
    """Return the budget if the user sets none: the usual M for each task, and at most half of the host's memory."""
    # Half of the host at most: the other half stays with the page cache, from which the dump is read, and with other
    # processes of the host.
    least = _fixed_bytes(jvm) + slots * (WORKER_BYTES + LEAST_TASK_BYTES)
    usual = _fixed_bytes(jvm) + slots * (WORKER_BYTES + USUAL_TASK_BYTES)
    return max(least, min(usual, memory_here() // 2))


def _fixed_bytes(jvm: bool) -> int:
    """Return what the driver takes: without Spark it is itself the worker."""
    return JVM_BYTES if jvm else 0


def slot_memory(memory: int | None, slots: int, *, jvm: bool = True) -> int:
    """Return M, the bytes that each of ``slots`` tasks may use of ``memory``, with Spark's JVM beside them or without.

    Raises UsageError for a budget that leaves less than a task needs.
    """
    if memory is None:
        memory = usual_memory(slots, jvm=jvm)
    each = (memory - _fixed_bytes(jvm) - slots * WORKER_BYTES) // slots
    if each < LEAST_TASK_BYTES:
        # The size is rounded up to whole MiB: a user who passes exactly the printed size must not be refused again.
        least = _fixed_bytes(jvm) + slots * (WORKER_BYTES + LEAST_TASK_BYTES)
        hint = f"pass a larger {option.MEMORY}"
        if jvm:
            hint += suggest(f", or run fewer concurrent tasks: {option.MASTER} 'local[1,4]'", option.MASTER)
        raise UsageError(
            f"{option.MEMORY} is too small for {slots} concurrent tasks: they need at least "
            f"{size_text(-(-least // MIB) * MIB)}",
            hint=hint,
        )
    return each


def slots_here(memory: int | None, most: int, *, size: int) -> int:
    """Return how many slices this host sorts at once without Spark: one of a small plan, else as many as fit.

    ``most`` is the upper limit of processes, and ``size`` the bytes of all keys and values. Raises UsageError if not
    even one slice fits.
    """
    # Called for its UsageError: a budget that does not fit one task must be refused, not rounded up to one.
    slot_memory(memory, 1, jvm=False)
    # For so little data, starting more processes would take longer than sorting.
    if size <= SMALL_BYTES:
        return 1
    # As many as fit with the least M. Afterwards :func:`slot_memory` divides the whole budget among them, so each gets
    # more.
    available = memory_here() // 2 if memory is None else memory
    return max(1, min(most, available // (WORKER_BYTES + LEAST_TASK_BYTES)))


@dataclass(frozen=True, slots=True)
class Slots:
    """The tasks that run at once, and M of each."""

    tasks: int
    memory: int

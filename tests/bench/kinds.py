"""How long a record of each kind of store takes to be sorted, in one process: microseconds of a slice, by kind.

    python -m tests.bench.kinds [--records 2000000] [--keys 500000] [--kind versioned …] [--rounds 3]

A slice is what a task of a restoration makes sorted files of: read, deduplicated, sorted, encoded, written. Real Streams
restores 1 M such records with one thread in 3.3 to 3.8 s, versioned ones in 10.8 s, its start included. Prints a table; nothing is
asserted.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import StoreKind, store_kind, store_kinds
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from tests.sorting.slicing import HOUR, NOW, TOPIC, job_of

VALUE_BYTES = 100
GIB = 1 << 30


def keys_of(kind: StoreKind, ids: Any, times: Any) -> pa.BinaryArray:
    """``key-00000042``, with what a changelog of this kind has behind it."""
    text = np.char.mod(b"key-%08d", ids)
    parts = [np.frombuffer(text.tobytes(), dtype=np.uint8).reshape(len(ids), -1)]
    stamps = times.astype(">i8").view(np.uint8).reshape(-1, 8)
    if kind.key.windows or kind.key is KeySchema.BUFFER:
        parts += [stamps, np.zeros((len(ids), 4), dtype=np.uint8)]
    elif kind.key.sessions:
        parts += [stamps, stamps]
    table = np.ascontiguousarray(np.concatenate(parts, axis=1))
    ends = np.arange(len(ids) + 1, dtype=np.int32) * table.shape[1]
    return pa.BinaryArray.from_buffers(pa.binary(), len(ids), [None, pa.py_buffer(ends), pa.py_buffer(table)])


def write_dump_of_kind(folder: Path, kind: StoreKind, records: int, keys: int) -> Path:
    """A dump of one partition; windows and sessions lie in twelve segments of an hour."""
    folder.mkdir()
    rng = np.random.default_rng(7)
    ids = rng.integers(0, keys, records)
    windows = NOW - ids % 12 * HOUR
    times = NOW + np.arange(records) * (10 * HOUR // records if kind.key is KeySchema.VERSIONED else 1)
    values = rng.integers(0, 256, records * VALUE_BYTES, dtype=np.uint8)
    ends = np.arange(records + 1, dtype=np.int32) * VALUE_BYTES
    header = pa.StructArray.from_arrays(
        [pa.array(["trace"] * records), pa.array([b"0123456789abcdef"] * records, pa.binary())], ["key", "value"]
    )
    entry = records if kind.needs_headers else 0
    columns = {
        "key": keys_of(kind, ids, windows),
        "value": pa.BinaryArray.from_buffers(pa.binary(), records, [None, pa.py_buffer(ends), pa.py_buffer(values)]),
        "topic": pa.array([TOPIC] * records),
        "partition": pa.array(np.zeros(records, dtype=np.int32)),
        "offset": pa.array(np.arange(records)),
        "timestamp": pa.array(times * 1000, pa.timestamp("us", tz="UTC")),
        "headers": pa.ListArray.from_arrays(
            pa.array(np.minimum(np.arange(records + 1), entry).astype(np.int32)), header.slice(0, entry)
        ),
    }
    pq.write_table(
        pa.table(columns), folder / "all.parquet", compression="none", use_dictionary=["topic"], row_group_size=250_000
    )
    return folder


def seconds(dump: Path, kind: StoreKind, staging: Path) -> tuple[float, float]:
    """Of one slice: by the clock, and of the processor."""
    staging.mkdir()
    job = replace(job_of(dump, kind.name, staging), memory=3 * GIB // 2, positions=False)
    if kind.has_retention:
        job = replace(job, retention_ms=24 * HOUR)
    began, processor = time.monotonic(), time.process_time()
    build_sorted_files(job)
    starts = time.monotonic() - began, time.process_time() - processor
    shutil.rmtree(staging)
    return starts


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--kind", action="append", help="several times; all without")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kstate-kinds-"))
    try:
        for name in args.kind or [kind.name for kind in store_kinds() if kind.is_exact]:
            kind = store_kind(name)
            dump = write_dump_of_kind(folder / "dump", kind, args.records, args.keys)
            choice = [seconds(dump, kind, folder / "staging") for _ in range(args.rounds)]
            shutil.rmtree(dump)
            clock, processor = (statistics.median(entry) / args.records * 1e6 for entry in zip(*choice, strict=True))
            print(f"{name:32} {clock:6.2f} µs a record, {processor:6.2f} of the processor", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

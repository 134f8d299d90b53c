"""What a good engine would do beside a restoration's core: ``python -m tests.bench.duckdb_peer``.

The core is: a changelog dump is read, of each key the newest record is kept, and rows are written in the order of keys.

- *DuckDB*: ``arg_max`` by offset, ordered by key, written as uncompressed Parquet; one query for each partition, with all
  cores and a memory limit. What Streams wants in a row, and the filters of its SSTs, are not in it.
- *kstate*: the same slices as a restoration has, made into sorted files (SSTs) by as many processes as there are cores,
  their start included; and the databases built of them, which ends with a ``sync``.

DuckDB is no dependency of kstate, nor of its tests: ``pip install duckdb`` for this. Sides run in turns in one run, in
processes of their own; medians. Where a partition is one slice both must have found as many rows; else nothing is asserted.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .make_dump import make_dump
from .restore import APP, GIB, VALUE_BYTES, limit

TOPIC = f"{APP}-bulk-changelog"
PARTITIONS = 2
_QUERY = """
import sys, duckdb
folder, memory, *files = sys.argv[1:]
database = duckdb.connect()
database.execute(f"SET enable_progress_bar = false; SET memory_limit = '{int(memory) >> 20}MiB'; SET temp_directory = '{folder}/spilled'")
rows = 0
for number, pattern in enumerate(files):
    newest = f'''SELECT key, arg_max_null(value, "offset") AS value, arg_max("timestamp", "offset") AS "timestamp"
                 FROM read_parquet('{pattern}') GROUP BY key HAVING value IS NOT NULL ORDER BY key'''
    rows += database.execute(
        f"COPY ({newest}) TO '{folder}/{number}.parquet' (FORMAT parquet, COMPRESSION uncompressed)"
    ).fetchone()[0]
print(rows)
"""


def duckdb(folder: Path, dump: Path, memory: int) -> tuple[float, int]:
    """Seconds, with the start of its Python, and rows."""
    target = folder / "duckdb"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    patterns = [f"{dump}/{TOPIC}/part-{partition:05d}-*.parquet" for partition in range(PARTITIONS)]
    began = time.monotonic()
    process = subprocess.run(
        [sys.executable, "-c", _QUERY, str(target), str(memory), *patterns], check=True, capture_output=True, text=True
    )
    return time.monotonic() - began, int(process.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=3 * GIB)
    args = parser.parse_args()
    if importlib.util.find_spec("duckdb") is None:
        raise SystemExit("pip install duckdb")
    folder = Path(tempfile.mkdtemp(prefix="kstate-duckdb-"))
    try:
        dump = folder / "dump"
        make_dump(dump, TOPIC, records=args.records, keys=args.keys, value_bytes=VALUE_BYTES, partitions=PARTITIONS)
        numbers: dict[str, list[float]] = {"DuckDB": [], "kstate, sorted files": [], "kstate, databases too": []}
        for _ in range(args.rounds):
            seconds, rows = duckdb(folder, dump, args.memory)
            numbers["DuckDB"].append(seconds)
            ours = limit(folder, dump, args.memory)
            numbers["kstate, sorted files"].append(ours["runs"])
            numbers["kstate, databases too"].append(ours["whole"])
            # A key may have a row in each slice of its partition: with one slice the counts are equal.
            assert rows <= ours["rows"], (rows, ours)
            assert ours["slices"] > PARTITIONS or rows == ours["rows"], (rows, ours)
        for side, times in numbers.items():
            median = statistics.median(times)
            print(f"{side:24} {median:8.1f} s  {args.records / median / 1e6:6.2f} M records/s")
        print(json.dumps({"records": args.records, "keys": args.keys, "memory": args.memory, "seconds": numbers}))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""How fast stores are read offline: ``python -m tests.bench.query``.

Two measurements, each of one run on one machine. A raw scan of one store in one process, nothing rendered, beside the
bare iterator of rocksdbjni on the same store (Java 17 and the jars of the interop tests; the JVM has both compilers and
warms up first). And the first row of ``kstate query … key`` on a large store, beside the same command on a store of a
few rows, and beside its ``--help``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from kstate_cli.query import OfflineStreams, RawScanQuery, in_store
from tests.interop.harness import scan
from tests.interop.jvm import Jvm

from . import trees
from .migrate import MIB, time_command
from .trees import Shape

FAMILY = "keyValueWithTimestamp"
STORE = "store-0"
ROW_BYTES = 30
"""What ``trees`` counts for a row beside its value."""


def write_store(folder: Path, value_bytes: int, size: int) -> Path:
    trees.VALUE_BYTES = value_bytes
    app = folder / f"{value_bytes}-{size}" / "app"
    trees.make(app, Shape(tasks=1, key_value=1, windows=0, segments=0, total=size))
    return app


def ours(app: Path) -> tuple[int, float]:
    """Rows, and seconds from the question to the last row."""
    began = time.perf_counter()
    with OfflineStreams(app) as streams:
        answer = streams.query(in_store(STORE).with_query(RawScanQuery())).partition_results[0]
        rows = 0
        with answer.result as result:
            for _key, _value in result:
                rows += 1
    return rows, time.perf_counter() - began


def scans(app: Path, folder: Path, version: str, rounds: int) -> dict[str, object]:
    numbers: dict[str, list[float]] = {"kstate": [], "rocksdbjni": []}
    rows: set[int] = set()
    with Jvm(version, folder / "jvm.log", quick=False) as jvm:
        store = app / "0_0" / "rocksdb" / STORE
        scan(jvm, store, FAMILY, 2)
        for _ in range(rounds):
            results, seconds = ours(app)
            numbers["kstate"].append(seconds)
            (text,) = scan(jvm, store, FAMILY)
            numbers["rocksdbjni"].append(text["seconds"])
            rows |= {results, text["rows"]}
    (count,) = rows  # both have read the same
    speed = {side: count / median(seconds) for side, seconds in numbers.items()}
    ratio = speed["kstate"] / speed["rocksdbjni"]
    print(f"raw scan of {count:,} rows:")
    for side, value in speed.items():
        print(f"  {side:<12} {value:12,.0f} rows/s  ({', '.join(f'{s:.2f} s' for s in numbers[side])})")
    print(f"  ratio {ratio:.2f}")
    return {"bench": "raw scan", "rows": count, "seconds": numbers, "ratio": round(ratio, 3), "cores": os.cpu_count()}


def first_row(large: Path, small: Path, rounds: int) -> dict[str, object]:
    def query(app: Path) -> float:
        return time_command(
            sys.executable, "-m", "kstate_cli", "query", "key", app, STORE, "key-000000007", "--key-serde", "string",
            "-o", "json",
        )[0]  # fmt: skip

    sides: dict[str, Callable[[], float]] = {
        "large store": lambda: query(large),
        "few rows": lambda: query(small),
        "--help": lambda: time_command(sys.executable, "-m", "kstate_cli", "query", "--help")[0],
        "python": lambda: time_command(sys.executable, "-c", "import typer, rich, rocksdict")[0],
    }
    numbers: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, measure in sides.items():
            numbers[side].append(measure())
    medians = {side: median(seconds) for side, seconds in numbers.items()}
    print("first row of a key query:")
    for side, seconds in medians.items():
        print(f"  {side:<12} {seconds * 1000:8.0f} ms")
    return {"bench": "first row", "seconds": numbers, "median": medians, "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.query")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-query"))
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--size", type=int, default=5120, metavar="MIB", help="of the store that is asked for a key")
    parser.add_argument("--version", default="4.3.1")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    try:
        app = write_store(args.folder, args.value_bytes, args.rows * (args.value_bytes + ROW_BYTES))
        print(json.dumps(scans(app, args.folder, args.version, args.rounds)), flush=True)
        large = write_store(args.folder, 1000, args.size * MIB)
        small = write_store(args.folder, 1000, 1 * MIB)
        print(json.dumps(first_row(large, small, args.rounds)), flush=True)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

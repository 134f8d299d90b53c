"""How long ``kstate migrate`` takes beside the least that RocksDB needs for the same: ``python -m tests.bench.migrate``.

``drop``: 4.3 to 4.2, against opening every store for writing, dropping its column family and closing it.
``size``: 4.3 to 4.2 of the same number of stores with little and with much in them.
``rewrite``: 4.3 to 3.9, against RocksDB's bare compaction to the older SST format, with the checksum that 3.9 writes
(CRC32c) and with the one that kstate writes (XXH3), and against ``cp -a``.

The sides run in turns in one run, each on a fresh copy (SSTs linked, so equally cached) after ``sync``, each as a process
of its own with its start and a ``sync`` at its end. The median of each is shown, with the ratio of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from .trees import Shape, clone, make

MIB = 1024 * 1024
ROOT = Path(__file__).resolve().parents[2]
Timing = tuple[float, float]
"""Seconds by the clock, and of the processors."""
Side = Callable[[], Timing]


def time_command(*command: object, tree: Path = ROOT) -> Timing:
    """What a command takes, of the sources in ``tree``, with everything it wrote on disk."""
    # As what is installed, whose byte code is there.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        [str(part) for part in command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise SystemExit(f"{command}: exit {process.returncode}\n{process.stderr[-2000:]}")
    os.sync()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begin, spent


class Bench:
    """One measurement in a folder of its own."""

    def __init__(self, folder: Path, workers: int, rounds: int, pools: list[str]) -> None:
        self.folder = folder
        self.workers = workers
        self.rounds = rounds
        self.pools = pools

    def create(self, name: str, shape: Shape) -> Path:
        app = self.folder / name / "app"
        make(app, shape)
        return app

    def migrate(self, app: Path, to: str) -> Side:
        def side() -> Timing:
            copy = clone(app, self.folder / "copy")
            return time_command(
                sys.executable, "-m", "kstate_cli", "migrate", copy, "--to", to, "--quiet", "-o", "json",
                "--workers", self.workers,
            )  # fmt: skip

        return side

    def floor(self, app: Path, subject: str, pool: str) -> Side:
        def side() -> Timing:
            copy = clone(app, self.folder / "copy")
            return time_command(
                sys.executable, "-m", "tests.bench.floor", subject, copy, "--workers", self.workers, "--pool", pool
            )

        return side

    def copied(self, app: Path) -> Side:
        def side() -> Timing:
            os.sync()
            target = self.folder / "copied"
            selection = time_command("cp", "-a", app, target)
            shutil.rmtree(target)
            return selection

        return side

    def in_turns(self, sides: dict[str, Side]) -> dict[str, list[Timing]]:
        """Every side once per round; the first round only warms up."""
        results: dict[str, list[Timing]] = {name: [] for name in sides}
        for number in range(self.rounds + 1):
            for name, side in sides.items():
                seconds, spent = side()
                if number:
                    results[name].append((seconds, spent))
                text = "warm-up" if number == 0 else f"round {number}"
                print(f"  {text}: {name} {seconds:.2f} s, {spent:.2f} s of CPU", file=sys.stderr, flush=True)
        return results

    def drop(self, stores: int, size: int) -> dict[str, list[Timing]]:
        app = self.create("drop", shape(stores, size))
        floors = {f"floor, {pool}": self.floor(app, "drop", pool) for pool in self.pools}
        return self.in_turns({"kstate": self.migrate(app, "4.2"), **floors})

    def size(self, stores: int, small: int, large: int) -> dict[str, list[Timing]]:
        sides = {
            f"kstate, {size // MIB} MiB": self.migrate(self.create(f"size-{size}", shape(stores, size)), "4.2")
            for size in (small, large)
        }
        return self.in_turns(sides)

    def rewrite(self, stores: int, size: int) -> dict[str, list[Timing]]:
        app = self.create("rewrite", shape(stores, size))
        floors = {
            f"bare compaction, {checksum}, {pool}": self.floor(app, f"compact-{checksum}", pool)
            for checksum in ("CRC32c", "XXH3")
            for pool in self.pools
        }
        return self.in_turns({"kstate": self.migrate(app, "3.9"), **floors, "cp -a": self.copied(app)})


def shape(stores: int, size: int) -> Shape:
    """A fifth key-value stores, the rest segments, in four or eight tasks."""
    tasks = 8 if stores >= 40 else 4
    each = stores // tasks
    key_value = max(1, each // 5)
    windows = 2 if each - key_value >= 2 else 1
    return Shape(tasks, key_value, windows, max(1, (each - key_value) // windows), size)


def report(name: str, results: dict[str, list[Timing]]) -> dict[str, object]:
    """Prints a table; the first side is compared with each other one."""
    clock = {side: median(seconds for seconds, _ in timings) for side, timings in results.items()}
    cpu = {side: median(spent for _, spent in timings) for side, timings in results.items()}
    first = next(iter(results))
    print(f"{name}:")
    for side, selection in results.items():
        low, high = min(selection)[0], max(selection)[0]
        line = f"  {side:<32} {clock[side]:7.2f} s  ({low:.2f} to {high:.2f})  {cpu[side]:7.2f} s of CPU"
        if side != first:
            line += f"  ratio {clock[first] / clock[side]:.2f}, of CPU {cpu[first] / cpu[side]:.2f}"
        print(line)
    return {"bench": name, "seconds": clock, "cpu_seconds": cpu, "rounds": results, "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.migrate")
    parser.add_argument("what", nargs="*", default=["drop", "size", "rewrite"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-migrate"))
    parser.add_argument("--stores", type=int, default=200)
    parser.add_argument("--rewrite-stores", type=int, default=16)
    parser.add_argument("--small", type=int, default=50, metavar="MIB")
    parser.add_argument("--large", type=int, default=5120, metavar="MIB")
    parser.add_argument("--rewrite", type=int, default=2048, metavar="MIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pools", nargs="+", default=["processes"], choices=("processes", "threads"))
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    bench = Bench(args.folder, args.workers, args.rounds, args.pools)
    try:
        for subject in args.what:
            if subject == "drop":
                drop = bench.drop(args.stores, args.small * MIB)
            elif subject == "size":
                drop = bench.size(args.stores, args.small * MIB, args.large * MIB)
            else:
                drop = bench.rewrite(args.rewrite_stores, args.rewrite * MIB)
            print(json.dumps(report(subject, drop)), flush=True)
            for path in args.folder.iterdir():
                shutil.rmtree(path)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""How fast ``kstate verify`` is beside a loop that only iterates: ``python -m tests.bench.verify``.

Every side reads the same stores with as many processes, each side as a process of its own with its start, in turns in
one run. ``RdictIter`` calls valid, key, value and next for each row, the only loop of rocksdict that can tell a damaged
block from the end; ``items`` is its quickest one, which cannot. The median of each side is shown, with the ratio of
speeds: 1 is as fast as the loop. What verify needs to start is in it, so that little data makes the ratio worse. On a
machine that others use, the ratio of processor times tells more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from . import trees
from .migrate import MIB, Bench, Side, Timing, shape, time_command


def loop(path: str, api: str) -> int:
    """Rows of all column families of one database."""
    from rocksdict import AccessType, Options, Rdict

    names = Rdict.list_cf(path, Options(raw_mode=True))
    database = Rdict(
        path,
        Options(raw_mode=True),
        column_families={name: Options(raw_mode=True) for name in names},
        access_type=AccessType.read_only(False),
    )
    rows = 0
    for name in names:
        family = database.get_column_family(name)
        if api == "items":
            for _key, _value in family.items():
                rows += 1
        else:
            iterator = family.iter()
            iterator.seek_to_first()
            while iterator.valid():
                iterator.key()
                iterator.value()
                rows += 1
                iterator.next()
            iterator.status()
    return rows


def loops(app: Path, api: str, workers: int) -> None:
    paths = sorted(map(str, trees.databases(app)), key=lambda path: -_size(Path(path)))
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        print(sum(pool.map(loop, paths, [api] * len(paths), chunksize=1)))


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.sst"))


class VerifyBench(Bench):
    """Sides that read one application."""

    def sides(self, app: Path) -> dict[str, list[Timing]]:
        def verify(*more: str) -> Side:
            command = (sys.executable, "-m", "kstate_cli", "verify", app, "-o", "json", "-q", "--workers", self.workers)
            return lambda: time_command(*command, *more)

        def bare(api: str) -> Side:
            return lambda: time_command(
                sys.executable, "-m", "tests.bench.verify", "--loop", api, "--app", app, "--workers", self.workers
            )

        return self.in_turns(
            {
                "kstate verify": verify(),
                "kstate verify --each-sst": verify("--each-sst"),
                "loop, RdictIter": bare("RdictIter"),
                "loop, items": bare("items"),
            }
        )


def report(name: str, results: dict[str, list[Timing]]) -> dict[str, object]:
    """Prints a table; speeds are compared with those of the loops."""
    clock = {side: median(seconds for seconds, _ in selection) for side, selection in results.items()}
    cpu = {side: median(spent for _, spent in selection) for side, selection in results.items()}
    ratios = {
        f"{side} / {bare}": (round(clock[bare] / clock[side], 2), round(cpu[bare] / cpu[side], 2))
        for side in clock
        for bare in clock
        if side.startswith("kstate") and bare.startswith("loop")
    }
    print(f"{name}:")
    for side, choice in results.items():
        print(
            f"  {side:<26} {clock[side]:7.2f} s  ({min(choice)[0]:.2f} to {max(choice)[0]:.2f})  {cpu[side]:7.2f} s of CPU"
        )
    for pair, (by_clock, by_cpu) in ratios.items():
        print(f"  {pair:<46} {by_clock:.2f}, of CPU {by_cpu:.2f}")
    return {
        "bench": name,
        "seconds": clock,
        "cpu_seconds": cpu,
        "speed_ratio": {pair: by_clock for pair, (by_clock, _) in ratios.items()},
        "speed_ratio_of_cpu": {pair: by_cpu for pair, (_, by_cpu) in ratios.items()},
        "rounds": results,
        "cores": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verify")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-verify"))
    parser.add_argument("--stores", type=int, default=16)
    parser.add_argument("--size", type=int, default=2048, metavar="MIB")
    parser.add_argument("--values", type=int, nargs="+", default=[100, 1000], metavar="BYTES")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--loop", choices=("RdictIter", "items"), help=argparse.SUPPRESS)
    parser.add_argument("--app", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.loop:
        loops(args.app, args.loop, args.workers)
        return
    args.folder.mkdir(parents=True)
    bench = VerifyBench(args.folder, args.workers, args.rounds, [])
    try:
        for size in args.values:
            trees.VALUE_BYTES = size
            app = bench.create(f"values-{size}", shape(args.stores, args.size * MIB))
            sides = bench.sides(app)
            print(json.dumps(report(f"verify, values of {size} bytes, {args.size} MiB", sides)), flush=True)
            shutil.rmtree(app.parent)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

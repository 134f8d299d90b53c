"""Run rounds: ``python -m tests.loop --rounds 1000 --seed 1``; ``--worlds 17`` repeats the rounds of that world."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .calls import Calls, temporary_folder
from .figures import figures, read_record
from .logs import cleaning_broker
from .run_worlds import DISKS, ROUNDS, disk_rounds, run_world

RECORD = Path(__file__).with_name("rounds.jsonl")
_PER_BROKER = 25
"""Worlds after which the broker starts again with an empty disk."""


def main() -> int:
    """Return 1 if rows were wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.loop", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--worlds", help="FIRST-LAST, or one: only these")
    parser.add_argument("--record", type=Path, help=f"lines are appended, as to {RECORD.name}")
    parser.add_argument("--folder", help="where directories are made; a tmpfs is quick")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no world after so many")
    parser.add_argument("--at-once", type=int, default=3, help="worlds that run at the same time")
    parser.add_argument("--disks", type=float, default=DISKS, help="share of worlds whose broker's disk is restored")
    parser.add_argument("--figures", action="store_true", help="print the figures of the record, and run nothing")
    args = parser.parse_args()
    if args.figures:
        print(figures(read_record(args.record or RECORD)))
        return 0
    first, _, last = (args.worlds or f"0-{-(-args.rounds // ROUNDS) - 1}").partition("-")
    numbers = list(range(int(first), int(last or first) + 1))
    lines: list[dict[str, Any]] = []
    until = time.monotonic() + args.minutes * 60
    for begin in range(0, len(numbers), _PER_BROKER):
        with temporary_folder(args.folder) as name:
            _run(numbers[begin : begin + _PER_BROKER], args, Path(name), until, lines)
    print(figures(lines))
    return 1 if any(line["wrong"] for line in lines) else 0


def _run(
    numbers: list[int], namespace: argparse.Namespace, folder: Path, until: float, lines: list[dict[str, Any]]
) -> None:
    """Run worlds of one broker: several at once, and those that kill it by themselves."""
    seeds = {number: f"{namespace.seed}-{number}" for number in numbers}
    disks = {number: disk_rounds(seed, disks=namespace.disks) for number, seed in seeds.items()}
    with cleaning_broker(folder / "broker") as broker, Calls(folder / "calls") as calls:

        def run(number: int) -> None:
            if time.monotonic() > until:
                return
            world = folder / f"world-{number}"
            line = run_world(seeds[number], broker, calls, world, disk=disks[number])
            lines.append(line)
            print(f"world {number}: {line['rounds']}, {line['seconds']} s, wrong {len(line['wrong'])}", flush=True)
            print("".join(f"{text}\n" for text in line["wrong"]), end="", flush=True)
            if namespace.record:
                with namespace.record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")

        alone = [number for number in numbers if disks[number] is not None]
        with ThreadPoolExecutor(namespace.at_once) as pool:
            list(pool.map(run, [number for number in numbers if number not in alone]))
        for number in alone:
            run(number)


if __name__ == "__main__":
    sys.exit(main())

"""Run the next worlds: ``python -m tests.worlds --count 100``; a seed on record is not run again."""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.walker.commands import Commands

from .draw import GROUP, world
from .farm import Farm
from .figures import RECORD, figures, read_record
from .run import run, shrink

_PER_BROKER = 4
"""Groups after which the broker starts again: its topics cost memory."""


def main() -> int:
    """Return 1 if a world went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.worlds", description=__doc__)
    parser.add_argument("--count", type=int, default=GROUP, help="worlds to run, after those on record")
    parser.add_argument("--seeds", help="FIRST-LAST instead: these, even if they are on record")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no group of worlds after so many")
    parser.add_argument("--record", type=Path, default=RECORD, help="lines are appended")
    parser.add_argument(
        "--saved", type=Path, default=Path("worlds-saved"), help="directories of worlds that went wrong"
    )
    parser.add_argument("--folder", help="where worlds live; a tmpfs is quick")
    parser.add_argument("--no-shrink", action="store_true", help="do not search for fewer steps that go wrong")
    parser.add_argument("--figures", action="store_true", help="print the figures of the record, and run nothing")
    args = parser.parse_args()
    if args.figures:
        print(figures(read_record(args.record)))
        return 0
    until = time.monotonic() + args.minutes * 60
    wrong = 0
    groups = [list(group) for _, group in itertools.groupby(_seeds(args), key=lambda seed: seed // GROUP)]
    with tempfile.TemporaryDirectory(prefix="worlds-", dir=args.folder) as folder:
        for begin in range(0, len(groups), _PER_BROKER):
            if time.monotonic() > until:
                break
            with Farm() as farm, Commands() as commands:
                for seeds in groups[begin : begin + _PER_BROKER]:
                    if time.monotonic() < until:
                        wrong += _group(farm, commands, seeds, args, Path(folder))
    print(figures(read_record(args.record)))
    return 1 if wrong else 0


def _seeds(namespace: argparse.Namespace) -> Iterator[int]:
    if namespace.seeds:
        first, _, last = namespace.seeds.partition("-")
        yield from range(int(first), int(last or first) + 1)
        return
    present = {line["seed"] for line in read_record(namespace.record)}
    yield from itertools.islice((seed for seed in itertools.count() if seed not in present), namespace.count)


def _group(farm: Farm, commands: Commands, seeds: list[int], namespace: argparse.Namespace, folder: Path) -> int:
    lines = run(farm, commands, [world(seed) for seed in seeds], folder)
    wrong = 0
    for line in lines:
        print(f"world {line['seed']}: {line['verdict']}, {line['compared']} compared, {line['seconds']} s", flush=True)
        if line["verdict"] != "right":
            wrong += 1
            print("".join(f"  {text}\n" for text in line["wrong"]), end="", flush=True)
            if not namespace.no_shrink:
                line["shrunk"] = shrink(farm, commands, line, folder)
                print(f"  shrunk: {line['shrunk']}", flush=True)
            target = namespace.saved / f"world-{line['seed']}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder / f"world-{line['seed']}", target, ignore_dangling_symlinks=True)
            shutil.rmtree(folder / f"world-{line['seed']}", ignore_errors=True)
        with namespace.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main())

"""Walks as many seeds as asked for: `python -m tests.walker --seeds 0-499`, or one walk again: `--walk "GOLDEN STEP…"`."""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from pathlib import Path

from .commands import Commands
from .walk import generate, parse, shrink, walk


def main() -> int:
    """Exit status 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.walker", description=__doc__)
    parser.add_argument("--seeds", default="0-99", help="FIRST-LAST")
    parser.add_argument("--walk", help="the text of a walk that went wrong")
    parser.add_argument("--shrink", action="store_true", help="look for the shortest walk that still goes wrong")
    parser.add_argument("--folder", help="where the directories lie; a tmpfs is quick")
    parser.add_argument("--told", action="store_true", help="say what happened also when nothing was wrong")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    seeds = [0] if args.walk else range(int(first), int(last or first) + 1)
    wrong, commands_run, steps, begin = 0, 0, 0, time.monotonic()
    kinds: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="walker-", dir=args.folder) as folder, Commands() as commands:
        for seed in seeds:
            entry = parse(args.walk) if args.walk else generate(seed)
            result = walk(entry, commands, Path(folder) / f"{seed}")
            commands_run += result.commands
            steps += len(entry.steps)
            kinds.update(step.name for step in entry.steps)
            if args.report and not result.wrong:
                print("\n".join(result.report))
            if not result.wrong:
                print(f"seed {seed}: {len(entry.steps)} steps, {result.commands} commands", flush=True)
                continue
            wrong += 1
            if args.shrink:
                entry = shrink(entry, commands, Path(folder))
                result = walk(entry, commands, Path(folder) / f"{seed}-again")
            print(
                f"seed {seed}: {entry}",
                *(f"  {line}" for line in result.report),
                f"  {result.wrong}",
                "",
                sep="\n",
                flush=True,
            )
    seconds = time.monotonic() - begin
    print(f"{len(seeds)} walks, {steps} steps, {commands_run} commands, {wrong} wrong, {seconds:.0f} s; {dict(kinds)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

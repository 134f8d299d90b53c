"""Kill as many seeds as asked for: ``python -m tests.kills --seeds 0-49``; a seed on record is not run again."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import kill
from .farm import Farm
from .figures import Figures, read_record
from .seeds import seed_of

RECORD = Path(__file__).with_name("kills.jsonl")
_PER_BROKER = 4
"""Seeds after which the broker starts again: its topics cost memory."""


def main() -> int:
    """Return 1 if kstate lost a row, or ``check`` did not predict that Streams would."""
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--seeds", default="0-9", help="FIRST-LAST")
    parser.add_argument("--victims", type=int, default=12, help="applications that die together")
    parser.add_argument("--record", type=Path, default=RECORD, help="lines are appended; its seeds are not run again")
    parser.add_argument("--saved", type=Path, help="directories of seeds that lost a row are moved there")
    parser.add_argument("--folder", help="where the directories are made; a tmpfs is quick")
    parser.add_argument("--figures", action="store_true", help="print the figures of the record, and run nothing")
    args = parser.parse_args()
    if args.figures:
        print(Figures.of(read_record(args.record)))
        return 0
    first, _, last = args.seeds.partition("-")
    seeds = {line["seed"] for line in read_record(args.record)}
    numbers = [number for number in range(int(first), int(last or first) + 1) if number not in seeds]
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="kills-", dir=args.folder) as folder:
        for begin in range(0, len(numbers), _PER_BROKER):
            with Farm() as farm:
                for number in numbers[begin : begin + _PER_BROKER]:
                    wrong += _single(farm, number, args, Path(folder) / str(number))
    print(Figures.of(read_record(args.record)))
    return 1 if wrong else 0


def _single(farm: Farm, number: int, namespace: argparse.Namespace, folder: Path) -> int:
    began = time.monotonic()
    outcomes = kill.run(farm, seed_of(number, namespace.victims), folder)
    with namespace.record.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(outcome.line) + "\n" for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if outcome.kstate or outcome.unpredicted]
    losses = sum(bool(outcome.streams) for outcome in outcomes)
    print(
        f"seed {number}: {len(outcomes)} kills, Streams lost rows of {losses}, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    for outcome in wrong:
        print(f"  {outcome.victim.name}: kstate {outcome.kstate}, not predicted {outcome.unpredicted}", flush=True)
    if wrong and namespace.saved:
        shutil.rmtree(namespace.saved / str(number), ignore_errors=True)
        shutil.move(folder, namespace.saved / str(number))
    shutil.rmtree(folder, ignore_errors=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())

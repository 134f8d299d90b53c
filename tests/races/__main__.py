"""
Let commands meet each other and real Kafka Streams: ``python -m tests.races --pairs 600 --streams 300``.

Each race is a line of the record, ``races.jsonl``; races that it has are not run again, so the search may be stopped at any moment.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.forked import Kstate
from tests.interop.harness import Harness

from . import pairs, starts
from .record import RECORD, add, rows


def main() -> int:
    """Run what the record lacks, and print figures; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=600, help="begin no race after this time")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    end = time.monotonic() + options.minutes * 60
    recorded = rows(options.record)
    with tempfile.TemporaryDirectory(prefix="kstate-races-") as folder, Kstate() as here, Kstate() as there:
        course = pairs.Course(Path(folder) / "pairs", here, there)
        for race in pairs.races(options.pairs):
            if race.key not in recorded and time.monotonic() < end:
                add(course.run(race), options.record)
        if options.streams:
            with Harness() as harness:
                lab = starts.Lab(Path(folder) / "streams", here, harness)
                for race in starts.races(options.streams):
                    if race.key not in recorded and time.monotonic() < end:
                        add(lab.run(race), options.record)
    record = rows(options.record).values()
    figures = Counter((row.kind, row.first, row.second, row.statuses) for row in record)
    for (kind, first, second, statuses), count in sorted(figures.items()):
        print(f"{kind:8} {first:14} {second:18} {statuses!s:10} {count:5}")
    wrong = sum(bool(row.wrong) for row in record)
    print(f"{len(record)} races, {wrong} wrong, {sum(row.seconds for row in record) / 60:.0f} minutes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

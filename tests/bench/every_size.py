"""What a record costs in dumps of several sizes: the whole command, each time as many records of each key.

    python -m tests.bench.every_size --folder DIR [--records 20000000 250000000] [--rounds 3] [--engine local]

With ``--engine local`` nothing is hidden in the start of Spark: that of Python, the plan, the digests, slices, databases
and the switch are in each figure. *From the disk*: the dump alone was just put out of the page cache.
Prints a line for each run, then medians, and what each is of the first size. Nothing is asserted.

250 million records take 34 GB, and while they are restored as much again.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

from .make_dump import make_dump
from .restore import APP, GIB, VALUE_BYTES, kstate

RECORDS_OF_A_KEY = 4


def out_of_the_cache(dump: Path) -> None:
    """What is not read again soon, and clean, is dropped file by file: whoever may read may do that."""
    for file in dump.rglob("*.parquet"):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def into_the_cache(dump: Path) -> None:
    """As far as it has room."""
    for file in dump.rglob("*.parquet"):
        with open(file, "rb", buffering=0) as source:
            while source.read(1 << 22):
                pass


def main() -> None:
    """The whole benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where dumps are, or are made")
    parser.add_argument("--records", type=int, nargs="+", default=[20_000_000, 250_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", type=int, default=3 * GIB)
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    dumps = {count: arguments.folder / f"dump-{count}" for count in arguments.records}
    for count, dump in dumps.items():
        if not dump.exists():
            keys = count // RECORDS_OF_A_KEY
            topic = f"{APP}-bulk-changelog"
            make_dump(dump, topic, records=count, keys=keys, value_bytes=VALUE_BYTES, partitions=2)
    told: dict[tuple[int, str], list[float]] = {}
    for _ in range(arguments.rounds):
        for count, dump in dumps.items():
            for where, prepare in (("page cache", into_the_cache), ("disk", out_of_the_cache)):
                prepare(dump)
                took = kstate(arguments.folder, dump, arguments.memory, engine=arguments.engine)["whole"]
                told.setdefault((count, where), []).append(took)
                print(f"{count:>12,} from the {where:10} {took:7.1f} s", flush=True)
    for (count, where), times in told.items():
        took = statistics.median(times)
        first = statistics.median(told[arguments.records[0], where]) / arguments.records[0]
        print(
            f"{count:>12,} from the {where:10} {took:7.1f} s (median)"
            f"  {count / took / 1e6:5.2f} M records/s, {first / (took / count):.2f} of the first size"
        )


if __name__ == "__main__":
    main()

"""What a record costs in dumps of several sizes: the whole command, each time as many records of each key.

    python -m tests.bench.every_size --folder DIR [--records 20000000 250000000] [--rounds 3] [--engine spark local]

With ``local`` nothing is hidden in the start of Spark: that of Python, the plan, the digests, slices, databases and the
switch are in each figure. With ``spark`` there is a second figure, without that start. *Disk*: the dump alone was just
put out of the page cache; what that has no room for is read from nowhere else. Sizes and engines in turns. Prints a line
for each run, then medians, and what the rate of each is of that of the first size. Nothing is asserted.

250 million records take 34 GB, and while they are restored up to 21 GB more.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from pathlib import Path

from kstate_cli.host import memory_here

from .make_dump import make_dump
from .restore import APP, GIB, VALUE_BYTES, kstate

RECORDS_OF_A_KEY = 4
CACHED_PART = 0.75
"""The part of a host's memory that may be page cache for long."""


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
    parser.add_argument("--engine", choices=["spark", "local"], nargs="+", default=["local"])
    arguments = parser.parse_args()
    arguments.folder.mkdir(exist_ok=True)
    dumps = {count: arguments.folder / f"dump-{count}" for count in arguments.records}
    for count, dump in dumps.items():
        if not dump.exists():
            keys = count // RECORDS_OF_A_KEY
            topic = f"{APP}-bulk-changelog"
            make_dump(dump, topic, records=count, keys=keys, value_bytes=VALUE_BYTES, partitions=2)
    numbers: dict[tuple[int, str, str], list[float]] = {}
    for _ in range(arguments.rounds):
        for count, dump in dumps.items():
            for where, prepare in places(dump):
                for engine in arguments.engine:
                    prepare(dump)
                    seconds = kstate(arguments.folder, dump, arguments.memory, engine=engine)
                    for text in ("whole", "without spark") if engine == "spark" else ("whole",):
                        numbers.setdefault((count, where, f"{engine}, {text}"), []).append(seconds[text])
                        print(f"{count:>12,}  {where:10}  {engine}, {text:13} {seconds[text]:7.1f} s", flush=True)
    report(numbers, arguments.records[0])


def report(numbers: dict[tuple[int, str, str], list[float]], first_size: int) -> None:
    """Medians, and what they are of those of the first size."""
    for (count, where, subject), times in numbers.items():
        rate = count / statistics.median(times)
        ratios = ""
        for place in ("page cache", "disk"):
            first = numbers.get((first_size, place, subject))
            if first is not None:
                of_first = rate * statistics.median(first) / first_size
                ratios += f"  {of_first:.2f} of the first size from the {place}"
        print(
            f"{count:>12,}  {where:10}  {subject:20} {statistics.median(times):7.1f} s"
            f" ({min(times):.1f} to {max(times):.1f})  {rate / 1e6:5.2f} M records/s{ratios}"
        )


def places(dump: Path) -> list[tuple[str, Callable[[Path], None]]]:
    """Where it can be read from."""
    from_disk: list[tuple[str, Callable[[Path], None]]] = [("disk", out_of_the_cache)]
    if sum(path.stat().st_size for path in dump.rglob("*.parquet")) > memory_here() * CACHED_PART:
        return from_disk
    return [("page cache", into_the_cache), *from_disk]


if __name__ == "__main__":
    main()

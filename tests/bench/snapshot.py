"""How fast snapshots are taken and restored, beside `cp -a` with sync and `kstate restore --from-changelog`.

    python -m tests.bench.snapshot [--records 20000000] [--keys 5000000] [--rounds 3] [--folder DIR]

Whole commands, in turns, so that a busy machine is unfair to none:

- *dump*: the directory is rebuilt from the dump;
- *cp*: `cp -a` of the directory, then sync;
- *snapshot restore*: the lost directory is restored from the snapshot;
- *second snapshot*: after one percent of new records, with the bytes that it adds for each byte of these records;
- *snapshot and tail*: the lost directory, and the new records of a dump, in one run.

The restoration by Kafka Streams itself is measured by ``tests.bench.restore`` and ``tests.bench.lost_to_running``.
Prints a table and a line of JSON. Nothing is asserted: figures are read by people.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .make_dump import make_dump
from .restore import APP, SPEC, VALUE_BYTES

NEW = 0.01
KEY_BYTES = 12


def time_work(work: Callable[[], object]) -> float:
    """Seconds of some work, begun after everything before is on disk."""
    os.sync()
    began = time.monotonic()
    work()
    return time.monotonic() - began


def kstate(*arguments: object) -> dict[str, Any]:
    """Run a command; return its last line."""
    process = subprocess.run(
        [sys.executable, "-m", "kstate_cli", *map(str, arguments), "-o", "json", "--quiet", "--warnings-ok"],
        check=True,
        capture_output=True,
        text=True,
    )
    last: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return last


def lose(app: Path) -> None:
    """Remove the directory with everything that kstate keeps for undo."""
    shutil.rmtree(app.parent)
    app.parent.mkdir()


def copy(app: Path, target: Path) -> None:
    """Copy as an administrator would."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", app, target], check=True)
    subprocess.run(["sync"], check=True)


def measure(folder: Path, records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Return the figures of all rounds."""
    more = int(records * (1 + NEW))
    first, later = folder / "first", folder / "later"
    for dump, count in ((first, records), (later, more)):
        dump.mkdir()
        make_dump(dump, f"{APP}-bulk-changelog", records=count, keys=keys, value_bytes=VALUE_BYTES, partitions=2)
    spec, repository = folder / "kstate.toml", folder / "repository"
    spec.write_text(SPEC)
    app = folder / "state" / APP
    app.parent.mkdir()
    options = ("--for", "4.3", "--spec", spec, "--engine", "local")
    old = ("--from-snapshot", repository, "--accept-resurrected")
    seconds: dict[str, list[float]] = {}

    def report(side: str, value: float) -> None:
        seconds.setdefault(side, []).append(value)
        print(f"{side}: {value:.2f} s", flush=True)

    report("dump", time_work(lambda: kstate("restore", app, "--from-changelog", first, *options)))
    size = sum(path.stat().st_size for path in app.rglob("*") if path.is_file())
    report("first snapshot", time_work(lambda: kstate("snapshot", app, "--out", repository)))
    for _ in range(rounds):
        report("cp", time_work(lambda: copy(app, folder / "copy")))
        lose(app)
        report("snapshot restore", time_work(lambda: kstate("restore", app, *old)))
        lose(app)
        report(
            "snapshot and tail", time_work(lambda: kstate("restore", app, *old, "--from-changelog", later, *options))
        )
        lose(app)
        kstate("restore", app, *old)
    kstate("restore", app, "--from-changelog", later, *options, "--accept-resurrected")
    summary: dict[str, Any] = {}
    report("second snapshot", time_work(lambda: summary.update(kstate("snapshot", app, "--out", repository))))
    new_records = (more - records) * (VALUE_BYTES + KEY_BYTES)
    return {
        "bytes": size,
        "new_bytes": summary["new_bytes"],
        "amplification": round(summary["new_bytes"] / new_records, 2),
        "seconds": {side: round(statistics.median(values), 2) for side, values in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kstate-bench-", dir=options.folder) as folder:
        print(json.dumps(measure(Path(folder), options.records, options.keys, options.rounds)))


if __name__ == "__main__":
    main()

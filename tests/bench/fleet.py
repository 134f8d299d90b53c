"""
`kstate fleet` over many hosts: wall and processor seconds of the whole command, in every form that it prints.

    python -m tests.bench.fleet [--hosts 100] [--tasks 50] [--stores 4] [--rounds 3]

The listings are made up: what `ls -o json` says has one form, whatever wrote the directory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.fleet.made_up import listing

FORMS = {"table": (), "by task": ("--by", "task"), "json": ("-o", "json"), "html": ("--html", "page.html", "-q")}


def write_listings(folder: Path, hosts: int, tasks: int, stores: int) -> list[str]:
    """A file for each host, which has ``tasks`` of its own."""
    names = tuple(f"store-{number}" for number in range(stores))
    for host in range(hosts):
        own = [f"{at % 5}_{host * tasks // 5 + at // 5}" for at in range(tasks)]
        (folder / f"web-{host}.json").write_text(listing(*own, host=f"web-{host}", stores=names), encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


def time_call(folder: Path, words: list[str]) -> tuple[float, float]:
    """Wall and processor seconds of one call, which finds nothing wrong."""
    began, before = time.monotonic(), os.times()
    path = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-m", "kstate_cli", "fleet", *words]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - began, spent


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("--hosts", 100), ("--tasks", 50), ("--stores", 4), ("--rounds", 3)):
        parser.add_argument(name, type=int, default=usual)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kstate-fleet-") as name:
        folder = Path(name)
        files = write_listings(folder, args.hosts, args.tasks, args.stores)
        size = sum((folder / file).stat().st_size for file in files)
        for form, words in FORMS.items():
            rounds = [time_call(folder, [*files, *words]) for _ in range(args.rounds)]
            wall, spent = (min(entry) for entry in zip(*rounds, strict=True))
            row = {"form": form, "bytes": size, "wall": round(wall, 2), "processor": round(spent, 2)}
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

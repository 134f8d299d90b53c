"""The commands before a change and after it, in turns in one run: ``python -m tests.bench.before_and_after TREE``.

``TREE`` is another checkout of kstate (``git worktree add TREE COMMIT``), run with the packages of this environment. Each
side is a process of its own with its start and a ``sync`` at its end, on the same data; medians. ``help``, ``ls`` (200
stores of 250 kB), ``query`` (the first row by a key), ``export`` (keys and values by string and long, one worker),
``verify``, ``migrate-4.2`` (200 stores) and ``migrate-3.9`` are measured, or those that are named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from . import trees
from .export import TIMESTAMP_AND_LONG
from .migrate import MIB, ROOT, Bench, Side, Timing, report, shape, time_command
from .query import ROW_BYTES, STORE, write_store
from .trees import clone

SUBJECTS = ("help", "ls", "query", "export", "verify", "migrate-4.2", "migrate-3.9")


class BeforeAndAfter(Bench):
    """Measurements of two checkouts."""

    def __init__(self, folder: Path, namespace: argparse.Namespace) -> None:
        super().__init__(folder, namespace.workers, namespace.rounds, [])
        self.trees = {"before": namespace.tree.absolute(), "after": ROOT}
        self.rows: int = namespace.rows
        self.bytes: int = namespace.size * MIB

    def measured(self, subject: str) -> dict[str, list[Timing]]:
        data = self.data(subject)
        return self.in_turns({side: self.side(subject, tree, data) for side, tree in self.trees.items()})

    def data(self, subject: str) -> Path:
        trees.VALUE_BYTES = 1000
        if subject == "export":
            return write_store(self.folder, TIMESTAMP_AND_LONG, self.rows * (TIMESTAMP_AND_LONG + ROW_BYTES))
        if subject in ("ls", "migrate-4.2"):
            return self.create(subject, shape(200, 50 * MIB))
        if subject in ("verify", "migrate-3.9"):
            return self.create(subject, shape(16, self.bytes))
        return write_store(self.folder, 1000, MIB)

    def side(self, subject: str, tree: Path, app: Path) -> Side:
        kstate, copy, out = (sys.executable, "-m", "kstate_cli"), self.folder / "copy", self.folder / "out"
        if subject.startswith("migrate"):
            to = ("--to", subject.removeprefix("migrate-"), "-q", "-o", "json", "--workers", self.workers)
            return lambda: time_command(*kstate, "migrate", clone(app, copy), *to, tree=tree)
        words: dict[str, tuple[object, ...]] = {
            "help": ("--help",),
            "ls": ("ls", app, "-o", "json"),
            "query": ("query", "key", app, STORE, "key-000000007", "--key-serde", "string", "-o", "json"),
            "export": (
                *("export", app, STORE, "--out", out, "--overwrite", "-q", "--workers", 1),
                *("--key-serde", "string", "--value-serde", "long"),
            ),
            "verify": ("verify", app, "-q", "-o", "json", "--workers", self.workers),
        }
        return lambda: time_command(*kstate, *words[subject], tree=tree)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.before_and_after")
    parser.add_argument("tree", type=Path)
    parser.add_argument("what", nargs="*", default=SUBJECTS)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-before-and-after"))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=2048, metavar="MIB", help="of verify and of migrate-3.9")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    args.folder.mkdir(parents=True)
    try:
        for subject in args.what:
            print(json.dumps(report(subject, BeforeAndAfter(args.folder, args).measured(subject))), flush=True)
            for path in args.folder.iterdir():
                shutil.rmtree(path)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

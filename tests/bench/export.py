"""How fast ``kstate export`` writes a store beside a raw scan of it: ``python -m tests.bench.export``.

A timestamped key-value store with keys of 13 characters and values that are longs; the export reads them by ``string``
and ``long``. The scan is that of ``tests.bench.query``: one process, nothing rendered, nothing written. Each side is a
process of its own with its start and a ``sync`` at its end, in turns in one run; medians. The target is half of the
scan's rows a second with one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from .migrate import Bench, Side, Timing, report, time_command
from .query import ROW_BYTES, STORE, ours, write_store

TIMESTAMP_AND_LONG = 16


class ExportBench(Bench):
    """Sides that read one store."""

    def sides(self, app: Path) -> dict[str, list[Timing]]:
        out = self.folder / "out"

        def export(workers: int) -> Side:
            def side() -> Timing:
                shutil.rmtree(out, ignore_errors=True)
                serdes = ("--key-serde", "string", "--value-serde", "long")
                return time_command(
                    sys.executable, "-m", "kstate_cli", "export", app, STORE, "--out", out, *serdes, "-q",
                    "--workers", workers,
                )  # fmt: skip

            return side

        return self.in_turns(
            {
                "kstate export, 1 worker": export(1),
                f"kstate export, {self.workers} workers": export(self.workers),
                "raw scan": lambda: time_command(sys.executable, "-m", "tests.bench.export", "--scan", app),
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.export")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/bench-export"))
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--scan", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.scan:
        print(ours(args.scan))
        return
    args.folder.mkdir(parents=True)
    try:
        app = write_store(args.folder, TIMESTAMP_AND_LONG, args.rows * (TIMESTAMP_AND_LONG + ROW_BYTES))
        sides = ExportBench(args.folder, args.workers, args.rounds, []).sides(app)
        print(json.dumps(report(f"export of {args.rows:,} rows", sides)), flush=True)
    finally:
        shutil.rmtree(args.folder, ignore_errors=True)


if __name__ == "__main__":
    main()

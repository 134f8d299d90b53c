"""Kill ``kstate seed`` at many moments, complete it with the same command, and compare the new changelog each time.

    python -m tests.interop.seed_kills [MOMENTS]

Each moment follows a line of the journal by a random time, so every step of a run is hit: before the plan, between the
announcement of a topic and its creation, amid a transaction, the comparison, the settings and the offsets. A moment that
has passed is a line of seed-kills.jsonl, and a later call continues with the next one.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from .harness import Harness
from .seeding import Source, content, events
from .support import ROOT

RECORD: Final = Path(__file__).resolve().parent / "seed-kills.jsonl"
RECORDS: Final = 20_000
_DELAYS: Final = {"": 1.5, "planned": 0.3, "announced": 0.3, "created": 1.5, "verified": 0.5, "committing": 0.3}
"""Last line of the journal that is awaited -> the most seconds until the kill. The longest have most to interrupt."""
_SECONDS: Final = 300.0
_PROGRAM: Final = (
    "from kstate_cli.seed import writing; writing.TRANSACTION_RECORDS = 1_000; "
    "from kstate_cli.cli.start import main; main()"
)
"""kstate with small transactions, so that a kill leaves a part of the records committed."""


def passed_moments() -> list[dict[str, Any]]:
    """Return the moments that have passed."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text().splitlines()]


def _lines(source: Source) -> list[str]:
    if not source.journal.exists():
        return []
    # The last line may be incomplete.
    complete = source.journal.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line)["event"] for line in complete.splitlines()]


def kill(source: Source, event: str, delay: float) -> str:
    """Start a seed, kill it so many seconds after an event, and return the last event of its journal."""
    command = [sys.executable, "-c", _PROGRAM, *map(str, source.words())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    deadline = time.monotonic() + _SECONDS
    while event and event not in _lines(source) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    _, errors = process.communicate()
    assert b"Traceback" not in errors, errors
    return next(reversed(_lines(source)), "")


def main() -> None:
    """Go through the moments that have not passed."""
    moments = int(next(iter(sys.argv[1:]), 100))
    with Harness() as harness, tempfile.TemporaryDirectory() as folder:
        source = Source(harness, Path(folder), "kills").create(RECORDS // 2, 500)
        expected = content(harness, source.changelog)
        for number in range(len(passed_moments()), moments):
            chance = random.Random(number)
            event = list(_DELAYS)[number % len(_DELAYS)]
            delay = chance.uniform(0, _DELAYS[event])
            last = kill(source, event, delay)
            result = source.seed()
            assert events(source.journal)[-1] == "done"
            assert result.summary["records"] == RECORDS, result.report
            assert content(harness, f"{source.new}-count-changelog") == expected, number
            row = {"moment": number, "after": event, "ms": round(delay * 1000), "last": last}
            with RECORD.open("a") as record:
                record.write(json.dumps({**row, "written": result.summary["written"]}) + "\n")
            source.undo()
            source.journal.unlink()
    rows = passed_moments()
    resumed = sum(0 < row["written"] < RECORDS for row in rows)
    print(f"{len(rows)} moments: {dict(Counter(row['last'] for row in rows))}, {resumed} amid the records")


if __name__ == "__main__":
    main()

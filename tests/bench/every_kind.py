"""Each kind of store beside real Streams: ``python -m tests.bench.every_kind [--records 4000000] [--kind versioned …]``.

For each kind an application of real 4.3.1 has one store of it, and its changelog gets the records. Real Streams restores them with
a thread for each partition, in a JVM that is started for it (until RUNNING) and in one that has restored before (from RESTORING on);
kstate dumps the very same records once and restores that dump, in turns with Streams, each time as a process of its own. Real Streams
then starts on what kstate restored, and must restore nothing. Medians; seconds of kstate with and without Spark's start. Prints a
table and a line of JSON for each kind; of the figures nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from kstate_cli.formats.store_kinds import store_kind
from tests.interop.harness import Batch, Run

from .bulk import Bulk, bulk
from .restore import GIB, VALUE_BYTES, kstate

STORE: Final = "one"
PARTITIONS: Final = 2
RETENTION_MS: Final = 24 * 3_600_000
"""As in ``OneKind.java``."""

KINDS: Final = (
    "key-value", "timestamped-key-value", "headers-key-value", "foreign-key-subscription", "list-value", "versioned",
    "window", "timestamped-window", "headers-window", "time-ordered-window",
    "session", "headers-session", "time-ordered-session", "grace-buffer",
)  # fmt: skip
"""All that a topology can have by itself. Time-ordered ones with headers only the DSL makes."""


def spec(app: str, kind: str) -> str:
    """The application's ``kstate.toml``."""
    about = store_kind(kind)
    text = f"retention_ms = {RETENTION_MS}\n" if about.has_retention else ""
    indexed = "indexed = true\n" if about.key.time_ordered else ""
    return f"""format = 1
application = "{app}"
[stores.{STORE}]
kind = "{kind}"
subtopology = 0
partitions = {PARTITIONS}
{text}{indexed}"""


def nothing_is_restored(topic: Bulk, restored: Path) -> None:
    """Real Streams starts on what kstate has made."""
    shutil.rmtree(topic.state, ignore_errors=True)
    shutil.copytree(restored, topic.state)
    run = topic.harness.run_command(topic.app, topic.state, Run(read=False))
    summary = topic.call({**run, "timeout": 600}).of("summary")[-1]
    assert all(entry.endswith("=0") for entry in summary["restored"]), summary


def measure(folder: Path, kind: str, records: int, keys: int, rounds: int) -> dict[str, Any]:
    """One kind, in turns."""
    app, dump = f"one-{kind}-app", folder / "dump"
    ours: list[dict[str, float]] = []
    started: list[float] = []
    warm: list[float] = []
    batch = Batch(records=records, keys=keys, value_bytes=VALUE_BYTES)
    with bulk(folder, app, batch, f"one-{kind}", STORE) as topic:
        capture = ("dump", "--bootstrap-server", topic.bootstrap, "--topic", topic.topic, "--out", dump, "--quiet")
        subprocess.run(
            [sys.executable, "-m", "kstate_cli", *map(str, capture), "--engine", "local"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for _ in range(rounds):
            started.append(topic.started(PARTITIONS))
            warm.append(topic.restored(PARTITIONS)[0])
            ours.append(kstate(folder, dump, 3 * GIB, app, spec(app, kind)))
        nothing_is_restored(topic, folder / "kstate")
    whole = statistics.median(our["whole"] for our in ours)
    without = statistics.median(our["without spark"] for our in ours)
    return {"kind": kind, "records": records, "keys": keys, "started": statistics.median(started), "warm": statistics.median(warm),
            "whole": whole, "without_spark": without, "rounds": {"started": started, "warm": warm, "kstate": ours}}  # fmt: skip


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=KINDS, help="several times; all without")
    args = parser.parse_args()
    for kind in args.kind or KINDS:
        folder = Path(tempfile.mkdtemp(prefix="kstate-bench-"))
        try:
            entry = measure(folder, kind, args.records, args.keys, args.rounds)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(
            f"{kind:26} Streams {entry['started']:6.1f} s with its start, {entry['warm']:6.1f} s warm; kstate {entry['whole']:6.1f} s, "
            f"{entry['without_spark']:6.1f} s without Spark's start: {entry['started'] / entry['without_spark']:.1f} and "
            f"{entry['warm'] / entry['without_spark']:.1f} times as fast",
            flush=True,
        )
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    main()

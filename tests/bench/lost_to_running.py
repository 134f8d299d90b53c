"""
How long it takes from a lost state directory to RUNNING: Kafka Streams alone, with a dump, from a standby, and from a snapshot.

    python -m tests.bench.lost_to_running [--records 20000000] [--rounds 2] [--folder DIR]

One broker and one JVM for all sides, in turns. Each side begins without the state directory and ends when real Streams 4.3.1
is RUNNING: with the dump, ``kstate restore`` is counted whole, the start of its Python and of Spark too, and then Streams'
restoration of the records since. 5 % of the records came after the dump. It must restore those exactly, or the benchmark fails.
``cp -a`` of the standby with ``sync`` shows what a plain copy costs on this disk.
The first rounds are told apart: a dump, the standby's first round, and a round of it that brings 10,000 records.
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
from pathlib import Path

from tests.interop.harness import Batch, Run

from .bulk import FIRST_RECORDS, Bulk, bulk
from .restore import APP, SPEC, VALUE_BYTES

ROUND = 10_000
THREADS = 2
YOUNG_SHARE = 0.05


def kstate(*arguments: object) -> float:
    """Runs a command; the seconds that it took."""
    os.sync()
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "kstate_cli", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def copy_durably(source: Path, target: Path) -> float:
    """Copy a directory as an administrator would; return the seconds until it is on disk."""
    os.sync()
    began = time.monotonic()
    subprocess.run(["cp", "-a", source, target], check=True)
    subprocess.run(["sync"], check=True)
    return time.monotonic() - began


def to_running(topic: Bulk, state: Path, expected: int) -> float:
    """Starts real Streams on a state directory; seconds until it is RUNNING."""
    os.sync()
    run = topic.harness.run_command(topic.app, state, Run(read=False, conf={"num.stream.threads": str(THREADS)}))
    reply = topic.call({**run, "timeout": 3600})
    summary = reply.of("summary")[-1]
    total = sum(int(entry.rpartition("=")[2]) for entry in summary["restored"])
    assert total == expected, (total, expected, summary)
    return float(next(entry["ms"] for entry in reply.of("state") if entry["to"] == "RUNNING")) / 1000


def more(topic: Bulk, batch: Batch) -> None:
    """Records straight into the changelog."""
    topic.call({**batch.command(topic.app.topology, topic.app.input), "into": topic.topic})


def measure(folder: Path, records: int, keys: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each side, round by round."""
    young_records = int(records * YOUNG_SHARE)
    first = Batch(records=records - young_records - ROUND, keys=keys, value_bytes=VALUE_BYTES)
    numbers: dict[str, list[float]] = {}

    def report(side: str, seconds: float) -> None:
        numbers.setdefault(side, []).append(seconds)
        print(f"{side}: {seconds:.1f} s", flush=True)

    dump, standby, spec = folder / "dump", folder / "standby" / APP, folder / "kstate.toml"
    repository = folder / "repository"
    spec.write_text(SPEC)
    standby.parent.mkdir()
    options = ("--from-changelog", dump, "--for", "4.3", "--spec", spec, "--quiet")
    with bulk(folder, APP, first) as topic:
        capture = ("dump", "--bootstrap-server", topic.bootstrap, "--topic", topic.topic, "--out", dump, "--quiet")
        report("(kstate read the first dump)", kstate(*capture))
        report("(the standby's first round)", kstate("restore", standby, *options, "--standby"))
        more(topic, ten := Batch(ROUND, first.records, keys, VALUE_BYTES))
        report(f"(a dump of {ROUND:,} records)", kstate(*capture))
        report(f"(a round of the standby with {ROUND:,} records)", kstate("restore", standby, *options, "--standby"))
        report(
            "(a snapshot of the standby)", kstate("snapshot", standby, "--out", repository, "--quiet", "--warnings-ok")
        )
        more(topic, Batch(young_records, ten.first + ROUND, keys, VALUE_BYTES))
        total = records + FIRST_RECORDS
        for number in range(rounds):
            shutil.rmtree(topic.state, ignore_errors=True)
            report("real Streams alone", to_running(topic, topic.state, total))
            for side, engine in (("on Spark", ("--engine", "spark")), ("with --engine local", ("--engine", "local"))):
                shutil.rmtree(topic.state)
                topic.state.mkdir()
                restored = kstate("restore", topic.state / APP, *options, *engine)
                started = to_running(topic, topic.state, young_records)
                report(f"(kstate restore {side})", restored)
                report(f"from last night's dump, {side}", restored + started)
            shutil.rmtree(topic.state)
            report("(cp -a of the standby, and sync)", copy_durably(standby.parent, topic.state))
            report("from a standby", to_running(topic, topic.state, young_records))
            shutil.rmtree(topic.state)
            topic.state.mkdir()
            # The log is younger than its delete.retention.ms, but the snapshot was taken without a broker that says so.
            restored = kstate(
                "restore", topic.state / APP, "--from-snapshot", repository, "--accept-resurrected", "--quiet"
            )
            report("(kstate restore --from-snapshot)", restored)
            report("from a snapshot", restored + to_running(topic, topic.state, young_records))
            print(f"round {number + 1} of {rounds} is done", flush=True)
    return numbers


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where everything is made; temporary by default")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="kstate-bench-"))
    folder.mkdir(exist_ok=True)
    try:
        results = measure(folder, options.records, options.keys, options.rounds)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    of_streams = statistics.median(results["real Streams alone"])
    for side, seconds in results.items():
        median = statistics.median(seconds)
        print(f"{side:48} {median:8.1f} s, {median / of_streams:5.2f} of Streams' own")
    print(json.dumps({"records": options.records, "sides": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

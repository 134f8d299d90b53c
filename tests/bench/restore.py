"""How fast `kstate restore` is, against real Streams' own restore and against the limit of this machine.

    python -m tests.bench.restore [--records 20000000] [--keys 5000000] [--without-streams] [--folder DIR]

All in one run, sides in turn, so that a busy machine is unfair to none:

- *Streams*: real 4.3.1 restores the same number of such records from a broker on this machine, with 1 and 2 threads;
- *kstate*: the whole command, and without Spark's start;
- *limit*: the same slices made into sorted files by as many plain processes as there are cores, and the same databases built
  of them, without Spark, plan, staging, verification or switch.

Prints a table and a line of JSON. Nothing is asserted: figures are read by people.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from kstate_cli.change.edit import build_database
from kstate_cli.change.folder import read_runs
from kstate_cli.change.plan import BuildDatabase
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.releases import release
from kstate_cli.restore.planning.judge import Permissions
from kstate_cli.restore.planning.plan import RestoreOptions
from kstate_cli.restore.planning.planner import plan_restore
from kstate_cli.restore.running.steps import Slicing, make_jobs, to_steps
from kstate_cli.restore.sorting.memory import Slots, slot_memory
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.staging import Staging
from kstate_cli.specification.combine import resolve_spec
from kstate_cli.specification.toml_file import parse_draft

from .make_dump import make_dump

APP = "bulk-app"
SPEC = f"""format = 1
application = "{APP}"
[stores.bulk]
kind = "timestamped-key-value"
subtopology = 0
partitions = 2
"""
VALUE_BYTES = 100
GIB = 1024**3


def kstate(
    folder: Path, dump: Path, memory: int, name: str = APP, stores: str = SPEC, engine: str = "spark"
) -> dict[str, float]:
    """Seconds of the whole command, and of its parts by the journal."""
    app = folder / "kstate" / name
    shutil.rmtree(app.parent, ignore_errors=True)
    app.parent.mkdir()
    spec = folder / "kstate.toml"
    spec.write_text(stores)
    os.sync()
    command = [sys.executable, "-m", "kstate_cli", "restore", str(app), "--from-changelog", str(dump), "--for", "4.3"]
    began = time.monotonic()
    subprocess.run(
        [*command, "--spec", str(spec), "--memory", str(memory), "--engine", engine, "--quiet", "-o", "json"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    whole = time.monotonic() - began
    (run,) = read_runs(app)
    at = {event["state"]: datetime.fromisoformat(event["at"]) for event in run.events if event["event"] == "state"}
    spark = (at["RESTORING"] - at["REBALANCING"]).total_seconds()
    return {"whole": whole, "spark": spark, "without spark": whole - spark}


def limit(folder: Path, dump_path: Path, memory: int) -> dict[str, float]:
    """The same slices and databases in plain processes."""
    target = folder / "limit"
    shutil.rmtree(target, ignore_errors=True)
    app = target / APP
    app.mkdir(parents=True)
    cores = os.cpu_count() or 1
    to = release("4.3")
    dump = read_dump(str(dump_path), complete=False, committed_only=False)
    spec = resolve_spec(None, parse_draft(SPEC))
    plan = plan_restore(app, None, spec, dump, RestoreOptions(to, permissions=Permissions()))
    staging = Staging(str(target / "runs"))
    (target / "runs").mkdir()
    jobs = make_jobs(
        plan.work,
        Slicing(app, dump, to, staging.target, Slots(cores, slot_memory(memory, cores)), lambda p: (p, "")),
    )
    os.sync()
    began = time.monotonic()
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = list(pool.map(build_sorted_files, jobs))
        runs = time.monotonic() - began
        steps, _ = to_steps(plan.work, results, to, staging, target / "runs", app)
        builds = [step for step in steps if isinstance(step, BuildDatabase)]
        for submit in [pool.submit(build_database, step, app, app) for step in builds]:
            submit.result()
    os.sync()
    whole = time.monotonic() - began
    return {"whole": whole, "runs": runs, "slices": len(jobs), "rows": sum(f.rows for r in results for f in r.files)}


def streams(folder: Path, records: int, keys: int, rounds: int) -> dict[str, list[float]]:
    """Seconds that real Streams needs to restore such a changelog, with one thread and with two."""
    from tests.interop.harness import Batch

    from .bulk import bulk

    numbers: dict[str, list[float]] = {}
    with bulk(folder, APP, Batch(records=records, keys=keys, value_bytes=VALUE_BYTES)) as changelog:
        for _ in range(rounds):
            for threads in (1, 2):
                numbers.setdefault(str(threads), []).append(changelog.restored(threads)[0])
    return numbers


def main() -> None:
    """The whole benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000_000)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams-rounds", type=int, help="as --rounds by default")
    parser.add_argument("--memory", type=int, default=3 * GIB)
    parser.add_argument("--without-streams", action="store_true")
    parser.add_argument("--folder", type=Path, help="where everything is made; temporary by default")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="kstate-bench-"))
    folder.mkdir(exist_ok=True)
    try:
        dump = folder / "dump"
        if not dump.exists():
            make_dump(
                dump,
                f"{APP}-bulk-changelog",
                records=arguments.records,
                keys=arguments.keys,
                value_bytes=VALUE_BYTES,
                partitions=2,
            )
        times = 0 if arguments.without_streams else arguments.streams_rounds or arguments.rounds
        theirs = streams(folder, arguments.records, arguments.keys, times) if times else {}
        ours, limits = [], []
        for _ in range(arguments.rounds):
            ours.append(kstate(folder, dump, arguments.memory))
            limits.append(limit(folder, dump, arguments.memory))
        report(arguments, ours, limits, theirs)
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def report(
    arguments: argparse.Namespace,
    ours: list[dict[str, float]],
    limits: list[dict[str, float]],
    theirs: dict[str, list[float]],
) -> None:
    """Medians, and what they are to each other."""
    records = arguments.records
    whole = statistics.median(our["whole"] for our in ours)
    without = statistics.median(our["without spark"] for our in ours)
    bare = statistics.median(limit["whole"] for limit in limits)
    rows: dict[str, Any] = {"kstate": whole, "kstate without Spark's start": without, "limit": bare}
    rows |= {f"Streams, {threads} thread(s)": statistics.median(seconds) for threads, seconds in theirs.items()}
    for name, seconds in rows.items():
        print(f"{name:32} {seconds:8.1f} s  {records / seconds / 1e6:6.2f} M records/s")
    best = min((statistics.median(seconds) for seconds in theirs.values()), default=None)
    figures: dict[str, Any] = {"records": records, "keys": arguments.keys, "seconds": rows, "of_limit": bare / without}
    if best is not None:
        figures |= {"times_streams": best / without, "times_streams_with_spark": best / whole}
    print(json.dumps(figures | {"kstate": ours, "limit": limits, "streams": theirs}))


if __name__ == "__main__":
    main()

"""
Many snapshots of real applications under load, each compared with the log: python -m tests.interop.snapshot_campaign

Without arguments it continues until every round of CAMPAIGN is in the record: a round that was interrupted is repeated. A round
takes snapshots at random moments, ends the application with kill -9, restores each snapshot, and compares its rows and the rest of
the log with the whole log. One in ten is started with the real release. A difference ends the campaign, and keeps the folder.

    python -m tests.interop.snapshot_campaign [--case CASE]   several times; all without
    python -m tests.interop.snapshot_campaign --summary       print the figures of the record
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from .background import LONG_SESSIONS, Background, load
from .harness import App, Harness, Run
from .releases import number
from .snapshots import (
    AT_LEAST_ONCE,
    BATCH,
    SHORT_SESSIONS,
    SMALL,
    TOPOLOGY,
    TRANSACTIONAL,
    Case,
    Figures,
    Logs,
    Snapshot,
    Starts,
    Taking,
    compare_each,
    remove_half_created,
    restore,
    start_each,
    take,
)
from .support import good
from .test_beside_running import here

RECORD: Final = Path(__file__).resolve().parent / "snapshots.jsonl"
_LONGEST_PAUSE: Final = 1.0
_STARTED: Final = 10
"""One of so many snapshots is started."""
_IN_MEMORY: Final = ("kv-memory",)
_WITHOUT_CHANGELOG: Final = ("kv-nolog", *_IN_MEMORY)
_SHORT_TRANSACTIONS: Final = {"producer.transaction.timeout.ms": "5000"}
"""A transaction that a kill left open ends soon, so that the log can be read to its end."""


@dataclass(frozen=True)
class Rounds:
    """How often a case is run."""

    case: Case
    rounds: int
    title: str
    way: str = "parts"
    """parts: compare rows with the log; kinds: all kinds of stores, and the release judges; aborts: transactions end badly."""


CAMPAIGN: Final = {
    "4.3.1-alos": Rounds(Case("4.3.1", "alos", 45, options=AT_LEAST_ONCE), 3, "at-least-once"),
    "4.2.1-alos": Rounds(Case("4.2.1", "alos", 45, options=AT_LEAST_ONCE), 3, "at-least-once"),
    "4.4.0-eos-transactional": Rounds(
        Case("4.4.0", "eos", 45, {**TRANSACTIONAL, **_SHORT_TRANSACTIONS}), 3, "exactly-once, transactional"
    ),
    # Each of these rounds has four starts with three attempts: 60 attempts.
    "4.3.1-eos-aborts": Rounds(
        Case("4.3.1", "eos", 3, {"commit.interval.ms": "1500", **SHORT_SESSIONS}),
        5,
        "exactly-once, not transactional, with open and aborted transactions",
        "aborts",
    ),
    "4.4.0-alos-transactional": Rounds(Case("4.4.0", "alos", 10, TRANSACTIONAL), 1, "at-least-once, transactional"),
    "4.3.1-alos-kinds": Rounds(
        Case("4.3.1", "alos", 3, options=AT_LEAST_ONCE, topology="kinds", main=None),
        2,
        "at-least-once, all kinds",
        "kinds",
    ),
    "4.2.1-alos-kinds": Rounds(
        Case("4.2.1", "alos", 3, options=AT_LEAST_ONCE, topology="kinds", main=None),
        1,
        "at-least-once, all kinds",
        "kinds",
    ),
    "4.4.0-eos-kinds": Rounds(
        Case("4.4.0", "eos", 3, {**TRANSACTIONAL, **_SHORT_TRANSACTIONS}, topology="kinds", main=None),
        2,
        "exactly-once, transactional, all kinds",
        "kinds",
    ),
}


def parts_round(harness: Harness, app: App, case: Case, folder: Path, seed: int) -> tuple[Figures, dict[str, Any]]:
    """Run a round whose rows are compared with the log, and return its figures."""
    state, repository, figures = folder / "state", folder / "repository", Figures()
    harness.produce(case.release, app, BATCH)
    conf = {**SMALL, **LONG_SESSIONS, **case.conf}
    with Background(harness, case.release, app, state, Run(conf=conf, read=False)) as running:
        batch = BATCH.next()
        if case.is_warm:
            command = {"bootstrap": harness.bootstrap, **batch.command(app.topology, app.input), "behind": app.name}
            good(harness.jvm(case.release).call(command))
            batch = batch.next()
        with load(harness, case.release, app, batch):
            taking = Taking(case.snapshots, bootstrap=harness.bootstrap, longest_pause=_LONGEST_PAUSE, seed=seed)
            snapshots = take(state / app.name, repository, case, figures, taking)
            assert running.alive
        os.kill(running.pid, signal.SIGKILL)
    logs = Logs.read(harness, app, folder / "logs")
    offsets = compare_each(logs, repository, snapshots, figures, folder)
    chosen = random.Random(seed).sample(list(zip(snapshots, offsets, strict=True)), len(snapshots) // _STARTED)
    records = start_each(Starts(harness, case, app, folder), repository, chosen)
    return figures, {"started": len(chosen), "records_of_starts": records}


def aborts_round(harness: Harness, app: App, case: Case, folder: Path, seed: int) -> tuple[Figures, dict[str, Any]]:
    """Run a round in which transactions are open, aborted by a thread that fails, and ended by a kill."""
    state, repository, figures, batch = folder / "state", folder / "repository", Figures(), BATCH
    snapshots: list[Snapshot] = []
    kills = 0
    for place in range(4):
        harness.produce(case.release, app, batch)
        batch = batch.next()
        # With small buffers the first flush leaves status 1. With the default ones nothing is flushed.
        small = SMALL if place % 2 == 0 else {}
        run = Run(conf={**small, **case.conf}, read=False, options={"replace-thread": True})
        with Background(harness, case.release, app, state, run) as running:
            with load(harness, case.release, app, batch):
                taking = Taking(case.snapshots, case.snapshots, seed=10 * seed + place)
                snapshots += take(state / app.name, repository, case, figures, taking)
            batch = batch.next().next()
            if place >= 2:
                kills += 1
                os.kill(running.pid, signal.SIGKILL)
            else:
                good(running.finish())
        remove_half_created(state / app.name)
    compare_each(Logs.read(harness, app, folder / "logs"), repository, snapshots, figures, folder)
    return figures, {"kills": kills}


def kinds_round(harness: Harness, app: App, case: Case, folder: Path, seed: int) -> tuple[Figures, dict[str, Any]]:
    """Run a round with every kind of store: joins, grace buffers, foreign keys, a global store. The release judges."""
    state, repository, figures = folder / "state", folder / "repository", Figures()
    batch = replace(BATCH, records=400, keys=20)
    harness.produce(case.release, app, batch)
    conf = {**SMALL, **LONG_SESSIONS, **case.conf}
    with Background(harness, case.release, app, state, Run(conf=conf, read=False)) as running:
        with load(harness, case.release, app, batch.next()):
            taking = Taking(case.snapshots, bootstrap=harness.bootstrap, longest_pause=2, seed=seed)
            snapshots = take(state / app.name, repository, case, figures, taking)
            assert running.alive
        os.kill(running.pid, signal.SIGKILL)
    stores: Counter[str] = Counter()
    records = 0
    starts = Starts(harness, case, app, folder, ignore=_WITHOUT_CHANGELOG)
    for snapshot in snapshots:
        home = folder / snapshot.name
        restore(home / app.name, repository, snapshot)
        rows = [row for row in here("ls", home / app.name, "-o", "json").rows if row["type"] == "store"]
        stores.update(row["store"] for row in rows)
        offsets = {
            row["store"]: row["changelog"].get(f"{app.name}-{row['store']}-changelog", {}).get("0", -4)
            for row in rows
            if row["task"] != "global" and f"{app.name}-{row['store']}-changelog" in row["changelog"]
        }
        records += starts.start(home, offsets)
        shutil.rmtree(home)
    return figures, {"started": len(snapshots), "records_of_starts": records, "stores": dict(sorted(stores.items()))}


WAYS: Final = {"parts": parts_round, "aborts": aborts_round, "kinds": kinds_round}


def row_of(name: str, place: int) -> dict[str, Any]:
    """Run one round in a folder of its own, and return its line of the record."""
    rounds = CAMPAIGN[name]
    # The first round begins with the first record, where no offset exists yet; the others are in the middle of a run.
    case = replace(rounds.case, is_warm=place > 0)
    topology = f"{TOPOLOGY.partition(',')[0]}+failing,source-table" if rounds.way == "aborts" else case.topology
    app = App(f"campaign-{place}-{name.replace('.', '-')}", topology, case.guarantee)
    folder = Path(tempfile.mkdtemp(prefix="kstate-snapshots-"))
    began = time.monotonic()
    # A seed for each round, and another for each case: no two rounds take snapshots at the same moments.
    seed = 1000 * (1 + list(CAMPAIGN).index(name)) + place
    with Harness(folder / "harness") as harness:
        (folder / "harness").mkdir()
        figures, more = WAYS[rounds.way](harness, app, case, folder, seed)
    shutil.rmtree(folder)
    return {
        "case": name, "round": place, "release": case.release, "guarantee": case.guarantee,
        "line": "{}.{}".format(*number(case.release)), "warm": case.is_warm, "snapshots": figures.snapshots, "skipped": figures.skipped,
        "windowed": figures.windowed, "usable": figures.usable, "reasons": dict(sorted(figures.reasons.items())),
        "skips": dict(sorted(figures.skips.items())),
        "longest_tail": max(figures.tails, default=0), "compared": len(figures.tails),
        "seconds": round(time.monotonic() - began), **more,
    }  # fmt: skip


def record() -> list[dict[str, Any]]:
    """Return the lines of the record."""
    if not RECORD.exists():
        return []
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


@dataclass(frozen=True)
class Sums:
    """The figures of all rounds of a case."""

    title: str
    rounds: int
    snapshots: int
    started: int
    skipped: int
    usable: int
    windowed: int
    reasons: dict[str, int]

    @property
    def causes(self) -> str:
        """Why the other windowed stores have no offset."""
        return "; ".join(f'{count}: kstate reports "{why}"' for why, count in self.reasons.items())


def summary() -> list[Sums]:
    """Return the figures of each case of the record."""
    results = []
    rows = record()
    for name, rounds in CAMPAIGN.items():
        of_case = [row for row in rows if row["case"] == name]
        reasons = sum((Counter(row["reasons"]) for row in of_case), Counter[str]())
        snapshots, started, skipped, usable, windowed = (
            sum(row.get(key, 0) for row in of_case) for key in ("snapshots", "started", "skipped", "usable", "windowed")
        )
        title = f"{rounds.case.release}, {rounds.title}"
        results.append(Sums(title, len(of_case), snapshots, started, skipped, usable, windowed, dict(reasons)))
    return [sums for sums in results if sums.rounds]


def main() -> int:
    """Run the rounds that the record does not have."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CAMPAIGN, action="append", help="several times; all without")
    parser.add_argument("--rounds", type=int, default=1000, help="at most so many rounds of each case")
    parser.add_argument("--summary", action="store_true", help="print the figures of the record")
    args = parser.parse_args()
    if args.summary:
        for sums in summary():
            print(sums)
        return 0
    names = args.case or list(CAMPAIGN)
    # One round of each case first: an interrupted campaign has them all.
    for place in range(max(CAMPAIGN[name].rounds for name in names)):
        for name in names:
            if place >= min(args.rounds, CAMPAIGN[name].rounds) or (name, place) in {
                (row["case"], row["round"]) for row in record()
            }:
                continue
            row = row_of(name, place)
            print(json.dumps(row), flush=True)
            with RECORD.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

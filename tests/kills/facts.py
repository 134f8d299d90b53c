"""
Kinds of directories that a start may find, and what real Streams makes of each: held against ``kstate check``.

All applications of a case table run in one JVM, and all copies start in one JVM, once with transactional stores and once
without: a start of many applications costs little more than a start of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.directories.support import kstate
from tests.interop.checking import identities
from tests.interop.harness import Batch
from tests.interop.jvm import Event
from tests.interop.restoring import dump_changelogs

from .farm import Farm
from .kill import LOSING_CODES, may_hang

RELEASE = "4.4.0"
BEFORE = "4.3.1"
_BATCH = Batch(records=300, keys=10, value_bytes=400, seed=7, partitions=1)
_INPUTS = ("events", "table", "versioned", "left", "right", "fk-left", "fk-right")
_IDLE_MS = 1500
_SECONDS = 600
_PATIENCE = {True: 60, False: 400}
"""Seconds after which a client that is not RUNNING hangs: if ``check`` predicts that it may, and if not."""
_IN_MEMORY = "kv-memory"


@dataclass(frozen=True)
class Case:
    """How a directory is made: the runs in turn, each with the option or without, the last one closed or killed."""

    name: str
    guarantee: str
    runs: tuple[bool, ...]
    """Of each run whether it has transactional stores."""
    killed: bool = False
    large_buffers: bool = False
    """Nothing is flushed before the kill."""
    topology: str = "kills"
    first: str = RELEASE
    """The release of the first run."""

    @property
    def processing_guarantee(self) -> str:
        """The value of ``processing.guarantee``."""
        return "at_least_once" if self.guarantee == "alos" else "exactly_once_v2"


CASES = (
    Case("closed-alos", "alos", (False,)),
    Case("closed-alos-tx", "alos", (True,)),
    Case("closed-eos", "eos", (False,)),
    Case("closed-eos-tx", "eos", (True,)),
    Case("tx-then-off", "eos", (True, False)),
    Case("off-then-tx", "eos", (False, True)),
    Case("upgraded", "eos", (False, False), first=BEFORE),
    Case("killed-alos", "alos", (False,), killed=True),
    Case("killed-alos-tx", "alos", (True,), killed=True),
    Case("killed-eos", "eos", (False,), killed=True),
    Case("killed-eos-tx", "eos", (True,), killed=True),
    Case("off-then-killed-tx", "eos", (False, True), killed=True),
    Case("never-flushed-alos", "alos", (False,), killed=True, large_buffers=True),
    Case("never-flushed-eos", "eos", (False,), killed=True, large_buffers=True),
    Case("never-flushed-eos-tx", "eos", (True,), killed=True, large_buffers=True),
    Case("one-store", "eos", (False,), killed=True, topology="parts:count"),
    Case("kinds-closed-eos-tx", "eos", (True,), topology="kinds"),
    Case("kinds-killed-eos-tx", "eos", (True,), killed=True, topology="kinds"),
    Case("kinds-never-flushed-eos-tx", "eos", (True,), killed=True, large_buffers=True, topology="kinds"),
)


@dataclass(frozen=True)
class Fact:
    """What a start did with one store, next to the prediction."""

    case: str
    transactional: bool
    """The start had the option."""
    store: str
    real: str
    lost: int
    """Rows that the replay has and the store has not."""
    prediction: dict[str, Any] | None

    @property
    def agrees(self) -> bool:
        """Whether ``check`` predicted it: the outcome, the number of records, and a loss."""
        if self.prediction is None:
            return self.real == "opens" and not self.lost
        outcomes = {self.prediction["outcome"], self.prediction["or_else"]} - {None}
        return any(_agrees(outcome, self) for outcome in outcomes)

    def __str__(self) -> str:
        row = self.prediction or {}
        text = f"{row.get('outcome')}/{row.get('or_else')} {row.get('records')} {row.get('records_exact')}"
        return f"{self.case} tx={self.transactional} {self.store}: {self.real}, lost {self.lost}; predicted {text}"


def _agrees(outcome: str, fact: Fact) -> bool:
    name, _, count = fact.real.partition(" ")
    records = int(count or 0)
    if name in ("start-hangs", "start-fails"):
        return outcome == name
    if outcome in ("lost", "may-be-lost", "task-wiped"):
        return name == "task-wiped" and _counts(fact, records)
    if name == "task-wiped":
        return False
    if outcome == "opens-without-rows":
        return _counts(fact, records)
    if fact.lost and (fact.prediction or {}).get("code") not in LOSING_CODES:
        return False
    if outcome == "opens":
        return records == 0
    return outcome in ("restores", "restores-all") and _counts(fact, records)


def _counts(fact: Fact, records: int) -> bool:
    row = fact.prediction or {}
    get = row.get("records")
    if get is None:
        return True
    return bool(records == get if row["records_exact"] else records <= get)


def make(farm: Farm, cases: Iterable[Case], folder: Path) -> Path:
    """Run the applications of all cases; return the state.dir that they left, and dump their changelogs."""
    cases = list(cases)
    state = folder / "left"
    farm.good(RELEASE, **_BATCH.command("kinds", "facts-in"))
    longest = max(len(case.runs) for case in cases)
    started: list[Event] = []
    for turn in range(longest):
        for release in (BEFORE, RELEASE):
            now = [case for case in cases if turn < len(case.runs) and release == (RELEASE if turn else case.first)]
            ending = [case for case in now if case.killed and turn == len(case.runs) - 1]
            closed = [case for case in now if case not in ending]
            options = {"idle-ms": _IDLE_MS, "timeout": _SECONDS}
            if closed:
                apps = [_instance(case, state, transactional=case.runs[turn]) for case in closed]
                started += farm.good(release, do="start", apps=apps, **options).of("restore-start")
            if ending:
                apps = [_instance(case, state, transactional=case.runs[turn]) for case in ending]
                started += farm.kill(release, by_signal=False, apps=apps, **options).of("restore-start")
    inputs = [f"facts-in-{topic}" for topic in _INPUTS]
    farm.good(RELEASE, do="settle", apps=[case.name for case in cases], inputs=inputs)
    dump_changelogs(farm, RELEASE, sorted({event["topic"] for event in started}), folder / "dump")
    return state


def facts(farm: Farm, cases: Iterable[Case], folder: Path) -> list[Fact]:
    """Start copies of what ``make`` left, without the option and with it; return what became of each store."""
    cases = list(cases)
    results: list[Fact] = []
    for transactional in (False, True):
        state = folder / f"started-{'on' if transactional else 'off'}"
        shutil.copytree(folder / "left", state)
        predictions = {case.name: _predict(case, folder, transactional=transactional) for case in cases}
        before = {case.name: identities(state / case.name) for case in cases}
        apps = [
            {
                **_instance(case, state, transactional=transactional),
                "patience": _PATIENCE[may_hang(predictions[case.name])],
            }
            for case in cases
        ]
        reply = farm.good(RELEASE, do="start", apps=apps)
        replay = [{"app": case.name, "complete": [str(state / case.name)]} for case in cases]
        replayed = farm.good(RELEASE, do="replay", lines=str(folder / "dump-lines"), apps=replay)
        lost = {(event["app"], event["store"]): event["lost"] for event in replayed.of("compared")}
        for case in cases:
            results += _of_case(
                case, transactional, before[case.name], state / case.name, reply.events, lost, predictions[case.name]
            )
    return results


def _instance(case: Case, state: Path, *, transactional: bool) -> dict[str, Any]:
    return {"app": case.name, "prefix": "facts-in", "state-dir": str(state), "guarantee": case.guarantee,
            "transactional": transactional, "large-buffers": case.large_buffers, "topology": case.topology}  # fmt: skip


def _predict(case: Case, folder: Path, *, transactional: bool) -> list[dict[str, Any]]:
    options = ["--transactional-stores"] if transactional else []
    result = kstate("check", folder / "left" / case.name, "--for", RELEASE, "--guarantee", case.processing_guarantee,
                  "--dump", folder / "dump", "-o", "json", *options, status=None)  # fmt: skip
    assert result.status in (0, 1, 3), result.report
    return [row for row in result.rows if row["type"] == "prediction"]


def _of_case(
    case: Case,
    transactional: bool,
    before: dict[str, dict[str, bytes]],
    directory: Path,
    events: Iterable[Event],
    lost: dict[tuple[str, str], int],
    predictions: Iterable[dict[str, Any]],
) -> list[Fact]:
    own = [event for event in events if event.get("app") == case.name]
    (end,) = [event for event in own if event["event"] == "started"]
    rows = {row["store"]: row for row in predictions}
    restored = {event["store"]: 0 for event in own if event["event"] == "restore-start"}
    restored.update({event["store"]: event["restored"] for event in own if event["event"] == "restore-end"})
    finished = {event["store"] for event in own if event["event"] == "restore-end"}
    after = identities(directory)
    pairs = {task for task, backup in before.items() if not backup.items() & after.get(task, {}).items()}
    alive = end["state"] == "RUNNING" and not end["failed"]
    stuck = "start-fails" if end["failed"] else "start-hangs"
    results = []
    for store in sorted({*rows, *restored} - {_IN_MEMORY}):
        row = rows.get(store)
        wiped = row is not None and row["task"] in pairs and row["task"] != "global"
        count = restored.get(store, 0)
        # Of a client that hangs other tasks are restored all the same.
        ended = alive or store in finished
        real = stuck if not ended else f"task-wiped {count}" if wiped else f"restores {count}" if count else "opens"
        missing = lost.get((case.name, store), 0) if alive else 0
        results.append(Fact(case.name, transactional, store, real, missing, row))
    return results

"""One seed: kill, predict, migrate, restore, start, compare."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstate_cli.releases import unproven_too
from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.interop.checking import identities
from tests.interop.jvm import Event, Reply
from tests.interop.restoring import dump_changelogs

from .farm import Farm
from .seeds import Seed, Victim
from .spec import TASKS, spec

REFUSAL = 4
_LOSING = frozenset({"opens-without-rows", "lost", "may-be-lost", "start-hangs", "start-fails"})
"""Outcomes of ``check`` after which rows are missing, or no start comes to its end."""
LOSING_CODES = frozenset({"versioned-replayed"})
"""Warnings of ``check`` that say so, too: whether versions are lost depends on the order of the records."""
_TARGETS = ("4.2", "4.3")
"""The release lines that a copy is migrated to, in turn."""
_INPUTS = ("events", "left", "right", "versioned")
_STORES = ("ProcessorState", "TaskCorrupted", "RocksDB")
"""Parts of the names of exceptions about stores."""
_TURNS = 3
_PATIENCE = {True: 45, False: 400}
"""Seconds after which a client that is not RUNNING hangs: if ``check`` predicts that it may, and if not."""


@dataclass
class Outcome:
    """What became of one application."""

    victim: Victim
    record: dict[str, Any]
    compared: int = 0
    """Stores that were compared with the replay."""
    streams: dict[str, int] = field(default_factory=dict)
    """Store -> rows that the start by Streams lost."""
    unpredicted: dict[str, int] = field(default_factory=dict)
    """Of these the stores of which ``check`` did not predict it."""
    kstate: dict[str, int] = field(default_factory=dict)
    """Command and store -> rows that kstate lost, or 1 where a command ended in an error."""

    @property
    def line(self) -> dict[str, Any]:
        """The line of the record."""
        return {**self.record, "compared": self.compared, "lost_by_streams": self.streams, "unpredicted": self.unpredicted,
                "lost_by_kstate": self.kstate}  # fmt: skip


def run(farm: Farm, seed: Seed, folder: Path) -> list[Outcome]:
    """Carry out one seed in ``folder``, which keeps the directories; return what became of each application."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    farm.good(seed.release, **seed.batch.command("kinds", seed.prefix))
    remainder = folder / "left"
    reply = farm.kill(
        seed.release,
        by_signal=seed.by_signal,
        apps=[_instance(seed, victim, remainder, transactional=victim.transactional) for victim in seed.victims],
        **{"halt-at": seed.halt_at, "nanos": seed.nanos},
    )
    inputs = [f"{seed.prefix}-{topic}" for topic in _INPUTS]
    farm.good(seed.release, do="settle", apps=[victim.name for victim in seed.victims], inputs=inputs)
    outcomes = [_outcome(seed, victim, event) for victim, event in _pair_events(seed, reply.of("killed"))]
    topics = [f"{victim.name}-{store}-changelog" for victim in seed.victims for store in TASKS]
    dump = dump_changelogs(farm, seed.release, topics, folder / "dump")
    predictions = {}
    for outcome in outcomes:
        name = outcome.victim.name
        predictions[name] = _predict(seed, outcome, remainder / name, dump)
        _change(seed, outcome, folder, dump)
    _start(farm, seed, outcomes, predictions, folder)
    _compare(farm, seed, outcomes, predictions, folder)
    return outcomes


def _instance(seed: Seed, victim: Victim, state: Path, *, transactional: bool) -> dict[str, Any]:
    return {"app": victim.name, "prefix": seed.prefix, "state-dir": str(state), "guarantee": victim.guarantee,
            "transactional": transactional, "close-at": victim.close_at, "commit-ms": victim.commit_ms}  # fmt: skip


def _pair_events(seed: Seed, events: Iterable[Event]) -> list[tuple[Victim, Event]]:
    by_name = {event["app"]: event for event in events}
    return [(victim, by_name[victim.name]) for victim in seed.victims]


def _outcome(seed: Seed, victim: Victim, event: Event) -> Outcome:
    return Outcome(
        victim,
        {
            "seed": seed.number,
            "app": victim.name,
            "release": seed.release,
            "kind": victim.kind,
            "guarantee": victim.guarantee,
            "next_transactional": victim.next_transactional,
            "second_run": bool(event["closed"]),
            "by_signal": seed.by_signal,
            "processed": int(event["processed"]),
        },
    )


def _predict(seed: Seed, outcome: Outcome, directory: Path, dump: Path) -> list[dict[str, Any]]:
    victim = outcome.victim
    options = ["--transactional-stores"] if victim.next_transactional else []
    result = kstate("check", directory, "--for", seed.line, "--guarantee", victim.processing_guarantee, "--dump", dump,
                  "-o", "json", *options, status=None)  # fmt: skip
    assert result.status in (0, 1, 3), result.report
    return result.rows


def _change(seed: Seed, outcome: Outcome, folder: Path, dump: Path) -> None:
    """Migrate and restore copies; a refusal changes nothing and loses nothing."""
    victim = outcome.victim
    name = victim.name
    guarantee = ["--guarantee", victim.processing_guarantee, "--warnings-ok", "-o", "json"]
    option = ["--transactional-stores"] if victim.transactional else []
    line = _TARGETS[(seed.number + seed.victims.index(victim)) % len(_TARGETS)]
    outcome.record["target"] = line
    copy = _copy(folder, f"to-{line}", name)
    result = kstate(
        "migrate", copy, "--to", line, *guarantee, *option, *unproven_too(line), "--unclean", "wipe", status=None
    )
    _record_end(outcome, "migrate", result)
    copy = _copy(folder, "restored", name)
    file = folder / f"{name}.toml"
    file.write_text(spec(name), encoding="utf-8")
    result = kstate("restore", copy, "--from-changelog", dump, "--for", seed.line, "--spec", file, "--engine", "local", *guarantee,
                  *option, *unproven_too(seed.line), "--wipe-unclean", status=None)  # fmt: skip
    _record_end(outcome, "restore", result)


def _copy(folder: Path, place: str, name: str) -> Path:
    target = folder / place / name
    shutil.copytree(folder / "left" / name, target)
    return target


def _record_end(outcome: Outcome, command: str, result: CommandResult) -> None:
    outcome.record[command] = result.status
    if result.status not in (0, REFUSAL):
        outcome.kstate[f"{command}: exit {result.status}"] = 1
        outcome.record[f"{command} told"] = result.report[-1500:]


def _by_application(outcomes: Iterable[Outcome], events: Iterable[Event]) -> list[tuple[Outcome, Event]]:
    by_name = {outcome.victim.name: outcome for outcome in outcomes}
    return [(by_name[event["app"]], event) for event in events]


def _start(
    farm: Farm, seed: Seed, outcomes: list[Outcome], predictions: Mapping[str, list[dict[str, Any]]], folder: Path
) -> None:
    """Start real Streams on copies, compare its stores, and hold the predictions against them."""
    state = folder / "started"
    for outcome in outcomes:
        _copy(folder, "started", outcome.victim.name)
    before = {outcome.victim.name: identities(state / outcome.victim.name) for outcome in outcomes}
    reply = _start_copies(farm, seed, outcomes, predictions, folder)
    running = {event["app"]: event["state"] == "RUNNING" and not event["failed"] for event in reply.of("started")}
    for outcome in outcomes:
        name = outcome.victim.name
        losing = _losing(predictions[name])
        outcome.record["running"] = running[name]
        outcome.record["exceptions"] = [
            f"{event['class']}: {event['message']}: {event['cause']}"
            for event in reply.of("exception")
            if event["app"] == name
        ]
        if not running[name]:
            outcome.streams["*"] = 1
            if not losing:
                outcome.unpredicted["*"] = 1
        after = identities(state / name)
        wiped = sorted(
            task for task, backup in before[name].items() if not backup.items() & after.get(task, {}).items()
        )
        outcome.record["wiped"] = wiped
        outcome.record["restored"] = {
            event["store"]: event["restored"] for event in reply.of("restore-end") if event["app"] == name
        }
        outcome.record["predicted"] = {
            row["store"]: [row["outcome"], row["or_else"], row["records"]]
            for row in predictions[name]
            if row["type"] == "prediction"
        }
        outcome.record["predicted_losses"] = sorted(losing)


def _start_copies(
    farm: Farm, seed: Seed, outcomes: Iterable[Outcome], predictions: Mapping[str, list[dict[str, Any]]], folder: Path
) -> Reply:
    """Start all copies at once, and again those that failed for another reason than their stores: a busy broker."""
    waiting = {outcome.victim.name: outcome.victim for outcome in outcomes}
    events: list[Event] = []
    for turn in range(_TURNS):
        apps = [
            {
                **_instance(seed, victim, folder / "started", transactional=victim.next_transactional),
                "patience": _PATIENCE[may_hang(predictions[name])],
            }
            for name, victim in waiting.items()
        ]
        reply = farm.good(seed.release, do="start", apps=apps)
        again = {
            event["app"]
            for event in reply.of("exception")
            if not any(name in f"{event['class']} {event['cause']}" for name in _STORES)
        }
        events += [event for event in reply.events if turn == _TURNS - 1 or event.get("app") not in again]
        if not again or turn == _TURNS - 1:
            break
        waiting = {name: victim for name, victim in waiting.items() if name in again}
        for name in waiting:
            shutil.rmtree(folder / "started" / name)
            _copy(folder, "started", name)
    return Reply(0, events)


def _compare(
    farm: Farm, seed: Seed, outcomes: list[Outcome], predictions: Mapping[str, list[dict[str, Any]]], folder: Path
) -> None:
    """Compare what Streams and kstate made: whole, or where Streams is still to restore, up to the offset that is stated."""
    apps = []
    for outcome in outcomes:
        name, record = outcome.victim.name, outcome.record
        complete = ["restored"] * (record["restore"] == 0) + ["started"] * record["running"]
        unstarted = [f"to-{record['target']}"] * (record["migrate"] == 0)
        apps.append({"app": name, "complete": [str(folder / place / name) for place in complete],
                     "unstarted": [str(folder / place / name) for place in unstarted]})  # fmt: skip
    reply = farm.good(seed.release, do="replay", lines=str(folder / "dump-lines"), apps=apps)
    for outcome, event in _by_application(outcomes, reply.of("compared")):
        outcome.compared += 1
        if not event["lost"] and not event["broken"]:
            continue
        store, rows, place = event["store"], event["lost"] or 1, Path(event["directory"]).parent.name
        outcome.record.setdefault("details", []).append(event)
        if place != "started":
            outcome.kstate[f"{place} {store}"] = rows
            continue
        outcome.streams[store] = rows
        if store not in _losing(predictions[outcome.victim.name]):
            outcome.unpredicted[store] = rows


def may_hang(rows: Iterable[dict[str, Any]]) -> bool:
    """Return True if ``check`` says that the client may never leave REBALANCING."""
    return any("start-hangs" in (row["outcome"], row["or_else"]) for row in rows if row["type"] == "prediction")


def _losing(rows: Iterable[dict[str, Any]]) -> set[str]:
    """Return the stores of which ``check`` says that the next start loses rows, or does not come to its end."""
    return {
        row["store"] for row in rows if row["type"] == "prediction" and {row["outcome"], row["or_else"]} & _LOSING
    } | {
        row["store"]
        for row in rows
        if row["type"] == "finding" and row.get("store") and (row["level"] == "error" or row["code"] in LOSING_CODES)
    }

"""Run the worlds of a group together: starts in one JVM, then the steps of each world, then one comparison of all states."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.interop.jvm import Reply
from tests.walker.commands import Commands

from . import draw
from .draw import Group, World
from .farm import Farm
from .life import Life, WrongError
from .rules import faults

COMPARING = "4.4.0"
"""The release whose RocksDB reads what all others have written."""
_IDLE_MS = 700
_SECONDS = 400
_PATIENCE = 300


def live(farm: Farm, commands: Commands, worlds: Sequence[World], folder: Path) -> list[Life]:
    """Let worlds of one group live, in ``folder``."""
    group = worlds[0].group
    lives = [Life(world, group, folder / world.name, farm, commands) for world in worlds]
    for number in range(max(len(world.rounds) for world in worlds)):
        living = [life for life in lives if not life.over and number < len(life.world.rounds)]
        if living:
            _round(farm, group, living, number)
    return lives


def run(farm: Farm, commands: Commands, worlds: Sequence[World], folder: Path) -> list[dict[str, Any]]:
    """Run worlds of one group; return their lines of the record. The directories of those that went wrong stay."""
    began = time.monotonic()
    lives = live(farm, commands, worlds, folder)
    seconds = (time.monotonic() - began) / len(lives)
    for life in lives:
        if not life.wrong:
            shutil.rmtree(life.folder, ignore_errors=True)
    return [_line(life, seconds) for life in lives]


def shrink(farm: Farm, commands: Commands, line: dict[str, Any], folder: Path, runs: int = 12) -> list[str]:
    """Return the steps of a world that went wrong, without those that it goes wrong without; run it so often at most."""
    number, at = line["place"]
    shrunk = draw.world(line["seed"]).until((number, at))
    for attempt, place in enumerate(shrunk.places[:runs], start=1):
        candidate = replace(shrunk.without(place), attempt=attempt)
        lives = live(farm, commands, [candidate], folder)
        if any(life.wrong for life in lives):
            shrunk = candidate
        shutil.rmtree(folder / candidate.name, ignore_errors=True)
    return shrunk.steps


def _line(life: Life, seconds: float) -> dict[str, Any]:
    line: dict[str, Any] = {
        "seed": life.world.seed,
        "release": life.world.release,
        "guarantee": life.world.guarantee,
        "topology": life.world.topology.name,
        "steps": life.world.steps,
        "verdict": "wrong" if life.wrong else "right",
        "compared": sum(len(state.stores) for state in life.states),
        "seconds": round(seconds, 1),
    }
    if life.early:
        line["early"] = life.early
    if life.wrong:
        line["wrong"] = life.wrong
        line["log"] = life.log
        line["place"] = life.place
    return line


def _round(farm: Farm, group: Group, lives: Sequence[Life], number: int) -> None:
    batch = group.batch
    for _ in range(number):
        batch = batch.next()
    for life in lives:
        life.place = number, -1
    farm.good(COMPARING, **batch.command("kinds", group.prefix))
    _start(farm, group, lives, number)
    farm.good(COMPARING, do="quiet", apps=[life.world.name for life in lives])
    for life in lives:
        for at, step in enumerate(life.world.rounds[number].steps):
            if life.over:
                break
            life.place = number, at
            try:
                life.step(step)
            except (WrongError, AssertionError) as error:
                life.wrong.append(f"{step}: {type(error).__name__}: {error}")
                life.over = True
    compare(farm, lives)


def _start(farm: Farm, group: Group, lives: Sequence[Life], number: int) -> None:
    """Start the applications, those of a release together: those that die first, then those that are closed."""
    losing: dict[str, tuple[set[str], bool]] = {}
    for life in lives:
        try:
            losing[life.world.name] = life.losing(life.release, life.transactional) if number else (set(), True)
        except (WrongError, AssertionError) as error:
            life.wrong.append(f"start: {type(error).__name__}: {error}")
            life.over = True
            continue
        if not losing[life.world.name][1]:
            # A client that hangs would hold all other worlds of the group up for minutes.
            life.early = f"check predicts that start {number} hangs or fails"
            life.over = True
    for killed in (True, False):
        for release in sorted({life.release for life in lives}):
            chosen = [life for life in lives if life.release == release and life.world.rounds[number].killed is killed
                      and not life.over]  # fmt: skip
            if chosen and killed:
                _kill_groups(farm, group, chosen, release)
            elif chosen:
                _close_all(farm, chosen, release)
    for life in lives:
        if life.over:
            continue
        is_killed = life.world.rounds[number].killed
        life.killed |= is_killed
        life.ran_since = True
        life.dump_is_current = False
        # Of a killed start, too: what it has restored by then may be all that it loses.
        life.exempt |= losing[life.world.name][0]
        if is_killed:
            life.exempt |= life.dirty()
        life.state(f"start {number}", sound=not is_killed, complete=not is_killed)


def _kill_groups(farm: Farm, group: Group, lives: Sequence[Life], release: str) -> None:
    total = sum(len(life.topology.topics) * group.batch.records for life in lives)
    farm.kill(
        release,
        by_signal=group.by_signal,
        apps=[life.instance() for life in lives],
        timeout=_SECONDS,
        nanos=group.nanos,
        **{"halt-at": int(total * group.fraction), "idle-ms": _IDLE_MS},
    )


def _close_all(farm: Farm, lives: Sequence[Life], release: str) -> None:
    apps = [{**life.instance(), "patience": _PATIENCE} for life in lives]
    reply = farm.good(release, do="start", apps=apps, timeout=_SECONDS, **{"idle-ms": _IDLE_MS})
    ended = {event["app"]: event for event in reply.of("started")}
    for life in lives:
        event = ended[life.world.name]
        if event["failed"] or event["state"] != "RUNNING":
            life.wrong.append(f"start: {release} ended in state {event['state']}: {_exceptions(reply, life)}")
            life.over = True


def _exceptions(reply: Reply, life: Life) -> list[str]:
    return [
        f"{event['class']}: {event['message']}: {event['cause']}"
        for event in reply.of("exception")
        if event["app"] == life.world.name
    ]


def compare(farm: Farm, lives: Iterable[Life]) -> None:
    """Compare the states of worlds that were not compared yet."""
    apps = []
    states = {}
    for life in lives:
        waiting = [state for state in life.states if not state.stores and state.copy.exists()]
        states.update({str(state.copy): state for state in waiting})
        for application in sorted({state.application for state in waiting}):
            directories = [str(state.copy) for state in waiting if state.application == application]
            stores = life.stores(application or life.world.name)
            apps.append({"app": life.world.name, "stores": stores, "directories": directories})
    reply = farm.good(COMPARING, do="compare", apps=apps)
    for event in reply.of("compared"):
        states[event["directory"]].stores[event["task"], event["store"]] = event
    for life in lives:
        for state in life.states:
            if str(state.copy) in states:
                life.wrong += faults(state)
        if life.wrong:
            life.over = True

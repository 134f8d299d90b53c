"""Worlds from seeds: so many rounds each, and what the broker's disk goes through between them."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from tests.interop.broker import Broker

from .calls import Calls
from .logs import Logs
from .world import Tally, World, WrongError

ROUNDS = 12
"""Of one world."""
DISKS = 0.15
"""Of so many worlds the broker is killed, and its disk restored some rounds later."""
_OUTPUT = 40


def disk_rounds(seed: str, rounds: int = ROUNDS, disks: float = DISKS) -> tuple[int, int] | None:
    """Return before which rounds the broker is killed, and its disk restored; None for most seeds."""
    chance = random.Random(f"{seed}/disk")
    if chance.random() >= disks:
        return None
    killed = chance.randrange(1, rounds - 2)
    return killed, chance.randrange(killed + 1, rounds)


def run_world(
    seed: str,
    broker: Broker,
    calls: Calls,
    folder: Path,
    *,
    rounds: int = ROUNDS,
    disk: tuple[int, int] | None = None,
) -> dict[str, Any]:
    """Run the rounds of one world; return its line of the record, which has the steps of a round that went wrong.

    ``disk``: as :func:`disk_rounds`. No other world may use the broker then.
    """
    killed, restored = disk or (-1, -1)
    tally = Tally()
    began = time.monotonic()
    world = World(seed, Logs(folder, broker, f"loop-{seed}"), calls, folder, tally)
    try:
        for number in range(rounds):
            if number in (killed, restored):
                world.disk(from_copy=number == restored)
            world.round(number)
            if number % 4 == 3:
                world.check_model()
    except (WrongError, AssertionError) as error:
        steps = "\n".join(world.steps[-_OUTPUT:])
        tally.wrong.append(f"{type(error).__name__} in world {seed}: {error}\n{steps}")
    line = {"world": seed, "release": world.release, **tally.line(), "seconds": round(time.monotonic() - began)}
    world.close()
    return line

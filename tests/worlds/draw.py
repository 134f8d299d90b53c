"""What a seed determines: a release, a guarantee, a topology, the input, and the steps."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from tests.interop.harness import Batch

from .topology import Topology, draw

RELEASES = ("4.4.0", "4.3.1", "4.2.1", "3.9.2")
"""The releases in turn: the worlds of a group are born on the same."""
GROUP = 8
"""Worlds whose applications run, and die, in the same JVM."""
GUARANTEES = {
    "4.4.0": ("alos", "eos", "eos-tx", "eos-tx", "alos-tx"),
    "4.3.1": ("alos", "eos", "eos"),
    "4.2.1": ("alos", "eos", "eos"),
    "3.9.2": ("alos", "eos", "eos"),
}
STEPS = {
    "migrate": 22,
    "check": 6,
    "verify": 4,
    "ls": 3,
    "lag": 2,
    "wipe": 8,
    "lose": 5,
    "restore": 16,
    "rebuild": 6,
    "standby": 6,
    "dump": 6,
    "undo": 10,
    "clean": 4,
    "snapshot": 8,
    "restore-snapshot": 8,
    "rehome": 6,
    "seed": 3,
}
"""Step -> how often it is drawn."""


@dataclass(frozen=True)
class Step:
    """One step after a start. ``dice`` is the seed of its own choices, so that they stay when other steps are dropped."""

    name: str
    dice: int
    killed: bool = False
    """kstate kills itself at a random step of its own, and runs again."""

    def __str__(self) -> str:
        return f"{self.name}{'!' * self.killed}:{self.dice}"


@dataclass(frozen=True)
class Round:
    """A start, which is closed or killed, and the steps after it."""

    killed: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class World:
    """All that a seed determines, the speed of the broker excepted."""

    seed: int
    release: str
    guarantee: str
    """``alos`` or ``eos``, with ``-tx`` if its stores are transactional."""
    topology: Topology
    batch: Batch
    commit_ms: int
    rounds: tuple[Round, ...]
    attempt: int = 0
    """Counts the runs of a world that is shrunk: each has topics of its own."""

    @property
    def name(self) -> str:
        """The application.id."""
        return f"world-{self.seed}" + (f"-again-{self.attempt}" if self.attempt else "")

    @property
    def group(self) -> Group:
        """The group that it belongs to."""
        return replace(group_of(self.seed), attempt=self.attempt)

    @property
    def steps(self) -> list[str]:
        """Its steps as text, starts included."""
        return [
            text for entry in self.rounds for text in ("start!" if entry.killed else "start", *map(str, entry.steps))
        ]

    @property
    def places(self) -> list[tuple[int, int]]:
        """Each step's round and place there, the last one first."""
        return [(number, at) for number, entry in reversed([*enumerate(self.rounds)])
                for at in reversed(range(len(entry.steps)))]  # fmt: skip

    def until(self, place: tuple[int, int]) -> World:
        """Return the world up to a step."""
        number, at = place
        rounds = self.rounds[: number + 1]
        return replace(self, rounds=(*rounds[:-1], replace(rounds[-1], steps=rounds[-1].steps[: at + 1])))

    def without(self, place: tuple[int, int]) -> World:
        """Return the world without a step."""
        number, at = place
        steps = self.rounds[number].steps
        rounds = list(self.rounds)
        rounds[number] = replace(rounds[number], steps=steps[:at] + steps[at + 1 :])
        return replace(self, rounds=tuple(rounds))


@dataclass(frozen=True)
class Group:
    """What the worlds of a group share: a release, input, and the moment of a kill."""

    number: int
    release: str
    batch: Batch
    fraction: float
    """Of all records of the killed applications so many are processed at the kill."""
    by_signal: bool
    nanos: int
    attempt: int = 0

    @property
    def prefix(self) -> str:
        """The prefix of the input topics."""
        return f"worlds-{self.number}-{self.attempt}-in"


def group_of(seed: int) -> Group:
    """Return the group of a world."""
    number = seed // GROUP
    dice = random.Random(f"group/{number}")
    batch = Batch(records=dice.choice([150, 250, 400]), keys=dice.choice([3, 10, 40]), value_bytes=dice.choice([80, 200, 400]),
                  seed=number, partitions=1)  # fmt: skip
    return Group(
        number,
        RELEASES[number % len(RELEASES)],
        batch,
        dice.uniform(0.15, 0.95),
        dice.random() < 0.3,
        dice.choice([100_000, 500_000, 1_500_000]),
    )


def world(seed: int) -> World:
    """Return the world of a seed; the same seed is always the same world."""
    group = group_of(seed)
    dice = random.Random(f"world/{seed}")
    rounds = []
    for number in range(dice.choice([1, 2, 2, 3])):
        count = dice.randint(2, 5)
        names = dice.choices(list(STEPS), list(STEPS.values()), k=count)
        steps = tuple(Step(name, dice.randrange(1 << 30), dice.random() < 0.15) for name in names)
        rounds.append(Round(dice.random() < (0.65 if number == 0 else 0.4), steps))
    return World(
        seed,
        group.release,
        dice.choice(GUARANTEES[group.release]),
        draw(dice),
        group.batch,
        dice.choice([50, 100, 100, 1000]),
        tuple(rounds),
    )

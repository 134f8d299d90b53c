"""What each seed kills: a release, its applications, their input, and the moment."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.interop.harness import Batch

TRANSACTIONAL_SINCE = "4.4"
RELEASES = ("4.4.0", "4.3.1", "4.4.0")
"""The releases that are killed, in turn."""


@dataclass(frozen=True)
class Victim:
    """One application that is killed, and how it starts next."""

    name: str
    guarantee: str
    """``alos`` or ``eos``."""
    transactional: bool
    """It runs with ``enable.transactional.statestores``."""
    next_transactional: bool
    """Its next start has the option."""
    close_at: int | None
    """It is closed once after so many records, and killed in its second run."""
    commit_ms: int

    @property
    def processing_guarantee(self) -> str:
        """The value of ``processing.guarantee``."""
        return "at_least_once" if self.guarantee == "alos" else "exactly_once_v2"

    @property
    def kind(self) -> str:
        """The guarantee by which kills are counted."""
        return (
            "transactional" if self.transactional else {"alos": "at-least-once", "eos": "exactly-once"}[self.guarantee]
        )


@dataclass(frozen=True)
class Seed:
    """The applications that die together."""

    number: int
    release: str
    batch: Batch
    halt_at: int
    by_signal: bool
    nanos: int
    """Nanoseconds that each record of one topic takes."""
    victims: tuple[Victim, ...]

    @property
    def prefix(self) -> str:
        """The prefix of the input topics, which all share."""
        return f"kills-{self.number}-in"

    @property
    def line(self) -> str:
        """The release line, as ``--for`` takes it."""
        return self.release.rpartition(".")[0]


def seed_of(number: int, victims: int = 12) -> Seed:
    """Return what this seed kills; the same number is always the same."""
    dice = random.Random(number)
    release = RELEASES[number % len(RELEASES)]
    records = dice.choice([300, 500, 800])
    batch = Batch(records=records, keys=dice.choice([3, 10, 40]), value_bytes=dice.choice([100, 300, 600]), seed=number,
                  partitions=1)  # fmt: skip
    processed = 4 * records  # of four topics that an application reads
    total = victims * processed
    choice = []
    for index in range(victims):
        if release.startswith(TRANSACTIONAL_SINCE):
            guarantee, transactional = [("alos", False), ("eos", False), ("eos", True), ("eos", True), ("alos", True),
                                        ("eos", False)][index % 6]  # fmt: skip
            switched = dice.random() < 0.2
        else:
            guarantee, transactional, switched = "alos" if index % 2 else "eos", False, False
        choice.append(
            Victim(
                f"kills-{number}-{index}-{guarantee}{'-tx' * transactional}",
                guarantee,
                transactional,
                transactional != switched,
                int(processed * dice.uniform(0.05, 0.3)) if dice.random() < 0.35 else None,
                dice.choice([50, 100, 100, 1000]),
            )
        )
    halt_at = int(total * dice.uniform(0.2, 0.95))
    return Seed(
        number,
        release,
        batch,
        halt_at,
        dice.random() < 0.3,
        dice.choice([100_000, 1_000_000, 3_000_000]),
        tuple(choice),
    )

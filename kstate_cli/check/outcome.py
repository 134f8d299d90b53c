"""What becomes of a store at the next start, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kstate_cli.check.findings import FindingCode


class Outcome(Enum):
    """What the next start does with a store."""

    OPENS = "opens"
    """As it is: nothing is restored."""
    OPENS_EMPTY = "opens-without-rows"
    """Without a word, although its offset says that it is complete: rows are missing from then on, all or some."""
    RESTORES = "restores"
    """What lies between its offset and the end of the changelog."""
    RESTORES_ALL = "restores-all"
    """The whole changelog, over the rows that it has."""
    WIPED = "task-wiped"
    """The task's directory is deleted (``TaskCorruptedException``), then the whole changelog is restored."""
    LOST = "lost"
    """As ``task-wiped``, but the store has no changelog: nothing brings its rows back."""
    MAY_BE_LOST = "may-be-lost"
    """As ``task-wiped``, but it was not closed, and nothing tells whether it has a changelog."""
    FAILS = "start-fails"
    """``KafkaStreams#start`` or a stream thread throws; the client ends in ERROR."""
    HANGS = "start-hangs"
    """The client stays in REBALANCING, and wipes and restores nothing."""
    NOT_REACHED = "not-reached"
    """Another store of the task makes the start fail before."""
    UNKNOWN = "unknown"
    """The application runs, so that it depends on how it is closed; or kstate does not read all of the task."""
    IGNORED = "ignored"
    """The release has no such store, or no such task."""


@dataclass(frozen=True, slots=True)
class Records:
    """How many records of a changelog are restored."""

    count: int
    exact: bool
    """False: at most so many, since compaction and transaction markers leave holes that a log's bounds do not show."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The outcome for one store of one task, with the reason."""

    task: str
    store: str
    outcome: Outcome
    records: Records | None = None
    """For everything that is restored, where the log is known."""
    code: FindingCode | None = None
    """The finding that the outcome follows from."""
    file: str | None = None
    messages: tuple[str, ...] = ()
    """What Streams prints, exception by exception from the outermost; each a part of the real text."""
    or_else: Outcome | None = None
    """The other possible outcome."""
    by_chance: bool = True
    """Chance decides between the two; False: something that nobody here knows, as the findings say."""

"""Findings, outcomes and predictions of ``kstate check``, as data. The entries of all codes are in ``check/codes``."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kstate_cli import option
from kstate_cli.codes import Code


class Level(Enum):
    """How severe a finding is."""

    EXPECTED = "expected"
    """Kafka Streams normally behaves this way. You do not need to do anything, and the exit code does not change."""
    WARNING = "warning"
    """Kafka Streams will restore records, either at the next start or later."""
    ERROR = "error"
    """Startup fails, or rows are silently missing or wrong."""


@dataclass(frozen=True, slots=True)
class FindingCode(Code):
    """One kind of finding. Its rule names the class of Kafka Streams, the KIP and the section of docs/internals.

    The hint is a command, or an instruction if no command helps. kstate fills in ``APP``, ``TASK``, ``STORE``, ``NEW``
    (the topology), ``STARTED`` (the release), and ``RELEASE`` (the release with the options that writing needs).
    :mod:`kstate_cli.check.hints` adds the options that a command needs for this directory.
    """

    # Keyword-only, so that each entry of a catalogue names the level, and cannot omit it.
    level: Level = field(compare=False, kw_only=True)
    changes_at_close: bool = field(default=False, compare=False, kw_only=True)
    """Closing the application, or its next commit, brings the finding or removes it.

    A running application has its stores open, and states offsets and a status only when it commits or closes them. Up
    to 4.2, exactly-once has no ``.checkpoint`` while it runs. The offsets on disk are those of the last flush.
    """
    states_absence: bool = field(default=False, compare=False, kw_only=True)
    """The finding states that something is missing. If kstate has read only a part of a task, that is not proved."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fact in or about a directory that decides, or may decide, what a start does."""

    code: FindingCode
    level: Level
    """The level of the code, unless this case is more or less severe."""
    hint: str
    text: str
    task: str | None = None
    store: str | None = None

    @property
    def has_action(self) -> bool:
        """Whether the hint says to do something."""
        return self.hint != NOTHING


# Templates of hints that several codes share.
MIGRATE: Final = f"kstate migrate APP {option.TO} RELEASE"
RESTORE: Final = f"kstate restore APP {option.FROM_CHANGELOG} DUMP {option.FOR} RELEASE"
RESTORE_STORE: Final = f"{RESTORE} {option.STORE} STORE"
REBUILD_UNCLEAN: Final = (
    "if the application was closed cleanly, do nothing. Otherwise, rebuild the unclean tasks. This loses the "
    f"rows of stores without a changelog, which may include UNLOGGED: {RESTORE} {option.WIPE_UNCLEAN}"
)
"""For unclean tasks with stores that may have no changelog, which kstate fills in for ``UNLOGGED``."""
WIPE_TASK: Final = f"kstate wipe APP {option.TASK} TASK"
WIPE_GLOBAL: Final = f"kstate wipe APP {option.GLOBAL}"
WIPE_STORE: Final = f"kstate wipe APP {option.TASK} TASK {option.STORE} STORE"
REHOME: Final = f"kstate rehome APP {option.TOPOLOGY} NEW"
NOTHING: Final = "nothing to do"
EXPORT_FIRST: Final = (
    "do not start the application, because it would restore from a log without these records. First, run: kstate "
    f"export APP STORE {option.OUT} DIR"
)


class Outcome(Enum):
    """The treatment of a store by the next start."""

    OPENS = "opens"
    """Streams opens the store unchanged, and restores nothing."""
    OPENS_EMPTY = "opens-without-rows"
    """Streams opens the store without an error, but some or all rows are missing. The store's offset is that of a
    complete store."""
    RESTORES = "restores"
    """Streams restores the records between the store's offset and the end of the changelog."""
    RESTORES_ALL = "restores-all"
    """Streams restores the whole changelog over the store's existing rows."""
    WIPED = "task-wiped"
    """Streams deletes the task's directory (``TaskCorruptedException``), and then restores the whole changelog."""
    LOST = "lost"
    """Like ``task-wiped``, but the store has no changelog, so its rows are lost."""
    MAY_BE_LOST = "may-be-lost"
    """Like ``task-wiped``, but the store was not closed, so kstate cannot determine whether it has a changelog."""
    FAILS = "start-fails"
    """``KafkaStreams#start`` or a stream thread throws an exception, and the client goes into ERROR."""
    HANGS = "start-hangs"
    """The client stays in REBALANCING and neither wipes nor restores anything."""
    NOT_REACHED = "not-reached"
    """Streams fails on a different store of the task before it opens this store."""
    UNKNOWN = "unknown"
    """The application is running, so the outcome depends on how it shuts down. Or kstate cannot read the whole
    task."""
    IGNORED = "ignored"
    """The release does not support the store or does not use the task."""


@dataclass(frozen=True, slots=True)
class Records:
    """A number of records that are restored from a changelog."""

    count: int
    exact: bool
    """False if the number is an upper bound: compaction and transaction markers leave holes in the offsets of a log."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The outcome for one store of one task, with the reason."""

    task: str
    store: str
    outcome: Outcome
    records: Records | None = None
    """The restored records, for every outcome that restores; None if the log is not known."""
    code: FindingCode | None = None
    """The finding that the outcome follows from."""
    file: str | None = None
    messages: tuple[str, ...] = ()
    """The messages of Streams, one for each exception, the outermost first; each is a part of the real text."""
    or_else: Outcome | None = None
    """The other possible outcome; None if the first one is certain."""
    by_chance: bool = True
    """True if chance decides between the two outcomes, False if a fact does that kstate does not know."""

"""A rule: a function that adds to what is known of a store or task, and the class of Kafka Streams that it follows.

Rules stand in tuples, in the order of Streams. None of them reads a disk or writes into what it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from kstate_cli.check.findings import Finding, FindingCode
from kstate_cli.check.initial_offsets import InitialOffsets, TaskInitialOffsets
from kstate_cli.check.outcome import Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.statedir.model import Store, Task


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why something does not open, and what Streams prints."""

    code: FindingCode
    text: str
    file: str
    messages: tuple[str, ...]
    by_streams: bool = False
    """The first message is Streams' own: nothing of RocksDB's, which would say where, comes before it."""


class _CheckDraft(Protocol):
    @property
    def ended(self) -> bool: ...

    @property
    def subject(self) -> str: ...

    @property
    def decisions(self) -> tuple[str, ...]: ...


_LOG = logging.getLogger(__name__)
D = TypeVar("D", bound=_CheckDraft)


@dataclass(frozen=True, slots=True)
class Rule(Generic[D]):
    """One rule."""

    source: str
    """The class of Kafka Streams that says so, and the section of docs/internals where that is not all."""
    judge: Callable[[Snapshot, D], D]


def judged(rules: Sequence[Rule[D]], snapshot: Snapshot, draft: D) -> D:
    """What is known after all of the rules, or after the first that ends it."""
    for rule in rules:
        if draft.ended:
            break
        before, draft = draft, rule.judge(snapshot, draft)
        if _LOG.isEnabledFor(logging.DEBUG) and draft.decisions != before.decisions:
            decisions = ", ".join(draft.decisions)
            _LOG.debug("%s: rule %s (%s): %s", draft.subject, rule.judge.__name__, rule.source, decisions)
    return draft


@dataclass(frozen=True, slots=True)
class StoreCheckDraft:
    """What is known of one store before its offsets are looked at."""

    task: Task
    store: Store
    read: InitialOffsets
    findings: tuple[Finding, ...] = ()
    fatal: Obstacle | None = None
    """Why the start fails at it."""
    empty: FindingCode | None = None
    """The finding because of which it opens without rows although its offset says otherwise."""
    closed: bool = False
    """It has a segment that did not open: the first write to it is fatal."""
    recreated: bool = False
    """RocksDB makes a new database where CURRENT is missing."""
    ended: bool = False
    """The release has no such stores."""

    @property
    def subject(self) -> str:
        """How the log calls it."""
        return f"{self.task.name}/{self.store.name}"

    @property
    def decisions(self) -> tuple[str, ...]:
        """What rules have decided so far, for the log."""
        fatal = () if self.fatal is None else (f"fails by {self.fatal.code}",)
        empty = () if self.empty is None else (f"opens empty by {self.empty}",)
        return (*(finding.code.name for finding in self.findings), *fatal, *empty)

    def told(self, *findings: Finding) -> StoreCheckDraft:
        """The same with more findings."""
        return replace(self, findings=(*self.findings, *findings))

    def failing(self, obstacle: Obstacle | None) -> StoreCheckDraft:
        """The same with an obstacle, unless there was one before."""
        return replace(self, fatal=self.fatal or obstacle)

    def without_rows(self, code: FindingCode) -> StoreCheckDraft:
        """The same, opening empty, unless that was known before."""
        return replace(self, empty=self.empty or code)


@dataclass(frozen=True, slots=True)
class TaskCheckDraft:
    """What is known of a task's stores so far."""

    task: Task
    read: TaskInitialOffsets
    findings: tuple[Finding, ...] = ()
    stores: Mapping[str, Store] = field(default_factory=dict)
    """Those that the release opens."""
    fails: Mapping[str, Obstacle] = field(default_factory=dict)
    empty: Mapping[str, FindingCode] = field(default_factory=dict)
    """Stores that open without rows although their offset says otherwise, with the finding's code."""
    ignored: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    """Stores with a segment that did not open: the first write to it is fatal."""
    gone: tuple[str, ...] = ()
    """Stores that other tasks of the subtopology have, and this one has not."""
    unreadable: Obstacle | None = None
    """Its ``.checkpoint`` cannot be read."""
    code: FindingCode | None = None
    """The finding that wipes the task."""
    hangs: bool | None = False
    """Whether the client never leaves REBALANCING because of the task; None if the order of its stores decides."""
    keeps_open: str | None = None
    """The store whose earlier segments stay open after a later one failed: the first start ends in ERROR."""
    in_doubt: bool = False
    """It wipes the task only where a new store is on disk, and nobody says whether it is."""
    predictions: tuple[Prediction, ...] = ()
    ended: bool = False
    """Nothing after this is reached."""

    @property
    def subject(self) -> str:
        """How the log calls it."""
        return self.task.name

    @property
    def decisions(self) -> tuple[str, ...]:
        """What rules have decided so far, for the log."""
        codes = dict.fromkeys(finding.code.name for finding in self.findings)
        return (*codes, *(f"{one.store} {one.outcome.value}" for one in self.predictions))

    def told(self, *findings: Finding) -> TaskCheckDraft:
        """The same with more findings."""
        return replace(self, findings=(*self.findings, *findings))


def opened(draft: TaskCheckDraft, one: StoreCheckDraft) -> TaskCheckDraft:
    """A task with what is known of one more of its stores."""
    name, draft = one.store.name, draft.told(*one.findings)
    if one.ended:
        return replace(draft, ignored=(*draft.ignored, name))
    return replace(
        draft,
        stores={**draft.stores, name: one.store},
        empty=draft.empty if one.empty is None else {**draft.empty, name: one.empty},
        fails=draft.fails if one.fatal is None else {**draft.fails, name: one.fatal},
        closed=draft.closed | {name} if one.closed else draft.closed,
    )

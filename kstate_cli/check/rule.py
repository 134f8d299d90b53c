"""A rule: a function that adds to the draft of a store or task, and the class of Kafka Streams that it follows.

Tuples hold the rules in the order of Streams. No rule reads a disk or changes its arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from kstate_cli.check.findings import Finding, FindingCode, Prediction
from kstate_cli.check.ranges import InitialOffsets, TaskInitialOffsets
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.statedir.model import Store, Task


@dataclass(frozen=True, slots=True)
class Obstacle:
    """The reason why a store does not open, and what Streams prints."""

    code: FindingCode
    text: str
    file: str
    messages: tuple[str, ...]
    by_streams: bool = False
    """The first message is that of Streams: none of RocksDB, which would contain the location, comes before it."""


# What :func:`judged` needs of a draft, so that one function applies the rules of stores and of tasks.
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
    """The class of Kafka Streams that it follows, and the section of docs/internals if that is not all."""
    judge: Callable[[Snapshot, D], D]


def judged(rules: Sequence[Rule[D]], snapshot: Snapshot, draft: D) -> D:
    """Return the draft after all rules, or after the first that ends it."""
    for rule in rules:
        # As in Streams: nothing follows once a start has failed, or the release has no such store.
        if draft.ended:
            break
        before, draft = draft, rule.judge(snapshot, draft)
        # Only for bug reports: building the decisions takes time for each rule of each store.
        if _LOG.isEnabledFor(logging.DEBUG) and draft.decisions != before.decisions:
            decisions = ", ".join(draft.decisions)
            _LOG.debug("%s: rule %s (%s): %s", draft.subject, rule.judge.__name__, rule.source, decisions)
    return draft


@dataclass(frozen=True, slots=True)
class StoreCheckDraft:
    """The state of one store before the rules about its offsets."""

    task: Task
    store: Store
    read: InitialOffsets
    findings: tuple[Finding, ...] = ()
    fatal: Obstacle | None = None
    """The obstacle at which the start fails."""
    empty: FindingCode | None = None
    """The finding because of which it opens without rows although its offset states otherwise."""
    closed: bool = False
    """It has a segment that did not open: the first write to it is fatal."""
    recreated: bool = False
    """RocksDB makes a new database where CURRENT is missing."""
    ended: bool = False
    """The release has no such stores."""

    @property
    def subject(self) -> str:
        """Return the name in the log."""
        return f"{self.task.name}/{self.store.name}"

    @property
    def decisions(self) -> tuple[str, ...]:
        """Return the decisions of the rules so far, for the log."""
        decisions = [finding.code.name for finding in self.findings]
        if self.fatal is not None:
            decisions.append(f"fails by {self.fatal.code}")
        if self.empty is not None:
            decisions.append(f"opens empty by {self.empty}")
        return tuple(decisions)

    def with_findings(self, *findings: Finding) -> StoreCheckDraft:
        """Return the same with more findings."""
        return replace(self, findings=(*self.findings, *findings))

    def failing(self, obstacle: Obstacle | None) -> StoreCheckDraft:
        """Return the same with an obstacle, unless there was one before."""
        # The first obstacle is what Streams throws: it opens nothing after that.
        return replace(self, fatal=self.fatal or obstacle)

    def without_rows(self, code: FindingCode) -> StoreCheckDraft:
        """Return the same, opening empty, unless that was known before."""
        # The first reason is that of the earlier step of the start.
        return replace(self, empty=self.empty or code)


@dataclass(frozen=True, slots=True)
class TaskCheckDraft:
    """The state of the stores of a task between two rules."""

    task: Task
    read: TaskInitialOffsets
    findings: tuple[Finding, ...] = ()
    stores: Mapping[str, Store] = field(default_factory=dict)
    """The stores that the release opens."""
    fails: Mapping[str, Obstacle] = field(default_factory=dict)
    empty: Mapping[str, FindingCode] = field(default_factory=dict)
    """Stores that open without rows although their offset says otherwise, with the finding's code."""
    ignored: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    """Stores with a segment that did not open: the first write to it is fatal."""
    absent: tuple[str, ...] = ()
    """Stores that other tasks of the subtopology have, and this one lacks."""
    unreadable: Obstacle | None = None
    """Its ``.checkpoint`` cannot be read."""
    code: FindingCode | None = None
    """The finding that wipes the task."""
    hangs: bool | None = False
    """True if the client never leaves REBALANCING because of the task; None if the order of its stores decides."""
    keeps_open: str | None = None
    """The store whose earlier segments stay open after a later one failed: the first start ends in ERROR."""
    in_doubt: bool = False
    """It wipes the task only if a new store is on disk, which nothing states."""
    predictions: tuple[Prediction, ...] = ()
    ended: bool = False
    """The start does not reach the later rules."""

    @property
    def subject(self) -> str:
        """Return the name in the log."""
        return self.task.name

    @property
    def decisions(self) -> tuple[str, ...]:
        """Return the decisions of the rules so far, for the log."""
        codes = dict.fromkeys(finding.code.name for finding in self.findings)
        return (*codes, *(f"{prediction.store} {prediction.outcome.value}" for prediction in self.predictions))

    def with_findings(self, *findings: Finding) -> TaskCheckDraft:
        """Return the same with more findings."""
        return replace(self, findings=(*self.findings, *findings))


def with_store(draft: TaskCheckDraft, store_draft: StoreCheckDraft) -> TaskCheckDraft:
    """Return a task with the draft of one more of its stores."""
    name, draft = store_draft.store.name, draft.with_findings(*store_draft.findings)
    if store_draft.ended:
        return replace(draft, ignored=(*draft.ignored, name))
    # New mappings each time: drafts are immutable, and the log compares a draft with the one before.
    draft = replace(draft, stores={**draft.stores, name: store_draft.store})
    if store_draft.empty is not None:
        draft = replace(draft, empty={**draft.empty, name: store_draft.empty})
    if store_draft.fatal is not None:
        draft = replace(draft, fails={**draft.fails, name: store_draft.fatal})
    if store_draft.closed:
        draft = replace(draft, closed=draft.closed | {name})
    return draft


def java_text(error: MalformedBytesError) -> str:
    """Return the message of Java's exception for bytes that ``OffsetCheckpoint.read`` rejects."""
    return error.streams_message or error.streams_exception or ""

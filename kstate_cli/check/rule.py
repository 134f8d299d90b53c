"""A rule: a function that adds to the draft of a store or a task, with the class of Kafka Streams that it follows.

A *draft* is what is known about a store or task so far; it is immutable. Tuples have the rules in the order of Streams.
No rule reads a disk.
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
    """The reason why a store does not open, and the messages of Streams."""

    code: FindingCode
    text: str
    file: str
    messages: tuple[str, ...]
    by_streams: bool = False
    """The first message is from Streams itself.

    Otherwise RocksDB's message, with the path of the database, comes first.
    """


# The members of a draft that judged() needs, so that one function applies the rules for stores and those for tasks.
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
    """Return the draft after all rules, or after the rule that has ended it."""
    for rule in rules:
        # If the start has failed, or the release has no such store, Streams does not continue either.
        if draft.ended:
            break
        before, draft = draft, rule.judge(snapshot, draft)
        # Logged only for bug reports, because building the texts takes time for each rule of each store.
        if _LOG.isEnabledFor(logging.DEBUG) and draft.decisions != before.decisions:
            decisions = ", ".join(draft.decisions)
            _LOG.debug("%s: rule %s (%s): %s", draft.subject, rule.judge.__name__, rule.source, decisions)
    return draft


@dataclass(frozen=True, slots=True)
class StoreCheckDraft:
    """The facts about one store that the rules about its opening have established."""

    task: Task
    store: Store
    read: InitialOffsets
    findings: tuple[Finding, ...] = ()
    fatal: Obstacle | None = None
    """The obstacle because of which the start fails; None if none is known."""
    empty: FindingCode | None = None
    """The finding because of which the store opens without rows, although its offset is that of a complete store."""
    closed: bool = False
    """The store has a segment that did not open. The first write to it makes the application fail."""
    recreated: bool = False
    """RocksDB creates a new database because CURRENT is missing."""
    ended: bool = False
    """The release does not have this kind of store, so no later rule applies."""

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
        """Return the draft with an obstacle, unless it has one already."""
        # Streams throws at the first obstacle, and opens nothing after it.
        return replace(self, fatal=self.fatal or obstacle)

    def without_rows(self, code: FindingCode) -> StoreCheckDraft:
        """Return the draft of a store that opens empty because of ``code``, unless it has a reason already."""
        # The first reason stays, because that step of the start comes first.
        return replace(self, empty=self.empty or code)


@dataclass(frozen=True, slots=True)
class TaskCheckDraft:
    """The facts about the stores of a task that the rules so far have established."""

    task: Task
    read: TaskInitialOffsets
    findings: tuple[Finding, ...] = ()
    stores: Mapping[str, Store] = field(default_factory=dict)
    """The stores that the release opens."""
    fails: Mapping[str, Obstacle] = field(default_factory=dict)
    empty: Mapping[str, FindingCode] = field(default_factory=dict)
    """The stores that open without rows, although their offset is that of a complete store, with the finding's code."""
    ignored: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    """The stores with a segment that did not open. The first write to it makes the application fail."""
    absent: tuple[str, ...] = ()
    """The stores that other tasks of the sub-topology have, and this one does not."""
    unreadable: Obstacle | None = None
    """The obstacle if the ``.checkpoint`` of the task cannot be read."""
    code: FindingCode | None = None
    """The finding because of which Streams wipes the task."""
    hangs: bool | None = False
    """True if the client stays in REBALANCING because of the task; None if that depends on the order of its stores."""
    keeps_open: str | None = None
    """The store whose earlier segments stay open when a later one fails, so that the first start ends in ERROR."""
    in_doubt: bool = False
    """Streams wipes the task only if a new store is on disk, which nothing shows."""
    predictions: tuple[Prediction, ...] = ()
    ended: bool = False
    """The start ends at this task, so no later rule applies."""

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
    """Return the draft of a task, extended by the draft of one of its stores."""
    name, draft = store_draft.store.name, draft.with_findings(*store_draft.findings)
    if store_draft.ended:
        return replace(draft, ignored=(*draft.ignored, name))
    # New mappings each time, because drafts are immutable, and judged() compares a draft with the one before.
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

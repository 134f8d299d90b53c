"""What a planner has to tell beside its steps: each remark has the kind that decides what becomes of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kstate_cli.change.plan import Step


class RemarkKind(Enum):
    """What a remark means for the plan that it is part of."""

    NOTE = "note"
    """Worth knowing; the run ends with 0."""
    WARNING = "warning"
    """Something is lost or left undone; the run ends with 1."""
    UNCLEAN = "unclean"
    """A task may hold uncommitted rows: the plan is refused unless the user allows it."""
    LOSS = "loss"
    """The next start would lose rows: the plan is refused."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about the plan."""

    kind: RemarkKind
    text: str


Change = Step | Remark
"""What a rule of a planner yields."""


def note(text: str) -> Remark:
    """Return a remark that changes nothing."""
    return Remark(RemarkKind.NOTE, text)


def warning(text: str) -> Remark:
    """Return a remark that makes the run end with warnings."""
    return Remark(RemarkKind.WARNING, text)


def steps_of(changes: Iterable[Change]) -> tuple[Step, ...]:
    """Return the steps among the changes, in their order."""
    return tuple(change for change in changes if not isinstance(change, Remark))


def texts_of(changes: Iterable[Change], kind: RemarkKind) -> tuple[str, ...]:
    """Return the remarks of one kind, in their order."""
    return tuple(change.text for change in changes if isinstance(change, Remark) and change.kind is kind)

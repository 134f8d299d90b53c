"""What this process has changed for good: whoever tells how a command ended must not say that nothing has changed.

An exchange of directories is not taken back by an error that comes after it: a disk that fails, output that is not
written. Such errors know nothing of the exchange. So the engine notes it here at once, and the end of the process asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Commit:
    """An exchange that has happened."""

    run: str
    """``0001-migrate``"""
    app: Path | None = None
    undone: bool = False
    """The run was taken back."""
    kept: bool = True
    """What was there before is kept for undo."""

    def __str__(self) -> str:
        app = self.app or "the application directory"
        return (
            f"run {self.run} was taken back: {app} is what it was"
            if self.undone
            else f"{app} was changed by run {self.run}"
        )


_commits: list[Commit] = []


def note_commit(run: str, app: Path | None = None, *, undone: bool = False, kept: bool = True) -> None:
    """The directories are exchanged: to be called right after the system call. It cannot fail."""
    _commits.append(Commit(run, app, undone, kept))


def committed() -> Commit | None:
    """The last exchange of this process; None where nothing was changed."""
    return _commits[-1] if _commits else None


def unchanged(*advice: str) -> str | None:
    """A hint: that nothing has changed, and what to do. None once something has: the end of the command says what.

    To be asked whenever a hint would say so: code that fails, or is interrupted, does not know whether the exchange has
    happened.
    """
    return None if committed() is not None else "; ".join(filter(None, ("nothing has changed", *advice)))


def forget_commits() -> None:
    """What was changed is gone, or nobody's: a temporary folder."""
    _commits.clear()

"""The exchanges of this process: the report of a failed command must not claim that nothing has changed.

An error after the exchange, such as a failed disk or a closed output, does not undo the exchange. The code that raises
it does not know of the exchange either. So the engine notes each exchange here at once, and the end of the command
reads it.
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
    """The run was undone."""
    has_backup: bool = True
    """The directory before the run is kept for undo."""

    def __str__(self) -> str:
        app = self.app or "the application directory"
        if self.undone:
            return f"run {self.run} was undone, and {app} is the directory from before the run"
        return f"run {self.run} has changed {app}"


# A global list, because the code that reports the end of a command has no access to the engine that failed.
_commits: list[Commit] = []


def note_commit(run: str, app: Path | None = None, *, undone: bool = False, has_backup: bool = True) -> None:
    """Note an exchange, right after its system call. It cannot fail."""
    _commits.append(Commit(run, app, undone, has_backup))


def committed() -> Commit | None:
    """Return the last exchange of this process; None if nothing was changed."""
    return _commits[-1] if _commits else None


def unchanged(*advice: str) -> str | None:
    """Return the hint that nothing has changed, with advice; None once something has changed.

    Every hint that claims so comes from here: code that fails, or is interrupted, cannot know whether the exchange has
    happened. The end of the command reports the change itself.
    """
    if committed() is not None:
        return None
    return "; ".join(filter(None, ("nothing has changed", *advice)))


def forget_commits() -> None:
    """Forget the exchanges: they were in a temporary folder that is removed."""
    _commits.clear()

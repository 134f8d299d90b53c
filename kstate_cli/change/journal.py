"""The journal of one run: JSON lines, each made durable before the step that it announces.

Where things lie: ``STATE_DIR/.kstate/<application.id>/<run>/journal.jsonl`` and, beside it, ``tree``: before the switch
the staged new application directory, after it the old one. Which of the two it is, the inode of APP says: the journal
cannot be written in the same instant as the switch.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import Any

from kstate_cli.change.owner import own_like
from kstate_cli.change.system import sync_directory
from kstate_cli.statedir.find import OWN_FOLDER

SCHEMA = 1
_JOURNAL = "journal.jsonl"
TREE = "tree"
RUNS = "runs"
"""Sorted runs of a restoration, until they are ingested."""


class RunState(Enum):
    """What has become of a run."""

    STAGING = "staging"
    """The new directory is being made; nothing has changed."""
    SWITCHING = "switching"
    """The exchange was announced: the inode of APP says whether it happened."""
    KEPT = "kept"
    """Done; the old directory is kept for undo."""
    UNDOING = "undoing"
    """The exchange back was announced."""
    UNDONE = "undone"
    """Taken back; the directory that the run had made is kept until ``kstate clean``."""
    FAILED = "failed"
    """Ended before the switch; what was staged is gone."""
    CLEANING = "cleaning"
    """What was kept is being deleted."""


_AFTER = {
    "created": RunState.STAGING,
    "switching": RunState.SWITCHING,
    "switched": RunState.KEPT,
    "undoing": RunState.UNDOING,
    "undone": RunState.UNDONE,
    "undo-cancelled": RunState.KEPT,
    "failed": RunState.FAILED,
    "cleaning": RunState.CLEANING,
}


@dataclass(slots=True)
class Run:
    """One run of the change engine and its journal."""

    path: Path
    events: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """``0001-migrate``: the number orders the runs of an application."""
        return self.path.name

    @property
    def tree(self) -> Path:
        """The application directory that is not in its place: the staged one, later the kept one."""
        return self.path / TREE

    @property
    def state(self) -> RunState | None:
        """The state after the last event; None for a run that was killed before its first."""
        for event in reversed(self.events):
            if event["event"] in _AFTER:
                return _AFTER[event["event"]]
        return None

    def last(self, name: str) -> dict[str, Any]:
        """The last event of this name; empty when there is none."""
        return next((event for event in reversed(self.events) if event["event"] == name), {})

    def write(self, event: str, **details: Any) -> None:
        """Appends an event and makes it durable. Raises OSError."""
        row = {"schema_version": SCHEMA, "event": event, "at": _now(), **details}
        path = self.path / _JOURNAL
        is_new = not path.exists()
        with open(path, "ab") as file:
            # A line that was cut off by a crash is ended first, so that this one stands alone.
            torn = file.tell() > 0 and not self._ends_in_newline(path)
            file.write((b"\n" if torn else b"") + json.dumps(row).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self.path)
        self.events.append(row)

    @staticmethod
    def _ends_in_newline(path: Path) -> bool:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def runs_folder(app: Path) -> Path:
    """``STATE_DIR/.kstate/<application.id>``: on the file system of APP, and Streams never looks there."""
    return app.parent / OWN_FOLDER / app.name


def read_runs(app: Path) -> list[Run]:
    """The runs of an application, oldest first."""
    folder = runs_folder(app)
    if not folder.is_dir():
        return []
    return [_read_run(folder / name) for name in sorted(os.listdir(folder)) if (folder / name).is_dir()]


def _read_run(path: Path) -> Run:
    events = []
    try:
        lines = (path / _JOURNAL).read_bytes().splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the write of this line was cut off: what it announced never began
        if isinstance(row, dict) and isinstance(row.get("event"), str):
            events.append(row)
    return Run(path, events)


def create_run(app: Path, command: str, **details: Any) -> Run:
    """A new run directory with its first event. Raises OSError, leaving nothing that counts."""
    folder = runs_folder(app)
    owner = app.stat()  # the application's, who can then clean up
    for missing in (folder.parent, folder):
        if not missing.exists():
            missing.mkdir(mode=0o750)
            own_like(missing, owner)
            sync_directory(missing.parent)
    numbers = [int(name.split("-")[0]) for name in os.listdir(folder) if name.split("-")[0].isdigit()]
    path = folder / f"{max(numbers, default=0) + 1:04d}-{command.split()[0]}"
    path.mkdir(mode=0o750)
    own_like(path, owner)
    sync_directory(folder)
    run = Run(path, [])
    run.write("created", command=command, pid=os.getpid(), app=str(app), **details)
    return run


def remove_empty_folders(app: Path) -> None:
    """Removes ``.kstate/<application.id>`` and ``.kstate`` once nothing is in them."""
    folder = runs_folder(app)
    for path in (folder, folder.parent):
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return

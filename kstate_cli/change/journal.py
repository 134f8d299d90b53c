"""One run and its journal: JSON lines, each made durable before the step that it announces.

The journal is ``STATE_DIR/.kstate/<application.id>/<run>/journal.jsonl``, or ``cleaning.jsonl`` once what the run keeps
is being deleted. Beside it lies ``tree``: the staged new application directory before the switch, the old one after it.
The marks in the trees say which of the two it is (:mod:`kstate_cli.change.marks`): the journal cannot be written in the
same instant as the switch, and it can be lost.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kstate_cli import clock
from kstate_cli.change.fingerprint import STAGED_LIST
from kstate_cli.change.journal_lines import JournalError, decode_line, encode_line
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import naming
from kstate_cli.host import FULL
from kstate_cli.signals import signals_held

JOURNAL: Final = "journal.jsonl"
LEAVING: Final = "cleaning.jsonl"
"""The journal of a run that is being deleted: a file system without a free block can still rename it, and the name says
what a line of it could not."""
JOURNALS: Final = frozenset({JOURNAL, LEAVING})
TREE: Final = "tree"
SORTED_FILES: Final = "runs"
"""Sorted files of a restoration, until they are ingested."""
FOUND_EMPTY: Final = "empty"
"""Member of ``created``, true where the application directory held no task when the run began; absent otherwise."""
_MOST_BYTES = 64 * 1024 * 1024


class RunState(Enum):
    """What has become of a run."""

    STAGING = "staging"
    """The new directory is being made; nothing has changed."""
    SWITCHING = "switching"
    """The exchange was announced: the marks say whether it happened."""
    KEPT = "kept"
    """Done; the old directory is kept for undo."""
    UNDOING = "undoing"
    """The exchange back was announced."""
    UNDONE = "undone"
    """Taken back; the directory that the run had made is kept until ``kstate clean``."""
    FAILED = "failed"
    """Ended before the switch; what was staged is gone."""
    CLEANING = "cleaning"
    """What was kept is being deleted: its journal has another name. An older kstate wrote a line."""


_STEPS: Final[dict[str, tuple[frozenset[RunState | None], RunState]]] = {
    "created": (frozenset({None}), RunState.STAGING),
    "switching": (frozenset({RunState.STAGING}), RunState.SWITCHING),
    "switched": (frozenset({RunState.SWITCHING}), RunState.KEPT),
    "undoing": (frozenset({RunState.KEPT}), RunState.UNDOING),
    "undone": (frozenset({RunState.UNDOING, RunState.KEPT}), RunState.UNDONE),
    "undo-cancelled": (frozenset({RunState.UNDOING}), RunState.KEPT),
    "failed": (frozenset({RunState.STAGING, RunState.SWITCHING}), RunState.FAILED),
    "cleaning": (frozenset(RunState), RunState.CLEANING),
}
"""Which event leads from which states to which. Other events are notes, and change nothing."""


def _step(state: RunState | None, event: str) -> RunState | None:
    """The state after an event. Raises JournalError for one that cannot follow."""
    before, after = _STEPS.get(event, (None, state))
    if before is None:
        before = frozenset(RunState)
    if state not in before:
        raise JournalError(f"{event} follows {state.value if state else 'nothing'}")
    return after


@dataclass(slots=True)
class Run:
    """One run of the change engine and its journal."""

    path: Path
    events: list[dict[str, Any]]
    state: RunState | None = None
    """None for a run that was killed before its first event."""
    damage: str | None = None
    """Why nothing that this run keeps may be touched: its journal cannot be believed."""
    _length: int = field(default=0, repr=False)
    """Bytes of whole lines; what lies behind them was cut off by a crash, and never announced anything."""
    _file: str = field(default=JOURNAL, repr=False)

    @property
    def name(self) -> str:
        """``0001-migrate``: the number orders the runs of an application."""
        return self.path.name

    @property
    def tree(self) -> Path:
        """The application directory that is not in its place: the staged one, later the kept one."""
        return self.path / TREE

    @property
    def token(self) -> str | None:
        """What the marks of this run name; None for a run of an older kstate, which had no marks."""
        return self.events[0].get("token") if self.events else None

    @property
    def settled_at(self) -> str:
        """When the run got the state that it has (ISO 8601); notes that come later do not make it younger."""
        return str(next(event["at"] for event in reversed(self.events) if event["event"] in _STEPS))

    @property
    def seconds(self) -> float | None:
        """How long it took until its switch, or until it failed; None where neither is known."""
        ends = [event["at"] for event in self.events if event["event"] in ("switched", "failed")]
        if not ends:
            return None
        began, ended = datetime.fromisoformat(self.events[0]["at"]), datetime.fromisoformat(ends[0])
        return max(0.0, (ended - began).total_seconds())

    def last(self, name: str) -> dict[str, Any]:
        """The last event of this name; empty when there is none."""
        return next((event for event in reversed(self.events) if event["event"] == name), {})

    def write(self, event: str, **details: Any) -> None:
        """Appends an event and makes it durable. Raises OSError, and ValueError for one that cannot follow."""
        state = _step(self.state, event)
        row = {"event": event, "at": _now(), **details}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if self.events else os.O_CREAT)
        descriptor = os.open(self.path / self._file, flags, 0o644)
        try:
            line = encode_line(row, len(self.events))
            with naming(self.path / self._file):
                self._append(descriptor, line)
        finally:
            os.close(descriptor)
        if not self.events:
            sync_directory(self.path)
        self._length += len(line)
        self.events.append(row)
        self.state = state

    def give_up(self) -> None:
        """Announces, durably, that what is kept is being deleted; no room is needed for it but that of a name.

        Raises OSError: unless the state is CLEANING then, nothing is announced.
        """
        # A signal must not part the new name from what is known of it.
        with signals_held():
            before = self._file, self.state
            if self._file != LEAVING:
                os.rename(self.path / JOURNAL, self.path / LEAVING)
            self._file, self.state = LEAVING, RunState.CLEANING
            try:
                sync_directory(self.path)
            except BaseException:
                if before[0] != LEAVING:
                    with contextlib.suppress(OSError):
                        os.rename(self.path / LEAVING, self.path / JOURNAL)
                        self._file, self.state = before
                raise

    def _append(self, descriptor: int, line: bytes) -> None:
        """All of it, durable, or nothing: what the caller takes for not announced must not be there to be read."""
        # A line that was cut off by a crash goes: what it announced never began.
        if os.fstat(descriptor).st_size != self._length:
            os.ftruncate(descriptor, self._length)
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._length)
                os.fsync(descriptor)
            raise


def read_run(path: Path) -> Run:
    """The run in a folder. Whatever is wrong with its journal is its ``damage``: nothing is raised but for OSError."""
    run = Run(path, [])
    data = None
    # Beside a clean it may get its other name, once, between the two looks at it.
    for _ in range(2):
        journals = JOURNALS & set(os.listdir(path))
        if len(journals) > 1:
            run.damage = f"it has two journals, {JOURNAL} and {LEAVING}"
            return run
        run._file = next(iter(journals), JOURNAL)
        try:
            data = _journal(path / run._file)
        except JournalError as error:
            run.damage = f"its journal {error}"
            return run
        if data is not None or not journals:
            break
    if data is not None:
        _take_in(run, data)
    if run.damage is None and not run.events and set(os.listdir(path)) - JOURNALS:
        run.damage = f"its journal is {'missing' if data is None else 'empty'}"
    if run.damage is None and run.events and run._file == LEAVING:
        run.state = RunState.CLEANING
    return run


def _take_in(run: Run, data: bytes) -> None:
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(keepends=True)):
        try:
            row = decode_line(line.removesuffix(b"\n"), number)
            state = _step(run.state, row["event"])
            if run.token is not None and "n" not in row:
                raise JournalError("is older than the line before it")
        except JournalError as error:
            run.damage = f"line {number + 1} of its journal {error}"
            return
        run.events.append(row)
        run.state = state
        run._length += len(line)


def _journal(path: Path) -> bytes | None:
    """The bytes of a journal; None where there is none. Raises JournalError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise JournalError(f"cannot be opened: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            raise JournalError("is not a regular file")
        if opened.st_size > _MOST_BYTES:
            raise JournalError(f"has {opened.st_size:,} bytes: kstate writes no more than {_MOST_BYTES:,}")
        try:
            return file.read()
        except OSError as error:
            raise JournalError(f"cannot be read: {error.strerror}") from None


def _now() -> str:
    return clock.now().isoformat(timespec="milliseconds")


def written_on_full_disk(run: Run, event: str, **details: Any) -> None:
    """As ``run.write``, for an event after which nobody asks for the list of what was staged. Raises OSError.

    Where there is no room for the line, that list makes some.
    """
    try:
        run.write(event, **details)
    except OSError as error:
        spare = run.path / STAGED_LIST
        if error.errno not in FULL or not spare.exists():
            raise
        os.unlink(spare)
        free(run.path)
        run.write(event, **details)


CREATED: Final = "created"
"""The folder of the run is there, and nothing in it yet."""
INTERRUPTED: Final = "interrupted"
"""Its process is gone, and nobody has brought it to its end yet."""
DAMAGED: Final = "damaged"
"""Its journal cannot be believed."""
UNFINISHED: Final = (None, RunState.STAGING, RunState.SWITCHING, RunState.UNDOING)
"""Runs that the next command which needs the directory takes over. With CLEANING ``clean`` alone goes on."""
RUN_STATES: Final = (CREATED, *(state.value for state in RunState), INTERRUPTED, DAMAGED)
"""All of them: whoever lists states lists these."""


def state_shown(run: Run, *, held: bool | None) -> str:
    """One of ``RUN_STATES``. ``held``: whether a process has the lock; None where nobody can tell."""
    if run.damage is not None:
        return DAMAGED
    if run.state in UNFINISHED and held is False:
        return INTERRUPTED
    return run.state.value if run.state else CREATED


def cut_short(signal_name: str | None = None) -> dict[str, Any]:
    """What the line ``failed`` has besides of a run that did not fail by itself; None: its process was gone."""
    return {"cut_short": True, "signal": signal_name}


def was_cut_short(run: Run) -> bool:
    """Whether a signal, or the end of its process, ended a run that is FAILED. An older kstate did not say."""
    return run.state is RunState.FAILED and run.last("failed").get("cut_short") is True


def signal_of(run: Run) -> str | None:
    """The signal that ended a run, such as ``SIGTERM``; None for other ends, and where the journal does not tell."""
    name = run.last("failed").get("signal")
    return name if was_cut_short(run) and isinstance(name, str) else None

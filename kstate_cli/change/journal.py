"""One run and its journal: JSON lines, each durable before the step that it announces.

The journal is ``STATE_DIR/.kstate/<application.id>/<run>/journal.jsonl``, or ``cleaning.jsonl`` once the backup is
being deleted. Beside it is ``tree``: the staged new application directory before the switch, the old one after it. The
marks in the trees tell which of the two it is (:mod:`kstate_cli.change.marks`): the journal cannot be written in the
same instant as the switch, and it can be lost.

A line is appended in this order: the end of the file is cut back to the last whole line, the new line is written, the
file is synced. Only then may the caller take the step. If any of it fails, the file is cut back and synced again: the
next command must not read a line whose step was never taken. The first line also syncs the folder, since the
fsync of a new file does not make its name durable.

A line of version 2 is a JSON object with ``schema_version``, ``n`` (its number in the journal, from 0), ``event``,
``at`` (ISO 8601 with an offset), the event's own members, and last ``sum``: the CRC-32 of the line without it, as eight
hex digits. So a line that was changed, lost, repeated or moved is noticed. Version 1 has neither ``n`` nor ``sum``;
kstate can read it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kstate_cli import clock
from kstate_cli.change.fingerprint import STAGED_LIST
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import naming
from kstate_cli.formats.binary import parse_json
from kstate_cli.host import FULL
from kstate_cli.signals import signals_held

JOURNAL: Final = "journal.jsonl"
LEAVING: Final = "cleaning.jsonl"
"""The journal of a run that is being deleted. A full file system cannot take another line, but it can rename a file."""
JOURNALS: Final = frozenset({JOURNAL, LEAVING})
TREE: Final = "tree"
SORTED_FILES: Final = "runs"
"""Folder of a restoration's sorted files, until they are ingested."""
EMPTY_AT_START: Final = "empty"
"""Member of ``created``: true if the application directory had no task when the run began, absent otherwise."""
_MOST_BYTES = 64 * 1024 * 1024


class RunState(Enum):
    """The state of a run, as its journal records it."""

    STAGING = "staging"
    """kstate is building the new directory, and APP is unchanged."""
    SWITCHING = "switching"
    """kstate was about to exchange the directories. Marks in both show whether it did."""
    KEPT = "kept"
    """The run is complete, and the old directory is its backup for undo."""
    UNDOING = "undoing"
    """kstate was about to exchange the directories back."""
    UNDONE = "undone"
    """The run was undone. The new directory stays until you run ``kstate clean``."""
    FAILED = "failed"
    """The run ended before the switch, and kstate removed the new directory."""
    CLEANING = "cleaning"
    """kstate is deleting the backup. The journal has its other name, or a line by an older version."""


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
"""By event: the states that it may follow, and the state after it. Other events are notes without a state."""


def _step(state: RunState | None, event: str) -> RunState | None:
    """Return the state after an event. Raise JournalError for one that cannot follow."""
    before, after = _STEPS.get(event, (None, state))
    if before is None:
        before = frozenset(RunState)
    if state not in before:
        last = "nothing"
        if state is not None:
            last = state.value
        raise JournalError(f"{event} follows {last}")
    return after


@dataclass(slots=True)
class Run:
    """One run of the change engine and its journal."""

    path: Path
    events: list[dict[str, Any]]
    state: RunState | None = None
    """None: the run was killed before its first event."""
    damage: str | None = None
    """Why the journal is untrustworthy: then nothing of this run may be touched."""
    _length: int = field(default=0, repr=False)
    """Bytes of whole lines. A crash may leave part of a line behind them, which never announced a step."""
    _file: str = field(default=JOURNAL, repr=False)

    @property
    def name(self) -> str:
        """Return ``0001-migrate``: the number orders the runs of an application."""
        return self.path.name

    @property
    def tree(self) -> Path:
        """Return the path of the other application directory: the staged one, later the backup."""
        return self.path / TREE

    @property
    def token(self) -> str | None:
        """Return the token in the marks of this run; None for a run of an older kstate, which had no marks."""
        return self.events[0].get("token") if self.events else None

    @property
    def settled_at(self) -> str:
        """Return when the run got its present state (ISO 8601); later notes do not count."""
        return str(next(event["at"] for event in reversed(self.events) if event["event"] in _STEPS))

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the beginning to the switch or failure; None if the run had neither."""
        ends = [event["at"] for event in self.events if event["event"] in ("switched", "failed")]
        if not ends:
            return None
        began, ended = datetime.fromisoformat(self.events[0]["at"]), datetime.fromisoformat(ends[0])
        return max(0.0, (ended - began).total_seconds())

    def last(self, name: str) -> dict[str, Any]:
        """Return the last event of this name; empty if there is none."""
        return next((event for event in reversed(self.events) if event["event"] == name), {})

    def write(self, event: str, **details: Any) -> None:
        """Append an event, durably. Raise OSError, and ValueError for an event that cannot follow."""
        state = _step(self.state, event)
        row = {"event": event, "at": _now(), **details}
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        # Only the first line creates the file: a journal that was lost meanwhile must not begin again in the middle.
        if not self.events:
            flags |= os.O_CREAT
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
        """Announce, durably, that the backup is being deleted. It needs no free block.

        Raise OSError; the deletion is announced only if the state is CLEANING then.
        """
        # A signal between the rename and the assignment would leave the object with the wrong file name.
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
        """Append a whole line durably, or leave the file as it was: see the order in the docstring of the module."""
        # Part of a line that a crash cut off: the step that it would have announced never began.
        if os.fstat(descriptor).st_size != self._length:
            os.ftruncate(descriptor, self._length)
        try:
            rest = memoryview(line)
            while rest:
                # write(2) may write a part of the line, for example on a disk that is nearly full.
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._length)
                os.fsync(descriptor)
            raise


def read_run(path: Path) -> Run:
    """Read the run in a folder. Every fault of its journal becomes its ``damage``; only OSError is raised."""
    run = Run(path, [])
    data = None
    # While a clean is running, the journal may get its other name between listing and opening: once.
    for _ in range(2):
        journals = JOURNALS & set(os.listdir(path))
        if len(journals) > 1:
            # The rename is one step, so kstate never leaves both: they contradict each other.
            run.damage = f"it has two journals: {JOURNAL} and {LEAVING}"
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
    if run.damage is not None:
        return run
    if run.events and run._file == LEAVING:
        run.state = RunState.CLEANING
    elif not run.events and set(os.listdir(path)) - JOURNALS:
        # Files beside a journal without an event: they may be a backup whose journal was lost.
        run.damage = "its journal is empty"
        if data is None:
            run.damage = "its journal is missing"
    return run


def _take_in(run: Run, data: bytes) -> None:
    """Add the whole lines of a journal to a run, up to the first damaged one."""
    # Only whole lines: a crash may cut the last one off, and its step never began.
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(keepends=True)):
        try:
            row = decode_line(line.removesuffix(b"\n"), number)
            state = _step(run.state, row["event"])
            # Every line after a line of version 2 has a number: one without was added by an old kstate
            # or by hand.
            if run.token is not None and "n" not in row:
                raise JournalError("is older than the line before it")
        except JournalError as error:
            run.damage = f"line {number + 1} of its journal {error}"
            return
        run.events.append(row)
        run.state = state
        run._length += len(line)


def _journal(path: Path) -> bytes | None:
    """Return the bytes of a journal; None if there is none. Raise JournalError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise JournalError(f"cannot be opened: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        # O_NONBLOCK above: opening a FIFO would wait forever.
        if not stat.S_ISREG(status.st_mode):
            raise JournalError("is not a regular file")
        if status.st_size > _MOST_BYTES:
            raise JournalError(f"has {status.st_size:,} bytes, but kstate writes at most {_MOST_BYTES:,}")
        try:
            return file.read()
        except OSError as error:
            raise JournalError(f"cannot be read: {error.strerror}") from None


def _now() -> str:
    return clock.now().isoformat(timespec="milliseconds")


def write_on_full_disk(run: Run, event: str, **details: Any) -> None:
    """Write an event after which the list of the staged tree is not needed any more. Raise OSError.

    A run whose end cannot be written could never be cleaned. So on a full disk that list is deleted to free a block,
    and the line is written again.
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
"""The folder of the run exists and is empty."""
INTERRUPTED: Final = "interrupted"
"""Its process has died, and no command has settled it yet."""
DAMAGED: Final = "damaged"
"""Its journal is damaged."""
UNFINISHED: Final = (None, RunState.STAGING, RunState.SWITCHING, RunState.UNDOING)
"""Runs that the next command about the directory takes over. Only ``clean`` continues a run in CLEANING."""
RUN_STATES: Final = (CREATED, *(state.value for state in RunState), INTERRUPTED, DAMAGED)
"""Every state name: those of the journal, and three that it cannot record."""


def run_state_name(run: Run, *, locked: bool | None) -> str:
    """Return one of ``RUN_STATES``. ``locked``: whether a process holds the lock; None if the system does not tell."""
    if run.damage is not None:
        return DAMAGED
    if run.state in UNFINISHED and locked is False:
        return INTERRUPTED
    return run.state.value if run.state else CREATED


def cut_short(signal_name: str | None = None) -> dict[str, Any]:
    """Return members of ``failed`` for a run that a signal ended; None: its process had died."""
    return {"cut_short": True, "signal": signal_name}


def was_cut_short(run: Run) -> bool:
    """Return whether a signal, or the death of its process, ended a FAILED run. An older kstate did not record it."""
    return run.state is RunState.FAILED and run.last("failed").get("cut_short") is True


def signal_of(run: Run) -> str | None:
    """Return the signal that ended a run, such as ``SIGTERM``; None for other ends, and without a record."""
    name = run.last("failed").get("signal")
    return name if was_cut_short(run) and isinstance(name, str) else None


SCHEMA: Final = 2
_SUM = re.compile(rb', "sum": "([0-9a-f]{8})"\}')
_SUM_BYTES = len(b', "sum": "01234567"}')

_OF_2: Final = frozenset({"n", "sum", "token"})
"""Members that only version 2 has."""

_MEMBERS: Final[dict[str, dict[str, type]]] = {
    "created": {"command": str},
    "failed": {"why": str},
    "state": {"state": str},
    "slices": {"stores": dict},
    "resumes": {"predecessor": str},
    "spent": {"seconds": dict},
}
"""Members that an event must have, in every version. Other members and other events are not checked here."""
_MEMBERS_OF_1: Final[dict[str, dict[str, type]]] = {
    "switching": {"old_inode": int, "new_inode": int, "fingerprint": dict}
}
_MEMBERS_OF_2: Final[dict[str, dict[str, type]]] = {
    "created": {"token": str, "app": str},
    "switching": {"kept": str, "made": str},
}


class JournalError(ValueError):
    """A line is not what kstate wrote there; the message says why."""


def encode_line(row: dict[str, Any], number: int) -> bytes:
    """Return the line of an event, with its newline. ``row`` has ``event`` and ``at``.

    Raise JournalError for a line that :func:`decode_line` would refuse: nothing is written that cannot be read.
    """
    body = json.dumps({"schema_version": SCHEMA, "n": number, **row}).encode()
    # The sum replaces the closing brace, so the bytes before it are what the CRC is of.
    line = body[:-1] + b', "sum": "%08x"}' % zlib.crc32(body)
    decode_line(line, number)
    return line + b"\n"


def decode_line(line: bytes, number: int) -> dict[str, Any]:
    """Return the event of a line without its newline. Raise JournalError."""
    try:
        row = parse_json(line)
    except ValueError:
        raise JournalError("is not JSON") from None
    if not isinstance(row, dict):
        raise JournalError("is not an object")
    version = row.get("schema_version", 1)
    # type() and not isinstance: true would pass for 1.
    if type(version) is not int or version < 1:
        raise JournalError(f"has the schema_version {version!r}")
    if version > SCHEMA:
        raise JournalError(f"has schema_version {version}, because a newer version of kstate wrote it")
    if version == SCHEMA or _OF_2 & row.keys():
        # The member that holds the version may itself be damaged.
        _check_sum(line)
        if version != SCHEMA:
            raise JournalError(f"has schema_version {version}, and members that only version {SCHEMA} has")
        if row.get("n") != number:
            raise JournalError(f"is line {row.get('n')!r} of the journal, but is in the place of line {number}")
    _check_members(row, version)
    return row


def _check_sum(line: bytes) -> None:
    check_sum = _SUM.fullmatch(line[-_SUM_BYTES:])
    if check_sum is None or int(check_sum[1], 16) != zlib.crc32(line[:-_SUM_BYTES] + b"}"):
        raise JournalError("was changed, because its checksum does not match")


def _check_members(row: dict[str, Any], version: int) -> None:
    event = row.get("event")
    if not isinstance(event, str):
        raise JournalError("names no event")
    try:
        at = datetime.fromisoformat(str(row.get("at")))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise JournalError(f"has the time {row.get('at')!r}")
    also = _MEMBERS_OF_2
    if version == 1:
        also = _MEMBERS_OF_1
    for name, kind in {**_MEMBERS.get(event, {}), **also.get(event, {})}.items():
        if type(row.get(name)) is not kind:
            raise JournalError(f"{event} has {name} = {row.get(name)!r}")

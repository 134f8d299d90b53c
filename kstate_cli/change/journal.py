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
from kstate_cli.change import nofollow
from kstate_cli.change.fingerprint import STAGED_LIST
from kstate_cli.change.system_calls import free, sync_directory
from kstate_cli.errors import naming
from kstate_cli.formats.binary import parse_json
from kstate_cli.host import FULL
from kstate_cli.limits import MOST_JOURNAL_BYTES
from kstate_cli.signals import signals_held

JOURNAL: Final = "journal.jsonl"
LEAVING: Final = "cleaning.jsonl"
"""The journal of a run that is being deleted. On a full file system no line can be added, but a file can be renamed."""
JOURNALS: Final = frozenset({JOURNAL, LEAVING})
TREE: Final = "tree"
SORTED_FILES: Final = "runs"
"""The folder with the sorted files (SSTs) of a restoration, until RocksDB has ingested them."""
EMPTY_AT_START: Final = "empty"
"""Member of ``created``: true if the application directory had no task when the run began, absent otherwise."""
_MOST_WHY: Final = 500
"""Characters of the reason why a line is damaged."""


class RunState(Enum):
    """The state of a run, as its journal records it."""

    STAGING = "staging"
    """kstate is building the new directory. APP is unchanged."""
    SWITCHING = "switching"
    """kstate was about to swap the directories. Marks in both directories show whether it has swapped them."""
    KEPT = "kept"
    """The run is complete. kstate keeps the old directory as the backup for undo."""
    UNDOING = "undoing"
    """kstate was about to swap the directories back."""
    UNDONE = "undone"
    """The run was undone. kstate keeps the new directory until you run ``kstate clean``."""
    FAILED = "failed"
    """The run ended before kstate swapped the directories. kstate removed the new directory."""
    CLEANING = "cleaning"
    """kstate is deleting the backup. The journal records this."""


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
"""Event -> the states that it may follow, and the state after it. Other events are notes, which change no state."""


def _step(state: RunState | None, event: str) -> RunState | None:
    """Return the state after an event. Raise JournalError if the event cannot follow this state."""
    before, after = _STEPS.get(event, (None, state))
    if before is None:
        before = frozenset(RunState)
    if state not in before:
        last = "nothing"
        if state is not None:
            last = state.value
        raise JournalError(f"the event {event} cannot follow {last}")
    return after


@dataclass(slots=True)
class Run:
    """One run of the change engine and its journal."""

    path: Path
    events: list[dict[str, Any]]
    state: RunState | None = None
    """None if the run was killed before its first event."""
    damage: str | None = None
    """Why kstate cannot trust the journal; None if it can. Nothing of a damaged run may be changed."""
    _length: int = field(default=0, repr=False)
    """Bytes of the complete lines. A crash may leave part of a line after them; its step never began."""
    _file: str = field(default=JOURNAL, repr=False)
    """The name of the journal in ``path``: one of ``JOURNALS``."""

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
        """Append an event, durably. Raise OSError, and ValueError for an event that cannot follow the present state."""
        state = _step(self.state, event)
        row = {"event": event, "at": _now(), **details}
        flags = os.O_WRONLY | os.O_APPEND
        # Only the first line creates the file. If the journal was lost meanwhile, a new one without its first lines
        # would be worse than the error.
        if not self.events:
            flags |= os.O_CREAT
        descriptor = nofollow.open_file(self.path / self._file, flags, 0o644)
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
        """Announce, durably, that the backup is being deleted: rename the journal. It needs no free block.

        Raise OSError. The deletion is announced only if the state is CLEANING afterwards.
        """
        # A signal between the rename and the assignment would leave this object with the old name of the file.
        with signals_held():
            before = self._file, self.state
            if self._file != LEAVING:
                nofollow.rename(self.path / JOURNAL, self.path / LEAVING)
            self._file, self.state = LEAVING, RunState.CLEANING
            try:
                sync_directory(self.path)
            except BaseException:
                if before[0] != LEAVING:
                    with contextlib.suppress(OSError):
                        nofollow.rename(self.path / LEAVING, self.path / JOURNAL)
                        self._file, self.state = before
                raise

    def _append(self, descriptor: int, line: bytes) -> None:
        """Append a line durably, or leave the file unchanged: the docstring of the module describes the order."""
        # Removes part of a line that a crash cut off: the step that the line would have announced never began.
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
    # ``kstate clean`` may rename the journal after the listing and before the opening. It does so once, so a second
    # attempt succeeds.
    for _ in range(2):
        journals = JOURNALS & set(os.listdir(path))
        if len(journals) > 1:
            # kstate renames the journal in one step, so it never leaves both files. Either could be the right one.
            run.damage = f"it has two journals: {JOURNAL} and {LEAVING}"
            return run
        run._file = next(iter(journals), JOURNAL)
        try:
            data = _journal(path / run._file)
        except JournalError as error:
            run.damage = str(error)
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
        # The other files may be a backup whose journal was lost.
        run.damage = "its journal is empty"
        if data is None:
            run.damage = "its journal is missing"
    return run


def _take_in(run: Run, data: bytes) -> None:
    """Add the events of the complete lines in ``data`` to a run. A damaged line ends that, and becomes the damage."""
    # The last line may be cut off by a crash. It is ignored, since its step never began.
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(keepends=True)):
        try:
            row = decode_line(line.removesuffix(b"\n"), number)
            state = _step(run.state, row["event"])
            # All lines of a journal of version 2 have a number. A line without one was added by an old kstate, or by
            # hand.
            if run.token is not None and "n" not in row:
                raise JournalError("the line has an older format than the line before it")
        except JournalError as error:
            run.damage = f"line {number + 1} of its journal is unreadable ({error})"
            return
        run.events.append(row)
        run.state = state
        run._length += len(line)


def _journal(path: Path) -> bytes | None:
    """Return the bytes of a journal; None if there is none. Raise JournalError."""
    try:
        descriptor = nofollow.open_file(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError as error:
        raise JournalError(f"kstate cannot open its journal: {error.strerror}") from None
    with nofollow.reader(descriptor) as file:
        status = os.fstat(descriptor)
        # Any other kind of file was not created by kstate. Without O_NONBLOCK above, opening a FIFO would wait forever.
        if not stat.S_ISREG(status.st_mode):
            raise JournalError("its journal is not a regular file")
        if status.st_size > MOST_JOURNAL_BYTES:
            raise JournalError(
                f"its journal has {status.st_size:,} bytes, but kstate writes at most {MOST_JOURNAL_BYTES:,}"
            )
        try:
            return file.read()
        except OSError as error:
            raise JournalError(f"kstate cannot read its journal: {error.strerror}") from None


def _now() -> str:
    return clock.now().isoformat(timespec="milliseconds")


def write_on_full_disk(run: Run, event: str, **details: Any) -> None:
    """Write an event after which the list of the staged tree is no longer needed. Raise OSError.

    On a full disk that list is deleted to free a block, and the event is written again. Otherwise the end of the run
    could not be recorded, and ``kstate clean`` would never delete the run.
    """
    try:
        run.write(event, **details)
    except OSError as error:
        spare = run.path / STAGED_LIST
        if error.errno not in FULL or not spare.exists():
            raise
        nofollow.unlink(spare)
        free(run.path)
        run.write(event, **details)


CREATED: Final = "created"
"""The state of a run whose folder exists and is empty."""
INTERRUPTED: Final = "interrupted"
"""The state of a run whose process has died, and that no command has settled yet."""
DAMAGED: Final = "damaged"
"""The state of a run whose journal is damaged."""
UNFINISHED: Final = (None, RunState.STAGING, RunState.SWITCHING, RunState.UNDOING)
"""States of runs that the next change of the directory settles. A run in CLEANING is continued by ``clean`` only."""
RUN_STATES: Final = (CREATED, *(state.value for state in RunState), INTERRUPTED, DAMAGED)
"""Every state name: those of the journal, and three that it cannot record."""


def run_state_name(run: Run, *, locked: bool | None) -> str:
    """Return the name of a run's state: one of ``RUN_STATES``.

    ``locked`` states whether a process holds the application lock; None if the system does not show that.
    """
    if run.damage is not None:
        return DAMAGED
    if run.state in UNFINISHED and locked is False:
        return INTERRUPTED
    return run.state.value if run.state else CREATED


def cut_short(signal_name: str | None = None) -> dict[str, Any]:
    """Return members of the event ``failed`` for an interrupted run. Without a signal, its process had died before."""
    return {"cut_short": True, "signal": signal_name}


def was_cut_short(run: Run) -> bool:
    """Return whether a FAILED run was interrupted: by a signal, or because its process died.

    An older kstate did not record that, so its runs are never among them.
    """
    return run.state is RunState.FAILED and run.last("failed").get("cut_short") is True


def signal_of(run: Run) -> str | None:
    """Return the name of the signal that ended a run, such as ``SIGTERM``; None if none did, or none is recorded."""
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
"""Event -> members that it must have in every version, with their types. Other members and events are not checked."""
_MEMBERS_OF_1: Final[dict[str, dict[str, type]]] = {
    "switching": {"old_inode": int, "new_inode": int, "fingerprint": dict}
}
_MEMBERS_OF_2: Final[dict[str, dict[str, type]]] = {
    "created": {"token": str, "app": str},
    "switching": {"kept": str, "made": str},
}


class JournalError(ValueError):
    """A journal, or a line of it, is not as kstate writes it. The message is a predicate without its subject."""

    def __init__(self, why: str) -> None:
        # A damaged member may have any length.
        if len(why) > _MOST_WHY:
            why = f"{why[:_MOST_WHY]}…"
        super().__init__(why)


def encode_line(row: dict[str, Any], number: int) -> bytes:
    """Return the line of an event, with its newline. ``row`` has ``event`` and ``at``.

    Raise JournalError for a line that :func:`decode_line` would refuse: nothing is written that cannot be read.
    """
    body = json.dumps({"schema_version": SCHEMA, "n": number, **row}).encode()
    # The sum is inserted before the closing brace. The CRC is of the line without the sum, which ends with that brace.
    line = body[:-1] + b', "sum": "%08x"}' % zlib.crc32(body)
    decode_line(line, number)
    return line + b"\n"


def decode_line(line: bytes, number: int) -> dict[str, Any]:
    """Return the event of a line without its newline. Raise JournalError."""
    try:
        row = parse_json(line)
    except ValueError:
        raise JournalError("the line is not JSON") from None
    if not isinstance(row, dict):
        raise JournalError("the line is not a JSON object")
    version = row.get("schema_version", 1)
    # type() and not isinstance(), because in Python True is an int and equals 1.
    if type(version) is not int or version < 1:
        raise JournalError(f"the schema_version {version!r} is not valid")
    if version > SCHEMA:
        raise JournalError(f"the schema_version is {version}, so a newer version of kstate wrote the line")
    if version == SCHEMA or _OF_2 & row.keys():
        # A line with members of version 2 is checked too: damage could have changed its schema_version to 1.
        _check_sum(line)
        if version != SCHEMA:
            raise JournalError(f"the schema_version is {version}, but the line has members of version {SCHEMA}")
        if row.get("n") != number:
            raise JournalError(f"the line has the number {row.get('n')!r}, but is line {number} of the journal")
    _check_members(row, version)
    return row


def _check_sum(line: bytes) -> None:
    """Raise JournalError unless the CRC-32 at the end of a line of version 2 is that of its other bytes."""
    check_sum = _SUM.fullmatch(line[-_SUM_BYTES:])
    if check_sum is None or int(check_sum[1], 16) != zlib.crc32(line[:-_SUM_BYTES] + b"}"):
        raise JournalError("the line's checksum does not match, so the line was changed")


def _check_members(row: dict[str, Any], version: int) -> None:
    """Raise JournalError unless ``row`` has an event, a time with an offset, and the members that its event needs."""
    event = row.get("event")
    if not isinstance(event, str):
        raise JournalError("the line contains no event")
    try:
        at = datetime.fromisoformat(str(row.get("at")))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise JournalError(f"the event has no valid time ({row.get('at')!r})")
    # ``also``: the members that only one version of this event has.
    also = _MEMBERS_OF_2
    if version == 1:
        also = _MEMBERS_OF_1
    for name, kind in {**_MEMBERS.get(event, {}), **also.get(event, {})}.items():
        if type(row.get(name)) is not kind:
            raise JournalError(f"the event {event} has {name} = {row.get(name)!r}")

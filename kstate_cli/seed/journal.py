"""The journal of a seed: which topics it announced and created, and which offsets it committed.

The log of a topic is the proof of what was written. The journal is a hint, but the only one about one question: whether
this run created a topic. Each line is durable before the step that it announces:

    {"event": "planned", "app": …, "digest": …}     the plan, the options and the id of the cluster; a later run must
                                                    have the same
    {"event": "announced", "topic": …}              before the topic is created
    {"event": "created", "topic": …, "id": …}       with its topic id (KIP-516)
    {"event": "verified", "topic": …, "ends": {…}}  read again, and equal; the log ends by partition
    {"event": "committing", "committed": [[topic, partition, offset, metadata, epoch], …]}    before it
    {"event": "done"}
    {"event": "deleting"}                           before an undo deletes the first topic
    {"event": "undone"}                             the topics were deleted; lines before it no longer count
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kstate_cli import option
from kstate_cli.broker.group_offsets import CommittedOffset
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import InUse, Refused, RunFailed
from kstate_cli.formats.binary import parse_json
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import command

_MOST_BYTES: Final = 64 << 20
_LINE_BEGIN: Final = b'{"event": "'
"""How ``SeedJournal.add`` begins each line."""


def announced_topics(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the topics of the target that the lines of a journal announce."""
    return frozenset(str(line["topic"]) for line in events if line["event"] == "announced")


def lines_by_topic(events: Iterable[Mapping[str, Any]], event: str) -> dict[str, Mapping[str, Any]]:
    """Return the lines of this event by topic."""
    return {str(line["topic"]): line for line in events if line["event"] == event}


def announced_offsets(events: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets that the run has announced; none if it did not come so far."""
    line = next((line for line in events if line["event"] == "committing"), None)
    if line is None:
        return {}
    return {
        TopicPartition(topic, partition): CommittedOffset(offset, bytes.fromhex(metadata), epoch)
        for topic, partition, offset, metadata, epoch in line["committed"]
    }


class SeedJournal:
    """An open journal. Only one process has it at a time."""

    def __init__(self, path: Path, descriptor: int, events: list[dict[str, Any]]) -> None:
        self.path = path
        self.events = events
        self._descriptor = descriptor

    def first(self, event: str) -> Mapping[str, Any] | None:
        """Return the first line of this event; None if there is none."""
        return next((line for line in self.events if line["event"] == event), None)

    def topics(self, event: str) -> dict[str, Mapping[str, Any]]:
        """Return the lines of this event by topic."""
        return lines_by_topic(self.events, event)

    def announce_offsets(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Record the offsets that are committed next. Raise RunFailed."""
        self.add(
            "committing",
            committed=[
                [key.topic, key.partition, committed.offset, committed.metadata.hex(), committed.leader_epoch]
                for key, committed in sorted(offsets.items())
            ],
        )

    def announced_offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets that the run has announced; none if it did not come so far."""
        return announced_offsets(self.events)

    def add(self, event: str, **members: Any) -> None:
        """Append a line and sync it. Raise RunFailed if the file system refuses it."""
        line = {"event": event, **members}
        data = json.dumps(line).encode() + b"\n"
        try:
            if os.write(self._descriptor, data) != len(data):
                # A full file system takes a part, and reports it only to the next write.
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError as error:
            raise RunFailed(
                f"kstate cannot write {self.path}: {error.strerror}",
                hint="free disk space, then run the command again. It continues the run",
            ) from None
        self.events.append(line)


def undo_command(path: Path, bootstrap: str) -> str:
    """Return the command that deletes the topics of a run."""
    return command("seed", option.UNDO, option.DELETE_TOPICS, path, option.BOOTSTRAP_SERVER, bootstrap)


@contextmanager
def open_journal(path: Path, *, create: bool = True) -> Iterator[SeedJournal]:
    """Yield the journal at ``path``; with ``create``, a new one if there is none.

    A new journal without a line is removed again. Raises InUse, Refused and RunFailed.
    """
    is_new = create and not os.path.lexists(path)
    flags = os.O_RDWR
    if create:
        flags |= os.O_CREAT
    descriptor = _open(path, flags)
    try:
        _refuse_other_files(path, descriptor)
        _lock(path, descriptor)
        try:
            events, length = _read(path, descriptor)
            # A kill may leave a part of a line, which never announced a step.
            os.ftruncate(descriptor, length)
            os.lseek(descriptor, length, os.SEEK_SET)
            if not length:
                sync_directory(Path(os.path.realpath(path.parent)))
            yield SeedJournal(path, descriptor, events)
        finally:
            # A refused run has announced nothing. While kstate holds the lock, no other process writes to the file.
            if is_new and not os.fstat(descriptor).st_size:
                with contextlib.suppress(OSError):
                    path.unlink()
    finally:
        os.close(descriptor)


def _lock(path: Path, descriptor: int) -> None:
    """Lock the open journal. Raise InUse if another process has it, or has removed it meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InUse(f"another kstate process is using the journal {path}", hint="wait until it exits") from None
    # A process without a line to write removes its empty journal: lines in that file would be lost.
    if not _is_at(path, descriptor):
        raise InUse(f"another kstate process used the journal {path}", hint="run the command again")


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file still has this path."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except OSError:
        return False


def _open(path: Path, flags: int) -> int:
    """Return a descriptor of the journal. Raise RunFailed if the file system refuses it."""
    try:
        # Without O_NONBLOCK, the opening of a pipe would wait for its other end.
        return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise RunFailed(
            f"kstate cannot open the journal {path}: {error.strerror}", hint=f"pass {option.JOURNAL} with another file"
        ) from None


def _refuse_other_files(path: Path, descriptor: int) -> None:
    """Raise Refused for a pipe or a device, which no later run could read, and for a file beyond the limit."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        raise Refused(
            f"{path} is not a seed journal",
            hint=f"pass {option.JOURNAL} with the file of the run or with a new one",
        )


def read_journal(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a journal, for a dry run; none if there is no file. Raises Refused."""
    if not path.exists():
        return []
    descriptor = _open(path, os.O_RDONLY)
    try:
        _refuse_other_files(path, descriptor)
        return _read(path, descriptor)[0]
    finally:
        os.close(descriptor)


_MEMBERS: Final[Mapping[str, Mapping[str, type]]] = {
    "planned": {"app": str, "source_app": str, "digest": str},
    "announced": {"topic": str},
    "created": {"topic": str},
    "verified": {"topic": str, "ends": dict},
    "committing": {"committed": list},
    "done": {"source_app": str, "topics": int, "records": int, "copied": int},
}
"""Members that the line of an event must have."""
_OPTIONAL: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "planned": {"dump": str, "cluster": (str, type(None))},
    "verified": {"records": int},
}
"""Members that lines of earlier versions do not have."""


def _is_line(row: Mapping[str, Any]) -> bool:
    """Return whether a row is one that a seed has written."""
    if not isinstance(row.get("event"), str):
        return False
    members = _MEMBERS.get(row["event"], {})
    if not all(isinstance(row.get(name), kind) for name, kind in members.items()):
        return False
    optional = _OPTIONAL.get(row["event"], {})
    if not all(isinstance(row[name], kind) for name, kind in optional.items() if name in row):
        return False
    return row["event"] != "committing" or all(map(_is_offset, row["committed"]))


def _is_offset(row: Any) -> bool:
    match row:
        case [str(), int() as partition, int() as offset, str() as metadata, None | int()]:
            # In pairs of hexadecimal digits, as ``bytes.hex`` writes them: fromhex takes blanks too.
            return partition >= 0 and offset >= 0 and re.fullmatch(r"(?:[0-9a-f]{2})*", metadata) is not None
    return False


def _read(path: Path, descriptor: int) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines, and their bytes."""
    data = os.pread(descriptor, _MOST_BYTES, 0)
    length = data.rfind(b"\n") + 1
    events: list[dict[str, Any]] = []
    number = 0
    for number, line in enumerate(data[:length].splitlines(), 1):
        try:
            event = parse_json(line)
        except ValueError:
            event = None
        # Whole lines only, with all members: undo decides by them which topics it deletes.
        if not isinstance(event, dict) or not _is_line(event):
            raise _foreign(path, number)
        events.append(event)
        if event["event"] == "undone":
            events.clear()
    # What follows the last whole line is cut off, so it must be the beginning of one: a user may have named a file of
    # another program, which need not end with a line feed.
    rest = data[length : length + len(_LINE_BEGIN)]
    if not _LINE_BEGIN.startswith(rest):
        raise _foreign(path, number + 1)
    return events, length


def _foreign(path: Path, number: int) -> Refused:
    return Refused(
        f"line {number} of {path} is not a line of a seed journal",
        hint=f"pass {option.JOURNAL} with the file of the run or with a new one",
    )

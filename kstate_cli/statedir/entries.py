"""The entries of an application directory by name and type: files of tasks, folders of stores, and foreign entries.

Streams creates only regular files and directories. A copy would wait at a FIFO forever, make an empty file of a device,
and never end in a cycle of directories. So kstate refuses a change if such entries exist, and reports them in a task.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

from kstate_cli.errors import InUse, Refused
from kstate_cli.formats import checkpoint
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.topic_partition import legal_store_name
from kstate_cli.host import CHECK_THE_DISK, STORES_STAY, cannot_be_read, host_error
from kstate_cli.limits import MOST_LEVELS, MOST_OFFSETS_BYTES
from kstate_cli.regular_files import NotReadableError, is_special, is_utf8, kind_of, read_small
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.model import CheckpointFile
from kstate_cli.statedir.names import (
    CHECKPOINT,
    LOCK,
    LOST_AND_FOUND,
    POSITION,
    ROCKSDB,
    is_foreign,
    is_offsets_file,
    position_file,
    segment_start,
    store_checkpoint,
)
from kstate_cli.statedir.problems import Place, Problem, ProblemCode, Spelling, both_places, task_place
from kstate_cli.texts import first_lines

IGNORED = frozenset({LOST_AND_FOUND})
READING_ATTEMPTS = 12
"""How often a task or a database is read while a running application changes it."""
_PRINTED_LEVELS = 3


class EntryKind(Enum):
    """The purpose of an entry of a task directory."""

    OFFSETS_DIRECTORY = auto()
    """A directory with the name of a file of offsets or of a Position."""
    CHECKPOINT = auto()
    """``.checkpoint``."""
    STORE_CHECKPOINT = auto()
    """``.checkpoint_<store>``."""
    POSITION = auto()
    """``<store>.position``."""
    LEFTOVER = auto()
    """A temporary file, or a lock, of a process that has died."""
    ROCKSDB = auto()
    """The folder ``rocksdb``."""
    STORE_FOLDER = auto()
    """The folder of a segmented or custom store."""
    FOREIGN = auto()
    """Anything else: Streams ignores it."""


@dataclass(frozen=True, slots=True, order=True)
class StoreFolder:
    """The folder of a store in a task."""

    name: str
    path: Path
    segmented: bool


@dataclass(slots=True)
class TaskEntries:
    """The entries of a task directory, sorted by kind."""

    stores: list[StoreFolder] = field(default_factory=list)
    checkpoint: CheckpointFile | None = None
    store_files: dict[str, CheckpointFile] = field(default_factory=dict)
    position_files: dict[str, CheckpointFile] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    unlisted: list[OSError] = field(default_factory=list)
    """The error for each directory that this host or this user cannot list."""

    def list_names(self, path: Path) -> list[str] | None:
        """Return the names in a directory, sorted; None if it cannot be listed: its error is in ``unlisted`` then."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            self.add_unlisted(error)
            return None

    def add_unlisted(self, error: OSError) -> None:
        """Record the error of a directory that cannot be listed.

        Raise other errors, such as that it was removed meanwhile.
        """
        if not cannot_be_read(error):
            raise error
        self.unlisted.append(error)


def read_entries(task: str, path: Path) -> TaskEntries | None:
    """Return the entries of a task directory; None if it was removed. Raise InUse if it changes at every attempt."""
    # A running application renames and deletes files meanwhile. Each attempt lists the whole task again, so that all
    # its entries are of the same moment.
    for _ in range(READING_ATTEMPTS):
        try:
            return _sort_entries(task_place(task), path)
        except FileNotFoundError:
            # A running application removed an entry between the listing and the reading.
            if not path.exists():
                return None
    raise changes_too_fast(task)


def changes_too_fast(place: str) -> InUse:
    """Return the error for a task or database that a running application changed during every attempt to read it."""
    return InUse(
        f"{place} changes too fast for kstate to read it", hint="run the command again, or stop the application first"
    )


def entry_kind(name: str, *, is_directory: bool) -> EntryKind:
    """Return the purpose of an entry of a task directory by its name and type."""
    if is_directory and is_offsets_file(name):
        return EntryKind.OFFSETS_DIRECTORY
    if name == CHECKPOINT:
        return EntryKind.CHECKPOINT
    # ``OffsetCheckpoint.write`` writes ``.checkpoint.tmp`` and renames it. A crash in between leaves this file.
    if name.startswith(CHECKPOINT) and name.endswith(".tmp"):
        return EntryKind.LEFTOVER
    # Tested after .tmp: ".checkpoint_<store>.tmp" is a left-over, too.
    if name.startswith(store_checkpoint("")):
        return EntryKind.STORE_CHECKPOINT
    if name.endswith(POSITION):
        return EntryKind.POSITION
    if name.endswith((POSITION + ".tmp", LOCK)):
        return EntryKind.LEFTOVER
    if not is_directory:
        return EntryKind.FOREIGN
    if name == ROCKSDB:
        return EntryKind.ROCKSDB
    return EntryKind.STORE_FOLDER


def _sort_entries(task: Place, path: Path) -> TaskEntries:
    """Return the entries of a task directory by their kind, with their problems.

    Raise FileNotFoundError and OSError.
    """
    entries = TaskEntries()
    for name in entries.list_names(path) or ():
        if name in IGNORED:
            continue
        entry, place = path / name, task / name
        if is_foreign(name) and not _may_be_store(entry):
            entries.problems.append(special_entry(entry, place) or _ignorable(place))
        elif entry.is_symlink():
            entries.problems.append(symbolic_link(place, "a task's files must be in the task's directory"))
        elif not entry.is_dir() and not entry.is_file():
            # It is a special file, or a running application has just removed it. The latter is no problem.
            entries.problems += filter(None, [special_entry(entry, place)])
        else:
            _add_entry(entry, place, entries)
    _leave_out_twins(task, entries)
    return entries


def _leave_out_twins(task: Place, entries: TaskEntries) -> None:
    """Remove a store from ``entries`` if the task has databases of it in both layouts: as one database and as segments.

    If a store becomes a windowed one, or no longer is one, its old folder stays. kstate does not know which folder the
    application opens, so it reports both. If only one of the folders has a database, the store is that one.
    """
    for name, count in Counter(store.name for store in entries.stores).items():
        if count == 1:
            continue
        twins = [store for store in entries.stores if store.name == name]
        # A folder without a database was never opened, so it has no rows that could be lost.
        filled = [store for store in twins if _may_be_store(store.path)]
        others = [store for store in entries.stores if store.name != name]
        if len(filled) < len(twins):
            entries.stores = [*others, *(filled or twins[:1])]
            continue
        entries.stores = others
        rule = (
            "the application uses only one of the two stores, and kstate cannot determine which one. Move the "
            "obsolete one away"
        )
        entries.problems += [
            Problem(ProblemCode.TWO_LAYOUTS, place, "this is one of two stores with the same name in the task", rule)
            for place in both_places("/".join(task.names), name)
        ]


def _add_entry(entry: Path, place: Place, entries: TaskEntries) -> None:
    """Add a file or directory of a task to ``entries``, by its kind."""
    name = entry.name
    match entry_kind(name, is_directory=entry.is_dir()):
        case EntryKind.OFFSETS_DIRECTORY:
            problem = Problem(
                ProblemCode.NOT_A_FILE, place, "the entry is a directory", "an offsets file is a regular file"
            )
            entries.problems.append(problem)
        case EntryKind.CHECKPOINT:
            entries.checkpoint = _read_checkpoint(entry, place, entries.problems)
        case EntryKind.STORE_CHECKPOINT:
            if (file := _read_checkpoint(entry, place, entries.problems)) is not None:
                entries.store_files[name.removeprefix(store_checkpoint(""))] = file
        case EntryKind.POSITION:
            if (file := _read_checkpoint(entry, place, entries.problems)) is not None:
                entries.position_files[name.removesuffix(POSITION)] = file
        case EntryKind.LEFTOVER:
            entries.leftovers.append(name)
        case EntryKind.ROCKSDB:
            _sort_rocksdb(place, entry, entries)
        case EntryKind.STORE_FOLDER:
            _sort_store_folder(place, entry, entries)
        case EntryKind.FOREIGN:
            entries.problems.append(_ignorable(place))


def _may_be_store(entry: Path) -> bool:
    """Return whether a folder with a foreign name is or contains a database, so that it may be a store of Streams."""
    if entry.is_symlink() or not entry.is_dir():
        return False
    try:
        return is_database(entry) or any(child.is_dir() and is_database(child) for child in entry.iterdir())
    except OSError as error:
        if not cannot_be_read(error):
            raise
        return False


def _ignorable(place: Place) -> Problem:
    rule = (
        "Streams ignores the entry, but does not treat a task directory with such an entry as empty. kstate keeps "
        "the entry when it changes the directory"
    )
    return Problem(ProblemCode.FOREIGN, place, "Streams did not create this entry", rule)


def _illegal(place: Place) -> Problem:
    return Problem(
        ProblemCode.ILLEGAL_NAME,
        place,
        "the name is not a legal store name",
        "a store name has at most 249 characters: letters, digits, dots, underscores and dashes",
    )


def _no_segment(place: Place, rule: str) -> Problem:
    return Problem(ProblemCode.NO_SEGMENT, place, "the name is not a segment name", rule)


def symbolic_link(place: Place, rule: str) -> Problem:
    """Return the problem of a symbolic link. kstate never follows one, because its target may be elsewhere."""
    return Problem(ProblemCode.LINK, place, "the entry is a symbolic link", rule)


def _sort_rocksdb(folder: Place, path: Path, entries: TaskEntries) -> None:
    """Add the stores in ``rocksdb/``: each is one database."""
    for name in entries.list_names(path) or ():
        entry, place = path / name, folder / name
        if name in IGNORED:
            continue
        if is_foreign(name) and not _may_be_store(entry):
            entries.problems.append(special_entry(entry, place) or _ignorable(place))
        elif entry.is_symlink():
            entries.problems.append(symbolic_link(place, "stores must be in the task"))
        elif (special := special_entry(entry, place)) is not None:
            entries.problems.append(special)
        elif not entry.is_dir():
            entries.problems.append(_ignorable(place))
        elif not legal_store_name(name):
            entries.problems.append(_illegal(place.spelled(Spelling.LAST_QUOTED)))
        else:
            entries.stores.append(StoreFolder(name, entry, segmented=False))


def _sort_store_folder(place: Place, path: Path, entries: TaskEntries) -> None:
    """Add a folder of a task that is not ``rocksdb``: as a segmented store if it is empty or has a segment.

    Otherwise it gets a problem: it belongs to a custom store, or to another program.
    """
    name, children = path.name, entries.list_names(path)
    if children is None:
        return
    if not legal_store_name(name):
        entries.problems.append(_illegal(place.spelled(Spelling.QUOTED)))
        return
    # One entry with the name of a segment is enough: Streams then parses every name in the folder, and fails at others.
    segments = frozenset(child for child in children if segment_start(name, child) is not None)
    if not children or segments:
        for child in children:
            entries.problems += _segment_problem(place / child, path / child, is_segment=child in segments)
        entries.stores.append(StoreFolder(name, path, segmented=True))
    elif (path.parent / position_file(name)).exists():
        rule = (
            "a store with a Position belongs to Streams. 4.3 fails to start if such a store contains an entry that "
            "is not a segment"
        )
        entries.problems.append(_no_segment(place / children[0], rule))
    else:
        # A custom store may keep any files here. Streams never reads them, so they do no harm.
        entries.problems.append(_ignorable(place))


def _segment_problem(place: Place, entry: Path, *, is_segment: bool) -> Iterator[Problem]:
    """Yield the problem of an entry in the folder of a segmented store, if it is not the directory of a segment."""
    if entry.is_symlink():
        yield symbolic_link(place, "segments must be in their store")
    elif not is_segment:
        rule = (
            "move the entry out of the task. Otherwise 4.3 fails to start, and older releases silently open an "
            "empty store"
        )
        yield _no_segment(place, rule)
    elif not entry.is_dir():
        rule = "a segment is a RocksDB directory"
        yield Problem(ProblemCode.NOT_A_DIRECTORY, place, "the entry is not a directory", rule)


def _read_checkpoint(path: Path, place: Place, problems: list[Problem]) -> CheckpointFile | None:
    """Return an offset file, and add its problems; None if it was removed, as a start of up to 4.2 does.

    A file that cannot be read is returned too, with its error and without content.
    """
    content = None
    error: MalformedBytesError | OSError | None = None
    mtime = 0
    try:
        # The time is read before the content. If the file is replaced in between, it looks older than it is. Then a
        # young SST is still reported as a possible crash.
        mtime = path.stat(follow_symlinks=False).st_mtime_ns
        content = checkpoint.parse(read_small(path, MOST_OFFSETS_BYTES))
    except FileNotFoundError:
        return None
    except (MalformedBytesError, OSError) as failure:
        error = failure
    file = CheckpointFile(path, content, error, mtime)
    if error is not None:
        code, rule = _reading_failure(error)
        problems.append(Problem(code, place, file.why or "", rule))
    if content is None:
        return file
    # Java parses "-1" as a partition, but no topic has such a partition. So Streams has not written this file.
    if any(tp.partition < 0 for tp in content.entries):
        negative = MalformedBytesError("the file contains a negative partition")
        problems.append(Problem(ProblemCode.NEGATIVE_PARTITION, place, str(negative), "partition numbers begin at 0"))
        return CheckpointFile(path, None, negative, mtime)
    problems += [
        Problem(
            ProblemCode.DROPPED_LINE,
            place,
            f"the line {line!r} has a negative offset",
            "Streams drops lines with a negative offset",
        )
        for line in content.dropped
    ]
    return file


def _reading_failure(error: MalformedBytesError | OSError) -> tuple[ProblemCode, str]:
    """Return the code and the rule for an offset file that could not be read."""
    if isinstance(error, NotReadableError):
        return ProblemCode.SPECIAL, "an offsets file is a regular file with a line for each partition of each store"
    if isinstance(error, MalformedBytesError) and error.streams_exception is None:
        return ProblemCode.SPECIAL, "Streams may be able to read the file, but kstate does not read it"
    if isinstance(error, OSError) and cannot_be_read(error):
        return ProblemCode.UNREADABLE, CHECK_THE_DISK
    code = ProblemCode.MALFORMED_OFFSETS
    if isinstance(error, OSError):
        code = ProblemCode.READING_FAILED
    return code, "Streams fails to start if a task has a malformed offsets file"


def special_entries(app: Path) -> Iterator[Problem]:
    """Yield a problem for each entry below ``app`` that kstate cannot copy or list. Links are not followed.

    An entry that a running application removes meanwhile is skipped.
    """
    # A stack of folders and no recursion: recursion would exceed Python's limit before the limit of levels.
    waiting = [(str(app), Place())]
    while waiting:
        folder, place_of_folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                # Sorted, so that every run reports in the same order. The list also lets the descriptor close before
                # the next level.
                ordered = sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield _unlisted_folder(place_of_folder, error)
            continue
        for entry in ordered:
            place = place_of_folder / entry.name
            if entry.name in IGNORED:
                continue
            if entry.is_dir(follow_symlinks=False):
                if len(place_of_folder.names) < MOST_LEVELS:
                    waiting.append((entry.path, place))
                else:
                    folder_above = Place(place.names[:_PRINTED_LEVELS], Spelling.AND_BELOW)
                    rule = f"kstate reads directories at most {MOST_LEVELS} levels deep"
                    text = f"the directory is more than {MOST_LEVELS} levels deep"
                    yield Problem(ProblemCode.SPECIAL, folder_above, text, rule)
            elif not entry.is_file(follow_symlinks=False) and (problem := special_entry(entry.path, place)) is not None:
                yield problem


def _unlisted_folder(place: Place, error: OSError) -> Problem:
    """Return the problem of a folder that cannot be listed. Raise HostError if this host lacks a resource."""
    if (shortage := host_error(error)) is not None:
        raise shortage from None
    code = ProblemCode.SPECIAL
    if cannot_be_read(error):
        code = ProblemCode.UNREADABLE
    rule = f"kstate must be able to read every directory. {CHECK_THE_DISK}"
    return Problem(code, place, f"kstate cannot list the directory: {error.strerror}", rule)


def special_entry(path: Path | str, place: Place) -> Problem | None:
    """Return the problem of a FIFO, socket or device; None for a file, directory or link, and for a missing path."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if not is_special(mode):
        return None
    rule = "an application directory contains only files and directories"
    return Problem(ProblemCode.SPECIAL, place, f"the entry is {kind_of(mode)}", rule)


def refuse_special(app: Path) -> None:
    """Raise Refused if a change could not copy the whole directory. The message names up to twenty entries.

    Called before the lock is taken and before any file is opened. A missing directory is accepted, unless its path is
    not UTF-8, which RocksDB needs.
    """
    if not is_utf8(app):
        raise Refused(
            f"the path {app} is not encoded in UTF-8, and RocksDB cannot open such a path",
            hint="rename the path so that it is encoded in UTF-8",
        )
    if not app.is_dir() or app.is_symlink():
        return
    problems = sorted(special_entries(app), key=lambda problem: problem.place.text)
    if not problems:
        return
    hint = "move entries that are neither files nor directories out of the application directory"
    if all(problem.code is ProblemCode.UNREADABLE for problem in problems):
        # An unreadable entry may be a healthy task: the user must not move it away.
        hint = STORES_STAY
    raise Refused(
        "kstate cannot change the directory in its current state",
        where=str(app),
        details=first_lines([problem.reasoned for problem in problems]),
        hint=hint,
    )

"""Keep sorted files until RocksDB ingests them: in a folder that driver and executors share, or below a URI.

RocksDB writes local files only: for a URI, an executor writes each file into a temporary folder and copies it out.
The notes of finished slices also tell ``kstate status`` how far a restoration is.

The staged application directory is another place (``change.engine``). ``staging_area`` knows whose folder in the
staging area is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlparse

from kstate_cli import temporary
from kstate_cli.change import nofollow
from kstate_cli.change.access import own_like
from kstate_cli.change.commits_made import unchanged
from kstate_cli.change.journal import SORTED_FILES, Run
from kstate_cli.change.removal import remove_directory
from kstate_cli.dump_reader.location import open_location
from kstate_cli.errors import RunFailed, naming
from kstate_cli.formats.binary import parse_json
from kstate_cli.restore.jobs import SliceJob, SortedFile, task_of
from kstate_cli.restore.staging_area import below

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

    from kstate_cli.restore.jobs import SliceResult


STARTED, FINISHED = ".started", ".done"
_NOTED: Final[dict[str, dict[str, type]]] = {
    STARTED: {"slice": str, "pid": int},
    FINISHED: {"task": str, "store": str, "number": int, "records": int, "data_bytes": int, "files": list, "seal": str},
}
"""What every note holds, by kind."""
_CHUNK: Final = 1 << 20


def is_local(target: str) -> bool:
    """Return True for a path or a file: URI."""
    return urlparse(target).scheme in ("", "file")


def local(target: str) -> str:
    """Return the path of a local target."""
    if target.startswith("file:"):
        return urlparse(target).path
    return target


def seal(note: dict[str, Any]) -> str:
    """Return the digest of a note: kstate believes a note only if it is the one that was written."""
    plain = {name: value for name, value in note.items() if name not in ("seal", "name")}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def files_of(note: dict[str, Any]) -> list[SortedFile]:
    """Return the sorted files that the note of a finished slice names. Raises ValueError."""
    return [SortedFile.from_row(row) for row in note["files"]]


def digest_of(path: str | Path, ended: Callable[[], bool] = lambda: False) -> str:
    """Return the SHA-256 of a local file, in hex; of a part of it once it is ``ended``. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in _chunks(file, ended):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(slots=True)
class Staging:
    """The staging folder as one task, or the driver, sees it. The driver has made it: a task never does.

    A task of a run whose driver died would otherwise create the folder again, after another command removed it.
    """

    target: str
    _private: str = ""
    _new_files: list[str] = field(default_factory=list)
    _read: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Notes by name. One never changes: it is renamed into place whole, and its name has the attempt's own id."""

    @property
    def is_in_run(self) -> bool:
        """Return True for the folder in a run: it has the owner of the application, and no part of its path is a link.

        A staging area may be reached by links, which can lead to different places on the host of each executor.
        """
        # The name of a folder in a staging area ends with a token.
        return is_local(self.target) and os.path.basename(local(self.target)) == SORTED_FILES

    def new_file(self, name: str) -> str:
        """Return a local path for a new sorted file."""
        if is_local(self.target):
            path = os.path.join(local(self.target), name)
        else:
            # RocksDB writes local files only: for a remote target a file is written here, and uploaded once it is
            # whole.
            self._private = self._private or str(temporary.make("runs"))
            path = os.path.join(self._private, name)
        self._new_files.append(path)
        return path

    def publish(self, path: str) -> str:
        """Make a finished file visible to the driver, which may be on another host; return its path or URI."""
        if is_local(self.target):
            # If root is interrupted, the owner of the application can use the file: RocksDB links it, and Linux lets a
            # user link own files only (fs.protected_hardlinks).
            if self.is_in_run:
                own_like(Path(path), nofollow.stat(local(self.target)))
            return path
        filesystem, folder = self._remote()
        with (
            open(path, "rb") as source,
            filesystem.open_output_stream(f"{folder}/{os.path.basename(path)}") as sink,
        ):
            for chunk in _chunks(source):
                sink.write(chunk)
        # The file is uploaded and removed here, so that a task needs disk space for one file at a time.
        os.unlink(path)
        return below(self.target, os.path.basename(path))

    def fetch(self, file: SortedFile, folder: Path, ended: Callable[[], bool] = lambda: False) -> Path:
        """Return a sorted file as a local one: copied into ``folder``, or the file itself if it is local already.

        Called by the driver. Every byte is read and compared with the digest that the task computed, because RocksDB
        looks only at the name, the first and the last row of a file that it ingests. Raises RunFailed for another file
        than the task wrote, and once ``ended`` returns True; OSError.
        """
        if is_local(self.target):
            digest_here, path = digest_of(file.path, ended), Path(file.path)
        else:
            filesystem, remote = self._remote()
            path = folder / os.path.basename(file.path.partition("?")[0])
            # The digest is computed while the file is copied: a second reading would take as long again.
            digest = hashlib.sha256()
            with filesystem.open_input_stream(f"{remote}/{path.name}") as source, open(path, "wb") as sink:
                for chunk in _chunks(source, ended):
                    digest.update(chunk)
                    sink.write(chunk)
            digest_here = digest.hexdigest()
        # RocksDB takes the file in next, and looks at its first and last row alone.
        if digest_here != file.digest:
            raise RunFailed(
                f"{path} has changed since the task wrote it (its SHA-256 differs)",
                hint=unchanged("check the disk and the memory of that host, then run the command again"),
            )
        return path

    def discard(self, attempt: str) -> None:
        """Remove the files of a failed attempt."""
        for path in self._new_files:
            # Other attempts of this process may have files of theirs in the list.
            if attempt in path:
                with contextlib.suppress(OSError):
                    if self.is_in_run:
                        nofollow.unlink(path)
                    else:
                        os.unlink(path)
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)

    def mark_started(self, job: SliceJob, attempt: str) -> None:
        """Write a note that an attempt began; nothing is decided by it."""
        name = f"{job.task}-{job.store}-{job.number}"
        self._note(f"{job.label}-{attempt}{STARTED}", {"slice": name, "pid": os.getpid()})

    def mark_finished(self, job: SliceJob, result: SliceResult) -> None:
        """Write the note of a finished attempt: for progress, and for the run that resumes this one."""
        note = {
            member.name: getattr(result, member.name)
            for member in fields(result)
            if member.name not in ("files", "positions")
        }
        note["identity"] = job.identity
        note["files"] = [file.as_row() for file in result.files]
        note["positions"] = [[segment, position.as_map()] for segment, position in result.positions]
        # The seal is that of the note as it will be read: in JSON all names are text.
        note["seal"] = seal(parse_json(json.dumps(note).encode()))
        self._note(f"{job.label}-{result.attempt}{FINISHED}", note)
        if self._private:
            shutil.rmtree(self._private, ignore_errors=True)

    def _note(self, name: str, row: dict[str, Any]) -> None:
        # Notes are for progress and resumption, which a store of objects does not give.
        if not is_local(self.target):
            return
        path = os.path.join(local(self.target), name)
        draft, flags = path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with naming(path):
            descriptor = nofollow.open_file(draft, flags, 0o644) if self.is_in_run else os.open(draft, flags, 0o644)
        with naming(path), open(descriptor, "w", encoding="utf-8") as file:
            if self.is_in_run:
                own_like(descriptor, nofollow.stat(local(self.target)))
            json.dump(row, file)
        # The driver lists the folder at any time: a note appears whole or not at all.
        if self.is_in_run:
            nofollow.rename(draft, path)
        else:
            os.replace(draft, path)

    def notes(self, suffix: str) -> list[dict[str, Any]]:
        """Return the notes of one kind, each with its ``name``; other files are skipped. For the driver.

        The driver asks several times a second, so only new notes are read.
        """
        if not is_local(self.target) or not os.path.isdir(local(self.target)):
            return []
        names: list[str] = []
        # This user cannot use the files of a folder that it may not read, so they count as none.
        with contextlib.suppress(PermissionError):
            names = [name for name in sorted(os.listdir(local(self.target))) if name.endswith(suffix)]
        for name in names:
            if name not in self._read and (note := self._note_of(name, suffix)) is not None:
                self._read[name] = note
        return [self._read[name] for name in names if name in self._read]

    def _note_of(self, name: str, suffix: str) -> dict[str, Any] | None:
        """Return a note with its ``name``; None if it cannot be read, or is not of this kind."""
        try:
            with open(os.path.join(local(self.target), name), "rb") as file:
                note = parse_json(file.read())
        except (OSError, ValueError):
            return None
        if not isinstance(note, dict):
            return None
        # Several hosts may see the folder, and anybody may have put files there: only notes with the right members
        # count.
        if not _NOTED[suffix].items() <= {k: type(v) for k, v in note.items()}.items():
            return None
        return {**note, "name": name}

    def finished(self) -> int:
        """Return the number of slices with a whole note and all files, by their sizes. For the driver."""
        return len(
            {
                (note["task"], note["store"], note["number"])
                for note in self.notes(FINISHED)
                # Only sizes are compared, because this is asked several times a second. Before a slice is used, every
                # byte is compared.
                if note["seal"] == seal(note) and self._are_there(note)
            }
        )

    def _are_there(self, note: dict[str, Any]) -> bool:
        folder = local(self.target)
        try:
            return all(
                os.path.getsize(os.path.join(folder, os.path.basename(file.path))) == file.size
                for file in files_of(note)
            )
        except (OSError, ValueError):
            return False

    def keep_finished(self) -> None:
        """Remove all but finished slices and their notes, and the folder if no slice is finished.

        Called by the driver.
        """
        folder = local(self.target)
        if not is_local(self.target) or not os.path.isdir(folder):
            return
        names_to_keep = set()
        for note in self.notes(FINISHED):
            with contextlib.suppress(ValueError):
                # A finished slice consists of its files and its note: neither can be used without the other.
                names_to_keep |= {note["name"], *(os.path.basename(file.path) for file in files_of(note))}
        for name in nofollow.listed(folder):
            path = Path(folder, name)
            if name in names_to_keep:
                continue
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(nofollow.stat(path).st_mode):
                    remove_directory(path)
                else:
                    nofollow.unlink(path)
        if not names_to_keep:
            self.remove()

    def remove(self) -> None:
        """Remove the staging folder, once Spark has stopped. For the driver."""
        if is_local(self.target):
            with contextlib.suppress(OSError):
                remove_directory(Path(local(self.target)))
        else:
            filesystem, folder = self._remote()
            with contextlib.suppress(OSError):
                filesystem.delete_dir(folder)

    def _remote(self) -> tuple[FileSystem, str]:
        filesystem, folder = open_location(self.target)
        return filesystem, folder.rstrip("/")


def _chunks(source: BinaryIO, ended: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
    while not ended() and (chunk := source.read(_CHUNK)):
        yield chunk


SLICES_EVENT = "slices"


@dataclass(frozen=True, slots=True)
class StoreProgress:
    """Slices of one store."""

    task: str
    store: str
    finished: int
    total: int
    records: int
    """Records in the slices that are done."""


def slices_of_stores(jobs: Sequence[SliceJob]) -> dict[str, int]:
    """Return what the journal records: ``task/store`` and its number of slices."""
    return dict(Counter(_journal_name(job.task, job.store) for job in jobs))


def store_progress(run: Run) -> list[StoreProgress]:
    """Return the progress of a run whose records are being sorted.

    Empty if this host cannot see its folder of files.
    """
    event = run.last(SLICES_EVENT)
    finished: dict[str, dict[int, int]] = {}
    if not event:
        # The run has no slices yet.
        return []
    for note in Staging(str(event.get("staging", ""))).notes(FINISHED):
        finished.setdefault(_journal_name(note["task"], note["store"]), {})[note["number"]] = note["records"]
    return [
        StoreProgress(*_read(store), len(finished.get(store, ())), total, sum(finished.get(store, {}).values()))
        for store, total in event.get("stores", {}).items()
    ]


def _journal_name(task: str, store: str) -> str:
    return f"{task}/{store}"


def _read(name: str) -> tuple[str, str]:
    """Return task and store of a journal entry; a store's name has no slash."""
    key, _, store = name.rpartition("/")
    return task_of(key), store

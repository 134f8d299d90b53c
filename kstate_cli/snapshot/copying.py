"""Copy the files of databases to a repository.

SSTs and blob files are objects that are stored once. A file that an earlier snapshot has is not read again: its unique
id of RocksDB, its size and its time are equal (:class:`EarlierFiles`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from kstate_cli.errors import Refused, RunFailed
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.sst import read_properties
from kstate_cli.regular_files import open_regular
from kstate_cli.rocks.files import is_sst
from kstate_cli.signals import submitted
from kstate_cli.snapshot.capture_plan import (
    FILES_CHANGED,
    MOST_EARLIER,
    PlannedTask,
    SourceFile,
    newest_generations,
)
from kstate_cli.snapshot.cuts import open_held
from kstate_cli.snapshot.model import (
    MOST_INLINE_BYTES,
    StoredFile,
)
from kstate_cli.snapshot.repository import ChangedError, DamagedError, Repository

Progress = Callable[[int], None]
"""Is called with the bytes of files that were copied, or need no copy."""


@dataclass(frozen=True, slots=True)
class EarlierFiles:
    """SSTs that earlier generations have. They need not be read: unique id, size and time show that they are the same.

    This is trusted: RocksDB never changes an SST, and no two SSTs have one unique id. A byte that a disk damaged after
    the first snapshot is not copied, since the object has the digest of the first reading.
    """

    by_identity: Mapping[tuple[str, int, int], StoredFile]
    """Identity, size and mtime in ns -> the file as an earlier generation lists it."""
    condemned: frozenset[str] = frozenset()
    """Objects that a cleaner is about to delete: no new generation relies on one."""

    @classmethod
    def of(cls, repository: Repository, application: str, condemned: frozenset[str]) -> EarlierFiles:
        """Return the files of the newest generations of an application. An unreadable generation is no source."""
        objects = repository.object_sizes()
        by_identity: dict[tuple[str, int, int], StoredFile] = {}
        for generation in newest_generations(repository, application, MOST_EARLIER):
            for file in generation.content.files:
                exists = file.data is None and objects.get(file.object) == file.size and file.object not in condemned
                if file.identity is not None and exists:
                    by_identity.setdefault((file.identity, file.size, file.mtime_ns), file)
        return cls(by_identity, condemned)

    def file_of(self, file: SourceFile, identity: str | None) -> StoredFile | None:
        """Return a file that the repository has, as a generation lists it; None if it must be read."""
        if identity is None:
            return None
        stored = self.by_identity.get((identity, file.size, file.mtime_ns))
        if stored is None:
            return None
        # The same SST may have another number in another database.
        return replace(stored, name=file.path.name)


class _SourceError(Exception):
    """A file of the directory cannot be read, or is not what it was. The text says why."""


class _Source:
    """An open file of the directory: an error of its disk must not look like one of the repository's."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    def readinto(self, buffer: memoryview) -> int:
        """Read into a buffer; return the number of bytes."""
        try:
            return self._file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        except OSError as error:
            raise _SourceError(f"kstate cannot read {self._name}: {error.strerror}") from None

    def seek(self, offset: int) -> int:
        """Continue at another offset: a bucket needs the digest before the first byte."""
        return self._file.seek(offset)


class CopiedFiles:
    """The files of a snapshot as they are copied, by path."""

    def __init__(self, repository: Repository, earlier: EarlierFiles, progress: Progress) -> None:
        self._repository, self._earlier, self._progress = repository, earlier, progress
        self.files: dict[Path, StoredFile] = {}
        self.new_bytes: dict[Path, int] = {}
        self.refusals: dict[str, str] = {}
        """Task -> why it cannot be captured after all."""

    def of(self, planned: Iterable[PlannedTask], workers: int) -> CopiedFiles:
        """Copy the files of all tasks, several at once, and return this object. Raise Refused and RunFailed."""
        # Threads: the reading, the digest and the writing all happen outside of Python's lock.
        with ThreadPoolExecutor(workers) as pool:
            files = [(task, file) for task in planned for store in task.stores for file in store.files]
            try:
                futures = submitted(pool, self._copy, [file for _, file in files])
                for (task, file), future in zip(files, futures, strict=True):
                    self._take(task, file, future)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return self

    def _take(self, task: PlannedTask, file: SourceFile, future: Future[tuple[StoredFile, int]]) -> None:
        try:
            stored, new_bytes = future.result()
        except _SourceError as error:
            self.refusals.setdefault(task.name, str(error))
            return
        except DamagedError as error:
            raise Refused(
                f"{error.path}: {error.why}",
                where=self._repository.where,
                hint="this file is damaged. Move it away, then run the command again",
            ) from None
        except OSError as error:
            raise RunFailed(
                f"kstate cannot write to the repository: {error.strerror}",
                where=str(error.filename or self._repository.where),
                hint="fix the cause, then run the command again. kstate has not written a snapshot",
            ) from None
        self.files[file.path], self.new_bytes[file.path] = stored, new_bytes
        self._progress(file.size)

    def _copy(self, file: SourceFile) -> tuple[StoredFile, int]:
        """Return a file as the generation lists it, and the bytes that are new in the repository."""
        name = file.path.name
        try:
            content = os.fdopen(_open(file), "rb", buffering=0)
        except OSError as error:
            raise _SourceError(f"kstate cannot open {name}: {error.strerror}") from None
        with content:
            status = os.fstat(content.fileno())
            if (status.st_ino, status.st_size, status.st_mtime_ns) != (file.inode, file.size, file.mtime_ns):
                raise _SourceError(FILES_CHANGED)
            if file.size <= MOST_INLINE_BYTES and not _is_never_inline(name):
                return _inline(file, _whole(content, name)), 0
            identity = _identity(content, name)
            stored = self._earlier.file_of(file, identity)
            if stored is not None:
                return stored, 0
            content.seek(0)
            try:
                put = self._repository.put(cast("BinaryIO", _Source(content, name)), self._earlier.condemned)
            except ChangedError:
                raise _SourceError(FILES_CHANGED) from None
        if put.size != file.size:
            raise _SourceError(FILES_CHANGED)
        new_bytes = 0
        if put.is_new:
            new_bytes = put.size
        stored_as = None
        if put.name != put.sha256:
            stored_as = put.name
        return StoredFile(name, file.size, put.sha256, max(0, file.mtime_ns), identity, None, stored_as), new_bytes


def _open(file: SourceFile) -> int:
    if file.cut_file is not None and file.cut_file.descriptor is not None:
        return open_held(file.cut_file)
    return open_regular(file.path)


def _is_never_inline(name: str) -> bool:
    """Return whether a file is an object whatever its size: an SST or blob file, which generations share."""
    return is_sst(name) or name.endswith(".blob")


def _whole(file: BinaryIO, name: str) -> bytes:
    try:
        return file.read(MOST_INLINE_BYTES + 1)
    except OSError as error:
        raise _SourceError(f"kstate cannot read {name}: {error.strerror}") from None


def _inline(file: SourceFile, data: bytes) -> StoredFile:
    if len(data) != file.size:
        raise _SourceError(FILES_CHANGED)
    return StoredFile(file.path.name, file.size, hashlib.sha256(data).hexdigest(), max(0, file.mtime_ns), None, data)


def _identity(file: BinaryIO, name: str) -> str | None:
    """Return what tells an SST from every other one; None if its properties do not."""
    if not is_sst(name):
        return None
    try:
        properties = read_properties(file)
    except (MalformedBytesError, OSError):
        return None  # the digest decides, and verify reports the damage
    if not properties.has_unique_id:
        return None
    return hashlib.sha256(properties.raw).hexdigest()


def new_bytes_at_most(file: SourceFile, earlier: EarlierFiles) -> int:
    """Return the bytes that a file adds to the repository, by its properties only: its content is not read."""
    name = file.path.name
    if not _is_never_inline(name):
        return 0
    try:
        with os.fdopen(_open(file), "rb") as content:
            identity = _identity(content, name)
    except OSError:
        identity = None
    if earlier.file_of(file, identity) is not None:
        return 0
    return file.size

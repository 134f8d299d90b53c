"""A repository of snapshots in a folder of this host, or mounted on it.

A file is written under a name that begins with ``.new-``, is synced, and gets its name by ``link``, which fails if the
name is taken. Names that begin with ``.new-`` are of a writer that is at work, or of one that died: no reader looks at
them. No link below the folder is followed: an object must be a regular file in a real folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from kstate_cli.change import nofollow
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import Refused, naming
from kstate_cli.regular_files import DENIED, access_hint, kind_of, make_durable_directory, read_at_most
from kstate_cli.snapshot.repository import (
    CONDEMNED,
    FOLDERS,
    INTENTS,
    JSON,
    MARKER_BYTES,
    OBJECTS,
    DamagedError,
    PutObject,
    Repository,
    StoredEntry,
    chunks_of,
    note_bytes,
    object_path,
    too_many,
    write_all,
)
from kstate_cli.statedir.locks import mount_of, read_mounts
from kstate_cli.statedir.names import SNAPSHOTS_MARKER as MARKER

_UNFINISHED: Final = ".new-"
_OWN_FILE: Final = 0o600
_OWN_FOLDER: Final = 0o700
# The owner alone reads the files: they are the state of an application, whatever the umask says.
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_NOT_A_FOLDER: Final = "it is not a folder"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
# Not blocking: opening a FIFO would wait for its writer.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class FolderRepository(Repository):
    """Snapshots in a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def where(self) -> str:
        """The path of the folder."""
        return str(self.path)

    # --- the place ----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the folder has the marker. Raise Refused for a folder with other files, or another format."""
        try:
            names = sorted(os.listdir(self.path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._denied(error, os.R_OK) from None
        if MARKER in names:
            self.check_marker()
            return True
        self.refuse_foreign([name for name in names if not self._is_of_first_writer(name)])
        return False

    def _is_of_first_writer(self, name: str) -> bool:
        """Return whether a writer that died before it created the marker leaves such an entry: draft, empty folder.

        Nothing counts before the marker exists, so nothing else is in these folders then.
        """
        if name.startswith(_UNFINISHED):
            return True
        return name in FOLDERS and not self._names(name)

    def create(self) -> None:
        """Create the folders and, last, the marker. Raise Refused and OSError."""
        try:
            self._create()
        except OSError as error:
            if error.errno in DENIED and not os.access(self.path, os.W_OK | os.X_OK):
                raise self._denied(error, os.W_OK) from None
            if error.errno in _NO_LINKS:
                raise Refused(
                    f"the file system of {self.path} does not support hard links, but kstate needs them to publish "
                    "files",
                    hint="pass a folder on another file system. You can copy the repository from there afterwards",
                ) from None
            raise
        except DamagedError as error:
            raise Refused(f"{self.path}/{error.path}: {error.why}", hint="move it away") from None

    def _create(self) -> None:
        make_durable_directory(self.path, _OWN_FOLDER)
        for folder in FOLDERS:
            self._make_folder(folder)
        # The marker comes after the folders are durable: a place with a marker can be written to and read.
        with contextlib.suppress(FileExistsError):
            self._create_file(MARKER, MARKER_BYTES)

    def _make_folder(self, folder: str) -> None:
        """Create a folder, durably, unless it exists. Raise DamagedError if something else has the name."""
        path = self.path / folder
        try:
            mode = nofollow.stat(path).st_mode
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):
                nofollow.mkdir(path, _OWN_FOLDER)
            # Also where another writer came first: its name must be durable before an object in it counts.
            sync_directory(path.parent)
            return
        if not stat.S_ISDIR(mode):
            # Through a link kstate would write outside of the repository.
            raise DamagedError(folder, _NOT_A_FOLDER)

    def _denied(self, error: OSError, access: int) -> Refused:
        return Refused(
            f"kstate cannot use {self.path}: {error.strerror}", hint=access_hint(self.path, access | os.X_OK)
        )

    # --- objects ------------------------------------------------------------------------------------------------------

    def put(self, source: BinaryIO, condemned: Collection[str] = ()) -> PutObject:
        """Copy, digest, make durable, and name. Raise DamagedError if an object of that name has another size."""
        draft = self.path / OBJECTS / f"{_UNFINISHED}{secrets.token_hex(8)}"
        digest = hashlib.sha256()
        size = 0
        try:
            with naming(draft), open(_new_file(draft), "wb", buffering=0) as target:
                for chunk in chunks_of(source):
                    digest.update(chunk)
                    write_all(target, chunk)
                    size += len(chunk)
                # The bytes before the name: after a power loss no name may lead to a part of them.
                os.fsync(target.fileno())
            name = digest.hexdigest()
            if name in condemned:
                # A cleaner deletes the object of that name, whatever a writer does: the bytes get another one.
                name = f"{name}-{secrets.token_hex(4)}"
            is_new = self._name_object(draft, name, size)
        finally:
            nofollow.unlink(draft, missing_ok=True)
        return PutObject(digest.hexdigest(), name, size, is_new)

    def _name_object(self, draft: Path, name: str, size: int) -> bool:
        """Give a durable draft its name; return False if an object has it already."""
        self._make_folder(f"{OBJECTS}/{name[:2]}")
        final = self.path / object_path(name)
        is_new = True
        try:
            nofollow.link(draft, final)
        except FileExistsError:
            # Another writer stored the same bytes. Its size is the least that a damaged object would differ in.
            is_new = False
            status = nofollow.stat(final)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                raise DamagedError(object_path(name), f"the object does not have the expected {size:,} bytes") from None
        # Also for an object of another writer, who may not have come so far: our generation relies on its name.
        sync_directory(final.parent)
        return is_new

    def open_object(self, name: str) -> BinaryIO:
        """Open an object for reading."""
        return open(self._open(object_path(name)), "rb", buffering=0)

    def misplaced(self) -> list[tuple[str, str]]:
        """Return path and reason for entries below ``objects`` that are neither a folder nor a regular file."""
        paths = []
        for name in self._names(OBJECTS):
            path = f"{OBJECTS}/{name}"
            try:
                with self._folder(OBJECTS, name) as folder, os.scandir(folder) as entries:
                    paths += [
                        (f"{path}/{entry.name}", "it is not a regular file")
                        for entry in entries
                        if not entry.is_file(follow_symlinks=False)
                    ]
            except DamagedError as error:
                # A draft is a regular file beside the folders.
                if not name.startswith(_UNFINISHED):
                    paths.append((path, error.why))
            except FileNotFoundError:
                continue
        return paths

    # --- notes of writers and cleaners --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def intent(self, token: str, document: Mapping[str, Any]) -> Iterator[None]:
        """Create ``intents/<token>.begun``, and hold a lock of it until the end of the block, or of the process.

        The lock comes before the name: a cleaner that sees the intent of a living process finds it locked.
        """
        # A repository of an older kstate lacks the folder.
        self._make_folder(INTENTS)
        relative = f"{INTENTS}/{token}.begun{JSON}"
        draft = self._new_draft(relative)
        descriptor = _new_file(draft)
        try:
            self._name_intent(descriptor, draft, relative, {**document, "boot_id": _locked_boot_id(descriptor)})
            try:
                yield
            finally:
                # The first note goes last: without it the second one counts for nothing.
                for kind in ("aware", "begun"):
                    self.remove_note(INTENTS, f"{token}.{kind}")
        finally:
            os.close(descriptor)

    def _name_intent(self, descriptor: int, draft: Path, relative: str, document: Mapping[str, Any]) -> None:
        try:
            with naming(draft), open(descriptor, "wb", buffering=0, closefd=False) as file:
                write_all(file, memoryview(note_bytes(document)))
                os.fsync(descriptor)
            nofollow.link(draft, self.path / relative)
            sync_directory(self.path / INTENTS)
        finally:
            nofollow.unlink(draft)

    def keep_intent(self) -> None:
        """Do nothing: a call of the system has ended when it returns."""

    def is_ended(self, token: str, document: Mapping[str, Any]) -> bool:
        """Return whether the process of an intent is dead: it ran on this kernel, and its lock is free.

        The kernel drops a ``flock`` when the last process that has the file ends, in whatever container. Elsewhere
        nothing is proven: another kernel's locks are not visible, and network file systems may keep locks to a host.
        """
        mount = mount_of(self.path, read_mounts())
        if mount is None or mount.may_not_share_locks:
            return False
        boot_id = _boot_id()
        if boot_id is None or document.get("boot_id") != boot_id:
            return False
        try:
            descriptor = self._open(f"{INTENTS}/{token}.begun{JSON}")
        except (FileNotFoundError, DamagedError):
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def only_cleaner(self) -> Iterator[bool]:
        """Hold the lock of cleaners for the time of the block; yield False if another process has it.

        The kernel releases it when a process dies. Two cleaners must not delete by one list: the slower one could
        delete what a writer has stored since the faster one was ready.
        """
        self._make_folder(CONDEMNED)
        with self._folder(CONDEMNED) as folder:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def claim(self, condemned: str) -> bool:  # noqa: ARG002
        """Return True: the lock of cleaners excludes all others."""
        return True

    def settle(self, condemned: str) -> None:
        """Remove a condemned list: every removal has ended."""
        self.remove_note(CONDEMNED, condemned)

    def remove_drafts(self, older_ms: int) -> int:
        """Remove files of dead writers, which never got a name; return their number."""
        removed = 0
        now_ms = self.clock_ms()
        for folder in FOLDERS:
            for name in self._names(folder):
                if not name.startswith(_UNFINISHED):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if now_ms - nofollow.stat(self.path / folder / name).st_mtime_ns // 1_000_000 > older_ms:
                        removed += self._remove(f"{folder}/{name}")
        return removed

    # --- files --------------------------------------------------------------------------------------------------------

    def clock_ms(self) -> int:
        """Return the time by the clock that sets mtimes here, in ms: of a server, if the folder is mounted from one."""
        with self._draft(f"{CONDEMNED}/clock", b"") as (_, descriptor):
            return os.fstat(descriptor).st_mtime_ns // 1_000_000

    def _create_file(self, relative: str, data: bytes) -> None:
        """Create a small file exclusively and durably. Raise FileExistsError and OSError."""
        folder = relative.rpartition("/")[0]
        if folder:
            self._make_folder(folder)
        final = self.path / relative
        with self._draft(relative, data) as (draft, _):
            nofollow.link(draft, final)
        sync_directory(final.parent)

    def _new_draft(self, relative: str) -> Path:
        return (self.path / relative).with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")

    @contextlib.contextmanager
    def _draft(self, relative: str, data: bytes) -> Iterator[tuple[Path, int]]:
        """Write and sync a draft beside the place of a file, and remove the draft's name at the end."""
        draft = self._new_draft(relative)
        try:
            with naming(draft), open(_new_file(draft), "wb", buffering=0) as file:
                write_all(file, memoryview(data))
                os.fsync(file.fileno())
                yield draft, file.fileno()
        finally:
            nofollow.unlink(draft, missing_ok=True)

    def _remove(self, relative: str) -> int:
        *folders, name = relative.split("/")
        try:
            with self._folder(*folders) as folder:
                os.unlink(name, dir_fd=folder)
                # A removed generation must not come back after a power loss, without the objects that go next.
                os.fsync(folder)
        except FileNotFoundError:
            return 0
        return 1

    def _entries(self, folder: str, most: int) -> dict[str, StoredEntry]:
        if folder != OBJECTS:
            # Also a link: a reader names it as damaged.
            entries = self._files(folder)
            return {name: _entry(status) for name, status in self._at_most(most, folder, entries)}
        files: dict[str, StoredEntry] = {}
        for inner in self._names(OBJECTS):
            if len(inner) != 2:
                continue
            for name, status in self._at_most(most - len(files), folder, self._files(OBJECTS, inner)):
                if name[:2] == inner and stat.S_ISREG(status.st_mode):
                    files[name] = _entry(status)
        return files

    def _at_most(
        self, most: int, folder: str, files: Iterator[tuple[str, os.stat_result]]
    ) -> Iterator[tuple[str, os.stat_result]]:
        for number, file in enumerate(files):
            if number == most:
                raise too_many(f"{self.path}/{folder}", most)
            yield file

    def _files(self, *folders: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield name and status of each entry of a folder that is no draft."""
        try:
            with self._folder(*folders) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if not entry.name.startswith(_UNFINISHED):
                        with contextlib.suppress(FileNotFoundError):
                            yield entry.name, entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        except DamagedError as error:
            if len(folders) > 1:
                return  # generations that need its objects lack them, and verify names it
            raise self._not_a_folder(error) from None
        except OSError as error:
            if error.errno in DENIED:
                raise self._denied(error, os.R_OK) from None
            raise

    def _read(self, relative: str, *, most: int) -> bytes:
        with open(self._open(relative), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Of a file that is too large nothing is read; one that grows meanwhile shows one byte too many.
            data = b"" if size > most else read_at_most(file, most, size)
        if size > most or len(data) > most:
            raise DamagedError(relative, f"it has {size:,} bytes, but kstate's limit is {most:,}")
        return data

    def _open(self, relative: str) -> int:
        """Open a regular file for reading, following no link below the repository. Raise DamagedError and OSError."""
        *folders, name = relative.split("/")
        with self._folder(*folders) as folder:
            try:
                descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
                    raise DamagedError(relative, "it is not a regular file") from None
                error.filename = os.path.join(self.path, relative)
                raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise DamagedError(relative, f"it is {kind_of(mode)}, not a regular file")
        return descriptor

    @contextlib.contextmanager
    def _folder(self, *folders: str) -> Iterator[int]:
        """Open a folder of the repository, following no link below it. Raise DamagedError and OSError."""
        descriptor = nofollow.open_directory(self.path)
        try:
            for number, folder in enumerate(folders, 1):
                try:
                    inner = os.open(folder, _FOLDER_FLAGS, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise DamagedError("/".join(folders[:number]), _NOT_A_FOLDER) from None
                    error.filename = os.path.join(self.path, *folders[:number])
                    raise
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    def _names(self, folder: str) -> list[str]:
        try:
            with self._folder(folder) as descriptor:
                return sorted(os.listdir(descriptor))
        except FileNotFoundError:
            return []
        except DamagedError as error:
            raise self._not_a_folder(error) from None
        except OSError as error:
            if error.errno in DENIED:
                raise self._denied(error, os.R_OK) from None
            raise

    def _not_a_folder(self, error: DamagedError) -> Refused:
        return Refused(f"{self.path}/{error.path}: {error.why}", hint="copy it from another copy of the repository")


def _entry(status: os.stat_result) -> StoredEntry:
    return StoredEntry(status.st_size, status.st_mtime_ns // 1_000_000)


def _new_file(path: Path) -> int:
    return nofollow.open_file(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN_FILE)


def _locked_boot_id(descriptor: int) -> str | None:
    """Lock a file for as long as it is open; return the id of the kernel that has the lock, None without one."""
    try:
        # flock, not a POSIX lock: it belongs to this open file, so no other close in this process drops it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Without the lock a cleaner must not conclude anything from a free one.
        return None
    return _boot_id()


def _boot_id() -> str | None:
    """Return the id of the running kernel, the same in all containers of a host; None if /proc lacks it."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None

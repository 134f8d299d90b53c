"""The place of snapshots: a folder with objects and generations. Files are only ever added, each under its own name.

::

    REPO/kstate-snapshots.json            what the folder is: {"format": 1}
    REPO/objects/<2 hex>/<64 hex>         an SST, a blob file or a large MANIFEST, named by its SHA-256
    REPO/generations/<name>.json          one snapshot of one host (kstate_cli.snapshot.model)
    REPO/intents/, REPO/condemned/        notes of writers and cleaners (kstate_cli.snapshot.expiry)

Every file gets its name in one step, by ``link``, after its bytes are durable. So a name never leads to a part of a
file, no file replaces another one, and a generation either exists or does not. Names that begin with ``.new-`` are of
a writer that is at work, or of one that died: no reader looks at them.

The reader follows no link below the folder: an object must be a regular file in a real folder.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import Refused, UsageError, naming
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.regular_files import DENIED, access_hint, kind_of
from kstate_cli.snapshot.model import MOST_GENERATION_BYTES, Generation, is_generation_name, is_object_name, parse
from kstate_cli.statedir.entries import IGNORED
from kstate_cli.statedir.names import SNAPSHOTS_MARKER as MARKER
from kstate_cli.texts import first_lines, printable, quoted, some

OBJECTS: Final = "objects"
GENERATIONS: Final = "generations"
INTENTS: Final = "intents"
CONDEMNED: Final = "condemned"
FORMAT: Final = 1
CHUNK: Final = 1 << 20
"""Bytes that are read, digested and written at once."""
_UNFINISHED: Final = ".new-"
_JSON: Final = ".json"
_MOST_MARKER_BYTES: Final = 4096
_MOST_NAMES: Final = 3
_OWN_FILE: Final = 0o600
_OWN_FOLDER: Final = 0o700
# The owner alone reads the files: they are the state of an application, whatever the umask says.
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class DamagedError(Exception):
    """A file of the repository is not what its name, or a generation, states. ``path`` is relative to it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why

    def __reduce__(self) -> tuple[type[DamagedError], tuple[str, str]]:
        return type(self), (self.path, self.why)


@dataclass(frozen=True, slots=True)
class PutObject:
    """The result of :meth:`FolderRepository.put`."""

    sha256: str
    name: str
    """The name of the object: the SHA-256, or with a suffix."""
    size: int
    is_new: bool


def object_path(name: str) -> str:
    """Return the path of an object, relative to the repository."""
    return f"{OBJECTS}/{name[:2]}/{name}"


def generation_path(name: str) -> str:
    """Return the path of a generation, relative to the repository."""
    return f"{GENERATIONS}/{name}{_JSON}"


def generation_named(names: Sequence[str], beginning: str) -> str:
    """Return the name that begins so; ``names`` are oldest first. Raise UsageError unless there is exactly one."""
    fitting = [name for name in names if name.startswith(beginning)]
    if len(fitting) != 1:
        raise UsageError(
            f"{len(fitting)} snapshots begin with --generation {quoted(beginning)}",
            hint="give the name, or the beginning of it:",
            hint_details=first_lines(list(reversed(fitting or names))),
        )
    return fitting[0]


def repository_of(place: str) -> FolderRepository:
    """Return the repository of ``--out`` or ``--from-snapshot``. Raise UsageError for a place that is no folder."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", place):
        raise UsageError(f"{printable(place)} is not a folder", hint="name a folder, which may be mounted")
    folder = os.path.realpath(place)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{printable(place)} is not a folder", hint="name a new one, or that of snapshots")
    return FolderRepository(Path(folder))


def require_repository(repository: FolderRepository) -> None:
    """Raise Refused unless snapshots were written to the place."""
    if not repository.exists():
        raise Refused(
            f"{repository.where} is no repository of snapshots", hint="name the folder that snapshots were written to"
        )


def refuse_inside(repository: FolderRepository, app: Path) -> None:
    """Raise UsageError if the repository is in an application directory, or the other way round.

    A snapshot changes nothing in the directory that it reads, and Streams would find foreign files there.
    """
    if repository.path.is_relative_to(app) or app.is_relative_to(repository.path):
        raise UsageError(
            f"{repository.path} and {app} are in one another", hint="name a folder outside of the application directory"
        )


class FolderRepository:
    """Snapshots in a folder of this host, or mounted on it.

    Every method raises Refused if this user lacks a right, and OSError if a disk fails.
    """

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
            self._check_marker()
            return True
        foreign = [name for name in names if name not in IGNORED and not self._is_of_first_writer(name)]
        if foreign:
            raise Refused(
                f"{self.path} has other files, and no {MARKER}: "
                f"{some([printable(name) for name in foreign], _MOST_NAMES)}",
                hint="name a new or empty folder, or one that snapshots were written to",
            )
        return False

    def _is_of_first_writer(self, name: str) -> bool:
        """Return whether a writer that died before it created the marker leaves such an entry: draft, empty folder.

        Nothing counts before the marker exists, so nothing else is in these folders then.
        """
        if name.startswith(_UNFINISHED):
            return True
        return name in (OBJECTS, GENERATIONS, INTENTS, CONDEMNED) and not self._names(name)

    def _check_marker(self) -> None:
        try:
            content = parse_json(self._read(MARKER, most=_MOST_MARKER_BYTES))
        except (DamagedError, MalformedBytesError) as error:
            raise Refused(f"{self.path / MARKER} cannot be read: {error}", hint="copy it from another copy") from None
        version = None
        if isinstance(content, dict):
            version = content.get("format")
        if version != FORMAT or isinstance(version, bool):
            raise Refused(
                f"{self.path} has format {version!r} of snapshots (known: {FORMAT})",
                hint="run the newer kstate that wrote it",
            )

    def create(self) -> None:
        """Create the folders and, last, the marker. Raise Refused and OSError."""
        try:
            self._create()
        except OSError as error:
            if error.errno in DENIED and not os.access(self.path, os.W_OK | os.X_OK):
                raise self._denied(error, os.W_OK) from None
            if error.errno in _NO_LINKS:
                raise Refused(
                    f"{self.path}: its file system has no hard links, by which kstate names complete files",
                    hint="name a folder on another file system, and copy the repository from there",
                ) from None
            raise

    def _create(self) -> None:
        if not self.path.is_dir():
            os.makedirs(self.path, _OWN_FOLDER, exist_ok=True)
            sync_directory(self.path.parent)
        for folder in (OBJECTS, GENERATIONS, INTENTS, CONDEMNED):
            self._make_folder(folder)
        # The marker comes after the folders are durable: a place with a marker can be written to and read.
        data = json.dumps({"format": FORMAT}).encode() + b"\n"
        with contextlib.suppress(FileExistsError):
            self._create_file(MARKER, data)

    def _make_folder(self, folder: str) -> None:
        path = self.path / folder
        if not path.is_dir():
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, _OWN_FOLDER)
            # Also where another writer came first: its name must be durable before an object in it counts.
            sync_directory(path.parent)

    def _denied(self, error: OSError, access: int) -> Refused:
        return Refused(f"{self.path} cannot be used: {error.strerror}", hint=access_hint(self.path, access | os.X_OK))

    # --- generations --------------------------------------------------------------------------------------------------

    def generation_names(self) -> list[str]:
        """Return the names of all generations, oldest first: the time comes first in the name."""
        names = (name.removesuffix(_JSON) for name in self._names(GENERATIONS) if name.endswith(_JSON))
        return sorted(name for name in names if is_generation_name(name))

    def generation(self, name: str) -> Generation:
        """Return a generation. Raise DamagedError if it is not what its name states, FileNotFoundError if missing."""
        path = generation_path(name)
        try:
            return parse(name, self._read(path, most=MOST_GENERATION_BYTES))
        except MalformedBytesError as error:
            raise DamagedError(path, str(error)) from None

    def publish(self, name: str, data: bytes) -> None:
        """Create a generation: from now on the snapshot exists."""
        self._create_file(generation_path(name), data)

    # --- objects ------------------------------------------------------------------------------------------------------

    def object_sizes(self) -> dict[str, int]:
        """Return the size of every object by its name. A link, or a file with another name, is no object."""
        sizes = {}
        for folder in self._names(OBJECTS):
            if len(folder) != 2:
                continue
            with self._folder(OBJECTS, folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if is_object_name(entry.name) and entry.name[:2] == folder and entry.is_file(follow_symlinks=False):
                        sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def put(self, source: BinaryIO, condemned: Collection[str] = ()) -> PutObject:
        """Copy, digest, make durable, and name. Raise DamagedError if an object of that name has another size."""
        draft = self.path / OBJECTS / f"{_UNFINISHED}{secrets.token_hex(8)}"
        digest = hashlib.sha256()
        size = 0
        try:
            with naming(draft), open(_new_file(draft), "wb", buffering=0) as target:
                buffer = memoryview(bytearray(CHUNK))
                while count := source.readinto(buffer):  # type: ignore[attr-defined]
                    digest.update(buffer[:count])
                    write_all(target, buffer[:count])
                    size += count
                # The bytes before the name: after a power loss no name may lead to a part of them.
                os.fsync(target.fileno())
            name = digest.hexdigest()
            if name in condemned:
                # A cleaner deletes the object of that name, whatever a writer does: the bytes get another one.
                name = f"{name}-{secrets.token_hex(4)}"
            is_new = self._name_object(draft, name, size)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
        return PutObject(digest.hexdigest(), name, size, is_new)

    def _name_object(self, draft: Path, name: str, size: int) -> bool:
        """Give a durable draft its name; return False if an object has it already."""
        self._make_folder(f"{OBJECTS}/{name[:2]}")
        final = self.path / object_path(name)
        is_new = True
        try:
            os.link(draft, final)
        except FileExistsError:
            # Another writer stored the same bytes. Its size is the least that a damaged object would differ in.
            is_new = False
            status = os.lstat(final)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                raise DamagedError(object_path(name), f"is not the object of {size} bytes that belongs there") from None
        # Also for an object of another writer, who may not have come so far: our generation relies on its name.
        sync_directory(final.parent)
        return is_new

    def open_object(self, name: str) -> BinaryIO:
        """Open an object for reading."""
        return open(self._open(object_path(name)), "rb", buffering=0)

    def object_age_ms(self, name: str, now_ms: int) -> int:
        """Return how long ago an object was written, in ms; 0 if it was removed meanwhile."""
        try:
            return now_ms - os.lstat(self.path / object_path(name)).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    # --- notes of writers and cleaners --------------------------------------------------------------------------------

    def create_note(self, folder: str, name: str, document: dict[str, Any]) -> None:
        """Create a small file, durably. Raise OSError."""
        # A repository of an older kstate lacks the folder.
        self._make_folder(folder)
        self._create_file(f"{folder}/{name}{_JSON}", json.dumps(document, sort_keys=True).encode() + b"\n")

    def note_names(self, folder: str) -> list[str]:
        """Return the names of the notes in a folder."""
        names = [name for name in self._names(folder) if not name.startswith(_UNFINISHED)]
        return [name.removesuffix(_JSON) for name in names if name.endswith(_JSON)]

    def read_note(self, folder: str, name: str) -> bytes:
        """Return the bytes of a note. Raise FileNotFoundError and DamagedError."""
        return self._read(f"{folder}/{name}{_JSON}", most=MOST_GENERATION_BYTES)

    def remove_note(self, folder: str, name: str) -> int:
        """Remove a note, durably; return 0 if it does not exist."""
        return self._remove(f"{folder}/{name}{_JSON}")

    def remove_generation(self, name: str) -> int:
        """Remove a generation, durably; return 0 if it does not exist."""
        return self._remove(generation_path(name))

    def remove_object(self, name: str) -> int:
        """Remove an object; return 0 if it does not exist."""
        return self._remove(object_path(name))

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

    @contextlib.contextmanager
    def only_cleaner(self) -> Iterator[bool]:
        """Hold the lock of cleaners for the time of the block; yield False if another process has it.

        The kernel releases it when a process dies. Two cleaners must not delete by one list: the slower one could
        delete what a writer has stored since the faster one was ready.
        """
        with self._folder(CONDEMNED) as folder:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def remove_drafts(self, older_ms: int, now_ms: int) -> int:
        """Remove files of dead writers, which never got a name; return their number."""
        removed = 0
        for folder in (OBJECTS, GENERATIONS, INTENTS, CONDEMNED):
            for name in self._names(folder):
                path = self.path / folder / name
                if not name.startswith(_UNFINISHED):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if now_ms - os.lstat(path).st_mtime_ns // 1_000_000 > older_ms:
                        removed += self._remove(f"{folder}/{name}")
        return removed

    # --- files --------------------------------------------------------------------------------------------------------

    def _create_file(self, relative: str, data: bytes) -> None:
        """Create a small file exclusively and durably. Raise FileExistsError and OSError."""
        final = self.path / relative
        draft = final.with_name(f"{_UNFINISHED}{secrets.token_hex(8)}")
        try:
            with naming(draft), open(_new_file(draft), "wb", buffering=0) as file:
                write_all(file, memoryview(data))
                os.fsync(file.fileno())
            os.link(draft, final)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
        sync_directory(final.parent)

    def _read(self, relative: str, *, most: int) -> bytes:
        with open(self._open(relative), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Of a file that is too large nothing is read; one that grows meanwhile shows one byte too many.
            data = b"" if size > most else file.read(most + 1)
        if size > most or len(data) > most:
            raise DamagedError(relative, f"has {size:,} bytes, more than the {most:,} that kstate reads")
        return data

    def _open(self, relative: str) -> int:
        """Open a regular file for reading, following no link below the repository. Raise DamagedError and OSError."""
        *folders, name = relative.split("/")
        with self._folder(*folders) as folder:
            try:
                # Not blocking: opening a FIFO would wait for its writer.
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
                descriptor = os.open(name, flags, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
                    raise DamagedError(relative, "is not a regular file") from None
                error.filename = os.path.join(self.path, relative)
                raise
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise DamagedError(relative, f"is {kind_of(mode)}, not a regular file")
        return descriptor

    @contextlib.contextmanager
    def _folder(self, *folders: str) -> Iterator[int]:
        """Open a folder of the repository, following no link below it. Raise DamagedError and OSError."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, folder in enumerate(folders, 1):
                try:
                    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
                    inner = os.open(folder, flags, dir_fd=descriptor)
                except OSError as error:
                    if error.errno in (errno.ELOOP, errno.ENOTDIR):
                        raise DamagedError("/".join(folders[:number]), "is not a folder") from None
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
        except OSError as error:
            if error.errno in DENIED:
                raise self._denied(error, os.R_OK) from None
            raise


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _OWN_FILE)


def write_all(file: Any, data: memoryview) -> None:
    """Write bytes to an unbuffered file."""
    # An unbuffered file may write a part only.
    while data:
        data = data[file.write(data) :]

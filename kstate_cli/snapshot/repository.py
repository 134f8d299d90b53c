"""A repository of snapshots: its layout, and what writers, readers and cleaners need of the place that has it.

::

    REPO/kstate-snapshots.json            what the place is: {"format": 1}
    REPO/objects/<2 hex>/<64 hex>         an SST, a blob file or a large MANIFEST, named by its SHA-256
    REPO/generations/<name>.json          one snapshot of one host (kstate_cli.snapshot.model)
    REPO/intents/, REPO/condemned/        notes of writers and cleaners (kstate_cli.snapshot.expiry)

REPO is a folder (:mod:`kstate_cli.snapshot.folder`) or a prefix of a bucket (:mod:`kstate_cli.snapshot.bucket`), with
the same names and bytes in both, so a copy of one is the other. Every file gets its name in one step, after its bytes
are durable. So a name never leads to a part of a file, no file replaces another one, and a generation either exists or
does not.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.limits import MOST_GENERATION_BYTES, MOST_OBJECTS
from kstate_cli.snapshot.generation_file import parse
from kstate_cli.snapshot.model import Generation, is_generation_name, is_object_name
from kstate_cli.statedir.entries import IGNORED
from kstate_cli.statedir.names import SNAPSHOTS_MARKER as MARKER
from kstate_cli.texts import printable, some

OBJECTS: Final = "objects"
GENERATIONS: Final = "generations"
INTENTS: Final = "intents"
CONDEMNED: Final = "condemned"
FOLDERS: Final = (OBJECTS, GENERATIONS, INTENTS, CONDEMNED)
FORMAT: Final = 1
MARKER_BYTES: Final = json.dumps({"format": FORMAT}).encode() + b"\n"
CHUNK: Final = 1 << 20
"""Bytes that are read, digested and written at once."""
JSON: Final = ".json"
CLAIMED: Final = ".claimed"
"""Suffix of the note by which a cleaner claims a condemned list."""
_MOST_MARKER_BYTES: Final = 4096
_MOST_NAMES: Final = 3
_MOST_NOTES: Final = 1_000_000


class ForeignFilesError(Refused):
    """The location of a repository contains other files, but not the file that marks a repository."""


class DamagedError(Exception):
    """A file of the repository is not what its name, or a generation, states. ``path`` is relative to it."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path, self.why = path, why

    def __reduce__(self) -> tuple[type[DamagedError], tuple[str, str]]:
        return type(self), (self.path, self.why)


@dataclass(frozen=True, slots=True)
class PutObject:
    """The result of :meth:`Repository.put`."""

    sha256: str
    name: str
    """The name of the object: the SHA-256, or with a suffix."""
    size: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A file of the repository, as a listing shows it."""

    size: int
    written_ms: int
    """When it was written, in ms since 1970, by the clock of the place: compare it with :meth:`Repository.clock_ms`."""


def object_path(name: str) -> str:
    """Return the path of an object, relative to the repository."""
    return f"{OBJECTS}/{name[:2]}/{name}"


def generation_path(name: str) -> str:
    """Return the path of a generation, relative to the repository."""
    return f"{GENERATIONS}/{name}{JSON}"


class Repository(ABC):
    """The place of snapshots.

    Every method raises Refused if this user lacks a right, OSError if a disk fails, and RunFailed if a bucket does not
    answer.
    """

    # --- what each kind of place does in its own way ------------------------------------------------------------------

    @property
    @abstractmethod
    def where(self) -> str:
        """The place as a user writes it: an absolute path, or a URI."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the place has the marker. Raise Refused for a place with other files, or another format."""

    @abstractmethod
    def create(self) -> None:
        """Create the place, and the marker last. Raise Refused if it lacks what a writer needs."""

    @abstractmethod
    def put(self, source: BinaryIO, condemned: Collection[str] = ()) -> PutObject:
        """Copy, digest, make durable, and name. Raise DamagedError if an object of that name has another size.

        Raise ChangedError if the source has other bytes when it is read again.
        """

    @abstractmethod
    def open_object(self, name: str) -> BinaryIO:
        """Open an object for reading. Raise FileNotFoundError and DamagedError."""

    @abstractmethod
    def misplaced(self) -> list[tuple[str, str]]:
        """Return path and reason for entries below ``objects`` that no reader follows, such as links."""

    @abstractmethod
    def intent(self, token: str, document: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Create ``intents/<token>.begun``, and end it with the block."""

    @abstractmethod
    def keep_intent(self) -> None:
        """Let the intent outlive its block: a request without an answer may still be carried out."""

    @abstractmethod
    def is_ended(self, token: str, document: Mapping[str, Any]) -> bool:
        """Return whether the process of an intent is certain to have ended, so that it publishes no more."""

    @abstractmethod
    def only_cleaner(self) -> AbstractContextManager[bool]:
        """Exclude other cleaners for the time of the block, if the place can; yield False if another one is at work."""

    @abstractmethod
    def claim(self, condemned: str) -> bool:
        """Return whether this process alone deletes by a condemned list."""

    @abstractmethod
    def settle(self, condemned: str) -> None:
        """Remove a condemned list by which this process has deleted, as soon as no request of it is under way."""

    @abstractmethod
    def clock_ms(self) -> int:
        """Return the time by the clock of the place, in ms since 1970; 0 if the place states none.

        The ages of files decide what is deleted, and the clocks of hosts differ. Needs the right to write.
        """

    @abstractmethod
    def remove_drafts(self, older_ms: int) -> int:
        """Remove what dead writers left under no name; return the number."""

    @abstractmethod
    def _entries(self, folder: str, most: int) -> dict[str, StoredEntry]:
        """Return the regular files in a folder, below ``objects`` those of its folders, by name. Raise Refused."""

    @abstractmethod
    def _read(self, relative: str, *, most: int) -> bytes:
        """Return the bytes of a file. Raise FileNotFoundError, and DamagedError if there are more than ``most``."""

    @abstractmethod
    def _create_file(self, relative: str, data: bytes) -> None:
        """Create a small file, durably and only if its name is free. Raise FileExistsError."""

    @abstractmethod
    def _remove(self, relative: str) -> int:
        """Remove a file, durably; return 0 if it does not exist."""

    # --- the marker ---------------------------------------------------------------------------------------------------

    def check_marker(self) -> None:
        """Raise Refused unless the marker states the format of this release."""
        try:
            content = parse_json(self._read(MARKER, most=_MOST_MARKER_BYTES))
        except (DamagedError, MalformedBytesError) as error:
            raise Refused(
                f"kstate cannot read {self.where}/{MARKER}: {error}",
                hint="copy it from another copy of the repository",
            ) from None
        version = None
        if isinstance(content, dict):
            version = content.get("format")
        if version != FORMAT or isinstance(version, bool):
            raise Refused(
                f"{self.where} has format {version!r}, but this version of kstate reads only format {FORMAT}",
                hint="use the newer version of kstate that wrote the repository",
            )

    def refuse_foreign(self, names: Collection[str]) -> None:
        """Raise ForeignFilesError for files of others in a place without marker, because kstate deletes files there."""
        foreign = [name for name in names if name not in IGNORED]
        if foreign:
            raise ForeignFilesError(
                f"{self.where} contains other files, but no {MARKER}: "
                f"{some([printable(name) for name in sorted(foreign)], _MOST_NAMES)}",
                hint="pass a new or empty folder or prefix, or a snapshot repository",
            )

    # --- generations --------------------------------------------------------------------------------------------------

    def generation_names(self) -> list[str]:
        """Return the names of all generations, oldest first: the time comes first in the name."""
        names = (name.removesuffix(JSON) for name in self._entries(GENERATIONS, _MOST_NOTES) if name.endswith(JSON))
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

    def objects(self) -> dict[str, StoredEntry]:
        """Return every object by its name. A link, or a file with another name, is no object."""
        return {name: entry for name, entry in self._entries(OBJECTS, MOST_OBJECTS).items() if is_object_name(name)}

    def object_sizes(self) -> dict[str, int]:
        """Return the size of every object by its name."""
        return {name: entry.size for name, entry in self.objects().items()}

    # --- notes of writers and cleaners --------------------------------------------------------------------------------

    def create_note(self, folder: str, name: str, document: Mapping[str, Any]) -> None:
        """Create a small file, durably."""
        self._create_file(f"{folder}/{name}{JSON}", note_bytes(document))

    def notes(self, folder: str) -> dict[str, StoredEntry]:
        """Return the notes in a folder by their names."""
        entries = self._entries(folder, _MOST_NOTES)
        return {name.removesuffix(JSON): entry for name, entry in entries.items() if name.endswith(JSON)}

    def read_note(self, folder: str, name: str) -> bytes:
        """Return the bytes of a note. Raise FileNotFoundError and DamagedError."""
        return self._read(f"{folder}/{name}{JSON}", most=MOST_GENERATION_BYTES)

    def remove_note(self, folder: str, name: str) -> int:
        """Remove a note, durably; return 0 if it does not exist."""
        return self._remove(f"{folder}/{name}{JSON}")

    def remove_generation(self, name: str) -> int:
        """Remove a generation, durably; return 0 if it does not exist."""
        return self._remove(generation_path(name))

    def remove_object(self, name: str) -> int:
        """Remove an object; return 0 if it does not exist."""
        return self._remove(object_path(name))


class ChangedError(Exception):
    """The source of an object had other bytes when it was read again."""


def note_bytes(document: Mapping[str, Any]) -> bytes:
    """Return the bytes of a note."""
    return json.dumps(document, sort_keys=True).encode() + b"\n"


def too_many(where: str, most: int) -> Refused:
    """Return the error for a place whose names would fill the memory."""
    return Refused(
        f"{where} contains more than {most:,} files, so it cannot be only a snapshot repository",
        hint="check which program writes these files",
    )


def write_all(file: Any, data: memoryview) -> None:
    """Write bytes to an unbuffered file."""
    # An unbuffered file may write a part only.
    while data:
        data = data[file.write(data) :]


def chunks_of(source: BinaryIO) -> Iterator[memoryview]:
    """Yield the bytes of an unbuffered file. Each chunk is overwritten by the next one."""
    buffer = memoryview(bytearray(CHUNK))
    while count := source.readinto(buffer):  # type: ignore[attr-defined]
        yield buffer[:count]

"""The job of one task and its result: plain data that travels between hosts, and the names of its files."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import Any, Final, get_args, get_type_hints

from kstate_cli.dump_reader.model import Slice
from kstate_cli.formats.offsets import Position


@dataclass(frozen=True, slots=True)
class SliceJob:
    """One slice of one changelog partition, to be made into sorted files of one store."""

    number: int
    """Orders the jobs of a store: a file with a higher number wins over one with a lower."""
    task: str
    store: str
    kind: str
    release: str
    slice: Slice
    dump_uri: str
    staging: str
    """A folder that this host and the driver both see, or a URI that both can reach."""
    memory: int
    """Bytes that this task may use beyond the interpreter."""
    interval_ms: int = 0
    """Segment interval; 0 for a store without segments."""
    retention_ms: int = 0
    indexed: bool = False
    tombstones: bool = False
    """Older rows may be below these files: deletes must be written."""
    positions: bool = False
    """Merge the Positions in the records' ``c`` headers."""
    bucket: tuple[int, int] = (0, 1)
    """(i, n): of a versioned store only keys whose hash is i modulo n."""
    identity: str = ""
    """Equal for jobs that give the same rows; empty if that is unknown."""
    file_bytes: int = 0
    """A sorted file that has so many bytes ends, and the next one begins; 0: each layer is one file."""
    existing: tuple[int | None, ...] = ()
    """Segments (their start in ms; None for a store without segments) that have rows: each layer of theirs is one file.

    RocksDB may take each file for a layer of its own there.
    """
    base: str = ""
    """The database that a versioned store is caught up from, on the host of the task; empty for a rebuild."""

    @property
    def label(self) -> str:
        """What the names of its files begin with."""
        return f"{fitting(f'{self.task}-{self.store}')}-{self.number}"

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.task}/{self.store} (offsets {self.slice.first} to {self.slice.last} of {self.slice.topic})"


@dataclass(frozen=True, slots=True)
class SortedFile:
    """One SST: sorted rows of one slice in one database."""

    segment: int | None
    """Start of the segment in ms, None for a store without segments."""
    path: str
    rows: int
    deletes: int
    size: int
    digest: str
    """SHA-256 of the file, in hex, taken by the task that wrote it."""
    layer: int
    """The number of its layer within the slice: files of one layer have no key in common, and follow each other."""

    def as_row(self) -> list[Any]:
        """Return the file as the note of a slice has it and :meth:`from_row` reads it."""
        return list(astuple(self))

    @classmethod
    def from_row(cls, row: object) -> SortedFile:
        """Return the file of a row. Raises ValueError for anything but a row of just these columns."""
        # By the very type: true is no number.
        # A row of another version of kstate has other columns: nothing of it is believed.
        if isinstance(row, list) and len(row) == len(_COLUMNS) and all(map(_has_type, row, _COLUMNS)):
            return cls(*row)
        raise ValueError(f"not a row of a sorted file: {row!r}")


def _has_type(value: object, types: tuple[type, ...]) -> bool:
    return type(value) in types


_COLUMNS: Final[tuple[tuple[type, ...], ...]] = tuple(
    get_args(hint) or (hint,) for hint in get_type_hints(SortedFile).values()
)
"""What each field may be."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The result of an attempt at a slice. Only attempts that their engine accepted are used."""

    number: int
    task: str
    store: str
    attempt: str
    files: tuple[SortedFile, ...]
    records: int
    data_bytes: int
    null_keys: int
    expired: int
    """Rows of segments that the slice itself shows to be older than the retention."""
    max_time: int | None
    """The highest segment time (ms) in the slice's keys."""
    positions: tuple[tuple[int | None, Position], ...]
    """Per segment, the Position that the ``c`` headers of its records merge to."""
    seconds: float


_LONGEST: Final = 96
_DIGEST: Final = 16


def task_key(task: str) -> str:
    """Return a task as part of a file name: tasks of a named topology, ``__name__/0_1``, have a slash."""
    return task.replace("/", ".")


def task_of(key: str) -> str:
    """Return the task of a ``task_key``: the name of a topology may have dots, the task after it has none."""
    # Split from the right: a task has no dot, while the name of a topology may have any number of them.
    topology, _, task = key.rpartition(".")
    if not topology:
        return task
    return f"{topology}/{task}"


def fitting(name: str) -> str:
    """Return ``name`` if it is short, else its beginning and a digest of all of it; at most 96 bytes of UTF-8."""
    # Bytes, because file systems limit those: 255 for a name, of which label, attempt and number take a part.
    encoded = name.encode()
    if len(encoded) <= _LONGEST:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST]
    # "ignore": the cut may be within a character.
    return f"{encoded[: _LONGEST - _DIGEST - 1].decode(errors='ignore')}~{digest}"

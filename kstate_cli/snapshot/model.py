"""A snapshot of one host as data: a generation with its tasks, stores, databases and files, and its name.

The name of a generation ends in the first 16 hex digits of the SHA-256 of its bytes, so a damaged, truncated or swapped
file no longer fits its name. Its JSON form is :mod:`kstate_cli.snapshot.generation_file`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import RETENTION_MS, most_ms
from kstate_cli.releases import OffsetsHome

MOST_INLINE_BYTES: Final = 1 << 20
"""Larger files are objects. A MANIFEST has some KB; one of a store with many files may grow beyond."""
_NAME: Final = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{16}")
MOST_AHEAD_MS: Final = 3_600_000
"""A generation of a time further ahead was taken with a wrong clock: it would count as the newest for ever."""
_OBJECT: Final = re.compile(r"[0-9a-f]{64}(?:-[0-9a-f]{8})?")
_DIGEST_LENGTH: Final = 64
_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a database. Its bytes are an object of the repository, or in the generation."""

    name: str
    size: int
    sha256: str
    mtime_ns: int
    identity: str | None = None
    """SHA-256 of the properties of an SST, which no two SSTs share (:attr:`SstProperties.raw`); None for other files,
    and for SSTs whose properties have no unique id."""
    data: bytes | None = None
    """The bytes; None for an object."""
    stored_as: str | None = None
    """The name of the object, if it is not the SHA-256: the object of that name was about to be deleted."""

    @property
    def object(self) -> str:
        """Return the name of its object."""
        return self.stored_as or self.sha256


@dataclass(frozen=True, slots=True)
class StoredDatabase:
    """One RocksDB of a store."""

    folder: str | None
    """The folder of a segment, within that of its store; None for a store of one database."""
    families: Mapping[str, tuple[str, ...]]
    """Column family -> its live SSTs and blob files, by name."""
    offsets: OffsetsRecord | None
    """The content of the column family ``offsets``; None without one."""
    files: tuple[StoredFile, ...]

    @property
    def size(self) -> int:
        """Return the bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class StoredStore:
    """One store of one task."""

    name: str
    segmented: bool
    kind: str
    offsets: Mapping[TopicPartition, int]
    """Of its changelog; empty for a store without one. Task stores state the last record, global ones the next."""
    in_file: bool
    """Streams reads its offset from ``.checkpoint_<store>``, although its release keeps offsets in the stores."""
    position: Position | None
    """The content of ``<store>.position``; None if it has no such file."""
    as_of_ms: int | None
    """As of when its data is, in ms since 1970, and never later; None if that is unknown."""
    topic_ids: Mapping[str, str]
    """The id of each topic, where it is known: two logs of one name are told apart by it."""
    databases: tuple[StoredDatabase, ...]
    is_cut: bool = False
    """It was not closed: a restoration writes its offset into each database, and that it is closed."""
    logs: Mapping[TopicPartition, LogFacts] = field(default_factory=dict)
    """What the broker stated about its changelog when the snapshot was taken; empty if no broker was asked."""

    @property
    def delete_retention_ms(self) -> int:
        """Return how long its log keeps deletes, as far as it is recorded; else Kafka's default, in ms."""
        retentions = [self.logs[key].delete_retention_ms if key in self.logs else None for key in self.offsets]
        # The most cautious one counts: one partition without an answer may have the default.
        return min((RETENTION_MS if ms is None else ms for ms in retentions), default=RETENTION_MS)

    @property
    def usable_until_ms(self) -> int | None:
        """Return until when the log is certain to have every later delete, in ms since 1970; None if it is unknown."""
        if self.as_of_ms is None:
            return None
        return self.as_of_ms + most_ms(self.delete_retention_ms)

    @property
    def size(self) -> int:
        """Return the bytes of its files."""
        return sum(database.size for database in self.databases)

    @property
    def has_rows(self) -> bool:
        """Return whether a column family of data has a file."""
        return any(
            files for database in self.databases for family, files in database.families.items() if family != OFFSETS_CF
        )

    @property
    def files(self) -> Iterator[StoredFile]:
        """Yield the files of all its databases."""
        for database in self.databases:
            yield from database.files


@dataclass(frozen=True, slots=True)
class StoredTask:
    """One task directory, or ``global``."""

    name: str
    mtime_ns: int
    home: OffsetsHome
    """Where the release that closed it keeps offsets."""
    is_whole: bool
    """Every store of the task was requested; False if the user selected some."""
    stores: tuple[StoredStore, ...]
    absent: Mapping[str, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """Changelogs of stores that kstate cannot capture (custom, in memory), by store: a restored task lacks them."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One snapshot of one host."""

    application: str
    host: str
    kstate: str
    created_ms: int
    tasks: tuple[StoredTask, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Task -> why it was not captured."""

    @property
    def stores(self) -> Iterator[tuple[StoredTask, StoredStore]]:
        """Yield every store with its task."""
        for task in self.tasks:
            for store in task.stores:
                yield task, store

    @property
    def files(self) -> Iterator[StoredFile]:
        """Yield every file."""
        for _, store in self.stores:
            yield from store.files

    @property
    def continued_stores(self) -> list[StoredStore]:
        """Return the stores whose later deletes matter: they have rows, and a log that continues them."""
        return [store for _, store in self.stores if store.offsets and store.has_rows]

    @property
    def usable_until_ms(self) -> int | None:
        """Return until when the logs are certain to have every later delete, in ms since 1970; None if unknown.

        A log keeps deletes for 24 h, Kafka's default, less a margin; or as long as the broker stated.
        """
        times = [store.usable_until_ms for store in self.continued_stores]
        ends = [time for time in times if time is not None]
        if not ends or len(ends) < len(times):
            return None
        return min(ends)

    @property
    def objects(self) -> dict[str, int]:
        """Return the name of each object that it needs, with its size."""
        return {file.object: file.size for file in self.files if file.data is None}

    @property
    def size(self) -> int:
        """Return the bytes of all its files, shared ones included."""
        return sum(file.size for file in self.files)

    def lacking(self, sizes: Mapping[str, int]) -> list[str]:
        """Return the objects that are missing, or have another size, where ``sizes`` are those that exist."""
        return sorted(name for name, size in self.objects.items() if sizes.get(name) != size)


@dataclass(frozen=True, slots=True)
class NamedGeneration:
    """A generation of a repository, with its name."""

    name: str
    content: Generation


def is_generation_name(name: str) -> bool:
    """Return whether a text is ``20261126T120000.000Z-<16 hex digits>``."""
    return _NAME.fullmatch(name) is not None


def utc_name(milliseconds: int) -> str:
    """Return a time, in ms since 1970, as names of generations begin: ``20261126T120000.000Z``."""
    # With milliseconds: names are sorted to find the newest, and a script may take two snapshots within a second.
    date_and_time = clock.utc_text(milliseconds).replace("-", "").replace(":", "").removesuffix("Z")
    return f"{date_and_time}.{milliseconds % 1000:03}Z"


def is_object_name(text: str) -> bool:
    """Return whether a text is the SHA-256 of an object, with or without a suffix of eight digits."""
    return _OBJECT.fullmatch(text) is not None


def digest_of(object_name: str) -> str:
    """Return the SHA-256 in the name of an object."""
    return object_name[:_DIGEST_LENGTH]


def name_of(utc: str, data: bytes) -> str:
    """Return the name of a generation of these bytes; ``utc`` is as :func:`utc_name` returns it."""
    return f"{utc}-{hashlib.sha256(data).hexdigest()[:_DIGITS]}"


def fits_name(name: str, data: bytes) -> bool:
    """Return whether the name of a generation contains the digest of these bytes."""
    return name_of(name[: -_DIGITS - 1], data) == name

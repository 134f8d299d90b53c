"""The contents of a state directory as data: application, tasks, stores, databases."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.checkpoint import Checkpoint
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.store_kinds import OFFSETS_CF, has_key, kind_names, named_by_dsl, store_kind, store_kinds
from kstate_cli.formats.topic_partition import GLOBAL, TaskId, TopicPartition
from kstate_cli.releases import Release, opens
from kstate_cli.rocks.files import FIRST_WAL, sst_number
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.statedir.problems import Place, Problem, task_place

_FIFO: Final = "kCompactionStyleFIFO"


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """A file in the format of ``OffsetCheckpoint``.

    If it cannot be read, ``content`` is None and ``error`` is the cause.
    """

    path: Path
    content: Checkpoint | None
    error: MalformedBytesError | OSError | None
    mtime_ns: int

    @property
    def why(self) -> str | None:
        """The text of the error, for people; None without one."""
        if self.error is None:
            return None
        # strerror and not str(error), which has the path: the place of the problem has it already.
        if isinstance(self.error, OSError) and self.error.strerror:
            return self.error.strerror
        return str(self.error)

    @property
    def entries(self) -> dict[TopicPartition, int]:
        """The offsets; empty where the file cannot be read."""
        return dict(self.content.entries) if self.content else {}


@dataclass(frozen=True, slots=True)
class Database:
    """One RocksDB directory."""

    path: Path
    segment_start: int | None
    """The segment's start in ms, None for a store in ``rocksdb/``."""
    column_families: tuple[str, ...]
    live: dict[str, tuple[LiveFile, ...]]
    """SSTs and blob files of every column family, ``offsets`` included."""
    sst_formats: frozenset[int]
    rows: int
    """Estimated number of rows in the data column families."""
    empty: bool
    """True when no data column family has a row (read, not estimated)."""
    samples: dict[str, tuple[tuple[bytes, bytes], ...]]
    offsets: OffsetsRecord | None
    """The content of its column family ``offsets``; None without one."""
    options: StoredOptions | None
    size: int
    """Bytes of all its files."""
    newest_sst_ns: int
    """mtime of its youngest live SST, 0 without one."""
    opened_ns: int
    """mtime of CURRENT: RocksDB replaces it at each open for writing."""
    problems: tuple[Problem, ...] = ()
    row_counts: tuple[tuple[str, int], ...] | None = None
    """The rows of each data column family, counted; None if they were not."""
    wal_number: int | None = None
    """The number of its newest write-ahead log, which is empty with Streams; None without one."""

    @property
    def flushed_since_opened(self) -> bool:
        """Return False if RocksDB has written no SST since it last opened the database.

        Each opening starts a write-ahead log, and logs and SSTs share one counter (``VersionSet::NewFileNumber``): an
        SST with a lower number than the newest log is older than the opening. Streams writes nothing to the log
        (``disableWAL``), so RocksDB never starts another one. Return True if the numbers are not available.
        """
        if self.wal_number is None:
            return True
        # A file name without a number counts as flushed. So the caller treats the database as unknown, and never as
        # harmless.
        numbers = [sst_number(file.name) for files in self.live.values() for file in files]
        return any(number is None or number > self.wal_number for number in numbers)

    @property
    def opened_once(self) -> bool:
        """Return True if no process has opened it for writing since it was created."""
        return self.wal_number is not None and self.wal_number <= FIRST_WAL

    @property
    def forgetful_family(self) -> str | None:
        """A column family whose files RocksDB drops by age and size (FIFO compaction); None without one."""
        if self.options is None:
            return None
        for name, options in self.options.column_families.items():
            if options.get("compaction_style") == _FIFO:
                return name
        return None

    @property
    def data_families(self) -> tuple[str, ...]:
        """All column families but ``offsets``."""
        return tuple(name for name in self.column_families if name != OFFSETS_CF)


@dataclass(frozen=True, slots=True)
class Store:
    """One state store of one task: a single RocksDB, or one per segment."""

    name: str
    path: Path
    segmented: bool
    databases: tuple[Database, ...]
    kind: Kind
    position_file: CheckpointFile | None
    store_file: CheckpointFile | None
    """``.checkpoint_<store>``."""

    @property
    def empty(self) -> bool:
        """True if no database has a row."""
        return all(database.empty for database in self.databases)

    @property
    def families(self) -> frozenset[str]:
        """The column families of all its databases."""
        return frozenset(name for database in self.databases for name in database.column_families)

    @property
    def sst_formats(self) -> frozenset[int]:
        """The SST formats of all its databases."""
        return frozenset(f for database in self.databases for f in database.sst_formats)

    def opens_in(self, release: Release) -> bool:
        """Return whether the release opens all its databases unchanged."""
        # The table of kinds may have no row for the kind. Then only column families and SST formats decide.
        kinds = frozenset({self.kind.name} & kind_names())
        return opens(release, kinds=kinds, families=self.families, sst_formats=self.sst_formats)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Texts that a reader of the store should see: problems that are not fatal, and an unreadable Position."""
        harmless = (problem for database in self.databases for problem in database.problems if not problem.fatal)
        remarks = [problem.reasoned for problem in harmless]
        if not self.position_is_readable and self.position_file is not None:
            where = f"{self.position_file.path.parent.name}/{self.position_file.path.name}"
            remarks.append(f"{where}: {self.position_file.why}, so kstate does not know the store's Position")
        return tuple(remarks)

    @property
    def position_is_readable(self) -> bool:
        """False if the file of the Position cannot be read: :attr:`position` is incomplete then."""
        return self.position_file is None or self.position_file.content is not None

    @property
    def in_doubt(self) -> bool:
        """True if rows may be missing silently."""
        return any(problem.doubt for database in self.databases for problem in database.problems)

    @property
    def has_offsets_family(self) -> bool:
        """True if any of its databases has the column family ``offsets``."""
        return OFFSETS_CF in self.families

    @property
    def is_grace_buffer(self) -> bool:
        """True for the buffer of a stream-table join: 4.3 keeps its offset in ``.checkpoint_<store>``."""
        # Its segment interval is the greatest possible, so it has only segment 0. If it is empty, it has no rows to
        # infer the kind from, so its name decides.
        only_zero = self.segmented and [d.segment_start for d in self.databases] == [0]
        return has_key(self.kind.name, KeySchema.BUFFER) or (only_zero and _is_buffer_name(self.name))

    @property
    def offsets_file(self) -> CheckpointFile | None:
        """``.checkpoint_<store>`` if Streams uses it for this store, else None.

        4.3 reads and writes it for stores that keep no offsets in their database (``LegacyCheckpointingStateStore``).
        For other stores an old file stays, and Streams ignores it.
        """
        if self.has_offsets_family and not self.is_grace_buffer:
            return None
        return self.store_file

    @property
    def status(self) -> str | None:
        """``open`` if any database has that status, else ``closed`` if any has that, else None."""
        # One segment with the status open is enough, because Streams opens and closes all segments of a store together.
        values = {database.offsets.status for database in self.databases if database.offsets is not None}
        if any(value not in (None, 0) for value in values):
            return "open"
        # No database has a status: the column family is missing (up to 4.2), nothing was flushed, or a transactional
        # run has left no status (KIP-892).
        if 0 not in values:
            return None
        return "closed"

    @property
    def position(self) -> Position:
        """The Position on disk: all places merged (maximum per component, as Streams does at open)."""
        merged = Position.empty()
        for database in self.databases:
            if database.offsets is not None and database.offsets.position is not None:
                merged = merged.merge(database.offsets.position)
        if self.position_file and self.position_file.content:
            merged = merged.merge(Position.from_checkpoint(self.position_file.content))
        return merged


def _is_buffer_name(store: str) -> bool:
    return named_by_dsl((kind for kind in store_kinds() if kind.key is KeySchema.BUFFER), store) is not None


@dataclass(frozen=True, slots=True)
class Task:
    """A task directory, or ``global``."""

    name: str
    """``0_1``, ``global``, or ``__topology__/0_1``."""
    path: Path
    stores: tuple[Store, ...]
    checkpoint: CheckpointFile | None
    store_files: dict[str, CheckpointFile]
    """All ``.checkpoint_<store>`` files by store name."""
    position_files: dict[str, CheckpointFile]
    leftovers: tuple[str, ...]
    """Names of files that no running application leaves: ``.checkpoint.tmp`` and the like."""
    problems: tuple[Problem, ...]
    mtime_ns: int = 0

    @property
    def app(self) -> Path:
        """The application directory that contains it."""
        return self.path.parents[self.name.count("/")]

    @property
    def place(self) -> Place:
        """Its directory."""
        return task_place(self.name)

    @property
    def is_global(self) -> bool:
        """The directory of the global stores: no partition, next-offset meaning."""
        return self.name == GLOBAL

    @property
    def id(self) -> TaskId:
        """Its name, parsed."""
        return TaskId.parse(self.name)

    @property
    def partition(self) -> int | None:
        """The partition of the task, None for ``global``."""
        return self.id.partition

    @property
    def topology(self) -> str | None:
        """The named topology that the task belongs to, if any."""
        return self.id.topology

    @property
    def sub_topology(self) -> tuple[str | None, int | None]:
        """The named topology and the number of the sub-topology; no number for the global stores."""
        return self.id.topology, self.id.subtopology

    @property
    def has_offsets_family(self) -> bool:
        """True when any database of the task has the column family ``offsets``."""
        return any(store.has_offsets_family for store in self.stores)


@dataclass(frozen=True, slots=True)
class Application:
    """An application directory as it was read."""

    path: Path
    tasks: tuple[Task, ...]
    running: bool | None
    pid: int | None
    problems: tuple[Problem, ...] = field(default=())

    @property
    def app_id(self) -> str:
        """``application.id``: the directory's name."""
        return self.path.name

    @property
    def as_of(self) -> str:
        """``closed``, or ``last-flush`` if a running application may have more in memory."""
        # If it is unknown whether it is running, memory may have more than the files.
        if self.running is not False:
            return "last-flush"
        return "closed"

    @property
    def doubtful(self) -> frozenset[Place]:
        """The places of databases that may lack rows; none while the application is running.

        A running application writes an SST before its MANIFEST names it, so an SST that is not named proves nothing.
        """
        if self.running:
            return frozenset()
        return frozenset(problem.place for problem in self.all_problems() if problem.doubt)

    def all_problems(self) -> tuple[Problem, ...]:
        """Problems of the application, its tasks and databases."""
        problems = list(self.problems)
        for task in self.tasks:
            problems += task.problems
            for store in task.stores:
                for database in store.databases:
                    problems += database.problems
        return tuple(problems)


def has_rows_without_headers(store: Store) -> bool:
    """Return True for an on-window-close session store with headers that has rows from before it had headers.

    When 4.3.1 reads such a row, it puts a zero byte before the aggregation, and writes the row back with it. Then a
    number no longer deserializes, and a text silently changes. A row that has such a byte already cannot be recognized.
    """
    kind = store_kind(store.kind.name)
    # The families are in order, newest first. A row in any but the first was written before the store had headers.
    older = [family.name for family in kind.families[1:]]
    return kind.misread_before and any(database.samples.get(name) for database in store.databases for name in older)


def misread_with_headers(kind: str) -> str | None:
    """Return the kind with headers as which 4.3.1 misreads the rows of stores of this kind; None without one."""
    return next((other.name for other in store_kinds() if other.misread_before and other.headers_of == kind), None)


def may_be_misread_with_headers(store: Store) -> bool:
    """Return True if a store has, or may have, rows that 4.3.1 misreads under ``dsl.store.format=HEADERS``."""
    is_exact = store_kind(store.kind.name).is_exact
    return not store.empty and (not is_exact or misread_with_headers(store.kind.name) is not None)


def without_headers(kind: str) -> str:
    """Return the kind that the same topology has without record headers."""
    return store_kind(kind).headers_of or kind

"""The plan of a change as immutable data: a dry run prints the object that a run executes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import offsets_text
from kstate_cli.releases import Release
from kstate_cli.statedir.model import Database
from kstate_cli.statedir.problems import Place

FEW_LAYERS: Final = 3
"""A new database with at most so many layers is not compacted: RocksDB's universal compaction begins with four."""


@dataclass(frozen=True, slots=True)
class OmitTree:
    """Leave a directory out of the new application directory; the backup still has it."""

    path: str
    why: str
    screen_text: str = field(default="", compare=False)
    """The reason as a terminal shows it; empty if it is the same. The reason is in JSON, and stays stable."""
    action: str = field(default="leave out", init=False)

    def describe(self) -> str:
        """Return a line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Leave a file out of the new application directory."""

    path: str
    why: str
    action: str = field(default="remove file", init=False)

    def describe(self) -> str:
        """Return a line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write a small file as a whole."""

    path: str
    data: bytes
    summary: str
    keep_time: bool = False
    """Keep the mtime of the replaced file.

    Up to 4.2 an SST younger than ``.checkpoint`` is the only trace of a crash. So only a step that knows that the whole
    task is clean may write ``.checkpoint`` with the present time.
    """
    short_text: str = field(default="", compare=False)
    """A summary that fits on the line of a terminal; empty if it is the same."""
    action: str = field(default="write file", init=False)

    def describe(self) -> str:
        """Return a line for the plan."""
        return self.summary


@dataclass(frozen=True, slots=True)
class Conversion:
    """Move rows of a headers column family to the column family of the older layout."""

    source: str
    target: str
    layout: str
    """The layout of the converted values: a name of ``formats.layouts.STRIP``."""


@dataclass(frozen=True, slots=True)
class EditDatabase:
    """Apply every change to one RocksDB in one open."""

    path: str
    before: Database
    drop: tuple[str, ...] = ()
    offsets: OffsetsRecord | None = None
    """The new whole content of the column family ``offsets``; None keeps it unchanged."""
    sst_format: int | None = None
    """Rewrite every SST with this format_version; None keeps the files themselves."""
    conversions: tuple[Conversion, ...] = ()
    action: str = field(default="edit store", init=False)

    @property
    def families_after(self) -> frozenset[str]:
        """Return the column families of the changed database."""
        names = set(self.before.column_families) - set(self.drop)
        names |= {c.target for c in self.conversions}
        names -= {c.source for c in self.conversions}
        if self.offsets is not None:
            names.add(OFFSETS_CF)
        return frozenset(names)

    @property
    def rewritten_bytes(self) -> int:
        """Return the bytes of the SSTs that are rewritten."""
        dropped = set(self.drop)
        files = [f for name, live in self.before.live.items() if name not in dropped for f in live]
        if self.sst_format is not None:
            return sum(file.size for file in files)
        # A conversion writes about as many bytes as it reads.
        sources = {c.source for c in self.conversions}
        return sum(file.size for name in sources for file in self.before.live.get(name, ()))

    def describe(self) -> str:
        """Return a line for the plan."""
        return self._text(self.drop)

    @property
    def screen_text(self) -> str:
        """Return the line as a terminal shows it.

        Names are quoted: without quotes, "drop column family offsets" reads as if offsets were dropped.
        """
        return self._text([f'"{name}"' for name in self.drop])

    def _text(self, dropped: Iterable[str]) -> str:
        parts = []
        if self.offsets is not None:
            parts.append(f"offsets: {_record_text(self.offsets)}")
        parts += [f"drop column family {name}" for name in dropped]
        parts += [f"convert {c.source} to {c.target} ({c.layout})" for c in self.conversions]
        if self.sst_format is not None:
            parts.append(f"rewrite SSTs as format {self.sst_format}, XXH3")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """Create a RocksDB that has no rows and only records an offset.

    It is for a windowed store without any segment, and for a store without rows. Streams adds the column families of
    the store when it opens the database.
    """

    path: str
    offsets: OffsetsRecord
    action: str = "create carrier segment"

    def describe(self) -> str:
        """Return a line for the plan."""
        return f"offsets: {_record_text(self.offsets)}"


@dataclass(frozen=True, slots=True)
class MoveStore:
    """Move a store, with all its files unchanged, to another place in the new application directory."""

    path: str
    """The new place. No other step concerns it, and the clone does not contain what the old directory has there."""
    source: str
    """The old place, also relative to the application directory."""
    databases: tuple[Database, ...]
    why: str
    action: str = field(default="move store", init=False)

    def describe(self) -> str:
        """Return a line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class BuildStore:
    """Restore a store. Its databases (``BuildDatabase``) are only known once its files are sorted."""

    path: str
    summary: str
    replaces: bool
    """The old database of the store is not cloned, because the store is rebuilt."""
    size: int
    """Bytes of the records that the store is made from: about the size of its sorted files (SSTs)."""
    screen_text: str = field(default="", compare=False)
    """The summary as a terminal shows it; empty if it is the same. The summary is in JSON, and stays stable."""
    short_text: str = field(default="", compare=False)
    """A summary that fits on the line of a terminal; empty if it is the same."""
    action: str = field(default="restore store", init=False)

    def describe(self) -> str:
        """Return a line for the plan."""
        return self.summary


@dataclass(frozen=True, slots=True)
class BuildDatabase:
    """Ingest sorted files (SSTs) into a RocksDB: an existing one if ``exists``, otherwise a new one."""

    path: str
    kind: str
    release: Release
    family: str
    layers: tuple[tuple[str, ...], ...]
    """SSTs on this host, oldest layer first. On the same file system they are moved, not copied.

    Files of one layer have no key in common, and are in the order of their keys. A newer layer has the newer rows.
    """
    rows: int
    """Rows and deletes in all of the files together."""
    deletes: int
    offsets: OffsetsRecord | None
    """The whole content of the column family ``offsets``; None for releases that have none."""
    exists: bool = False
    action: str = field(default="build database", init=False)

    @property
    def stays(self) -> bool:
        """Return whether the database is not compacted: then it has exactly the entries of its files."""
        return not self.exists and len(self.layers) <= FEW_LAYERS

    def describe(self) -> str:
        """Return a line for the journal."""
        return f"{sum(map(len, self.layers))} sorted files with {self.rows} rows into {self.family}"


@dataclass(frozen=True, slots=True)
class PlaceDatabase:
    """Move a complete RocksDB into the new application directory: the copy of one in a snapshot."""

    path: str
    source: str
    """The folder of the copy, on the file system of the application directory; it has this database's files alone."""
    live: Mapping[str, tuple[tuple[str, int], ...]]
    """Column family -> name and size in bytes of each SST and blob file that it consists of."""
    offsets: OffsetsRecord | None
    """The whole content of the column family ``offsets``; None without one."""
    action: str = field(default="place database", init=False)

    def describe(self) -> str:
        """Return a line for the journal."""
        return f"{sum(map(len, self.live.values()))} SSTs and blob files of a snapshot"


Step = (
    OmitTree
    | RemoveFile
    | WriteFile
    | MoveStore
    | EditDatabase
    | CreateDatabase
    | BuildStore
    | BuildDatabase
    | PlaceDatabase
)


def _record_text(record: OffsetsRecord) -> str:
    parts = []
    if record.offsets:
        parts.append(offsets_text(record.offsets))
    if record.position is not None and not record.position.is_empty:
        parts.append("position")
    if record.status == STATUS_CLOSED:
        parts.append("status closed")
    elif record.status is not None:
        parts.append(f"status {record.status}")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change to one application directory. ``steps`` paths are relative to it."""

    app: Path
    command: str
    """The command as the journal and ``kstate status`` print it, with its options."""
    source: str
    target: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task_times: Mapping[str, int] = field(default_factory=dict)
    """The new mtime, in ns, of a task directory: the time of its oldest data. Other directories keep theirs."""
    opens_in: tuple[str, ...] = field(default=(), compare=False)
    """The releases that can open every store after the change; empty if the planner does not predict them."""
    stores_of_removed_tasks: int = field(default=0, compare=False)
    """How many stores the tasks have that the plan removes as a whole, as far as the planner counts them."""

    @property
    def placed(self) -> frozenset[str]:
        """Return the paths of the databases that the plan places: later steps edit these copies, not ones of APP."""
        return frozenset(step.path for step in self.steps if isinstance(step, PlaceDatabase))

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not self.steps

    @property
    def tasks(self) -> frozenset[str]:
        """Return the tasks that the plan changes, also those of which only a file is written."""
        return frozenset(task for step in self.steps if (task := _place(step).task) is not None)

    @property
    def stores(self) -> int:
        """Return how many stores the plan changes."""
        # Steps for a file of a task, such as .checkpoint, do not concern a store.
        places = [_place(step) for step in self.steps if not isinstance(step, (RemoveFile, WriteFile))]
        stores = {(place.task, place.store.name) for place in places if place.task and place.store}
        return len(stores) + self.stores_of_removed_tasks

    @property
    def databases(self) -> int:
        """Return how many RocksDBs are changed, moved or created, as far as the plan knows them."""
        in_moved_stores = sum(len(step.databases) for step in self.steps if isinstance(step, MoveStore))
        return in_moved_stores + sum(
            1 for step in self.steps if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase, PlaceDatabase))
        )

    @property
    def rewritten_bytes(self) -> int:
        """Return the bytes of the SSTs that are rewritten."""
        rewritten = sum(step.rewritten_bytes for step in self.steps if isinstance(step, EditDatabase))
        return rewritten + sum(step.size for step in self.steps if isinstance(step, BuildStore))


def _place(step: Step) -> Place:
    return Place(tuple(step.path.split("/")))


class RemarkKind(Enum):
    """The effect of a remark on its plan."""

    NOTE = "note"
    """Information only; the run ends with 0."""
    WARNING = "warning"
    """Something is lost or not done; the run ends with 1."""
    UNCLEAN = "unclean"
    """A task may hold uncommitted rows: the plan is refused unless the user allows it."""
    LOSS = "loss"
    """The next start would lose rows: the plan is refused."""


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about the plan."""

    kind: RemarkKind
    text: str


Change = Step | Remark
"""A result of a planner's rule."""


def note(text: str) -> Remark:
    """Return a remark that changes nothing."""
    return Remark(RemarkKind.NOTE, text)


def warning(text: str) -> Remark:
    """Return a remark that makes the run end with warnings."""
    return Remark(RemarkKind.WARNING, text)


def steps_of(changes: Iterable[Change]) -> tuple[Step, ...]:
    """Return the steps among the changes, in their order."""
    return tuple(change for change in changes if not isinstance(change, Remark))


def texts_of(changes: Iterable[Change], kind: RemarkKind) -> tuple[str, ...]:
    """Return the remarks of one kind, in their order."""
    return tuple(change.text for change in changes if isinstance(change, Remark) and change.kind is kind)

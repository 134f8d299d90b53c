"""What a change will do, as immutable data: the same object is printed by ``--dry-run`` and executed by a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord
from kstate_cli.formats.topic_partition import offsets_text
from kstate_cli.releases import Release
from kstate_cli.statedir.model import Database

FEW_LAYERS: Final = 3
"""So many layers stay as they are: RocksDB's universal compaction begins with four."""


@dataclass(frozen=True, slots=True)
class OmitTree:
    """A directory that the new application directory does not have; the kept one still does."""

    path: str
    why: str
    action: str = field(default="leave out", init=False)

    def describe(self) -> str:
        """One line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """A file that the new application directory does not have."""

    path: str
    why: str
    action: str = field(default="remove file", init=False)

    def describe(self) -> str:
        """One line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class WriteFile:
    """A small file, written whole."""

    path: str
    data: bytes
    what: str
    keep_time: bool = False
    """The file stays as old as the one that it replaces: up to 4.2 an SST that is younger than ``.checkpoint`` is all
    that tells of a crash, and only who vouches for the whole task may write a young one."""
    action: str = field(default="write file", init=False)

    def describe(self) -> str:
        """One line for the plan."""
        return self.what


@dataclass(frozen=True, slots=True)
class Conversion:
    """Rows of a headers column family that move to the column family of the older layout."""

    source: str
    target: str
    layout: str
    """What is left of a value: a name of ``formats.layouts.STRIP``."""


@dataclass(frozen=True, slots=True)
class EditDatabase:
    """Everything that changes in one RocksDB, done in one open."""

    path: str
    before: Database
    drop: tuple[str, ...] = ()
    offsets: OffsetsRecord | None = None
    """The whole content that the column family ``offsets`` is to have; None leaves it alone."""
    sst_format: int | None = None
    """Rewrite every SST with this format_version; None keeps the files themselves."""
    conversions: tuple[Conversion, ...] = ()
    action: str = field(default="edit store", init=False)

    @property
    def families_after(self) -> frozenset[str]:
        """The column families that the database has afterwards."""
        names = set(self.before.column_families) - set(self.drop)
        names |= {c.target for c in self.conversions}
        names -= {c.source for c in self.conversions}
        if self.offsets is not None:
            names.add(OFFSETS_CF)
        return frozenset(names)

    @property
    def rewritten_bytes(self) -> int:
        """Bytes of SSTs that are written anew."""
        dropped = set(self.drop)
        files = [f for name, live in self.before.live.items() if name not in dropped for f in live]
        if self.sst_format is not None:
            return sum(file.size for file in files)
        sources = {c.source for c in self.conversions}
        return sum(file.size for name in sources for file in self.before.live.get(name, ()))

    def describe(self) -> str:
        """One line for the plan."""
        parts = []
        if self.offsets is not None:
            parts.append(f"offsets: {_record_text(self.offsets)}")
        parts += [f"drop column family {name}" for name in self.drop]
        parts += [f"convert {c.source} to {c.target} ({c.layout})" for c in self.conversions]
        if self.sst_format is not None:
            parts.append(f"rewrite SSTs as format {self.sst_format}, XXH3")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class CreateDatabase:
    """A RocksDB that only carries an offset: a segment for a windowed store that has none, or a store without rows.

    Streams adds the column families of the store itself when it opens it.
    """

    path: str
    offsets: OffsetsRecord
    action: str = "create carrier segment"

    def describe(self) -> str:
        """One line for the plan."""
        return f"offsets: {_record_text(self.offsets)}"


@dataclass(frozen=True, slots=True)
class MoveStore:
    """A store that lies elsewhere in the new application directory, with all its files as they are."""

    path: str
    """Where it goes: nothing else of the plan is there, and what the old directory has there leaves."""
    source: str
    """Where it lies in the old one, relative to it too."""
    databases: tuple[Database, ...]
    why: str
    action: str = field(default="move store", init=False)

    def describe(self) -> str:
        """One line for the plan."""
        return self.why


@dataclass(frozen=True, slots=True)
class BuildStore:
    """A store that is restored. Which databases that makes (``BuildDatabase``) is known once its files are sorted."""

    path: str
    what: str
    replaces: bool
    """The store is rebuilt: what is there is left out of the new directory."""
    size: int
    """Bytes of the records that it is made from: about what its sorted files take."""
    action: str = field(default="restore store", init=False)

    def describe(self) -> str:
        """One line for the plan."""
        return self.what


@dataclass(frozen=True, slots=True)
class BuildDatabase:
    """One RocksDB that takes sorted files in, oldest first; a new one unless it is in the staged directory already."""

    path: str
    kind: str
    release: Release
    family: str
    layers: tuple[tuple[str, ...], ...]
    """SSTs on this host, oldest layer first; on the same file system they are taken, not copied.

    Files of one layer have no key in common, and follow each other in the order of keys.
    """
    rows: int
    """Rows and deletes in all of them together."""
    deletes: int
    offsets: OffsetsRecord | None
    """The whole content of the column family ``offsets``; None for releases that have none."""
    exists: bool = False
    action: str = field(default="build database", init=False)

    @property
    def stays(self) -> bool:
        """A new database of so few layers is not compacted: it has exactly the entries of its files."""
        return not self.exists and len(self.layers) <= FEW_LAYERS

    def describe(self) -> str:
        """One line for the journal."""
        return f"{sum(map(len, self.layers))} sorted files with {self.rows} rows into {self.family}"


Step = OmitTree | RemoveFile | WriteFile | MoveStore | EditDatabase | CreateDatabase | BuildStore | BuildDatabase


def _record_text(record: OffsetsRecord) -> str:
    parts = [offsets_text(record.offsets)] if record.offsets else []
    if record.position is not None and not record.position.is_empty:
        parts.append("position")
    if record.status is not None:
        parts.append("status closed" if record.status == STATUS_CLOSED else f"status {record.status}")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Plan:
    """A change to one application directory. ``steps`` paths are relative to it."""

    app: Path
    command: str
    """What the journal and ``kstate status`` call it: ``migrate --to 4.2``."""
    source: str
    target: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task_times: Mapping[str, int] = field(default_factory=dict)
    """The mtime, in ns, that a task directory is to have: as of when its oldest data is. Others keep theirs."""

    @property
    def empty(self) -> bool:
        """Nothing to do."""
        return not self.steps

    @property
    def databases(self) -> int:
        """RocksDBs that are changed, moved or made anew, as far as the plan knows them."""
        moved = sum(len(step.databases) for step in self.steps if isinstance(step, MoveStore))
        return moved + sum(1 for step in self.steps if isinstance(step, (EditDatabase, CreateDatabase, BuildDatabase)))

    @property
    def rewritten_bytes(self) -> int:
        """Bytes of SSTs that are written anew."""
        rewritten = sum(step.rewritten_bytes for step in self.steps if isinstance(step, EditDatabase))
        return rewritten + sum(step.size for step in self.steps if isinstance(step, BuildStore))


class RemarkKind(Enum):
    """What a remark means for the plan that it is part of."""

    NOTE = "note"
    """Worth knowing; the run ends with 0."""
    WARNING = "warning"
    """Something is lost or left undone; the run ends with 1."""
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
"""What a rule of a planner yields."""


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

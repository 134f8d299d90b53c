"""Databases made of sorted files: the steps of a restoration, how they are carried out, and how they are verified."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kstate_cli.change.newfiles import take_access
from kstate_cli.change.owner import own_like
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.offsets import OffsetsRecord, decode_rows, encode_rows
from kstate_cli.releases import Release
from kstate_cli.rocks.create import create_store, layout_of
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import unflushed_logs
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore

FEW_LAYERS: Final = 3
"""So many layers stay as they are: RocksDB's universal compaction begins with four."""
MOST_OVERLAPPING: Final = 8
"""More overlapping files in a database that was there are merged: at 20 RocksDB slows down writes of who opens it, at
36 it stops them (``level0_slowdown_writes_trigger``, ``level0_stop_writes_trigger``)."""
_ENTRIES = re.compile(r"# entries=(\d+)")


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


def build_database(step: BuildDatabase, app: Path, staged: Path) -> None:
    """Carries out a step in the staged directory. Raises RocksError and OSError."""
    path = staged / step.path
    make_parents(path.parent, staged)
    try:
        if not step.exists:
            create_store(path, layout_of(step.kind, step.release))
        with WritableStore(path, step.release) as store:
            if step.family not in store.column_families:
                store.create(step.family)
            store.ingest(step.family, [[Path(file) for file in layer] for layer in step.layers], move=True)
            if step.exists:
                if step.layers and store.overlapping(step.family) > MOST_OVERLAPPING:
                    store.merge_small(step.family, MOST_OVERLAPPING)
            elif not step.stays and store.overlapping(step.family) > FEW_LAYERS:
                store.compact(step.family)
            if step.offsets is not None:
                store.set_offsets(encode_rows(step.offsets))
    except RocksError as error:
        raise RocksError(f"{step.path}: {error}") from None
    take_access(path, app, app / step.path)


def make_parents(folder: Path, staged: Path) -> None:
    """Task and store folders as Streams makes them: of the application's owner, 0755."""
    missing = []
    while folder != staged and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        # Two stores of one task may get here at once.
        path.mkdir(mode=0o755, exist_ok=True)
        own_like(path, path.parent.stat())


def verify_database(step: BuildDatabase, staged: Path, *, full: bool) -> None:
    """Opens what was built and holds it against the step. Raises RocksError, naming the database.

    How many entries there are is looked at in a new database only: one that was caught up had some before.
    """
    path = staged / step.path
    if logs := unflushed_logs(path):
        raise RocksError(f"{step.path}: {', '.join(logs)} still holds rows: the database was not flushed")
    with Shadow(path) as shadow:
        if step.family not in shadow.column_families:
            raise RocksError(f"{step.path}: column family {step.family} is missing")
        if step.offsets is not None:
            stored = decode_rows(shadow.rows(OFFSETS_CF))
            if stored != step.offsets:
                raise RocksError(f"{step.path}: column family offsets holds {stored}, not {step.offsets}")
        if not step.exists:
            match = _ENTRIES.search(shadow.table_properties(step.family))
            entries = int(match[1]) if match else 0
            # A compaction leaves out what is overwritten or deleted; nothing may be left of deletes alone.
            wrong = entries != step.rows if step.stays else entries > step.rows
            if wrong or (step.rows > step.deletes and not entries):
                raise RocksError(f"{step.path}: {entries} entries, where the sorted files have {step.rows}")
        if full:
            for _ in shadow.rows(step.family):
                pass

"""Which parts an export has: the same ones whatever engine writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kstate_cli.errors import Refused
from kstate_cli.export.part import PartJob
from kstate_cli.export.ranges import Range, split
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.tables import tables
from kstate_cli.rows.databases import Databases
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.records import Shape, shape_of
from kstate_cli.rows.segment import UNREADABLE, Segment
from kstate_cli.rows.store import StoreReader
from kstate_cli.rows.whole_stores import filled, open_whole
from kstate_cli.statedir.model import Database, Store, Task
from kstate_cli.texts import command

PART_BYTES: Final = 64 << 20
"""A database with more bytes of SSTs than this is read in ranges of about so many."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The parts of one task, in the order of its segments and keys."""

    reader: StoreReader
    store: Store
    parts: tuple[PartJob, ...]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """``size`` is the bytes of the SSTs, ``rows`` an estimate."""

    shape: Shape
    tasks: tuple[TaskPlan, ...]
    size: int
    rows: int

    @property
    def parts(self) -> tuple[PartJob, ...]:
        """All of them."""
        return tuple(part for task in self.tasks for part in task.parts)


def plan_export(
    stores: Sequence[tuple[Task, Store]],
    folder: Path,
    *,
    key_serde: str,
    value_serde: str,
    kind: str | None = None,
    part_bytes: int | None = PART_BYTES,
) -> ExportPlan:
    """The parts of a store in these tasks; ``kind`` is what the specification says, no ``part_bytes``: no ranges.

    Raises StoreUnreadable for a store that is damaged or of no certain kind, Refused where tasks do not fit together.
    """
    databases = Databases()
    readers = [open_whole(task, store, [one for _, one in stores], databases, kind=kind) for task, store in stores]
    shapes = {shape_of(reader.kind).name: shape_of(reader.kind) for reader in readers}
    if len(shapes) > 1:
        raise Refused(
            f"{stores[0][1].name} is of different kinds: {', '.join(map(str, readers))}",
            hint="say in a specification which kind it is, and name that with --spec",
            hint_details=[f"what its tasks look like: {command('ls', stores[0][0].app)}"],
        )
    plans: list[TaskPlan] = []
    size = 0
    for (_, store), reader in zip(stores, readers, strict=True):
        empty = PartJob("", folder, reader.partition, reader.layout, key_serde, value_serde)
        size += sum(_bytes(database) for database in store.databases if not database.empty)
        parts = [part for segment in filled(reader, store) for part in _parts(segment, empty, part_bytes)]
        named = (replace(part, name=_name(reader.task, number)) for number, part in enumerate(parts or [empty]))
        plans.append(TaskPlan(reader, store, tuple(named)))
    return ExportPlan(
        next(iter(shapes.values())), tuple(plans), size, sum(part.rows for plan in plans for part in plan.parts)
    )


def _bytes(database: Database) -> int:
    return sum(file.size for name, files in database.live.items() if name != OFFSETS_CF for file in files)


def _name(task: str, number: int) -> str:
    return f"part-{task.replace('/', '.')}-{number:05d}.parquet"


def _parts(segment: Segment, empty: PartJob, part_bytes: int | None) -> Iterator[PartJob]:
    try:
        with Shadow(segment.path) as shadow:
            families = [name for name in shadow.column_families if name != OFFSETS_CF]
            ssts = [table for name in families for table in tables(shadow.sstables(name))]
            rows = sum(map(shadow.estimated_rows, families))
    except UNREADABLE as error:
        raise segment.blame(error) from None
    ranges = _within(split(ssts, part_bytes), empty.layout) if part_bytes is not None else [(None, None)]
    for lower, below in ranges:
        yield replace(
            empty,
            path=segment.path,
            app=segment.app,
            start=segment.start,
            lower=lower,
            below=below,
            rows=max(1, rows // len(ranges)),
        )


def _within(ranges: Sequence[Range], layout: Layout) -> list[Range]:
    """Those ranges that hold data of such a store."""
    first, end = layout.key.base_rows
    return [
        (lower, below)
        for lower, below in ranges
        if (end is None or lower is None or lower < end) and (first is None or below is None or below > first)
    ]

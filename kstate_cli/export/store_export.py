"""``kstate export`` from paths to the result: read, plan, write parts, name them.

The parts are the same for every engine: key ranges of about the same size, by the SSTs in the MANIFEST.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.export.files import ExportWatcher, OutFolder, PartJob, PartResult, check_out, choose_engine, write_parts
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.offsets.last_run import position_reached, reader_remarks
from kstate_cli.rocks.files import Table, tables
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rows.open import Steady, filled, open_whole, refuse_running, stores_of
from kstate_cli.rows.records import Layout, Shape, shape_of
from kstate_cli.rows.segment import UNREADABLE, Databases, Segment, StoreReader
from kstate_cli.rows.serdes import serde_for
from kstate_cli.spark.engine import REQUESTED, Engine, EngineChoice
from kstate_cli.specification.combine import merge
from kstate_cli.specification.draft import SpecDraft, StoreDraft
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command

SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The store to export, the folder, and the options."""

    app: Path
    """The absolute path of the application directory."""
    store: str
    out: Path
    topology: str | None = None
    spec: SpecDraft = field(default_factory=lambda: SpecDraft(None, ()))
    spec_named: str = "kstate.toml"
    key_serde: str = "bytes"
    value_serde: str = "bytes"
    engine: EngineChoice = field(default_factory=lambda: EngineChoice(Engine.local, REQUESTED))
    workers: int = 1
    overwrite: bool = False
    last_flush: bool = False


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export: its manifest and its engine."""

    manifest: Mapping[str, Any]
    engine: str
    out: Path
    size: int
    """Bytes of all files."""
    remarks: tuple[str, ...] = ()
    """Remarks about the stores for the reader of the export."""
    warned: bool = True
    """False while the application is running, because its files change all the time."""


def export_store(request: ExportRequest, watcher: ExportWatcher) -> Exported:
    """Export a store to Parquet files. Raise UsageError, Refused, InUse, StoreUnreadable, SerdeError and RunFailed.

    After an error, no file of this export is left. After a kill, the folder ``_incomplete`` is.
    """
    out = check_out(request.out, request.app)
    key, value = serde_for(option.KEY_SERDE, request.key_serde), serde_for(option.VALUE_SERDE, request.value_serde)
    app = read_application(request.app, stores={request.store}, workers=request.workers)
    refuse_running(app, last_flush=request.last_flush)
    in_spec = request.spec.store(request.store) or StoreDraft(name=request.store)
    stores = stores_of(app, request.store, topology=request.topology, subtopology=in_spec.subtopology)
    if request.spec.stores or request.spec.application is not None:
        merge(app, request.spec, file_name=request.spec_named)  # raises if the file is about another directory
    # Recorded before the first row is read, and compared after the last one, to notice an application that starts
    # meanwhile.
    steady = Steady.of(app, [store for _, store in stores])
    owner = {
        "schema_version": SCHEMA,
        "app": str(app.path),
        "store": request.store,
        "topology": request.topology,
    }
    remarks = tuple(remark for _, store in stores for remark in reader_remarks(store, running=bool(app.running)))
    # The folder comes first, so that a second export to it is refused before it reads anything.
    with OutFolder(out, owner, overwrite=request.overwrite) as place:
        plan = plan_export(
            stores,
            place.folder,
            key_serde=request.key_serde,
            value_serde=request.value_serde,
            kind=in_spec.kind,
            # Each range opens the database. If the application is running, ranges would be of different times.
            part_bytes=None if app.running else PART_BYTES,
        )
        # Streams wraps the values of such stores (subscriptions, buffers). A serde of the application would read the
        # wrapping.
        if plan.shape.internal and request.value_serde != "bytes":
            raise Refused(
                (
                    f"no serde can read the values of {plan.shape.name} stores, because Kafka Streams wraps them in "
                    "its own format"
                ),
                hint=f"omit {option.VALUE_SERDE}",
            )
        engine = choose_engine(request.engine, plan.size, len(plan.parts), request.workers)
        results = write_parts(plan.parts, plan.rows, engine, request.workers, watcher)
        if not app.running:
            steady.check()
        # Imported here: at this point the workers have loaded numpy and Arrow anyway, and a refused command never does.
        from kstate_cli.export.columns import schema_of

        manifest = _manifest(app, request, plan, results)
        manifest["columns"] = {field.name: str(field.type) for field in schema_of(plan.shape, key, value)}
        manifest["remarks"] = list(remarks)
        place.publish({part.name: part.attempt for part in results}, manifest)
    return Exported(manifest, engine, out, sum(part.size for part in results), remarks, warned=not app.running)


def _manifest(
    app: Application, request: ExportRequest, plan: ExportPlan, results: tuple[PartResult, ...]
) -> dict[str, Any]:
    """Return the manifest of an export: the store, the serdes, and the files of each task with their rows."""
    by_name = {part.name: part for part in results}
    return {
        "schema_version": SCHEMA,
        "application": app.app_id,
        "store": request.store,
        "kind": plan.shape.name,
        "as_of": app.as_of,
        "key_serde": request.key_serde,
        "value_serde": request.value_serde,
        "rows": sum(part.rows for part in results),
        "tasks": [
            {
                "task": task.reader.task,
                "partition": task.reader.partition,
                "kind": task.reader.kind,
                "rows": sum(by_name[part.name].rows for part in task.parts),
                "position": position_reached(task.store).as_map() if task.store.position_is_readable else None,
                "files": [{"name": part.name, "rows": by_name[part.name].rows} for part in task.parts],
            }
            for task in plan.tasks
        ],
    }


Range = tuple[bytes | None, bytes | None]
"""``lower <= key < below``; None leaves an end open."""


def split(tables: Sequence[Table], size: int) -> list[Range]:
    """Return ranges of keys, ascending, that together cover every key, each with about ``size`` bytes of SSTs.

    A range begins at the first or last key of an SST. So a database with one SST has one range.
    """
    # The MANIFEST has only these keys. No data block is read to divide a database.
    keys = sorted({table.first for table in tables} | {table.last for table in tables})
    weights = [0.0] * len(keys)
    for table in tables:
        first, last = bisect_left(keys, table.first), bisect_right(keys, table.last) - 1
        inside = range(first, max(last, first + 1))
        for number in inside:
            # Nothing shows where the bytes of an SST are. So they are spread evenly over the keys of other SSTs in its
            # range.
            weights[number] += table.size / len(inside)
    bounds: list[bytes] = []
    gathered = 0.0
    for key, weight in zip(keys, weights, strict=True):
        # No range begins at the empty key, because no key comes before it.
        if gathered >= size and key:
            bounds.append(key)
            gathered = 0.0
        gathered += weight
    return list(zip([None, *bounds], [*bounds, None], strict=True))


PART_BYTES: Final = 64 << 20
"""A database with more bytes of SSTs is read in ranges of about this size."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The parts of one task, in the order of its segments and keys."""

    reader: StoreReader
    store: Store
    parts: tuple[PartJob, ...]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """The plan of an export. ``size`` is the bytes of the SSTs, ``rows`` an estimate."""

    shape: Shape
    tasks: tuple[TaskPlan, ...]
    size: int
    rows: int

    @property
    def parts(self) -> tuple[PartJob, ...]:
        """The parts of all tasks."""
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
    """Return the plan of an export: the parts (ranges of keys, one for each file) of a store in each of these tasks.

    ``kind`` is the kind of the store in the specification; None if it has none. ``part_bytes`` is the size of a part;
    None means one part for each database.

    Raises StoreUnreadable for a store that is damaged or of uncertain kind, Refused if its tasks have different kinds.
    """
    databases = Databases()
    others = [store for _, store in stores]
    readers = [open_whole(task, store, others, databases, kind=kind) for task, store in stores]
    # Kinds with the same shape (form of records) fit into one table. Tasks may have the layouts of different releases.
    shapes = {shape_of(reader.kind).name: shape_of(reader.kind) for reader in readers}
    if len(shapes) > 1:
        raise Refused(
            f"{stores[0][1].name} has different kinds in its tasks: {', '.join(map(str, readers))}",
            hint="kstate exports only stores with one kind. To print the stored rows of all tasks, run:",
            hint_details=[command("query", "raw-scan", stores[0][0].app, stores[0][1].name, "-o", "json")],
        )
    plans: list[TaskPlan] = []
    size = 0
    for (_, store), reader in zip(stores, readers, strict=True):
        empty = PartJob("", folder, reader.partition, reader.layout, key_serde, value_serde)
        size += sum(_bytes(database) for database in store.databases if not database.empty)
        parts = [part for segment in filled(reader, store) for part in _parts(segment, empty, part_bytes)]
        # A task without rows has one empty part, so that the folder has a file with its schema.
        jobs = [replace(part, name=_name(reader.task, number)) for number, part in enumerate(parts or [empty])]
        plans.append(TaskPlan(reader, store, tuple(jobs)))
    return ExportPlan(
        next(iter(shapes.values())), tuple(plans), size, sum(part.rows for plan in plans for part in plan.parts)
    )


def _bytes(database: Database) -> int:
    return sum(file.size for name, files in database.live.items() if name != OFFSETS_CF for file in files)


def _name(task: str, number: int) -> str:
    return f"part-{task.replace('/', '.')}-{number:05d}.parquet"


def _parts(segment: Segment, empty: PartJob, part_bytes: int | None) -> Iterator[PartJob]:
    """Yield the parts of one database. ``empty`` has the members that all parts of the task have in common."""
    try:
        with Shadow(segment.path) as shadow:
            families = [name for name in shadow.column_families if name != OFFSETS_CF]
            # All column families with rows count, because an older one has rows that Streams has not converted yet.
            ssts = [table for name in families for table in tables(shadow.sstables(name))]
            rows = sum(map(shadow.estimated_rows, families))
    except UNREADABLE as error:
        raise segment.blame(error) from None
    ranges: list[Range] = [(None, None)]
    if part_bytes is not None:
        ranges = _within(split(ssts, part_bytes), empty.layout)
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
    """Return the ranges that have base rows of a store of this layout."""
    first, end = layout.key.base_rows
    return [
        (lower, below)
        for lower, below in ranges
        if (end is None or lower is None or lower < end) and (first is None or below is None or below > first)
    ]

"""Application directories as `kstate_cli.statedir` describes them, made up: planners look at nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kstate_cli.formats.checkpoint import Checkpoint
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.metadata_files import StoredOptions
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import LiveFile
from kstate_cli.statedir.model import Application, CheckpointFile, Database, Store, Task
from kstate_cli.statedir.problems import Problem

APP = Path("/state/shop")
OLD, NEW = "9.7.3", "10.1.3"
"""What RocksDB has written OPTIONS: that of 4.1, that of 4.2 and 4.3."""
CLOSED, OPEN = 0, 1


def changelog(store: str, partition: int = 0) -> TopicPartition:
    """The partition that a store of a task is restored from."""
    return TopicPartition(f"{APP.name}-{store}-changelog", partition)


def record(
    offset: int | None, store: str = "count", *, status: int | None = CLOSED, position: int = 0
) -> OffsetsRecord:
    """What 4.3 keeps in a database."""
    offsets = {} if offset is None else {changelog(store): offset}
    return OffsetsRecord(offsets, Position.from_map({"events": {0: position}}) if position else None, status)


def database(
    name: str = "count",
    *,
    families: Iterable[str] = ("default",),
    offsets: OffsetsRecord | None = None,
    rows: int = 3,
    start: int | None = None,
    sst_format: int = 5,
    newest: int = 0,
    opened_ms: int = 0,
    version: str = NEW,
    problems: tuple[Problem, ...] = (),
) -> Database:
    """One database; with `offsets` it has the column family of that name. Its path is put right by :func:`store`."""
    names = (*families, *(["offsets"] if offsets is not None else []))
    live: dict[str, tuple[LiveFile, ...]] = {
        family: (LiveFile("000009.sst", 1000),) if rows and family != "offsets" else () for family in names
    }
    return Database(
        path=Path(name),
        segment_start=start,
        column_families=names,
        live=live,
        sst_formats=frozenset({sst_format} if rows else ()),
        rows=rows,
        empty=not rows,
        samples={},
        offsets=offsets,
        options=StoredOptions(version, {}, {}, {}),
        size=1000,
        newest_sst_ns=newest,
        opened_ns=opened_ms,
        problems=problems,
    )


def checkpoint(path: Path, entries: Mapping[TopicPartition, int], *, mtime: int = 0) -> CheckpointFile:
    """A file in the format of `OffsetCheckpoint`."""
    return CheckpointFile(path, Checkpoint(dict(entries)), None, mtime)


def store(
    name: str = "count",
    *databases: Database,
    kind: str = "timestamped-key-value",
    certain: bool = True,
    segmented: bool = False,
    position: int | None = None,
    offset: int | None = None,
    task: str = "0_0",
) -> Store:
    """A store; `position` is that of ``<store>.position``, `offset` that of ``.checkpoint_<store>``."""
    import dataclasses

    folder = APP / task
    path = folder / name if segmented else folder / "rocksdb" / name
    placed = tuple(
        dataclasses.replace(database, path=path / f"{name}.{database.segment_start}" if segmented else path)
        for database in databases
    )
    position_file = None
    if position is not None:
        position_file = checkpoint(folder / f"{name}.position", {TopicPartition("events", 0): position})
    store_file = checkpoint(folder / f".checkpoint_{name}", {changelog(name): offset}) if offset is not None else None
    return Store(
        name, path, segmented, placed, Kind(name=kind, certain=certain, inferred_from="test"), position_file, store_file
    )


def task(
    *stores: Store,
    name: str = "0_0",
    lines: Mapping[TopicPartition, int] | None = None,
    mtime: int = 0,
    leftovers: tuple[str, ...] = (),
    problems: tuple[Problem, ...] = (),
) -> Task:
    """A task with these stores; `lines` and `mtime` are those of its ``.checkpoint``."""
    path = APP / name
    return Task(
        name=name,
        path=path,
        stores=stores,
        checkpoint=None if lines is None else checkpoint(path / ".checkpoint", lines, mtime=mtime),
        store_files={store.name: store.store_file for store in stores if store.store_file is not None},
        position_files={store.name: store.position_file for store in stores if store.position_file is not None},
        leftovers=leftovers,
        problems=problems,
    )


def application(*tasks: Task, path: Path = APP) -> Application:
    """An application that runs nowhere."""
    return Application(path, tasks, running=False, pid=None)

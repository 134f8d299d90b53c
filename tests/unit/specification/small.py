"""Applications as data, without a directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kstate_cli.formats.checkpoint import Checkpoint
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.statedir.model import Application, CheckpointFile, Database, Store, Task

Rows = Sequence[tuple[bytes, bytes]]


def database(
    rows: Rows = (),
    *,
    start: int | None = None,
    offsets: Mapping[str, int] | None = None,
    position: Position | None = None,
    status: int | None = None,
    path: Path = Path("nowhere"),
    opened_ns: int = 1,
) -> Database:
    """``offsets`` (``topic-partition`` -> offset) makes it one of 4.3."""
    record = None
    if offsets is not None:
        record = OffsetsRecord({TopicPartition.parse(tp): o for tp, o in offsets.items()}, position, status)
    return Database(
        path=path,
        segment_start=start,
        column_families=("default", "offsets") if record else ("default",),
        live={},
        sst_formats=frozenset(),
        rows=len(rows),
        empty=not rows,
        samples={"default": tuple(rows)},
        offsets=record,
        options=None,
        size=0,
        newest_sst_ns=0,
        opened_ns=opened_ns,
    )


def checkpoint(lines: Mapping[str, int], mtime_ns: int = 2) -> CheckpointFile:
    entries = {TopicPartition.parse(tp): offset for tp, offset in lines.items()}
    return CheckpointFile(Path(".checkpoint"), Checkpoint(entries), None, mtime_ns)


def store(
    name: str, *databases: Database, built_from: str = "", kind: str = "key-value", certain: bool = True
) -> Store:
    """``built_from`` is a topic in its Position."""
    return Store(
        name=name,
        path=Path(name),
        segmented=any(d.segment_start is not None for d in databases),
        databases=databases or (database([(b"k", b"v")]),),
        kind=Kind(kind, certain, "the test"),
        position_file=checkpoint({f"{built_from}-0": 1}) if built_from else None,
        store_file=None,
    )


def task(name: str, *stores: Store, lines: Mapping[str, int] | None = None, mtime_ns: int = 2) -> Task:
    return Task(
        name=name,
        path=Path(name),
        stores=stores,
        checkpoint=checkpoint(lines, mtime_ns) if lines is not None else None,
        store_files={},
        position_files={},
        leftovers=(),
        problems=(),
    )


def application(*tasks: Task) -> Application:
    return Application(Path("/state/app"), tasks, False, None)

"""State directories of any size, laid out as Kafka Streams 4.3 lays out its own."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord, Position, encode_rows
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.releases import release
from kstate_cli.rocks.create import create_store, data_family, layout_of
from kstate_cli.rocks.files import newest_options
from kstate_cli.rocks.writable import WritableStore

VALUE_BYTES = 1000
SEGMENT_MS = 60_000
RUNS = 3
"""SSTs in each store, as universal compaction leaves a few."""


@dataclass(frozen=True)
class Shape:
    """``tasks`` times ``key_value`` stores and ``windows`` window stores of ``segments`` segments, ``total`` bytes."""

    tasks: int
    key_value: int
    windows: int
    segments: int
    total: int

    @property
    def databases(self) -> int:
        return self.tasks * (self.key_value + self.windows * self.segments)


def make(app: Path, shape: Shape) -> None:
    """Writes an application directory."""
    templates = app.parent / "templates"
    templates.mkdir(parents=True)
    each = shape.total // shape.databases
    for kind in ("timestamped-key-value", "window"):
        _template(templates / kind, kind, each)
    app.mkdir()
    (app / "kafka-streams-process-metadata").write_text('{"processId":"00000000-0000-0000-0000-000000000000"}')
    (app / ".lock").touch()
    for task in range(shape.tasks):
        for number in range(shape.key_value):
            name = f"store-{number}"
            _place(templates / "timestamped-key-value", app / f"0_{task}/rocksdb/{name}", app.name, name, task)
        for number in range(shape.windows):
            name = f"window-{number}"
            for segment in range(shape.segments):
                path = app / f"0_{task}/{name}/{name}.{(segment + 1) * SEGMENT_MS}"
                _place(templates / "window", path, app.name, name, task)
    shutil.rmtree(templates)
    os.sync()


def _template(path: Path, kind: str, size: int) -> None:
    create_store(path, layout_of(kind, release("4.3")))
    random_bytes = random.Random(1).randbytes
    rows = max(RUNS, size // (VALUE_BYTES + 30))
    # The whole window: so many keys, in the first segment's time. No one looks at the bytes of the values.
    suffix = SEGMENT_MS.to_bytes(8, "big") + bytes(4) if kind == "window" else b""
    for run in range(RUNS):
        file = path.with_name("run.sst")
        _run(file, path, ((b"key-%09d" % n + suffix, random_bytes(VALUE_BYTES)) for n in range(run, rows, RUNS)))
        with WritableStore(path) as store:
            store.ingest(data_family(kind), [[file]], move=True)
    for log in path.glob("LOG.old.*"):
        log.unlink()


def _run(file: Path, store: Path, rows: object) -> None:
    from rocksdict import Env, Options, SstFileWriter

    _, families = Options.load_latest(str(store), Env(), True)
    writer = SstFileWriter(families["default"])
    writer.open(str(file))
    for key, value in rows:  # type: ignore[attr-defined]
        writer[key] = value
    writer.finish()


def _place(template: Path, path: Path, app: str, name: str, partition: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(template, path)
    changelog = TopicPartition(f"{app}-{name}-changelog", partition)
    position = Position.from_map({"input": {partition: 1000}})
    with WritableStore(path) as store:
        store.set_offsets(encode_rows(OffsetsRecord({changelog: 1000}, position, STATUS_CLOSED)))


def clone(app: Path, target: Path) -> Path:
    """A copy that shares its SSTs, as every side of a measurement finds it: on disk, its small files cached."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(app, target / app.name, copy_function=_link_or_copy)
    os.sync()
    return target / app.name


def _link_or_copy(source: str, target: str) -> None:
    if source.endswith(".sst"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def databases(app: Path) -> list[Path]:
    return sorted(
        Path(folder) for folder, _, files in os.walk(app) if "CURRENT" in files and newest_options(Path(folder))
    )

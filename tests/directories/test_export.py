"""``kstate export``: the rows of a store as queries answer them, in files that are whole or not there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from kstate_cli.errors import InUse
from kstate_cli.export.files import ExportWatcher
from kstate_cli.export.store_export import ExportRequest, export_store, split
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, VersionedKey, WindowKey
from kstate_cli.formats.values import BufferValue, decode_list
from kstate_cli.query import (
    MultiVersionedKeyQuery,
    OfflineStreams,
    RawScanQuery,
    SerdeError,
    TimestampedRangeQuery,
    WindowRangeQuery,
    in_store,
)
from kstate_cli.rocks.files import Table
from kstate_cli.rows.open import Steady
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.values import ValueAndTimestamp
from kstate_cli.spark.engine import REQUESTED, Engine, EngineChoice
from kstate_cli.statedir.find import find_application
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack

from .big import make_big
from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

FOREVER = (1 << 63) - 1
LOCAL, SPARK = EngineChoice(Engine.local, REQUESTED), EngineChoice(Engine.spark, REQUESTED)


def _read(out: Path) -> list[dict[str, Any]]:
    """Rows in the order of files and rows."""
    rows: list[dict[str, Any]] = []
    for path in sorted(out.glob("part-*.parquet")):
        rows += parquet.read_table(path).to_pylist()
    return rows


def _headers(results: ValueAndTimestamp[bytes]) -> list[dict[str, Any]]:
    return [{"key": header.key, "value": header.value} for header in results.headers]


def _stamp(results: ValueAndTimestamp[bytes]) -> int | None:
    return None if results.timestamp == -1 else results.timestamp


class Answers:
    """What OfflineStreams says of a store, as rows of an export."""

    def __init__(self, streams: OfflineStreams, store: str) -> None:
        self.streams, self.store = streams, store

    def ask(self, query: Any) -> list[tuple[int | None, Any]]:
        answer = self.streams.query(in_store(self.store).with_query(query))
        if answer.global_result is not None:
            return [(None, row) for row in answer.global_result.result]
        return [(p, row) for p in sorted(answer.partition_results) for row in answer.partition_results[p].result]

    def rows(self, kind: str) -> list[dict[str, Any]]:
        if kind in ("timestamped-key-value", "headers-key-value"):
            return [
                {
                    "partition": p,
                    "key": key,
                    "value": results.value,
                    "timestamp": _stamp(results),
                    "headers": _headers(results) if kind.startswith("headers") else None,
                }
                for p, (key, results) in self.ask(TimestampedRangeQuery.with_no_bounds())
            ]
        if kind == "key-value":
            return [
                {"partition": p, "key": key, "value": value, "timestamp": None, "headers": None}
                for p, (key, value) in self.ask(RawScanQuery.scan())
            ]
        if "window" in kind:
            return [self._window(kind, p, *row) for p, row in self.ask(self._all_windows())]
        if "session" in kind:
            return [self._session(kind, p, *row) for p, row in self._sessions()]
        if kind == "versioned":
            return [row for p, key in self._keys(VersionedKey) for row in self._versions(p, key)]
        return [row for p, results in self.ask(RawScanQuery.scan()) for row in _internal(kind, p, *results)]

    def _all_windows(self) -> Any:
        return WindowRangeQuery.with_window_start_range(0, FOREVER)

    def _window(self, kind: str, p: int | None, window: Any, value: Any) -> dict[str, Any]:
        stamped = value if isinstance(value, ValueAndTimestamp) else ValueAndTimestamp(value, -1)
        return {
            "partition": p,
            "key": window.key,
            "value": stamped.value,
            "timestamp": _stamp(stamped),
            "headers": _headers(stamped) if kind.startswith("headers") else None,
            "window_start": window.start,
            "window_end": None,
        }

    def _sessions(self) -> list[tuple[int | None, Any]]:
        keys = dict.fromkeys(row["key"] for row in self.exported)
        return [results for key in keys for results in self.ask(WindowRangeQuery.with_key(key))]

    def _session(self, kind: str, p: int | None, window: Any, value: Any) -> dict[str, Any]:
        stamped = value if isinstance(value, ValueAndTimestamp) else ValueAndTimestamp(value, -1)
        row = {
            "partition": p,
            "key": window.key,
            "value": stamped.value,
            "window_start": window.start,
            "window_end": window.end,
        }
        return {**row, "headers": _headers(stamped)} if kind == "headers-session" else row

    exported: list[dict[str, Any]]

    def _keys(self, of: Any) -> list[tuple[int | None, bytes]]:
        return list(dict.fromkeys((p, of.from_bytes(row).key) for p, (row, _) in self.ask(RawScanQuery.scan())))

    def _versions(self, p: int | None, key: bytes) -> list[dict[str, Any]]:
        return [
            {
                "partition": p,
                "key": key,
                "value": entry.value,
                "valid_from": entry.timestamp,
                "valid_to": entry.valid_to,
                "is_latest": entry.valid_to is None,
                "tombstone": False,
            }
            for q, entry in self.ask(MultiVersionedKeyQuery.with_key(key))
            if q == p
        ]


def _internal(kind: str, p: int | None, row: bytes, value: bytes) -> list[dict[str, Any]]:
    if kind == "list-value":
        waiting = JoinSideKey.from_bytes(row)
        return [
            {
                "partition": p,
                "key": waiting.key,
                "value": entry.value if entry else None,
                "timestamp": waiting.timestamp,
                "side": "left" if waiting.left else "right",
                "seq": number,
            }
            for number, entry in enumerate(decode_list(value))
        ]
    if kind == "foreign-key-subscription":
        combined = CombinedKey.from_bytes(row)
        return [{"partition": p, "key": combined.primary_key, "foreign_key": combined.foreign_key}]
    key, buffered = WindowKey.from_time_first(row), BufferValue.from_bytes(value)
    return [
        {
            "partition": p,
            "key": key.key,
            "value": value,
            "timestamp": buffered.timestamp,
            "buffer_time": key.start,
            "seq": key.seq,
        }
    ]


def _sorted_texts(rows: list[dict[str, Any]], names: Any) -> list[str]:
    return sorted(repr([(name, row[name]) for name in names]) for row in rows)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "golden",
    [
        "3.2.3-kinds-eos",
        "3.9.2-kinds-eos",
        "4.3.1-kinds-eos-upgraded",
        "4.3.1-headers-joins-eos",
        "3.9.2-sparse-named-eos",
    ],
)
def test_rows_are_the_answers_of_queries(tmp_path: Path, golden: str) -> None:
    app = find_application(unpack(golden, tmp_path / "state"))
    before = tree_hash(tmp_path / "state")
    application = read_application(app)
    kinds = {store.name: store.kind.name for task in application.tasks for store in task.stores}
    # A store may look empty in one task and not in another.
    kinds |= {store.name: store.kind.name for task in application.tasks for store in task.stores if store.kind.certain}
    values = 0
    with OfflineStreams(app) as streams:
        for store, kind in sorted(kinds.items()):
            out = tmp_path / "out" / store
            result = export_store(ExportRequest(app, store, out), ExportWatcher())
            exported = _read(out)
            assert result.manifest["rows"] == len(exported)
            answers = Answers(streams, store)
            answers.exported = exported
            if kind == "windowed":
                assert exported == []
                continue
            if kind == "versioned":
                # Queries do not show deletions.
                exported = [row for row in exported if not row["tombstone"]]
            expected = answers.rows(kind)
            names = expected[0].keys() if expected else ()
            assert _sorted_texts(exported, names) == _sorted_texts(expected, names), store
            if "session" not in kind and kind != "versioned":
                # Within a partition they are in the same order, too.
                assert [row["key"] for row in exported] == [row["key"] for row in expected], store
            values += len(expected)
    assert values > (0 if "sparse" in golden else 200)
    assert tree_hash(tmp_path / "state") == before


def test_columns_serdes_and_the_manifest(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    out = tmp_path / "a" / "out"
    result = kstate("export", app, "latest-order", "--out", out, "--key-serde", "string", "-o", "json", "-q")
    manifest = json.loads((out / "_manifest.json").read_text())
    assert {**result.summary, **{name: manifest[name] for name in manifest if name in result.summary}} == {
        **result.summary, "schema_version": manifest["schema_version"]
    }  # fmt: skip
    assert {*manifest} - {*result.summary} == {"tasks"}
    tasks = [row for row in result.rows if row["type"] == "task"]
    files = [(row["task"], row["path"], row["rows"]) for row in result.rows if row["type"] == "file"]
    assert [
        {name: row[name] for name in entry if name != "files"}
        for entry, row in zip(manifest["tasks"], tasks, strict=True)
    ] == [{name: task[name] for name in task if name != "files"} for task in manifest["tasks"]]
    assert files == [
        (task["task"], str(out / file["name"]), file["rows"]) for task in manifest["tasks"] for file in task["files"]
    ]
    assert [row["files"] for row in tasks] == [len(task["files"]) for task in manifest["tasks"]]
    assert result.summary["files"] == len(files)
    assert result.summary["engine"] == "one process"
    assert manifest["application"] == "orders"
    assert manifest["as_of"] == "closed"
    assert [task["partition"] for task in manifest["tasks"]] == [0, 1]
    assert all(task["position"] for task in manifest["tasks"])
    assert list(manifest["columns"]) == ["partition", "key", "value", "timestamp", "headers"]
    assert manifest["columns"]["key"] == "string"
    rows = _read(out)
    assert len(rows) == manifest["rows"] > 0
    assert all(isinstance(row["key"], str) and isinstance(row["value"], bytes) for row in rows)
    assert sorted(os.listdir(out)) == sorted(
        ["_manifest.json", *(file["name"] for task in manifest["tasks"] for file in task["files"])]
    )
    refusal = kstate("export", app, "latest-order", "--out", tmp_path / "b", "--value-serde", "long", status=4)
    assert "cannot read value as long" in refusal.err
    assert not (tmp_path / "b").exists()
    table = kstate("export", app, "customers", "--out", tmp_path / "c")
    assert "global" in table.out
    assert [entry["partition"] for entry in _read(tmp_path / "c")] == [None] * len(_read(tmp_path / "c"))


def test_a_serde_that_shows_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shows_nothing.py").write_text(
        "class It:\n    def serialize(self, value): return value\n    def deserialize(self, data): return object()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = unpack("4.3.1-demo-eos", tmp_path)
    request = ExportRequest(app, "latest-order", tmp_path / "out", value_serde="shows_nothing:It", engine=LOCAL)
    with pytest.raises(
        SerdeError,
        match="latest-order: kstate cannot read value as shows_nothing:It: a object has no JSON representation",
    ):
        export_store(request, ExportWatcher())
    assert not (tmp_path / "out").exists()


def test_full_column_sets() -> None:
    from kstate_cli.export.columns import schema_of
    from kstate_cli.formats.store_kinds import kind_names
    from kstate_cli.query import BYTES
    from kstate_cli.rows.records import shape_of

    for kind in kind_names():
        schema = schema_of(shape_of(kind), BYTES, BYTES)
        assert schema.names[:2] == ["partition", "key"]
        assert "value" in schema.names
        text = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
        assert all(f"`{name}`" in text for name in schema.names), kind


def test_where_an_export_may_go(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    before = tree_hash(app)
    for inside in (app, app / "0_0", app / "new", tmp_path / ".kstate" / "x"):
        assert "is inside" in kstate("export", app, "visits", "--out", inside, status=2).err
    out = tmp_path / "out"
    kstate("export", app, "visits", "--out", out, "-q")
    first = tree_hash(out)
    assert "contains an export" in kstate("export", app, "visits", "--out", out, status=4).err
    assert tree_hash(out) == first
    kstate("export", app, "latest-order", "--out", out, "--overwrite")
    assert json.loads((out / "_manifest.json").read_text())["store"] == "latest-order"
    assert {path.name.split("-")[1] for path in out.glob("part-*")} == {"0_0", "0_1"}
    (out / "mine.txt").write_text("x")
    refusal = kstate("export", app, "visits", "--out", out, "--overwrite", status=4)
    assert "mine.txt" in refusal.err
    assert "no task in" in kstate("export", app, "nothing", "--out", tmp_path / "x", status=2).err
    assert not (tmp_path / "x").exists()
    assert tree_hash(app) == before


def test_a_damaged_store_leaves_nothing(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    sst = max((app / "0_1/rocksdb/latest-order").glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(sst.read_bytes())
    data[10] ^= 1
    sst.write_bytes(data)
    before = tree_hash(app)
    failed = kstate("export", app, "latest-order", "--out", tmp_path / "out", status=6)
    assert sst.name in failed.err or "latest-order" in failed.err
    assert not (tmp_path / "out").exists()
    assert tree_hash(app) == before


def test_a_missing_segment_file_is_not_passed_over(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    segment = min((app / "0_0" / "visits").iterdir())
    for path in [*segment.glob("MANIFEST-*"), segment / "CURRENT"]:
        path.unlink()
    assert "visits" in kstate("export", app, "visits", "--out", tmp_path / "out", status=6).err
    assert not (tmp_path / "out").exists()


def test_running_application_needs_the_option(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    hold = f"import fcntl,time;f=open({str(app / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            out = tmp_path / "out"
            assert "--last-flush" in kstate("export", app, "visits", "--out", out, status=5).err
            assert "--last-flush" in kstate("diff", app, app, status=5).err
            result = kstate("export", app, "visits", "--out", out, "--last-flush", "-o", "json")
            assert result.summary["as_of"] == "last-flush"
            summary = kstate("diff", app, app, "--last-flush", "-o", "json").summary
            assert (summary["as_of_a"], summary["as_of_b"]) == ("last-flush", "last-flush")
        finally:
            process.kill()


def test_refuses_a_serde_for_values_of_kafka_streams(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    out = tmp_path / "out"
    refusal = kstate("export", app, "grace-join-Buffer", "--out", out, "--value-serde", "string", status=4)
    assert "no serde can read the values" in refusal.err
    kstate("export", app, "grace-join-Buffer", "--out", out, "--key-serde", "string")
    assert all(isinstance(row["key"], str) for row in _read(out))
    assert "is not a serde" in kstate("export", app, "count", "--out", out, "--key-serde", "nope", status=2).err


# --- many rows --------------------------------------------------------------------------------------------------------

ROWS = 150_000


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_big(tmp_path_factory.mktemp("big") / "bigapp", tasks=2, rows=ROWS)


def _bytes_of(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_engines_write_the_same_files(tmp_path: Path, big: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = find_application(big)
    monkeypatch.setattr("kstate_cli.export.store_export.PART_BYTES", 4 << 20)
    outs = {}
    for name, engine, workers in (
        ("one process", LOCAL, 1),
        ("processes", LOCAL, 2),
        ("spark", SPARK, 2),
    ):
        out = tmp_path / name.replace(" ", "-")
        exported = export_store(ExportRequest(app, "count", out, engine=engine, workers=workers), ExportWatcher())
        assert exported.engine == name
        outs[name] = _bytes_of(out)
    assert outs["one process"] == outs["processes"] == outs["spark"]
    out = tmp_path / "spark"
    rows = _read(out)
    assert len(rows) == 2 * ROWS
    assert [row["key"] for row in rows] == 2 * [b"key-%010d" % number for number in range(ROWS)]
    assert [row["timestamp"] for row in rows] == 2 * list(range(ROWS))
    _read_with_spark(out, len(rows))


def _read_with_spark(out: Path, rows: int) -> None:
    from pyspark.sql import SparkSession

    from kstate_cli.spark.context import SparkSettings, spark_context

    with spark_context(SparkSettings(master="local[1]"), name="test") as context:
        frame = SparkSession(context).read.parquet(str(out))
        assert frame.columns == ["partition", "key", "value", "timestamp", "headers"]
        assert frame.count() == rows
        first = frame.orderBy("partition", "key").first()
        assert first is not None
        assert bytes(first["key"]) == b"key-0000000000"
        assert first["timestamp"] == 0


def _start_export(big: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    """An export that has written some of a file."""
    command = [sys.executable, "-m", "kstate_cli", "export", str(big), "count", "--out", str(out), "-q", *more]
    temporary = out.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 300
    while not any(path.stat().st_size for path in out.glob("_incomplete/part-*")):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.005)
    return process


@pytest.mark.parametrize("workers", ["1", "2"])
def test_interrupted_by_a_signal_nothing_is_left(tmp_path: Path, big: Path, workers: str) -> None:
    out = tmp_path / "out"
    with _start_export(big, out, "--workers", workers) as process:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
    assert b"Traceback" not in err
    assert process.returncode == 128 + signal.SIGTERM, err
    assert not out.exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_killed_it_is_taken_up_by_the_same_export_only(tmp_path: Path, big: Path) -> None:
    out = tmp_path / "out"
    with _start_export(big, out) as process:
        process.kill()
        process.communicate(timeout=300)
    assert sorted(os.listdir(out)) == ["_incomplete"]
    other = unpack("4.3.1-demo-eos", tmp_path)
    refusal = kstate("export", other, "visits", "--out", out, status=4)
    assert "an interrupted export of a different store" in refusal.err
    kstate("export", big, "count", "--out", out, "-q")
    assert sorted(os.listdir(out)) == ["_manifest.json", "part-0_0-00000.parquet", "part-0_1-00000.parquet"]
    assert len(_read(out)) == 2 * ROWS


def test_refuses_the_folder_of_another_running_export(tmp_path: Path, big: Path) -> None:
    out = tmp_path / "out"
    with _start_export(big, out) as process:
        assert "another export" in kstate("export", big, "count", "--out", out, status=5).err
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=300)


def test_a_database_that_changes_meanwhile_is_noticed(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    application = read_application(app)
    steady = Steady.of(application, [store for task in application.tasks for store in task.stores])
    steady.check()
    os.utime(app / "0_0/rocksdb/latest-order/CURRENT")
    with pytest.raises(InUse, match="latest-order changed while kstate read it"):
        steady.check()


def test_rows_that_cannot_be_read_on_end_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = find_application(unpack("4.3.1-demo-eos", tmp_path))
    pieces = Segment.pieces

    def fails(self: Segment, *bounds: Any) -> Any:
        yield next(pieces(self, *bounds))
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Segment, "pieces", fails)
    with pytest.raises(Exception, match=r"latest-order.*Input/output error"):
        export_store(ExportRequest(app, "latest-order", tmp_path / "out"), ExportWatcher())
    assert not (tmp_path / "out").exists()


def test_ranges_are_even_and_hold_every_key() -> None:
    tables = [
        Table(f"{number:06d}.sst", 10, 0, 0, b"%03d" % number + bytes(8), b"%03d" % (number + 9) + bytes(8))
        for number in range(0, 100, 10)
    ]
    ranges = split(tables, 25)
    assert ranges[0][0] is None
    assert ranges[-1][1] is None
    assert all(entry[1] == other[0] for entry, other in pairwise(ranges))
    assert 3 <= len(ranges) <= 5
    assert split([], 25) == [(None, None)]
    assert split(tables, 10_000) == [(None, None)]


def test_refuses_a_store_that_is_a_link_in_a_task(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    hidden = app / "0_1" / "rocksdb" / "latest-order"
    hidden.rename(tmp_path / "elsewhere")
    hidden.symlink_to(tmp_path / "elsewhere")
    refusal = kstate("export", app, "latest-order", "--out", tmp_path / "out", status=4)
    assert "0_1/rocksdb/latest-order: the entry is a symbolic link, so kstate may not see all of store" in refusal.err
    assert not (tmp_path / "out").exists()


def test_a_task_that_is_left_over_is_exported_only_when_it_is_named(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    shutil.copytree(app / "0_1", app / "99_1")
    texts = ("export", app, "latest-order", "--out", tmp_path / "out", "-o", "json")
    assert "several sub-topologies: 0_0, 0_1, 99_1" in kstate(*texts, status=4).err
    spec = tmp_path / "kstate.toml"
    spec.write_text("format = 1\n[stores.latest-order]\nsubtopology = 0\n")
    rows = kstate(*texts, "--spec", spec).rows
    assert [row["task"] for row in rows if row["type"] == "task"] == ["0_0", "0_1"]

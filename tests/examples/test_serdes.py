"""The examples of serdes and of a query of one's own, run: on stores with records as Confluent's serializers write them."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kstate_cli.query import FailureReason, OfflineStreams, PositionBound, in_store
from kstate_cli.query.streams import KEY_VALUE_KINDS
from tests.command_result import CommandResult

from ..directories.support import kstate
from ..directories.test_query_cmd import _make_store
from ..golden import unpack

pytestmark = pytest.mark.rotating(3)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCHEMA = EXAMPLES / "serdes" / "order.avsc"
HEADER = b"\0" + (42).to_bytes(4, "big")


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES / "serdes"), os.environ.get("PYTHONPATH", "")]))


def _avro(customer: str, cents: int, note: bytes | None) -> bytes:
    out = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(SCHEMA.read_text()))
    fastavro.schemaless_writer(out, schema, {"customer": customer, "cents": cents, "at": 1714564800123, "note": note})
    return HEADER + out.getvalue()


def _values(result: CommandResult) -> list[Any]:
    return [row["value"] for row in result.rows]


def test_avro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = _make_store(tmp_path, {b"1": _avro("alice", 1 << 60, b"\xff"), b"2": _avro("bob", -1, None)})
    texts = ("query", "range", app, "made", "--value-serde", "avro_serde:value", "-o", "json")
    assert "AVRO_SCHEMA" in kstate(*texts, status=2).err
    monkeypatch.setenv("AVRO_SCHEMA", str(SCHEMA))
    at = "2024-05-01T12:00:00.123000+00:00"
    orders = [
        {"customer": "alice", "cents": 1 << 60, "at": at, "note": {"base64": "/w=="}},
        {"customer": "bob", "cents": -1, "at": at, "note": None},
    ]
    assert _values(kstate(*texts)) == orders
    monkeypatch.setenv("AVRO_SCHEMA_ID", "42")
    assert _values(kstate(*texts)) == orders
    monkeypatch.setenv("AVRO_SCHEMA_ID", "43")
    assert "written with schema 42, not with 43" in kstate(*texts, status=4).err


def test_avro_keys_and_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AVRO_SCHEMA", str(SCHEMA))
    monkeypatch.setenv("AVRO_SCHEMA_ID", "42")
    app = _make_store(tmp_path, {_avro("alice", 5, None): b"v"})
    text = json.dumps({"customer": "alice", "cents": 5, "at": 1714564800123, "note": None})
    result = kstate("query", "key", app, "made", text, "--key-serde", "avro_serde:value", "-o", "csv")
    assert result.out.splitlines()[1].endswith(",v")
    for number, bad in enumerate((b"", b"\1abcdef", HEADER, HEADER + b"\x0aali", _avro("a", 1, None) + b"x")):
        broken = _make_store(tmp_path / str(number), {b"k": bad})
        result = kstate("query", "range", broken, "made", "--value-serde", "avro_serde:value", status=4)
        assert "0_0/made: kstate cannot read the value of key b'k' as avro_serde:value" in result.err


@pytest.fixture
def descriptors(tmp_path: Path) -> Path:
    """What protoc --descriptor_set_out makes of shop.proto."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate((("customer", field.TYPE_STRING), ("cents", field.TYPE_INT64)), start=1):
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
        assert f"{name} = {number};" in (EXAMPLES / "serdes" / "shop.proto").read_text()
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def test_protobuf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, descriptors: Path) -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorSet.FromString(descriptors.read_bytes()).file[0])
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    plain = order(customer="alice", cents=1 << 60).SerializeToString()
    monkeypatch.setenv("PROTOBUF_DESCRIPTORS", str(descriptors))
    monkeypatch.setenv("PROTOBUF_MESSAGE", "shop.Order")
    # Message indexes: 00 is [0]; 04 02 00 is [1, 0].
    app = _make_store(
        tmp_path, {b"1": HEADER + b"\0" + plain, b"2": HEADER + b"\x04\x02\x00" + plain, b"3": b"\xff" * 9}
    )
    texts = ("query", "range", app, "made", "--value-serde", "protobuf_serde:value", "-o", "json")
    alice = {"customer": "alice", "cents": str(1 << 60)}
    assert _values(kstate(*texts, "--to", "2")) == [alice, alice]
    assert "cannot read the value of key b'3' as protobuf_serde:value" in kstate(*texts, status=4).err
    monkeypatch.setenv("PROTOBUF_PLAIN", "1")
    keys = _make_store(tmp_path / "keys", {plain: b"v"})
    result = kstate(
        "query", "key", keys, "made", json.dumps(alice), "--key-serde", "protobuf_serde:value", "-o", "json"
    )
    assert [row["key"] for row in result.rows] == [alice]
    assert "DecodeError" in kstate(*texts, status=4).err


# --- a query of one's own ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def counting() -> ModuleType:
    """examples/count_query.py."""
    spec = importlib.util.spec_from_file_location("count_query", EXAMPLES / "count_query.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["count_query"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_own_query(tmp_path: Path, counting: ModuleType) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    with OfflineStreams(app, handlers=counting.handlers()) as streams:
        request = in_store("latest-order").with_query(counting.CountQuery())
        partition_results = streams.query(request).partition_results
        partitions = {row["partition"] for row in kstate("query", "range", app, "latest-order", "-o", "json").rows}
        assert {partition for partition, entry in partition_results.items() if entry.result.rows} == partitions
        rows = kstate("query", "range", app, "latest-order", "-o", "json").rows
        assert sum(entry.result.rows for entry in partition_results.values()) == len(rows)
        nothing = streams.query(in_store("latest-order").with_query(counting.CountQuery(b"\xff"))).partition_results
        assert {entry.result.rows for entry in nothing.values()} == {0}
        # What the library does for every query: global stores, partitions, bounds.
        assert streams.query(in_store("customers").with_query(counting.CountQuery())).global_result.result.rows > 0
        bound = PositionBound.at(next(iter(partition_results.values())).position.with_component("elsewhere", 0, 1))
        behind = streams.query(request.with_position_bound(bound).with_partitions([0, 9])).partition_results
        assert behind[0].failure_reason is FailureReason.NOT_UP_TO_BOUND
        assert behind[9].failure_reason is FailureReason.NOT_PRESENT
        # A kind without a handler.
        for result in streams.query(in_store("visits").with_query(counting.CountQuery())).partition_results.values():
            assert result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    with OfflineStreams(app) as streams:
        assert not streams.query(request).partition_results[0].is_success
    assert "window" not in KEY_VALUE_KINDS


def test_own_query_as_a_script(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    for store, status, text in (("latest-order", 0, " rows, "), ("visits", 3, "UNKNOWN_QUERY_TYPE")):
        command = [sys.executable, str(EXAMPLES / "count_query.py"), str(app), store]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(EXAMPLES.parent), os.environ["PYTHONPATH"]])}
        process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (process.returncode, process.stderr) == (status, "")
        assert process.stdout.count(text) == 2

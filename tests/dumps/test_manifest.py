"""``_manifest.json``: both shapes, and everything that is none."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.manifest import Manifest, ManifestFile, ManifestPartition, Reading, inside, parse, render
from kstate_cli.formats.topic_partition import TopicPartition

DIGEST = "0" * 63 + "a"
CANONICAL: dict[str, Any] = {
    "format": 1,
    "isolation": "read_committed",
    "partitions": [
        {"topic": "t", "partition": 0, "log_start": 3, "log_end": 20, "first": 4, "last": 18, "rows": 9},
        {"topic": "t", "partition": 1, "topic_id": "x", "log_start": 0, "log_end": 0, "first": None, "last": None, "rows": 0},
    ],
    "files": [{"path": "t/p.parquet", "topic": "t", "partition": 0, "size": 7, "sha256": DIGEST}],
    "committed": {"s": {"0": 12}},
}  # fmt: skip
MANIFEST = Manifest(
    "read_committed",
    (ManifestPartition("t", 0, 3, 20, 4, 18, 9), ManifestPartition("t", 1, 0, 0, None, None, 0, "x")),
    (ManifestFile("t/p.parquet", 7, DIGEST, "t", 0),),
    {TopicPartition("s", 0): 12},
)


def parse_bytes(content: Any) -> Manifest:
    return parse(json.dumps(content).encode())


def with_reading(**other: Any) -> dict[str, Any]:
    content = copy.deepcopy(CANONICAL)
    content["format"] = 2
    members = {"started_ms": 5, "ended_ms": 9, "cleanup_policy": "compact", "delete_retention_ms": 0, "leader_epoch": 3,
            "last_record_sha256": DIGEST, "retention_ms": 7, "min_compaction_lag_ms": 8}  # fmt: skip
    content["partitions"][0]["reading"] = {name: v for name, v in {**members, **other}.items() if v is not ...}
    return content


def test_when_it_was_read() -> None:
    content = with_reading()
    assert parse_bytes(content).partitions[0].reading == Reading(5, 9, "compact", 0, 3, DIGEST, 7, 8)
    assert json.loads(render(parse_bytes(content))) == content
    bare = with_reading(
        **dict.fromkeys(("cleanup_policy", "delete_retention_ms", "leader_epoch", "last_record_sha256"), ...),
        **dict.fromkeys(("retention_ms", "min_compaction_lag_ms"), ...),
    )
    assert parse_bytes(bare).partitions[0].reading == Reading(5, 9)
    assert json.loads(render(parse_bytes(bare))) == bare


@pytest.mark.parametrize(
    ("name", "value"),
    [("started_ms", ...), ("ended_ms", ...), ("started_ms", 10), ("ended_ms", 1 << 62), ("started_ms", True),
     ("cleanup_policy", 7), ("delete_retention_ms", -1), ("leader_epoch", "3"), ("leader_epoch", 1 << 31),
     ("retention_ms", -1), ("min_compaction_lag_ms", True), ("last_record_sha256", "xyz"), ("last_record_sha256", 7)],
)  # fmt: skip
def test_a_reading_that_is_none(name: str, value: Any) -> None:
    with pytest.raises(DumpError, match="kstate cannot read the manifest"):
        parse_bytes(with_reading(**{name: value}))


def test_canonical() -> None:
    assert parse_bytes(CANONICAL) == MANIFEST
    assert json.loads(render(MANIFEST)) == CANONICAL
    assert parse(render(MANIFEST)) == MANIFEST


def test_nested() -> None:
    first, second = copy.deepcopy(CANONICAL["partitions"])
    file = {"path": "t/p.parquet", "size": 7, "digest": f"sha256:{DIGEST}"}
    facts = {str(member.pop("partition")): member for member in (first, second)}
    facts["0"]["files"] = [file]
    nested = {"format": 1, "isolation": "read_committed", "partitions": {"t": facts}, "committed": {"s": {"0": 12}}}
    assert parse_bytes(nested) == MANIFEST


def test_sparse() -> None:
    sparse = {"format": 1, "isolation": "read_uncommitted", "partitions": [{"topic": "t", "partition": 0, "rows": 0}],
              "files": [{"path": "x", "size": 1}]}  # fmt: skip
    results = parse_bytes(sparse)
    assert results.partitions == (ManifestPartition("t", 0, None, None, None, None, 0),)
    assert parse(render(results)) == results


BROKEN: list[tuple[str, Any]] = [
    ("format", 3), ("format", True), ("format", "1"), ("format", None), ("isolation", "none"), ("isolation", None),
    ("partitions", None), ("partitions", 3), ("partitions", {"t": []}), ("partitions", {"t": {"01": {"rows": 0}}}),
    ("partitions/0/topic", "../x"), ("partitions/0/topic", None), ("partitions/0/partition", -1),
    ("partitions/0/partition", 1 << 31), ("partitions/0/rows", -1), ("partitions/0/rows", 1.5), ("partitions/0/rows", 0),
    ("partitions/0/rows", None), ("partitions/0/first", None), ("partitions/0/first", 19), ("partitions/0/last", 20),
    ("partitions/0/log_start", 21), ("partitions/0/log_start", 19), ("partitions/0/log_end", 1 << 63),
    ("partitions/0/topic_id", 5), ("partitions/1/partition", 0), ("files", {}), ("files/0/path", "../p.parquet"),
    ("files/0/path", "/etc/passwd"), ("files/0/path", "a/../../p"), ("files/0/path", "a//b"), ("files/0/path", ""),
    ("files/0/path", "./p"), ("files/0/path", "a\\..\\b"), ("files/0/path", 3), ("files/0/size", -1), ("files/0/size", "7"),
    ("files/0/sha256", "abc"), ("files/0/sha256", 7), ("files/0/topic", "/"), ("files/0/partition", "0"),
    ("committed", []), ("committed/s", 3), ("committed/s", {"x": 1}), ("committed/s", {"0": -1}), ("committed/s", {"00": 1}),
    ("committed", {"../s": {"0": 1}}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), BROKEN)
def test_broken(path: str, value: Any) -> None:
    content = copy.deepcopy(CANONICAL)
    *parents, last = path.split("/")
    target: Any = content
    for part in parents:
        target = target[int(part) if isinstance(target, list) else part]
    target[int(last) if isinstance(target, list) else last] = value
    with pytest.raises(DumpError, match="kstate cannot read the manifest") as caught:
        parse_bytes(content)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"format": 1, "format": 1}',
        b"[" * 100_000,
        b'{"format": ' + b"9" * 6000 + b"}",
        b"NaN",
    ],
)
def test_not_even_json(data: bytes) -> None:
    with pytest.raises(DumpError, match="kstate cannot read the manifest"):
        parse(data)


def test_listed_twice() -> None:
    for name in ("files", "partitions"):
        content = copy.deepcopy(CANONICAL)
        content[name].append(content[name][0])
        with pytest.raises(DumpError, match="twice"):
            parse_bytes(content)


def test_inside() -> None:
    assert inside("a") and inside("a/b c/..d")
    assert not any(inside(path) for path in ("", "/", "/a", "a/", "..", "a/..", "a/./b", "a//b", "a\0b", "a\\b"))

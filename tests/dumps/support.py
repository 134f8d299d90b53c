"""Rows of dumps, and reading a whole dump back."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import fs

from kstate_cli.dump_reader.footers import OutOfOrder, Passage
from kstate_cli.dump_reader.location import open_location
from kstate_cli.dump_reader.model import Dump, Slice
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.reader import iter_slice, read_slice
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.topic_partition import TopicPartition
from tests.interop.to_parquet import SCHEMA, Layout, Log, write_dump

A, B = "app-a-changelog", "app-b-changelog"
ALL = ("key", "value", "timestamp", "offset")
OTHER: dict[str, pa.Array] = {
    "key": pa.array([b"another"], pa.binary()),
    "value": pa.array([b"another"], pa.binary()),
    "timestamp": pa.array([86_400_000_000], pa.timestamp("us", tz="UTC")),
    "headers": pa.array([[{"key": "h", "value": b"another"}]], SCHEMA.field("headers").type),
}
"""Everything that makes a record, each with another value than `rows` has anywhere."""


def all_tables(
    part: Slice,
    columns: Sequence[str],
    max_rows: int,
    max_bytes: int | None = None,
    passage: Passage | None = None,
) -> list[pa.Table]:
    """As a task reads: from the beginning again, once rows turn out to be out of order."""
    passage = passage or Passage()
    again = functools.partial(iter_slice, part, columns, fs.LocalFileSystem(), max_rows, max_bytes, passage)
    try:
        return list(again())
    except OutOfOrder:
        assert not passage.ordered
        return list(again())


@functools.cache  # tables never change, and random bytes of each row take longer than the tests that read them
def rows(
    topic: str = A, partition: int = 0, count: int = 100, *, start: int = 0, step: int = 1, seed: int = 1
) -> pa.Table:
    """`count` rows with offsets `start`, `start` + `step`, …; some keys and values are null, some timestamps negative."""
    random = np.random.default_rng([seed, partition, len(topic)])
    numbers = range(count)
    return pa.table({
        "key": pa.array([None if n % 50 == 49 else b"k%d" % (n % 17) for n in numbers], pa.binary()),
        "value": pa.array([None if n % 7 == 6 else random.bytes(n % 23) for n in numbers], pa.binary()),
        "topic": pa.array([topic] * count, pa.string()),
        "partition": pa.array([partition] * count, pa.int32()),
        "offset": pa.array([start + step * n for n in numbers], pa.int64()),
        "timestamp": pa.array([(n - 5) * 1_000 for n in numbers], pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * count, pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"%d" % n}] * (n % 3) for n in numbers], SCHEMA.field("headers").type),
    }, schema=SCHEMA)  # fmt: skip


@functools.cache
def several() -> pa.Table:
    """Two topics with two partitions each, one compacted."""
    return pa.concat_tables([rows(A, 0, 200), rows(A, 1, 150, start=40), rows(B, 0, 90, step=3), rows(B, 1, 1)])


def write(out: Path, table: pa.Table, **layout: Any) -> Path:
    """Write a dump whose log ends one offset after its rows (a transaction marker)."""
    logs: dict[TopicPartition, Log] = {}
    for row in table.select(["topic", "partition", "offset"]).to_pylist():
        key = TopicPartition(row["topic"], row["partition"])
        before = logs.get(key, Log(row["offset"], 0))
        logs[key] = Log(min(before.start, row["offset"]), max(before.end, row["offset"] + 2))
    write_dump(out, table, logs, {}, Layout(**layout))
    return out


def open_dump(path: Path | str) -> Dump:
    return read_dump(str(path), complete=True, committed_only=False)


def content(dump: Dump, max_bytes: int = 1 << 30, columns: tuple[str, ...] = ALL) -> Mapping[TopicPartition, list[Any]]:
    """Every row, by topic-partition, as its slices give it."""
    filesystem, _ = open_location(dump.uri)
    results: dict[TopicPartition, list[Any]] = {}
    for key, partition in dump.partitions.items():
        cut, again = slices(partition, after=None, until=None, max_bytes=max_bytes)
        assert not again
        assert [part.index for part in cut] == list(range(len(cut)))
        for part in cut:
            table = read_slice(part, columns, filesystem)
            assert table.column_names == list(columns)
            results.setdefault(key, []).extend(tuple(row.values()) for row in table.to_pylist())
    return results


def expected_content(table: pa.Table, columns: tuple[str, ...] = ALL) -> Mapping[TopicPartition, list[Any]]:
    """What :func:`content` should find for these rows."""
    results: dict[TopicPartition, list[Any]] = {}
    sorted_rows = table.sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    milliseconds = [value.value // 1000 for value in sorted_rows.column("timestamp")]
    for row, timestamp in zip(sorted_rows.to_pylist(), milliseconds, strict=True):
        key = TopicPartition(row["topic"], row["partition"])
        results.setdefault(key, []).append(tuple({**row, "timestamp": timestamp}[name] for name in columns))
    return results

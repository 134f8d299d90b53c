"""Changelog dumps of the harness (JSON lines) to Parquet with the schema of Spark's Kafka source, in any layout.

``python -m tests.interop.to_parquet OUT_DIR CHANGELOG.jsonl… [--rows-per-file N] [--shuffle SEED] …``

Unless asked for otherwise: a folder per topic, files per partition, rows by offset, and a manifest in which the whole
log of each source topic is committed (the harness's runs consume everything).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kstate_cli.dump_reader.manifest import NAME, Manifest, ManifestFile, ManifestPartition, render
from kstate_cli.formats.topic_partition import TopicPartition

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema([
    ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")), ("timestampType", pa.int32()), ("headers", HEADERS),
])  # fmt: skip
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
_BY_OFFSET = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


@dataclass(frozen=True)
class Layout:
    """How a dump is written."""

    rows_per_file: int = 1_000_000
    rows_per_group: int | None = None
    shuffle: int | None = None
    """Seed: the rows of a topic (with `hive` of a partition, with `together` all) go to its files in any order."""
    duplicates: int = 0
    """So many rows of each group of files are in it twice, as after a retried write."""
    hive: bool = False
    """``topic=…/partition=…`` folders, without these columns in the files."""
    together: bool = False
    """Several topics in one file."""
    manifest: bool = True
    headers: bool = True
    int96: bool = False
    """Timestamps as Spark writes them by default."""


@dataclass(frozen=True)
class Log:
    """What the broker said of a partition: its first offset, and its end."""

    start: int
    end: int


def convert(out: Path, changelogs: Iterable[Path], layout: Layout = Layout()) -> None:
    """Write the changelog dumps (named ``<topic>.jsonl``) as one Parquet dump to the folder `out`."""
    tables, logs = [], {}
    for path in changelogs:
        topic = path.name.removesuffix(".jsonl")
        tables.append(pa.Table.from_pylist(list(_rows(path, topic)), schema=SCHEMA))
        summary = json.loads(path.read_text(encoding="utf-8").rstrip().rpartition("\n")[2])
        for partition, facts in summary["partitions"].items():
            logs[TopicPartition(topic, int(partition))] = Log(facts["begin"], facts["end"])
    committed = {key: log.end for key, log in logs.items() if not key.topic.endswith("-changelog")}
    write_dump(out, pa.concat_tables([SCHEMA.empty_table(), *tables]), logs, committed, layout)


def write_dump(
    out: Path, rows: pa.Table, logs: Mapping[TopicPartition, Log], committed: Mapping[TopicPartition, int], layout: Layout
) -> None:  # fmt: skip
    """Write rows of SCHEMA, of any topics, as a dump."""
    random = np.random.default_rng(layout.shuffle or 0)
    content, files = [], []
    for folder, group in _groups(rows.sort_by(_BY_OFFSET), layout):
        if layout.duplicates:
            again = random.choice(len(group), min(layout.duplicates, len(group)), replace=False)
            group = pa.concat_tables([group, group.take(np.sort(again))])
        if layout.shuffle is not None:
            group = group.take(random.permutation(len(group)))
        content.append(group)
        for number, begin in enumerate(range(0, len(group), layout.rows_per_file)):
            path = out / folder / f"part-{number:05d}.parquet"
            files.append(_write_file(out, path, group.slice(begin, layout.rows_per_file), layout))
    if layout.manifest:
        partitions = _partitions(pa.concat_tables([rows.schema.empty_table(), *content]), logs)
        manifest = Manifest("read_committed", tuple(partitions), tuple(files), committed)
        out.mkdir(parents=True, exist_ok=True)
        (out / NAME).write_bytes(render(manifest))


def _rows(path: Path, topic: str) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if "summary" in record:
                continue
            yield {"key": _raw(record["key"]), "value": _raw(record["value"]), "topic": topic,
                   "partition": record["partition"], "offset": record["offset"], "timestamp": record["timestamp"] * 1000,
                   "timestampType": TIMESTAMP_TYPES.get(record["timestampType"], -1),
                   "headers": [{"key": key, "value": _raw(value)} for key, value in record["headers"]]}  # fmt: skip


def _raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _groups(rows: pa.Table, layout: Layout) -> Iterator[tuple[str, pa.Table]]:
    if layout.together:
        yield "", rows
        return
    for topic in sorted(set(rows.column("topic").to_pylist())):
        of_topic = rows.filter(pc.equal(rows.column("topic"), topic))
        if layout.shuffle is not None and not layout.hive:
            yield topic, of_topic
            continue
        for partition in sorted(set(of_topic.column("partition").to_pylist())):
            folder = f"topic={topic}/partition={partition}" if layout.hive else f"{topic}/{partition}"
            yield folder, of_topic.filter(pc.equal(of_topic.column("partition"), partition))


def _write_file(out: Path, path: Path, rows: pa.Table, layout: Layout) -> ManifestFile:
    topics, partitions = set(rows.column("topic").to_pylist()), set(rows.column("partition").to_pylist())
    left_out = [*(["topic", "partition"] if layout.hive else []), *([] if layout.headers else ["headers"])]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.drop_columns(left_out), path, row_group_size=layout.rows_per_group,
                   use_deprecated_int96_timestamps=layout.int96)  # fmt: skip
    return ManifestFile(
        path.relative_to(out).as_posix(),
        path.stat().st_size,
        hashlib.sha256(path.read_bytes()).hexdigest(),
        topics.pop() if len(topics) == 1 else None,
        partitions.pop() if len(partitions) == 1 else None,
    )


def _partitions(rows: pa.Table, logs: Mapping[TopicPartition, Log]) -> Iterator[ManifestPartition]:
    aggregate = rows.group_by(["topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count")]
    )
    facts = {TopicPartition(row["topic"], row["partition"]): row for row in aggregate.to_pylist()}
    for key in sorted(facts.keys() | logs.keys()):
        row, log = facts.get(key, {}), logs.get(key)
        yield ManifestPartition(
            key.topic, key.partition, log.start if log else None, log.end if log else None,
            row.get("offset_min"), row.get("offset_max"), row.get("offset_count", 0),
            start=log.start if log else None,
        )  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("changelogs", type=Path, nargs="+")
    parser.add_argument("--rows-per-file", type=int, default=1_000_000)
    parser.add_argument("--rows-per-group", type=int)
    parser.add_argument("--shuffle", type=int, metavar="SEED")
    parser.add_argument("--duplicates", type=int, default=0, metavar="ROWS")
    for flag in ("hive", "together", "int96"):
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in ("manifest", "headers"):
        parser.add_argument(f"--no-{flag}", dest=flag, action="store_false")
    options = vars(parser.parse_args(arguments))
    convert(options.pop("out"), options.pop("changelogs"), Layout(**options))


if __name__ == "__main__":
    main(sys.argv[1:])

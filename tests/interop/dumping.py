"""What the tests of ``kstate dump`` share: calling it, and what a topic has."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kstate_cli.dump_reader import growing
from kstate_cli.dump_reader.model import Grown
from kstate_cli.formats.topic_partition import TopicPartition
from tests.command_result import CommandResult

from .harness import Harness
from .support import kstate

Record = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def dump(harness: Harness, out: Path, *options: object, status: int = 0, engine: str = "local") -> CommandResult:
    """``kstate dump``, without Spark unless that is asked for."""
    result = kstate(
        "dump", "--bootstrap-server", harness.bootstrap, "--out", out, "--engine", engine, "-o", "json", *options
    )
    assert result.status == status, result.report
    return result


def newest(out: Path) -> Grown:
    """The manifest that counts."""
    path = max(out.glob("_manifest-*.json"))
    return growing.parse(path.read_bytes(), path.name, str(path))


def dumped(out: Path) -> dict[TopicPartition, list[Record]]:
    """Every record of the newest full of each partition, in the order of its files and rows."""
    records: dict[TopicPartition, list[Record]] = {}
    for key, full in newest(out).newest().items():
        rows: list[Record] = []
        for file in full.files:
            for row in pq.ParquetFile(out / file.path).read().to_pylist():
                assert (row["topic"], row["partition"]) == (key.topic, key.partition)
                headers = [(header["key"], header["value"]) for header in row["headers"] or ()]
                rows.append(
                    (row["offset"], row["key"], row["value"], int(row["timestamp"].timestamp() * 1000), headers)
                )
        records[key] = rows
    return records


def on_broker(harness: Harness, topics: list[str], folder: Path) -> dict[TopicPartition, list[Record]]:
    """The same of the broker, as Kafka's own read_committed consumer has it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{topic}.jsonl" for topic in topics]
    reply = harness.command("4.3.1", do="dump-changelog", topics=topics, files=[str(file) for file in files])
    assert reply.rc == 0, reply.report()
    records: dict[TopicPartition, list[Record]] = {}
    for topic, file in zip(topics, files, strict=True):
        for line in file.read_text(encoding="utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            if "summary" in row:
                for partition in row["partitions"]:
                    records.setdefault(TopicPartition(topic, int(partition)), [])
                continue
            headers = [(key, _raw(value)) for key, value in row["headers"]]
            record = (row["offset"], _raw(row["key"]), _raw(row["value"]), row["timestamp"], headers)
            records.setdefault(TopicPartition(topic, row["partition"]), []).append(record)
    return records


def _raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def files_of(out: Path) -> set[str]:
    """Every file of a dump that is Parquet, named or not."""
    return {path.relative_to(out).as_posix() for path in out.rglob("*.parquet")}

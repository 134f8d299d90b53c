"""What lies beside a golden directory when commands are asked about it: offsets of logs, a specification, a dump."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kstate_cli.dump_reader.manifest import NAME, Manifest, ManifestFile, ManifestPartition, render
from kstate_cli.formats.topic_partition import TopicPartition
from tests.golden import expected, index

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_TO_FILL_IN = re.compile(r"^# (\w+ = .*?)  # to fill in: .*$", re.MULTILINE)
_NOON = 1_704_110_400_000_000
"""Microseconds since 1970: when all records of the dumps were written."""


def make(name: str, folder: Path, draft: str) -> None:
    """Everything that `commands.py` names, in `folder`. `draft` is what `ls --spec` has printed."""
    ends: dict[str, dict[str, int]] = expected(name)["changelogEnds"]
    offsets = {topic: {p: {"start": 0, "end": end} for p, end in of.items()} for topic, of in ends.items()}
    (folder / "offsets.json").write_text(json.dumps(offsets), encoding="utf-8")
    beyond = {topic: {p: {"start": end + 9, "end": end + 9} for p, end in of.items()} for topic, of in ends.items()}
    (folder / "truncated.json").write_text(json.dumps(beyond), encoding="utf-8")
    (folder / "lost").mkdir()
    if index()[name]["topology"] == "demo":
        shutil.copytree(EXAMPLES / "dump", folder / "dump")
        shutil.copy(EXAMPLES / "dump.toml", folder / "kstate.toml")
        return
    (folder / "kstate.toml").write_text(_TO_FILL_IN.sub(r"\1", draft).replace("= ...", "= 1200000"), encoding="utf-8")
    write_dump(folder / "dump", ends)


def write_dump(folder: Path, ends: dict[str, dict[str, int]]) -> None:
    """One delete for each offset: plans look at where records are, and not at what they say."""
    folder.mkdir()
    schema = pq.read_schema(next((EXAMPLES / "dump").rglob("*.parquet")))
    partitions, files = [], []
    for topic, of_topic in ends.items():
        for partition, end in ((int(p), end) for p, end in of_topic.items()):
            columns = {
                "key": [b"k%04d" % (offset % 8) for offset in range(end)],
                "value": [None] * end,
                "topic": [topic] * end,
                "partition": [partition] * end,
                "offset": list(range(end)),
                "timestamp": pa.array([_NOON] * end, pa.timestamp("us", tz="UTC")),
                "timestampType": [0] * end,
                "headers": [None] * end,
            }
            arrays = [pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names]
            path = folder / f"{topic}-{partition}.parquet"
            pq.write_table(pa.Table.from_arrays(arrays, names=schema.names), path)
            files.append(ManifestFile(path.name, path.stat().st_size, None, topic, partition))
            first, last = (0, end - 1) if end else (None, None)
            partitions.append(ManifestPartition(topic, partition, 0, end, first, last, end, start=0))
    committed = {TopicPartition(topic, int(p)): end for topic, of in ends.items() for p, end in of.items()}
    (folder / NAME).write_bytes(render(Manifest("read_committed", tuple(partitions), tuple(files), committed)))

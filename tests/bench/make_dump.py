"""Makes a changelog dump of any size, in the schema of Spark's Kafka source, as fast as pyarrow writes it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE_RECORDS = 1_000_000
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)


def make_dump(folder: Path, topic: str, *, records: int, keys: int, value_bytes: int, partitions: int) -> None:
    """``records`` over all partitions, keys ``key-00000042`` drawn at random, values of random bytes, uncompressed."""
    rng = np.random.default_rng(7)
    manifest: dict[str, Any] = {
        "format": 1,
        "isolation": "read_committed",
        "partitions": [],
        "files": [],
        "committed": {},
    }
    (folder / topic).mkdir(parents=True)
    for partition in range(partitions):
        count = records // partitions
        for first in range(0, count, FILE_RECORDS):
            rows = min(FILE_RECORDS, count - first)
            ids = rng.integers(0, keys // partitions, rows) * partitions + partition
            if keys >= records:
                ids = (np.arange(first, first + rows) * partitions + partition) * 7_919 % (partitions * count)
            table = _table(topic, partition, first, ids, rng, value_bytes)
            file = folder / topic / f"part-{partition:05d}-{first:012d}.parquet"
            pq.write_table(table, file, compression="none", use_dictionary=["topic"], row_group_size=250_000)
            manifest["files"].append(
                {
                    "path": f"{topic}/{file.name}",
                    "topic": topic,
                    "partition": partition,
                    "size": file.stat().st_size,
                    "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                }
            )
        manifest["partitions"].append(
            {
                "topic": topic,
                "partition": partition,
                "log_start": 0,
                "log_end": count,
                "first": 0,
                "last": count - 1,
                "rows": count,
            }
        )
    (folder / "_manifest.json").write_text(json.dumps(manifest))


def _table(topic: str, partition: int, first: int, ids: Any, rng: Any, value_bytes: int) -> pa.Table:
    rows = len(ids)
    digits = np.frombuffer(b"".join(b"key-%08d" % i for i in ids.tolist()), dtype=np.uint8)
    offsets = np.arange(first, first + rows, dtype=np.int64)
    return pa.Table.from_arrays(
        [
            _binary(digits, 12, rows),
            _binary(rng.integers(0, 256, rows * value_bytes, dtype=np.uint8), value_bytes, rows),
            pa.array([topic] * rows),
            pa.array(np.full(rows, partition, dtype=np.int32)),
            pa.array(offsets),
            pa.array(1_700_000_000_000_000 + offsets * 1_000, pa.timestamp("us", tz="UTC")),
            pa.array(np.zeros(rows, dtype=np.int32)),
        ],
        schema=_SCHEMA,
    )


def _binary(data: Any, width: int, rows: int) -> pa.Array:
    ends = np.arange(rows + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])

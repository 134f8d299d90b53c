"""
Changelog dumps that are small enough to be swept: what real 4.3.1 wrote into examples/dump, cut by store and by offset.

Only a versioned store is not in there: its changelog is made here, keys with several versions and a delete.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kstate_cli.dump_reader.manifest import NAME, Manifest, ManifestFile, ManifestPartition, parse, render

from .forked import ROOT

EXAMPLES = ROOT / "examples"
APP = "orders"
KV, WINDOW, GLOBAL = "latest-order", "orders-per-minute", "customers"
VERSIONED, VERSIONED_TOPIC = "prices", f"{APP}-prices-changelog"
TOPICS = {
    KV: f"{APP}-latest-order-changelog",
    WINDOW: f"{APP}-orders-per-minute-changelog",
    VERSIONED: VERSIONED_TOPIC,
    GLOBAL: "shop-global",
}
"""Store -> changelog."""
WINDOW_ROWS = 16
"""Of windows: they lie in two segments."""
_BEGIN, _STEP = 1_704_067_200_000, 120_000
_VERSIONED_SPEC = f"""
[stores.{VERSIONED}]
kind = "versioned"
changelog = "{VERSIONED_TOPIC}"
subtopology = 0
partitions = 1
retention_ms = 3600000
segment_interval_ms = 1200000
"""


@dataclass(frozen=True)
class Dump:
    """A dump and the specification of its stores, in one folder."""

    folder: Path

    @property
    def options(self) -> tuple[str, ...]:
        """Of `kstate restore`."""
        return ("--from-changelog", str(self.folder / "dump"), "--spec", str(self.folder / "kstate.toml"))


def make(folder: Path, stores: tuple[str, ...], *, part: float = 1.0) -> Dump:
    """Write the first `part` of these stores' changelogs: partition 0, of the global store both."""
    partitions: list[ManifestPartition] = []
    files: list[ManifestFile] = []
    folder.mkdir(parents=True, exist_ok=True)
    for store in stores:
        for partition, rows in _changelogs(store):
            offsets = rows.column("offset").to_pylist()
            backup = rows.slice(0, round(len(rows) * part))
            path = folder / "dump" / f"{TOPICS[store]}-{partition}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(backup, path)
            data = path.read_bytes()
            files.append(ManifestFile(path.name, len(data), hashlib.sha256(data).hexdigest(), TOPICS[store], partition))
            last = offsets[len(backup) - 1]
            end = last + 1 if part < 1 else offsets[-1] + 2  # the marker of the last transaction
            partitions.append(
                ManifestPartition(TOPICS[store], partition, 0, end, offsets[0], last, len(backup), start=0)
            )
    (folder / "dump" / NAME).write_bytes(render(Manifest("read_committed", tuple(partitions), tuple(files))))
    (folder / "kstate.toml").write_text(_spec(stores), encoding="utf-8")
    return Dump(folder)


def _changelogs(store: str) -> list[tuple[int, pa.Table]]:
    """Partition and rows, in order."""
    if store == VERSIONED:
        return [(0, _history())]
    manifest = parse((EXAMPLES / "dump" / NAME).read_bytes())
    results = []
    for file in manifest.files:
        if file.topic == TOPICS[store] and file.partition is not None and (store == GLOBAL or file.partition == 0):
            rows = pq.read_table(EXAMPLES / "dump" / file.path, partitioning=None)
            results.append((file.partition, rows.slice(0, WINDOW_ROWS) if store == WINDOW else rows))
    assert results, store
    return results


def _history() -> pa.Table:
    """Three keys, some minutes apart, so that they are in several segments; the second key is deleted in the middle."""
    rows = [(b"price-%d" % (i % 3), None if i == 7 else b"%d.00" % (10 + i), _BEGIN + i * _STEP) for i in range(24)]
    schema = pq.read_schema(next((EXAMPLES / "dump").rglob("*.parquet")))
    count = len(rows)
    columns = {
        "key": [key for key, _, _ in rows],
        "value": [value for _, value, _ in rows],
        "topic": [VERSIONED_TOPIC] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": pa.array([time * 1_000 for _, _, time in rows], pa.timestamp("us", tz="UTC")),
        "timestampType": [0] * count,
        "headers": [None] * count,
    }
    return pa.Table.from_arrays(
        [pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names], names=schema.names
    )


def _spec(stores: tuple[str, ...]) -> str:
    """What `kstate ls --spec` wrote of these stores, each with the partitions that are in the dump."""
    head, *sections = re.split(r"(?m)^(?=\[stores\.)", (EXAMPLES / "dump.toml").read_text(encoding="utf-8"))
    by_name = {re.findall(r"\[stores\.(\S+)\]", section)[0]: section for section in sections}
    by_name[VERSIONED] = _VERSIONED_SPEC
    texts = [by_name[store] if store == GLOBAL else _with_a_single_partition(by_name[store]) for store in stores]
    return head + "".join(texts)


def _with_a_single_partition(section: str) -> str:
    return re.sub(r"(?m)^partitions = \d+", "partitions = 1", section)

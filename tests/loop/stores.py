"""The rows of restored stores, read with RocksDB alone."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rocksdict import AccessType, Options, Rdict

from .histories import Partition, Rows

TIMESTAMP_BYTES = 8
FAMILIES = {"timestamped-key-value": "keyValueWithTimestamp", "key-value": "default"}


@dataclass(frozen=True)
class StoreOfLoop:
    """One store of an application: its name, kind and sub-topology."""

    name: str
    kind: str
    subtopology: int
    partitions: int

    def topic(self, app: str) -> str:
        """Return its changelog."""
        return f"{app}-{self.name}-changelog"


STORES = (StoreOfLoop("count", "timestamped-key-value", 0, 2), StoreOfLoop("plain", "key-value", 1, 1))


def spec(app: str) -> str:
    """Return the specification of the stores."""
    text = f'format = 1\napplication = "{app}"\n'
    for store in STORES:
        text += f'[stores.{store.name}]\nkind = "{store.kind}"\nsubtopology = {store.subtopology}\n'
        text += f"partitions = {store.partitions}\n"
    return text


def partitions(app: str) -> list[Partition]:
    """Return every partition of the changelogs."""
    return [(store.topic(app), number) for store in STORES for number in range(store.partitions)]


def rows_of(directory: Path, app: str, scratch: Path) -> dict[Partition, Rows]:
    """Return the rows of every store, of a copy: whoever opens a database leaves traces in it. No store, no rows."""
    rows = {}
    for store in STORES:
        for number in range(store.partitions):
            database = directory / f"{store.subtopology}_{number}" / "rocksdb" / store.name
            rows[store.topic(app), number] = _rows(database, store.kind, scratch) if database.exists() else {}
    return rows


def _rows(database: Path, kind: str, scratch: Path) -> Rows:
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(database, scratch)
    options = Options(raw_mode=True)
    families = Rdict.list_cf(str(scratch), options)
    family = FAMILIES[kind]
    if family not in families:
        return {}
    rdict = Rdict(
        str(scratch),
        options,
        column_families={name: Options(raw_mode=True) for name in families},
        access_type=AccessType.read_only(),
    )
    try:
        pairs = [(_raw(key), _raw(value)) for key, value in rdict.get_column_family(family).items()]
    finally:
        rdict.close()
    if kind == "key-value":
        return {key: (value, 0) for key, value in pairs}
    return {key: (value[TIMESTAMP_BYTES:], int.from_bytes(value[:TIMESTAMP_BYTES], "big")) for key, value in pairs}


def _raw(stored: object) -> bytes:
    assert isinstance(stored, bytes)
    return stored


def expected_rows(rows: Rows, partition: Partition) -> Rows:
    """Return rows as a store keeps them: without the timestamp, where its kind has none."""
    kind = next(store.kind for store in STORES if partition[0].endswith(f"-{store.name}-changelog"))
    return {key: (value, 0) for key, (value, _) in rows.items()} if kind == "key-value" else rows

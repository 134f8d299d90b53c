"""Small dumps of chosen records, and the jobs that make sorted files of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rocksdict import Options, Rdict

from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.restore.jobs import SliceJob, SliceResult

TOPIC = "app-store-changelog"
MIB = 1 << 20
NOW = 1_700_000_000_000
HOUR = 3_600_000
Records = Sequence[tuple[bytes | None, bytes | None]]


Headers = Sequence[Sequence[tuple[str, bytes | None]] | None]


def write_dump(
    folder: Path,
    records: Records,
    times: Sequence[int] | None = None,
    headers: Headers | None = None,
    row_group_size: int | None = None,
    order: Sequence[int] | None = None,
    **options: Any,
) -> Path:
    """One partition with these records, offsets from 0; times in ms, a microsecond apart without; pyarrow's options.

    ``order``: that of the rows in the file, by their offsets.
    """
    folder.mkdir()
    count = len(records)
    columns = {
        "key": pa.array([key for key, _ in records], pa.binary()),
        "value": pa.array([value for _, value in records], pa.binary()),
        "topic": pa.array([TOPIC] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(
            [NOW * 1000 + n for n in range(count)] if times is None else [time * 1000 for time in times],
            pa.timestamp("us", tz="UTC"),
        ),
        "headers": pa.array(
            [
                None if header is None else [{"key": key, "value": value} for key, value in header]
                for header in (headers or [[]] * count)
            ],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        ),
    }
    table = pa.table(columns) if order is None else pa.table(columns).take(pa.array(order, pa.int64()))
    pq.write_table(table, folder / "all.parquet", row_group_size=row_group_size, **options)
    return folder


def job_of(dump_folder: Path, kind: str, staging: Path, *, store: str = "store", identity: str = "") -> SliceJob:
    """The one slice of that partition."""
    dump = read_dump(str(dump_folder), complete=True, committed_only=True)
    (partition,) = dump.partitions.values()
    (entry,), _ = slices(partition, after=None, until=None, max_bytes=1 << 40)
    about = store_kind(kind)
    return SliceJob(
        number=0,
        task="0_0",
        store=store,
        kind=kind,
        release="4.3",
        slice=entry,
        dump_uri=dump.uri,
        staging=str(staging),
        memory=64 * MIB,
        interval_ms=HOUR if about.has_retention else 0,
        retention_ms=2 * HOUR,
        indexed=about.key.time_ordered,
        tombstones=True,
        positions=about.key is not KeySchema.VERSIONED and not about.needs_headers,
        identity=identity,
    )


def sorted_rows(result: SliceResult, folder: Path) -> dict[bytes, bytes]:
    """The rows of the sorted files of a slice, in order, as a database has them that takes them in."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    with contextlib.closing(Rdict(str(folder), options)) as database:
        for file in result.files:
            database.ingest_external_file([file.path])
        rows: Iterable[tuple[bytes, bytes]] = database.items()  # type: ignore[assignment]
        return dict(rows)


def key_of(kind: str, time: int = NOW) -> bytes:
    """A key as the changelog of this kind of store has it."""
    schema = store_kind(kind).key
    if schema.windows:
        return b"key" + time.to_bytes(8, "big") + bytes(4)
    if schema.sessions:
        return b"key" + time.to_bytes(8, "big") * 2
    return b"key"

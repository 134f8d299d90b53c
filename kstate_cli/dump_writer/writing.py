"""A Parquet file of one range: its digest is taken while it is written, and it is durable before anybody names it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from kstate_cli.dump_reader.growing import GrownFile, RowGroup
from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_BYTES: Final = 128 << 20
"""A row group is written when so much has come together: what a task holds in memory, but for its encoding."""
_NEEDED: Final = ("key", "value", "timestamp", "headers", "offset")
_FIXED: Final = 8
_OWN: Final = 0o600
OWN_FOLDER: Final = 0o700
"""Only the owner reads what was in the changelogs."""


class Sink(Protocol):
    """Where the bytes of one new file go: :mod:`kstate_cli.dump_writer.stores` says whose.

    Raises OSError, KstateError.
    """

    def append(self, data: memoryview) -> None:
        """All of it, behind what is there."""

    def finish(self) -> None:
        """The file is whole, durable, and has its name from now on."""

    def discard(self) -> None:
        """Nothing of it stays. Raises nothing; also where it was never begun."""


class LocalFile:
    """A new file on a file system that is mounted here."""

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path)
        for one in (os.path.dirname(folder), folder):  # makedirs gives the mode to the last one only
            os.makedirs(one, OWN_FOLDER, exist_ok=True)
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWN)

    def append(self, data: memoryview) -> None:
        """All of it."""
        at = 0
        while at < len(data):
            at += os.write(self._file, data[at:])

    def finish(self) -> None:
        """It has had its name from the first byte on; nobody was told."""
        os.fsync(self._file)
        os.close(self._file)

    def discard(self) -> None:
        """Removes it."""
        os.close(self._file)
        with suppress(OSError):
            os.unlink(self._path)


class _Digesting:
    """A file as pyarrow knows them, that is only ever appended to."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False
        self._unwanted = False

    def write(self, data: Any) -> int:
        """All of it; nothing once that is not wanted any more. Raises what the sink does; ValueError once closed."""
        view = memoryview(data).cast("B")
        if self._unwanted:
            return len(view)
        if self.closed:
            raise ValueError("it is closed")
        self._digest.update(view)
        self._sink.append(view)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Nothing is held back."""

    def tell(self) -> int:
        """Where the next byte goes."""
        return self.size

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def close(self) -> None:
        """What is written stays."""
        self.closed = True

    def finish(self) -> str:
        """Makes it durable; its SHA-256 in hex."""
        self.closed = True
        self._sink.finish()
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Nothing of it stays: what a writer has still to say, its footer, goes nowhere."""
        if not self._unwanted:
            self._unwanted = True
            self._sink.discard()


class RangeFile:
    """Writes record batches in the order of their offsets. A context manager; a file that was not finished is removed.

    Nothing is made before there is a record; ``opened`` makes it then, of ``path``. Raises what the sink does.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        group_bytes: int = GROUP_BYTES,
        *,
        opened: Callable[[str], Sink] = LocalFile,
    ) -> None:
        self._path, self._schema, self._most, self._opened = path, schema, group_bytes, opened
        self._waiting: list[pa.RecordBatch] = []
        self._size = 0
        self._spans: list[tuple[int, int]] = []
        self._sink: _Digesting | None = None
        self._writer: pq.ParquetWriter | None = None
        self._written: list[Any] = []
        """What the writer says of the file once it is closed."""
        self._finished = False

    def __enter__(self) -> RangeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sink is None or self._finished:
            return
        # First: the writer writes a footer now, or whenever it is collected.
        self._sink.discard()
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """More records."""
        self._waiting.append(batch)
        self._size += batch.nbytes
        if self._size >= self._most:
            self._write_group()

    def finish(self, relative: str) -> GrownFile | None:
        """The file, durable; ``relative`` is its path in the dump. None where no record was added."""
        if self._waiting:
            self._write_group()
        if self._writer is None or self._sink is None:
            return None
        self._writer.close()
        digest = self._sink.finish()
        self._finished = True
        (metadata,) = self._written
        groups = tuple(
            RowGroup(first, last, group.num_rows, _bytes_of(group, _NEEDED), _bytes_of(group, ("key",)))
            for (first, last), group in zip(
                self._spans, map(metadata.row_group, range(metadata.num_row_groups)), strict=True
            )
        )
        return GrownFile(relative, self._sink.size, digest, groups)

    def _write_group(self) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches(self._waiting, self._schema)
        offsets = table.column("offset")
        self._spans.append((offsets[0].as_py(), offsets[-1].as_py()))
        self._open().write_table(table, row_group_size=table.num_rows)
        self._waiting, self._size = [], 0

    def _open(self) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        if self._writer is None:
            self._sink = _Digesting(self._opened(self._path))
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression="zstd",
                use_dictionary=["topic"],
                write_statistics=["topic", "partition", "offset"],
                write_page_checksum=True,
                metadata_collector=self._written,
            )
        return self._writer


def _bytes_of(group: Any, names: tuple[str, ...]) -> int:
    columns = [group.column(index) for index in range(group.num_columns)]
    return sum(
        max(one.total_uncompressed_size, _FIXED * group.num_rows if name in ("offset", "timestamp") else 0)
        for one in columns
        if (name := one.path_in_schema.partition(".")[0]) in names
    )


_NONE: Final = -1
_NOT_AVAILABLE: Final = 0
"""librdkafka's 0 not available, 1 create time, 2 log append time are one above Spark's (``TimestampType.id``)."""
_HEADERS: Final = methodcaller("headers")
_KEY, _VALUE, _OFFSET = methodcaller("key"), methodcaller("value"), methodcaller("offset")


def schema() -> pa.Schema:
    """The columns, in the order in which Spark has them. Milliseconds, as Kafka has them: none is too large."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", headers),
        ]
    )


def batch_of(key: TopicPartition, messages: Sequence[Any], wanted: pa.Schema) -> pa.RecordBatch:
    """Messages of one partition, at least one, none of them an error."""
    import pyarrow as pa
    import pyarrow.compute

    rows = len(messages)
    kinds, times = [_NOT_AVAILABLE] * rows, [_NONE] * rows
    for at, one in enumerate(messages):
        kinds[at], times[at] = one.timestamp()
    kind = pa.array(kinds, pa.int32())
    known = pa.compute.not_equal(kind, _NOT_AVAILABLE)
    time = pa.compute.if_else(known, pa.array(times, pa.int64()), _NONE)
    headers = list(map(_HEADERS, messages))
    header_type = wanted.field("headers").type
    columns = [
        pa.array(list(map(_KEY, messages)), pa.binary()),
        pa.array(list(map(_VALUE, messages)), pa.binary()),
        pa.repeat(pa.scalar(key.topic, pa.string()), rows),
        pa.repeat(pa.scalar(key.partition, pa.int32()), rows),
        pa.array(list(map(_OFFSET, messages)), pa.int64()),
        time.cast(pa.timestamp("ms", tz="UTC")),
        pa.compute.subtract(kind, 1),
        pa.array(headers, header_type) if any(headers) else pa.nulls(rows, header_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)

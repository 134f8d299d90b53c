"""The files of a dump: their names, how long each stays, and how the Parquet file of one range is written.

``topic=T/partition=P/<first>-<end>-<generation>-<run>-<attempt>.parquet``: offsets with twenty digits, the end
excluded. The end is that of the planned range. If a time limit ended the reading earlier, the file has fewer records,
and the manifest states how many. No two attempts ever write to one file. A file that no manifest names does not count.

A file has the schema of Spark's Kafka source. Its digest is computed while it is written, and it is durable before a
manifest names it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol

from kstate_cli import clock, option
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Grown, GrownFile, RowGroup
from kstate_cli.errors import InUse, Refused
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import printable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


GROUP_BYTES: Final = 128 << 20
"""Uncompressed bytes of a row group. A task holds one in memory, and its encoded form while it is written."""
_READ_COLUMNS: Final = ("key", "value", "timestamp", "headers", "offset")
_FIXED: Final = 8
_OWN: Final = 0o600
OWN_FOLDER: Final = 0o700
"""Only the owner may read the records of the changelogs."""


class Sink(Protocol):
    """The destination of the bytes of one new file, in a folder or a bucket. Raises OSError, KstateError."""

    def append(self, data: memoryview) -> None:
        """Append all bytes."""

    def finish(self) -> None:
        """Make the file complete and durable under its name."""

    def discard(self) -> None:
        """Remove the file, if it was begun. Raises nothing."""


class LocalFile:
    """A new file on a file system that is mounted here."""

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path)
        for parent in (os.path.dirname(folder), folder):  # makedirs sets the mode of the last folder only
            os.makedirs(parent, OWN_FOLDER, exist_ok=True)
        self._path = path
        # O_EXCL: the name has a random part, so an existing file is another one, and is never overwritten.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _OWN)

    def append(self, data: memoryview) -> None:
        """Append all bytes."""
        at = 0
        while at < len(data):
            # A write may be short at a signal, and at 2 GiB less one page.
            at += os.write(self._file, data[at:])

    def finish(self) -> None:
        """Make the bytes durable. The file has had its name from the first byte on, but no manifest names it yet."""
        os.fsync(self._file)
        os.close(self._file)

    def discard(self) -> None:
        """Remove the file."""
        os.close(self._file)
        with suppress(OSError):
            os.unlink(self._path)


class _DigestSink:
    """A file object for pyarrow that appends to a sink and computes the digest."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False
        self._unwanted = False

    def write(self, data: Any) -> int:
        """Append all bytes; ignore them after :meth:`discard`.

        Raises what the sink raises, and ValueError once closed.
        """
        view = memoryview(data).cast("B")
        if self._unwanted:
            return len(view)
        if self.closed:
            raise ValueError("the file is closed")
        # The digest is of the bytes on their way to the sink: if the disk or the network changes them, a comparison
        # shows it.
        self._digest.update(view)
        self._sink.append(view)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self.size

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def close(self) -> None:
        """Refuse further bytes."""
        self.closed = True

    def finish(self) -> str:
        """Make the file durable; return its SHA-256 in hex."""
        self.closed = True
        self._sink.finish()
        return self._digest.hexdigest()

    def discard(self) -> None:
        """Remove the file. The footer that the Parquet writer still writes is ignored."""
        if not self._unwanted:
            self._unwanted = True
            self._sink.discard()


class RangeFile:
    """Write record batches in the order of their offsets. A context manager that removes an unfinished file.

    ``new_file`` creates the file at ``path`` with the first row group, so a range without records has none. Raises as
    the sink.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        group_bytes: int = GROUP_BYTES,
        *,
        new_file: Callable[[str], Sink] = LocalFile,
    ) -> None:
        self._path, self._schema, self._most, self._new_file = path, schema, group_bytes, new_file
        self._waiting: list[pa.RecordBatch] = []
        """The batches of the next row group."""
        self._size = 0
        """Bytes of these batches; the group is written once they reach ``group_bytes``."""
        self._spans: list[tuple[int, int]] = []
        """First and last offset of each row group that is written."""
        self._sink: _DigestSink | None = None
        self._writer: pq.ParquetWriter | None = None
        self._written: list[Any] = []
        """The metadata of the file, which pyarrow adds once the writer is closed."""
        self._finished = False

    def __enter__(self) -> RangeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sink is None or self._finished:
            return
        # The sink first, because the writer writes a footer now, or when Python collects it.
        self._sink.discard()
        with suppress(Exception):
            if self._writer is not None:
                self._writer.close()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        self._waiting.append(batch)
        self._size += batch.nbytes
        if self._size >= self._most:
            self._write_group()

    def finish(self, relative: str) -> GrownFile | None:
        """Return the durable file; ``relative`` is its path in the dump. None if no record was added."""
        if self._waiting:
            self._write_group()
        if self._writer is None or self._sink is None:
            return None
        # Closing the writer writes the footer through the sink, whose digest is complete only after that.
        self._writer.close()
        digest = self._sink.finish()
        self._finished = True
        (metadata,) = self._written
        groups = tuple(
            RowGroup(first, last, group.num_rows, _bytes_of(group, _READ_COLUMNS), _bytes_of(group, ("key",)))
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
        # Frees the batches: a task is planned to hold one group in memory.
        self._waiting, self._size = [], 0

    def _open(self) -> pq.ParquetWriter:
        """Return the Parquet writer of the file, which the first call creates."""
        import pyarrow.parquet as pq

        if self._writer is None:
            self._sink = _DigestSink(self._new_file(self._path))
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                # zstd makes smaller files than snappy at a similar speed; Spark and pyarrow read it without further
                # libraries.
                compression="zstd",
                # Only the topic repeats. For keys and values the writer would begin a dictionary, and drop it at its
                # size limit.
                use_dictionary=["topic"],
                # The statistics of offsets prove the range of a row group. Those of values would copy records into the
                # footer.
                write_statistics=["topic", "partition", "offset"],
                # Each page gets a CRC-32, which readers verify: Parquet would not notice damage within a value
                # otherwise.
                write_page_checksum=True,
                metadata_collector=self._written,
            )
        return self._writer


def _bytes_of(group: Any, names: tuple[str, ...]) -> int:
    columns = [group.column(index) for index in range(group.num_columns)]
    return sum(
        max(column.total_uncompressed_size, _FIXED * group.num_rows if name in ("offset", "timestamp") else 0)
        for column in columns
        if (name := column.path_in_schema.partition(".")[0]) in names
    )


_NONE: Final = -1
_NOT_AVAILABLE: Final = 0
"""librdkafka's types of timestamps (0 none, 1 create time, 2 log append time) are Spark's ``TimestampType.id`` + 1."""
_HEADERS: Final = methodcaller("headers")
_KEY, _VALUE, _OFFSET = methodcaller("key"), methodcaller("value"), methodcaller("offset")


def schema() -> pa.Schema:
    """Return the columns in the order of Spark's Kafka source. Timestamps are milliseconds, as Kafka's are."""
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


def batch_of(key: TopicPartition, messages: Sequence[Any], columns_schema: pa.Schema) -> pa.RecordBatch:
    """Return messages of one partition as rows of Arrow.

    There is at least one message, and none of them is an error.
    """
    import pyarrow as pa
    import pyarrow.compute

    rows = len(messages)
    kinds, times = [_NOT_AVAILABLE] * rows, [_NONE] * rows
    for index, message in enumerate(messages):
        kinds[index], times[index] = message.timestamp()
    # The columns are built as a whole: a Python object for each field of each record would take longer than the broker.
    kind = pa.array(kinds, pa.int32())
    has_time = pa.compute.not_equal(kind, _NOT_AVAILABLE)
    time = pa.compute.if_else(has_time, pa.array(times, pa.int64()), _NONE)
    headers = list(map(_HEADERS, messages))
    header_type = columns_schema.field("headers").type
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
    return pa.RecordBatch.from_arrays(columns, schema=columns_schema)


GRACE_SECONDS: Final = 24 * 3600
"""A file without a manifest may belong to a dump that still runs: it is removed only when it is older."""
YOUNG_SECONDS: Final = 6 * 3600
"""A file that is joined so soon is not listed as forgotten, because the list would grow with every round."""
UNNAMED_SECONDS: Final = GRACE_SECONDS + YOUNG_SECONDS
"""Minimum age of a data file without a manifest: it may have been joined, and not listed, when it was young."""
MANIFESTS_KEPT: Final = 8
MANIFEST_SECONDS: Final = 3600
"""Minimum age of a manifest that is removed; the newest ones stay. A reader has opened one of them."""


def files_in_use(grown: Grown) -> set[str]:
    """Return the files that the manifest names, and those of older manifests that a reader may have opened."""
    oldest_ms = clock.now_ms() - GRACE_SECONDS * 1000
    return {file.path for full in grown.fulls for file in full.files} | {
        file.path for file in grown.forgotten if file.at_ms > oldest_ms
    }


def lost_race(where: str, generation: int) -> InUse:
    """Return the error if another process has committed first."""
    return InUse(
        (
            f"meanwhile, another process has written generation {generation} of the dump, so kstate does not add "
            "this run's records"
        ),
        where=where,
        hint="run only one dump at a time. The dump is complete",
    )


def lost_file(path: str, where: str) -> Refused:
    """Return the error for a file of a manifest that is missing, or has another size."""
    return Refused(
        f"{printable(path)} no longer exists or was replaced after kstate wrote it",
        where=where,
        hint=(
            "copy this file from another copy of the dump. If you have no other copy, write a new dump elsewhere "
            f"({option.OUT}) and keep this one, because the broker may no longer have all its records"
        ),
    )


def missing_file(path: str) -> DumpError:
    """Return the error for a file that is missing when it is read."""
    return DumpError("the file no longer exists", where=printable(path))


_FILE: Final = re.compile(r"[0-9]{20}-[0-9]{20}-[0-9]{10}-([0-9a-f]{12})-[0-9a-f]{8}\.parquet")
_NEW_MANIFEST: Final = re.compile(r"\._manifest-[0-9]{10}-([0-9a-f]{12})\.new")
TOPIC: Final = "topic="
PARTITION: Final = "partition="


def folder_of(key: TopicPartition) -> str:
    """Return the folder of a partition, relative to the dump."""
    return f"{TOPIC}{key.topic}/{PARTITION}{key.partition}"


def path_of(key: TopicPartition, start: int, end: int, generation: int, run: str, attempt: str) -> str:
    """Return the path of a file, relative to the dump."""
    return f"{folder_of(key)}/{start:020d}-{end:020d}-{generation:010d}-{run}-{attempt}.parquet"


def run_of(name: str) -> str | None:
    """Return the run of a data file or an unfinished manifest; None for any other name."""
    match = _FILE.fullmatch(name) or _NEW_MANIFEST.fullmatch(name)
    return match[1] if match else None


def new_manifest(generation: int, run: str) -> str:
    """Return the name of a manifest until it is committed."""
    return f"._manifest-{generation:010d}-{run}.new"

"""Dump sources for tables: Delta Lake and Iceberg, with the columns of Spark's Kafka source.

Only the log of a table states which of its files count, so a superseded file never counts. A table may serve as a dump
if its whole history only appended records, or rewrote files without changing their rows (compaction). Any other change
removes or replaces records, and missing records would look like compaction of the topic. Such a table is refused, as is
one whose history is incomplete, because older commits or snapshots have expired.

A table has no manifest: as for a folder of Parquet files, the user states that it is complete. Supported are tables in
a folder of this host, whose files are below that folder. Other tables are refused by :mod:`.table_formats`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from kstate_cli.formats.binary import parse_json
from kstate_cli.signals import mapped
from kstate_cli.texts import size_text

from .errors import DumpError, printable
from .footers import read_facts
from .location import ListedFile, is_here, is_link
from .model import Dump
from .parquet_source import dump_of_files
from .sources import DumpPlace, OpenOptions, content_of, no_manifest
from .table_formats import DELTA, ICEBERG, TableFormat

_THREADS: Final = 16
_DELTA_LOG: Final = "_delta_log"
_METADATA: Final = ".metadata.json"
_APPENDS: Final = ("append", "replace")
"""The operations of Iceberg that keep all rows: ``replace`` rewrites files with the same rows."""


_OTHER_SHAPE: Final = (ValueError, LookupError, TypeError, AttributeError)
"""The errors of JSON that has other members than a log of Delta, such as a number where an object belongs."""


class _RefusedTableError(Exception):
    """The table cannot serve as a dump; the text is the reason."""


@dataclass(frozen=True, slots=True)
class _TableFile:
    """A file that the log of a table lists."""

    path: str
    """Relative to the folder of the table."""
    size: int
    rows: int | None


class DeltaTable:
    """A :class:`kstate_cli.dump_reader.sources.DumpSource`: the folder of a Delta table."""

    def open(self, place: DumpPlace, options: OpenOptions) -> Dump | None:
        """Open the current version; None for any other place, and without the package ``deltalake``."""
        if not is_here(place.filesystem) or not os.path.isdir(f"{place.root}/{_DELTA_LOG}"):
            return None
        try:
            from deltalake import DeltaTable as Table
            from deltalake.exceptions import DeltaError
        # Without the package, the source for Parquet folders recognizes the table and refuses it with a hint.
        except ImportError:
            return None
        try:
            table = Table(place.root)
            live_paths = {os.path.relpath(unquote(_local(uri)), place.root) for uri in table.file_uris()}
            files = _replayed(place, table.version())
            # The library reads a checkpoint if there is one, while kstate replays all commits. The results must be
            # equal.
            if live_paths != files.keys():
                raise _RefusedTableError("its checkpoint and its commits name different files")
        except (DeltaError, OSError, *_OTHER_SHAPE) as error:
            raise _refusal(DELTA, place.text, f"kstate cannot read its log: {error}") from None
        except _RefusedTableError as error:
            raise _refusal(DELTA, place.text, str(error)) from None
        return _dump_of(DELTA, place, place.root, files.values(), options)


def _replayed(place: DumpPlace, version: int) -> dict[str, _TableFile]:
    """Replay all commits of a Delta table; return the files that count. Raises _RefusedTableError."""
    files: dict[str, _TableFile] = {}
    # All commits are replayed from the first one on: only then it is certain that none of them removed records.
    for number in range(version + 1):
        path = f"{place.root}/{_DELTA_LOG}/{number:020d}.json"
        if not os.path.isfile(path):
            raise _RefusedTableError(
                f"commit {number} has expired from its log, so kstate does not know whether older commits removed "
                "records"
            )
        data = content_of(place.filesystem, ListedFile(path, path, os.path.getsize(path)), "commit")
        actions = [parse_json(line) for line in data.splitlines() if line.strip()]
        old_files = [_table_file(action["remove"]) for action in actions if "remove" in action]
        new_files = [_table_file(action["add"]) for action in actions if "add" in action]
        _require_same_rows(number, actions, new_files, [files.get(file.path, file) for file in old_files])
        for action in actions:
            _require_plain_columns(action.get("metaData"))
        for file in old_files:
            files.pop(file.path, None)
        files |= {file.path: file for file in new_files}
    return files


def _table_file(action: Mapping[str, Any]) -> _TableFile:
    """Return the file of an action of Delta's log, ``add`` or ``remove``."""
    path = unquote(str(action["path"]))
    if action.get("deletionVector") is not None:
        raise _RefusedTableError(f"{printable(path)} has a deletion vector, so some of its records were deleted")
    statistics: dict[str, Any] = {}
    if action.get("stats"):
        # Statistics are optional, and are JSON in a string of the JSON object.
        statistics = parse_json(str(action["stats"]).encode())
    in_path = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    # Delta keeps the values of partition columns only in its log, but kstate reads them from the path.
    for name, value in (action.get("partitionValues") or {}).items():
        if name in ("topic", "partition") and unquote(in_path.get(name, "")) != value:
            raise _RefusedTableError(f"{printable(path)} is not in the folder of its {name}")
    return _TableFile(path, int(action.get("size") or 0), statistics.get("numRecords"))


def _require_same_rows(
    number: int, actions: Iterable[Mapping[str, Any]], new_files: list[_TableFile], old_files: list[_TableFile]
) -> None:
    """Raise _RefusedTableError if a commit of a Delta table may have removed or replaced records."""
    if not old_files:
        return
    # If the member is missing, the commit is treated as a change, which is the cautious choice.
    if any(action["remove"].get("dataChange", True) for action in actions if "remove" in action):
        raise _RefusedTableError(f"commit {number} removed or replaced records")
    # The writer states that the rewritten files have the same rows. The number of rows in the statistics must confirm
    # that.
    before, after = [file.rows for file in old_files], [file.rows for file in new_files]
    if None in (*before, *after):
        raise _RefusedTableError(f"commit {number} rewrote files, and kstate does not know whether it kept all records")
    if sum(rows or 0 for rows in before) != sum(rows or 0 for rows in after):
        raise _RefusedTableError(
            f"commit {number} replaced files with files that contain a different number of records"
        )


def _require_plain_columns(metadata: Mapping[str, Any] | None) -> None:
    """Raise _RefusedTableError if files of a Delta table have other column names than the table."""
    # A renamed column has another name in the files, such as col-1f2e, which kstate's readers do not know.
    mode = ((metadata or {}).get("configuration") or {}).get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise _RefusedTableError(f"it maps column names (delta.columnMapping.mode={mode})")


class IcebergTable:
    """A :class:`kstate_cli.dump_reader.sources.DumpSource`: the metadata file of an Iceberg table.

    A catalog decides which metadata file counts, and a failed commit leaves one that does not. So the folder of a table
    is refused, and the user names the metadata file that the catalog has.
    """

    def open(self, place: DumpPlace, options: OpenOptions) -> Dump | None:
        """Open the current snapshot; None for any other place, and without the package ``pyiceberg``."""
        if not is_here(place.filesystem) or not place.root.endswith(_METADATA) or not os.path.isfile(place.root):
            return None
        try:
            from pyiceberg.table import StaticTable
        except ImportError:
            return None
        folder = str(Path(place.root).parent.parent)
        try:
            table = StaticTable.from_metadata(place.root)
            files = list(_planned(table, folder))
        except _RefusedTableError as error:
            raise _refusal(ICEBERG, place.text, str(error)) from None
        except Exception as error:  # pyiceberg raises exceptions of many classes, also for damaged Avro
            raise _refusal(ICEBERG, place.text, f"kstate cannot read its metadata: {error}") from None
        return _dump_of(ICEBERG, place, folder, files, options)


def _planned(table: Any, folder: str) -> Iterator[_TableFile]:
    """Yield the files of the current snapshot.

    Raises _RefusedTableError unless all snapshots up to it only appended.
    """
    snapshots = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
    current, numbers = table.metadata.current_snapshot_id, []
    while current is not None:
        if current not in snapshots:
            raise _RefusedTableError(
                f"snapshot {current} has expired, so kstate does not know whether older snapshots removed records"
            )
        snapshot = snapshots[current]
        operation = None
        if snapshot.summary is not None:
            operation = snapshot.summary.operation.value
        # A snapshot of format version 1 may have no summary. Then it is unknown what it has changed.
        if operation not in _APPENDS:
            raise _RefusedTableError(f"snapshot {current} removed or replaced records (operation {operation})")
        numbers.append(snapshot.sequence_number)
        current = snapshot.parent_snapshot_id
    # A rollback removes snapshots, with the records that they appended, from the history. Snapshots have sequence
    # numbers, so there is a gap then. Format version 1 has no such numbers, so its tables prove nothing.
    if numbers != [*range(len(numbers), 0, -1)]:
        raise _RefusedTableError(
            "the sequence numbers of its snapshots have gaps, so the table was rolled back or has branches"
        )
    for task in table.scan().plan_files():
        path = _local(task.file.file_path)
        if task.delete_files:
            raise _RefusedTableError(f"{printable(path)} has delete files, so some of its records were deleted")
        if task.file.file_format.value != "PARQUET":
            raise _RefusedTableError(f"{printable(path)} is not Parquet")
        yield _TableFile(os.path.relpath(path, folder), task.file.file_size_in_bytes, task.file.record_count)


def _dump_of(
    format_: TableFormat, place: DumpPlace, folder: str, files: Iterable[_TableFile], options: OpenOptions
) -> Dump:
    """Return the dump of the files that count. Raises DumpError, naming the file, if one is missing or differs."""
    if not options.complete:
        raise no_manifest(
            f"a table ({format_.name}) has no manifest, so kstate cannot distinguish lost records from records "
            "removed by compaction",
            place.text,
        )
    live_files = [_listed_file(format_, place, folder, file) for file in sorted(files, key=lambda file: file.path)]
    with ThreadPoolExecutor(_THREADS) as pool:
        facts = mapped(pool, lambda file: read_facts(place.filesystem, file, of_table=True), live_files)
    return dump_of_files(folder, facts, None, options)


def _listed_file(format_: TableFormat, place: DumpPlace, folder: str, file: _TableFile) -> ListedFile:
    """Return a file that the log of a table names.

    Raises DumpError if it is outside the folder, a link, missing or replaced.
    """
    path = f"{folder}/{file.path}"
    if ".." in file.path.split("/") or os.path.isabs(file.path):
        raise _refusal(format_, place.text, f"{printable(file.path)} is outside its folder")
    # A link may lead out of the folder.
    if not os.path.isfile(path) or is_link(path, folder):
        raise DumpError(
            f"{printable(file.path)} is in the table's log, but not in its folder. kstate does not follow links",
            where=place.text,
        )
    size = os.path.getsize(path)
    # The log has the size of the committed file. So this file was replaced or cut off.
    if size != file.size:
        raise DumpError(
            f"{printable(file.path)} has {size_text(size)}, but the log records {size_text(file.size)}",
            where=place.text,
        )
    return ListedFile(path, file.path, size)


def _refusal(format_: TableFormat, place: str, reason: str) -> DumpError:
    """Return the refusal of a table that cannot serve as a dump."""
    hint = (
        "if the table's rows are complete anyway, use a reader for that format to write them to a new folder as "
        "plain Parquet. Then pass this folder"
    )
    details = []
    if format_.example is not None:
        hint += ", for example:"
        details = [format_.example.format(table=place, copy="COPY")]
    return DumpError(
        f"{place} is a table ({format_.name}), which kstate cannot use as a dump because {reason}",
        hint=hint,
        hint_details=details,
    )


def _local(uri: str) -> str:
    """Return the path of a file URI; a path unchanged."""
    if uri.startswith("file:"):
        return urlsplit(uri).path
    return uri

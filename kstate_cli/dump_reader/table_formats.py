"""Recognize folders of table formats. Such a format has a log, and only the log states which files of the folder count.

The folder also has rewritten files, deleted rows and the files of failed writes. If kstate read it file by file,
deleted rows would come back. So kstate refuses such a folder, and the hint shows how to write a plain copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.texts import some

from .errors import DumpError, printable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A table format, and how to write the current rows of such a table as plain Parquet."""

    name: str
    example: str | None = None
    """An example of a command that was tried, with ``{table}`` and ``{copy}``."""


DELTA: Final = TableFormat(
    "Delta Lake",
    'Python: pyarrow.dataset.write_dataset(deltalake.DeltaTable("{table}").to_pyarrow_dataset(), "{copy}",'
    ' format="parquet")',
)
HUDI: Final = TableFormat("Hudi")
ICEBERG: Final = TableFormat("Iceberg")
PAIMON: Final = TableFormat("Paimon")
HIVE: Final = TableFormat("Hive ACID")
DUCKLAKE: Final = TableFormat("DuckLake")
FILE_SINK: Final = TableFormat("Spark file sink", 'Spark: spark.read.parquet("{table}").write.parquet("{copy}")')
COMMITS: Final = TableFormat("Databricks commit")

_MARKERS: Final[Mapping[str, TableFormat]] = {
    "_delta_log": DELTA,
    ".hoodie": HUDI,
    "_spark_metadata": FILE_SINK,
}
"""Names in the folder of a table."""
_PARTITION_MARKERS: Final[Mapping[str, TableFormat]] = {".hoodie_partition_metadata": HUDI}
"""Names in the folder of a partition of a table."""
_LOG_FILES: Final[Mapping[str, tuple[re.Pattern[str], TableFormat]]] = {
    "metadata": (
        re.compile(r".*\.metadata\.json(\.gz)?|.*\.gz\.metadata\.json|version-hint\.text|snap-.*\.avro"),
        ICEBERG,
    ),
    "schema": (re.compile(r"schema-[0-9]+"), PAIMON),
    "snapshot": (re.compile(r"snapshot-[0-9]+|EARLIEST|LATEST"), PAIMON),
    "manifest": (re.compile(r"(index-)?manifest-(list-)?[0-9a-f]{8}-[0-9a-f-]{27}-[0-9]+"), PAIMON),
}
"""Folders in the folder of a table, and names of the files of its log in them."""
_HIVE_FOLDER: Final = re.compile(r"(base|delta|delete_delta)_[0-9]{7,}(_[0-9]{7,})?(_[0-9]+)?(_v[0-9]+)?")
"""Hive's AcidUtils pads transactions to seven digits."""
_DUCKLAKE_FILE: Final = re.compile(r"ducklake-[0-9a-f]{8}-[0-9a-f-]{27}(-delete)?\.parquet")
_COMMIT: Final = re.compile(r"_(started|committed)_([0-9]+)")
"""Files with which Databricks marks plain Parquet: a file of a transaction counts once its ``_committed_`` exists."""
_MOST_COMMIT_BYTES: Final = 64 << 20

_COLUMNS: Final[Mapping[str, TableFormat]] = {"_hoodie_commit_time": HUDI, "_VALUE_KIND": PAIMON}
_FOOTER_KEYS: Final[Mapping[bytes, TableFormat]] = {b"iceberg.schema": ICEBERG}


def tables_in(names: Iterable[str], folders: Iterable[str]) -> dict[str, TableFormat]:
    """Return the folders of tables among the files ``names`` and the ``folders`` of a dump, with their formats.

    All paths are relative to the dump; the dump itself is ``""``.
    """
    tables: dict[str, TableFormat] = {}
    for name in names:
        *parents, last = name.split("/")
        _add_markers(parents, tables)
        _add_names([*parents, last], tables)
    for folder in folders:
        _add_markers(folder.split("/"), tables)
    return tables


def _add_markers(folders: Sequence[str], tables: dict[str, TableFormat]) -> None:
    for index, name in enumerate(folders):
        format_ = _MARKERS.get(name)
        if _HIVE_FOLDER.fullmatch(name):
            format_ = HIVE
        if format_ is not None:
            tables.setdefault("/".join(folders[:index]), format_)


def _add_names(path: Sequence[str], tables: dict[str, TableFormat]) -> None:
    name, folder = path[-1], "/".join(path[:-1])
    format_ = _MARKERS.get(name) or _PARTITION_MARKERS.get(name)
    if format_ is None and _DUCKLAKE_FILE.fullmatch(name):
        format_ = DUCKLAKE
    if format_ is not None:
        tables.setdefault(folder, format_)
    if len(path) > 1 and path[-2] in _LOG_FILES:
        pattern, format_ = _LOG_FILES[path[-2]]
        if pattern.fullmatch(name):
            tables.setdefault("/".join(path[:-2]), format_)


def uncommitted_in(names: Iterable[str], content: Callable[[str], bytes]) -> dict[str, TableFormat]:
    """Return the folders in which a Databricks transaction has not ended, or has replaced files.

    If every transaction of a folder is committed and replaced nothing, the folder is plain Parquet. ``content`` reads a
    file. A commit that is not a JSON object with ``added`` and ``removed`` is treated as one that has replaced files.
    """
    started: dict[str, set[str]] = {}
    committed: dict[str, dict[str, str]] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        match = _COMMIT.fullmatch(last)
        if match is None:
            continue
        if match[1] == "started":
            started.setdefault(folder, set()).add(match[2])
        else:
            committed.setdefault(folder, {})[match[2]] = name
    return {
        folder: COMMITS
        for folder in {*started, *committed}
        # The files of a transaction that has not ended exist, but do not count yet.
        if started.get(folder, set()) - committed.get(folder, {}).keys()
        or any(_replaces(content(name)) for name in committed.get(folder, {}).values())
    }


def _replaces(data: bytes) -> bool:
    # A commit that is too large or malformed is treated as one that replaces files. Then the dump is refused, and no
    # deleted row comes back.
    if len(data) > _MOST_COMMIT_BYTES:
        return True
    try:
        commit = parse_json(data)
    except MalformedBytesError:
        return True
    return not isinstance(commit, dict) or "added" not in commit or commit.get("removed") != []


def format_of_file(schema: pa.Schema, keys: Iterable[bytes]) -> TableFormat | None:
    """Return the format whose files have such columns, or such ``keys`` in their footers."""
    for name, format_ in _COLUMNS.items():
        if name in schema.names:
            return format_
    return next((_FOOTER_KEYS[key] for key in keys if key in _FOOTER_KEYS), None)


@dataclass(frozen=True, slots=True)
class EnclosingTables:
    """The tables in folders above a dump, as far as these folders can be read."""

    tables: Mapping[str, TableFormat]
    """Folders of tables, by their path in the file system."""
    unreadable: Sequence[str]
    """Folders that cannot be listed, so that it is unknown whether they belong to a table."""


def tables_above(filesystem: FileSystem, root: str, *, local: bool) -> EnclosingTables:
    """Return the tables whose folders contain the dump at ``root``, also those above its real path."""
    tables: dict[str, TableFormat] = {}
    unreadable: list[str] = []
    roots = [root.rstrip("/")]
    if local:
        # A link may lead into the folder of a table, which only the real path shows.
        roots.append(os.path.realpath(root))
    for path in dict.fromkeys(roots):
        parts = path.split("/")
        _add_markers(parts, tables)
        for end in range(len(parts) - 1, 0, -1):
            folder = "/".join(parts[:end])
            if folder:
                _add_folder(filesystem, folder, tables, unreadable)
    return EnclosingTables(tables, unreadable)


def _add_folder(filesystem: FileSystem, folder: str, tables: dict[str, TableFormat], unreadable: list[str]) -> None:
    """Add a folder to ``tables`` if it belongs to a table, or to ``unreadable`` if it cannot be listed."""
    from pyarrow import fs

    markers = {**_MARKERS, **_PARTITION_MARKERS}
    try:
        for entry in filesystem.get_file_info([f"{folder}/{name}" for name in markers]):
            if entry.type != fs.FileType.NotFound:
                tables.setdefault(folder, markers[entry.base_name])
    except OSError:
        unreadable.append(folder)
        return
    for name, (pattern, format_) in _LOG_FILES.items():
        try:
            entries = filesystem.get_file_info(fs.FileSelector(f"{folder}/{name}", allow_not_found=True))
        # A file has the name of a log's folder, so there is no log.
        except NotADirectoryError:
            continue
        except OSError:
            unreadable.append(f"{folder}/{name}")
            continue
        if any(pattern.fullmatch(entry.base_name) for entry in entries):
            tables.setdefault(folder, format_)


def table_refusal(
    tables: Mapping[str, TableFormat], place: Callable[[str], str], copy: Callable[[str], str]
) -> DumpError:
    """Return the refusal of these tables; ``place`` returns a folder's path, ``copy`` the path of its plain copy."""
    folders = sorted(tables)
    formats = list(dict.fromkeys(tables[folder].name for folder in folders))
    places = some([place(folder) for folder in folders], _MOST_NAMES)
    kind = " or ".join(formats)
    are = f"are tables ({kind})"
    if len(folders) == 1:
        are = f"is a table ({kind})"
    below = any(copy(folder) != "COPY" for folder in folders)
    lines = [
        line.format(table=place(folder), copy=copy(folder))
        for folder in folders[:_MOST_NAMES]
        if (line := tables[folder].example) is not None
    ]
    hint = (
        "with a reader for that format, write the current rows as plain Parquet to a new folder. Then pass this folder"
    )
    if below:
        hint += ". Also copy the rest of the dump to this folder"
    if lines:
        hint += ", for example:"
    return DumpError(
        f"{places} {are}. Only the table's log shows which files belong to it",
        hint=hint,
        hint_details=lines,
    )


def file_refusal(path: str, format_: TableFormat) -> DumpError:
    """Return the refusal of a file of a table whose log is elsewhere."""
    return DumpError(
        f"the file belongs to a table ({format_.name}). Only the table's log shows which files belong to it",
        where=printable(path),
        hint=(
            "with a reader for that format, write the table's current rows as plain Parquet to a new folder. Then "
            "pass this folder"
        ),
    )

"""Databases whose SSTs are in other folders: `setDbPaths` and `setCfPaths` of a `RocksDBConfigSetter`.

No file of a database names these folders. The MANIFEST has a path id for each SST, its place in their list: 0 for each
SST of an application that sets one folder, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.manifest import live_tables, may_have_paths
from kstate_cli.regular_files import MOST_MANIFEST_BYTES, MOST_NAME_BYTES, read_small
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.files import CURRENT, sst_number
from kstate_cli.rocks.messages import RocksCode, RocksMessage


def require_own_folder(copy: Path) -> None:
    """Raise RocksError (``OTHER_FOLDERS``) if SSTs of a database have a path id above 0. ``copy`` is its private copy.

    RocksDB looks up each path id in its list of folders, and does so without a check: kstate, which has no such list,
    never opens such a database. What is wrong with CURRENT or the MANIFEST otherwise is left to RocksDB.
    """
    manifest = _manifest(copy)
    if not may_have_paths(manifest):
        return
    paths = [path for tables in _tables(manifest).values() for path in tables.values()]
    if elsewhere := sum(path > 0 for path in paths):
        raise RocksError(
            f"the application stores {elsewhere} of {len(paths)} SSTs in other folders (setDbPaths or setCfPaths in "
            "its rocksdb.config.setter); no file of the database names them",
            RocksMessage(RocksCode.OTHER_FOLDERS, None),
        )


def family_without_ssts(copy: Path) -> RocksError | None:
    """Return the error (``NO_SSTS``) for a database that lacks every SST of a column family, None for any other."""
    present = {number for entry in copy.iterdir() if (number := sst_number(entry.name)) is not None}
    for tables in _tables(_manifest(copy)).values():
        if tables and present.isdisjoint(tables):
            return RocksError(f"a column family: {no_ssts(len(tables))}", RocksMessage(RocksCode.NO_SSTS, None))
    return None


def no_ssts(count: int) -> str:
    """Return what it means that none of the SSTs of a column family exists in the directory of the database."""
    return (
        f"no SST of it is here, the MANIFEST names {count}: either they were removed, or the application stores them "
        "in other folders (setDbPaths or setCfPaths in its rocksdb.config.setter)"
    )


def _manifest(copy: Path) -> bytes:
    try:
        name = read_small(copy / CURRENT, MOST_NAME_BYTES).decode("ascii").strip()
        return read_small(copy / Path(name).name, MOST_MANIFEST_BYTES)
    except (OSError, ValueError):
        return b""


def _tables(manifest: bytes) -> Mapping[int, Mapping[int, int]]:
    try:
        return live_tables(manifest)
    except MalformedBytesError:
        return {}

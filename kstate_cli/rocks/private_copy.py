"""A private copy of a database: a folder with links to its SSTs and copies of its small files.

The folder is in memory if there is space. Nothing in it has to outlive the process, and RocksDB waits for the disk many
times while it opens, edits and closes a database.

The SSTs of a database may be in other folders: ``setDbPaths`` and ``setCfPaths`` of a ``RocksDBConfigSetter``. No file
of the database names these folders. The MANIFEST has a path id for each SST, its index in their list: 0 for each SST of
an application that sets one folder, or none.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from kstate_cli import temporary
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.formats.manifest import live_tables, may_have_paths
from kstate_cli.host import FULL, HostError, shortage
from kstate_cli.regular_files import MOST_MANIFEST_BYTES, MOST_NAME_BYTES, open_regular, read_small, require_regular
from kstate_cli.rocks.errors import RocksCode, RocksError, RocksMessage
from kstate_cli.rocks.files import CURRENT, check_size, is_never_changed, newest_options, sst_number

_WRITABLE = re.compile(rf"{CURRENT}|MANIFEST-[0-9]+|OPTIONS-[0-9]+|IDENTITY|[0-9]+\.log")
"""The files that a writable open needs. RocksDB replaces and removes them, so they are copied, never linked."""
_READ = re.compile(rf"{CURRENT}|MANIFEST-[0-9]+|[0-9]+\.log")
"""The files that a read-only open needs."""
_PIECE = 1 << 20
"""Bytes that are copied at once."""


def private_copy(path: Path, *, writable: bool) -> Path:
    """Create a folder that RocksDB can open in place of the database in ``path``; :func:`remove_copy` removes it.

    Raise HostError for a fault of this host, NotReadableError for a file that is irregular or far too large to be
    RocksDB's, FileNotFoundError if a running application removes a file meanwhile, and other OSErrors.
    """
    with os.scandir(path) as entries:
        # CURRENT first: the MANIFEST that it names is then at least as new.
        ordered = sorted(entries, key=lambda entry: (entry.name != CURRENT, entry.name))
    copied = _WRITABLE if writable else _READ
    small = [entry.name for entry in ordered if copied.fullmatch(entry.name)]
    options = newest_options(path)
    if options is not None:
        # RocksDB reads the newest only, and would delete the older ones.
        small = [name for name in small if not name.startswith("OPTIONS-") or name == options.name]
    size = sum(_size(f"{path}/{name}") for name in small)
    folder = temporary.new_path("shadow", temporary.in_memory(size))
    try:
        with in_temporary(folder):
            os.mkdir(folder, 0o700)
        for name in small:
            with os.fdopen(open_regular(f"{path}/{name}"), "rb") as source:
                _copy(source, folder, name)
        real = path.absolute()
        for entry in ordered:
            if is_never_changed(entry.name):
                if not entry.is_file():
                    # RocksDB would wait for a FIFO.
                    require_regular(os.stat(entry.path), entry.path)
                with in_temporary(folder):
                    os.symlink(f"{real}/{entry.name}", f"{folder}/{entry.name}")
    except BaseException:
        remove_copy(folder)
        raise
    return folder


def _copy(source: BinaryIO, folder: Path, name: str) -> None:
    with in_temporary(folder):
        target = open(folder / name, "xb", buffering=0)  # noqa: SIM115
    with target:
        while piece := memoryview(source.read(_PIECE)):
            while piece:
                with in_temporary(folder):
                    piece = piece[target.write(piece) :]


@contextlib.contextmanager
def in_temporary(folder: Path) -> Iterator[None]:
    """Raise HostError for an OSError of the block: the folder for temporary files is at fault, not the database."""
    try:
        yield
    except OSError as error:
        if (short := shortage(error)) is not None:
            raise short from error
        raise HostError(
            f"{folder.parent}, the folder for temporary files, cannot be used: {error.strerror}",
            hint="free space there, or name another folder with TMPDIR, and run the command again"
            if error.errno in FULL
            else "name another folder with TMPDIR, and run the command again",
        ) from error


def _size(path: str) -> int:
    status = os.stat(path, follow_symlinks=False)
    if (error := check_size(path, status)) is not None:
        raise error
    return status.st_size


def remove_copy(folder: Path) -> None:
    """Remove a folder of :func:`private_copy`."""
    shutil.rmtree(folder, ignore_errors=True)


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

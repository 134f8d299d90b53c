"""Read a RocksDB without changing it: through a private directory of links to the SSTs and copies of the small files.

Even a read-only open writes to its directory (rocksdict leaves a file there), so it opens a private one. The private
folder is in memory if there is space. It does not outlive the process, and on a disk RocksDB would wait many times
while it opens, edits and closes a database.
folder is in memory if there is space. Nothing in it has to outlive the process, and RocksDB waits for the disk many
times while it opens, edits and closes a database.

The SSTs of a database may be in other folders, which a ``RocksDBConfigSetter`` sets with ``setDbPaths`` and
``setCfPaths``. No file of the database names these folders. The MANIFEST has a path id for each SST, which is the index
of its folder in that list. The id is 0 for each SST if the application sets one folder, or none.
of the database names these folders. The MANIFEST has a path id for each SST, its index in their list: 0 for each SST of
an application that sets one folder, or none.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from kstate_cli import temporary
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.metadata_files import live_tables, may_have_paths
from kstate_cli.host import FULL, READING_THREADS, HostError, require_headroom, shortage
from kstate_cli.limits import MOST_MANIFEST_BYTES, MOST_NAME_BYTES
from kstate_cli.regular_files import open_regular, read_small, require_regular
from kstate_cli.rocks.errors import RocksCode, RocksError, RocksMessage, real
from kstate_cli.rocks.files import (
    CURRENT,
    blob_files,
    check_size,
    is_never_changed,
    most_levels,
    newest_options,
    sst_number,
    tables,
)
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, Row, flat_pieces, pieces

if TYPE_CHECKING:
    from rocksdict import Options, Rdict


Piece = TypeVar("Piece")
_ATTEMPTS = 5
_VANISHED = frozenset({RocksCode.MISSING, RocksCode.NO_SSTS})
_ENTRIES = re.compile(r"# entries=(\d+)")
_DELETIONS = re.compile(r"# deletions=(\d+)")


@dataclass(frozen=True, slots=True)
class LiveFile:
    """An SST or blob file in the current version of a column family; ``size`` in bytes."""

    name: str
    size: int


class Shadow:
    """A database that is opened read-only through a private copy. A context manager.

    Raises RocksError if RocksDB refuses the database, HostError for a fault of this host, and FileNotFoundError if
    files keep vanishing because a running application compacts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._private: Path | None = None
        self._db: Rdict | None = None
        self._families: dict[str, Rdict] = {}
        self.column_families: tuple[str, ...] = ()

    def __enter__(self) -> Shadow:
        require_headroom(READING_THREADS)
        for attempt in range(_ATTEMPTS):
            try:
                self._open()
                return self
            except BaseException as error:
                self.close()
                if not isinstance(error, (FileNotFoundError, RocksError)):
                    raise
                # A running application may remove a file between the copy and the open. Then the copy is made again.
                vanished = isinstance(error, FileNotFoundError) or error.code in _VANISHED
                if not vanished or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        """Open the copy, with all column families, for reading. Raise FileNotFoundError, OSError and RocksError."""
        from rocksdict import AccessType, Options, Rdict

        self._private = private_copy(self.path, writable=False)
        # Checked before the open: RocksDB would use a path id as an index of its list of folders without a check.
        require_own_folder(self._private)
        private, levels = str(self._private), most_levels(self.path)
        try:
            self.column_families = tuple(sorted(Rdict.list_cf(private, Options(raw_mode=True))))
            self._db = Rdict(
                private,
                shadow_options(levels),
                column_families={name: shadow_options(levels) for name in self.column_families},
                access_type=AccessType.read_only(False),
            )
            self._families = {name: self._db.get_column_family(name) for name in self.column_families}
        except Exception as error:
            raise self._real(error) from None

    def close(self) -> None:
        """Close the database and remove the private directory.

        The families go first: rocksdict closes no database while an object of one of its families lives.
        """
        self._families.clear()
        database, self._db = self._db, None
        private, self._private = self._private, None
        try:
            if database is not None:
                database.close()
        except Exception:
            pass  # the database was opened for reading, so nothing is lost
        finally:
            if private is not None:
                remove_copy(private)

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row of a column family in key order.

        Raises RocksError at a block that cannot be read: the plain iterators of rocksdict would end silently there.
        """
        iterator = self._families[family].iter()
        try:
            iterator.seek_to_first()
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()
        except Exception as error:
            raise self._real(error) from None

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key, None without one. Raises RocksError where it cannot be read."""
        try:
            value: bytes | None = self._families[family].get(key)
        except Exception as error:
            raise self._real(error) from None
        return value

    def scan(
        self, family: str, lower: bytes | None = None, below: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Return the rows with ``lower <= key < below`` in the order of keys, or against it; None leaves an end open.

        Raises RocksError at a block that cannot be read. Several times as fast as :meth:`rows`.
        """
        return chain.from_iterable(self._translated(pieces(self._families[family], lower, below, reverse=reverse)))

    def flat(self, family: str, lower: bytes | None, below: bytes | None, sizes: PieceSizes) -> Iterator[FlatPiece]:
        """Yield rows as :meth:`scan`, forwards, many at once."""
        return self._translated(flat_pieces(self._families[family], lower, below, sizes))

    def _translated(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Yield the pieces; their errors become errors about the real directory."""
        try:
            yield from pieces
        except Exception as error:
            raise self._real(error) from None

    def last_row(self, family: str) -> tuple[bytes, bytes] | None:
        """Return the row with the greatest key; None if the column family is empty."""
        iterator = self._families[family].iter()
        try:
            iterator.seek_to_last()
            row = None
            if iterator.valid():
                row = iterator.key(), iterator.value()
            # An iterator is also invalid after a block that it cannot read. Without this call the family would look
            # empty.
            iterator.status()
        except Exception as error:
            raise self._real(error) from None
        return row

    def estimated_rows(self, family: str) -> int:
        """Return an estimate of the number of keys, from the properties of SSTs; an overwritten key may count twice.

        RocksDB's own estimate is 0 if it has not read every file for statistics (see :func:`shadow_options`).
        """
        text = self.table_properties(family)
        entries, deletions = _ENTRIES.search(text), _DELETIONS.search(text)
        # RocksDB has read the rows of a write-ahead log into memory.
        logged = self._families[family].property_int_value("rocksdb.num-entries-active-mem-table") or 0
        if entries is None or deletions is None:
            return logged
        # A deletion is an entry itself, and hides another one. So it counts twice.
        return max(0, int(entries[1]) - 2 * int(deletions[1])) + logged

    def live_files(self, family: str) -> tuple[LiveFile, ...]:
        """Return the SSTs and blob files of a column family (property ``rocksdb.sstables``), sorted by name."""
        text = self.sstables(family)
        files = [LiveFile(table.name, table.size) for table in tables(text)]
        files += [LiveFile(blob.name, blob.size) for blob in blob_files(text)]
        return tuple(sorted(files, key=lambda file: file.name))

    def sstables(self, family: str) -> str:
        """Return RocksDB's text about the SSTs of a column family: number, size, first and last key of each."""
        return self._families[family].property_value("rocksdb.sstables") or ""

    def table_properties(self, family: str) -> str:
        """Return RocksDB's aggregated table properties of a column family, as text."""
        return self._families[family].property_value("rocksdb.aggregated-table-properties") or ""

    def _real(self, error: Exception) -> RocksError | HostError:
        """Return the error, its paths those of the real directory; HostError where it is none of the database's."""
        private, writes_in = self._private or self.path, ""
        if self._private:
            writes_in = str(private.parent)
        translated = real(error, str(private), str(self.path), writes_in)
        if self._private is None or not isinstance(translated, RocksError) or translated.code is not RocksCode.MISSING:
            return translated
        return family_without_ssts(self._private) or translated


def shadow_options(levels: int) -> Options:
    """Return options to read a database with at most ``levels`` levels for a short time.

    RocksDB starts no thread pool to open files, and reads no file for statistics.
    """
    from rocksdict import Options

    options = Options(raw_mode=True)
    options.set_max_file_opening_threads(1)
    options.set_max_open_files(64)
    options.set_skip_stats_update_on_db_open(True)
    options.set_num_levels(levels)
    return options


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
        # CURRENT is copied first, so that the copied MANIFEST has at least the state that CURRENT refers to.
        ordered = sorted(entries, key=lambda entry: (entry.name != CURRENT, entry.name))
    copied = _READ
    if writable:
        copied = _WRITABLE
    small = [entry.name for entry in ordered if copied.fullmatch(entry.name)]
    options = newest_options(path)
    if options is not None:
        # RocksDB reads only the newest OPTIONS file, and would delete the older ones.
        small = [name for name in small if not name.startswith("OPTIONS-") or name == options.name]
    # The size is computed before the folder is created: the folder is in memory only if all of it fits.
    size = sum(_size(f"{path}/{name}") for name in small)
    folder = temporary.new_path("shadow", temporary.in_memory(size))
    try:
        with in_temporary(folder):
            # Mode 0700: only the owner may read the rows of a store, but every user may read the folder for temporary
            # files.
            os.mkdir(folder, 0o700)
        for name in small:
            with os.fdopen(open_regular(f"{path}/{name}"), "rb") as source:
                _copy(source, folder, name)
        real = path.absolute()
        for entry in ordered:
            if is_never_changed(entry.name):
                if not entry.is_file():
                    # RocksDB would wait at a FIFO.
                    require_regular(os.stat(entry.path), entry.path)
                # A link is enough, because RocksDB never changes an SST.
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
        hint = "set TMPDIR to another folder, then run the command again"
        if error.errno in FULL:
            hint = f"free disk space there or {hint}"
        raise HostError(
            f"kstate cannot use {folder.parent}, the folder for temporary files: {error.strerror}", hint=hint
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
    """Raise RocksError (``OTHER_FOLDERS``) if SSTs of a database have a path id above 0; ``copy`` is its private copy.

    RocksDB looks up each path id in its list of folders without a check. kstate has no such list, so it never opens
    such a database. Other defects of CURRENT and the MANIFEST are left to RocksDB.
    """
    # The MANIFEST of the copy, because RocksDB will read this one. The original may change meanwhile.
    manifest = _manifest(copy)
    # The usual case, which is decided without decoding the MANIFEST.
    if not may_have_paths(manifest):
        return
    paths = [path for ssts in _tables(manifest).values() for path in ssts.values()]
    if elsewhere := sum(path > 0 for path in paths):
        raise RocksError(
            (
                f"the application keeps {elsewhere} of {len(paths)} SSTs in other folders (setDbPaths or setCfPaths "
                "in its rocksdb.config.setter), and the database's files do not name these folders"
            ),
            RocksMessage(RocksCode.OTHER_FOLDERS, None),
        )


def family_without_ssts(copy: Path) -> RocksError | None:
    """Return the error (``NO_SSTS``) for a database that lacks every SST of a column family, None for any other."""
    present = {number for entry in copy.iterdir() if (number := sst_number(entry.name)) is not None}
    for ssts in _tables(_manifest(copy)).values():
        if ssts and present.isdisjoint(ssts):
            return RocksError(f"in a column family, {no_ssts(len(ssts))}", RocksMessage(RocksCode.NO_SSTS, None))
    return None


def no_ssts(count: int) -> str:
    """Return what it means that none of the SSTs of a column family exists in the directory of the database."""
    return (
        f"none of the {count} SSTs that the MANIFEST lists is in this directory. Either they were removed, or the "
        "application keeps them in other folders (setDbPaths or setCfPaths in its rocksdb.config.setter)"
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

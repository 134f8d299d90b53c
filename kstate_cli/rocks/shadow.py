"""Read a RocksDB without changing it: through a private directory of links to the SSTs and copies of the small files.

Even a read-only open writes to its directory (rocksdict leaves a file there), so it opens the private one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from kstate_cli.host import READING_THREADS, HostError, require_headroom
from kstate_cli.rocks.errors import RocksCode, RocksError, real
from kstate_cli.rocks.files import most_levels
from kstate_cli.rocks.private_copy import family_without_ssts, private_copy, remove_copy, require_own_folder
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, Row, flat_pieces, pieces
from kstate_cli.rocks.tables import blob_files, tables

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

Piece = TypeVar("Piece")
_ATTEMPTS = 5
_VANISHED = frozenset({RocksCode.MISSING, RocksCode.NO_SSTS})
_ENTRIES = re.compile(r"# entries=(\d+)")
_DELETIONS = re.compile(r"# deletions=(\d+)")


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One SST or blob file that the current version of a column family consists of; size in bytes."""

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
                # While the application is running, a file may vanish between the copy and the open: copy again.
                vanished = isinstance(error, FileNotFoundError) or error.code in _VANISHED
                if not vanished or attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        from rocksdict import AccessType, Options, Rdict

        self._private = private_copy(self.path, writable=False)
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
            pass  # it was opened for reading: nothing is lost
        finally:
            if private is not None:
                remove_copy(private)

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Every row of a column family in key order.

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
        """The value of a key, None without one. Raises RocksError where it cannot be read."""
        try:
            value: bytes | None = self._families[family].get(key)
        except Exception as error:
            raise self._real(error) from None
        return value

    def scan(
        self, family: str, lower: bytes | None = None, below: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[Row]:
        """Rows with ``lower <= key < below`` in the order of their keys, or against it; None leaves an end open.

        Raises RocksError at a block that cannot be read. Several times as fast as :meth:`rows`.
        """
        return chain.from_iterable(self._translated(pieces(self._families[family], lower, below, reverse=reverse)))

    def flat(self, family: str, lower: bytes | None, below: bytes | None, sizes: PieceSizes) -> Iterator[FlatPiece]:
        """As :meth:`scan`, forwards, for whoever takes many rows at once."""
        return self._translated(flat_pieces(self._families[family], lower, below, sizes))

    def _translated(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Yield the pieces; their errors become errors about the real directory."""
        try:
            yield from pieces
        except Exception as error:
            raise self._real(error) from None

    def last_row(self, family: str) -> tuple[bytes, bytes] | None:
        """The row with the greatest key, or None in an empty column family."""
        iterator = self._families[family].iter()
        try:
            iterator.seek_to_last()
            row = (iterator.key(), iterator.value()) if iterator.valid() else None
            iterator.status()
        except Exception as error:
            raise self._real(error) from None
        return row

    def estimated_rows(self, family: str) -> int:
        """About the number of keys, by the properties of the SSTs: a key that was overwritten may count twice.

        RocksDB's own estimate is 0 where it has not looked at every file for statistics (:func:`shadow_options`).
        """
        text = self.table_properties(family)
        entries, deletions = _ENTRIES.search(text), _DELETIONS.search(text)
        # What a write-ahead log holds is in memory now.
        logged = self._families[family].property_int_value("rocksdb.num-entries-active-mem-table") or 0
        if entries is None or deletions is None:
            return logged
        # A deletion is an entry, and hides another one.
        return max(0, int(entries[1]) - 2 * int(deletions[1])) + logged

    def live_files(self, family: str) -> tuple[LiveFile, ...]:
        """The SSTs and blob files of a column family (property ``rocksdb.sstables``), sorted by name."""
        text = self.sstables(family)
        files = [LiveFile(table.name, table.size) for table in tables(text)]
        files += [LiveFile(blob.name, blob.size) for blob in blob_files(text)]
        return tuple(sorted(files, key=lambda file: file.name))

    def sstables(self, family: str) -> str:
        """RocksDB's text about the SSTs of a column family: number, size, first and last key of each."""
        return self._families[family].property_value("rocksdb.sstables") or ""

    def table_properties(self, family: str) -> str:
        """RocksDB's aggregated table properties of a column family, as text."""
        return self._families[family].property_value("rocksdb.aggregated-table-properties") or ""

    def _real(self, error: Exception) -> RocksError | HostError:
        """The error, its paths those of the real directory; HostError where it is none of the database's."""
        private = self._private or self.path
        writes_in = str(private.parent) if self._private else ""
        translated = real(error, str(private), str(self.path), writes_in)
        if self._private is None or not isinstance(translated, RocksError) or translated.code is not RocksCode.MISSING:
            return translated
        return family_without_ssts(self._private) or translated


def shadow_options(levels: int) -> Options:
    """Return options for a short read of a database that has ``levels`` at most.

    RocksDB starts no thread pool to open files, and reads no file for statistics.
    """
    from rocksdict import Options

    options = Options(raw_mode=True)
    options.set_max_file_opening_threads(1)
    options.set_max_open_files(64)
    options.set_skip_stats_update_on_db_open(True)
    options.set_num_levels(levels)
    return options

"""Writing to one *staged* RocksDB with the options that it was stored with. Nothing else opens a database for writing.

Automatic compaction is off while kstate holds a database: SSTs must stay the very files that were linked. The OPTIONS
file is put back afterwards, so that what differs is only what was asked for.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kstate_cli.formats.options_file import restore_settings
from kstate_cli.rocks.shadow import RocksError

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteOptions

_CONFIG = "rocksdict-config.json"
_BATCH_ROWS = 5_000
_FORMAT_KEYS = frozenset({"format_version", "checksum"})


class WritableStore:
    """One database, open for writing. A context manager: leaving it closes, and raises RocksError when that fails."""

    def __init__(self, path: Path, *, options_file: Path | None) -> None:
        self.path = path
        self._had_config = (path / _CONFIG).exists()
        self._before = options_file.read_text(encoding="utf-8") if options_file else None
        self._keep_new: frozenset[str] = frozenset()
        self._db: Rdict | None = None

    def __enter__(self) -> WritableStore:
        from rocksdict import Env, Options, Rdict

        try:
            if self._before is None:
                self._db = Rdict(str(self.path), _new_database_options())
            else:
                # Leniently: newer releases of RocksDB store options that the bundled one does not know.
                options, families = Options.load_latest(str(self.path), Env(), True)
                for one in families.values():
                    one.set_disable_auto_compactions(True)
                    # With it RocksDB leaves the filter out of the bottommost level, where a rewrite puts everything.
                    one.set_optimize_filters_for_hits(False)
                self._db = Rdict(str(self.path), options, column_families=families)
        except Exception as error:
            raise RocksError(str(error)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(Exception):
                self.close()

    @property
    def _open(self) -> Rdict:
        assert self._db is not None, "the database is not open"
        return self._db

    def drop(self, family: str) -> None:
        """Drops a column family; its SSTs leave when RocksDB next looks for obsolete files."""
        with _as_rocks_error():
            self._open.drop_column_family(family)

    def set_offsets(self, family: str, rows: Mapping[bytes, bytes], *, exists: bool) -> None:
        """Makes ``rows`` the whole content of the column family ``offsets``, created when it is missing."""
        with _as_rocks_error():
            handle = (
                self._open.get_column_family(family)
                if exists
                else self._open.create_column_family(family, _offsets_options())
            )
            stale = []
            iterator = handle.iter()
            iterator.seek_to_first()
            while iterator.valid():
                if iterator.key() not in rows:
                    stale.append(iterator.key())
                iterator.next()
            iterator.status()
            del iterator
            for key in stale:
                handle.delete(key, _no_wal())
            for key, value in sorted(rows.items()):
                handle.put(key, value, _no_wal())
            handle.flush()

    def put_rows(self, family: str, rows: Iterable[tuple[bytes, bytes]]) -> int:
        """Writes rows into an existing column family, or one made like ``default``; returns how many."""
        from rocksdict import WriteBatch

        written = 0
        with _as_rocks_error():
            handle = self._open.get_column_family(family)
            target = self._open.get_column_family_handle(family)
            batch = WriteBatch(raw_mode=True)
            for key, value in rows:
                batch.put(key, value, target)
                written += 1
                if written % _BATCH_ROWS == 0:
                    self._open.write(batch, _no_wal())
                    batch = WriteBatch(raw_mode=True)
            self._open.write(batch, _no_wal())
            handle.flush()
        return written

    def create_like(self, family: str, options: Options | None = None) -> None:
        """Creates a data column family (``keyValueWithTimestamp`` of a store that had none)."""
        with _as_rocks_error():
            self._open.create_column_family(family, options or _data_options())

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Every row in key order; raises RocksError at a block that cannot be read."""
        with _as_rocks_error():
            iterator = self._open.get_column_family(family).iter()
            iterator.seek_to_first()
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()

    def rewrite(self, families: Iterable[str], sst_format: int) -> Iterator[str]:
        """Rewrites every SST of these column families with another format_version and CRC32c; yields each when done.

        RocksDB's own compaction does it, forced to the bottommost level, with its own check of what it wrote
        (``paranoid_file_checks``). Only what is named changes in the table options: the filter stays.
        """
        from rocksdict import BottommostLevelCompaction, CompactOptions

        self._keep_new = _FORMAT_KEYS
        table = f"{{format_version={sst_format};checksum=kCRC32c}}"
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        for name in families:
            with _as_rocks_error():
                handle = self._open.get_column_family(name)
                handle.set_options({"block_based_table_factory": table, "paranoid_file_checks": "true"})
                handle.compact_range(None, None, options)
                failures = handle.property_int_value("rocksdb.background-errors") or 0
            if failures:
                # compact_range itself swallows what went wrong; closing names it, with the file.
                self.close()
                raise RocksError(f"the compaction of column family {name} failed")
            yield name

    def close(self) -> None:
        """Closes the database and puts the OPTIONS file back. Raises RocksError with what RocksDB says."""
        if self._db is None:
            return
        database, self._db = self._db, None
        try:
            with _as_rocks_error():
                database.close()
        finally:
            del database
            if not self._had_config:
                (self.path / _CONFIG).unlink(missing_ok=True)
        if self._before is not None:
            newest = _newest_options(self.path)
            text = newest.read_text(encoding="utf-8")
            newest.write_text(restore_settings(self._before, text, self._keep_new), encoding="utf-8")


@contextlib.contextmanager
def _as_rocks_error() -> Iterator[None]:
    """rocksdict raises bare Exceptions; they become RocksError with RocksDB's own words."""
    try:
        yield
    except (RocksError, GeneratorExit, OSError):
        raise
    except Exception as error:
        raise RocksError(str(error).strip() or type(error).__name__) from None


def _newest_options(path: Path) -> Path:
    return path / max(
        (name for name in os.listdir(path) if name.startswith("OPTIONS-") and name[8:].isdigit()),
        key=lambda n: int(n[8:]),
    )


def _no_wal() -> WriteOptions:
    """Streams never writes a WAL either; every write here is flushed before the database is closed."""
    from rocksdict import WriteOptions

    options = WriteOptions()
    # A property at run time, which the stubs of rocksdict call a method.
    options.disable_wal = True  # type: ignore[method-assign,assignment]
    return options


def _data_options() -> Options:
    """A data column family as Streams makes it: universal compaction, no compression, 10-bit bloom filter."""
    from rocksdict import BlockBasedOptions, DBCompactionStyle, DBCompressionType, Options

    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_size(4096)
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.none())
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_write_buffer_size(16 * 1024 * 1024)
    options.set_max_write_buffer_number(3)
    options.set_disable_auto_compactions(True)
    return options


def _new_database_options() -> Options:
    options = _data_options()
    options.create_if_missing(True)
    options.set_atomic_flush(True)
    return options


def _offsets_options() -> Options:
    """The ``offsets`` column family as ``RocksDBStore.offsetsCFOptions`` makes it: no compression, 1 MiB buffer."""
    from rocksdict import DBCompressionType, Options

    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_write_buffer_size(1024 * 1024)
    return options

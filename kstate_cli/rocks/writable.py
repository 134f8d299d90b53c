"""Write to one *staged* RocksDB with its stored options. No other module opens a database for writing.

Automatic compaction is off while kstate has a database open, because linked SSTs must stay the same files. The OPTIONS
file is restored afterwards, except for settings that kstate was asked to change.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kstate_cli import temporary
from kstate_cli.formats.metadata_files import restore_settings
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.host import WRITING_THREADS, require_headroom
from kstate_cli.rocks.errors import RocksError, as_rocks_error
from kstate_cli.rocks.files import files_by_level, newest_options, unflushed_logs
from kstate_cli.rocks.settings import family_options, with_filter_bits, with_writing_settings

if TYPE_CHECKING:
    from rocksdict import Rdict, ReadOptions, WriteOptions

    from kstate_cli.releases import Release

_CONFIG = "rocksdict-config.json"
_LOG = "LOG"
_BATCH_ROWS = 5_000
"""Rows of a write batch, which is in memory twice: as a batch, and in the memtable."""
_MERGING = "rocksdb.num-running-compactions"
_LOOK_SECONDS = 0.01
_MOST_IDLE_LOOKS = 100
"""After so many checks (a second) without a merge, RocksDB does not start another one."""
_FORMAT_KEYS = frozenset({"format_version", "checksum"})


class WritableStore:
    """One database, open for writing.

    A context manager: its exit closes the database, and raises RocksError if that fails.

    No method uses the write-ahead log (Streams does not either): each of them leaves its rows in an SST.
    """

    def __init__(self, path: Path, release: Release | None = None) -> None:
        """Take ``release``: what a new column family looks like; without one none can be created."""
        self.path = path
        self._release = release
        self.column_families: frozenset[str] = frozenset()
        self._had_config = (path / _CONFIG).exists()
        self._before = ""
        self._had_log = (path / _LOG).exists()
        self._keep_new: frozenset[str] = frozenset()
        self._db: Rdict | None = None

    def __enter__(self) -> WritableStore:
        from rocksdict import Env, Options, Rdict

        require_headroom(WRITING_THREADS)
        with as_rocks_error():
            stored = newest_options(self.path)
            if stored is None:
                raise RocksError(f"{self.path} has no OPTIONS file")
            # The settings of the application, which close() restores. Streams does not read them from this file, but
            # kstate's next open and tools of RocksDB do.
            self._before = stored.read_text(encoding="utf-8")
            # A separate folder is necessary: RocksDB would read OPTIONS-000099.orig as an OPTIONS file too, and as the
            # newest one.
            with temporary.private_folder("options") as folder:
                (folder / stored.name).write_text(with_writing_settings(self._before), encoding="utf-8")
                # True ignores unknown options: newer releases of RocksDB store options that the bundled one does not
                # know.
                options, families = Options.load_latest(str(folder), Env(), True)
            # This database is a copy. Whatever folders its OPTIONS name, it must not write to those of the original.
            options.set_wal_dir(str(self.path))
            options.set_db_log_dir("")
            self.column_families = frozenset(families)
            self._db = Rdict(str(self.path), options, column_families=families)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # The error of the block is being raised, and says more than an error of closing.
            with contextlib.suppress(Exception):
                self.close()

    @property
    def _open(self) -> Rdict:
        assert self._db is not None, "the database is not open"
        return self._db

    def drop(self, family: str) -> None:
        """Drop a column family; its SSTs leave when RocksDB next looks for obsolete files."""
        with as_rocks_error():
            self._open.drop_column_family(family)
        self.column_families -= {family}

    def create(self, family: str) -> None:
        """Create a column family as the release makes one of this name. Raises RocksError."""
        if self._release is None:
            raise RocksError(f"column family {family} is missing, and kstate does not know for which release to add it")
        with as_rocks_error():
            options = family_options(family, self._release)
            # Set as for all families while kstate writes: no compaction may replace a linked SST.
            options.set_disable_auto_compactions(True)
            options.set_optimize_filters_for_hits(False)
            self._open.create_column_family(family, options)
        self.column_families |= {family}

    def set_offsets(self, rows: Mapping[bytes, bytes]) -> None:
        """Make ``rows`` the whole content of the column family ``offsets``, created if it is missing."""
        if OFFSETS_CF not in self.column_families:
            self.create(OFFSETS_CF)
        # Streams reads every row of this family. So an old row that stays would count as an offset of this store.
        stale = [key for key, _ in self.rows(OFFSETS_CF) if key not in rows]
        self.write_rows(OFFSETS_CF, [*((key, None) for key in stale), *sorted(rows.items())])

    def write_rows(self, family: str, rows: Iterable[tuple[bytes, bytes | None]]) -> int:
        """Put rows, delete those whose value is None, in this order, and flush; return how many there were."""
        from rocksdict import WriteBatch

        count = 0
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            target = self._open.get_column_family_handle(family)
            batch = WriteBatch(raw_mode=True)
            for key, value in rows:
                if value is None:
                    batch.delete(key, target)
                else:
                    batch.put(key, value, target)
                count += 1
                # A whole batch is in memory until it is written, so its size is limited.
                if count % _BATCH_ROWS == 0:
                    self._open.write(batch, _no_wal())
                    batch = WriteBatch(raw_mode=True)
            self._open.write(batch, _no_wal())
            # Flushed to an SST: without a write-ahead log, rows in a memtable are lost when the database is closed.
            handle.flush()
        return count

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield every row in key order; raises RocksError at a block that cannot be read."""
        with as_rocks_error():
            iterator = self._open.get_column_family(family).iter(_in_order())
            iterator.seek_to_first()
            while iterator.valid():
                yield iterator.key(), iterator.value()
                iterator.next()
            iterator.status()

    def ingest(self, family: str, layers: Iterable[Sequence[Path]], *, move: bool = False) -> None:
        """Ingest layers of SSTs, one after the other.

        A row of a later layer wins over those of earlier ones and of the database.

        Files of one layer have no key in common. ``move`` links files on the same file system; otherwise they are
        copied. A layer is ingested as a whole or not at all.
        """
        from rocksdict import IngestExternalFileOptions

        options = IngestExternalFileOptions()
        options.set_move_files(move)
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            for paths in layers:
                handle.ingest_external_file([str(path) for path in paths], options)

    def compact(self, family: str) -> None:
        """Compact a column family to the bottommost level, which also removes deletions and the rows that they delete.

        RocksDB reads the new files back (``paranoid_file_checks``).
        """
        from rocksdict import BottommostLevelCompaction, CompactOptions

        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            # A compaction deletes its input files. So the new files are read back first.
            handle.set_options({"paranoid_file_checks": "true"})
            handle.compact_range(None, None, options)
            failures = handle.property_int_value("rocksdb.background-errors") or 0
            # rocksdict closes no database while an object of one of its families exists.
            del handle
        if failures:
            # compact_range does not raise an error of the compaction. Closing the database does, with the name of the
            # file.
            self.close()
            raise RocksError(f"RocksDB failed to compact column family {family}")

    def overlapping(self, family: str) -> int:
        """Return in how many sorted files a read may have to look: all of the first level, one of each other."""
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            counts = files_by_level(handle.property_value("rocksdb.sstables") or "")
        return counts.get(0, 0) + sum(count > 0 for level, count in counts.items() if level)

    def merge_small(self, family: str, most: int) -> None:
        """Let RocksDB merge the files of its choice until at most ``most`` of them overlap. Raises RocksError.

        RocksDB chooses as in a running application: large files stay while there are few small ones. It reads the new
        files back (``paranoid_file_checks``).
        """
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            handle.set_options({"paranoid_file_checks": "true", "disable_auto_compactions": "false"})
            idle = 0
            while (overlapping := self.overlapping(family)) > most or handle.property_int_value(_MERGING):
                # Between two merges none is running for a moment. If RocksDB chooses no more files, all of them are
                # compacted below.
                idle += 1
                if handle.property_int_value(_MERGING):
                    idle = 0
                if idle > _MOST_IDLE_LOOKS:
                    break
                time.sleep(_LOOK_SECONDS)
            handle.set_options({"disable_auto_compactions": "true"})
            while handle.property_int_value(_MERGING):
                time.sleep(_LOOK_SECONDS)
            failures = handle.property_int_value("rocksdb.background-errors") or 0
            del handle  # rocksdict closes no database while this object exists
        if failures:
            self.close()
            raise RocksError(f"RocksDB failed to merge sorted files of column family {family}")
        if overlapping > most:
            self.compact(family)

    def rewrite(self, families: Iterable[str], sst_format: int) -> None:
        """Compact these column families into SSTs with another format_version and XXH3 (RocksDB 6.27 and later).

        Releases before 4.0 write CRC32c themselves, but can read both. The bundled RocksDB computes CRC32c without the
        processor's instruction for it, so writing and reading back would take half as long again.

        The other table options, such as the filter, do not change.
        """
        self._keep_new = _FORMAT_KEYS
        # This text changes two table options and keeps the others. A new table factory would have no filter.
        table = f"{{format_version={sst_format};checksum=kXXH3}}"
        for name in families:
            with as_rocks_error():
                self._open.get_column_family(name).set_options({"block_based_table_factory": table})
            self.compact(name)

    def close(self) -> None:
        """Close the database, restore the OPTIONS file, and check that all rows are in SSTs. Raises RocksError."""
        if self._db is None:
            return
        database, self._db = self._db, None
        try:
            with as_rocks_error():
                database.close()
        finally:
            # This was the last reference: only now RocksDB closes its files, so the directory can be cleaned up.
            del database
            if not self._had_config:
                remove_config(self.path)
            if not self._had_log:
                # The database had no LOG here: the application has it in another folder (db_log_dir).
                (self.path / _LOG).unlink(missing_ok=True)
        newest = newest_options(self.path)
        if newest is None:
            raise RocksError(f"{self.path} no longer has an OPTIONS file")
        text = newest.read_text(encoding="utf-8")
        newest.write_text(with_filter_bits(_restored(self._before, text, self._keep_new)), encoding="utf-8")
        # All rows were flushed. So if a log has bytes, a flush has failed without an error.
        logs = unflushed_logs(self.path)
        if logs:
            raise RocksError(f"{', '.join(logs)} still contains rows, so RocksDB did not flush the database")


_restored = lru_cache(maxsize=256)(restore_settings)
"""Cached, because stores of one kind have the same OPTIONS, and an application has few kinds."""


def remove_config(path: Path) -> None:
    """Remove the file that rocksdict leaves in every directory that it opens."""
    (path / _CONFIG).unlink(missing_ok=True)


def _in_order() -> ReadOptions:
    """Return options for reading all rows in key order, whatever prefix extractor a column family has."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    # If the application has a prefix extractor, RocksDB may otherwise skip rows with other prefixes.
    options.set_total_order_seek(True)
    return options


def _no_wal() -> WriteOptions:
    """Return options that do not use the write-ahead log: every write is flushed before the database is closed."""
    from rocksdict import WriteOptions

    options = WriteOptions()
    # At run time this is a property, although the type stubs of rocksdict declare a method.
    options.disable_wal = True  # type: ignore[method-assign,assignment]
    return options

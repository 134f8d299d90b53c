"""Writing to one *staged* RocksDB with the options that it was stored with. Nothing else opens a database for writing.

Automatic compaction is off while kstate holds a database: SSTs must stay the very files that were linked. The OPTIONS
file is put back afterwards, so that what differs is only what was asked for.
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
"""After a second without a merge RocksDB's picker is content."""
_FORMAT_KEYS = frozenset({"format_version", "checksum"})


class WritableStore:
    """One database, open for writing. A context manager: leaving it closes, and raises RocksError when that fails.

    Nothing goes through the write-ahead log (Streams does not use it either): every method leaves its rows in an SST.
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
            # The settings of the application, which close() puts back. Streams makes its options itself, but the next
            # open by kstate, and tools of RocksDB, go by this file.
            self._before = stored.read_text(encoding="utf-8")
            # In a folder of their own: RocksDB also reads OPTIONS-000099.orig as an OPTIONS file, and as the newest.
            with temporary.private_folder("options") as folder:
                (folder / stored.name).write_text(with_writing_settings(self._before), encoding="utf-8")
                # Leniently: newer releases of RocksDB store options that the bundled one does not know.
                options, families = Options.load_latest(str(folder), Env(), True)
            # Whatever OPTIONS names: what is open is a copy, which must not write to the original, nor beside it.
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
            # The error of the block is on its way, and says more than that of closing.
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
            raise RocksError(f"column family {family} is missing, and the release that it is for is unknown")
        with as_rocks_error():
            options = family_options(family, self._release)
            # As all families while kstate writes: no compaction may replace a linked SST.
            options.set_disable_auto_compactions(True)
            options.set_optimize_filters_for_hits(False)
            self._open.create_column_family(family, options)
        self.column_families |= {family}

    def set_offsets(self, rows: Mapping[bytes, bytes]) -> None:
        """Make ``rows`` the whole content of the column family ``offsets``, created if it is missing."""
        if OFFSETS_CF not in self.column_families:
            self.create(OFFSETS_CF)
        # Streams reads every row of this family: an old offset that stays would be one of this store.
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
                # A batch is in memory as a whole until it is written.
                if count % _BATCH_ROWS == 0:
                    self._open.write(batch, _no_wal())
                    batch = WriteBatch(raw_mode=True)
            self._open.write(batch, _no_wal())
            # To an SST: without a write-ahead log, rows in a memtable are lost when the database is closed.
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
        """Ingest layers of SSTs, one after another: a later one wins over those before it, and over the rows here.

        Files of one layer share no key. ``move`` takes the files themselves where they lie on the same file system;
        else they are copied. A layer is never half taken: all its files are there, with all their rows, or none.
        """
        from rocksdict import IngestExternalFileOptions

        options = IngestExternalFileOptions()
        options.set_move_files(move)
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            for paths in layers:
                handle.ingest_external_file([str(path) for path in paths], options)

    def compact(self, family: str) -> None:
        """Merge everything in a column family to the bottommost level, where deletions leave with what they delete.

        RocksDB reads back what it has written (``paranoid_file_checks``).
        """
        from rocksdict import BottommostLevelCompaction, CompactOptions

        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            # A compaction deletes what it has read: so what it has written is read back first.
            handle.set_options({"paranoid_file_checks": "true"})
            handle.compact_range(None, None, options)
            failures = handle.property_int_value("rocksdb.background-errors") or 0
            # rocksdict closes no database while an object of one of its families lives.
            del handle
        if failures:
            # compact_range itself swallows what went wrong; closing names it, with the file.
            self.close()
            raise RocksError(f"the compaction of column family {family} failed")

    def overlapping(self, family: str) -> int:
        """Return in how many sorted files a read may have to look: all of the first level, one of each other."""
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            counts = files_by_level(handle.property_value("rocksdb.sstables") or "")
        return counts.get(0, 0) + sum(count > 0 for level, count in counts.items() if level)

    def merge_small(self, family: str, most: int) -> None:
        """Let RocksDB merge by its own choice until no more than ``most`` overlapping files are left.

        As beside a running application: large ones stay as they are while the small ones are few. RocksDB reads back
        what it has written (``paranoid_file_checks``). Raises RocksError.
        """
        with as_rocks_error():
            handle = self._open.get_column_family(family)
            handle.set_options({"paranoid_file_checks": "true", "disable_auto_compactions": "false"})
            idle = 0
            while (overlapping := self.overlapping(family)) > most or handle.property_int_value(_MERGING):
                # Between two merges nothing runs for a moment; what its picker leaves for good is merged whole below.
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
            del handle  # as in compact
        if failures:
            self.close()
            raise RocksError(f"merging sorted files of column family {family} failed")
        if overlapping > most:
            self.compact(family)

    def rewrite(self, families: Iterable[str], sst_format: int) -> None:
        """Compact these column families into SSTs of another format_version with XXH3 (RocksDB 6.27 and later).

        Releases before 4.0 write CRC32c themselves, and read either. The bundled RocksDB computes CRC32c without the
        processor's instruction for it: writing and reading back would take half as long again.

        Only what is named changes in the table options: the filter stays.
        """
        self._keep_new = _FORMAT_KEYS
        # The text form changes these two and keeps the rest; a new table factory would lose the filter.
        table = f"{{format_version={sst_format};checksum=kXXH3}}"
        for name in families:
            with as_rocks_error():
                self._open.get_column_family(name).set_options({"block_based_table_factory": table})
            self.compact(name)

    def close(self) -> None:
        """Close the database, put the OPTIONS file back and prove that everything is in SSTs. Raises RocksError."""
        if self._db is None:
            return
        database, self._db = self._db, None
        try:
            with as_rocks_error():
                database.close()
        finally:
            # The last reference: only now RocksDB closes its files, and the directory can be tidied.
            del database
            if not self._had_config:
                remove_config(self.path)
            if not self._had_log:
                # The application keeps its own in another folder (db_log_dir).
                (self.path / _LOG).unlink(missing_ok=True)
        newest = newest_options(self.path)
        if newest is None:
            raise RocksError(f"{self.path} has no OPTIONS file any more")
        text = newest.read_text(encoding="utf-8")
        newest.write_text(with_filter_bits(_restored(self._before, text, self._keep_new)), encoding="utf-8")
        # Everything was flushed: a log with bytes in it means that a flush failed without an error.
        logs = unflushed_logs(self.path)
        if logs:
            raise RocksError(f"{', '.join(logs)} still holds rows, so the database was not flushed")


_restored = lru_cache(maxsize=256)(restore_settings)
"""Stores of one kind have the same OPTIONS, and an application has few kinds."""


def remove_config(path: Path) -> None:
    """Remove the file that rocksdict leaves in every directory that it opens."""
    (path / _CONFIG).unlink(missing_ok=True)


def _in_order() -> ReadOptions:
    """Return options for reading all rows in key order, whatever prefix extractor a column family has."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    # With a prefix extractor of the application RocksDB may skip rows of other prefixes.
    options.set_total_order_seek(True)
    return options


def _no_wal() -> WriteOptions:
    """Return options without a write-ahead log: every write is flushed before the database is closed."""
    from rocksdict import WriteOptions

    options = WriteOptions()
    # A property at run time, which the stubs of rocksdict call a method.
    options.disable_wal = True  # type: ignore[method-assign,assignment]
    return options

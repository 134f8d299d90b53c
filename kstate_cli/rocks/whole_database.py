"""Read one database as a whole: every row, in large lists, and single SSTs if the rows do not lead to each block."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.binary import masked
from kstate_cli.formats.store_kinds import DEFAULT_CF
from kstate_cli.host import most_descriptors
from kstate_cli.regular_files import open_regular
from kstate_cli.rocks.errors import real
from kstate_cli.rocks.files import CURRENT, Table, most_levels, tables
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, prove_end
from kstate_cli.rocks.shadow import Shadow, in_temporary, private_copy, remove_copy, require_own_folder, shadow_options

if TYPE_CHECKING:
    from rocksdict import Options, ReadOptions


_MOST_ROWS = 512
_PIECES = PieceSizes(first=8, most=_MOST_ROWS, most_bytes=1 << 17)
_READAHEAD = 1 << 18
_SPARE_DESCRIPTORS = 128
_OPEN_TABLES = 64
_NEVER = 1 << 62
_COUNTS = {
    "entries": re.compile(r"# entries=(\d+)"),
    "deletions": re.compile(r"# deletions=(\d+)"),
    "merges": re.compile(r"# merge operands=(\d+)"),
    "range_deletions": re.compile(r"# range deletions=(\d+)"),
}

_SKIPPED = re.compile(r"rocksdb\.number\.iter\.skip COUNT : (\d+)")
"""Entries that iterators passed without returning them, in the statistics of RocksDB: a ticker."""


@dataclass(frozen=True, slots=True)
class EntryCounts:
    """The counts in the table properties of SSTs; ``entries`` includes the other three."""

    entries: int
    deletions: int
    merges: int
    range_deletions: int


@dataclass(frozen=True, slots=True)
class SstContents:
    """The contents of one SST that was read by itself."""

    rows: int
    """Visible rows: keys whose newest entry is no deletion."""
    counts: EntryCounts | None
    """The counts in its properties; None if RocksDB cannot read them."""
    has_old_versions: bool = False
    """Whether the SST has fewer rows than its properties count, because it has older versions of keys."""


class WholeDatabase(Shadow):
    """A shadow for reading everything.

    It keeps every SST open, so that a running application may compact SSTs away meanwhile. And it opens a database even
    if SSTs are missing, so that all damaged SSTs can be reported.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._descriptors: list[int] = []

    def __enter__(self) -> WholeDatabase:
        try:
            super().__enter__()
        except BaseException:
            self.close()
            raise
        return self

    def _open(self) -> None:
        """Open the copy for reading, with descriptors of its SSTs as far as the limit of this process allows."""
        from rocksdict import AccessType, Options, Rdict

        self._private = private_copy(self.path, writable=False)
        require_own_folder(self._private)
        # The SSTs are opened before RocksDB opens the copy: in between, a compaction could remove a file that the
        # copied MANIFEST names.
        self._hold(self._private)
        private, levels = str(self._private), most_levels(self.path)
        try:
            self.column_families = tuple(sorted(Rdict.list_cf(private, Options(raw_mode=True))))
            self._db = Rdict(
                private,
                _options(levels),
                column_families={name: _options(levels) for name in self.column_families},
                access_type=AccessType.read_only(False),
            )
            self._families = {name: self._db.get_column_family(name) for name in self.column_families}
        except Exception as error:
            raise self._real(error) from None

    def close(self) -> None:
        """Close the database and the files."""
        try:
            super().close()
        finally:
            # Closed even if a signal interrupts close(), because no other code knows these descriptors.
            while self._descriptors:
                os.close(self._descriptors.pop())

    def _hold(self, private: Path) -> None:
        """Link to open descriptors instead: when RocksDB opens a file later, it gets the one of this moment."""
        # The limit leaves descriptors for RocksDB, which opens some of these files a second time.
        most = most_descriptors() - _OPEN_TABLES - _SPARE_DESCRIPTORS
        for link in sorted(private.iterdir()):
            if link.is_symlink() and len(self._descriptors) < most:
                # An open descriptor keeps the bytes of a removed file, and its path in /proc leads to them.
                self._descriptors.append(open_regular(self.path / link.name))
                with in_temporary(private):
                    link.unlink()
                    link.symlink_to(f"/proc/{os.getpid()}/fd/{self._descriptors[-1]}")

    def pieces(self, family: str) -> Iterator[FlatPiece]:
        """Return every row of a column family in key order. Raises RocksError at what cannot be read."""
        return self.flat(family, None, None, _PIECES)

    def counts(self, family: str) -> EntryCounts | None:
        """Return the table properties of all SSTs of a family, added up; None where RocksDB cannot read them all."""
        return _counts(self.table_properties(family))

    def has_old_versions(self, family: str, counts: EntryCounts) -> bool:
        """Return whether older versions of keys explain that a family has fewer rows than its properties count.

        Raises RocksError for a block that cannot be read.
        """
        assert self._private is not None
        try:
            return _has_old_versions(self._private, self.column_families, family, counts)
        except Exception as error:
            raise self._real(error) from None

    def unflushed(self, family: str) -> bool:
        """Return whether rows came from a write-ahead log: no SST counts them."""
        handle = self._families[family]
        return any(
            handle.property_int_value(f"rocksdb.num-entries-{place}")
            for place in ("active-mem-table", "imm-mem-tables")
        )

    def tables(self, family: str) -> list[Table]:
        """Return the SSTs of a family as the MANIFEST has them, in the order of their first keys."""
        ssts = tables(self.sstables(family))
        return sorted(ssts, key=lambda table: table.first)

    def alone(self, table: Table) -> SstContents:
        """Read every data block of one SST. Raise RocksError for a block that cannot be read.

        Raise FileNotFoundError if the copy lacks the SST, which a running application created or removed meanwhile.
        """
        assert self._private is not None
        folder = self._private / "alone"
        # The link in the copy leads to the SST, or to an open descriptor of it.
        target = os.readlink(self._private / table.name)
        try:
            with in_temporary(self._private):
                make_database(folder, table, target)
            return _read_alone(folder)
        except Exception as error:
            raise real(error, str(folder), str(self.path), str(self._private.parent)) from None
        finally:
            remove_copy(folder)


def _read_alone(folder: Path) -> SstContents:
    """Read every row of the database in ``folder``, which has a single SST."""
    from rocksdict import AccessType, Rdict

    database = Rdict(str(folder), _options(1), access_type=AccessType.read_only(False))
    keys = database.keys(read_opt=_straight_on())
    rows = 0
    last: Any = None
    while piece := list(islice(keys, _MOST_ROWS)):
        rows += len(piece)
        last = piece[-1]
    # Reading the keys is enough: RocksDB reads every block of rows as a whole, and compares its checksum.
    prove_end(database, last)
    counts = _counts(database.property_value("rocksdb.aggregated-table-properties") or "")
    has_old_versions = False
    # Both would explain fewer rows as well, so the SST is not read again.
    by_others = counts is not None and (counts.range_deletions or counts.merges)
    if counts is not None and not by_others and rows < counts.entries - counts.deletions:
        has_old_versions = _has_old_versions(folder, (DEFAULT_CF,), DEFAULT_CF, counts)
    return SstContents(rows, counts, has_old_versions)


def _has_old_versions(folder: Path, families: Sequence[str], family: str, counts: EntryCounts) -> bool:
    """Return whether RocksDB passes as many entries of a family as its SSTs count, in the order of their keys.

    RocksDB keeps an older version of a key in an SST if a snapshot (``DB::GetSnapshot``) needed it when the SST was
    written. Streams takes one for each open iterator of a ``MultiVersionedKeyQuery`` (KIP-968).
    """
    from rocksdict import AccessType, Rdict

    options = _options(most_levels(folder))
    options.enable_statistics()
    database = Rdict(
        str(folder),
        options,
        column_families=dict.fromkeys(families, options),
        access_type=AccessType.read_only(False),
    )
    handle = database.get_column_family(family)
    forward = _count_and_sum(handle.keys(read_opt=_straight_on()))
    passed = _SKIPPED.search(options.get_statistics() or "")
    if passed is None or forward[0] + int(passed[1]) != counts.entries:
        return False
    # RocksDB skips an older version, but also a key in the wrong order. Backward it skips other keys of a wrong order.
    return forward == _count_and_sum(handle.keys(backwards=True, read_opt=_straight_on()))


def _count_and_sum(keys: Iterator[Any]) -> tuple[int, int]:
    """Return the number of keys, and the sum of their hashes, which does not depend on their order."""
    count = hashes = 0
    while piece := list(islice(keys, _MOST_ROWS)):
        count += len(piece)
        hashes += sum(map(hash, piece))
    return count, hashes


def _counts(text: str) -> EntryCounts | None:
    matches = {name: pattern.search(text) for name, pattern in _COUNTS.items()}
    numbers = {name: int(match[1]) for name, match in matches.items() if match}
    if len(numbers) < len(matches):
        return None
    return EntryCounts(**numbers)


def _options(levels: int) -> Options:
    """Return options to read everything once, damaged or not, of a database that has ``levels`` at most."""
    from rocksdict import BlockBasedOptions

    options = shadow_options(levels)
    # No cache, because no block is read twice.
    table = BlockBasedOptions()
    table.disable_cache()
    options.set_block_based_table_factory(table)
    options.set_max_open_files(_OPEN_TABLES)
    # The database opens although SSTs are damaged: they are found when they are read. Checksums are still verified.
    options.set_paranoid_checks(False)
    # If a key has many versions, RocksDB would seek to the next key, and skip the blocks in between.
    options.set_max_sequential_skip_in_iterations(_NEVER)
    return options


def _straight_on() -> ReadOptions:
    """Return options for reading from the beginning to the end."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_readahead_size(_READAHEAD)
    return options


_MANIFEST: Final = "MANIFEST-000001"
_COMPARATOR, _LOG_NUMBER, _NEXT_FILE, _LAST_SEQUENCE, _NEW_FILE = 1, 2, 3, 4, 103
_TERMINATE: Final = 1
_BLOCK: Final = 32 * 1024
_HEADER: Final = 7
_PIECE_KINDS: Final = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}
"""The type of a piece of a record, by whether it is the first and the last one: full, first, middle, last."""


def make_database(folder: Path, table: Table, target: str) -> None:
    """Make ``folder`` a database that consists of a single SST, ``target``."""
    folder.mkdir()
    (folder / table.name).symlink_to(target)
    (folder / _MANIFEST).write_bytes(b"".join(_records(_edit(table))))
    (folder / CURRENT).write_text(f"{_MANIFEST}\n")


def _edit(table: Table) -> bytes:
    """Return the version edit (``VersionEdit::EncodeTo``)."""
    number = int(table.name.partition(".")[0])
    return b"".join(
        (
            _varint(_COMPARATOR) + _sized(b"leveldb.BytewiseComparator"),
            _varint(_LOG_NUMBER) + _varint(0),
            _varint(_NEXT_FILE) + _varint(number + 2),
            _varint(_LAST_SEQUENCE) + _varint(table.largest_sequence),
            # In level 0, RocksDB assumes nothing about the range of keys.
            _varint(_NEW_FILE) + _varint(0) + _varint(number) + _varint(table.size),
            _sized(table.smallest) + _sized(table.largest),
            _varint(table.smallest_sequence) + _varint(table.largest_sequence) + _varint(_TERMINATE),
        )
    )


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the fragments of a record in the log format.

    Each of them fills its block of 32 KiB, except the last one.
    """
    free = _BLOCK - _HEADER
    pieces = [data[at : at + free] for at in range(0, len(data), free)]
    for number, piece in enumerate(pieces):
        is_first, is_last = number == 0, number == len(pieces) - 1
        body = bytes((_PIECE_KINDS[is_first, is_last],)) + piece
        # crc:u32 (masked) ‖ length:u16 ‖ type:u8 ‖ piece, all little-endian (``log_format.h``).
        yield masked(body).to_bytes(4, "little") + len(piece).to_bytes(2, "little") + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data

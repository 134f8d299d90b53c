"""Create RocksDB directories and sorted files as a release of Kafka Streams creates its own.

A sorted file is an SST outside of any database; a database ingests it later.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kstate_cli import temporary
from kstate_cli.formats.metadata_files import parse
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF, store_kind
from kstate_cli.host import READING_THREADS, WRITING_THREADS, require_headroom
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.rocks.errors import RocksError, as_rocks_error
from kstate_cli.rocks.files import newest_options
from kstate_cli.rocks.settings import data_options, database_options, family_options, with_filter_bits, with_quiet_log
from kstate_cli.rocks.writable import remove_config

if TYPE_CHECKING:
    import pyarrow as pa
    from rocksdict import SstFileWriter


def data_family(kind: str) -> str:
    """Return the column family that the rows of a new store of this kind go to. ValueError for what is not one kind."""
    row = store_kind(kind)
    if not row.is_exact:
        raise ValueError(f"{kind!r} is not one kind of store")
    return row.family.name


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The column families of a new database, and the release that it is to look like."""

    column_families: tuple[str, ...]
    release: Release

    def __post_init__(self) -> None:
        if DEFAULT_CF not in self.column_families:
            raise ValueError("every RocksDB has the column family default")


def layout_of(kind: str, release: Release) -> StoreLayout:
    """Return the layout of a store, or a segment, of this kind under ``release``. ValueError as :func:`data_family`."""
    # A dict keeps the order and has each family once: a plain store has its rows in ``default``, which every RocksDB
    # has.
    families = dict.fromkeys((DEFAULT_CF, data_family(kind)))
    if release.offsets_home is OffsetsHome.COLUMN_FAMILY:
        families[OFFSETS_CF] = None
    return StoreLayout(tuple(families), release)


def create_store(path: Path, layout: StoreLayout, *, has_directory: bool = False) -> None:
    """Create the directory ``path`` and an empty database in it, which a ``WritableStore`` then fills.

    With ``has_directory`` the caller has just created the directory, with the owner that it needs.

    Raises RocksError, and OSError if the directory cannot be created or exists already.
    """
    from rocksdict import Rdict

    # RocksDB starts threads when it opens a database, and aborts the process if it cannot.
    require_headroom(WRITING_THREADS)
    # mkdir fails if the directory exists, because it may be a store.
    if not has_directory:
        path.mkdir(mode=0o755)
    release = layout.release
    try:
        with as_rocks_error():
            Rdict(
                str(path),
                database_options(release),
                column_families={name: family_options(name, release) for name in layout.column_families},
            ).close()
    finally:
        # rocksdict leaves its file even after a failed open. The file is not a part of the database.
        remove_config(path)
    # kstate's next open reads the options from this file (``Options.load_latest``). So settings that rocksdict does not
    # write are added to it.
    newest = newest_options(path)
    if newest is None:
        raise RocksError(f"{path} has no OPTIONS file")
    newest.write_text(with_quiet_log(with_filter_bits(newest.read_text(encoding="utf-8"))), encoding="utf-8")
    # The LOG has kilobytes of text about this host and process. The application continues this file, so it is emptied.
    os.truncate(path / "LOG", 0)


def rocksdb_version() -> str:
    """Return RocksDB's version, such as ``9.8.4``.

    Raises RocksError, OSError, MalformedBytesError, and ImportError if rocksdict cannot be loaded.
    """
    require_headroom(WRITING_THREADS)
    # Imported here, because ``kstate version`` reports the error of a missing library.
    from rocksdict import Options, Rdict

    with temporary.private_folder("version") as folder:
        path = folder / "empty"
        with as_rocks_error():
            Rdict(str(path), Options(raw_mode=True)).close()
        newest = newest_options(path)
        if newest is None:
            raise RocksError(f"{path} has no OPTIONS file")
        return parse(newest.read_bytes()).rocksdb_version


OBJECTS: Final = 1_024
"""Rows that are Python objects at the same time: few enough for Python's free memory and the processor's cache."""


class SortedFileWriter:
    """Writes one SST as ``release`` writes its own: format, checksum, block size, filter.

    Raises RocksError and OSError.
    """

    def __init__(self, path: str, release: Release) -> None:
        self.path = path
        self.rows = 0
        self.deletes = 0
        self._release = release
        self._file: tuple[SstFileWriter, DigestAsWritten] | None = None

    def put(self, keys: pa.BinaryArray, values: pa.BinaryArray, *, deletes: bool) -> None:
        """Add rows, whose keys must rise strictly. A null value is a delete, written only with ``deletes``.

        All of them become Python objects at once: no more than :data:`OBJECTS` are to be put together.
        """
        if not len(keys):
            return
        writer, digest = self._open()
        with as_rocks_error():
            self._write(writer, keys.to_pylist(), values.to_pylist(), deletes=deletes)
            digest.follow()

    def _write(self, writer: SstFileWriter, keys: list[bytes], values: list[bytes | None], *, deletes: bool) -> None:
        """Add rows in the order of their keys. A null value is a delete; it is skipped without ``deletes``.

        Without ``deletes`` the file goes into an empty database, where no older row of the key exists.
        """
        # The usual case. A single tombstone sends all rows of the call (at most OBJECTS) through the slower loop below.
        if None not in values:
            # ``map`` and ``deque`` loop in C, which is faster than a loop in Python.
            deque(map(writer.__setitem__, keys, values), maxlen=0)
            self.rows += len(keys)
            return
        for key, value in zip(keys, values, strict=True):
            if value is not None:
                writer[key] = value
                self.rows += 1
            elif deletes:
                del writer[key]
                self.deletes += 1

    @property
    def size(self) -> int:
        """Bytes of the blocks that are complete."""
        if self._file is None:
            return 0
        return self._file[0].file_size()

    def finish(self) -> str | None:
        """Complete the file, and return its SHA-256 in hex.

        Return None if it has no rows and no deletes: then no file exists.
        """
        if self._file is None:
            return None
        (writer, digest), self._file = self._file, None
        # The file got only tombstones that are not needed. RocksDB's writer refuses to finish an empty file.
        if not self.rows and not self.deletes:
            if os.path.exists(self.path):
                os.unlink(self.path)
            digest.close()
            return None
        with as_rocks_error():
            writer.finish()
        return digest.finish()

    def _open(self) -> tuple[SstFileWriter, DigestAsWritten]:
        from rocksdict import SstFileWriter

        if self._file is None:
            require_headroom(READING_THREADS)
            with as_rocks_error():
                writer = SstFileWriter(data_options(self._release))
                writer.open(self.path)
            self._file = writer, DigestAsWritten(self.path)
        return self._file


_CHUNK: Final = 1 << 20


class DigestAsWritten:
    """Digests the file while RocksDB writes it.

    Later its bytes would have to be read from the disk, because RocksDB keeps none of them in the page cache.
    """

    def __init__(self, path: str) -> None:
        """Open the file that another writer has created. Raises OSError."""
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by finish, or with this
        self._digest = hashlib.sha256()

    def follow(self) -> None:
        """Take what was written since; it is not written again. Raises OSError."""
        while chunk := self._file.read(_CHUNK):
            self._digest.update(chunk)

    def finish(self) -> str:
        """Return the digest in hex, once all is written. Raises OSError."""
        self.follow()
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file without a digest."""
        self._file.close()

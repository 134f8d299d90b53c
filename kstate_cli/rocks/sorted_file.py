"""A sorted file: one SST outside any database, to be ingested later."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Final

from kstate_cli.host import READING_THREADS, require_headroom
from kstate_cli.releases import Release
from kstate_cli.rocks.errors import as_rocks_error
from kstate_cli.rocks.settings import data_options

if TYPE_CHECKING:
    import pyarrow as pa
    from rocksdict import SstFileWriter
import hashlib

OBJECTS: Final = 1_024
"""Rows that are Python objects at once: so few that Python keeps their memory, and the processor's cache has it."""


class SortedFileWriter:
    """Writes one SST as ``release`` writes its own: format, checksum, block size, filter.

    Raises RocksError and OSError.
    """

    def __init__(self, path: str, release: Release) -> None:
        self.path = path
        self.rows = 0
        self.deletes = 0
        self._release = release
        self._made: tuple[SstFileWriter, DigestAsWritten] | None = None

    def put(self, keys: pa.BinaryArray, values: pa.BinaryArray, *, deletes: bool) -> None:
        """Adds rows, whose keys must rise strictly. A null value is a delete, written only with ``deletes``.

        All of them become Python objects at once: no more than :data:`OBJECTS` are to be put together.
        """
        if not len(keys):
            return
        writer, digest = self._open()
        with as_rocks_error():
            self._write(writer, keys.to_pylist(), values.to_pylist(), deletes=deletes)
            digest.follow()

    def _write(self, writer: SstFileWriter, keys: list[bytes], values: list[bytes | None], *, deletes: bool) -> None:
        if None not in values:
            # The loop is in C but for the two calls a row that rocksdict asks for.
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
        return 0 if self._made is None else self._made[0].file_size()

    def finish(self) -> str | None:
        """Completes the file; its SHA-256, in hex. None, and no file, without a row or a delete. Raises OSError too."""
        if self._made is None:
            return None
        (writer, digest), self._made = self._made, None
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

        if self._made is None:
            require_headroom(READING_THREADS)
            with as_rocks_error():
                writer = SstFileWriter(data_options(self._release))
                writer.open(self.path)
            self._made = writer, DigestAsWritten(self.path)
        return self._made


_CHUNK: Final = 1 << 20


class DigestAsWritten:
    """Follows whoever writes the file. Later all would come from the disk: RocksDB keeps none in the page cache."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by finish, or with this
        self._digest = hashlib.sha256()

    def follow(self) -> None:
        """Takes what was written since; it is not written again. Raises OSError."""
        while chunk := self._file.read(_CHUNK):
            self._digest.update(chunk)

    def finish(self) -> str:
        """In hex, once all is written. Raises OSError."""
        self.follow()
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """Nothing of it is wanted."""
        self._file.close()

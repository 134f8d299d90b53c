"""What a task of a restoration cannot hold waits on disk, as batches of columns, in a file without a name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class WaitingFile:
    """Takes batches, and gives each back any number of times. It goes with this process, however that ends."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """``path`` is free again at once. Raises OSError."""
        self._schema = schema
        self._file = open(path, "w+b")  # noqa: SIM115 - closed once all is handed out
        os.unlink(path)
        self._end = 0

    def append(self, *columns: pa.Array) -> tuple[int, int]:
        """A batch; returns where it begins and its bytes, by which it is read. Raises OSError."""
        import pyarrow as pa

        data = pa.record_batch([*columns], schema=self._schema).serialize()
        # It may have been read meanwhile.
        self._file.seek(self._end)
        self._file.write(data)
        where = self._end, data.size
        self._end += data.size
        return where

    def read(self, where: tuple[int, int]) -> list[pa.Array]:
        """The columns of a batch. Raises OSError."""
        import pyarrow as pa

        begin, size = where
        self._file.seek(begin)
        batch = pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), self._schema)
        return [*batch.columns]

    def close(self) -> None:
        """Gives back its room."""
        self._file.close()

"""The changelog keys of rows, in the order of the rows: in memory, or in a file where more is known than fits."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints


class KeysInOrder:
    """Takes keys once, hands them out window by window, and is closed."""

    def __init__(self, new_file: Callable[[], str]) -> None:
        """``new_file``: a path for what does not stay in memory."""
        self._new_file = new_file
        self._held: pa.BinaryArray | None = None
        self._file: BinaryIO | None = None
        self._starts: list[int] = []
        self._batches: list[tuple[int, int]] = []
        """By window: where it begins in the file, and its bytes."""
        self._end = 0
        self._read: tuple[int, pa.BinaryArray] | None = None

    @property
    def nbytes(self) -> int:
        """What they take of memory."""
        return 0 if self._held is None else int(self._held.nbytes)

    def hold(self, keys: pa.BinaryArray) -> None:
        """These are all."""
        self._held = keys

    def put_away(self, keys: pa.BinaryArray, first: int, starts: Ints) -> None:
        """The keys of the next rows, from row ``first`` on, in windows that begin at ``starts``. Raises OSError."""
        import pyarrow as pa

        if self._file is None:
            path = self._new_file()
            self._file = open(path, "w+b")  # noqa: SIM115 - closed once all is handed out
            os.unlink(path)
        begins = [int(one) - first for one in starts]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            data = pa.record_batch([keys.slice(begin, end - begin)], ["key"]).serialize()
            self._file.write(data)
            self._starts.append(first + begin)
            self._batches.append((self._end, data.size))
            self._end += data.size

    def between(self, first: int, last: int) -> pa.BinaryArray:
        """The keys of rows ``first`` to ``last`` (exclusive), which belong to one window. Raises OSError."""
        if self._held is not None:
            return self._held.slice(first, last - first)
        number = bisect_right(self._starts, first) - 1
        if self._read is None or self._read[0] != number:
            self._read = number, self._window(number)
        return self._read[1].slice(first - self._starts[number], last - first)

    def _window(self, number: int) -> pa.BinaryArray:
        import pyarrow as pa

        assert self._file is not None
        begin, size = self._batches[number]
        self._file.seek(begin)
        schema = pa.schema([("key", pa.binary())])
        return pa.ipc.read_record_batch(pa.py_buffer(self._file.read(size)), schema).column(0)

    def close(self) -> None:
        """Gives back memory and disk."""
        self._held = self._read = None
        if self._file is not None:
            self._file.close()

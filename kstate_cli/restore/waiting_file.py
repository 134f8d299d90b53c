"""What a task of a restoration cannot hold waits on disk, as batches of columns, in a file without a name."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kstate_cli.direct import PAGE_BYTES, aligned, open_direct, read_into, whole_pages, write_from

if TYPE_CHECKING:
    import pyarrow as pa

_TOGETHER: Final = 1 << 20
"""Bytes that are written together."""
_AHEAD: Final = 4
"""Batches."""


class WaitingFile:
    """Takes batches, and gives each back any number of times. It goes with this process, however that ends.

    What waits is as large as what is made of it, and is read once: it goes around the page cache.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """``path`` is free again at once. Raises OSError."""
        self._schema = schema
        self._descriptor = open_direct(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.unlink(path)
        self._last = aligned(_TOGETHER)
        """What is not written yet."""
        self._written = self._waiting = 0
        """Bytes in the file, and those behind them."""

    def append(self, *columns: pa.Array) -> tuple[int, int]:
        """A batch; returns where it begins and its bytes, by which it is read. Raises OSError."""
        import pyarrow as pa

        data = memoryview(pa.record_batch([*columns], schema=self._schema).serialize()).cast("B")
        where = self._written + self._waiting, len(data)
        while len(data):
            some = data[: _TOGETHER - self._waiting]
            self._last[self._waiting : self._waiting + len(some)] = some
            self._waiting += len(some)
            data = data[len(some) :]
            if self._waiting == _TOGETHER:
                write_from(self._descriptor, self._last, self._written)
                self._written += _TOGETHER
                self._waiting = 0
        return where

    def read(self, where: tuple[int, int]) -> list[pa.Array]:
        """The columns of a batch. Raises OSError."""
        import pyarrow as pa

        begin, size = where
        end = begin + size
        first, upto = whole_pages(begin, end)
        # In Arrow's memory, as all that waits for its turn; at the beginning of a page.
        room = pa.allocate_buffer(upto - first + PAGE_BYTES)
        skipped = -room.address % PAGE_BYTES
        data = memoryview(room).cast("B")[skipped : skipped + upto - first]
        in_file = min(upto, self._written) - first
        if in_file > 0:
            read_into(self._descriptor, data[:in_file], first)
        if end > self._written:
            low = max(begin, self._written)
            data[low - first : end - first] = self._last[low - self._written : end - self._written]
        batch = pa.ipc.read_record_batch(room.slice(skipped + begin - first, size), self._schema)
        return [*batch.columns]

    def read_all(self, places: Iterable[tuple[int, int]]) -> Iterator[list[pa.Array]]:
        """The columns of batches, in this order; a few are read before they are asked for. Raises OSError."""
        ahead: deque[Future[list[pa.Array]]] = deque()
        with ThreadPoolExecutor(_AHEAD, thread_name_prefix="waiting") as pool:
            for where in places:
                ahead.append(pool.submit(self.read, where))
                if len(ahead) > _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def close(self) -> None:
        """Gives back its room."""
        os.close(self._descriptor)

"""What a task of a restoration cannot hold waits on disk, as batches of columns, in a file without a name."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kstate_cli.direct_io import PAGE_BYTES, aligned, open_direct, read_into, whole_pages, write_from
from kstate_cli.errors import naming
from kstate_cli.signals import FullPool

if TYPE_CHECKING:
    import pyarrow as pa

_TOGETHER: Final = 1 << 20
"""Bytes that are written together."""
_AHEAD: Final = 4
"""Batches."""


@dataclass(frozen=True, slots=True)
class _Room:
    """Where a batch is read to."""

    pages: memoryview
    """Those that it lies in."""
    first: int
    """Where in the file they begin."""
    end: int
    """Where in the file the batch ends."""
    batch: pa.Buffer
    """It alone."""


class WaitingFile:
    """Takes batches, and gives them back any number of times. It goes with this process, however that ends.

    What waits is as large as what is made of it, and is read once: it goes around the page cache.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """``path`` is free again at once. Raises OSError."""
        self._schema, self._path = schema, path
        # Closed with this, whatever becomes of it: the room on the disk is given back only then.
        self._file = open(open_direct(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+b", buffering=0)  # noqa: SIM115
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
                with naming(self._path):
                    write_from(self._file.fileno(), self._last, self._written)
                self._written += _TOGETHER
                self._waiting = 0
        return where

    def read_all(self, places: Sequence[tuple[int, int]]) -> Generator[list[pa.Array], None, None]:
        """The columns of batches, in this order; a few are read before they are asked for. Raises OSError.

        None is to be added meanwhile.
        """
        ahead: deque[Future[_Room]] = deque()
        with FullPool(_AHEAD, "waiting") as pool:
            for where in places:
                # Memory that each thread takes for itself would be kept for each.
                ahead.append(pool.ask(self._filled, self._room(where)))
                if len(ahead) > _AHEAD:
                    yield self._columns(ahead.popleft().result())
            while ahead:
                yield self._columns(ahead.popleft().result())

    def _room(self, where: tuple[int, int]) -> _Room:
        import pyarrow as pa

        begin, size = where
        first, upto = whole_pages(begin, begin + size)
        # In Arrow's memory, as all that waits for its turn; at the beginning of a page.
        memory = pa.allocate_buffer(upto - first + PAGE_BYTES)
        skipped = -memory.address % PAGE_BYTES
        pages = memoryview(memory).cast("B")[skipped : skipped + upto - first]
        return _Room(pages, first, begin + size, memory.slice(skipped + begin - first, size))

    def _filled(self, room: _Room) -> _Room:
        in_file = min(room.first + len(room.pages), self._written) - room.first
        with naming(self._path):
            if in_file > 0 and read_into(self._file.fileno(), room.pages[:in_file], room.first) != in_file:
                raise OSError(errno.EIO, "a file that values wait in has lost some of them")
        if room.end > self._written:
            low = max(room.first, self._written)
            room.pages[low - room.first : room.end - room.first] = self._last[
                low - self._written : room.end - self._written
            ]
        return room

    def _columns(self, room: _Room) -> list[pa.Array]:
        import pyarrow as pa

        return [*pa.ipc.read_record_batch(room.batch, self._schema).columns]

    def close(self) -> None:
        """Gives back its room."""
        self._file.close()

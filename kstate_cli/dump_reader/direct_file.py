"""A file of a dump that is read around the page cache, and as pyarrow reads it: several columns at once."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from kstate_cli.direct_io import aligned, open_direct, read_into
from kstate_cli.host import memory_here
from kstate_cli.signals import FullPool

BLOCK_BYTES: Final = 1 << 20
"""A read of the disk."""
READ_AHEAD: Final = 3
"""So many blocks of a column are read while the one before them is looked at."""
_CACHED_PART: Final = 0.75
"""Of the memory of a host so large a part may be page cache that stays."""

Span = tuple[int, int]
"""Where in a file something begins, and where it ends."""


class Listener(Protocol):
    """Hears of what is read."""

    def offer(self, path: str, number: int, block: memoryview) -> None:
        """A block that was read; it never changes."""

    def past(self, path: str, end: int | None) -> None:
        """Nothing below ``end`` that was not read yet will be; None for all of the file."""


class DirectFile(io.RawIOBase):
    """A local file in blocks. What is read of it is a view of one, and stays as it is."""

    def __init__(self, path: str, pool: FullPool, listener: Listener | None = None) -> None:
        """``pool``: reads ahead. Raises OSError."""
        super().__init__()
        self._descriptor = open_direct(path, os.O_RDONLY)
        self._path, self._pool, self._listener = path, pool, listener
        self._size = os.fstat(self._descriptor).st_size
        self._place = 0
        self._groups: Sequence[Sequence[Span]] = ()
        self._group = -1
        self._at: dict[Span, int] = {}
        """The block in which each column is being read, of this row group and the one before it."""
        self._blocks: dict[int, Future[memoryview]] = {}
        self._offered: set[int] = set()

    def expect(self, groups: Sequence[Sequence[Span]]) -> None:
        """These columns of row groups are read from now on, group by group, and nothing before them."""
        self._groups, self._group = groups, -1
        self._at.clear()
        self._offered.clear()
        if groups and groups[0]:
            self._enter(0)

    def rest(self) -> None:
        """Another file is read now: gives up what is held, until :meth:`expect`."""
        self._at.clear()
        while self._blocks:
            self._blocks.popitem()[1].cancel()

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where it is read next."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of every file."""
        self._place = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence] + offset
        return self._place

    def read(self, size: int | None = -1, /) -> bytes:
        """As of every file; less only at its end. Raises OSError."""
        left = max(0, self._size - self._place)
        size = left if size is None or size < 0 else min(size, left)
        parts = []
        while size:
            number, skipped = divmod(self._place, BLOCK_BYTES)
            part = self._block(number)[skipped : skipped + size]
            if not part:
                break  # it has become shorter
            parts.append(part)
            size -= len(part)
            self._place += len(part)
        # pyarrow takes whatever has bytes: where they are those of one block nothing is copied.
        return parts[0] if len(parts) == 1 else b"".join(parts)  # type: ignore[return-value]

    def close(self) -> None:
        """What is still being read ahead nobody will look at."""
        if self.closed:
            return
        super().close()
        self.rest()
        os.close(self._descriptor)
        if self._listener is not None:
            self._listener.past(self._path, None)

    def _block(self, number: int) -> memoryview:
        span = self._span()
        if span is not None and self._at[span] != number:
            self._at[span] = number
            self._drop()
        self._want(number, here=True)
        if span is not None:
            for following in _window(span, number)[1:]:
                self._want(following)
            if (number + READ_AHEAD) * BLOCK_BYTES >= span[1]:
                for following in self._upcoming():
                    self._want(following)
        block = self._blocks[number].result()
        # What is read before that is the file's end, which would be held until all else was heard of.
        if self._listener is not None and self._groups and number not in self._offered:
            self._offered.add(number)
            self._listener.offer(self._path, number, block)
        return block

    def _span(self) -> Span | None:
        """The column that is read here, of this row group, the one before it or a later one."""
        for number in range(max(self._group - 1, 0), len(self._groups)):
            for span in self._groups[number]:
                if span[0] <= self._place < span[1]:
                    if number > self._group:
                        self._enter(number)
                    return span if span in self._at else None
        return None

    def _enter(self, number: int) -> None:
        """A row group begins; some columns may not have come to the end of the one before it."""
        before = self._groups[self._group] if self._group >= 0 else ()
        self._at = {span: self._at[span] for span in before if span in self._at}
        self._at |= {span: span[0] // BLOCK_BYTES for span in self._groups[number]}
        self._group = number
        if self._listener is not None:
            self._listener.past(self._path, min(begin for begin, _ in self._groups[number]))
        self._drop()
        for block in self._at.values():
            self._want(block)

    def _upcoming(self) -> list[int]:
        """The blocks in which the columns of the next row group begin."""
        following = self._groups[self._group + 1 : self._group + 2]
        return [span[0] // BLOCK_BYTES for group in following for span in group]

    def _drop(self) -> None:
        """What no column needs now or soon."""
        needed = set(self._upcoming()).union(*(_window(span, at) for span, at in self._at.items()))
        for one in [one for one in self._blocks if one not in needed]:
            self._blocks.pop(one).cancel()

    def _want(self, number: int, *, here: bool = False) -> None:
        if number in self._blocks:
            return
        if here:
            block: Future[memoryview] = Future()
            block.set_result(self._load(number))
        else:
            block = self._pool.ask(self._load, number)
        self._blocks[number] = block

    def _load(self, number: int) -> memoryview:
        buffer = aligned(BLOCK_BYTES)
        return buffer[: read_into(self._descriptor, buffer, number * BLOCK_BYTES)]


def _window(span: Span, number: int) -> range:
    """A block of a column, and those that are read ahead."""
    return range(number, min(number + READ_AHEAD, (span[1] - 1) // BLOCK_BYTES) + 1)


def larger_than_cache(paths: Iterable[str]) -> bool:
    """Whether local files are read around the page cache: they would not be there any more when they are read again."""
    try:
        return sum(os.path.getsize(path) for path in paths) > memory_here() * _CACHED_PART
    except OSError:
        return False  # whoever reads it tells

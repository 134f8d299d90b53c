"""Hand out the values of a slice in the order of its rows, though they are read in the order of its records.

Each value is read once. Values that do not fit the memory of a task wait on disk, as batches of columns in a file
without a name. The file has parts that do fit: a gather over a file of any size would cost one read of the disk for
each row.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kstate_cli.direct_io import PAGE_BYTES, aligned, open_direct, read_into, whole_pages, write_from
from kstate_cli.errors import naming
from kstate_cli.restore.sorting.convert import apart, gather
from kstate_cli.restore.sorting.memory import (
    BLOCK_ROWS,
    FILE_SPARE,
    FILE_WRITE_BYTES,
    MOST_FILE_PARTS,
    READ_AHEAD,
    VALUE_ROW_BYTES,
)
from kstate_cli.signals import FullPool

if TYPE_CHECKING:
    import numpy.typing as npt

    from kstate_cli.restore.sorting.convert import Ints


_Part = tuple["npt.NDArray[np.int32]", "pa.BinaryArray"]
"""Numbers of rows, rising from window to window, and their values."""


class _File:
    """Values that wait, by the part that they belong to. They are written while others are read and dealt out."""

    def __init__(self, path: str, begins: Ints) -> None:
        """Open a file for values. ``begins``: the first row of each part. Raises OSError."""
        self._file = WaitingFile(path, pa.schema([("row", pa.int32()), ("value", pa.binary())]))
        self._begins = begins
        self._batches: list[list[tuple[int, int]]] = [[] for _ in begins]
        """By part: where its batches are in the file."""
        self._pool = FullPool(1, "waiting")
        self._writing: Future[None] | None = None

    @property
    def parts(self) -> int:
        """How many there are."""
        return len(self._batches)

    def put_away(self, some: list[_Part]) -> None:
        """Write these in the thread, once those before them are written. Raises OSError if those cannot be."""
        self.settle()
        # One write at a time: the memory model counts one lot of values on its way to the disk, and the places in the
        # file follow each other.
        self._writing = self._pool.ask(self._write, some)

    def complete(self) -> None:
        """Wait for the last write, and end the thread: nothing is put away any more. Raises OSError."""
        self.settle()
        # What its thread has taken of Arrow's memory is given back.
        self._pool.shutdown()

    def settle(self) -> None:
        """Wait until what was put away is written. Raises OSError if it cannot be."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                writing.result()
        finally:
            # Else its error would hold the future, and the future the error: the file would stay until that is noticed.
            del writing

    def _write(self, some: list[_Part]) -> None:
        for rows, values in some:
            # Rows rise from window to window only: the border of a part is that of a window.
            number = np.searchsorted(self._begins, rows, "right") - 1
            # Rows of one part follow each other, so each run of equal numbers is one batch.
            cuts = (np.flatnonzero(np.diff(number)) + 1).tolist()
            for low, high in zip([0, *cuts], [*cuts, len(rows)], strict=True):
                where = self._file.append(pa.array(rows[low:high]), values.slice(low, high - low))
                self._batches[int(number[low])].append(where)

    def read(self, part: int) -> Generator[_Part, None, None]:
        """Yield the batches of a part, in the order in which they were written. Raises OSError."""
        with closing(self._file.read_all(self._batches[part])) as batches:
            for rows, values in batches:
                yield rows.to_numpy(), values

    def close(self) -> None:
        """End the thread, and release the disk space."""
        # The thread is stopped first, because it writes to the file that is closed below.
        self._pool.shutdown()
        self._writing = None
        self._file.close()


class Places:
    """Which record each row is made from, and so where each record goes."""

    def __init__(self, records: Sequence[npt.NDArray[np.integer[Any]]]) -> None:
        """Take, in parts, the number of the record whose value each row has."""
        self.rows = sum(len(record) for record in records)
        # Record and row are in one number. A slice has fewer than 2^33 records, and fewer than 2^31 rows.
        self._bits = np.uint64(self.rows.bit_length())
        self._places = np.empty(self.rows, dtype=np.uint64)
        first = 0
        for record in records:
            self._places[first : first + len(record)] = record
            first += len(record)
        # With the record in the high bits and the row in the low ones, one sort gives the order in which values are
        # read.
        self._places <<= self._bits
        # Block by block, since the numbers of all rows at once would take as much memory as this array.
        for first in range(0, self.rows, BLOCK_ROWS):
            some = self._places[first : first + BLOCK_ROWS]
            some |= np.arange(first, first + len(some), dtype=np.uint64)
        self._places.sort()

    @property
    def nbytes(self) -> int:
        """What they take."""
        return self._places.nbytes

    def rows_of(self, number: int, count: int) -> tuple[Ints, Ints]:
        """Return which of the ``count`` records from ``number`` on make a row, counted from there, and their rows."""
        # All places of these records lie between the least number of the first and that of the one behind the last.
        bounds = np.array([number, number + count], dtype=np.uint64) << self._bits
        low, high = np.searchsorted(self._places, bounds).tolist()
        some = self._places[low:high]
        rows = some & ((np.uint64(1) << self._bits) - np.uint64(1))
        return (some >> self._bits).astype(np.int64) - number, rows.astype(np.int64)


@dataclass(slots=True)
class ValuesInOrder:
    """Takes the values of records, and hands out those of rows, window by window. ``add`` all, then ``windows``.

    Whatever happens, :meth:`close` it: the waiting values have a thread, and disk space.
    """

    rows: int
    starts: Ints
    """The first row of each window: its values are handed out, and become Python objects, together."""
    memory: int
    """Bytes of values that may be held."""
    most: int
    """Bytes of values that may be handed out together; a row is never parted."""
    new_file: Callable[[], str]
    """A path for what does not fit."""
    together: int
    """Bytes that are put in order together: a few values at a time would leave next to nothing for each window."""
    _new: list[_Part] = field(init=False, default_factory=list)
    """Values that are not in order yet."""
    _new_bytes: int = field(init=False, default=0)
    _width: int = field(init=False, default=0)
    """The rows of every window but the last, where they are as many; else 0."""
    _sizes: Ints = field(init=False)
    """Bytes of the values of each window."""
    _parts: list[_Part] = field(init=False, default_factory=list)
    _held_bytes: int = field(init=False, default=0)
    _taken_rows: int = field(init=False, default=0)
    _file: _File | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._sizes = np.zeros(len(self.starts), dtype=np.int64)
        widths = np.diff(self.starts)
        # Of one segment all windows are equally wide: then the window of a row is a division instead of a search.
        if len(widths) and bool((widths == widths[0]).all()) and self.rows - int(self.starts[-1]) <= widths[0]:
            self._width = int(widths[0])

    def add(self, rows: Ints, values: pa.BinaryArray) -> None:
        """Add the values of these rows. Raises OSError."""
        if not len(rows):
            return
        # 32 bits: a slice has fewer rows than 2^31, because ``MOST_SLICE_RECORDS`` is far below.
        self._new.append((rows.astype(np.int32), values))
        self._new_bytes += values.nbytes + len(rows) * VALUE_ROW_BYTES
        if self._new_bytes >= self.together:
            self._deal_out()

    def _deal_out(self) -> None:
        """Move new values to the windows, the ranges of rows in which they are handed out."""
        if not self._new:
            return
        rows = np.concatenate([some for some, _ in self._new])
        values = pa.concat_arrays([some for _, some in self._new])
        # The separate arrays are dropped, so that from here on the values exist once.
        self._new.clear()
        self._new_bytes = 0
        # Values are sorted by their window only. The order within a window is made when it is handed out, in memory
        # that fits the caches of the processor.
        window = self._windows_of(rows)
        if len(self.starts) <= 1 << 16:
            # numpy sorts 16-bit numbers by counting, which takes one pass.
            window = window.astype(np.uint16)
        # A stable sort keeps the values of a window in the order of their records, and so does the file.
        order = np.argsort(window, kind="stable")
        sizes = pc.binary_length(values).fill_null(0).to_numpy()
        self._sizes += np.bincount(window, weights=sizes, minlength=len(self.starts)).astype(np.int64)
        part = apart(rows[order]), gather(values, order)
        self._taken_rows += len(rows)
        if self._file is not None:
            self._file.put_away([part])
            return
        self._parts.append(part)
        # Only row numbers and values stay in memory now, so these are counted.
        self._held_bytes += part[0].nbytes + part[1].nbytes
        if self._held_bytes > self.memory:
            self._file = self._made_file()
            parts, self._parts = self._parts, []
            self._file.put_away(parts)
            # This first write is awaited: otherwise all these values would stay in memory while further ones come.
            self._file.settle()

    def windows(self) -> Generator[tuple[int, int, pa.BinaryArray], None, None]:
        """Yield (first row, end row, values) in order; no range crosses a window. Call it once. Raises OSError."""
        self._deal_out()
        if self._file is None:
            yield from self._handed_out(self._parts, 0, len(self.starts))
            return
        self._file.complete()
        for number, (begin, end) in enumerate(pairwise(self._borders(self._file.parts))):
            # A part of the file takes half of the memory on average. If its values are larger than the first ones let
            # expect, it is read in several lots.
            for first, upto in self._lots(begin, end):
                # Each lot reads the whole part, and keeps only its own rows.
                low, high = self._row(first), self._row(upto)
                with closing(self._file.read(number)) as read:
                    mine = [rows_and_values for part in read if len((rows_and_values := _between(part, low, high))[0])]
                yield from self._handed_out(mine, first, upto)

    def close(self) -> None:
        """Release memory, thread and disk; nothing is added or handed out any more."""
        self._new.clear()
        self._parts.clear()
        if self._file is not None:
            self._file.close()

    def _lots(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield windows of a part that fit the memory together, or one that does not."""
        while begin < end:
            upto, size = begin + 1, int(self._sizes[begin])
            # The sizes are exact here, since everything has been added by now.
            while upto < end and size + int(self._sizes[upto]) <= self.memory:
                size += int(self._sizes[upto])
                upto += 1
            yield begin, upto
            begin = upto

    def _handed_out(self, parts: list[_Part], begin: int, end: int) -> Iterator[tuple[int, int, pa.BinaryArray]]:
        """Yield the windows ``begin`` to ``end`` in order, made of ``parts``, which are dropped meanwhile."""
        of_window: list[list[_Part]] = [[] for _ in range(begin, end)]
        for rows, values in parts:
            window = self._windows_of(rows)
            # Within a part, windows rise, so that each window is one slice of it.
            cuts = np.flatnonzero(np.diff(window)) + 1
            for low, high in zip([0, *cuts.tolist()], [*cuts.tolist(), len(rows)], strict=True):
                of_window[int(window[low]) - begin].append((rows[low:high], values.slice(low, high - low)))
        # The windows have slices of the parts now, and each is dropped as soon as it is handed out.
        parts.clear()
        for number, mine in enumerate(of_window, start=begin):
            of_window[number - begin] = []
            yield from self._in_order(mine, self._row(number), self._row(number + 1), int(self._sizes[number]))

    def _in_order(
        self, parts: list[_Part], first: int, last: int, size: int
    ) -> Iterator[tuple[int, int, pa.BinaryArray]]:
        """Yield the values of the rows ``first`` to ``last`` in order; ``size`` is that of their bytes."""
        # If a window is too large for Python objects at once, it is halved until each piece fits or is one row.
        if size > self.most and last - first > 1:
            middle = (first + last) // 2
            for low, high in ((first, middle), (middle, last)):
                some = [_between(part, low, high) for part in parts]
                yield from self._in_order(some, low, high, sum(values.nbytes for _, values in some))
            return
        place = np.empty(last - first, dtype=np.int64)
        # For each row of the window, where its value is among those that were read.
        place[np.concatenate([rows for rows, _ in parts]) - first] = np.arange(last - first)
        yield first, last, gather(pa.concat_arrays([values for _, values in parts]), place)

    def _windows_of(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.integer[Any]]:
        if self._width:
            return rows // self._width
        return np.searchsorted(self.starts, rows, "right") - 1

    def _row(self, window: int) -> int:
        if window == len(self.starts):
            return self.rows
        return int(self.starts[window])

    def _made_file(self) -> _File:
        # The size is estimated: every row counts as the average so far.
        expected = self._held_bytes * self.rows // max(self._taken_rows, 1)
        parts = -(-expected * FILE_SPARE // max(self.memory, 1))
        parts = max(1, min(parts, MOST_FILE_PARTS, len(self.starts)))
        return _File(self.new_file(), self.starts[self._borders(parts)[:-1]])

    def _borders(self, parts: int) -> list[int]:
        """Return the windows that so many parts begin with, and how many windows there are."""
        return [-(-len(self.starts) * number // parts) for number in range(parts + 1)]


def _between(part: _Part, first: int, last: int) -> _Part:
    """Return the rows ``first`` to ``last`` (exclusive) of a part."""
    rows, values = part
    mask = (rows >= first) & (rows < last)
    if mask.all():
        return part
    return rows[mask], values.filter(pa.array(mask))


def window_starts(segments: Sequence[tuple[int | None, int, int]], rows: int) -> Ints:
    """Return the first row of each window of at most ``rows`` rows; no window crosses a segment."""
    starts = [np.arange(begin, end, rows, dtype=np.int64) for _, begin, end in segments]
    # The empty array is for no segment at all: numpy concatenates no empty list.
    return np.concatenate([np.empty(0, dtype=np.int64), *starts])


@dataclass(frozen=True, slots=True)
class _ReadTarget:
    """The memory that a batch is read into."""

    pages: memoryview
    """The pages that contain it."""
    first: int
    """The offset in the file at which they begin."""
    end: int
    """The offset in the file at which the batch ends."""
    batch: pa.Buffer
    """It alone."""


class WaitingFile:
    """Takes batches, and gives them back any number of times. It goes with this process, however that ends.

    The file is as large as the sorted files, and read once: it bypasses the page cache.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        """Create a file without a name: ``path`` can be used again at once. Raises OSError."""
        self._schema, self._path = schema, path
        # The file object closes the descriptor in every case, which frees the disk space. O_EXCL, and the mode 0600
        # that ``open_direct`` gives: no link of another user is followed, and no other user can read the values of the
        # store.
        self._file = open(open_direct(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), "r+b", buffering=0)  # noqa: SIM115
        os.unlink(path)
        self._last = aligned(FILE_WRITE_BYTES)
        """Bytes that are not written yet."""
        self._written = self._waiting = 0
        """Bytes in the file, and those behind them."""

    def append(self, *columns: pa.Array) -> tuple[int, int]:
        """Append a batch; return where it begins and its bytes, by which it is read. Raises OSError."""
        # The batch is written as a message of Arrow, which is read back without decoding.
        data = memoryview(pa.record_batch([*columns], schema=self._schema).serialize()).cast("B")
        where = self._written + self._waiting, len(data)
        # Only whole blocks are written: O_DIRECT requires aligned memory and positions.
        while len(data):
            some = data[: FILE_WRITE_BYTES - self._waiting]
            self._last[self._waiting : self._waiting + len(some)] = some
            self._waiting += len(some)
            data = data[len(some) :]
            if self._waiting == FILE_WRITE_BYTES:
                with naming(self._path):
                    write_from(self._file.fileno(), self._last, self._written)
                self._written += FILE_WRITE_BYTES
                self._waiting = 0
        return where

    def read_all(self, places: Sequence[tuple[int, int]]) -> Generator[list[pa.Array], None, None]:
        """Yield the columns of the batches at ``places``, in this order; a few are read ahead. Raises OSError.

        Nothing may be appended meanwhile.
        """
        ahead: deque[Future[_ReadTarget]] = deque()
        with FullPool(READ_AHEAD, "waiting") as pool:
            for where in places:
                # The memory is taken here, not in the thread: the allocator would keep for each thread what it takes
                # itself.
                ahead.append(pool.ask(self._fill, self._target(where)))
                if len(ahead) > READ_AHEAD:
                    yield self._columns(ahead.popleft().result())
            while ahead:
                yield self._columns(ahead.popleft().result())

    def _target(self, where: tuple[int, int]) -> _ReadTarget:
        begin, size = where
        # O_DIRECT reads whole pages into aligned memory; a batch begins and ends anywhere.
        first, upto = whole_pages(begin, begin + size)
        # The target is in Arrow's memory, as all that waits for its turn, and begins at a page.
        memory = pa.allocate_buffer(upto - first + PAGE_BYTES)
        skipped = -memory.address % PAGE_BYTES
        pages = memoryview(memory).cast("B")[skipped : skipped + upto - first]
        return _ReadTarget(pages, first, begin + size, memory.slice(skipped + begin - first, size))

    def _fill(self, target: _ReadTarget) -> _ReadTarget:
        """Read a batch into ``target``: from the file, and from the block that is not written yet."""
        # The part of the batch that is not in the file is in the last block.
        in_file = min(target.first + len(target.pages), self._written) - target.first
        with naming(self._path):
            # Fewer bytes than were written mean that the file system lost them. A shorter batch would silently lose
            # rows.
            if in_file > 0 and read_into(self._file.fileno(), target.pages[:in_file], target.first) != in_file:
                raise OSError(errno.EIO, "a temporary file has lost values that kstate wrote to it")
        if target.end > self._written:
            low = max(target.first, self._written)
            target.pages[low - target.first : target.end - target.first] = self._last[
                low - self._written : target.end - self._written
            ]
        return target

    def _columns(self, target: _ReadTarget) -> list[pa.Array]:
        return [*pa.ipc.read_record_batch(target.batch, self._schema).columns]

    def close(self) -> None:
        """Release the disk space."""
        self._file.close()

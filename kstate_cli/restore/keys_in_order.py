"""The changelog keys of rows, in the order of the rows: in memory, or in a file where more is known than fits."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from kstate_cli.restore.waiting_file import WaitingFile

if TYPE_CHECKING:
    import pyarrow as pa

    from kstate_cli.restore.convert import Ints


class KeysInOrder:
    """Takes keys once, hands them out window by window, and is closed."""

    def __init__(self, new_file: Callable[[], str]) -> None:
        """``new_file``: a path for what does not stay in memory."""
        self._new_file = new_file
        self._held: pa.BinaryArray | None = None
        self._file: WaitingFile | None = None
        self._starts: list[int] = []
        self._batches: list[tuple[int, int]] = []
        """By window: where it is in the file."""
        self._read: tuple[int, pa.BinaryArray] | None = None
        self._ahead: Generator[list[pa.Array], None, None] | None = None
        """The windows behind the one that was read last."""

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
            self._file = WaitingFile(self._new_file(), pa.schema([("key", pa.binary())]))
        begins = [int(one) - first for one in starts]
        for begin, end in zip(begins, [*begins[1:], len(keys)], strict=True):
            self._starts.append(first + begin)
            self._batches.append(self._file.append(keys.slice(begin, end - begin)))

    def between(self, first: int, last: int) -> pa.BinaryArray:
        """The keys of rows ``first`` to ``last`` (exclusive), which belong to one window. Raises OSError."""
        if self._held is not None:
            return self._held.slice(first, last - first)
        number = bisect_right(self._starts, first) - 1
        if self._read is None or self._read[0] != number:
            self._read = number, self._window(number)
        return self._read[1].slice(first - self._starts[number], last - first)

    def _window(self, number: int) -> pa.BinaryArray:
        assert self._file is not None
        if self._ahead is None or self._read is None or number != self._read[0] + 1:
            self._stop()
            self._ahead = self._file.read_all(self._batches[number:])
        (keys,) = next(self._ahead)
        return keys

    def _stop(self) -> None:
        """Here, not wherever it is dropped: a signal that comes while a thread is waited for would be lost there."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def close(self) -> None:
        """Gives back memory and disk."""
        self._stop()
        self._held = self._read = None
        if self._file is not None:
            self._file.close()

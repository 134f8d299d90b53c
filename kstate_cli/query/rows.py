"""Iterators over answers, and one iterator over those of several partitions."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.rows.errors import StoreUnreadable, look_closer

T = TypeVar("T")


class RowIterator(Generic[T]):
    """Rows as they are read: nothing is kept, so a scan of any store runs in constant memory. A context manager.

    Made of ``(order, row)`` pairs' source and two functions, so that the fast path has no Python call per row.
    ``order`` gives what rows are sorted by (bytes of the key, time of the window); ``decode`` makes of a source row
    what the caller gets, None keeps it. Close it, or leave its ``with``, before the directory is closed.
    Raises StoreUnreadable where the store cannot be read on: an answer never ends short in silence.
    """

    __slots__ = ("_close", "_decode", "_hint", "_order", "_source", "_where", "reverse")

    def __init__(
        self,
        source: Iterable[Any],
        *,
        order: Callable[[Any], Any],
        decode: Callable[[Any], T] | None = None,
        close: Callable[[], None] | None = None,
        reverse: bool = False,
    ) -> None:
        self._source = iter(source)
        self._order = order
        self._decode = decode
        self._close = close
        self._where = "a store"
        self._hint: str | None = None
        self.reverse = reverse
        """Whether rows come in descending order."""

    def __iter__(self) -> Iterator[T]:
        try:
            # Nothing is called per row where rows need no decoding.
            yield from self._source if self._decode is None else map(self._decode, self._source)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None

    def __next__(self) -> T:
        row = next(self._source)
        try:
            decoded: T = row if self._decode is None else self._decode(row)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None
        return decoded

    def prime(self, where: str, app: Path) -> None:
        """Reads the first row ahead: raises now what would else be raised by the first ``next``.

        ``where`` is what messages about rows call the store, ``app`` the directory to be looked at then.
        """
        self._where = where
        self._hint = look_closer(app)
        first = list(islice(self._source, 1))
        self._source = chain(first, self._source)

    def ordered(self) -> Iterator[tuple[Any, T]]:
        """Each row with what it is sorted by."""
        order, decode = self._order, self._decode
        try:
            for row in self._source:
                yield order(row), row if decode is None else decode(row)
        except MalformedBytesError as error:
            raise self._unreadable(error) from None

    def close(self) -> None:
        """Ends the reading. Closing twice does nothing."""
        self._source = iter(())
        close, self._close = self._close, None
        if close is not None:
            close()

    def _unreadable(self, error: MalformedBytesError) -> StoreUnreadable:
        return StoreUnreadable(f"{self._where}: {error}", hint=self._hint)

    def __enter__(self) -> RowIterator[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def collate(iterators: Iterable[RowIterator[T]]) -> RowIterator[T]:
    """One iterator over the rows of several partitions in key order; closing it closes them all.

    They must be in one order, all ascending or all descending: ValueError otherwise.
    """
    parts = list(iterators)
    directions = {part.reverse for part in parts}
    if len(directions) > 1:
        raise ValueError("some iterators are ascending and some descending")
    reverse = directions == {True}

    def close() -> None:
        for part in parts:
            part.close()

    merged = heapq.merge(*(part.ordered() for part in parts), key=lambda pair: pair[0], reverse=reverse)
    return RowIterator(merged, order=lambda pair: pair[0], decode=lambda pair: pair[1], close=close, reverse=reverse)

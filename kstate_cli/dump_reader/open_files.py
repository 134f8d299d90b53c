"""The files of a slice that are open, and how they are read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kstate_cli.signals import FullPool

from .direct_file import READ_AHEAD, DirectFile, Listener, Span
from .errors import DumpError, printable
from .footers import open_parquet, spans_of
from .model import Piece, Slice

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

_OPEN_FILES: Final = 8


class OutOfOrder(Exception):
    """The offsets of a slice turned out not to rise, though it was read as if they did.

    Nothing is wrong with the dump: what was made of it is to be made anew, with a passage that knows.
    """


@dataclass(slots=True)
class Passage:
    """How the files of a slice are gone through, maybe several times."""

    direct: bool = False
    """Around the page cache; the file system is that of this host."""
    listener: Listener | None = None
    """Hears of what is read so where values are."""
    ordered: bool = True
    """Whether offsets rise from row to row, as far as anybody knows."""
    _seen: tuple[int, int] | None = None
    """The offsets, from the first to the last, between which they were seen to."""

    def has_seen(self, part: Slice) -> bool:
        """Whether all rows of the part were read, and their offsets rose."""
        return self._seen is not None and self._seen[0] <= part.first and part.last <= self._seen[1]

    def saw(self, part: Slice) -> None:
        """All its rows were read, and their offsets rose."""
        first, last = self._seen or (part.first, part.last)
        if first <= part.first <= last + 1:
            self._seen = first, max(last, part.last)


@dataclass(frozen=True, slots=True)
class _OpenFile:
    parquet: pq.ParquetFile
    source: DirectFile | None
    spans: dict[tuple[int, frozenset[str]], list[Span]] = field(default_factory=dict)

    def expect(self, piece: Piece, columns: frozenset[str]) -> None:
        """These columns of the piece are read now."""
        if self.source is None:
            return
        for index in piece.row_groups:
            if (index, columns) not in self.spans:
                self.spans[index, columns] = spans_of(self.parquet.metadata.row_group(index), columns)
        self.source.expect([self.spans[index, columns] for index in piece.row_groups])

    def close(self) -> None:
        self.parquet.close(force=True)
        if self.source is not None:
            self.source.close()


class OpenFiles:
    """Pieces of few files may alternate, but a shuffled dump has thousands."""

    def __init__(self, filesystem: FileSystem, *, direct: bool = False, listener: Listener | None = None) -> None:
        self._filesystem, self._listener = filesystem, listener
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._pool = FullPool(READ_AHEAD, "read-ahead") if direct else None

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while self._open:
                self._open.popitem()[1].close()
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def get(self, piece: Piece, columns: frozenset[str] = frozenset()) -> pq.ParquetFile:
        """The file of a piece, checked to be the one that the dump was opened with; ``columns`` will be read of it."""
        one = self._open.pop(piece.path, None)
        if one is None:
            if len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close()
            one = self._opened(piece.path)
        self._open[piece.path] = one
        metadata = one.parquet.metadata
        known = piece.row_groups[-1] < metadata.num_row_groups
        if not known or sum(metadata.row_group(index).num_rows for index in piece.row_groups) != piece.rows:
            raise changed(piece)
        for other in self._open.values():
            if other is not one and other.source is not None:
                other.source.rest()
        one.expect(piece, columns)
        return one.parquet

    def _opened(self, path: str) -> _OpenFile:
        if self._pool is None:
            return _OpenFile(open_parquet(self._filesystem, path), None)
        source = DirectFile(path, self._pool, self._listener)
        try:
            return _OpenFile(open_parquet(self._filesystem, path, source), source)
        except BaseException:
            source.close()
            raise


def changed(piece: Piece) -> DumpError:
    """What a file is told to be that is another one than before."""
    return DumpError(
        "the file is not what it was when the dump was opened, or its statistics are wrong", where=printable(piece.path)
    )

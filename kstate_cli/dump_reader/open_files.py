"""The open files of a slice, and how often they are read."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final

from .errors import DumpError, printable
from .footers import open_parquet
from .model import Piece, Slice

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSystem

_OPEN_FILES: Final = 8


class OutOfOrder(Exception):
    """The offsets of a slice do not rise, although it was read as if they did.

    The dump is valid. The caller repeats its work with a passage that is not :attr:`Passage.ordered`.
    """


@dataclass(slots=True)
class Passage:
    """The readings of one slice: keys come first, then values."""

    ordered: bool = True
    """Whether offsets rise from row to row. False once a row has shown that they do not."""
    _rising: tuple[int, int] | None = None
    """The first and last offset of the rows that were read and whose offsets rise."""

    def is_rising(self, part: Slice) -> bool:
        """Return whether all rows of the part were read before, and their offsets rise."""
        return self._rising is not None and self._rising[0] <= part.first and part.last <= self._rising[1]

    def mark_rising(self, part: Slice) -> None:
        """Record that all rows of the part were read, and that their offsets rise."""
        first, last = self._rising or (part.first, part.last)
        if first <= part.first <= last + 1:
            self._rising = first, max(last, part.last)


class OpenFiles:
    """The files that were read last. Pieces of few files may alternate, but a shuffled dump has thousands of files."""

    def __init__(self, filesystem: FileSystem) -> None:
        self._filesystem = filesystem
        self._open: OrderedDict[str, pq.ParquetFile] = OrderedDict()

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].close(force=True)

    def get(self, piece: Piece) -> pq.ParquetFile:
        """Return the file of a piece. Raises DumpError if it is not the file with which the dump was opened."""
        parquet = self._open.pop(piece.path, None)
        if parquet is None:
            if len(self._open) >= _OPEN_FILES:
                self._open.popitem(last=False)[1].close(force=True)
            parquet = open_parquet(self._filesystem, piece.path)
        self._open[piece.path] = parquet
        metadata = parquet.metadata
        has_groups = piece.row_groups[-1] < metadata.num_row_groups
        if not has_groups or sum(metadata.row_group(index).num_rows for index in piece.row_groups) != piece.rows:
            raise changed(piece)
        return parquet


def changed(piece: Piece) -> DumpError:
    """Return the error for a file that was replaced since the dump was opened."""
    return DumpError(
        "the file is not what it was when the dump was opened, or its statistics are wrong", where=printable(piece.path)
    )

"""Rows of one column family in key order, quickly, and never a short answer.

``RdictItems`` hands over a whole row in one call, ``RdictIter`` needs three; but the former ends silently at a block
that cannot be read. So rows are taken from it in pieces, and where it ends, an ``RdictIter`` must come to the same end
with a good status. It cannot pass a block where the other one stopped: the keys of that block come after the last one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from kstate_cli.rocks.errors import RocksError

if TYPE_CHECKING:
    from rocksdict import Rdict, ReadOptions

Row = tuple[bytes, bytes]
FlatPiece = tuple[list[bytes], "array[int]"]
"""Rows as key, value, key, value …, and the length of each (type code ``I``)."""


@dataclass(frozen=True, slots=True)
class PieceSizes:
    """How many rows a piece has: ``first`` at first, so that few come soon, then up to ``most``, or ``most_bytes``."""

    first: int
    most: int
    most_bytes: int


_FIRST_ROWS = 2
_MOST_ROWS = 512
_PIECE_BYTES = 1 << 20
_READAHEAD = 1 << 18


def pieces(family: Rdict, lower: bytes | None, below: bytes | None, *, reverse: bool = False) -> Iterator[list[Row]]:
    """Yield the rows with ``lower <= key < below``, a few at a time; None leaves an end open.

    Raises whatever rocksdict raises at a block that cannot be read, and RocksError where rows end too early.
    """
    if lower is not None and below is not None and lower >= below:
        return
    options = _options(lower, below)
    # The lower bound of rocksdict's ReadOptions is an upper one (0.3.29), so rows are cut off here.
    items = family.items(backwards=reverse, from_key=None if reverse else lower, read_opt=options)
    last: bytes | None = None
    many = _FIRST_ROWS
    # Whole pieces: a generator that is resumed for each row costs more than reading the row.
    while rows := list(islice(items, many)):
        piece = cast("list[Row]", rows)
        last = piece[-1][0]
        # Backwards the lower bound is checked once for each piece, with its last row.
        if reverse and lower is not None and last < lower:
            yield [row for row in piece if row[0] >= lower]
            return
        yield piece
        # Few rows come soon; values of a megabyte must not be taken 512 at a time.
        row_bytes = sum(map(len, map(itemgetter(1), piece))) // len(piece) + 1
        many = max(1, min(_MOST_ROWS, 2 * many, _PIECE_BYTES // row_bytes))
    # Only here: a caller that stops early has no claim to be complete.
    prove_end(family, last, options, lower=lower, reverse=reverse)


def flat_pieces(family: Rdict, lower: bytes | None, below: bytes | None, sizes: PieceSizes) -> Iterator[FlatPiece]:
    """Yield rows as :func:`pieces`, forwards, without an object for each row."""
    if lower is not None and below is not None and lower >= below:
        return
    options = _options(lower, below)
    last: bytes | None = None
    for piece in in_pieces(cast("Iterator[Row]", family.items(from_key=lower, read_opt=options)), sizes):
        last = piece[0][-2]
        yield piece
    prove_end(family, last, options, lower=lower)


def in_pieces(rows: Iterator[Row], sizes: PieceSizes) -> Iterator[FlatPiece]:
    """Yield all rows, in pieces of such sizes."""
    many = sizes.first
    while flat := list(chain.from_iterable(islice(rows, many))):
        lengths = array("I", map(len, flat))
        yield flat, lengths
        # ``flat`` has two members for each row: so many rows of this average size fill a piece.
        many = max(1, min(sizes.most, 2 * many, sizes.most_bytes * len(flat) // 2 // (sum(lengths) + 1)))


def prove_end(
    family: Rdict,
    last: bytes | None,
    options: ReadOptions | None = None,
    *,
    lower: bytes | None = None,
    reverse: bool = False,
) -> None:
    """Raise RocksError unless no row follows the key ``last``, which need not be there.

    ``last`` is None where no row was read at all: then there must be none, forwards from ``lower`` on.
    """
    iterator = family.iter(options)
    if last is None:
        if reverse:
            iterator.seek_to_last()
        elif lower is not None:
            iterator.seek(lower)
        else:
            iterator.seek_to_first()
    else:
        iterator.seek_for_prev(last) if reverse else iterator.seek(last)
        # The seek lands on the key itself if it still exists; what counts is the row behind it.
        if iterator.valid() and iterator.key() == last:
            iterator.prev() if reverse else iterator.next()
    # An iterator is invalid at the end and at an error: only its status tells them apart, so it is read before the
    # verdict.
    at_end = not iterator.valid()
    iterator.status()
    if not at_end:
        raise RocksError(f"{family.path()}: reading stopped before its end")


def _options(lower: bytes | None, below: bytes | None) -> ReadOptions:
    from rocksdict import ReadOptions

    options = ReadOptions()
    if below is not None:
        options.set_iterate_upper_bound(below)
    # A whole scan reads the file from front to back; a short range would read ahead in vain.
    if lower is None and below is None:
        options.set_readahead_size(_READAHEAD)
    return options

"""Read rows of one column family in key order: fast, and never fewer than there are.

``RdictItems`` returns a whole row in one call, while ``RdictIter`` needs three calls. But ``RdictItems`` ends silently
at a block that it cannot read. So rows are taken from it in lists (*pieces*), and when it ends, an ``RdictIter`` must
end at the same key with a good status. It cannot skip a block at which the other one stopped, because the keys of that
block come after the last key.
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
"""Rows as a list key, value, key, value …, and the length of each of its members (type code ``I``)."""


@dataclass(frozen=True, slots=True)
class PieceSizes:
    """The number of rows in a piece: first ``first``, so that they come soon, then up to ``most`` or ``most_bytes``."""

    first: int
    most: int
    most_bytes: int


_FIRST_ROWS = 2
_MOST_ROWS = 512
_PIECE_BYTES = 1 << 20
_READAHEAD = 1 << 18


def pieces(family: Rdict, lower: bytes | None, below: bytes | None, *, reverse: bool = False) -> Iterator[list[Row]]:
    """Yield the rows with ``lower <= key < below`` in lists of increasing length. None means that there is no bound.

    Raises any error of rocksdict for a block that cannot be read, and RocksError if the rows end too early.
    """
    if lower is not None and below is not None and lower >= below:
        return
    options = _options(lower, below)
    # The lower bound of rocksdict's ReadOptions works as an upper one (0.3.29). So rows below it are removed here.
    items = family.items(backwards=reverse, from_key=None if reverse else lower, read_opt=options)
    last: bytes | None = None
    many = _FIRST_ROWS
    # Lists and not single rows: resuming a generator for each row costs more than reading the row.
    while rows := list(islice(items, many)):
        piece = cast("list[Row]", rows)
        last = piece[-1][0]
        # Backwards, the lower bound is checked once for each list, with its last row.
        if reverse and lower is not None and last < lower:
            yield [row for row in piece if row[0] >= lower]
            return
        yield piece
        # The first lists are short, so that rows come soon. The size in bytes is limited too: 512 values of a megabyte
        # would take too much memory.
        row_bytes = sum(map(len, map(itemgetter(1), piece))) // len(piece) + 1
        many = max(1, min(_MOST_ROWS, 2 * many, _PIECE_BYTES // row_bytes))
    # The end is proved only if the caller has read everything: one that stops early does not rely on it.
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
    """Yield all rows in lists of the given sizes."""
    many = sizes.first
    while flat := list(chain.from_iterable(islice(rows, many))):
        lengths = array("I", map(len, flat))
        yield flat, lengths
        # ``flat`` has two members for each row. So this many rows of the average size have ``most_bytes``.
        many = max(1, min(sizes.most, 2 * many, sizes.most_bytes * len(flat) // 2 // (sum(lengths) + 1)))


def prove_end(
    family: Rdict,
    last: bytes | None,
    options: ReadOptions | None = None,
    *,
    lower: bytes | None = None,
    reverse: bool = False,
) -> None:
    """Raise RocksError unless the rows end after the key ``last``, which itself need not exist any more.

    ``last`` is None if no row was read. Then there must be none, forwards none from ``lower`` on.
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
        # The seek finds the key itself, if it still exists. The row after it decides.
        if iterator.valid() and iterator.key() == last:
            iterator.prev() if reverse else iterator.next()
    # An iterator is invalid both at the end and after an error. Only its status, which raises, distinguishes the two.
    # So the status is read before at_end is used.
    at_end = not iterator.valid()
    iterator.status()
    if not at_end:
        raise RocksError(f"{family.path()}: RocksDB stopped reading before the end")


def _options(lower: bytes | None, below: bytes | None) -> ReadOptions:
    from rocksdict import ReadOptions

    options = ReadOptions()
    if below is not None:
        options.set_iterate_upper_bound(below)
    # A scan of all rows reads the file from front to back. For a short range, reading ahead would be useless.
    if lower is None and below is None:
        options.set_readahead_size(_READAHEAD)
    return options

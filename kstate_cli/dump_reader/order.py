"""Rows by offset, each offset once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .columns import column_type
from .errors import NEW_DUMP, DumpError
from .model import Slice

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

_BINARY: Final = ("key", "value")
# Arrow's binary has 32-bit positions: above this a column is gathered in blocks.
_BLOCK_BYTES: Final = 1 << 30


def is_rising(offsets: npt.NDArray[np.int64]) -> bool:
    """Whether each offset is greater than the one before."""
    return bool((offsets[1:] > offsets[:-1]).all())


def within(table: pa.Table, part: Slice) -> pa.Table:
    """The rows of ``table`` whose offsets belong to the slice; copies nothing where the offsets rise."""
    import numpy as np

    offsets = table.column("offset").to_numpy()
    if is_rising(offsets):
        begin, end = np.searchsorted(offsets, part.first), np.searchsorted(offsets, part.last, side="right")
        return table.slice(int(begin), int(end - begin))
    return table.filter((offsets >= part.first) & (offsets <= part.last))


def sorted_once(table: pa.Table) -> pa.Table:
    """The rows of ``table`` by offset, the first of each offset; see :func:`refuse_differing` for the others."""
    import numpy as np

    offsets = table.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(again):
        keep = np.ones(len(order), dtype=bool)
        keep[again + 1] = False
        order = order[keep]
    return gathered(table, order)


def repeated(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The offsets that occur more than once, each once, in order."""
    import numpy as np

    ordered = np.sort(offsets)
    return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])


def refuse_differing(table: pa.Table, part: Slice) -> None:
    """DumpError, naming the offset and the column, where two rows with one offset are not the same record.

    One of them is then not from this topic-partition, or the topic was created anew. ``table`` has every column that
    the dump has: a record is its key, value, timestamp and headers, whatever a store keeps of them.
    """
    import numpy as np

    offsets = table.column("offset").to_numpy()
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    first, second = gathered(table, order[again]), gathered(table, order[again + 1])
    for name in table.column_names:
        differ = _differ(first.column(name), second.column(name))
        if len(differ):
            raise DumpError(
                f"{part.topic}:{part.partition}: two rows have offset {ordered[again[differ[0]]]}"
                f" and differ in their {name}",
                hint=f"the dump mixes two topics, or a topic that was deleted and created again: {NEW_DUMP}",
            )


def gathered(table: pa.Table, indices: npt.NDArray[np.int64]) -> pa.Table:
    """The rows at ``indices``, in that order."""
    import pyarrow as pa

    if table.nbytes <= _BLOCK_BYTES:
        return table.combine_chunks().take(indices)
    block = max(1, int(table.num_rows * (_BLOCK_BYTES // 2) // table.nbytes))
    columns = {}
    for name in table.column_names:
        column = table.column(name)
        wide = column.cast(_wide(name)).combine_chunks() if name in (*_BINARY, "headers") else column.combine_chunks()
        chunks = [wide.take(indices[at : at + block]).cast(column.type) for at in range(0, len(indices), block)]
        columns[name] = pa.chunked_array(chunks, column.type)
    return pa.table(columns)


def _wide(name: str) -> pa.DataType:
    import pyarrow as pa

    if name == "headers":
        return pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    return pa.large_binary() if name in _BINARY else column_type(name)


def _differ(one: pa.ChunkedArray, other: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_list(one.type):
        # Arrow compares no lists. In Kafka no headers and an empty list of them are the same.
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.flatnonzero([(a or []) != (b or []) for a, b in pairs])
    equal = pc.fill_null(pc.equal(one, other), False)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    return np.flatnonzero(~np.asarray(pc.or_(equal, both_null)))

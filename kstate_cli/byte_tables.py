"""Binary columns with values of equal length as tables of bytes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


def fixed_table(array: pa.BinaryArray) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of a binary array with values of equal length, a row for each; None for any other array.

    Nothing is copied. Empty values have no table.
    """
    import numpy as np

    rows = len(array)
    if not rows or array.null_count:
        return None
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + rows + 1]
    width, rest = divmod(int(bounds[-1]) - int(bounds[0]), rows)
    if rest or not width or not bool((bounds[1:] - bounds[:-1] == width).all()):
        return None
    return np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]].reshape(rows, width)


def binary_of(table: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    """Return the rows of a table of bytes as values; contiguous bytes are not copied.

    Raise OverflowError for more bytes than the 32-bit offsets of an array of pyarrow reach.
    """
    import numpy as np
    import pyarrow as pa

    rows, width = table.shape
    if rows * width > np.iinfo(np.int32).max:
        raise OverflowError(f"a table of {rows} × {width} is too much for one array")
    ends = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = np.ascontiguousarray(table)
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])

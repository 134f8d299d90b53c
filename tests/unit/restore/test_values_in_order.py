"""Values in the order of rows, however many are put in order together, and what that takes."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstate_cli.restore.values_in_order import ValuesInOrder, window_starts

NUMBERS = itertools.count()


def in_order(folder: Path, rows: int, *, width: int, memory: int, most: int, together: int) -> ValuesInOrder:
    starts = window_starts([(None, 0, rows // 3), (None, rows // 3, rows)], width)
    return ValuesInOrder(rows, starts, memory, most, lambda: str(folder / f"{next(NUMBERS)}.waiting"), together)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=200),
    width=st.integers(1, 50),
    memory=st.sampled_from([1, 500, 1 << 20]),
    most=st.sampled_from([1, 100, 1 << 20]),
    together=st.sampled_from([1, 300, 2_000, 1 << 20]),
    batch=st.integers(1, 60),
    data=st.data(),
)
def test_values_of_any_order(
    tmp_path: Path,
    values: list[bytes | None],
    width: int,
    memory: int,
    most: int,
    together: int,
    batch: int,
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(range(len(values))))
    taken = in_order(tmp_path, len(values), width=width, memory=memory, most=most, together=together)
    for first in range(0, len(order), batch):
        some = order[first : first + batch]
        taken.add(np.array(some, dtype=np.int64), pa.array([values[row] for row in some], pa.binary()))
    found: list[bytes | None] = []
    for first, end, part in taken.windows():
        assert first == len(found) and end - first == len(part)
        found += part.to_pylist()
    assert found == values
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("size", [None, 0, 8, 100])
def test_what_is_put_in_order_together(tmp_path: Path, size: int | None) -> None:
    """Rows take memory too: those without a value, or a small one, are no more because of that."""
    together, rows, batch = 8 << 20, 1 << 20, 32_768
    taken = in_order(tmp_path, rows, width=4_096, memory=1 << 30, most=1 << 20, together=together)
    values = pa.array([None if size is None else bytes(size)] * batch, pa.binary())
    order = np.random.default_rng(1).permutation(rows)
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    tracemalloc.start()
    try:
        for first in range(0, rows, batch):
            taken.add(order[first : first + batch], values)
            held = sum(numbers.nbytes + some.nbytes for numbers, some in taken._held)
            most = max(most, pool.bytes_allocated() - before - held)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken._held
    assert max(peak, most) < 3 * together

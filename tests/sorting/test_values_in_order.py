"""Values in the order of rows, however many are put in order together, and what that takes."""

from __future__ import annotations

import errno
import gc
import itertools
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kstate_cli.direct_io import PAGE_BYTES, write_from
from kstate_cli.restore.sorting.values_in_order import ValuesInOrder, WaitingFile, window_starts
from tests.unit.test_direct_io import deleted_files

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
    ordered = in_order(tmp_path, len(values), width=width, memory=memory, most=most, together=together)
    for first in range(0, len(order), batch):
        some = order[first : first + batch]
        ordered.add(np.array(some, dtype=np.int64), pa.array([values[row] for row in some], pa.binary()))
    contents: list[bytes | None] = []
    for first, end, part in ordered.windows():
        assert first == len(contents) and end - first == len(part)
        contents += part.to_pylist()
    ordered.close()
    assert contents == values
    assert not [*tmp_path.iterdir()]


def test_memory_while_more_rows_are_written(tmp_path: Path) -> None:
    """What comes, as one and in order; what came before it, and what that becomes as it is written."""
    together, rows, batch, memory = 4 << 20, 1 << 19, 16_384, 1 << 20
    ordered = in_order(tmp_path, rows, width=4_096, memory=memory, most=1 << 20, together=together)
    values = pa.array([bytes(100)] * batch, pa.binary())
    order = np.random.default_rng(1).permutation(rows)
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    files = 0
    pa.set_memory_pool(pool)
    try:
        for first in range(0, rows, batch):
            ordered.add(order[first : first + batch], values)
            files += ordered._file is not None
    finally:
        pa.set_memory_pool(usual)
    assert files > 20, "most of it waits in a file"
    ordered.close()
    most = pool.max_memory()
    assert 2 * together < most < 4 * together + memory, most / together


@pytest.mark.parametrize("size", [None, 0, 8, 100])
def test_memory_of_rows_that_are_sorted_together(tmp_path: Path, size: int | None) -> None:
    """Rows take memory too: those without a value, or a small one, are no more because of that."""
    together, rows, batch = 8 << 20, 1 << 20, 32_768
    ordered = in_order(tmp_path, rows, width=4_096, memory=1 << 30, most=1 << 20, together=together)
    values = pa.array([None if size is None else bytes(size)] * batch, pa.binary())
    order = np.random.default_rng(1).permutation(rows)
    pool = pa.default_memory_pool()
    before, most = pool.bytes_allocated(), 0
    tracemalloc.start()
    try:
        for first in range(0, rows, batch):
            ordered.add(order[first : first + batch], values)
            waiting = sum(numbers.nbytes + some.nbytes for numbers, some in ordered._parts)
            most = max(most, pool.bytes_allocated() - before - waiting)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ordered._parts
    assert max(peak, most) < 3 * together


def test_reading_waits_for_pending_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = WaitingFile.append

    def slowly(file: WaitingFile, *columns: pa.Array) -> tuple[int, int]:
        time.sleep(0.003)
        return append(file, *columns)

    monkeypatch.setattr(WaitingFile, "append", slowly)
    values = in_order(tmp_path, 600, width=20, memory=1_000, most=1 << 20, together=3_000)
    order = np.random.default_rng(3).permutation(600)
    for some in np.split(order, 60):
        values.add(some, pa.array([b"%d" % row * 20 for row in some.tolist()]))
    assert values._parts == []
    rows = [value for *_, part in values.windows() for value in part.to_pylist()]
    assert rows == [b"%d" % row * 20 for row in range(600)]
    values.close()


def test_closed_whatever_has_happened(tmp_path: Path) -> None:
    """Before anything is handed out, amid it, twice: no thread, no file."""
    before, open_before = threading.active_count(), deleted_files()
    for windows in (0, 1):
        values = in_order(tmp_path, 600, width=20, memory=1_000, most=1 << 20, together=3_000)
        for first in range(0, 600, 10):
            values.add(np.arange(first, first + 10), pa.array([b"value" * 20] * 10))
        windows_ = values.windows()
        assert [len(next(windows_)[2]) for _ in range(windows)] == [20] * windows
        assert deleted_files() == open_before + 1
        values.close()
        values.close()
        assert (threading.active_count(), deleted_files()) == (before, open_before)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """What only the collector of cycles would give back stays."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("which", [0, 1, 5, -1, None], ids=["first", "second", "some", "last", "none"])
def test_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: int | None) -> None:
    """What is written behind the back of the one who adds is his error all the same, at the latest before a row comes."""
    writes, fails = [0], [-1]

    def until_full(descriptor: int, buffer: memoryview, begin: int) -> None:
        writes[0] += 1
        if writes[0] == fails[0]:  # once: there may be room again for what comes after it
            raise OSError(errno.ENOSPC, "full")
        write_from(descriptor, buffer, begin)

    monkeypatch.setattr("kstate_cli.restore.sorting.values_in_order.write_from", until_full)
    monkeypatch.setattr("kstate_cli.restore.sorting.values_in_order.FILE_WRITE_BYTES", PAGE_BYTES)
    before, open_before = threading.active_count(), deleted_files()
    row = pa.array([b"value" * 20] * 10)

    def all_rows() -> int:
        values = in_order(tmp_path, 2_000, width=100, memory=1_000, most=1 << 20, together=3_000)
        for first in range(0, 2_000, 10):
            values.add(np.arange(first, first + 10), row)
        return sum(len(part) for *_, part in values.windows())

    assert all_rows() == 2_000
    whole, writes[0] = writes[0], 0
    assert whole > 20
    if which is not None:
        fails[0] = which % whole + 1
        with pytest.raises(OSError, match="full") as raised:
            all_rows()
        assert Path(raised.value.filename).parent == tmp_path
        del raised
    deadline = time.monotonic() + 300
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (threading.active_count(), deleted_files()) == (before, open_before)
    assert not [*tmp_path.iterdir()]


def test_whoever_ends_amid_a_reading_leaves_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told holds whatever was there: threads that still read would read from a file that is closed."""

    def fails(*_: object) -> None:
        raise MemoryError("amid it")

    values = in_order(tmp_path, 2_000, width=100, memory=1_000, most=1 << 20, together=3_000)
    before = threading.active_count()
    for first in range(0, 2_000, 10):
        values.add(np.arange(first, first + 10), pa.array([b"value" * 20] * 10))
    monkeypatch.setattr("kstate_cli.restore.sorting.values_in_order._between", fails)
    with pytest.raises(MemoryError) as raised, closing(values.windows()) as windows:
        next(windows)
    assert raised.value.__traceback__ is not None
    assert threading.active_count() == before
    values.close()

"""Keys that wait for their rows: those of the window that is asked for, whatever was read ahead."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

from kstate_cli.restore.sorting.row_order import KeysInOrder
from tests.unit.test_direct_io import deleted_files

ROWS, WIDTH = 1_000, 30


def waiting(path: Path) -> KeysInOrder:
    keys = KeysInOrder(lambda: str(path))
    for first in range(0, ROWS, 5 * WIDTH):
        last = min(first + 5 * WIDTH, ROWS)
        some = pa.array([b"%06d" % row for row in range(first, last)], pa.binary())
        keys.put_away(some, first, np.arange(first, last, WIDTH))
    return keys


def bounds_of(keys: KeysInOrder, window: int) -> None:
    first, last = window * WIDTH, min((window + 1) * WIDTH, ROWS)
    middle = (first + last) // 2
    for begin, end in ((first, middle), (middle, last)):
        assert keys.between(begin, end).to_pylist() == [b"%06d" % row for row in range(begin, end)]


def test_windows_in_order_or_not(tmp_path: Path) -> None:
    rng = random.Random(4)
    windows = -(-ROWS // WIDTH)
    keys = waiting(tmp_path / "waiting")
    for window in [*range(windows), *(rng.randrange(windows) for _ in range(40))]:
        bounds_of(keys, window)
    keys.close()


def test_closing_during_read_ahead(tmp_path: Path) -> None:
    before, open_before = threading.active_count(), deleted_files()
    keys = waiting(tmp_path / "waiting")
    bounds_of(keys, 0)
    assert deleted_files() == open_before + 1
    keys.close()
    assert (threading.active_count(), deleted_files()) == (before, open_before)

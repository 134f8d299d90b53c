"""Vectorised conversions against the plainest code that does the same."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import Refused
from kstate_cli.formats.keys import SessionKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.restore.sorting import convert


@given(st.sets(st.binary(max_size=20), max_size=60))
def test_order_of_any_keys(keys: set[bytes]) -> None:
    array = pa.array(list(keys), pa.binary())
    assert array.take(pa.array(convert.sort_order(array))).to_pylist() == sorted(keys)


@given(st.binary(max_size=6), st.sets(st.binary(min_size=9, max_size=9), max_size=60), st.binary(max_size=3))
def test_order_of_keys_of_equal_length(prefix: bytes, middle: set[bytes], suffix: bytes) -> None:
    keys = [prefix + part + suffix for part in middle]
    array = pa.array(keys, pa.binary()).slice(len(keys) // 3)
    assert array.take(pa.array(convert.sort_order(array))).to_pylist() == sorted(keys[len(keys) // 3 :])


times = st.integers(0, (1 << 43) - 1)


@given(st.lists(st.tuples(st.binary(max_size=10), times, st.integers(0, (1 << 31) - 1)), min_size=1, max_size=30))
def test_times_of_window_keys(keys: list[tuple[bytes, int, int]]) -> None:
    array = pa.array([WindowKey(*window).to_bytes() for window in keys], pa.binary()).slice(len(keys) // 2)
    starts = convert.segment_times(array, KeySchema.WINDOW, "s").tolist()
    assert starts == [start for _, start, _ in keys[len(keys) // 2 :]]


@given(st.lists(st.tuples(st.binary(max_size=10), times, times), min_size=1, max_size=30))
def test_times_of_session_keys_are_their_ends(keys: list[tuple[bytes, int, int]]) -> None:
    sessions = [SessionKey(key, min(window, other), max(window, other)) for key, window, other in keys]
    array = pa.array([session.to_bytes() for session in sessions], pa.binary())
    assert convert.segment_times(array, KeySchema.SESSION, "s").tolist() == [session.end for session in sessions]


@pytest.mark.parametrize("start", [1_704_067_200_000, 1_767_225_599_999])
def test_sessions_are_no_windows_and_windows_are_no_sessions(start: int) -> None:
    session = SessionKey(b"user-17", start, start + 90_000).to_bytes()
    with pytest.raises(Refused, match="does not contain the times of a window store"):
        convert.segment_times(pa.array([session]), KeySchema.WINDOW, "0_0/s")
    window = WindowKey(b"user-17", start, 0).to_bytes()
    with pytest.raises(Refused, match="does not contain the times of a session store"):
        convert.segment_times(pa.array([window]), KeySchema.SESSION, "0_0/s")


def test_a_key_too_short_for_a_window_is_refused() -> None:
    with pytest.raises(Refused, match="fewer than 12 bytes"):
        convert.segment_times(pa.array([b"x" * 12, b"x" * 11]), KeySchema.WINDOW, "0_0/s")


@given(st.integers(-(1 << 50), 1 << 50), st.integers(1, 1 << 40))
def test_segment_ids_truncate_toward_zero(time: int, interval: int) -> None:
    import numpy as np

    expected = abs(time) // interval * (1 if time >= 0 else -1)
    assert convert.segment_ids(np.array([time]), interval).tolist() == [expected]


@given(st.lists(st.tuples(st.binary(max_size=9), times, st.integers(0, (1 << 31) - 1)), max_size=9))
def test_row_keys_of_time_ordered_windows(session_keys: list[tuple[bytes, int, int]]) -> None:
    windows = [WindowKey(*window) for window in session_keys]
    keys = pa.array([window.to_bytes() for window in windows], pa.binary()).slice(len(windows) // 2)
    windows = windows[len(windows) // 2 :]
    assert convert.base_keys(KeySchema.TIME_ORDERED_WINDOW, keys).to_pylist() == [
        window.to_time_first() for window in windows
    ]
    assert convert.index_keys(keys).to_pylist() == [window.to_key_first() for window in windows]


@given(st.lists(st.tuples(st.binary(max_size=9), times, times), max_size=9))
def test_row_keys_of_time_ordered_sessions(session_keys: list[tuple[bytes, int, int]]) -> None:
    sessions = [SessionKey(*window) for window in session_keys]
    keys = pa.array([session.to_bytes() for session in sessions], pa.binary())
    base = convert.base_keys(KeySchema.TIME_ORDERED_SESSION, keys)
    assert base.to_pylist() == [session.to_time_first() for session in sessions]
    assert convert.index_keys(keys).to_pylist() == [session.to_key_first() for session in sessions]

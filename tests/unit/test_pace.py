"""The arithmetic of progress: rate and time left."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.clock import WINDOW_SECONDS, Pace, PaceMeter, duration_text, pace_text

TOTALS = st.integers(0, 2**62)
LOOKS = st.lists(st.tuples(st.floats(0, 1e5), st.integers(-5, 2**63)), max_size=40)


@given(TOTALS, st.integers(-5, 2**62), LOOKS)
def test_whatever_is_counted(total: int, already: int, looks: list[tuple[float, int]]) -> None:
    """Time that stands still, counts that jump back or past the end: never a negative, never a backwards, never NaN."""
    meter, now, before = PaceMeter(total, 0.0, already=already), 0.0, 0
    for seconds, finished in looks:
        now += seconds
        pace = meter.at(finished, now)
        assert before <= pace.count <= total and 0 <= pace.share <= 1
        assert pace.count >= min(finished, total)
        assert pace.per_second is None or (pace.per_second > 0 and math.isfinite(pace.per_second))
        assert (pace.seconds_left == 0) == (pace.count == total)
        assert pace.seconds_left is None or (pace.seconds_left >= 0 and math.isfinite(pace.seconds_left))
        before = pace.count


@given(st.integers(1, 10**9), st.integers(2, 500), st.integers(0, 10**9))
def test_an_even_rate(rate: int, seconds: int, already: int) -> None:
    """Nothing of what was there before: it would make a resumed restoration look fast."""
    total = already + rate * seconds
    meter = PaceMeter(total, 100.0, already=already)
    for second in range(1, seconds):
        pace = meter.at(already + rate * second, 100.0 + second)
        assert pace.per_second == pytest.approx(rate)
        assert pace.seconds_left == pytest.approx(seconds - second)
    assert meter.at(total, 100.0 + seconds).seconds_left == 0


@given(st.integers(2, 1000))
def test_pace_follows_a_slowdown(times: int) -> None:
    meter = PaceMeter(10**12, 0.0)
    fast, now = 1000 * times, 0.0
    for _ in range(60):
        now += 1
        meter.at(int(now) * fast, now)
    finished = int(now) * fast
    for _ in range(int(WINDOW_SECONDS) + 1):
        now, finished = now + 1, finished + 1000
        pace = meter.at(finished, now)
    assert pace.per_second == pytest.approx(1000)


@given(st.floats(0, 10**8), st.floats(0, 10**8))
def test_durations_are_not_shortened(first: float, other: float) -> None:
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}

    def seconds(text: str) -> int:
        words = text.split()
        return sum(int(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    assert seconds(duration_text(first)) >= first
    assert seconds(duration_text(first)) <= max(first * 1.05, first + 60)
    if first <= other:
        assert seconds(duration_text(first)) <= seconds(duration_text(other))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (7.2, "8 s"), (59.5, "1 min 00 s"), (130, "2 min 10 s"), (3599.5, "1 h 00 min"), (90000, "1 d 1 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_text_of_the_pace() -> None:
    assert pace_text(Pace(5, 10, 2.0, 2.5), "5 of 10 rows", "2 rows") == "5 of 10 rows (50 %), 2 rows/s, 3 s left"
    assert pace_text(Pace(0, 10, None, None), "0 of 10 rows", None) == "0 of 10 rows (0 %)"

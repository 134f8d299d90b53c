"""Segment intervals: the rules of Streams, and what starts and rows leave possible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rocksdict import Options, Rdict

from kstate_cli.formats.keys import SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.versioned import SegmentValue, Version
from kstate_cli.specification.intervals import (
    Interval,
    default_segment_interval,
    histories_of,
    segment_interval,
    versioned_interval,
)
from kstate_cli.statedir.model import Database

from .small import database

BASE = 1_704_067_200_000


def window(time: int, key: bytes = b"k") -> tuple[bytes, bytes]:
    return WindowKey(key, time).to_bytes(), b"v"


def test_rules() -> None:
    rule = default_segment_interval
    assert [rule("window", ms) for ms in (1, 120_000, 120_001, 120_002, 86_400_000)] == [
        60_000, 60_000, 60_000, 60_001, 43_200_000]  # fmt: skip
    assert [rule("versioned", ms) for ms in (1, 60_000, 60_001, 300_000, 300_001, 3_600_000, 3_600_001)] == [
        2_000, 20_000, 20_000, 60_000, 60_000, 300_000, 300_000]  # fmt: skip
    assert rule("versioned", 86_400_000) == 3_600_000
    assert rule("key-value", 1) is None and rule("grace-buffer", 1) is None


def test_histories_are_the_rule_backwards() -> None:
    borders = (2_000, 60_000, 300_000, 3_600_000, 86_400_000)
    near = (history for border in borders for history in range(border - 150, border + 150))
    for history in (*range(1, 400_000, 61), *near):
        interval = default_segment_interval("versioned", history)
        assert interval is not None
        ranges = histories_of(interval)
        # With both ends of each range, and one beyond either: a range is neither too long nor too short.
        ends = [end + step for bounds in ranges for end in bounds for step in (-1, 0, 1) if end + step > 0]
        for other in (history, *ends):
            is_within = any(first <= other <= last for first, last in ranges)
            assert is_within is (default_segment_interval("versioned", other) == interval), (interval, other)
    assert histories_of(1) == ()


KEY_OF = {
    "window": lambda t: WindowKey(b"k", t).to_bytes(),
    "timestamped-window": lambda t: WindowKey(b"", t, 3).to_bytes(),
    "session": lambda t: SessionKey(b"k", 0, t).to_bytes(),
    "time-ordered-window": lambda t: WindowKey(b"k", t).to_time_first(),
    "headers-time-ordered-window": lambda t: WindowKey(b"k", t).to_key_first(),
    "time-ordered-session": lambda t: SessionKey(b"k", 0, t).to_time_first(),
    "headers-time-ordered-session": lambda t: SessionKey(b"k", 0, t).to_key_first(),
}


@given(
    st.sampled_from(sorted(KEY_OF)),
    st.integers(60_000, 10_000_000),
    st.dictionaries(st.integers(0, 50), st.lists(st.floats(0, 1, exclude_max=True), max_size=4), max_size=6),
    st.integers(0, 1_000_000),
)
def test_the_true_interval_is_never_ruled_out(
    kind: str, interval: int, segments: dict[int, list[float]], first: int
) -> None:
    databases: list[Database] = []
    for number, places in segments.items():
        start = (first + number) * interval
        rows = [(KEY_OF[kind](start + int(place * interval)), b"") for place in places]
        databases.append(database(rows, start=start))
    results = segment_interval(kind, databases, read=False)
    assert results.wrong is None
    assert results.fits(interval)
    assert results.exact in (None, interval)


def test_a_single_interval_or_several() -> None:
    starts = (BASE, BASE + 600_000, BASE + 1_200_000)
    early = [database([window(start + 100_000)], start=start) for start in starts]
    interval = segment_interval("window", early, read=False)
    assert interval.exact is None and interval.examples == (120_000, 300_000, 600_000)
    assert interval.fits(150_000) and not interval.fits(60_000) and not interval.fits(400_000)
    late = [*early, database([window(BASE + 300_000)], start=BASE)]
    assert segment_interval("window", late, read=False).exact == 600_000
    # 299,999 is not enough: segments of five minutes would hold it.
    nearly = [*early, database([window(BASE + 299_999)], start=BASE)]
    assert segment_interval("window", nearly, read=False).exact is None


def test_a_single_segment_tells_little() -> None:
    assert segment_interval("window", [database([window(BASE + 500_000)], start=BASE)]).exact is None
    assert segment_interval("window", [database(start=0)]).exact is None
    assert segment_interval("window", []).exact is None
    assert segment_interval("window", [database([window(5)], start=0)]).fits(60_000)


@pytest.mark.parametrize(
    "databases",
    [
        [database([window(BASE - 1)], start=BASE)],
        [database([(b"short", b"")], start=BASE)],
        [database(start=BASE), database(start=BASE + 1)],
        [database(start=-600_000)],
    ],
)
def test_segments_that_fit_no_interval(databases: list[Database]) -> None:
    interval = segment_interval("window", databases)
    assert interval.wrong and interval.exact is None and not interval.fits(600_000)


def test_huge_starts_are_quick() -> None:
    prime = (1 << 61) - 1
    for start in (prime, 9_223_372_036_854_775_807 // 2 * 2):
        interval = Interval(start)
        assert interval.exact is None
        assert len(interval.examples) <= 6


@pytest.fixture
def segments(tmp_path: Path) -> list[Database]:
    """Two real segments whose sampled rows are all early; one row in the middle is late."""
    outputs = []
    for start in (BASE, BASE + 600_000):
        path = tmp_path / f"s.{start}"
        db = Rdict(str(path), Options(raw_mode=True))
        rows = [window(start + i, f"{i:03}".encode()) for i in range(40)]
        rows[20] = window(start + 500_000, b"020")
        for key, value in rows:
            db[key] = value
        db.close()
        outputs.append(database([*rows[:4], rows[-1]], start=start, path=path))
    return outputs


def test_rows_are_read_where_the_samples_do_not_tell(segments: list[Database], monkeypatch: pytest.MonkeyPatch) -> None:
    assert segment_interval("window", segments, read=False).exact is None
    assert segment_interval("window", segments).exact == 600_000
    monkeypatch.setattr("kstate_cli.specification.intervals.MAX_ROWS", 10)
    bounded = segment_interval("window", segments)
    assert bounded.exact is None and not bounded.all_rows and bounded.fits(600_000)


@given(
    st.integers(2_000, 100_000_000),
    st.lists(st.integers(0, 1 << 41), min_size=1, max_size=5),
)
def test_versioned(interval: int, ends: list[int]) -> None:
    rows = []
    for end in ends:
        value = SegmentValue(end + 1, (Version(end, b"v"),))
        rows.append((VersionedKey((end + 1) // interval, b"k").to_bytes(), value.to_bytes()))
    rows.append((VersionedKey(-1, b"k").to_bytes(), bytes(8) + b"latest"))
    results = versioned_interval([database(rows)])
    assert results.wrong is None and results.fits(interval) and results.exact in (None, interval)


def test_versioned_corners() -> None:
    value = SegmentValue(BASE, (Version(BASE - 1, b"v"),)).to_bytes()
    assert versioned_interval([database([(VersionedKey(BASE // 240_000, b"k").to_bytes(), value)])]).exact == 240_000
    assert versioned_interval([database([(VersionedKey(-1, b"k").to_bytes(), bytes(9))])]).exact is None
    two = [(VersionedKey(BASE // n, b"k").to_bytes(), value) for n in (240_000, 300_000)]
    assert versioned_interval([database(two)]).wrong
    assert versioned_interval([database([(b"", b"")])]).wrong


READ = """
import sys
from pathlib import Path
from tests.unit.specification.test_times import interval_of_folders
print(*interval_of_folders([Path(path) for path in sys.argv[1:]]), sep="\\n")
"""


def interval_of_folders(paths: list[Path]) -> list[object]:
    segments = [database([window(int(path.name) + 100_000)], start=int(path.name), path=path) for path in paths]
    interval = segment_interval("window", segments)
    fits = [interval.fits(length) for length in (600_000, 300_000, 60_000)]
    return [interval.wrong, interval.unread, interval.exact, *fits]


def test_a_disk_that_does_not_answer_contradicts_no_interval(tmp_path: Path) -> None:
    """Rows that cannot be read now leave more intervals possible: they rule none out."""
    paths = [tmp_path / str(start) for start in (BASE, BASE + 600_000)]
    for path in paths:
        db = Rdict(str(path), Options(raw_mode=True))
        db[window(int(path.name) + 100_000)[0]] = b"v"
        db.flush()
        db.close()
    assert interval_of_folders(paths) == [None, None, None, True, True, False]
    (sst,) = paths[0].glob("*.sst")
    strace = [
        "strace",
        "-qq",
        "-o",
        os.devnull,
        "-P",
        str(sst),
        "-e",
        "trace=pread64",
        "-e",
        "inject=pread64:error=EIO",
    ]
    process = subprocess.run(
        [*strace, sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True
    )
    wrong, unread, *facts = process.stdout.splitlines()
    assert wrong == "None"
    assert "Input/output error" in unread
    assert facts == ["None", "True", "True", "False"]

"""Versioned rows as columns are those of the replay, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.keys import VersionedKey
from kstate_cli.restore.sorting.history import out_of_order, rows_in_order
from kstate_cli.restore.sorting.sorted_files import build_sorted_files
from kstate_cli.restore.sorting.versioned import NO_TIMESTAMP, VersionedReplay, accepted_mask, segment_id

from .slicing import HOUR, MIB, NOW, job_of, sorted_rows, write_dump

Record = tuple[int, bytes | None, int]
KEYS = (b"a", b"aa", b"b", b"")
RISING = st.lists(st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=3), st.integers(0, 12))).map(
    lambda steps: [
        (key, value, time)
        for (key, value, _), time in zip(steps, np.cumsum([step for *_, step in steps]).tolist(), strict=True)
    ]
)
ANY = st.lists(st.tuples(st.integers(0, 3), st.none() | st.binary(max_size=3), st.integers(-3, 60)))


def in_columns(records: Sequence[Record], retention: int, interval: int) -> tuple[dict[bytes, bytes], set[int]]:
    """The rows of keys in order, and the keys that are left."""
    end = max((time for *_, time in records), default=NO_TIMESTAMP)
    by_key = sorted(records, key=lambda record: record[0])
    keys = np.array([key for key, *_ in by_key], dtype=np.int64)
    times = np.array([time for *_, time in by_key], dtype=np.int64)
    values = pa.array([value for _, value, _ in by_key], pa.large_binary())
    leftover = out_of_order(keys, times, ~values.is_valid().to_numpy(zero_copy_only=False))
    plain = ~np.isin(keys, leftover)
    first_live = segment_id(end - retention, interval)
    rows = rows_in_order(keys[plain], times[plain], values.filter(pa.array(plain)), interval, first_live)
    physical = [
        VersionedKey(segment, KEYS[key]).to_bytes()
        for segment, key in zip(rows.segments.tolist(), rows.keys.tolist(), strict=True)
    ]
    assert len({*physical}) == len(physical)
    return dict(zip(physical, rows.values.to_pylist(), strict=True)), {*leftover.tolist()}


def replay_records(records: Sequence[Record], retention: int, interval: int) -> dict[bytes, bytes]:
    end = max((time for *_, time in records), default=NO_TIMESTAMP)
    replay = VersionedReplay(retention, interval, end)
    for key, value, time in records:
        replay.put(KEYS[key], value, time)
    return dict(replay.rows())


@given(RISING | ANY, st.integers(0, 40), st.integers(1, 15))
def test_ordered_versions_have_the_rows_of_the_replay(records: list[Record], retention: int, interval: int) -> None:
    mask, _ = accepted_mask(np.array([time for *_, time in records], dtype=np.int64), retention)
    records = [record for record, is_live in zip(records, mask.tolist(), strict=True) if is_live]
    rows, leftover = in_columns(records, retention, interval)
    whole = replay_records(records, retention, interval)
    assert rows == {key: row for key, row in whole.items() if KEYS.index(key[8:]) not in leftover}


def test_only_irregular_keys_are_replayed() -> None:
    """Else nothing would be won: rising times, a gap, and an end are columns."""
    plain: list[Record] = [(0, b"v", 1), (0, None, 5), (0, b"", 9), (1, b"w", 3), (2, b"x", 1), (2, None, 2)]
    assert in_columns(plain, 100, 10)[1] == set()
    for odd in ((0, b"late", 2), (0, b"equal", 9), (1, b"negative", -1)):
        assert in_columns([*plain, odd], 100, 10)[1] == {odd[0]}
    for needless in ((3, None, 4), (2, None, 4)):
        assert in_columns([*plain, needless], 100, 10)[1] == {needless[0]}


@pytest.mark.parametrize("exchanged", [None, 2_990])
@pytest.mark.parametrize("buckets", [1, 3])
@pytest.mark.parametrize("memory", [64 * MIB, 20_000], ids=["at-once", "bit-by-bit"])
def test_a_slice_is_its_replay(tmp_path: Path, buckets: int, memory: int, exchanged: int | None) -> None:
    """Sorted files of a whole slice: most keys in order, some not, records without a key, and late ones.

    ``exchanged``: a row that comes after the one that follows it.
    """
    rng = np.random.default_rng(5)
    records: list[tuple[bytes | None, bytes | None]] = []
    times = []
    for number in range(3_000):
        key = None if number % 97 == 0 else b"key-%d" % rng.integers(400)
        records.append((key, None if rng.random() < 0.1 else b"value-%d" % number))
        late = number % 50 == 0
        times.append(NOW + number * 20_000 - (int(rng.integers(4 * HOUR)) if late else 0))
    (tmp_path / "staging").mkdir()
    order = [*range(len(records))]
    if exchanged is not None:
        order[exchanged : exchanged + 2] = exchanged + 1, exchanged
    dump = write_dump(tmp_path / "dump", records, times, order=order)
    job = job_of(dump, "versioned", tmp_path / "staging")
    end = max(time for (key, _), time in zip(records, times, strict=True) if key is not None)
    some = [(key, value, time) for (key, value), time in zip(records, times, strict=True) if key is not None]
    mask, _ = accepted_mask(np.array([time for *_, time in some], dtype=np.int64), job.retention_ms)
    replay = VersionedReplay(job.retention_ms, job.interval_ms, end)
    count = int(mask.sum())
    assert count > 2_000 and len(mask) - count > 5
    for (key, value, time), accepted in zip(some, mask.tolist(), strict=True):
        if accepted:
            replay.put(key, value, time)
    rows_in_order: dict[bytes, bytes] = {}
    for bucket in range(buckets):
        result = build_sorted_files(replace(job, bucket=(bucket, buckets), memory=memory))
        rows = sorted_rows(result, tmp_path / f"database-{bucket}")
        assert not rows_in_order.keys() & rows.keys()
        rows_in_order |= rows
        assert result.max_time == end
        # Every bucket reads all records, and the first one tells of them: once, however often it began.
        assert result.records == (0 if bucket else len(records))
    assert rows_in_order == dict(replay.rows())

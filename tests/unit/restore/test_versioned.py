"""The replay of a versioned store's restore."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import LATEST_SEGMENT, VersionedKey
from kstate_cli.formats.versioned import LatestValue, SegmentValue
from kstate_cli.restore.sorting.versioned import NO_TIMESTAMP, VersionedReplay, accepted_mask, segment_id

Record = tuple[bytes, bytes | None, int]
Rows = dict[bytes, bytes]
KEY = b"k"
RECORDS = st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.none() | st.binary(max_size=2), st.integers(0, 60)))
RETENTION = st.integers(0, 40)
INTERVAL = st.integers(1, 15)


def replay(records: Sequence[Record], retention: int = 1000, interval: int = 10, load: Rows | None = None) -> Rows:
    return dict(replay_records(records, retention, interval, load).rows())


def replay_records(
    records: Sequence[Record], retention: int, interval: int, load: Rows | None = None
) -> VersionedReplay:
    end = max((timestamp for _, _, timestamp in records), default=NO_TIMESTAMP)
    store = VersionedReplay(retention, interval, end)
    for physical, row in (load or {}).items():
        store.load(physical[8:], [(physical, row)])
    for key, value, timestamp in records:
        store.put(key, value, timestamp)
    return store


def accepted_records(records: Sequence[Record], retention: int) -> list[Record]:
    mask, _ = accepted_mask(np.array([timestamp for _, _, timestamp in records], dtype=np.int64), retention)
    return [record for record, is_live in zip(records, mask.tolist(), strict=True) if is_live]


def at(segment: int, key: bytes = KEY) -> bytes:
    return VersionedKey(segment, key).to_bytes()


def read(rows: Rows, key: bytes, as_of: int, interval: int) -> bytes | None:
    """As ``RocksDBVersionedStore.get`` does: the latest version, else the newest segment that knows the time."""
    latest = rows.get(at(LATEST_SEGMENT, key))
    if latest is not None and LatestValue.from_bytes(latest).valid_from <= as_of:
        return LatestValue.from_bytes(latest).value
    segments = sorted(k.segment for k in map(VersionedKey.from_bytes, rows) if k.key == key and not k.is_latest)
    for segment in reversed(segments):
        row = SegmentValue.from_bytes(rows[at(segment, key)])
        if segment < segment_id(as_of, interval) or row.next_timestamp <= as_of:
            return None
        if row.min_timestamp <= as_of:
            return next(version.value for version in row.versions if version.valid_from <= as_of)
    return None


def without_forgotten_deletes(records: list[Record]) -> list[Record]:
    """Without those that Streams may forget: :func:`test_a_delete_at_the_time_of_its_value_may_be_forgotten`."""
    times: set[tuple[bytes, int]] = set()
    live = []
    for key, value, timestamp in records:
        if value is not None or (key, timestamp) not in times:
            live.append((key, value, timestamp))
        times.add((key, timestamp))
    return live


@given(RECORDS, RETENTION, INTERVAL)
def test_history_is_that_of_the_records(records: list[Record], retention: int, interval: int) -> None:
    records = without_forgotten_deletes(accepted_records(records, retention))
    rows = replay(records, retention, interval)
    end = max((timestamp for _, _, timestamp in records), default=0)
    for key in (b"a", b"b"):
        versions = {timestamp: value for k, value, timestamp in records if k == key}
        for as_of in range(max(end - retention, 0), end + 2):
            timestamps = [timestamp for timestamp in versions if timestamp <= as_of]
            assert read(rows, key, as_of, interval) == (versions[max(timestamps)] if timestamps else None)


def test_a_delete_at_the_time_of_its_value_may_be_forgotten() -> None:
    """Of the only version nothing is left then, not even its end: an older record that comes late is the latest.

    ``RocksDBVersionedStore.doPut``; tests/interop/test_versioned_restore.py has the same rows from real releases.
    """
    rows = replay([(KEY, b"value", 20), (KEY, None, 20), (KEY, b"late", 15)])
    assert read(rows, KEY, 20, 10) == b"late"
    rows = replay([(KEY, b"older", 10), (KEY, b"value", 20), (KEY, None, 20), (KEY, b"late", 15)])
    assert read(rows, KEY, 20, 10) is None
    assert read(rows, KEY, 19, 10) == b"late"


@given(RECORDS, RETENTION, INTERVAL)
def test_rows_are_sound_and_live(records: list[Record], retention: int, interval: int) -> None:
    records = accepted_records(records, retention)
    store = replay_records(records, retention, interval)
    rows = list(store.rows())
    assert [key for key, _ in rows] == sorted({key for key, _ in rows})
    first_live = segment_id(max((t for _, _, t in records), default=-1) - retention, interval)
    for physical, row in rows:
        key = VersionedKey.from_bytes(physical)
        if key.is_latest:
            LatestValue.from_bytes(row)
        else:
            assert key.segment >= first_live
            assert segment_id(SegmentValue.from_bytes(row).next_timestamp, interval) == key.segment
    assert list(store.rows()) == rows
    assert not list(store.deleted())


@given(RECORDS, RETENTION, INTERVAL)
def test_keys_do_not_meet(records: list[Record], retention: int, interval: int) -> None:
    end = max((t for _, _, t in records), default=-1)
    both = VersionedReplay(retention, interval, end)
    alone = {key: VersionedReplay(retention, interval, end) for key in (b"a", b"b")}
    for key, value, timestamp in records:
        both.put(key, value, timestamp)
        alone[key].put(key, value, timestamp)
    assert list(both.rows()) == sorted(row for store in alone.values() for row in store.rows())


@given(RECORDS, st.integers(0, 60), INTERVAL)
def test_loading_goes_on_where_the_rows_end(records: list[Record], cut: int, interval: int) -> None:
    end = max((t for _, _, t in records), default=-1)
    first = VersionedReplay(1000, interval, end)
    for key, value, timestamp in records[:cut]:
        first.put(key, value, timestamp)
    rows = dict(first.rows())
    second = VersionedReplay(1000, interval, end)
    for key in (b"a", b"b"):
        second.load(key, [(physical, row) for physical, row in rows.items() if physical[8:] == key])
    assert dict(second.rows()) == rows
    for key, value, timestamp in records[cut:]:
        first.put(key, value, timestamp)
        second.put(key, value, timestamp)
    assert list(second.rows()) == list(first.rows())
    assert list(second.deleted()) == sorted(rows.keys() - dict(first.rows()).keys())


@given(RECORDS, RETENTION, INTERVAL)
def test_batches_of_a_single_record_are_the_default(records: list[Record], retention: int, interval: int) -> None:
    records = accepted_records(records, retention)
    replay_ = VersionedReplay(retention, interval, max((t for _, _, t in records), default=-1))
    for (key, value, timestamp), end in zip(records, accumulate((t for _, _, t in records), max), strict=True):
        replay_.put(key, value, timestamp, end)
    assert dict(replay_.rows()) == replay(records, retention, interval)


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(-1, 100), st.integers(0, 100))
def test_grace(timestamps: list[int], retention: int, start: int, cut: int) -> None:
    stream_time, live = start, []
    for timestamp in timestamps:
        live.append(timestamp >= stream_time - retention)
        if live[-1]:
            stream_time = max(stream_time, timestamp)
    times = np.array(timestamps, dtype=np.int64)
    mask, end = accepted_mask(times, retention, start)
    assert (mask.tolist(), end) == (live, stream_time)
    before, between = accepted_mask(times[:cut], retention, start)
    after, end = accepted_mask(times[cut:], retention, between)
    assert ([*before.tolist(), *after.tolist()], end) == (live, stream_time)


def test_grace_is_inclusive() -> None:
    mask, end = accepted_mask(np.array([100, 90, 89, 95]), 10)
    assert (mask.tolist(), end) == ([True, True, False, True], 100)


def test_endless_retention_does_not_wrap() -> None:
    mask, end = accepted_mask(np.array([0, 5, 0]), 2**63 - 1)
    assert (mask.tolist(), end) == ([True] * 3, 5)


@pytest.mark.parametrize(("timestamp", "segment"), [(-11, -1), (-10, -1), (-9, 0), (-1, 0), (0, 0), (9, 0), (10, 1)])
def test_segments_are_a_java_division(timestamp: int, segment: int) -> None:
    assert segment_id(timestamp, 10) == segment


def test_the_documented_row() -> None:
    records: list[Record] = [(KEY, b"A", 10), (KEY, None, 20), (KEY, b"CC", 30), (KEY, b"D", 40)]
    golden = "0000000000000028 000000000000000a 000000000000001e 00000002 0000000000000014 ffffffff 000000000000000a 00000001 414343"
    assert replay(records, interval=1000) == {
        at(0): bytes.fromhex(golden),
        at(LATEST_SEGMENT): bytes.fromhex("0000000000000028 44"),
    }


def test_a_lone_tombstone() -> None:
    golden = "0000000000000014 0000000000000014 0000000000000014 ffffffff"
    assert replay([(KEY, None, 20)]) == {at(2): bytes.fromhex(golden)}


def test_a_version_before_a_lone_tombstone_replaces_it() -> None:
    golden = "0000000000000014 0000000000000005 0000000000000005 00000000"
    assert replay([(KEY, None, 20), (KEY, b"", 5)]) == {at(2): bytes.fromhex(golden)}


def test_the_same_time_replaces() -> None:
    assert replay([(KEY, b"x", 5), (KEY, b"", 5)]) == {at(LATEST_SEGMENT): bytes.fromhex("0000000000000005")}
    assert replay([(KEY, b"x", 5), (KEY, None, 5)]) == {}


def test_a_late_record_moves_the_version_before_it() -> None:
    rows = replay([(KEY, b"a", 1), (KEY, b"c", 25), (KEY, b"b", 12)])
    assert {VersionedKey.from_bytes(physical).segment: row.hex() for physical, row in rows.items()} == {
        1: "000000000000000c000000000000000100000000000000010000000161",
        2: "0000000000000019000000000000000c000000000000000c0000000162",
        LATEST_SEGMENT: "000000000000001963",
    }


def test_a_batch_that_forgot_a_tombstone_brings_its_key_back() -> None:
    records: list[Record] = [(KEY, b"a", 10), (KEY, None, 20), (KEY, b"b", 15), (b"z", b"", 5000)]
    assert replay(records) == {at(LATEST_SEGMENT, b"z"): (5000).to_bytes(8, "big")}
    batch = VersionedReplay(1000, 10, 5000)
    for key, value, timestamp in records:
        batch.put(key, value, timestamp, 5000)
    assert dict(batch.rows())[at(LATEST_SEGMENT)] == bytes.fromhex("000000000000000f 62")


def test_an_interrupted_move_is_mended() -> None:
    # Streams moved a@1 to segment 1 (valid to 12), and died before it took it out of segment 2.
    rows = replay([(KEY, b"a", 1), (KEY, b"c", 25)])
    torn = rows | {at(1): replay([(KEY, b"a", 1), (KEY, b"b", 12)])[at(1)]}
    expected = replay([(KEY, b"a", 1), (KEY, b"c", 25), (KEY, b"b", 12)])
    assert replay([(KEY, b"b", 12)], load=torn) == expected


def test_loaded_rows_that_expire_are_deleted() -> None:
    rows = replay([(KEY, b"a", 1), (KEY, b"b", 12)])
    store = replay_records([(KEY, None, 5000)], 1000, 10, rows)
    assert [VersionedKey.from_bytes(physical).segment for physical, _ in store.rows()] == [500]
    assert list(store.deleted()) == [at(1), at(LATEST_SEGMENT)]


def test_rows_that_are_none_are_refused() -> None:
    store = VersionedReplay(1000, 10, 30)
    with pytest.raises(ValueError, match="a different key"):
        store.load(b"other", [(at(1), b"")])
    with pytest.raises(MalformedBytesError):
        store.load(KEY, [(b"short", b"")])
    store.load(KEY, [(at(1), b"short")])
    with pytest.raises(MalformedBytesError):
        store.put(KEY, b"", 12)


TIMES = st.integers(0, 6)
ROWS = st.builds(
    lambda ends, versions, rest: (
        b"".join(t.to_bytes(8, "big") for t in ends)
        + b"".join(t.to_bytes(8, "big") + n.to_bytes(4, "big", signed=True) for t, n in versions)
        + rest
    ),
    st.tuples(TIMES, TIMES),
    st.lists(st.tuples(TIMES, st.integers(-2, 2)), max_size=3),
    st.binary(max_size=4),
)


@given(ROWS)
def test_the_rows_that_are_read_are_the_sound_ones(row: bytes) -> None:
    store = VersionedReplay(1000, 10, 9)
    store.load(KEY, [(at(0), row)])
    try:
        expected = SegmentValue.from_bytes(row)
    except MalformedBytesError:
        with pytest.raises(MalformedBytesError):
            store.put(KEY, None, 0)
        return
    # The row ends with nothing, or with a tombstone: one more at its end changes nothing.
    store.put(KEY, None, expected.next_timestamp)
    assert dict(store.rows()) == {at(0): row}

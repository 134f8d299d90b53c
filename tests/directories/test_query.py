"""Offline queries on directories of real releases, against their rows read one by one; what real Streams answers to
the same questions is in tests/interop.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Env, Options, Rdict, WriteOptions

from kstate_cli.errors import Refused
from kstate_cli.formats.keys import SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import has_key, is_time_ordered
from kstate_cli.formats.values import HeadersSessionValue, HeadersValue, TimestampedValue
from kstate_cli.formats.versioned import LatestValue, SegmentValue
from kstate_cli.query import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    OfflineStreams,
    Position,
    PositionBound,
    Query,
    QueryResult,
    RangeQuery,
    RawKeyQuery,
    RawScanQuery,
    StateQueryResult,
    StoreUnreadable,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    UnknownStateStoreError,
    ValueAndTimestamp,
    VersionedKeyQuery,
    VersionedRecord,
    WindowKeyQuery,
    WindowRangeQuery,
    collate,
    in_store,
)
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.specification.draft import Spec, StoreSpec
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.scan import read_application
from tests.golden import names, unpack

from .support import tree_hash
from .test_verify import _flip

pytestmark = pytest.mark.rotating(6)

Rows = dict[bytes, bytes]
FOREVER = (1 << 63) - 1
WINDOWS = (KeySchema.WINDOW, KeySchema.TIME_ORDERED_WINDOW)
SESSIONS = (KeySchema.SESSION, KeySchema.TIME_ORDERED_SESSION)
ORDERED = [name for name in names() if "headers" not in name]


def _stores(app: Path) -> Iterator[tuple[Task, Store]]:
    for task in read_application(app, workers=1).tasks:
        for store in task.stores:
            yield task, store


def _rows(store: Store) -> Rows:
    """The rows of all databases of a store, in their newest layout, from the oldest family to the newest."""
    prefixes = {
        ("keyValueWithTimestamp", "default"): b"\xff" * 8,
        ("keyValueWithTimestampAndHeaders", "keyValueWithTimestamp"): b"\0",
        ("keyValueWithTimestampAndHeaders", "default"): b"\0" + b"\xff" * 8,
        ("sessionKeyValueWithHeaders", "default"): b"\0",
        ("windowKeyValueWithHeaders", "default"): b"\0",
    }
    rows: Rows = {}
    for database in store.databases:
        with Shadow(database.path) as shadow:
            families = [name for name in FAMILIES if name in shadow.column_families]
            for name in families:
                prefix = prefixes.get((families[-1], name), b"")
                rows.update((key, prefix + value) for key, value in shadow.rows(name))
    return rows


FAMILIES = (
    "default",
    "keyValueWithTimestamp",
    "keyValueWithTimestampAndHeaders",
    "sessionKeyValueWithHeaders",
    "windowKeyValueWithHeaders",
)


def _split(kind: str, value: bytes) -> ValueAndTimestamp[bytes]:
    if kind.startswith("headers") and "session" not in kind:
        headers = HeadersValue.from_bytes(value)
        return ValueAndTimestamp(headers.value, headers.timestamp, headers.headers)
    stamped = TimestampedValue.from_bytes(value)
    return ValueAndTimestamp(stamped.value, stamped.timestamp)


def _result_of(streams: OfflineStreams, task: Task, store: str, query: Query[Any]) -> Any:
    request = in_store(store).with_query(query)
    if task.is_global:
        answer = streams.query(request).global_result
        assert answer is not None
    else:
        assert task.partition is not None
        answer = streams.query(request.with_partitions([task.partition])).partition_results[task.partition]
    return answer.result


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", names())
def test_key_value_stores_answer_with_their_rows(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    draw = random.Random(1)
    requests = 0
    with OfflineStreams(app) as streams:
        for task, store in _stores(app):
            assert list(_result_of(streams, task, store.name, RawScanQuery())) == _scan(store)
            if "key-value" not in store.kind.name:
                continue
            rows = _rows(store)
            plain = store.kind.name == "key-value"
            typed = {key: value if plain else _split(store.kind.name, value).value for key, value in rows.items()}
            for key in [*rows, b"", b"k", b"zzz", b"k0000\0"]:
                assert _result_of(streams, task, store.name, KeyQuery(key)) == typed.get(key)
                assert _result_of(streams, task, store.name, RawKeyQuery(key)) == rows.get(key)
                if not plain:
                    stamped = _split(store.kind.name, rows[key]) if key in rows else None
                    assert _result_of(streams, task, store.name, TimestampedKeyQuery(key)) == stamped
            ends = [None, b"", b"zzz", *rows]
            for _ in range(12):
                low, high = draw.choice(ends), draw.choice(ends)
                within = sorted(k for k in rows if (low is None or k >= low) and (high is None or k <= high))
                ranged: RangeQuery[bytes, bytes] = RangeQuery.with_range(low, high)
                assert list(_result_of(streams, task, store.name, ranged)) == [(k, typed[k]) for k in within]
                back = list(_result_of(streams, task, store.name, ranged.with_descending_keys()))
                assert back == [(k, typed[k]) for k in reversed(within)]
                if not plain:
                    ask = list(_result_of(streams, task, store.name, TimestampedRangeQuery(low, high)))
                    assert ask == [(k, _split(store.kind.name, rows[k])) for k in within]
                requests += 1
    assert requests or "killed" in name  # what was never flushed is not there
    assert tree_hash(tmp_path) == before


def _scan(store: Store) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    for database in sorted(store.databases, key=lambda database: database.segment_start or 0):
        with Shadow(database.path) as shadow:
            entry: Rows = {}
            families = [name for name in FAMILIES if name in shadow.column_families]
            newest = families[-1]
            if all(not list(shadow.rows(name)) for name in families[:-1]):
                rows += list(shadow.rows(newest))
                continue
        entry = {key: value for key, value in _rows(store).items() if len(store.databases) == 1}
        rows += sorted(entry.items())
    return rows


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ORDERED)
def test_window_and_session_stores_answer_with_their_rows(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    draw = random.Random(2)
    windows = sessions = 0
    with OfflineStreams(app) as streams:
        for task, store in _stores(app):
            kind = store.kind.name
            if has_key(kind, *WINDOWS):
                windows += _check_windows(streams, task, store, draw)
            elif has_key(kind, *SESSIONS):
                sessions += _check_sessions(streams, task, store)
    # Applications that were killed have flushed nothing, and some have no such stores.
    assert (windows and sessions) or any(word in name for word in ("killed", "sparse", "demo"))


def _base(store: Store) -> Rows:
    ordered = is_time_ordered(store.kind.name)
    return {key: value for key, value in _rows(store).items() if not ordered or key[:1] == b"\0"}


def _check_windows(streams: OfflineStreams, task: Task, store: Store, draw: random.Random) -> int:
    kind = store.kind.name
    read = WindowKey.from_time_first if is_time_ordered(kind) else WindowKey.from_bytes
    results = sorted((read(key).start, read(key).seq, read(key).key, value) for key, value in _base(store).items())
    shape = (lambda value: value) if kind == "window" else (lambda value: _split(kind, value))
    starts = [0, -5, FOREVER, *(row[0] for row in results)]
    for key in [*dict.fromkeys(row[2] for row in results), b"none", b""]:
        low, high = sorted((draw.choice(starts), draw.choice(starts)))
        for first, last in ((0, FOREVER), (low, high), (high, low)):
            target = [(start, shape(value)) for start, _, k, value in results if k == key and first <= start <= last]
            assert list(_result_of(streams, task, store.name, WindowKeyQuery(key, first, last))) == target
    for _ in range(5):
        low, high = sorted((draw.choice(starts), draw.choice(starts)))
        rows = list(_result_of(streams, task, store.name, WindowRangeQuery.with_window_start_range(low, high)))
        wanted_rows = [(start, k, shape(value)) for start, _, k, value in results if low <= start <= high]
        assert sorted((w.start, w.key, repr(v)) for w, v in rows) == sorted((s, k, repr(v)) for s, k, v in wanted_rows)
    return len(results)


def _check_sessions(streams: OfflineStreams, task: Task, store: Store) -> int:
    read = SessionKey.from_time_first if is_time_ordered(store.kind.name) else SessionKey.from_bytes
    by_key: dict[bytes, list[tuple[int, int, bytes]]] = defaultdict(list)
    for data, value in _base(store).items():
        session = read(data)
        by_key[session.key].append((session.end, session.start, value))
    for key in [*by_key, b"none", b""]:
        rows = list(_result_of(streams, task, store.name, WindowRangeQuery.with_key(key)))
        assert [(w.end, w.start, v) for w, v in rows] == sorted(by_key.get(key, []))
    return len(by_key)


@pytest.mark.parametrize("name", ["3.9.2-kinds-eos", "4.2.1-kinds-eos", "4.3.1-kinds-eos"])
def test_versioned_stores_answer_with_their_histories(tmp_path: Path, name: str) -> None:
    app = unpack(name, tmp_path)
    draw = random.Random(3)
    requests = 0
    with OfflineStreams(app) as streams:
        for task, store in _stores(app):
            if store.kind.name != "versioned":
                continue
            for key, versions in _histories(store).items():
                # (valid from, valid to, value), the oldest first, deletions included.
                times = sorted({t for v in versions for t in (v[0] - 1, v[0], v[0] + 1, v[1] - 1, v[1])} - {FOREVER})
                for time in times:
                    target = [v for v in versions if v[0] <= time < v[1] and v[2] is not None]
                    ask = _result_of(streams, task, store.name, VersionedKeyQuery(key, time))
                    assert ask == (_record(target[0]) if target else None)
                    requests += 1
                low, high = sorted((draw.choice(times), draw.choice(times)))
                within = [_record(v) for v in versions if v[0] <= high and v[1] > low and v[2] is not None]
                query: MultiVersionedKeyQuery[bytes, bytes] = MultiVersionedKeyQuery(key).from_time(low).to_time(high)
                assert list(_result_of(streams, task, store.name, query)) == within[::-1]
                ascending = query.with_ascending_timestamps()
                assert list(_result_of(streams, task, store.name, ascending)) == within
            assert _result_of(streams, task, store.name, VersionedKeyQuery(b"none")) is None
            assert list(_result_of(streams, task, store.name, MultiVersionedKeyQuery(b"none"))) == []
    assert requests > 100


def _record(version: tuple[int, int, bytes | None]) -> VersionedRecord[Any]:
    return VersionedRecord(version[2], version[0], None if version[1] == FOREVER else version[1])


def _histories(store: Store) -> dict[bytes, list[tuple[int, int, bytes | None]]]:
    rows: dict[bytes, list[tuple[int, int, bytes | None]]] = defaultdict(list)
    for data, value in _rows(store).items():
        key = VersionedKey.from_bytes(data)
        if key.is_latest:
            latest = LatestValue.from_bytes(value)
            rows[key.key].append((latest.valid_from, FOREVER, latest.value))
            continue
        segment = SegmentValue.from_bytes(value)
        ends = [segment.next_timestamp, *(v.valid_from for v in segment.versions)]
        rows[key.key] += [(v.valid_from, end, v.value) for v, end in zip(segment.versions, ends, strict=False)]
    return {key: sorted(versions, key=lambda v: v[:2]) for key, versions in rows.items()}


OLDER = {
    # Golden directory, store, its newer and its older family, and what migrating a row puts before its value.
    "timestamped": ("4.3.1-kinds-alos", "count", "keyValueWithTimestamp", "default", b"\xff" * 8),
    "timestamped-window": ("4.3.1-kinds-alos", "window-count", "keyValueWithTimestamp", "default", b"\xff" * 8),
    "headers": ("4.3.1-headers-eos", "count", "keyValueWithTimestampAndHeaders", "keyValueWithTimestamp", b"\0"),
    "headers-window": (
        "4.3.1-headers-eos", "window-count", "keyValueWithTimestampAndHeaders", "keyValueWithTimestamp", b"\0",
    ),
    "headers-session": ("4.3.1-headers-eos", "session-headers", "sessionKeyValueWithHeaders", "default", b"\0"),
}  # fmt: skip


@pytest.mark.rotating(3)
@pytest.mark.sample(3)
@pytest.mark.parametrize("case", OLDER)
def test_rows_that_are_not_migrated_yet_are_read_as_if_they_were(tmp_path: Path, case: str) -> None:
    golden, store, newer, older, prefix = OLDER[case]
    app = unpack(golden, tmp_path)
    partition, path = next(
        (t.partition or 0, d.path)
        for t, s in _stores(app)
        if s.name == store
        for d in s.databases
        if sum(prefix != b"\0" or value.startswith(prefix) for _, value in d.samples[newer]) > 1
    )
    options, families = Options.load_latest(str(path), Env(), True)
    families.setdefault(older, families[newer])
    options.create_missing_column_families(True)
    database = Rdict(str(path), options, column_families=families)
    old, new = database.get_column_family(older), database.get_column_family(newer)
    rows: dict[Any, Any] = {key: value for key, value in new.items() if prefix != b"\0" or value.startswith(prefix)}
    # One row is in the older layout only, one in both: the newer one counts.
    moves, both = sorted(rows)[:2]
    new.delete(moves, WriteOptions())
    old[moves] = rows[moves][len(prefix) :]
    old[both] = b"stale"
    database.flush()
    del old, new
    database.close()
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    before = tree_hash(tmp_path)
    with OfflineStreams(app) as streams:
        result = dict(_partition(streams, store, RawScanQuery(), partition).result)
        assert result[moves] == prefix + rows[moves][len(prefix) :]
        assert result[both] == rows[both]
        assert _partition(streams, store, RawKeyQuery(moves), partition).result == result[moves]
        assert _partition(streams, store, RawKeyQuery(both), partition).result == rows[both]
        if store == "count":
            descending = TimestampedRangeQuery.with_no_bounds().with_descending_keys()
            output = list(_partition(streams, store, descending, partition).result)
            kind = "headers" if case == "headers" else "timestamped"
            assert output == [(key, _split(kind, result[key])) for key in sorted(result, reverse=True)]
    assert tree_hash(tmp_path) == before


def _partition(streams: OfflineStreams, store: str, query: Query[Any], partition: int) -> QueryResult[Any]:
    return streams.query(in_store(store).with_query(query)).partition_results[partition]


# --- failures ---------------------------------------------------------------------------------------------------------


def test_failure_states_its_reason(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    request = in_store("count").with_query(KeyQuery(b"k0000"))
    spec = Spec(None, (StoreSpec(name="count", kind="timestamped-key-value", partitions=2),))
    with OfflineStreams(app, spec=spec) as streams, OfflineStreams(app) as unknowing:
        position = streams.query(request).position
        (topic,) = position.topics
        reached = position.partition_positions(topic)

        answer = streams.query(request.with_partitions([0, 1, 2, 7])).partition_results
        assert {p: a.is_failure and a.failure_reason for p, a in answer.items()} == {
            0: False, 1: False, 2: FailureReason.DOES_NOT_EXIST, 7: FailureReason.DOES_NOT_EXIST
        }  # fmt: skip
        absent = unknowing.query(request.with_partitions([7])).partition_results[7]
        assert (absent.failure_reason, absent.position) == (FailureReason.NOT_PRESENT, None)

        for ahead, reasons in ((-1, [None, None]), (0, [None, None]), (1, [None, FailureReason.NOT_UP_TO_BOUND])):
            bound = PositionBound.at(Position.from_map({topic: {1: reached[1] + ahead}}))
            bounded = streams.query(request.with_position_bound(bound)).partition_results
            assert [a.failure_reason if a.is_failure else None for a in bounded.values()] == reasons
            assert all(a.position for a in bounded.values())
        other = PositionBound.at(Position.empty_position().with_component("another", 0, 0))
        failed = streams.query(request.with_position_bound(other)).partition_results[0]
        assert failed.failure_reason is FailureReason.NOT_UP_TO_BOUND
        assert "another" in failed.failure_message

        # An active task is asked for before the bound is looked at, and instead of it.
        active = request.with_position_bound(other).require_active()
        assert {a.failure_reason for a in streams.query(active).partition_results.values()} == {
            FailureReason.NOT_ACTIVE
        }
        with OfflineStreams(app, assume_active=True) as assuming:
            assert all(a.is_success for a in assuming.query(active).partition_results.values())
            result = assuming.query(active.with_partitions([7])).partition_results[7]
            assert result.failure_reason is FailureReason.NOT_PRESENT

        window = streams.query(in_store("window-count").with_query(KeyQuery(b"k0000"))).partition_results[0]
        assert window.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
        by_time = WindowRangeQuery.with_window_start_range(0, 1)
        assert "withKey" in _partition(streams, "session-count", by_time, 0).failure_message
        by_key = WindowRangeQuery.with_key(b"k")
        assert "withWindowStartRange" in _partition(streams, "window-count", by_key, 0).failure_message
        with pytest.raises(UnknownStateStoreError, match="no-such-store"):
            streams.query(in_store("no-such-store").with_query(KeyQuery(b"")))
        execution_info = streams.query(request.enable_execution_info()).partition_results[0].execution_info
        assert "timestamped-key-value store count of task" in execution_info[0]
        assert not streams.query(request).partition_results[0].execution_info


@pytest.mark.sample(3)
@pytest.mark.parametrize("store", ["count", "kv-plain", "window-count", "session-final", "versioned"])
def test_a_damaged_block_is_a_failure_and_never_a_short_answer(tmp_path: Path, store: str) -> None:
    app = unpack("4.3.1-kinds-alos", tmp_path)
    with OfflineStreams(app) as streams:
        whole = list(_partition(streams, store, RawScanQuery(), 1).result)
    databases = [d for t, s in _stores(app) if s.name == store and t.partition == 1 for d in s.databases]
    damaged = databases[-1].path
    sst = next(damaged / f.name for name, files in databases[-1].live.items() if name != "offsets" for f in files)
    _flip(sst, 20)
    read: list[tuple[bytes, bytes]] = []
    with OfflineStreams(app) as streams:
        answer = _partition(streams, store, RawScanQuery(), 1)
        if answer.is_success:
            # The damaged segment is not the first: what comes before it is read.
            with pytest.raises(StoreUnreadable, match=sst.name):
                read.extend(answer.result)
            assert len(read) < len(whole)
        else:
            assert answer.failure_reason is FailureReason.STORE_EXCEPTION
            assert sst.name in answer.failure_message
        partition = _partition(streams, store, RawKeyQuery(whole[-1][0]), 1)
        assert partition.failure_reason is FailureReason.STORE_EXCEPTION
        assert sst.name in partition.failure_message
        # The other partition answers.
        assert _partition(streams, store, RawScanQuery(), 0).is_success


def test_open_store_is_read_at_its_last_flush_only_on_demand(tmp_path: Path) -> None:
    from .test_verify import _running

    app = unpack("4.3.1-demo-eos", tmp_path)
    hold = f"import fcntl,time;f=open({str(app / '.lock')!r},'r+b');fcntl.lockf(f,fcntl.LOCK_EX);print(1,flush=True);time.sleep(3600)"
    request = in_store("latest-order").with_query(RangeQuery.with_no_bounds())
    with _running(hold) as process, OfflineStreams(app) as streams, OfflineStreams(app, last_flush=True) as flushed:
        for answer in streams.query(request).partition_results.values():
            assert answer.failure_reason is FailureReason.STORE_EXCEPTION
            assert f"process {process.pid}" in answer.failure_message
        assert all(list(answer.result) for answer in flushed.query(request).partition_results.values())


# --- what has expired -------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("store", ["window-count", "window-final", "session-count", "session-final"])
def test_rows_older_than_the_retention_are_hidden(tmp_path: Path, store: str) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    kind = next(s.kind.name for _, s in _stores(app) if s.name == store)
    session = has_key(kind, *SESSIONS)
    stores = [row for _, s in _stores(app) if s.name == store for row in _base(s)]
    ordered = is_time_ordered(kind)
    if session:
        times = [(SessionKey.from_time_first if ordered else SessionKey.from_bytes)(row).end for row in stores]
    else:
        times = [(WindowKey.from_time_first if ordered else WindowKey.from_bytes)(row).start for row in stores]
    retention = (max(times) - min(times)) // 2
    spec = Spec(None, (StoreSpec(name=store, kind=kind, retention_ms=retention),))
    output = {}
    choices: dict[str, dict[str, Any]] = {
        "all": {},
        "hidden": {"spec": spec},
        "expired": {"spec": spec, "include_expired": True},
    }
    for name, options in choices.items():
        with OfflineStreams(app, **options) as streams:
            output[name] = _times(streams, app, store, session)
    assert output["all"] == output["expired"]
    assert sum(map(len, output["all"])) == len(stores)
    for every, hidden in zip(output["all"], output["hidden"], strict=True):
        assert hidden == [t for t in every if t > max(every) - retention]
    assert sum(map(len, output["hidden"])) < len(stores)


def _times(streams: OfflineStreams, app: Path, store: str, session: bool) -> list[list[int]]:
    results = []
    for partition in (0, 1):
        if session:
            keys = {w for _, s in _stores(app) if s.name == store for w in _session_keys(s)}
            rows = [
                w.end
                for key in keys
                for w, _ in _partition(streams, store, WindowRangeQuery.with_key(key), partition).result
            ]
        else:
            everything = WindowRangeQuery.with_window_start_range(0, FOREVER)
            rows = [w.start for w, _ in _partition(streams, store, everything, partition).result]
        results.append(sorted(rows))
    return results


def _session_keys(store: Store) -> set[bytes]:
    read = SessionKey.from_time_first if is_time_ordered(store.kind.name) else SessionKey.from_bytes
    return {read(key).key for key in _base(store)}


def test_history_older_than_the_retention_is_hidden(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    histories = {t.partition or 0: _histories(s) for t, s in _stores(app) if s.name == "versioned"}
    partition, key = next((p, k) for p, history in histories.items() for k, v in history.items() if len(v) > 3)
    newest = max(v[0] for versions in histories[partition].values() for v in versions)
    old = histories[partition][key][0]
    retention = newest - old[0] - 1
    spec = Spec(None, (StoreSpec(name="versioned", kind="versioned", retention_ms=retention),))
    with OfflineStreams(app, spec=spec) as streams, OfflineStreams(app, spec=spec, include_expired=True) as whole:
        for time, hidden in ((old[0], True), (old[0] + 1, False)):
            query = VersionedKeyQuery(key, time)
            all_of_it = _partition(whole, "versioned", query, partition).result
            assert all_of_it == (None if old[2] is None else _record(old))
            assert _partition(streams, "versioned", query, partition).result == (None if hidden else all_of_it)
        latest = _partition(streams, "versioned", VersionedKeyQuery(key), partition).result
        assert latest == _partition(whole, "versioned", VersionedKeyQuery(key), partition).result


# --- answers ----------------------------------------------------------------------------------------------------------


def test_segments_without_rows_answer_with_none(tmp_path: Path) -> None:
    app = unpack("4.2.1-kinds-eos-killed-first", tmp_path)
    with OfflineStreams(app) as streams:
        for query in (
            WindowRangeQuery.with_key(b"k"),
            WindowRangeQuery.with_window_start_range(0, FOREVER),
            WindowKeyQuery(b"k", 0, 9),
        ):
            assert list(_partition(streams, "session-count", query, 0).result) == []


def test_partitions_are_collated_in_key_order_and_closed_together(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    with OfflineStreams(app) as streams:
        for query in (RangeQuery.with_no_bounds(), RangeQuery.with_no_bounds().with_descending_keys()):
            parts = [a.result for a in streams.query(in_store("count").with_query(query)).partition_results.values()]
            with collate(parts) as rows:
                keys = [key for key, _ in rows]
            assert keys == sorted(keys, reverse=parts[0].reverse)
            assert len(keys) == 8
            assert all(list(part) == [] for part in parts)
        windows = streams.query(
            in_store("window-count").with_query(WindowRangeQuery.with_window_start_range(0, FOREVER))
        )
        with collate([a.result for a in windows.partition_results.values()]) as rows:
            assert sum(1 for _ in rows) > 10
        up, down = RangeQuery.with_no_bounds(), RangeQuery.with_no_bounds().with_descending_keys()
        with pytest.raises(ValueError, match="ascending"):
            collate([_partition(streams, "count", up, 0).result, _partition(streams, "count", down, 1).result])


def test_key_query_has_the_result_of_a_single_partition(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    with OfflineStreams(app) as streams:
        keys = {p: [k for k, _ in a.result] for p, a in streams.query(
            in_store("count").with_query(RangeQuery.with_no_bounds())).partition_results.items()}  # fmt: skip
        for partition, results in keys.items():
            for key in results:
                answer = streams.query(in_store("count").with_query(KeyQuery(key)))
                assert answer.only_partition_result is answer.partition_results[partition]
        nothing = streams.query(in_store("count").with_query(KeyQuery(b"none")))
        assert nothing.only_partition_result is None
        active = streams.query(in_store("count").with_query(KeyQuery(keys[0][0])).require_active())
        failed = active.only_partition_result
        assert failed is not None
        assert failed.failure_reason is FailureReason.NOT_ACTIVE
        with pytest.raises(ValueError, match="more than one"):
            _ = streams.query(in_store("count").with_query(RangeQuery.with_no_bounds())).only_partition_result


def test_results_and_failures_do_not_take_each_others_place() -> None:
    result: QueryResult[int] = QueryResult.for_result(1)
    result.add_execution_info("quick")
    result.set_position(Position.from_map({"t": {0: 5}}))
    swapped = result.swap_result("one")
    assert (swapped.result, swapped.execution_info, swapped.position) == ("one", ("quick",), result.position)
    for attribute in ("failure_reason", "failure_message"):
        with pytest.raises(ValueError, match="succeeded"):
            getattr(result, attribute)
    failure: QueryResult[int] = QueryResult.for_failure(FailureReason.NOT_PRESENT, "not here")
    with pytest.raises(ValueError, match="not here"):
        _ = failure.result
    with pytest.raises(ValueError, match="swap"):
        failure.swap_result(1)
    other: QueryResult[int] = QueryResult.for_result(2)
    other.set_position(Position.from_map({"t": {0: 4, 1: 1}}))
    merged: StateQueryResult[int] = StateQueryResult({1: other, 0: result})
    assert merged.position.as_map() == {"t": {0: 5, 1: 1}}
    assert list(merged.partition_results) == [0, 1]


def test_an_iterator_ends_with_its_block_and_the_directory(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    with OfflineStreams(app) as streams:
        with _partition(streams, "count", RangeQuery.with_no_bounds(), 0).result as rows:
            next(rows)
        with contextlib.suppress(StopIteration):
            next(rows)
            raise AssertionError("closed iterators have no rows")


def test_sessions_with_headers_are_answered_with_them(tmp_path: Path) -> None:
    app = unpack("4.3.1-headers-eos", tmp_path)
    task, store = next((t, s) for t, s in _stores(app) if s.name == "session-headers" and not s.empty)
    rows = {SessionKey.from_bytes(key): HeadersSessionValue.from_bytes(value) for key, value in _rows(store).items()}
    assert any(value.headers for value in rows.values())
    with OfflineStreams(app) as streams:
        for session, value in rows.items():
            ask = dict(_result_of(streams, task, store.name, WindowRangeQuery.with_key(session.key)))
            at = next(window for window in ask if (window.start, window.end) == (session.start, session.end))
            assert ask[at] == ValueAndTimestamp(value.value, -1, value.headers)


def test_a_dropped_iterator_leaves_no_database_open(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    with OfflineStreams(app) as streams:
        task, store = streams.stores("window-count")[0]
        databases = streams._databases._open
        start, never = (segment.scan() for segment in streams.reader(task, store).segments[:2])
        assert not databases
        next(start)
        assert [database.users for database in databases.values()] == [1]
        del start, never
        assert [database.users for database in databases.values()] == [0]


def test_segments_of_all_partitions_are_collated(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    for segment in sorted((app / "0_0" / "window-count").iterdir())[1:]:
        shutil.rmtree(segment)
    with OfflineStreams(app) as streams:
        answers = streams.query(in_store("window-count").with_query(RawScanQuery())).partition_results
        counts = [len(streams.reader(*store).segments) for store in streams.stores("window-count")]
        assert counts[0] == 1 < counts[1]
        with collate(answer.result for answer in answers.values()) as rows:
            assert sum(1 for _ in rows) == sum(len(_rows(s)) for _, s in _stores(app) if s.name == "window-count")


# --- what is out of sight ---------------------------------------------------------------------------------------------


def test_a_segment_that_is_no_database_any_more_is_not_passed_over(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    segment = min((app / "0_0" / "window-count").iterdir())
    for path in [*segment.glob("MANIFEST-*"), segment / "CURRENT"]:
        path.unlink()
    with OfflineStreams(app) as streams:
        everything = in_store("window-count").with_query(WindowRangeQuery.with_window_start_range(0, FOREVER))
        broken, whole = streams.query(everything).partition_results.values()
        assert broken.failure_reason is FailureReason.STORE_EXCEPTION
        assert segment.name in broken.failure_message
        assert list(whole.result)


@pytest.mark.sample(2)
@pytest.mark.parametrize("hidden", ["0_1/rocksdb/count", "0_1/rocksdb", "0_1", "0_1/window-count"])
def test_a_store_behind_a_link_is_refused(tmp_path: Path, hidden: str) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    (app / hidden).rename(tmp_path / "elsewhere")
    (app / hidden).symlink_to(tmp_path / "elsewhere")
    store = "window-count" if "window" in hidden else "count"
    with OfflineStreams(app) as streams:
        with pytest.raises(
            Refused, match=f"{hidden}: the entry is a symbolic link, so kstate may not see all of store {store}"
        ):
            streams.query(in_store(store).with_query(RawScanQuery()))
        other = in_store("versioned").with_query(RawScanQuery())
        if hidden not in ("0_1", "0_1/rocksdb"):  # these may hide any store
            assert all(answer.is_success for answer in streams.query(other).partition_results.values())


def test_a_task_that_is_left_over_is_not_taken_for_the_other(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    shutil.copytree(app / "0_1", app / "99_1")
    request = in_store("count").with_query(RangeQuery.with_no_bounds())
    with OfflineStreams(app) as streams, pytest.raises(Refused, match="several sub-topologies: 0_0, 0_1, 99_1"):
        streams.query(request)
    for subtopology, partitions in ((0, [0, 1]), (99, [1])):
        spec = Spec(None, (StoreSpec(name="count", kind="timestamped-key-value", subtopology=subtopology),))
        with OfflineStreams(app, spec=spec) as streams:
            assert list(streams.query(request).partition_results) == partitions


@pytest.mark.parametrize(
    ("store", "query"),
    [
        ("window-count", WindowKeyQuery(b"k0000", 0, FOREVER)),
        ("window-final", WindowRangeQuery.with_window_start_range(0, FOREVER)),
        ("session-count", WindowRangeQuery.with_key(b"k0000")),
    ],
)
def test_segments_of_two_intervals_refuse_time_queries(tmp_path: Path, store: str, query: Query[Any]) -> None:
    """After a change of the retention old segments overlap new ones, and Streams reads some of them only."""
    app = unpack("4.3.1-kinds-eos", tmp_path)
    first = min((app / "0_1" / store).iterdir())
    start = int(first.name.rpartition(".")[2])
    shutil.copytree(first, first.with_name(f"{store}.{start + 60_000}"))
    with OfflineStreams(app) as streams:
        answer = _partition(streams, store, query, 1)
        assert answer.failure_reason is FailureReason.STORE_EXCEPTION
        assert "the segments do not all have the same segment interval" in answer.failure_message
        # Rows as they lie are asked for without times.
        assert list(_partition(streams, store, RawScanQuery(), 1).result)


@pytest.mark.parametrize("indexed", [False, True])
def test_keys_of_any_bytes_in_a_time_ordered_store(tmp_path: Path, indexed: bool) -> None:
    keys = [b"", b"\0", b"k", b"k\0", b"kk", b"\xff", b"\xff" * 9, (60_001).to_bytes(8, "big")]
    starts = [60_000, 60_001, 119_999]
    path = tmp_path / "app" / "0_0" / "buffer" / "buffer.60000"
    path.parent.mkdir(parents=True)
    (tmp_path / "app" / ".lock").touch()
    db = Rdict(str(path), Options(raw_mode=True))
    for key in keys:
        for start in starts:
            window = WindowKey(key, start)
            db[window.to_time_first()] = (7).to_bytes(8, "big") + key
            if indexed:
                db[window.to_key_first()] = b""
    db.flush()
    db.close()
    spec = Spec(None, (StoreSpec(name="buffer", kind="time-ordered-window"),))
    with OfflineStreams(tmp_path / "app", spec=spec) as streams:
        for key in keys:
            for first, last in ((0, FOREVER), (60_000, 60_000), (60_001, 60_001), (60_001, 119_999), (0, 60_000)):
                rows = list(_partition(streams, "buffer", WindowKeyQuery(key, first, last), 0).result)
                assert rows == [(s, ValueAndTimestamp(key, 7)) for s in starts if first <= s <= last], (key, last)
        for last in (60_000, 60_001, FOREVER):
            windows = WindowRangeQuery.with_window_start_range(60_000, last)
            results = [(w.start, w.key) for w, _ in _partition(streams, "buffer", windows, 0).result]
            assert sorted(results) == sorted((s, k) for k in keys for s in starts if s <= last)


def test_a_kind_that_does_not_lie_so_is_not_believed(tmp_path: Path) -> None:
    for start in (0, 60_000):
        path = tmp_path / "app" / "0_0" / "store" / f"store.{start}"
        path.parent.mkdir(parents=True, exist_ok=True)
        db = Rdict(str(path), Options(raw_mode=True))
        # The row of a window as well as that of a session.
        db[bytes(8) + 2 * start.to_bytes(8, "big")] = b"v"
        db.flush()
        db.close()
    spec = Spec(None, (StoreSpec(name="store", kind="key-value"),))
    with OfflineStreams(tmp_path / "app", spec=spec) as streams:
        answer = _partition(streams, "store", RangeQuery.with_no_bounds(), 0)
        assert answer.failure_reason is FailureReason.STORE_EXCEPTION
        assert "0_0/store is segmented, so it is not a key-value store" in answer.failure_message

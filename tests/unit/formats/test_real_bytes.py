"""The layouts of stores, in the rows that real releases wrote: each test fails where two parts of a layout are swapped.

The application of these directories has keys `k0000` to `k0007`, values of eight letters and digits, or none, and records of
half an hour from FIRST on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.formats.keys import CombinedKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.store_kinds import DEFAULT_CF, HEADERS_CF, SESSION_HEADERS_CF, TIMESTAMPED_CF, WINDOW_HEADERS_CF
from kstate_cli.formats.values import (
    BufferValue,
    Header,
    HeadersSessionValue,
    HeadersValue,
    SubscriptionWrapper,
    TimestampedValue,
)
from kstate_cli.formats.versioned import LatestValue, SegmentValue
from kstate_cli.rocks.shadow import Shadow
from tests.golden import unpack

FIRST = 1_704_067_200_000
TIMES = range(FIRST, FIRST + 1_800_000)
SEGMENT_MS = 600_000
WINDOW_MS = 60_000
VERSIONS_MS = 240_000
"""The segment interval of `versioned`: its history is of 20 minutes."""
KEY = re.compile(rb"k000[0-7]")
VALUE = re.compile(rb"[0-9a-z]{8}|")

Rows = dict[tuple[str, bytes], bytes]
"""(Directory of the database, key) to value."""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("4.3.1-kinds-eos", tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("4.3.1-headers-eos", tmp_path_factory.mktemp("headers"))


def rows(app: Path, store: str, family: str = DEFAULT_CF) -> Rows:
    """The rows of a store, of all tasks and segments: at least two."""
    results: Rows = {}
    for path in sorted(app.rglob("CURRENT")):
        name = path.parent.relative_to(app).as_posix()
        if store in name.split("/"):
            with Shadow(path.parent) as shadow:
                if family in shadow.column_families:
                    results.update({(name, key): value for key, value in shadow.rows(family)})
    assert len(results) > 1
    return results


def in_segment(database: str, time: int) -> bool:
    start = int(database.rpartition(".")[2])
    return start <= time < start + SEGMENT_MS


def of_test(headers: tuple[Header, ...]) -> bool:
    """What the producer of these records puts into their headers, in its order."""
    traces = [entry.value for entry in headers if entry.key == "trace"]
    assert all(re.fullmatch(rb"t-\d+|again", trace or b"") for trace in traces)
    keys = [entry.key for entry in headers]
    assert keys == sorted(keys, key=["trace", "empty", "null"].index)
    assert all(entry.value == (b"" if entry.key == "empty" else None) for entry in headers if entry.key != "trace")
    return bool(headers)


def test_key_value(kinds: Path) -> None:
    plain = {key: value for (_, key), value in rows(kinds, "kv-plain").items()}
    assert all(KEY.fullmatch(key) and VALUE.fullmatch(value) for key, value in plain.items())
    stamped = {
        key: TimestampedValue.from_bytes(v) for (_, key), v in rows(kinds, "kv-timestamped", TIMESTAMPED_CF).items()
    }
    assert {key: entry.value for key, entry in stamped.items()} == plain
    assert all(entry.timestamp in TIMES for entry in stamped.values())


def test_key_value_with_headers(headers: Path) -> None:
    with_some = 0
    for (_, key), value in rows(headers, "kv-headers", HEADERS_CF).items():
        entry = HeadersValue.from_bytes(value)
        assert KEY.fullmatch(key) and VALUE.fullmatch(entry.value) and entry.timestamp in TIMES
        with_some += of_test(entry.headers)
    assert with_some > 1


def test_sessions_with_headers(headers: Path) -> None:
    with_some = 0
    for (database, key), value in rows(headers, "session-headers", SESSION_HEADERS_CF).items():
        at, entry = SessionKey.from_bytes(key), HeadersSessionValue.from_bytes(value)
        assert KEY.fullmatch(at.key) and at.start < at.end and in_segment(database, at.end)
        assert VALUE.fullmatch(entry.value)
        with_some += of_test(entry.headers)
    assert with_some > 1


@pytest.mark.parametrize(("store", "numbered"), [("window-plain", False), ("window-duplicates", True)])
def test_windows(kinds: Path, store: str, numbered: bool) -> None:
    for (database, key), value in rows(kinds, store).items():
        at = WindowKey.from_bytes(key)
        assert KEY.fullmatch(at.key) and VALUE.fullmatch(value) and in_segment(database, at.start)
        assert (0 < at.seq < 100) if numbered else at.seq == 0


def test_sessions(kinds: Path) -> None:
    for (database, key), value in rows(kinds, "session-plain").items():
        at = SessionKey.from_bytes(key)
        assert KEY.fullmatch(at.key) and VALUE.fullmatch(value) and at.start < at.end and in_segment(database, at.end)


@pytest.mark.parametrize(("family", "head"), [(DEFAULT_CF, b""), (WINDOW_HEADERS_CF, b"\0")], ids=["plain", "headers"])
def test_time_ordered_windows(kinds: Path, headers: Path, family: str, head: bytes) -> None:
    results = rows(headers if head else kinds, "window-final", family)
    base = {WindowKey.from_time_first(key): value for (_, key), value in results.items() if key[0] == 0}
    index = {WindowKey.from_key_first(key): value for (_, key), value in results.items() if key[0] == 1}
    # Kept with headers always, else only where the window slides.
    assert index == (dict.fromkeys(base, b"") if head else {})
    for at, value in base.items():
        assert value.startswith(head)
        counts = TimestampedValue.from_bytes(value[len(head) :])
        assert KEY.fullmatch(at.key) and at.seq == 0
        assert at.start <= counts.timestamp < at.start + SEGMENT_MS and counts.timestamp in TIMES
        assert 0 < int.from_bytes(counts.value, "big") < 100


def test_time_ordered_sessions(kinds: Path) -> None:
    results = rows(kinds, "session-final")
    base = {SessionKey.from_time_first(key): value for (_, key), value in results.items() if key[0] == 0}
    index = {SessionKey.from_key_first(key): value for (_, key), value in results.items() if key[0] == 1}
    assert index == dict.fromkeys(base, b"")
    assert all(KEY.fullmatch(at.key) and FIRST <= at.start <= at.end for at in base)
    assert any(at.start < at.end for at in base)
    assert all(0 < int.from_bytes(value, "big") < 100 for value in base.values())


def test_versions(kinds: Path) -> None:
    results = rows(kinds, "versioned")
    latest = 0
    for (_, key), value in results.items():
        at = VersionedKey.from_bytes(key)
        assert KEY.fullmatch(at.key)
        if at.is_latest:
            latest += 1
            entry = LatestValue.from_bytes(value)
            assert entry.valid_from in TIMES and VALUE.fullmatch(entry.value)
            continue
        row = SegmentValue.from_bytes(value)
        assert row.next_timestamp in TIMES and row.next_timestamp // VERSIONS_MS == at.segment
        times = [version.valid_from for version in row.versions]
        assert times == sorted(times, reverse=True) and all(time in TIMES for time in times)
        assert all(version.value is None or VALUE.fullmatch(version.value) for version in row.versions)
    assert 1 < latest < len(results)
    tombstones = {value for value in results.values() if len(value) == 28}
    assert [SegmentValue.from_bytes(value).is_degenerate for value in tombstones] == [True]


def test_each_version_has_its_own_value(kinds: Path) -> None:
    """In a store and in a window store that were fed the same records: which value is of which time."""
    starts = {(at.key, value): at.start for at, value in _windows(kinds) if value}
    compared = 0
    for (_, key), value in rows(kinds, "grace-table").items():
        at = VersionedKey.from_bytes(key)
        for version in () if at.is_latest else SegmentValue.from_bytes(value).versions:
            if version.value:
                assert 0 <= version.valid_from - starts[at.key, version.value] < WINDOW_MS
                compared += len(SegmentValue.from_bytes(value).versions) > 1
    assert compared > 1


def _windows(kinds: Path) -> Iterator[tuple[WindowKey, bytes]]:
    for (_, key), value in rows(kinds, "window-duplicates").items():
        yield WindowKey.from_bytes(key), value


def test_subscriptions(kinds: Path) -> None:
    remainder = {
        key: (int(name[2]), TimestampedValue.from_bytes(value))
        for (name, key), value in rows(kinds, "fk-left", TIMESTAMPED_CF).items()
    }
    for (_, key), value in rows(kinds, "fk-subscription-store", TIMESTAMPED_CF).items():
        at, stamped = CombinedKey.from_bytes(key), TimestampedValue.from_bytes(value)
        entry = SubscriptionWrapper.from_bytes(stamped.value)
        partition, row = remainder[at.primary_key]
        assert row.value.startswith(at.foreign_key + b"|")
        assert (entry.version, entry.primary_key, entry.partition) == (1, at.primary_key, partition)
        assert stamped.timestamp == row.timestamp and entry.instruction in range(4) and len(entry.hash or b"") == 16


def test_grace_buffers(kinds: Path) -> None:
    with_headers = 0
    for (database, key), value in rows(kinds, "grace-join-Buffer").items():
        at, entry = WindowKey.from_time_first(key), BufferValue.from_bytes(value)
        assert KEY.fullmatch(at.key) and at.start == entry.timestamp and 0 < at.seq < 100
        assert (entry.topic, entry.partition) == (f"{kinds.name}-in-events", int(database[2]))
        assert 0 < entry.offset < 100 and (entry.prior, entry.old) == (None, None) and VALUE.fullmatch(entry.new or b"")
        with_headers += of_test(entry.headers)
    assert with_headers > 1

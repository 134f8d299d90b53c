"""Which kind follows from which families and rows, with the reason: a table of every branch and of the last values on either side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kind_inference import Kind, Row, infer_kind
from kstate_cli.formats.values import BufferValue, ListEntry, SubscriptionWrapper, encode_list
from kstate_cli.formats.versioned import LatestValue

START, STEP = 1704067200000, 600000
STARTS = [START, START + STEP, START + 2 * STEP]
MOST = (1 << 63) - 1
D, T, H = "default", "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"
S, W = "sessionKeyValueWithHeaders", "windowKeyValueWithHeaders"
JUNK: Row = (b"x" * 20, bytes(8) + b"v")
SEGMENT: Row = (
    bytes(8) + b"\xfe",
    # Versions at 10, 20 and 30, and one at 15 that came late.
    bytes.fromhex(
        "000000000000001e000000000000000f000000000000001400000001000000000000000a00000001000000000000000f000000046c6174656162"
    ),
)
OLDEST_OF_ALL: Row = bytes(9), bytes.fromhex("000000000000001e0000000000000000000000000000000000000001") + b"a"
OLDER: Row = bytes(9), bytes.fromhex("000000000000001effffffffffffffffffffffffffffffff00000001") + b"a"


def timestamped_value(timestamp: int) -> bytes:
    return timestamp.to_bytes(8, "big", signed=True) + b"v"


def window(start: int, sequence: int = 0) -> Row:
    return WindowKey(b"key1", start, sequence).to_bytes(), b"v"


def session(start: int, end: int) -> Row:
    return SessionKey(b"key1", start, end).to_bytes(), b"v"


def order_row(timestamp: int) -> Row:
    return WindowKey(b"key1", START + 1000).to_time_first(), timestamped_value(timestamp)


def index(value: bytes) -> Row:
    return WindowKey(b"key1", START + 1000).to_key_first(), value


def latest(time: int, key: bytes = b"k") -> Row:
    return VersionedKey(-1, key).to_bytes(), LatestValue(time, b"v").to_bytes()


def subscription(partition: int | None, primary_key: bytes = b"pk") -> Row:
    version = 0 if partition is None else 1
    wrapper = SubscriptionWrapper(version, 2, bytes(16), primary_key, partition)
    return CombinedKey(b"fk", b"pk").to_bytes(), bytes(8) + wrapper.to_bytes()


def join_row(timestamp: int, *sides: bool | None) -> Row:
    entries = [None if side is None else ListEntry(side, b"v") for side in sides]
    return JoinSideKey(timestamp, True, b"k").to_bytes(), encode_list(entries)


def buffer_row(partition: int, key: bytes = WindowKey(b"k", 1000, 1).to_time_first()) -> Row:
    return key, BufferValue(1000, 1, "in", partition, (), None, None, b"v").to_bytes()


CASES: list[tuple[set[str], list[int] | None, Mapping[str, Sequence[Row]], str, Kind]] = [
    ({D}, None, {D: [OLDEST_OF_ALL]}, "s", Kind("versioned", True, "rows of version segments")),
    (
        {D},
        None,
        {D: [OLDER]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D},
        None,
        {},
        "s",
        Kind(
            "key-value",
            False,
            "column family default (the store has no rows, so it could also be versioned or list-value)",
        ),
    ),
    ({D}, None, {}, "x-left-shared-join-store", Kind("list-value", False, "the store's name (the store has no rows)")),
    ({D}, None, {D: [latest(0)]}, "s", Kind("versioned", True, "rows of latest values")),
    (
        {D},
        None,
        {D: [latest(-1)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    ({D}, None, {D: [latest(MOST - 1)]}, "s", Kind("versioned", True, "rows of latest values")),
    (
        {D},
        None,
        {D: [latest(MOST)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    ({D}, None, {D: [SEGMENT]}, "s", Kind("versioned", True, "rows of version segments")),
    ({D}, None, {D: [SEGMENT, latest(5)]}, "s", Kind("versioned", True, "rows of latest values")),
    (
        {D},
        None,
        {D: [join_row(-1, True)]},
        "s",
        Kind("list-value", True, "rows with join-side keys and lists of entries from that side"),
    ),
    (
        {D},
        None,
        {D: [join_row(-2, True)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D},
        None,
        {D: [join_row(-1, True, True)]},
        "s",
        Kind("list-value", True, "rows with join-side keys and lists of entries from that side"),
    ),
    (
        {D},
        None,
        {D: [join_row(START)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D},
        None,
        {D: [join_row(START, True, False)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D},
        None,
        {D: [join_row(START, True, None)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D},
        None,
        {D: [join_row(START, None)]},
        "s",
        Kind("key-value", True, "rows in column family default that are neither versioned nor list-value"),
    ),
    (
        {D, T},
        None,
        {},
        "s",
        Kind("timestamped-key-value", False, "column family keyValueWithTimestamp (the store has no rows)"),
    ),
    (
        {D, T},
        None,
        {},
        "x-subscription-store",
        Kind(
            "foreign-key-subscription",
            False,
            "column family keyValueWithTimestamp and the store's name (the store has no rows)",
        ),
    ),
    (
        {D, T},
        None,
        {T: [subscription(0)]},
        "s",
        Kind("foreign-key-subscription", True, "combined keys and subscriptions with the same primary keys"),
    ),
    (
        {D, T},
        None,
        {T: [subscription(None)]},
        "s",
        Kind("foreign-key-subscription", True, "combined keys and subscriptions with the same primary keys"),
    ),
    (
        {D, T},
        None,
        {T: [subscription(-1)]},
        "s",
        Kind("timestamped-key-value", True, "column family keyValueWithTimestamp"),
    ),
    (
        {D, T},
        None,
        {T: [subscription(0), subscription(0, b"other")]},
        "s",
        Kind("foreign-key-subscription", False, "rows that decode as combined keys and subscriptions"),
    ),
    (
        {D, T},
        None,
        {T: [JUNK, subscription(0)]},
        "x-subscription-store",
        Kind("timestamped-key-value", True, "column family keyValueWithTimestamp"),
    ),
    (
        {D, T},
        None,
        {T: [(b"\0\0\0\x09fk", subscription(0)[1])]},
        "s",
        Kind("timestamped-key-value", True, "column family keyValueWithTimestamp"),
    ),
    (
        {D, T, H},
        None,
        {T: [(b"k", bytes(8))], H: [(b"k", bytes(9))]},
        "s",
        Kind("headers-key-value", True, "column family keyValueWithTimestampAndHeaders"),
    ),
    (
        {D, S},
        None,
        {},
        "s",
        Kind("key-value", False, "column family sessionKeyValueWithHeaders belongs to a segmented store"),
    ),
    ({D, "other"}, None, {}, "s", Kind("key-value", False, "column families that Streams does not create: other")),
    ({D, "other"}, STARTS, {}, "s", Kind("windowed", False, "column families that Streams does not create: other")),
    (
        {S, T},
        STARTS,
        {},
        "s",
        Kind(
            "windowed",
            False,
            "a combination of column families that no store has: keyValueWithTimestamp, sessionKeyValueWithHeaders",
        ),
    ),
    (
        {D},
        STARTS,
        {},
        "s",
        Kind("windowed", False, "segments that have only the column family default (the store has no rows)"),
    ),
    ({D}, STARTS, {}, "x-this-join-store", Kind("window", False, "the store's name (the store has no rows)")),
    ({D}, [0], {}, "join-Buffer", Kind("grace-buffer", False, "the store's name (the store has no rows)")),
    (
        {D},
        [0, START],
        {},
        "join-Buffer",
        Kind("windowed", False, "segments that have only the column family default (the store has no rows)"),
    ),
    ({D}, [0], {}, "x-this-join-store", Kind("window", False, "the store's name (the store has no rows)")),
    (
        {D},
        STARTS,
        {D: [window(START)]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [window(START - 1)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [window(START + STEP - 1)]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [window(START + STEP)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [window(START, -1)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        [START],
        {D: [window(2 * START - 1)]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        [START],
        {D: [window(2 * START)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        [0],
        {D: [window(0)]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        [0],
        {D: [window((1 << 43) - 1)]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        [0],
        {D: [window(1 << 43)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [session(START, START)]},
        "s",
        Kind("session", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [session(0, START)]},
        "s",
        Kind("session", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [session(-1, START)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [session(START + 1, START)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [order_row(-1)]},
        "s",
        Kind("time-ordered-window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [order_row(-2)]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        STARTS,
        {D: [order_row(0), index(b"")]},
        "s",
        Kind("time-ordered-window", True, "2 rows whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [order_row(0), index(b"\0")]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        [0],
        {D: [buffer_row(-1)]},
        "s",
        Kind("grace-buffer", True, "one segment at 0, with time-first keys and buffered records"),
    ),
    (
        {D},
        [0],
        {D: [buffer_row(-2)]},
        "s",
        Kind("windowed", False, "rows whose keys fit window and time-ordered-window"),
    ),
    (
        {D},
        [0],
        {D: [buffer_row(-2)]},
        "join-Buffer",
        Kind("grace-buffer", False, "the store's name and its only segment, 0 (the rows do not show the kind)"),
    ),
    (
        {D},
        [0],
        {D: [buffer_row(0, b"\0abc")]},
        "s",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    (
        {D},
        [0],
        {D: [buffer_row(0, b"\1" + bytes(12))]},
        "s",
        Kind("window", True, "1 row whose keys fit their segment only if the store has this kind"),
    ),
    (
        {D},
        STARTS,
        {D: [buffer_row(0)]},
        "join-Buffer",
        Kind("windowed", False, "rows whose keys do not fit their segment in any schema"),
    ),
    ({D, T}, STARTS, {T: [JUNK]}, "s", Kind("timestamped-window", True, "column family keyValueWithTimestamp")),
    ({D, H}, STARTS, {H: [JUNK]}, "s", Kind("headers-window", True, "column family keyValueWithTimestampAndHeaders")),
    (
        {D, W},
        STARTS,
        {W: [JUNK]},
        "s",
        Kind("headers-time-ordered-window", True, "column family windowKeyValueWithHeaders"),
    ),
    (
        {D, S},
        STARTS,
        {},
        "s",
        Kind(
            "headers-session",
            False,
            "column family sessionKeyValueWithHeaders (the store has no rows, so it could be time-ordered)",
        ),
    ),
    (
        {D, S},
        STARTS,
        {S: [JUNK]},
        "s",
        Kind(
            "headers-session", False, "column family sessionKeyValueWithHeaders, rows whose keys fit no session schema"
        ),
    ),
    (
        {D, S},
        STARTS,
        {S: [(b"\0" * 21, b"")]},
        "s",
        Kind(
            "headers-session", False, "column family sessionKeyValueWithHeaders, rows whose keys fit no session schema"
        ),
    ),
    (
        {D, S},
        [0],
        {S: [(b"\0" * 21, b"")]},
        "s",
        Kind(
            "headers-session",
            False,
            "column family sessionKeyValueWithHeaders, rows whose keys fit both session schemas",
        ),
    ),
    (
        {D, S},
        STARTS,
        {S: [session(START, START)]},
        "s",
        Kind("headers-session", True, "column family sessionKeyValueWithHeaders and keys"),
    ),
    (
        {D, S},
        STARTS,
        {S: [(b"\1" + session(START, START)[0], b"\0")]},
        "s",
        Kind(
            "headers-session",
            False,
            "column family sessionKeyValueWithHeaders, rows whose keys fit both session schemas",
        ),
    ),
    (
        {D, S},
        STARTS,
        {S: [(b"\1" + session(START, START)[0], b"x")]},
        "s",
        Kind("headers-session", True, "column family sessionKeyValueWithHeaders and keys"),
    ),
]


@pytest.mark.parametrize(
    ("families", "starts", "rows", "store", "kind"), CASES, ids=[str(number) for number in range(len(CASES))]
)
def test_kind_and_reason(
    families: set[str], starts: list[int] | None, rows: Mapping[str, Sequence[Row]], store: str, kind: Kind
) -> None:
    assert infer_kind(frozenset(families), starts, rows, store) == kind

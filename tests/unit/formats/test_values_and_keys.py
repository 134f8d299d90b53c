"""Row values and row keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import values
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.values import BufferValue, Header, ListEntry, SubscriptionWrapper
from kstate_cli.formats.versioned import LatestValue, SegmentValue, Version

I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
HEADERS = st.lists(st.builds(Header, st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4).map(tuple)
NULLABLE = st.none() | st.binary(max_size=6)
DECODERS: list[Callable[[bytes], object]] = [
    values.decode_headers,
    values.strip_headers_to_timestamped,
    values.strip_headers_to_plain,
    values.strip_session_headers,
    values.subscription_version,
    values.decode_list,
    values.HeadersValue.from_bytes,
    values.HeadersSessionValue.from_bytes,
    values.TimestampedValue.from_bytes,
    SubscriptionWrapper.from_bytes,
    BufferValue.from_bytes,
    LatestValue.from_bytes,
    SegmentValue.from_bytes,
    WindowKey.from_bytes,
    WindowKey.from_time_first,
    WindowKey.from_key_first,
    SessionKey.from_bytes,
    SessionKey.from_time_first,
    SessionKey.from_key_first,
    VersionedKey.from_bytes,
    JoinSideKey.from_bytes,
    CombinedKey.from_bytes,
]
SESSION_HEADERS = "1a 06 04 6831 04 7631 04 6832 01 00 00"
SUBSCRIPTION = "0000000000001194 01 02 7b54962f6a59f1c784b78498e58ec90b 6b30 00000000"


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary() | st.binary().map(bytes(16).__add__) | st.binary().map(b"\x01\x00\x00\x00\x01".__add__))
def test_any_bytes(decode: Callable[[bytes], object], data: bytes) -> None:
    try:
        decode(data)
    except MalformedBytesError:
        pass


def test_golden_headers() -> None:
    value = bytes.fromhex("0c 02 02 68 04 6876 00000000000003e8 7630")
    assert values.decode_headers(value) == ((Header("h", b"hv"),), 7)
    assert values.encode_headers([Header("h", b"hv")]) == value[:7]
    assert values.strip_headers_to_timestamped(value) == (bytes.fromhex("00000000000003e8 7630"), 1)
    assert values.strip_headers_to_plain(value) == (b"v0", 1)
    assert values.HeadersValue.from_bytes(value).to_bytes() == value


def test_golden_session_headers() -> None:
    head = bytes.fromhex(SESSION_HEADERS)
    headers = (Header("h1", b"v1"), Header("h2", None), Header("", b""))
    assert values.decode_headers(head + b"val") == (headers, len(head))
    assert values.encode_headers(headers) == head
    assert values.strip_session_headers(head + b"val") == (b"val", 3)


def test_values_without_headers() -> None:
    assert values.encode_headers([]) == b"\0"
    assert values.strip_headers_to_timestamped(b"\0" + bytes(8)) == (bytes(8), 0)
    assert values.strip_headers_to_timestamped(b"") == values.strip_headers_to_timestamped(b"\0") == (b"", 0)
    assert values.strip_headers_to_plain(b"\0" + bytes(8) + b"v") == (b"v", 0)
    assert values.strip_session_headers(b"") == (b"", 0)
    assert values.strip_session_headers(b"\0val") == (b"val", 0)
    for empty in (b"", b"\0"):
        assert values.strip_index_headers(empty) == (b"", 0)
    with pytest.raises(MalformedBytesError):
        values.strip_index_headers(b"\0\0")


@pytest.mark.parametrize(
    "encoded", ["01", "0c02", "00ff", "02 01", "04 0000", "04 0202", "ffffffffff", "0c020268046876"]
)
def test_malformed_headers(encoded: str) -> None:
    with pytest.raises(MalformedBytesError):
        values.strip_headers_to_timestamped(bytes.fromhex(encoded))


@given(HEADERS, I64, st.binary())
def test_stripping_drops_the_added_headers(headers: tuple[Header, ...], timestamp: int, value: bytes) -> None:
    timestamped = values.TimestampedValue(timestamp, value).to_bytes()
    encoded = values.encode_headers(headers)
    assert values.decode_headers(encoded + timestamped) == (headers, len(encoded))
    assert values.strip_headers_to_timestamped(encoded + timestamped) == (timestamped, len(headers))
    assert values.strip_headers_to_plain(encoded + timestamped) == (value, len(headers))
    assert values.strip_session_headers(encoded + value) == (value, len(headers))


def test_golden_subscription() -> None:
    value = bytes.fromhex(SUBSCRIPTION)
    assert values.subscription_version(value) == 1
    wrapper = SubscriptionWrapper.from_bytes(value[8:])
    assert (wrapper.instruction, wrapper.primary_key, wrapper.partition) == (2, b"k0", 0)
    assert wrapper.to_bytes() == value[8:]
    assert values.subscription_version(bytes(8) + b"\x80\x01pk") == 0
    assert values.subscription_version(bytes(8) + b"\x81\x01pk\0\0\0\0") == 1


@pytest.mark.parametrize("wrapper", [b"", b"\x02\x00", b"\x80\x04", b"\x00\x00short", b"\x81\x00abc"])
def test_malformed_subscriptions(wrapper: bytes) -> None:
    with pytest.raises(MalformedBytesError):
        values.subscription_version(bytes(8) + wrapper)


def test_golden_list() -> None:
    value = bytes.fromhex("01 00000001 00000003 01 7630")
    assert values.decode_list(value) == (ListEntry(True, b"v0"),)


@given(st.lists(st.none() | st.builds(ListEntry, st.booleans(), st.binary(max_size=4))))
def test_list_round_trip(entries: list[ListEntry | None]) -> None:
    assert values.decode_list(values.encode_list(entries)) == tuple(entries)


@given(
    st.builds(
        BufferValue, I64, I64, st.text(max_size=5), I32, HEADERS, NULLABLE, NULLABLE, NULLABLE,
        st.sampled_from([b"", bytes(8)]),
    )
)  # fmt: skip
def test_buffer_round_trip(value: BufferValue) -> None:
    assert BufferValue.from_bytes(value.to_bytes()) == value


def test_golden_versions() -> None:
    assert VersionedKey.from_bytes(bytes.fromhex("ffffffffffffffff6b30")) == VersionedKey(-1, b"k0")
    assert LatestValue.from_bytes(bytes.fromhex("0000000000001194763335")) == LatestValue(4500, b"v35")
    lone = bytes.fromhex("0000000000000032" * 3 + "ffffffff")
    assert SegmentValue.from_bytes(lone) == SegmentValue(50, (Version(50, None),))
    assert SegmentValue.from_bytes(lone).is_degenerate and SegmentValue.from_bytes(lone).to_bytes() == lone
    row = bytes.fromhex(
        "0000000000000028 000000000000000a 000000000000001e 00000002"
        "0000000000000014 ffffffff 000000000000000a 00000001 41 4343"
    )
    versions = (Version(30, b"CC"), Version(20, None), Version(10, b"A"))
    assert SegmentValue.from_bytes(row) == SegmentValue(40, versions)
    assert SegmentValue(40, versions).to_bytes() == row


@given(st.lists(I64, min_size=2, max_size=6, unique=True), st.lists(NULLABLE, min_size=6, max_size=6))
def test_versions_round_trip(times: list[int], contents: list[bytes | None]) -> None:
    newest, *rest = sorted(times, reverse=True)
    row = SegmentValue(newest, tuple(Version(time, value) for time, value in zip(rest, contents, strict=False)))
    assert SegmentValue.from_bytes(row.to_bytes()) == row


def test_golden_keys() -> None:
    window, session = WindowKey(b"k", 1000, 1), SessionKey(b"k", 1000, 2000)
    start, end, seq = "00000000000003e8", "00000000000007d0", "00000001"
    assert window.to_bytes().hex() == f"6b{start}{seq}"
    assert window.to_time_first().hex() == f"00{start}6b{seq}"
    assert window.to_key_first().hex() == f"016b{start}{seq}"
    assert session.to_bytes().hex() == f"6b{end}{start}"
    assert session.to_time_first().hex() == f"00{end}{start}6b"
    assert session.to_key_first().hex() == f"016b{end}{start}"
    assert JoinSideKey(1000, True, b"k").to_bytes().hex() == f"{start}016b"
    assert JoinSideKey(1000, False, b"k").to_bytes().hex() == f"{start}006b"
    row = bytes.fromhex("6b30 00000000000003e8 00000000")
    assert WindowKey.from_bytes(row) == WindowKey(b"k0", 1000)
    counts = values.TimestampedValue.from_bytes(bytes.fromhex("00000000000005dc 0000000000000002"))
    assert counts == values.TimestampedValue(1500, (2).to_bytes(8, "big"))


@given(st.binary(max_size=9), I64, I64, I32, st.booleans())
def test_keys_round_trip(key: bytes, first: int, two: int, seq: int, is_left: bool) -> None:
    window, session = WindowKey(key, first, seq), SessionKey(key, first, two)
    assert WindowKey.from_bytes(window.to_bytes()) == window
    assert WindowKey.from_time_first(window.to_time_first()) == window
    assert WindowKey.from_key_first(window.to_key_first()) == window
    assert SessionKey.from_bytes(session.to_bytes()) == session
    assert SessionKey.from_time_first(session.to_time_first()) == session
    assert SessionKey.from_key_first(session.to_key_first()) == session
    join, combined, versioned = (
        JoinSideKey(first, is_left, key),
        CombinedKey(key, b"pk"),
        VersionedKey(abs(seq) - 1, key),
    )
    assert JoinSideKey.from_bytes(join.to_bytes()) == join
    assert CombinedKey.from_bytes(combined.to_bytes()) == combined
    assert VersionedKey.from_bytes(versioned.to_bytes()) == versioned

"""Quick tests say yes only where the codec does, and to all rows that Streams usually writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.diff.model import key_fields
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kind_inference import Kind
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import all_families, kind_names, store_kind
from kstate_cli.formats.values import (
    BufferValue,
    Header,
    HeadersSessionValue,
    HeadersValue,
    ListEntry,
    SubscriptionWrapper,
    TimestampedValue,
    encode_list,
)
from kstate_cli.formats.versioned import LatestValue, SegmentValue, Version
from kstate_cli.rows.checks import row_check_for
from kstate_cli.rows.records import layout_of, shape_of

RULES = {
    (kind, family, segmented): rule
    for kind in sorted(kind_names())
    for family in sorted(all_families() - {"offsets"})
    for segmented in (False, True)
    if (rule := row_check_for(Kind(kind, True, ""), family, segmented=segmented)) is not None
}
SINGLE = {"timestamped-key-value", "headers-key-value", "versioned", "list-value", "foreign-key-subscription"}
HEADERS = (Header("h1", b"v1"), Header("h2", None), Header("", b"x" * 100))
WINDOW = WindowKey(b"key", 1000, 1)
SESSION = SessionKey(b"key", 1000, 2000)
TIMESTAMPED = TimestampedValue(1000, b"v").to_bytes()
WRAPPED = SubscriptionWrapper(1, 2, bytes(16), b"pk", 0).to_bytes()
SEGMENT = SegmentValue(40, (Version(30, b"CC"), Version(20, None), Version(10, b""))).to_bytes()
GOOD: list[tuple[str, str, bytes, bytes]] = [
    ("timestamped-key-value", "keyValueWithTimestamp", b"", TIMESTAMPED),
    ("headers-key-value", "keyValueWithTimestampAndHeaders", b"k", HeadersValue((), 1, b"").to_bytes()),
    ("headers-key-value", "keyValueWithTimestampAndHeaders", b"k", HeadersValue(HEADERS, 1, b"v").to_bytes()),
    ("versioned", "default", VersionedKey(-1, b"k").to_bytes(), LatestValue(5, b"v").to_bytes()),
    ("versioned", "default", VersionedKey(3, b"k").to_bytes(), SEGMENT),
    ("list-value", "default", JoinSideKey(5, True, b"k").to_bytes(), encode_list((ListEntry(True, b"v"), None))),
    ("foreign-key-subscription", "default", CombinedKey(b"fk", b"pk").to_bytes(), WRAPPED),
    ("foreign-key-subscription", "keyValueWithTimestamp", CombinedKey(b"fk", b"pk").to_bytes(), bytes(8) + WRAPPED),
    (
        "foreign-key-subscription",
        "keyValueWithTimestampAndHeaders",
        CombinedKey(b"", b"pk").to_bytes(),
        HeadersValue((), 1, WRAPPED).to_bytes(),
    ),
    ("window", "default", WINDOW.to_bytes(), b""),
    ("timestamped-window", "keyValueWithTimestamp", WINDOW.to_bytes(), TIMESTAMPED),
    ("headers-window", "keyValueWithTimestampAndHeaders", WINDOW.to_bytes(), HeadersValue(HEADERS, 1, b"").to_bytes()),
    ("session", "default", SESSION.to_bytes(), b""),
    ("headers-session", "sessionKeyValueWithHeaders", SESSION.to_bytes(), HeadersSessionValue(HEADERS, b"").to_bytes()),
    ("time-ordered-window", "default", WINDOW.to_time_first(), TIMESTAMPED),
    ("time-ordered-window", "default", WINDOW.to_key_first(), b""),
    ("headers-time-ordered-window", "windowKeyValueWithHeaders", WINDOW.to_time_first(), b"\0" + TIMESTAMPED),
    ("headers-time-ordered-window", "windowKeyValueWithHeaders", WINDOW.to_key_first(), b"\0"),
    ("time-ordered-session", "default", SESSION.to_time_first(), b"v"),
    ("time-ordered-session", "default", SESSION.to_key_first(), b""),
    ("headers-time-ordered-session", "sessionKeyValueWithHeaders", SESSION.to_time_first(), b"text"),
    ("headers-time-ordered-session", "sessionKeyValueWithHeaders", SESSION.to_time_first(), b""),
    ("headers-time-ordered-session", "sessionKeyValueWithHeaders", SESSION.to_key_first(), b""),
    (
        "grace-buffer",
        "default",
        WINDOW.to_time_first(),
        BufferValue(1, 2, "t", 0, HEADERS, None, None, b"v").to_bytes(),
    ),
]


def _rule(kind: str, family: str) -> Any:
    return RULES[kind, family, kind not in SINGLE]


@pytest.mark.parametrize(("kind", "family", "key", "value"), GOOD)
def test_rows_of_kafka_streams_fit(kind: str, family: str, key: bytes, value: bytes) -> None:
    rule = _rule(kind, family)
    rule.decode(key, value)
    assert rule.fits([key], [value]) or kind == "grace-buffer"


@pytest.mark.parametrize(("kind", "family", "key", "value"), GOOD)
def test_of_a_row_cut_anywhere_the_quick_test_never_says_more_than_the_codec(
    kind: str, family: str, key: bytes, value: bytes
) -> None:
    rule = _rule(kind, family)
    cuts = [(key[:at], value) for at in range(len(key))] + [(key, value[:at]) for at in range(len(value))]
    cuts += [(key, value + b"x"), (b"\x02" + key, value), (key, b"\xff" + value)]
    for row in cuts:
        _agree(rule, *row)


_BYTES = st.one_of(st.binary(max_size=60), st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 127, 128, 255])).map(bytes))


@given(st.sampled_from(sorted(RULES)), _BYTES, _BYTES)
def test_any_bytes(name: tuple[str, str, bool], key: bytes, value: bytes) -> None:
    _agree(RULES[name], key, value)


@given(st.sampled_from(GOOD), st.integers(0, 200), st.integers(0, 255), st.booleans())
def test_a_changed_byte(row: tuple[str, str, bytes, bytes], at: int, byte: int, in_key: bool) -> None:
    kind, family, key, value = row
    changed = bytearray(key if in_key else value)
    if changed:
        changed[at % len(changed)] = byte
    _agree(_rule(kind, family), bytes(changed) if in_key else key, value if in_key else bytes(changed))


def _agree(rule: Any, key: bytes, value: bytes) -> None:
    if rule.fits([key], [value]):
        rule.decode(key, value)
        return
    try:
        rule.decode(key, value)
    except MalformedBytesError:
        pass


def test_kinds_that_are_not_certain_are_held_to_their_families_only() -> None:
    unsure = Kind("windowed", False, "")
    assert row_check_for(unsure, "default", segmented=True) is None
    assert row_check_for(unsure, "keyValueWithTimestamp", segmented=True) is not None
    assert row_check_for(Kind("versioned", False, ""), "default", segmented=False) is None


_KEYS = {
    "time-ordered-window": WINDOW.to_time_first(),
    "time-ordered-session": SESSION.to_time_first(),
    "window": WINDOW.to_bytes(),
    "session": SESSION.to_bytes(),
    "key-value": b"k",
}
_WITHIN_THE_VALUE = {"versioned", "list-value", "grace-buffer"}
"""Kinds with a format of their own in what the layout gives as the whole value."""


@pytest.mark.parametrize("kind", sorted(kind_names() - _WITHIN_THE_VALUE - {"foreign-key-subscription", "windowed"}))
@given(value=_BYTES)
def test_a_value_is_good_here_where_a_query_can_read_it(kind: str, value: bytes) -> None:
    """A row of an older family is checked as it lies, and read with the bytes before it that make it the newest."""
    key = next(key for name, key in _KEYS.items() if kind.endswith(name))
    layout = layout_of(kind, frozenset())
    assert layout is not None
    for family, prefix in layout.families:
        try:
            layout.read(prefix + value)
        except MalformedBytesError:
            readable = False
        else:
            readable = True
        rule = row_check_for(Kind(kind, True, ""), family, segmented="key-value" not in kind)
        try:
            if rule is not None:
                rule.decode(key, value)
        except MalformedBytesError:
            assert not readable, (family, value)
        else:
            assert readable, (family, value)


@pytest.mark.parametrize(("kind", "family", "key", "value"), GOOD)
def test_of_a_row_cut_anywhere_a_record_is_made_where_the_check_finds_it_good(
    kind: str, family: str, key: bytes, value: bytes
) -> None:
    """Verify, export and diff read a row alike; Streams' own value of a subscription is exported as it is."""
    if _index_row(kind, key):
        return
    schema = store_kind(kind).key
    layout = layout_of(kind, frozenset({family}))
    assert layout is not None
    lift = dict(layout.families)[family]
    for k, v in [
        (key, value),
        *((key[:at], value) for at in range(len(key))),
        *((key, value[:at]) for at in range(len(value))),
    ]:
        if _index_row(kind, k):
            continue
        good = _read(lambda k=k, v=v: _rule(kind, family).decode(k, v))
        records = _read(lambda k=k, v=v: list(shape_of(kind).records([(k, lift + v)], layout)))
        assert records if good else (not records or kind == "foreign-key-subscription"), (k, v)
        # A key without parts is any bytes.
        parts = key_fields(kind, k)
        assert (len(parts) > 1) == (schema is not KeySchema.KEY and _read(lambda k=k: schema.read(k))), (k, parts)


def _index_row(kind: str, key: bytes) -> bool:
    return store_kind(kind).key.time_ordered and key.startswith(b"\x01")


def _read(function: Any) -> bool:
    try:
        function()
    except MalformedBytesError:
        return False
    return True

"""Kinds of stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats import values
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kind_inference import Row, infer_kind
from kstate_cli.formats.store_kinds import kind_names, store_kinds
from kstate_cli.formats.versioned import LatestValue

START, STEP = 1704067200000, 600000
STARTS = [START, START + STEP, START + 2 * STEP]
DEFAULT, TIMESTAMPED, HEADERS = "default", "keyValueWithTimestamp", "keyValueWithTimestampAndHeaders"
SESSION, WINDOW = "sessionKeyValueWithHeaders", "windowKeyValueWithHeaders"
WRAPPER = values.SubscriptionWrapper(1, 2, bytes(16), b"pk", 0)
SUBSCRIPTION: Row = (CombinedKey(b"fk", b"pk").to_bytes(), bytes(8) + WRAPPER.to_bytes())
ROW: Row = (JoinSideKey(START, True, b"k").to_bytes(), values.encode_list([values.ListEntry(True, b"v")]))
LATEST: Row = (VersionedKey(-1, b"k").to_bytes(), LatestValue(START, b"v").to_bytes())
WINDOW_KEY, SESSION_KEY = WindowKey(b"key1", START + 1000), SessionKey(b"key1", START + 10, START + 2000)
STAMPED = bytes(8) + b"v"
BUFFERED = values.BufferValue(1000, 1, "in", 0, (), None, None, b"v").to_bytes()


@pytest.mark.parametrize(
    ("families", "family", "row", "name"),
    [
        ({DEFAULT}, DEFAULT, (b"k", b"v"), "key-value"),
        ({DEFAULT, "offsets"}, DEFAULT, LATEST, "versioned"),
        ({DEFAULT}, DEFAULT, ROW, "list-value"),
        ({DEFAULT, TIMESTAMPED}, TIMESTAMPED, (b"k", STAMPED), "timestamped-key-value"),
        ({DEFAULT, TIMESTAMPED}, DEFAULT, (b"k", b"v"), "timestamped-key-value"),
        ({DEFAULT, TIMESTAMPED}, TIMESTAMPED, SUBSCRIPTION, "foreign-key-subscription"),
        ({DEFAULT, HEADERS}, HEADERS, (b"k", b"\0" + STAMPED), "headers-key-value"),
        ({DEFAULT, HEADERS}, HEADERS, (SUBSCRIPTION[0], b"\0" + SUBSCRIPTION[1]), "foreign-key-subscription"),
    ],
)
def test_infers_the_kind_of_a_single_database(families: set[str], family: str, row: Row, name: str) -> None:
    kind = infer_kind(frozenset(families), None, {family: [row]}, "s")
    assert (kind.name, kind.certain) == (name, True)


@pytest.mark.parametrize(
    ("families", "family", "rows", "name"),
    [
        ({DEFAULT}, DEFAULT, [(WINDOW_KEY.to_bytes(), b"v")], "window"),
        ({DEFAULT, TIMESTAMPED}, TIMESTAMPED, [(WINDOW_KEY.to_bytes(), STAMPED)], "timestamped-window"),
        ({DEFAULT, HEADERS}, HEADERS, [(WINDOW_KEY.to_bytes(), b"\0" + STAMPED)], "headers-window"),
        ({DEFAULT}, DEFAULT, [(SESSION_KEY.to_bytes(), b"v")], "session"),
        ({DEFAULT, SESSION}, SESSION, [(SESSION_KEY.to_bytes(), b"\0v")], "headers-session"),
        ({DEFAULT}, DEFAULT, [(WINDOW_KEY.to_time_first(), STAMPED)], "time-ordered-window"),
        (
            {DEFAULT},
            DEFAULT,
            [(WINDOW_KEY.to_time_first(), STAMPED), (WINDOW_KEY.to_key_first(), b"")],
            "time-ordered-window",
        ),
        ({DEFAULT, WINDOW}, WINDOW, [(WINDOW_KEY.to_time_first(), b"\0" + STAMPED)], "headers-time-ordered-window"),
        (
            {DEFAULT},
            DEFAULT,
            [(SESSION_KEY.to_time_first(), b"v"), (SESSION_KEY.to_key_first(), b"")],
            "time-ordered-session",
        ),
        (
            {DEFAULT, SESSION},
            SESSION,
            # Bare aggregations: no bytes of theirs are headers, whatever they look like (a string, JSON, a double, nothing).
            [(SESSION_KEY.to_time_first(), b"text"), (SESSION_KEY.to_key_first(), b"")],
            "headers-time-ordered-session",
        ),
        (
            {DEFAULT, SESSION},
            SESSION,
            [(SESSION_KEY.to_time_first(), b""), (SESSION_KEY.to_key_first(), b"\0")],
            "headers-time-ordered-session",
        ),
    ],
)
def test_segments(families: set[str], family: str, rows: list[Row], name: str) -> None:
    for start in (START, None):
        kind = infer_kind(frozenset(families), STARTS, {family: rows}, "s", start)
        assert (kind.name, kind.certain) == (name, True)


@given(st.binary(max_size=40))
def test_a_bare_value_says_nothing_of_the_kind(value: bytes) -> None:
    """Where a kind has no bytes of its own before the value, the keys alone tell it: any serde may have written it."""
    for name, family, rows in (
        ("window", DEFAULT, [(WINDOW_KEY.to_bytes(), value)]),
        ("session", DEFAULT, [(SESSION_KEY.to_bytes(), value)]),
        ("time-ordered-session", DEFAULT, [(SESSION_KEY.to_time_first(), value), (SESSION_KEY.to_key_first(), b"")]),
        (
            "headers-time-ordered-session",
            SESSION,
            [(SESSION_KEY.to_time_first(), value), (SESSION_KEY.to_key_first(), b"")],
        ),
    ):
        kind = infer_kind(frozenset({DEFAULT, family}), STARTS, {family: rows}, "s", START)
        assert (kind.name, kind.certain) == (name, True), (name, value)


def test_rows_belong_to_the_sampled_segment() -> None:
    later = [(WindowKey(b"key1", STARTS[1] + 1).to_bytes(), b"v")]
    assert infer_kind(frozenset({DEFAULT}), STARTS, {DEFAULT: later}, "s", STARTS[1]).name == "window"
    kind = infer_kind(frozenset({DEFAULT}), STARTS, {DEFAULT: later}, "s", STARTS[0])
    assert (kind.name, kind.certain) == ("windowed", False)


def test_grace_buffer() -> None:
    families, rows = frozenset({DEFAULT}), {DEFAULT: [(WindowKey(b"k", 1000, 1).to_time_first(), BUFFERED)]}
    kind = infer_kind(families, [0], rows, "s", 0)
    assert (kind.name, kind.certain) == ("grace-buffer", True)
    for samples in ({}, {DEFAULT: [(b"k", b"v")]}):
        kind = infer_kind(families, [0], samples, "join-Buffer", 0)
        assert (kind.name, kind.certain) == ("grace-buffer", False)
    assert infer_kind(families, [0], {}, "s").name == "windowed"
    assert infer_kind(families, STARTS, {}, "join-Buffer").name == "windowed"


@pytest.mark.parametrize(
    ("families", "starts", "store", "name"),
    [
        ({DEFAULT}, None, "s", "key-value"),
        ({DEFAULT, TIMESTAMPED}, None, "s", "timestamped-key-value"),
        ({DEFAULT, TIMESTAMPED}, None, "x-subscription-store", "foreign-key-subscription"),
        ({DEFAULT, HEADERS}, None, "s", "headers-key-value"),
        ({DEFAULT}, None, "x-left-shared-join-store", "list-value"),
        (set(), [], "s", "windowed"),
        (set(), [], "x-this-join-store", "window"),
        ({DEFAULT, TIMESTAMPED}, STARTS, "s", "timestamped-window"),
        ({DEFAULT, HEADERS}, STARTS, "s", "headers-window"),
        ({DEFAULT, SESSION}, STARTS, "s", "headers-session"),
        ({DEFAULT, WINDOW}, STARTS, "s", "headers-time-ordered-window"),
        ({DEFAULT, "other"}, None, "s", "key-value"),
        ({DEFAULT, "other"}, STARTS, "s", "windowed"),
    ],
)
def test_without_rows(families: set[str], starts: list[int] | None, store: str, name: str) -> None:
    kind = infer_kind(frozenset(families), starts, {}, store)
    assert (kind.name, kind.certain) == (name, False)
    assert kind.inferred_from


@given(
    st.frozensets(st.sampled_from([DEFAULT, TIMESTAMPED, HEADERS, SESSION, WINDOW, "offsets", "other"])),
    st.none() | st.lists(st.sampled_from([0, *STARTS]), unique=True),
    st.lists(st.tuples(st.binary(max_size=30), st.binary(max_size=60)), max_size=3),
    st.sampled_from([None, 0, START]),
)
def test_always_answers(
    families: frozenset[str], starts: list[int] | None, rows: list[Row], sample_start: int | None
) -> None:
    kind = infer_kind(families, starts, dict.fromkeys(families, rows), "s", sample_start)
    assert kind.name in kind_names()


@pytest.mark.parametrize("starts", [None, STARTS], ids=["single", "segmented"])
@given(families=st.frozensets(st.sampled_from([DEFAULT, TIMESTAMPED, HEADERS, SESSION, WINDOW])))
def test_families_that_no_store_has_together_are_no_kind(starts: list[int] | None, families: frozenset[str]) -> None:
    """Nothing is certain of them, and the answer does not depend on the order in which they are met."""
    facts = [{family.name for family in kind.families} for kind in store_kinds() if kind.key.segmented is bool(starts)]
    together = any(families <= names for names in facts)
    kinds = {
        infer_kind(families, starts, {family: [(b"k" * 20, b"v")] for family in order}, "s")
        for order in (sorted(families), sorted(families, reverse=True))
    }
    assert len(kinds) == 1
    assert together or not kinds.pop().certain


def test_a_row_that_a_restarted_store_has_filed() -> None:
    """Versions at 10, 20 and 30, and one at 15 that real 3.9.2 and 4.3.1 added after a restart: still a versioned store."""
    row = bytes.fromhex(
        "000000000000001e000000000000000f000000000000001400000001000000000000000a00000001000000000000000f000000046c6174656162"
    )
    kind = infer_kind(frozenset({DEFAULT}), None, {DEFAULT: [(bytes(8) + b"k", row)]}, "s")
    assert (kind.name, kind.certain) == ("versioned", True)
    for other in (row[:-1], row + b"x", row.replace(b"\x0f", b"\x0e", 1)):
        assert infer_kind(frozenset({DEFAULT}), None, {DEFAULT: [(bytes(8) + b"k", other)]}, "s").name == "key-value"

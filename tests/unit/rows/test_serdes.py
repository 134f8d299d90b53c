"""Serdes by name: bytes as Kafka writes them, and back; text and JSON that say neither more nor less than the bytes."""

from __future__ import annotations

import json
import math
import re
import struct
import sys
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.errors import Interrupted
from kstate_cli.query import BYTES, Serde, Windowed, serde
from kstate_cli.rows.values import bytes_text, jsonable, milliseconds, parse_moment, parse_time, show_time, text_bytes

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(),
    "string": TEXT,
    "json": JSON,
    "long": LONG,
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "double": st.floats(),
    "float": st.floats(width=32),
    "boolean": st.booleans(),
    "uuid": st.uuids(),
    "hex": st.binary().map(bytes.hex),
    "base64": st.binary().map(lambda data: jsonable(data)["base64"]),
    "time-windowed:string": st.builds(Windowed, TEXT, LONG, st.none()),
    "time-windowed:long:500": st.builds(lambda k, t: Windowed(k, t, t + 500), LONG, st.integers(0, 1 << 60)),
    "session-windowed:bytes": st.builds(Windowed, st.binary(), LONG, LONG),
}


def _same(first: Any, other: Any) -> bool:
    both_nan = isinstance(first, float) and math.isnan(first) and isinstance(other, float) and math.isnan(other)
    return both_nan or first == other


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_round_trips(name: str, data: st.DataObject) -> None:
    """To bytes and back; to text and back; and to JSON, which has no NaN and no bytes."""
    value, codec = data.draw(VALUES[name]), serde(name)
    content = codec.serialize(value)
    assert _same(codec.deserialize(content), value)
    assert codec.name == name
    again = codec.parse(codec.text(value))
    assert _same(codec.deserialize(codec.serialize(again)), value)
    json.loads(json.dumps(codec.render(value), allow_nan=False))


@given(data=st.binary(max_size=40))
@pytest.mark.parametrize("name", VALUES)
def test_any_bytes_are_a_value_or_a_value_error(name: str, data: bytes) -> None:
    codec = serde(name)
    try:
        value = codec.deserialize(data)
    except ValueError:
        return
    codec.text(value)
    json.dumps(codec.render(value), allow_nan=False)


@given(data=st.binary())
def test_different_bytes_are_different_texts(data: bytes) -> None:
    assert text_bytes(bytes_text(data)) == data
    assert bytes_text(data).isascii() and bytes_text(data).isprintable()


@pytest.mark.parametrize(
    ("name", "text", "data"),
    [
        ("long", "42", "000000000000002a"),
        ("long", "-1", "ffffffffffffffff"),
        ("int", "+7", "00000007"),
        ("short", "-2", "fffe"),
        ("double", "0.5", "3fe0000000000000"),
        ("double", "-Infinity", "fff0000000000000"),
        ("float", "0.5", "3f000000"),
        ("boolean", "true", "01"),
        ("string", "Grüße\\x", "4772c3bcc39f655c78"),
        ("bytes", "Grüße\\x00\\\\", "4772c3bcc39f65005c"),
        ("hex", "00fF", "00ff"),
        ("base64", "AP8=", "00ff"),
        ("json", '{"b": 1, "a": "ü"}', '{"b":1,"a":"ü"}'.encode().hex()),
        ("uuid", "01234567-89AB-cdef-0123-456789abcdef", b"01234567-89ab-cdef-0123-456789abcdef".hex()),
        ("time-windowed:string", "a@b@1", "614062" + "0000000000000001"),
        ("time-windowed:string:10", "a@1/11", "61" + "0000000000000001"),
        ("session-windowed:string", "a@1/2", "61" + "0000000000000002" + "0000000000000001"),
        ("session-windowed:int", "5@1970-01-01T00:00:01Z/1970-01-01T00:00:02.5", "00000005" + "00000000000009c4" + "00000000000003e8"),
    ],
)  # fmt: skip
def test_text_of_a_command_line(name: str, text: str, data: str) -> None:
    codec = serde(name)
    assert codec.serialize(codec.parse(text)).hex() == data


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("long", "4_2"), ("long", "9223372036854775808"), ("long", "1.0"), ("long", ""), ("long", "٣"), ("int", "2147483648"),
        ("short", "40000"), ("double", "1_0"), ("double", "x"), ("float", "1e300"), ("boolean", "True"), ("uuid", "0123"),
        ("uuid", "{01234567-89ab-cdef-0123-456789abcdef}"), ("hex", "0"), ("hex", "0g"), ("hex", "00 ff"), ("base64", "AP8"),
        ("base64", "Ä"), ("json", "{"), ("bytes", "a\\n"), ("bytes", "\\x0"), ("time-windowed:string", "a"),
        ("time-windowed:string", "a@"), ("time-windowed:string:10", "a@1/12"), ("session-windowed:string", "a@1"),
    ],
)  # fmt: skip
def test_text_that_is_none(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        serde(name).parse(text)


@pytest.mark.parametrize(
    "name", ["nothing", "", "Long", "time-windowed:", "session-windowed:nothing", "time-windowed:long:0"]
)
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"serde|longer than 0"):
        serde(name)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("long", True), ("long", 1.5), ("double", "1"), ("string", b"a"), ("bytes", "a"), ("uuid", "a"), ("boolean", 1), ("long", 1 << 63),
     ("float", 1e300), ("json", b"a"), ("hex", b""), ("session-windowed:long", Windowed(1, 2, None)), ("time-windowed:long", 1),
     ("time-windowed:long", Windowed(1, 1 << 63, None))],
)  # fmt: skip
def test_values_of_another_type(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r".+"):
        serde(name).serialize(wrong)


def test_depth_is_no_crash() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        serde("json").deserialize(b"[" * 100_000 + b"]" * 100_000)


def test_numbers_keep_all_their_digits() -> None:
    for name, text in (("long", "-9223372036854775808"), ("json", "123456789012345678901234567890")):
        codec = serde(name)
        assert codec.text(codec.parse(text)) == json.dumps(codec.render(codec.parse(text))) == text
    codec = serde("double")
    (payload,) = struct.unpack(">d", bytes.fromhex("7ff8000000000001"))
    assert [codec.render(number) for number in (math.inf, -math.inf, payload)] == ["Infinity", "-Infinity", "NaN"]


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    raw: bytes


def test_values_of_other_types_in_json() -> None:
    at = datetime(2024, 5, 1, tzinfo=timezone.utc)
    value = {
        "a": [Point(1, b"\xff"), (Colour.RED,)],
        7: Decimal("1.50"),
        b"\0": at,
        "w": Windowed(b"k", 1, None),
        "n": math.nan,
    }
    assert jsonable(value) == {
        "a": [{"x": 1, "raw": {"base64": "/w=="}}, ["red"]],
        "7": "1.50",
        "\\x00": "2024-05-01T00:00:00+00:00",
        "w": {"key": {"base64": "aw=="}, "start": 1, "end": None},
        "n": "NaN",
    }
    assert jsonable(uuid.UUID(int=0)) == "00000000-0000-0000-0000-000000000000"
    with pytest.raises(ValueError, match="a object has no JSON representation"):
        jsonable([object()])


# --- a user's own -----------------------------------------------------------------------------------------------------

MINE = """
import json
from kstate_cli.errors import Interrupted
from kstate_cli.query import Serde

class Upper:
    def serialize(self, value): return value.upper().encode()
    def deserialize(self, data): return data.decode().lower()

class Talks(Upper):
    def parse(self, text): return json.loads(text)
    def render(self, value): return {"said": value}
    def text(self, value): return f"<{value}>"

upper = Upper()
def made(): return Talks()
full = Serde("theirs", lambda value: b"x", lambda data: 1 / 0)
def broken(): raise RuntimeError("no schema")
def wants(argument): return argument
not_bytes = Serde("theirs", lambda value: "x", lambda data: data)
number = 5
class Odd:
    def serialize(self, value): return b""
    def deserialize(self, data): raise SystemExit(0)
    def render(self, value): return object()
    def text(self, value): return 5
strange = Serde("theirs", lambda value: b"", lambda data: "", render=lambda value: {1: float("nan"), "set": {2}})
class Space: inner = upper
def signal(_=None): raise Interrupted(15)
signalled = Serde("theirs", signal, signal)
def made_when_signalled(): signal()
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_serdes_under_test.py").write_text(MINE)
    (tmp_path / "imports_what_is_not.py").write_text("import surely_not_there\n")
    (tmp_path / "is_no_python.py").write_text("def\n")
    (tmp_path / "imported_when_signalled.py").write_text(
        "from kstate_cli.errors import Interrupted\nraise Interrupted(15)\n"
    )
    (tmp_path / "exits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_serdes_under_test", raising=False)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", ["Upper", "upper", "made", "Space.inner"])
def test_own_code(name: str) -> None:
    codec = serde(f"my_serdes_under_test:{name}")
    assert codec.name == f"my_serdes_under_test:{name}"
    assert (codec.serialize("ab"), codec.deserialize(b"AB")) == (b"AB", "ab")
    if name == "made":
        assert (codec.parse('"x"'), codec.render("x"), codec.text("x")) == ("x", {"said": "x"}, "<x>")
    else:
        assert (codec.parse("x"), codec.render("x"), codec.text("x")) == ("x", "x", "x")
    assert serde(f"time-windowed:{codec.name}").serialize(Windowed("a", 1, None)) == b"A" + bytes(7) + b"\x01"
    assert serde(f"time-windowed:{codec.name}:5").deserialize(b"A" + bytes(8)) == Windowed("a", 0, 5)


@pytest.mark.usefixtures("mine")
def test_errors_of_own_code_are_value_errors() -> None:
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        serde("my_serdes_under_test:full").deserialize(b"")
    with pytest.raises(ValueError, match="AttributeError"):
        serde("my_serdes_under_test:upper").serialize(5)
    with pytest.raises(ValueError, match="'x' is not bytes"):
        serde("my_serdes_under_test:not_bytes").serialize("a")
    odd = serde("my_serdes_under_test:Odd")
    with pytest.raises(ValueError, match="SystemExit: 0"):  # or the command would end as if that had been all
        odd.deserialize(b"")
    with pytest.raises(ValueError, match="its text is a int"):
        odd.text("")
    with pytest.raises(ValueError, match="a object has no JSON representation"):
        odd.render("")


@pytest.mark.usefixtures("mine")
def test_custom_serde_renders_json() -> None:
    assert serde("my_serdes_under_test:strange").render("") == {"1": "NaN", "set": [2]}


@pytest.mark.usefixtures("mine")
def test_a_signal_is_no_error_of_own_code() -> None:
    with pytest.raises(Interrupted):
        serde("my_serdes_under_test:signalled").deserialize(b"")
    for name in ("my_serdes_under_test:made_when_signalled", "imported_when_signalled:x"):
        with pytest.raises(Interrupted):
            serde(name)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_there_at_all:x", "no such module exists"),
        ("not_there_at_all.sub:x", "no such module exists"),
        ("imports_what_is_not:x", "Python cannot import imports_what_is_not: No module named 'surely_not_there'"),
        ("is_no_python:x", "Python cannot import is_no_python: SyntaxError"),
        ("exits:x", "Python cannot import exits: SystemExit: 3"),
        ("my_serdes_under_test:nothing", "my_serdes_under_test has no nothing"),
        ("my_serdes_under_test:", "has no"),
        ("my_serdes_under_test:broken", "RuntimeError: no schema"),
        ("my_serdes_under_test:wants", "TypeError"),
        ("my_serdes_under_test:number", "is a int, not a serde"),
        ("time-windowed:my_serdes_under_test:number:5", "is a int, not a serde"),
        (":x", "Python cannot import"),
    ],
)
def test_own_code_that_is_none(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        serde(name)


def test_bytes_are_the_very_serde_that_the_library_takes_as_it_is() -> None:
    assert serde("bytes") is BYTES
    assert Serde("mine", lambda value: b"", lambda data: None).text(None) == "null"


# --- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1700000000000", 1700000000000),
        ("-1", -1),
        ("20240501ms", 20240501),
        ("20241301", 20241301),  # no month 13: nothing else it could be
        ("-20240501", -20240501),
        ("2024-05-01", 1714521600000),
        ("2024-05-01T12:00:00Z", 1714564800000),
        ("2024-05-01T12:00", 1714564800000),
        ("2024-05-01 14:00:00+02:00", 1714564800000),
        ("2024-05-01T12:00:00.5Z", 1714564800500),
        ("2024-05-01T12:00:00.123999z", 1714564800123),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_times(text: str, time: int) -> None:
    assert parse_time(text) == time


@pytest.mark.parametrize(
    "text", ["", "yesterday", "12:00", "2024-13-01", "9223372036854775808", "1e3", "2024-05-01T12:00:00ZZ"]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("20240501", "2024-05-01"),
        ("202405011230", "2024-05-01T12:30:00Z"),
        ("20240501123001", "2024-05-01T12:30:01Z"),
        ("1714521600", "2024-05-01T00:00:00Z in seconds"),
    ],
)
def test_digits_that_may_be_another_time_are_refused(text: str, meaning: str) -> None:
    """Never another time than was meant in silence; what is said can be pasted."""
    with pytest.raises(ValueError, match=f"may also be {re.escape(meaning)}. Write that time or {text}ms"):
        parse_time(text)
    assert parse_time(f"{text}ms") == int(text)
    assert parse_time(meaning.partition(" ")[0]) > int(text) or len(text) == 14


@given(time=LONG | st.integers(-(10**13), 10**14) | st.integers(20_000_101, 20_991_231))
def test_shown_times_are_read_again(time: int) -> None:
    assert parse_time(show_time(time)) == time
    assert parse_time(milliseconds(time)) == time


def test_shown_time() -> None:
    assert show_time(1714564800005) == "2024-05-01T12:00:00.005Z"
    assert show_time(-1) == "1969-12-31T23:59:59.999Z"
    assert show_time(253402300799999) == "9999-12-31T23:59:59.999Z"
    assert show_time(253402300800000) == "253402300800000"


NOW = parse_time("2026-11-26T20:15:30.250Z")


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("now", "2026-11-26T20:15:30.250Z", None),
        ("-1d", "2026-11-25T20:15:30.250Z", None),
        ("-30m", "2026-11-26T19:45:30.250Z", None),
        ("-2w", "2026-11-12T20:15:30.250Z", None),
        ("12:00", "2026-11-26T12:00:00.000Z", None),
        ("23:59:59", "2026-11-26T23:59:59.000Z", None),
        ("today", "2026-11-26T00:00:00.000Z", "2026-11-26T23:59:59.999Z"),
        ("Yesterday", "2026-11-25T00:00:00.000Z", "2026-11-25T23:59:59.999Z"),
        ("2024-05-01T12:00:00Z", "2024-05-01T12:00:00.000Z", None),
        ("1714521600000", "2024-05-01T00:00:00.000Z", None),
    ],
)
def test_moments_that_count_from_now(text: str, start: str, end: str | None) -> None:
    assert show_time(parse_moment(text, NOW, is_end=False)) == start
    assert show_time(parse_moment(text, NOW, is_end=True)) == (end or start)


@pytest.mark.parametrize("text", ["-1", "-1y", "1d", "tomorrow", "25:00", "12:60", "12", "", "yesterday 12:00"])
def test_moments_that_mean_nothing(text: str) -> None:
    """But a number, which is milliseconds: -1 is one before 1970."""
    if text in ("-1", "12"):
        assert parse_moment(text, NOW, is_end=False) == int(text)
        return
    with pytest.raises(ValueError):
        parse_moment(text, NOW, is_end=False)

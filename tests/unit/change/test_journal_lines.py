"""Lines of a journal: what is written is read back, and no other byte is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.change.journal import JournalError, decode_line, encode_line

AT = "2024-05-01T12:00:00.000+00:00"
SCALAR = st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.text(max_size=8)
JSON = SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(st.text(max_size=5), SCALAR, max_size=3)
ROWS = st.fixed_dictionaries({"event": st.sampled_from(["staged", "note"]), "at": st.just(AT), "more": JSON})


@given(ROWS, st.integers(0, 10**6))
def test_there_and_back(row: dict[str, Any], number: int) -> None:
    line = encode_line(row, number)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    decoded_line = decode_line(line[:-1], number)
    assert {name: decoded_line[name] for name in row} == row


@given(ROWS, st.data())
def test_no_byte_can_be_another(row: dict[str, Any], data: st.DataObject) -> None:
    line = encode_line(row, 3)[:-1]
    place = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != line[place]))
    with pytest.raises(JournalError):
        decode_line(line[:place] + bytes([other]) + line[place + 1 :], 3)
    with pytest.raises(JournalError):
        decode_line(line[:place], 3)


def test_a_line_that_was_moved_is_noticed() -> None:
    line = encode_line({"event": "note", "at": AT}, 3)[:-1]
    with pytest.raises(JournalError, match="has the number 3, but is line 4 of the journal"):
        decode_line(line, 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"event": "created", "at": AT, "command": "wipe", "app": "/a"}, "created has token"),
        ({"event": "switching", "at": AT, "kept": 1, "made": "x"}, "switching has kept"),
        ({"event": "note", "at": "2024-05-01T12:00:00"}, "no valid time"),
        ({"event": "note", "at": None}, "no valid time"),
        ({"event": 7, "at": AT}, "contains no event"),
    ],
)
def test_nothing_is_written_that_would_not_be_read(row: dict[str, Any], message: str) -> None:
    with pytest.raises(JournalError, match=message):
        encode_line(row, 0)


@pytest.mark.parametrize("line", [b"", b"[]", b"{", b"null", b'{"schema_version": true}', b'{"schema_version": 0}'])
def test_refuses_malformed_lines(line: bytes) -> None:
    with pytest.raises(JournalError):
        decode_line(line, 0)


def test_newer_schema_is_no_damage() -> None:
    with pytest.raises(JournalError, match="a newer version of kstate wrote the line"):
        decode_line(b'{"schema_version": 3, "event": "note", "at": "%s"}' % AT.encode(), 0)


def test_version_1_is_still_read() -> None:
    line = b'{"event": "note", "at": "%s"}' % AT.encode()
    assert decode_line(line, 0)["event"] == "note"
    with pytest.raises(JournalError):
        decode_line(line[:-1] + b', "n": 0}', 0)

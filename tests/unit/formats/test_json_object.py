"""Members of JSON that others wrote: what is mistyped, out of range or missing is refused by its name, everywhere."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.broker.facts import read_facts
from kstate_cli.dump_reader.manifest import parse
from kstate_cli.errors import CommandEnd
from kstate_cli.formats.binary import MAX_I64, JsonObject, MalformedBytesError
from kstate_cli.offsets.ages import ages_path, read_ages

WRONG: tuple[Any, ...] = (
    True,
    1.5,
    1 << 70,
    -(1 << 70),
    [],
    {},
    [7],
    {"x": 7},
    7,
    "\udcff".encode(errors="replace").decode(),
)


@dataclass(frozen=True)
class Document:
    """A valid document, and what reads it."""

    content: dict[str, Any]
    read: Callable[[bytes, Path], object]


def _read_facts(data: bytes, folder: Path) -> object:
    (folder / "facts.json").write_bytes(data)
    return read_facts(folder / "facts.json")


def _read_ages(data: bytes, folder: Path) -> object:
    app = folder / "state" / "app"
    path = ages_path(app)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return read_ages(app)


_LOG = {"start": 3, "end": 9, "id": "AAAAAAAAAAAAAAAAAAAAAQ", "committed": 7, "policy": "compact", "leader_epoch": 2}
_ROW = {"topic": "t", "partition": 0, "log_start": 0, "log_end": 9, "first": 1, "last": 8, "rows": 5, "start": 0}
_READING = {"started_ms": 5, "ended_ms": 9, "cleanup_policy": "compact", "leader_epoch": 2, "retention_ms": 8}
_CLOCK = {"boot": "b", "boot_ms": 1, "time_ms": 2, "wall_ms": 3, "max_error_ms": 4, "scale": "utc"}
_AGE = {
    "run": "0001-restore", "as_of_ms": 5, "identity": "i", "offsets": [["t", 0, 9]], "clock": _CLOCK,
    "logs": [["t", 0, {"topic_id": "x", "leader_epoch": 1, "last": 8, "digest": "d", "delete_retention_ms": 6}]],
}  # fmt: skip
DOCUMENTS = {
    "facts": Document({"t": {"0": _LOG}}, _read_facts),
    "manifest": Document(
        {"format": 1, "isolation": "read_committed", "partitions": [{**_ROW, "reading": _READING}]},
        lambda data, _: parse(data),
    ),
    "ages": Document({"schema_version": 1, "stores": {"0_0/s": [_AGE]}}, _read_ages),
}


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every member, at any depth."""
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for name, value in entries:
        yield (*path, name)
        yield from places(value, (*path, name))


CASES = [(name, path) for name, document in DOCUMENTS.items() for path in places(document.content)]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_are_valid(name: str, tmp_path: Path) -> None:
    assert DOCUMENTS[name].read(json.dumps(DOCUMENTS[name].content).encode(), tmp_path)


@pytest.mark.parametrize(
    ("name", "path"), CASES, ids=lambda value: value if isinstance(value, str) else ".".join(map(str, value))
)
def test_a_member_of_another_type_is_refused(name: str, path: tuple[Any, ...], tmp_path: Path) -> None:
    """By a kstate error with the name of the member, never by a traceback; a value of the same type may be valid."""
    for wrong in WRONG:
        content = copy.deepcopy(DOCUMENTS[name].content)
        inner: Any = content
        for step in path[:-1]:
            inner = inner[step]
        if name == "manifest" and path == ("partitions",) and wrong == {}:
            continue  # by topic and partition: the other shape that is read
        if type(wrong) is type(inner[path[-1]]) and not (isinstance(wrong, int) and abs(wrong) > MAX_I64):
            continue
        inner[path[-1]] = wrong
        with pytest.raises(CommandEnd) as refusal:
            DOCUMENTS[name].read(json.dumps(content).encode(), tmp_path)
        (*_, member) = (part for part in path if isinstance(part, str))
        assert member in str(refusal.value), (wrong, refusal.value)


@pytest.mark.parametrize("method", ["number", "text", "items", "object"])
@pytest.mark.parametrize("value", [None, True, 1.5, 1 << 64, -1])
def test_the_error_names_object_and_member(method: str, value: object) -> None:
    with pytest.raises(MalformedBytesError, match=r"^the file: size is "):
        getattr(JsonObject({"size": value} if value is not None else {}, "the file"), method)("size")


def test_a_missing_member_may_be_allowed() -> None:
    members = JsonObject({"a": None, "n": 5, "t": "x"}, "the file")
    assert (members.number_or_none("a"), members.text_or_none("b")) == (None, None)
    assert (members.number_or_none("n"), members.text_or_none("t"), members.number("n", most=5, least=5)) == (5, "x", 5)
    with pytest.raises(MalformedBytesError, match="n is 5, not a number from 0 to 4"):
        members.number("n", most=4)

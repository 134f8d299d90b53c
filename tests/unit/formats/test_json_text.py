"""JSON that others wrote: files of options and manifests, however wrong, end in one clear error."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kstate_cli
from kstate_cli.broker.facts import read_facts
from kstate_cli.cli.options.restore import committed_of
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.manifest import parse
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MalformedBytesError, parse_json

NOT_JSON = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "lists as deep as Python reads": b"[" * 900 + b"]" * 900,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "a name twice": b'{"t": {"0": 1, "0": 2}}',
    "no number": b'{"t": {"0": NaN}}',
    "infinite": b'{"t": {"0": -Infinity}}',
    "more digits than Python takes": b'{"t": {"0": ' + b"9" * 5000 + b"}}",
    "Latin-1": '{"größe": {}}'.encode("latin-1"),
    "UTF-16": '{"t": {}}'.encode("utf-16"),
    "cut off": b'{"t": {"0": 1',
    "two": b"{} {}",
    "nothing": b"",
}
NOT_OFFSETS: dict[str, Any] = {
    "a list": [],
    "a list of partitions": {"t": []},
    "null": {"t": None},
    "no topic": {"a/b": {"0": 1}},
    "a partition with an underscore": {"t": {"1_0": 1}},
    "a partition in other digits": {"t": {"١": 1}},
    "a partition with a sign": {"t": {"-1": 1}},
    "a partition spelled twice": {"t": {"00": 1}},
    "a partition beyond 32 bits": {"t": {"2147483648": 1}},
    "a fraction": {"t": {"0": 1.5}},
    "true": {"t": {"0": True}},
    "negative": {"t": {"0": -1}},
    "beyond 64 bits": {"t": {"0": 1 << 63}},
    "text": {"t": {"0": "1"}},
    "nested deep in it": {"t": {"0": json.loads("[" * 30 + "]" * 30)}},
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_refuses_text_that_is_no_json(name: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedBytesError):
        parse_json(NOT_JSON[name])
    with pytest.raises(DumpError, match="kstate cannot read the manifest"):
        parse(NOT_JSON[name])
    _assert_refused(NOT_JSON[name], tmp_path)


@pytest.mark.parametrize("name", NOT_OFFSETS)
def test_refuses_malformed_offsets(name: str, tmp_path: Path) -> None:
    content = NOT_OFFSETS[name]
    _assert_refused(json.dumps(content).encode(), tmp_path)
    with pytest.raises(DumpError):
        parse(json.dumps({"format": 1, "isolation": "read_committed", "partitions": [], "committed": content}).encode())


def _assert_refused(data: bytes, folder: Path) -> None:
    file = folder / "offsets.json"
    file.write_bytes(data)
    for read in (committed_of, read_facts):
        with pytest.raises(UsageError) as raised:
            read(file)
        assert str(file) in raised.value.message and raised.value.hint
        assert len(raised.value.message) < 400


def test_good_ones(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(b'\xef\xbb\xbf{"t": {"0": 0, "10": 9223372036854775807}}')
    assert {str(key): offset for key, offset in committed_of(file).items()} == {"t:0": 0, "t:10": (1 << 63) - 1}
    file.write_text('{"t": {"3": {"start": 0, "end": 42, "id": "x", "committed": 7, "policy": "compact"}}}')
    ((key, facts),) = read_facts(file).items()
    assert (str(key), facts.start, facts.end, facts.committed, facts.compacted) == ("t:3", 0, 42, 7, True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


def test_nobody_else_reads_json() -> None:
    """A new reader of files takes this one, with all that is known about JSON."""
    readers = {
        path.relative_to(Path(kstate_cli.__file__).parent).as_posix()
        for path in Path(kstate_cli.__file__).parent.rglob("*.py")
        if re.search(r"\bjson\.loads?\(", path.read_text(encoding="utf-8"))
    }
    assert readers <= {
        "formats/binary.py",
        "rows/serdes.py",  # values of the application: what is twice in them is the application's
    }

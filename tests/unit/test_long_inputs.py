"""Long inputs: no parser takes the square of a length, and no few bytes become many."""

from __future__ import annotations

import io
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.broker.settings import client_settings
from kstate_cli.errors import UsageError
from kstate_cli.formats import checkpoint, metadata_files, sst
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.rows.serdes import serde
from kstate_cli.specification.topology import parse_topology

MIB = 1 << 20
SECONDS = 20
"""Of the processor. Each input takes less than a second; one that takes the square of its length takes hours."""


def _assert_refused(parse: Callable[[], object]) -> None:
    with pytest.raises((MalformedBytesError, UsageError)):
        parse()


def _ends(parse: Callable[[], object]) -> bool:
    """Call a parser in a process with a limit: a regular expression cannot be interrupted."""
    child = os.fork()
    if not child:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            _assert_refused(parse)
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "line",
    [
        "t 0 " + "0" * MIB + "x",
        "t 0 " + "1" * MIB,
        "t" + " " * MIB + "x",
        "t" * MIB,
        " " * MIB,
    ],
    ids=["zeros", "digits", "blanks", "letters", "only blanks"],
)
def test_lines_of_a_checkpoint(line: str) -> None:
    assert _ends(lambda: checkpoint.parse(f"0\n1\n{line}\n".encode()))


def test_zeros_before_a_number() -> None:
    # Java accepts any number of them.
    [offset] = checkpoint.parse(b"0\n1\nt 0 -" + b"0" * MIB + b"4\n").entries.values()
    assert offset == -4


@pytest.mark.parametrize(
    "line",
    [
        " " * MIB + "x",
        "a " * (MIB // 2),
        "Source: " + " (topics: )" * (MIB // 11) + "x",
        "Source: " + " (topics: " * (MIB // 20) + ")" * (MIB // 2) + "x",
        "Processor: " + " (stores: [" * (MIB // 11) + "x",
        "Processor: a (stores: [" + " " * MIB,
        "Sink: " + " (topic: x)" * (MIB // 11) + ") x",
        "<-- " + " " * MIB + "x" + " " * MIB + "y",
        "Topology: " * (MIB // 10) + ":" * MIB,
    ],
)
@pytest.mark.parametrize("started", [False, True])
def test_lines_of_a_topology(line: str, started: bool) -> None:
    head = "Topologies:\n" if started else ""
    assert _ends(lambda: parse_topology(f"{head}{line}\n?\nTopologies:\n?\n"))


def test_lines_of_options() -> None:
    for line in ("[CFOptions " + '"' * MIB, "#" * MIB + "\\#" * MIB, "a" * MIB, "\\" * MIB):
        text = f"[Version]\n{line}\n".encode()
        assert _ends(lambda text=text: metadata_files.parse(text))  # type: ignore[misc]


@pytest.mark.parametrize(
    "value", ["a required" + " b=c" * (MIB // 8) + "!", "a required" + " " * MIB, 'a required b="' + '\\"' * (MIB // 4)]
)
def test_logins(tmp_path: Path, value: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.jaas.config={value}\n", encoding="utf-8")
    assert _ends(lambda: client_settings(path))


def test_keys_of_a_block_that_repeat_a_long_key_are_refused() -> None:
    # shared, unshared and length of the value, then the bytes: the first key has 500,000 bytes, and each of 100,000 others
    # takes all of them from it.
    long = 500_000
    head = b"\0" + bytes((0x80 | long & 0x7F, 0x80 | long >> 7 & 0x7F, long >> 14)) + b"\0" + bytes(long)
    other = bytes((0x80 | long & 0x7F, 0x80 | long >> 7 & 0x7F, long >> 14)) + b"\0\0"
    block = head + other * 100_000 + b"\1\0\0\0"
    footer = bytearray(sst.FOOTER_LENGTH)
    footer[13:17] = len(block).to_bytes(4, "little")
    footer[-12:-8] = (6).to_bytes(4, "little")
    footer[-8:] = bytes.fromhex("f7cff485b741e288")
    with pytest.raises(MalformedBytesError, match="longer than any block"):
        sst.read_properties(io.BytesIO(block + bytes(5) + bytes(footer)))


def _manifest(edit: bytes) -> bytes:
    """Return a MANIFEST of one edit, in records of at most a block."""
    out = bytearray()
    pieces = [edit[at : at + 32_761] for at in range(0, len(edit), 32_761)]
    for number, piece in enumerate(pieces):
        kind = 1 if len(pieces) == 1 else 2 if number == 0 else 4 if number == len(pieces) - 1 else 3
        out += bytes(4) + len(piece).to_bytes(2, "little") + bytes((kind,)) + piece
    return bytes(out)


def test_a_number_of_a_manifest_has_64_bits() -> None:
    assert metadata_files.live_tables(_manifest(b"\x02" + b"\xff" * 9 + b"\x01")) == {0: {}}
    data = _manifest(b"\x02" + b"\x80" * (4 * MIB))
    assert _ends(lambda: metadata_files.live_tables(data))


def test_a_name_of_a_family_that_is_cut_off_is_refused() -> None:
    edit = b"\xc8\x01\x01\xc9\x01\x04name"  # column family 1, added: its name
    assert metadata_files.families_with_tables(_manifest(edit)) == {}
    with pytest.raises(MalformedBytesError, match="extends beyond the end"):
        metadata_files.families_with_tables(_manifest(edit[:-1]))


def test_a_reason_is_short() -> None:
    assert len(str(MalformedBytesError("x" * MIB))) < 1_000


def test_serdes_in_serdes() -> None:
    for kind in ("time-windowed:", "session-windowed:"):
        with pytest.raises(ValueError, match="is not a serde"):
            serde(kind * 5_000 + "x")

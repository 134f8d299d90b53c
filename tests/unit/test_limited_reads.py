"""Files are read up to a limit, and need memory for their own size only."""

from __future__ import annotations

import ast
import io
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from kstate_cli import limits
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.sources import content_of
from kstate_cli.fleet.listing import _stream
from kstate_cli.regular_files import read_at_most, read_given, read_small
from tests import syntax

PACKAGE = Path(__file__).resolve().parents[2] / "kstate_cli"
SIZES = st.sampled_from([0, 1, 65_535, 65_536, 65_537, 65_538, 131_073, 200_000])


@given(SIZES, SIZES, SIZES)
def test_reads_end_a_byte_after_the_limit(size: int, most: int, expected: int) -> None:
    content = bytes(number % 251 for number in range(size))
    assert read_at_most(io.BytesIO(content), most, expected) == content[: most + 1]


def manifest(path: Path) -> bytes:
    return content_of(fs.LocalFileSystem(), ListedFile(str(path), path.name, path.stat().st_size))


@pytest.mark.parametrize(
    "read",
    [
        manifest,
        lambda path: read_small(path, limits.MOST_MANIFEST_BYTES),
        lambda path: read_given(path, limits.MOST_GIVEN_BYTES),
        lambda _: _stream(),
    ],
    ids=["manifest", "read_small", "read_given", "standard input"],
)
def test_small_files_need_little_memory(
    read: Callable[[Path], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with path.open() as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        tracemalloc.start()
        try:
            assert read(path) == b"content"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < limits.MIB


def test_no_read_requests_a_limit() -> None:
    """``read(most + 1)`` allocates this size first. Up to a megabyte, that is harmless."""
    harmless = {"_MOST_BYTES", "MOST_INLINE_BYTES"}
    reads = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(syntax.tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "read"
        for size in node.args
        if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Add) and ast.unparse(size.left) not in harmless
    ]
    # A response of HTTP allocates no more than its own length.
    assert [read for read in reads if not read.startswith("s3_objects.py")] == []

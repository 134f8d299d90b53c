"""Sizes are told in one system of units, by one function; numbers of bytes stay where the very number is the point."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstate_cli
from kstate_cli.texts import size_text
from tests import syntax

ROOT = Path(kstate_cli.__file__).parent
OWNER = "texts.py"
TO_THE_BYTE = {
    "regular_files.py": "a file that is a byte too large",
    "change/journal.py": "a file that is a byte too large",
    "dump_reader/footers.py": "a file that has not the size that the manifest says",
    "dump_reader/growing_source.py": "a file that has not the size that the manifest says",
    "dump_reader/sources.py": "a manifest that is too large",
    "statedir/database.py": "a file that has not the size that the MANIFEST says",
    "verify/files.py": "a file that has not the size that the MANIFEST says",
    "verify/database.py": "the length of a key",
    **dict.fromkeys(
        ("snapshot/bucket.py", "snapshot/folder.py", "snapshot/health.py", "snapshot/restoring.py"),
        "a file that has not the size that a snapshot says",
    ),
    "rows/serdes.py": "the length of a key or value",
    "restore/planning/obstacles.py": "the length of a name",
    "restore/sorting/convert.py": "the length of a key",
}
"""Modules whose messages have numbers of bytes, and what of; those of ``formats`` are about the layout of bytes."""
_NUMBER_OF_BYTES = re.compile(r"(^|[^%])\0 (?:more )?bytes\b")
_OTHER_UNITS = re.compile(r"[\d\0]\s?(?:[KMGT]B|kB|Bytes)\b")


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String literals as they are shown, with a NUL for each value; no docstrings."""
    no_values = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(entry.value)
        for node in syntax.nodes(tree)
        if hasattr(node, "body") and isinstance(node, no_values)
        for entry in node.body
        if isinstance(entry, ast.Expr)
    }
    unseen = docs | {id(part) for node in syntax.nodes(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in syntax.nodes(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(value.value) if isinstance(value, ast.Constant) else "\0" for value in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unseen:
            yield node.lineno, node.value


def _wrong(path: Path) -> Iterator[str]:
    where = str(path.relative_to(ROOT))
    tree = syntax.tree(path)
    for line, text in _texts(tree):
        if where != OWNER and _OTHER_UNITS.search(text):
            yield f"{where}:{line}: {text!r}: not size_text"
        if where not in TO_THE_BYTE and not where.startswith("formats/") and _NUMBER_OF_BYTES.search(text):
            yield f"{where}:{line}: {text!r}: not size_text"
    for node in syntax.nodes(tree):
        bar = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DownloadColumn"
        if bar and "binary_units" not in {keyword.arg for keyword in node.keywords}:  # type: ignore[attr-defined]
            yield f"{where}:{node.lineno}: a bar in other units"  # type: ignore[attr-defined]


def test_sizes_use_a_single_system_of_units() -> None:
    modules = sorted(ROOT.rglob("*.py"))
    assert len(modules) > 200
    assert not [wrong for path in modules for wrong in _wrong(path)]


@pytest.mark.parametrize(
    "line",
    [
        'say(f"{size:,} bytes freed")',
        'say(f"{size / 1e6} MB")',
        "DownloadColumn()",
    ],
)
def test_the_sweep_sees(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "made.py").write_text(line, encoding="utf-8")
    assert len(list(_wrong(tmp_path / "made.py"))) == 1


def test_text_of_sizes() -> None:
    sizes = {0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1024**2 - 1: "1.0 MiB", 371_100_000: "353.9 MiB"}
    assert {size: size_text(size) for size in sizes} == sizes
    assert size_text(3 * 1024**3) == "3.0 GiB" and size_text(5000 * 1024**5) == "5,000.0 PiB"

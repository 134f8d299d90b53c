"""No hint asks the user to take files out of a dump: without them the rest still looks whole."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from kstate_cli.dump_reader.errors import DumpError
from tests import syntax

_REMOVAL = re.compile(
    r"\b(remov\w*|delet\w*|unlink\w*|separat\w*|renam\w*|apart|mov(e|ing) (it|them|that|the|what)|take (it|them|that) out)\b"
)
_ABOUT_ROWS = re.compile(
    r"deleted and recreated|what deletes its records|deletes keys|deleted keys|left over from another application, delete them"
)
"""Topics and keys are deleted by the application, and not files of a dump."""
_ABOUT_DUMPS = re.compile(r"\b(dump|parquet|manifest)", re.IGNORECASE)


def constants() -> dict[str, str]:
    """Return the strings that modules give a name, by that name."""
    return {
        target.id: _text(node.value, {})
        for _, tree in syntax.modules()
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and not isinstance(node.value, ast.Dict)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def hints() -> Iterator[tuple[str, str]]:
    """Yield each hint of the code, with the module and line."""
    names = constants()
    for where, tree in syntax.modules():
        for node in syntax.nodes(tree):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "hint_details"):
                yield f"{where}:{node.value.lineno}", _text(node.value, names)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(target, ast.Name) and "hint" in target.id.lower() for target in targets):
                    for value in _entries(node.value):
                        yield f"{where}:{value.lineno}", _text(value, names)


def _entries(value: ast.expr) -> list[ast.expr]:
    """Return the entries of a table of hints, which are independent; the value itself for a single hint."""
    return [*value.values] if isinstance(value, ast.Dict) else [value]


def _text(value: ast.expr, names: dict[str, str]) -> str:
    parts = []
    for node in ast.walk(value):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts.append(node.value)
        elif isinstance(node, ast.Name) and node.id.strip("_").isupper():
            parts.append(names.get(node.id, ""))
    return " ".join(parts)


def test_no_hint_takes_files_out_of_a_dump() -> None:
    swept = [
        (where, text)
        for where, text in hints()
        if where.startswith(("dump_reader/", "dump_writer/")) or _ABOUT_DUMPS.search(text)
    ]
    # Task directories are moved between hosts there, not files of the dump that completes them.
    swept = [(where, text) for where, text in swept if not where.startswith("rehome/mapping.py")]
    assert len(swept) > 40, "nothing was swept"
    wrong = {where: text for where, text in swept if _REMOVAL.search(_ABOUT_ROWS.sub("", text))}
    assert not wrong


@pytest.mark.parametrize(
    "text",
    [
        "take the two apart", "remove it, or take the dump again", "move it out of the dump",
        "a dump is written by one job: separate them", "delete the other file",
    ],
)  # fmt: skip
def test_the_sweep_knows_such_advice(text: str) -> None:
    assert _REMOVAL.search(text) and not _REMOVAL.search(str(DumpError.usual_hint))

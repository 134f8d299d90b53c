"""The texts in the source that a user can read: string literals that are sentences, with what a value stands for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import syntax

VALUE = "VALUE"
"""Stands for what an f-string puts in."""
_CODE = re.compile(r"\bSELECT\b|^import |^from \S+ import |^<|</|^\S+\.py::|^%\(")


def _docstrings(tree: ast.AST) -> set[int]:
    return {id(node.value) for node in syntax.nodes(tree) if isinstance(node, ast.Expr)}


def _text(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
    return None


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every literal of at least two words that is no docstring and no code."""
    tree = syntax.tree(path)
    skipped = _docstrings(tree)
    for node in syntax.nodes(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    for node in syntax.nodes(tree):
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in skipped:
            continue
        text = _text(node)
        if text is None or _CODE.search(text):
            continue
        if len(re.findall(r"[A-Za-z]{2,}", text)) > 1 and " " in text.strip():
            yield node.lineno, text

"""The source of kstate, for the tests that sweep it: a process parses and walks each module once."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import kstate_cli
from kstate_cli import option

ROOT = Path(kstate_cli.__file__).parent


@functools.cache
def paths() -> tuple[Path, ...]:
    """Return every module of the package."""
    return tuple(sorted(ROOT.rglob("*.py")))


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield every module by its path below the package, such as ``cli/app.py``."""
    for path in paths():
        yield path.relative_to(ROOT).as_posix(), tree(path)


@functools.cache
def tree(path: Path) -> ast.Module:
    """Parse a module, with the spelling of each option in its texts; sweeps never change the tree."""
    module = raw_tree(path)
    if any(isinstance(node, ast.Attribute) and spelling(node) is not None for node in ast.walk(module)):
        module = _Spelled().visit(module)
    return module


def raw_tree(path: Path) -> ast.Module:
    """Parse a module again, without changes."""
    # A tree has no garbage, but each of its nodes counts: the collector would take two thirds of the time of parsing.
    gc.disable()
    try:
        return ast.parse(path.read_bytes())
    finally:
        gc.enable()


def spelling(node: ast.AST) -> str | None:
    """Return `--task` for `option.TASK`; None for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "option":
        text = getattr(option, node.attr, None)
        return text if isinstance(text, str) else None
    return None


class _Spelled(ast.NodeTransformer):
    """Writes options into the texts of a module, as if each were a literal."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        text = spelling(node)
        return node if text is None else ast.copy_location(ast.Constant(text), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        self.generic_visit(node)
        parts: list[ast.expr] = []
        for part in node.values:
            inner = part.value if isinstance(part, ast.FormattedValue) else part
            if not isinstance(inner, ast.Constant) or not isinstance(inner.value, str):
                parts.append(part)
                continue
            before = parts[-1] if parts else None
            if isinstance(before, ast.Constant) and isinstance(before.value, str):
                inner = ast.copy_location(ast.Constant(before.value + inner.value), before)
                parts.pop()
            parts.append(inner)
        if len(parts) == 1 and isinstance(parts[0], ast.Constant):
            return ast.copy_location(parts[0], node)
        node.values = parts
        return node


@functools.cache
def nodes(part: Path | ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a module or of a part of it, in the order of `ast.walk`."""
    # Sweeps walk a million nodes: this loop takes two thirds of the time of the generators of `ast.walk`.
    reached: list[ast.AST] = [tree(part) if isinstance(part, Path) else part]
    for node in reached:
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                reached += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                reached.append(value)
    return tuple(reached)

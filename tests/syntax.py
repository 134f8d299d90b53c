"""The source of kstate, for the tests that sweep it: a process parses and walks each module once."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import kstate_cli

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
    """Parse a module; sweeps never change the tree."""
    # A tree has no garbage, but each of its nodes counts: the collector would take two thirds of the time of parsing.
    gc.disable()
    try:
        return ast.parse(path.read_bytes())
    finally:
        gc.enable()


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

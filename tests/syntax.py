"""The source of kstate, for the tests that sweep it: every module is parsed once."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import kstate_cli

ROOT = Path(kstate_cli.__file__).parent


def paths() -> list[Path]:
    """Every module."""
    return sorted(ROOT.rglob("*.py"))


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module by its path below the package, such as ``cli/app.py``."""
    for path in paths():
        yield path.relative_to(ROOT).as_posix(), tree(path)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@functools.cache
def nodes(module: Path | ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a module or of a part of it, in the order of `ast.walk`."""
    return tuple(ast.walk(tree(module) if isinstance(module, Path) else module))

"""Timeouts of tests end only what hangs: on a busy host whatever a test waits for takes many times as long as usual."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

TESTS = Path(__file__).resolve().parents[1]
FOLDERS = sorted({path.relative_to(TESTS).parts[0] for path in TESTS.rglob("*.py")} - {"bench", "mutation"})
"""Benchmarks are run alone, and a mutant that takes longer than its tests hangs."""
LEAST_SECONDS = 300
MOST_INTERVAL_SECONDS = 2
"""A call that waits no longer than this is one of a loop."""
_WAITS = {"wait", "join", "flush", "poll", "result", "settimeout", "set_page_load_timeout", "timeout"}
_KEYWORDS = {"timeout", "request_timeout", "operation_timeout"}


def _waits(tree: ast.Module) -> Iterator[tuple[int, ast.expr]]:
    """Yield each expression for how long something may take, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=arguments, keywords=keywords):
                for keyword in keywords:
                    if keyword.arg in _KEYWORDS:
                        yield node.lineno, keyword.value
                if name in _WAITS and arguments:
                    yield node.lineno, arguments[0]
            case ast.BinOp(left=ast.Call(func=ast.Attribute(attr="monotonic")), op=ast.Add(), right=seconds):
                yield node.lineno, seconds


@pytest.mark.parametrize("folder", FOLDERS)
def test_nothing_is_given_up_early(folder: str) -> None:
    path = TESTS / folder
    short = [
        f"{file.relative_to(TESTS)}:{line}: {seconds.value} s"
        for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
        for line, seconds in _waits(syntax.raw_tree(file))
        if isinstance(seconds, ast.Constant) and isinstance(seconds.value, int | float)
        if MOST_INTERVAL_SECONDS < seconds.value < LEAST_SECONDS
    ]
    assert not short, short

"""Whoever reads what has threads ends them: a generator that is dropped is closed where nothing can be raised."""

from __future__ import annotations

import ast
from pathlib import Path

import kstate_cli
from tests import syntax

ROOT = Path(kstate_cli.__file__).parent
READINGS = {"batches", "iter_slice", "read_all", "windows", "_read", "read"}
"""Generators that may have threads. Of those called ``read`` and ``_read`` the ones in these modules."""
MODULES = [*sorted((ROOT / "restore").rglob("*.py")), ROOT / "dump_reader" / "reader.py"]


WALKERS = {"next", "iter", "list", "tuple", "enumerate", "zip"}


def called_name(node: ast.AST) -> str:
    """The name of what is called; empty for anything else."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def arguments(node: ast.AST) -> list[str]:
    """What is called for the arguments of a call."""
    return [called_name(argument) for argument in node.args] if isinstance(node, ast.Call) else []


def test_a_reading_is_closed_by_who_began_it() -> None:
    """It is walked only where ``closing`` has it, or handed on by ``yield from``."""
    walked, closed = [], 0
    for path in MODULES:
        for node in syntax.nodes(path):
            if isinstance(node, (ast.For, ast.comprehension)) and called_name(node.iter) in READINGS:
                walked.append(f"{path.name}:{node.iter.lineno}")
            if called_name(node) in WALKERS and READINGS & set(arguments(node)):
                walked.append(f"{path.name}: {ast.unparse(node)}")
            closed += called_name(node) == "closing" and bool(READINGS & set(arguments(node)))
    assert walked == []
    assert closed >= 8

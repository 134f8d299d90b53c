"""How many parameters functions have: what belongs together is one object. Commands are their own list of options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import kstate_cli
from kstate_cli.cli.registry import COMMANDS
from tests import syntax

ROOT = Path(kstate_cli.__file__).parent
MOST = 6
MORE = {
    "query/streams.py: __init__": "the library's own options, each with its name",
    "cli/views/plan.py: show_end": "what a command says at its end",
    "restore/running/prepare.py: _databases": "what a restoration has of one store",
}
COMMAND_FUNCTIONS = {f"cli/commands/{entry.module}.py: {entry.name}" for entry in COMMANDS.values()}


def _long() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                if len([name for name in names if name not in ("self", "cls")]) > MOST:
                    yield f"{path.relative_to(ROOT)}: {node.name}"


def test_functions_with_many_parameters_are_few() -> None:
    found = sorted(_long())
    assert sorted(MORE) == [one for one in found if one not in COMMAND_FUNCTIONS]
    assert len(MORE) <= 3


def test_the_longest_commands_take_objects() -> None:
    assert not [one for one in _long() if one.startswith(("cli/restore", "cli/query"))]

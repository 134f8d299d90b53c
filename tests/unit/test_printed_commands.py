"""Every command of kstate that stands in its source is one that its own parser takes: none is old, none is mistyped.

Two forms are allowed: ``command("wipe", app, …)`` and the templates of ``check``, which quote what they are given; and
mentions in prose (``kstate verify names every damaged file``), which name a command, at most with options. A path or a
name is never put into the text of a command by hand.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import kstate_cli
from kstate_cli.check.findings import CODES
from kstate_cli.cli.app import app
from kstate_cli.cli.commands import COMMANDS
from kstate_cli.texts import filled

ROOT = Path(kstate_cli.__file__).parent
_CLI: Any = typer.main.get_command(app)
_MENTION = re.compile(r"\bkstate ([a-z][a-z-]*)((?: (?:--?[a-z][a-z-]*|[A-Z]{2,}|[0-9][0-9a-z.]*|\x00))*)")
_HOLE = "\x00"
# Words that follow "kstate" in sentences about it.
_VERBS = re.compile(
    "accepts?|cannot|commands?|content|doesn?|in|is|keeps?|knows|may|opens|query|reads?|takes|toml|was|which|who|writes|"
    "wrote|will|with|then|and|has|its|made|never|names|says|left|found|follows|or|run|runs"
)
_DUMMIES = {
    "APP": "/data/app", "TASK": "0_0", "STORE": "count", "RELEASE": "4.2", "DUMP": "/data/dump", "A": "/a", "B": "/b",
    "KEY": "k", "FILE": "/data/file", "TOPIC": "topic", "HOST:PORT": "h:1", _HOLE: "4.2",
}  # fmt: skip


def parse(words: list[str], *, whole: bool) -> None:
    """Gives the words after ``kstate`` to the command's own parser; ``whole``: nothing that it needs may be missing."""
    name, *rest = words
    assert name in COMMANDS, f"there is no kstate {name}"
    if name == "query" and not whole:
        return  # its options are those of its kinds of queries
    given = [_DUMMIES.get(one, one) for one in rest]
    if not whole and not any(not one.startswith("-") for one in given[:1]):
        given = [*given, "/data/app"] if "--spec" not in given else given
    _CLI.commands[name].make_context(name, given, resilient_parsing=not whole)


def _literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of a module, but for docstrings; in an f-string each value is a hole."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            yield (
                node.lineno,
                "".join(str(v.value) if isinstance(v, ast.Constant) else _HOLE for v in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs | inside:
            yield node.lineno, node.value


def _sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def mentions() -> list[tuple[str, str, str]]:
    """(where, command, what follows) of each command in a text of the source."""
    found = []
    for path in _sources():
        for line, text in _literals(ast.parse(path.read_text(encoding="utf-8"))):
            for match in _MENTION.finditer(text):
                if match[1] not in COMMANDS and _VERBS.fullmatch(match[1]):
                    continue
                found.append((f"{path.relative_to(ROOT)}:{line}", match[1], match[2]))
    return found


def calls() -> list[tuple[str, list[str]]]:
    """(where, words) of each call of ``command``; what is not literal is a hole."""
    found = []
    for path in _sources():
        source = path.read_text(encoding="utf-8")
        if not re.search(r"from kstate_cli\.texts import .*\bcommand\b", source):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command":
                words = [str(one.value) if isinstance(one, ast.Constant) else _HOLE for one in node.args]
                found.append((f"{path.relative_to(ROOT)}:{node.lineno}", words))
    return found


def test_commands_in_texts() -> None:
    found = mentions()
    assert len(found) > 20
    for where, name, rest in found:
        assert _HOLE not in rest, f"{where}: kstate {name}{rest}: a value is put in by hand: use texts.command"
        try:
            parse([name, *rest.split()], whole=False)
        except Exception as error:
            raise AssertionError(f"{where}: kstate {name}{rest}: {error}") from error


def test_commands_that_are_put_together() -> None:
    found = calls()
    assert len(found) > 10
    for where, words in found:
        try:
            parse(words, whole=True)
        except Exception as error:
            raise AssertionError(f"{where}: {words}: {error}") from error


@pytest.mark.parametrize("code", CODES.values(), ids=CODES.keys())
def test_what_check_says_to_do(code: Any) -> None:
    mend = filled(code.mend, {"APP": "/data/my app", "RELEASE": "4.2", "TASK": "0_0", "STORE": "count"})
    _, found, line = mend.partition("kstate ")
    if not found:
        return
    words = shlex.split(line)
    assert words[1] == "/data/my app"
    parse([_DUMMIES.get(word, word) for word in words], whole=True)

"""What examples, documents and tests name of kstate is there: nothing else tells before they are run."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import syntax

REPOSITORY = Path(__file__).resolve().parents[2]
DOTTED = re.compile(r"(?<![\w./])(?:kstate_cli|tests)(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?(?!\w*/)")
# As a program of its own that a test starts imports it: no tool that follows imports sees that.
IMPORTED = re.compile(r"\bfrom ((?:kstate_cli|tests)[\w.]*) import ([\w, ]+)")
TEXTS = sorted(
    path
    for folder in ("", "docs", "examples", "scripts", "tests", ".ci")
    for path in ((REPOSITORY / folder).rglob("*") if folder else REPOSITORY.glob("*.md"))
    if path.suffix in {".py", ".md", ".sh"} or path.parent.name == ".ci"
)


def names_in(path: Path) -> Iterator[str]:
    """Dotted names, wherever they stand, and what is imported from modules."""
    text = path.read_text(encoding="utf-8")
    yield from DOTTED.findall(text)
    for module, names in IMPORTED.findall(text):
        yield from (f"{module}.{part.split(' as ')[0].strip()}" for part in names.split(","))
    if path.suffix == ".py":
        for node in syntax.nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "kstate_cli":
                yield from (f"{node.module}.{name.name}" for name in node.names)


@functools.cache
def is_there(name: str) -> bool:
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for part in parts[at:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


def test_every_name_is_there() -> None:
    assert len(TEXTS) > 100
    missing = [
        f"{path.relative_to(REPOSITORY)}: {name_}"
        for path in TEXTS
        for name_ in set(names_in(path))
        if not is_there(name_)
    ]
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.parametrize("name", ["kstate_cli.query.OfflineStreams", "kstate_cli.query.streams.KEY_VALUE_KINDS"])
def test_a_name_that_is_there(name: str) -> None:
    assert is_there(name)
    assert not is_there(f"{name}Not")

"""Names say what a thing is: one word for one thing, and none that would do for any thing."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests import syntax

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "kstate_cli"

VAGUE_MODULES = frozenset(
    {
        "agree",
        "alone",
        "aside",
        "ask",
        "asking",
        "grid",
        "look",
        "place",
        "run",
        "runs",
        "shapes",
        "spare",
        "who",
        "whole",
    }
    | {
        "work",
        "base",
        "common",
        "core",
        "helper",
        "helpers",
        "lib",
        "manager",
        "misc",
        "tool",
        "tools",
        "util",
        "utils",
    }
)
"""What a module holds cannot be told from them, or is told by several at once. ``run`` is what ``.kstate`` keeps."""
VAGUE_LOCALS = frozenset(
    {"bar", "foo", "found", "it", "item", "obj", "res", "ret", "stuff", "temp", "thing", "things", "tmp"}
)
"""Whatever a function is about, it has found it: the name is that of what it holds."""
OTHER_WORDS = {"mend": "hint", "mends": "hints"}
"""Words for what has another one."""
SORTED_RUNS = re.compile(r"\bsorted[- _]runs?\b", re.IGNORECASE)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is given to something in a function: variables, parameters, those of a lambda too."""
    for node in syntax.nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name:
            yield node.name, node.lineno


def test_modules_are_called_after_what_they_hold() -> None:
    modules = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.suffix == ".py" or path.is_dir()]
    assert not [str(path) for path in modules if path.stem in VAGUE_MODULES]


def test_no_two_classes_have_one_name() -> None:
    """Nor one that is private: ``Draft`` here and ``_Draft`` there are read as the same."""
    defined = defaultdict(list)
    for where, tree in syntax.modules():
        for node in syntax.nodes(tree):
            if isinstance(node, ast.ClassDef):
                defined[node.name.strip("_")].append(where)
    assert len(defined) > 200, "nothing was looked at"
    assert not {name: places for name, places in defined.items() if len(places) > 1}


def test_local_names_say_what_they_hold() -> None:
    seen = Counter[str]()
    vague = []
    for where, tree in syntax.modules():
        for name, line in bound_names(tree):
            seen[name] += 1
            if name in VAGUE_LOCALS or name in OTHER_WORDS:
                vague.append(f"{where}:{line}: {name}")
    assert seen["store"] > 100, "nothing was looked at"
    assert not vague


def test_runs_are_those_of_kstate() -> None:
    """What a restoration makes of a slice are sorted files; a run is a folder below ``.kstate``, with a journal."""
    texts = [
        *SOURCE.rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    assert len(texts) > 200, "nothing was looked at"
    said = [str(path.relative_to(ROOT)) for path in texts if SORTED_RUNS.search(path.read_text(encoding="utf-8"))]
    assert not said

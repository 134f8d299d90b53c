"""Names are nouns of the field: store, task, segment. The words of a private dialect are banned, plain words are not."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

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
PLACEHOLDERS = frozenset({"foo", "obj", "res", "ret", "stuff", "temp", "thing", "things", "tmp"})
DIALECT = frozenset(
    {
        "anew",
        "asked",
        "asks",
        "done",
        "found",
        "given",
        "goes",
        "gone",
        "got",
        "heard",
        "held",
        "how",
        "kept",
        "known",
        "made",
        "meant",
        "mended",
        "one",
        "ones",
        "opened",
        "refused",
        "said",
        "says",
        "seen",
        "shown",
    }
    | {"since", "somebody", "taken", "tell", "tells", "those", "told", "wanted", "went", "what", "who", "whose"}
)
"""Participles and pronouns: they say what happened to a value, or nothing. A name says what the value is."""
DIALECT_IN_TESTS = frozenset({"asked", "found", "known", "one", "said", "told", "what"})
"""The words of the dialect that no part of the name of a test is."""
ESTABLISHED = frozenset({"KEPT", "Made", "Refused", "_KEPT", "made", "tell"})
"""The state of a run that users see, a member of JSON and its type, an error that users see, and a method of files."""
NOT_YET: dict[str, int] = {}
"""Names of the dialect in packages that still have some. A number may only fall."""
SORTED_RUNS = re.compile(r"\bsorted[- _]runs?\b", re.IGNORECASE)


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield every name that the code binds: variables, attributes, parameters, imports, functions and classes."""
    for node in syntax.nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.asname, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, (*DEFINITIONS, ast.ExceptHandler, ast.MatchAs)):
            name: str | None = node.name
            if name is not None:
                yield name, node.lineno


def test_modules_have_specific_names() -> None:
    modules = [path.relative_to(SOURCE) for path in SOURCE.rglob("*") if path.suffix == ".py" or path.is_dir()]
    assert not [str(path) for path in modules if path.stem in VAGUE_MODULES]


def test_no_two_classes_share_a_name() -> None:
    """Nor one that is private: ``Draft`` here and ``_Draft`` there are read as the same."""
    defined = defaultdict(list)
    for where, tree in syntax.modules():
        for node in syntax.nodes(tree):
            if isinstance(node, ast.ClassDef):
                defined[node.name.strip("_")].append(where)
    assert len(defined) > 200, "nothing was looked at"
    assert not {name: places for name, places in defined.items() if len(places) > 1}


def test_names_are_nouns_of_the_field() -> None:
    banned: dict[str, list[str]] = defaultdict(list)
    count = 0
    for path, tree in syntax.modules():
        for name, line in bound_names(tree):
            count += name == "store"
            if name.strip("_").lower() in DIALECT | PLACEHOLDERS and name not in ESTABLISHED:
                banned[path.partition("/")[0]].append(f"{path}:{line}: {name}")
    assert count > 100, "no names were read"
    wrong = [place for package, places in banned.items() if package not in NOT_YET for place in places]
    assert not wrong, "\n".join(wrong)
    assert {package: len(places) for package, places in banned.items() if package in NOT_YET} == NOT_YET


def test_names_of_tests_state_the_subject_and_the_result() -> None:
    """`test_refuses_…`: a name with a pronoun or a participle of the dialect does not say what is tested."""
    names = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in syntax.nodes(path)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if DIALECT_IN_TESTS & {*node.name.split("_")}
    ]
    assert not names, "\n".join(names)


def test_names_in_tests_are_nouns_of_the_field() -> None:
    banned = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name, line in bound_names(syntax.tree(path))
        if name.strip("_").lower() in DIALECT
    ]
    assert not banned, "\n".join(banned)


@pytest.mark.parametrize("name", ["one", "_told", "KNOWN", "found", "tmp"])
@pytest.mark.parametrize(
    "code", ["{} = 1", "def f({}): pass", "def {}(): pass", "[{} for {} in ()]", "lambda {}: 1", "class {}: pass"]
)
def test_the_sweep_sees(name: str, code: str) -> None:
    names = {bound for bound, _ in bound_names(ast.parse(code.replace("{}", name)))}
    assert {bound.strip("_").lower() for bound in names} & (DIALECT | PLACEHOLDERS)


@pytest.mark.parametrize("name", ["item", "it", "result", "entry", "store"])
def test_plain_words_are_no_dialect(name: str) -> None:
    assert name not in DIALECT | PLACEHOLDERS


def test_runs_are_those_of_kstate() -> None:
    """What a restoration makes of a slice are sorted files; a run is a folder below ``.kstate``, with a journal."""
    texts = [
        *SOURCE.rglob("*.py"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    ]
    assert len(texts) > 200, "nothing was looked at"
    texts_ = [str(path.relative_to(ROOT)) for path in texts if SORTED_RUNS.search(path.read_text(encoding="utf-8"))]
    assert not texts_

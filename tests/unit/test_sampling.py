"""The usual cases of a test are the ends of its list and some between, each once and in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests import syntax
from tests.sampling import evenly

ROOT = Path(__file__).resolve().parents[2]


@given(st.integers(1, 60), st.integers(1, 20))
def test_evenly(size: int, number: int) -> None:
    sample = evenly(range(size), number)
    assert len(sample) == min(size, number)
    assert sample == sorted(set(sample))
    assert sample[0] == 0
    if number > 1:
        assert sample[-1] == size - 1


def in_full() -> Iterator[tuple[str, str]]:
    """Each test that runs only where everything does, and the one that it names; of a case of a test its file."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = str(path.relative_to(ROOT))
        tree = syntax.tree(path)
        tests = {
            id(mark): node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
            for mark in node.decorator_list
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="in_full"), args=[ast.Constant(value=str(sample))]):
                    yield f"{place}::{tests[id(node)]}" if id(node) in tests else place, sample


def test_skipped_tests_name_a_test_that_runs() -> None:
    marks = list(in_full())
    assert marks
    pairs = dict(marks)
    for test, sample in marks:
        path, _, name = sample.partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), (test, sample)
        assert sample not in pairs, (test, sample)

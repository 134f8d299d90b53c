"""The usual cases of a test are the ends of its list and some between, each once and in order."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests import syntax
from tests.sampling import evenly, selected

ROOT = Path(__file__).resolve().parents[2]
ROTATING_MARK = "pytest.mark.rotating"


@given(st.integers(1, 60), st.integers(1, 20))
def test_evenly(size: int, number: int) -> None:
    sample = evenly(range(size), number)
    assert len(sample) == min(size, number)
    assert sample == sorted(set(sample))
    assert sample[0] == 0
    if number > 1:
        assert sample[-1] == size - 1


@given(st.integers(1, 60), st.integers(1, 20), st.text("0123456789abcdef", min_size=1, max_size=8))
def test_a_rotation_selects_a_share_of_each_group(size: int, number: int, rotation: str) -> None:
    cases = range(size)
    picked = selected(cases, number, "group", rotation)
    assert picked == selected(cases, number, "group", rotation)
    assert size // number <= len(picked) <= max(1, -(-size // number))
    assert picked == sorted(set(picked))


def test_rotations_select_every_case() -> None:
    rotations = [f"{number:08x}" for number in range(100)]
    assert {case for rotation in rotations for case in selected(range(7), 7, "group", rotation)} == set(range(7))


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
        assert _runs_in_every_rotation(ROOT / path, name), (test, sample)


def _runs_in_every_rotation(path: Path, name: str) -> bool:
    """Whether a case of the test always runs, or another test of its group: the rotation of a module may select any of its tests."""
    tree = syntax.tree(path)
    (test,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    own = any(ast.unparse(mark).startswith(ROTATING_MARK) for mark in test.decorator_list)
    return own or not any(isinstance(node, ast.Assign) and ROTATING_MARK in ast.unparse(node) for node in tree.body)

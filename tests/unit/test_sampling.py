"""The usual cases of a test are the ends of its list and some between, each once and in order."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("environment", "path", "ran"),
    [
        ({}, "test_made.py", "3 passed, 7 deselected"),
        ({"KSTATE_SAMPLES": "all"}, "test_made.py", "10 passed"),
        ({}, "test_made.py::test_long", "1 passed"),
    ],
)
def test_the_others_are_counted_as_deselected(tmp_path: Path, environment: dict[str, str], path: str, ran: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.sampling import deselect_most\n"
        "def pytest_configure(config): [config.addinivalue_line('markers', one) for one in ('sample(n): x', 'in_full(n): x')]\n"
        "def pytest_collection_modifyitems(config, items): deselect_most(config, items)\n"
    )
    (tmp_path / "test_made.py").write_text(
        "import pytest\n@pytest.mark.sample(3)\n@pytest.mark.parametrize('n', range(9))\ndef test_it(n): pass\n"
        "@pytest.mark.in_full('test_it')\ndef test_long(): pass\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path / path],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran in process.stdout, process.stdout + process.stderr


def in_full() -> Iterator[tuple[str, str]]:
    """Each test that runs only where everything does, and the one that it names."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in syntax.tree(path).body:
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                match mark:
                    case ast.Call(func=ast.Attribute(attr="in_full"), args=[ast.Constant(value=str(beside))]):
                        yield f"{path.relative_to(ROOT)}::{node.name}", beside


def test_skipped_tests_name_a_test_that_runs() -> None:
    pairs = dict(in_full())
    assert pairs
    for test, beside in pairs.items():
        path, _, name = beside.partition("::")
        assert f"\ndef {name}(" in (ROOT / path).read_text("utf-8"), (test, beside)
        assert beside not in pairs, (test, beside)

"""The usual cases of a test are the ends of its list and some between, each once and in order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sampling import evenly

ROOT = Path(__file__).resolve().parents[2]


@given(st.integers(1, 60), st.integers(1, 20))
def test_evenly(size: int, number: int) -> None:
    chosen = evenly(range(size), number)
    assert len(chosen) == min(size, number)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 0
    if number > 1:
        assert chosen[-1] == size - 1


@pytest.mark.parametrize(("wanted", "ran"), [({}, "3 passed, 6 deselected"), ({"KSTATE_SAMPLES": "all"}, "9 passed")])
def test_the_others_are_counted_as_deselected(tmp_path: Path, wanted: dict[str, str], ran: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.sampling import deselect_most\n"
        "def pytest_configure(config): config.addinivalue_line('markers', 'sample(n): that many cases')\n"
        "def pytest_collection_modifyitems(config, items): deselect_most(config, items)\n"
    )
    (tmp_path / "test_made.py").write_text(
        "import pytest\n@pytest.mark.sample(3)\n@pytest.mark.parametrize('n', range(9))\ndef test_it(n): pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        env={"PATH": "", "PYTHONPATH": str(ROOT), **wanted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran in done.stdout, done.stdout + done.stderr

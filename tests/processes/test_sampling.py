"""A run of pytest takes the sample of the cases, unless it names a test or asks for all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("environment", "path", "ran"),
    [
        ({}, "test_cases.py", "3 passed, 7 deselected"),
        ({"KSTATE_SAMPLES": "all"}, "test_cases.py", "10 passed"),
        ({}, "test_cases.py::test_long", "1 passed"),
        ({}, "rotating", "6 passed, 8 deselected"),
        ({"KSTATE_SAMPLES": "all"}, "rotating", "14 passed"),
        ({"KSTATE_ROTATION": "none"}, "rotating", "14 passed"),
        ({}, "rotating/test_rotating.py", "14 passed"),
        ({}, "rotating/test_rotating.py::test_cases", "6 passed"),
    ],
)
def test_the_others_are_counted_as_deselected(tmp_path: Path, environment: dict[str, str], path: str, ran: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.sampling import deselect_most\n"
        "def pytest_configure(config): [config.addinivalue_line('markers', line) for line in ('sample(n): x', 'in_full(n): x', 'rotating(n): x')]\n"
        "def pytest_collection_modifyitems(config, items): deselect_most(config, items)\n"
    )
    (tmp_path / "test_cases.py").write_text(
        "import pytest\n@pytest.mark.sample(3)\n@pytest.mark.parametrize('n', range(9))\ndef test_it(n): pass\n"
        "@pytest.mark.in_full('test_it')\ndef test_long(): pass\n"
    )
    (tmp_path / "rotating").mkdir()
    (tmp_path / "rotating" / "test_rotating.py").write_text(
        "import pytest\npytestmark = pytest.mark.rotating(4)\n"
        "@pytest.mark.rotating(3)\n@pytest.mark.parametrize('n', range(6))\ndef test_cases(n): pass\n"  # 2 run
        "@pytest.mark.parametrize('n', range(4))\ndef test_of_the_module(n): pass\n"  # 1
        "@pytest.mark.rotating(2, 'pair')\ndef test_first(): pass\n"
        "@pytest.mark.rotating(2, 'pair')\ndef test_second(): pass\n"  # 1 of both
        "@pytest.mark.rotating(9)\ndef test_always(): pass\n@pytest.mark.rotating(1)\ndef test_also(): pass\n"  # 2
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

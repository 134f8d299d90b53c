"""A new command that changes a directory: four places, and every test of all commands runs it.

`tests/new_command` has a command as docs/internals/architecture.md#a-change-command describes it. It is added to a copy of
the sources, and nothing else of them is changed by hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = {
    "planner.txt": "kstate_cli/touch_store.py",
    "command.txt": "kstate_cli/cli/commands/touch_store.py",
    "test.txt": "tests/directories/test_touch_store.py",
}
"""The fourth place is the registry, which gets the entry."""
REGISTRY = "kstate_cli/cli/registry.py"
NEXT_ENTRY = '    "dump": Entry('
WITH_A_TABLE = ("cold", "rights", "standard", "progress", "limits", "exit_codes", "carried_options", "touch_store")
"""Tests of directories that have a table of commands, and the test of the command itself."""
COMPLETENESS = (
    "is_here or the_table_has or table_of_commands or commands_that_take_it or every_command_has or every_module_of"
    " or every_package_has or list_that_is_printed or reference_agrees or table_of_the_documentation"
    " or no_more_hints or schemas_are_those or examples_are_parsed or test_touch_store"
)
"""The tests that fail if a list lacks a command, or a generated page or schema does."""


class Sources:
    """A copy of the sources with the command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("kstate_cli", "tests", "docs", "examples", "scripts"):
            ignored = shutil.ignore_patterns("__pycache__", ".cache")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
            shutil.copy(ROOT / name, folder)
        for source, target in PLACES.items():
            shutil.copy(ROOT / "tests" / "new_command" / source, folder / target)
        registry = folder / REGISTRY
        before, following, after = registry.read_text(encoding="utf-8").partition(NEXT_ENTRY)
        entry = (ROOT / "tests" / "new_command" / "entry.txt").read_text(encoding="utf-8")
        registry.write_text(f"{before}{entry}{following}{after}", encoding="utf-8")

    def run(self, program: str, *arguments: str, **variables: str) -> None:
        """Run a program of this environment there."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        result = subprocess.run(
            [str(Path(sys.executable).with_name(program)), *arguments],
            cwd=self.folder,
            env={**inherited, "PYTHONPATH": str(self.folder), **variables},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert result.returncode == 0, result.stdout + result.stderr

    def test(self, selection: str, *paths: str, **variables: str) -> None:
        """Run tests there."""
        self.run("python", "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", selection, *paths, **variables)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    copy = Sources(tmp_path_factory.mktemp("sources"))
    copy.run("python", "-m", "tests.json_page")
    copy.test(
        "list_that_is_printed or reference_agrees or table_of_the_documentation or table_of_commands",
        *("tests/unit/cli/test_help.py", "tests/unit/test_reference.py", "tests/unit/cli/test_environment.py"),
        "tests/examples/test_readme.py",
        KSTATE_WRITE_DOCS="1",
    )
    return copy


def test_four_places_are_enough(sources: Sources) -> None:
    for check in (("check",), ("format", "--check")):
        sources.run("ruff", *check, *PLACES.values(), REGISTRY)
    sources.run("lint-imports")
    files = ("commands", "internals", "reference", "hint_sites")
    sources.test(
        COMPLETENESS,
        *(f"tests/unit/test_{name}.py" for name in files),
        *(f"tests/unit/cli/test_{name}.py" for name in ("help", "environment", "json_lines")),
        *(f"tests/directories/test_{name}.py" for name in WITH_A_TABLE),
        *("tests/screens/test_endings.py", "tests/examples/test_readme.py"),
    )


@pytest.mark.in_full("tests/directories/test_new_command.py::test_four_places_are_enough")
def test_the_tests_of_all_commands_run_it(sources: Sources) -> None:
    """With every limit, exit code, wrong path and wrong name."""
    sources.test(
        "touch-store or does_without or every_line_is",
        "tests/unit",
        "tests/directories",
        "tests/screens",
        KSTATE_SAMPLES="all",
    )

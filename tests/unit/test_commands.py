"""The list of commands: complete, and free of what the commands import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kstate_cli.cli.commands
from kstate_cli.cli.registry import COMMANDS
from tests.command_line import program
from tests.import_contracts import command_packages


def test_every_module_of_a_command_is_listed() -> None:
    modules = {path.stem for path in Path(kstate_cli.cli.commands.__path__[0]).glob("[a-z]*.py")}
    assert modules - {"query_answers"} == {entry.module for entry in COMMANDS.values()}


def test_every_command_has_help_of_its_own_and_a_line_in_the_list() -> None:
    commands = program().commands
    assert list(commands) == list(COMMANDS)
    for name, entry in COMMANDS.items():
        assert commands[name].name == name
        assert len(commands[name].help or "") > 20, name
        assert entry.help.endswith(".") and len(entry.help) <= 54, name  # one line of 80 columns


def test_the_list_imports_no_command() -> None:
    code = (
        "import sys; sys.argv = ['kstate', '--help']\n"
        "from kstate_cli.cli.app import main\n"
        "try:\n    main()\n"
        "finally:\n    sys.stderr.write(' '.join(sorted(sys.modules)))\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(process.stderr.split())
    assert "verify" in process.stdout
    assert not {name for name in loaded if name.startswith("kstate_cli.cli.commands")}
    assert not loaded & {"rich", "rocksdict", "pyarrow", "pyspark", "numpy"}


VIEWS = sorted(path.stem for path in (Path(kstate_cli.cli.__file__).parent / "views").glob("[a-z]*.py"))
OF_SINGLE_COMMANDS = {"maintain", *command_packages()}
OWN = {"dump": "dump_writer", "lag": "check"}
EXPLAINING = {"fleet_page"}
"""The page has the explanations of codes, which import their owners."""


_IMPORT_EACH = """
import importlib, os, sys
import rich.console, rich.table, typer  # once for all: only modules of kstate count
for view in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module(f"kstate_cli.cli.views.{view}")
        print(view, *sys.modules, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, view
"""


@pytest.fixture(scope="module")
def loaded_modules() -> dict[str, list[str]]:
    """Import each view in a process of its own, and return what that process has loaded then."""
    process = subprocess.run([sys.executable, "-c", _IMPORT_EACH, *VIEWS], capture_output=True, text=True, check=True)
    return {line.split()[0]: line.split()[1:] for line in process.stdout.splitlines()}


@pytest.mark.parametrize("view", [view for view in VIEWS if view not in EXPLAINING])
def test_a_view_imports_no_other_command(view: str, loaded_modules: dict[str, list[str]]) -> None:
    """Every command would wait for the imports of the others: those of dump and export took migrate an eighth longer."""
    loaded = loaded_modules[view]
    assert f"kstate_cli.cli.views.{view}" in loaded
    others = {name.split(".")[1] for name in loaded if name.startswith("kstate_cli.")} & OF_SINGLE_COMMANDS
    assert others <= {OWN.get(view, view)}


def test_metrics_import_no_dump() -> None:
    """Every changing command writes metrics, whose names are those of maintain too."""
    code = "import sys, kstate_cli.cli.metrics; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "kstate_cli.maintain.measures" in loaded
    assert not {"kstate_cli.dump_reader", "kstate_cli.broker", "kstate_cli.logs", "pyarrow"} & {*loaded}

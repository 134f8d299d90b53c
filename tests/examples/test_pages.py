"""Pages whose commands a reader types in order: each command runs, with the exit code that the page states."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.errors import EXIT_OK, ConditionNotMet, Refused
from tests.readme import ROOT

PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
DEMO = "/tmp/kstate-demo"
"""The folder of the tutorials; each run of the test has a separate one in its place."""
APP = "state/orders"
"""The sample directory, in the place of APP of the checklist."""
UNPACK = ("kstate examples --out examples", "mkdir state", "tar -xJf examples/orders.tar.xz -C state")
PAGES = {"docs/quickstart.md": (), "docs/tutorials/downgrade.md": (), "docs/how-to/downgrade-checklist.md": UNPACK}
"""The pages that migrate the sample directory, with what a reader of the page has done before."""


def commands(page: str) -> list[str]:
    """Return the commands of the indented blocks of a page, up to the section about other cases."""
    text = (ROOT / page).read_text(encoding="utf-8").partition("\n## Return to 4.3")[0]
    return [line.strip() for line in re.findall(r"^ {4,}((?:kstate|mkdir|tar) .*)$", text, flags=re.MULTILINE)]


def run(command: str, folder: Path) -> int:
    """Run a command in ``folder`` and return its exit code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KSTATE_", "PYTEST_"))}
    command = command.replace(DEMO, str(folder / "demo")).replace("APP", APP)
    process = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment | {"PATH": PATH}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "Traceback" not in process.stderr, process.stderr
    return process.returncode


@pytest.mark.rotating(3)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    """The first prediction is that the start of 4.2 fails, the second that all stores open; every other command succeeds."""
    for command in PAGES[page]:
        assert run(command, tmp_path) == EXIT_OK
    codes = [(command, run(command, tmp_path)) for command in commands(page)]
    assert [code for command, code in codes if " check " in command] == [ConditionNotMet.exit_code, EXIT_OK], codes
    others = [code for command, code in codes if " check " not in command]
    assert len(others) >= 5 and set(others) == {EXIT_OK}, codes


def test_undo_is_refused_after_a_run(tmp_path: Path) -> None:
    """As the checklist states: `undo` would lose what was written since."""
    for command in (*UNPACK, f"kstate migrate {APP} --to 4.2"):
        assert run(command, tmp_path) == EXIT_OK
    (tmp_path / APP / "0_0" / ".checkpoint").write_text("0\n0\n", encoding="utf-8")
    assert run(f"kstate undo {APP}", tmp_path) == Refused.exit_code

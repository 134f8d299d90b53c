"""
Root's command is interrupted, and the owner of the application continues: nothing that root has created stands in the way.

The command gets a signal at a few calls that are spread over it; KSTATE_FAULTS=all takes every third. A directory that root has just
created has no owner but root for a moment: then it must be empty.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.change.folder import read_runs
from tests.directories.support import public_folder

from .case import Case
from .cases import SMALLEST
from .forked import Ended, Kstate, environment
from .restorations import RESTORED_IN_PARTS
from .sweep import ALL

OWNER = 54_323
"""A user without an account, as in a container."""
MOMENTS = 12
"""So many calls of each command."""
CASES = {case.name: case for case in (*SMALLEST, RESTORED_IN_PARTS[0])}
pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users"), pytest.mark.rotating(4)]


@pytest.fixture(scope="module")
def killed() -> Iterator[Kstate]:
    with Kstate("tests.faults.killing_zygote") as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    with public_folder() as path:
        yield path


def run(kstate: Kstate, case: Case, app: Path, at: int, number: int) -> tuple[Ended, int]:
    """Run the command as root, with a signal at that call. Returns also the number of its calls."""
    count = Path(environment(app.parent)["TMPDIR"]) / "count"
    count.unlink(missing_ok=True)
    ended = kstate(app, case.command, env={"KILL_AT": str(at), "KILL_WITH": str(number), "KILL_COUNT": str(count)})
    return ended, int(count.read_text() or 0)


def directories_of_root(state: Path) -> list[Path]:
    """Every directory that is root's."""
    return [path for path in (state, *state.rglob("*")) if path.is_dir() and path.lstat().st_uid == 0]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("name", CASES)
def test_the_owner_continues_after_an_interruption_of_root(
    killed: Kstate, folder: Path, name: str, number: signal.Signals
) -> None:
    case, state, template = CASES[name], folder / "w" / "state", folder / "template"
    app = case.make(killed, state)
    subprocess.run(["chown", "-R", f"{OWNER}:{OWNER}", state], check=True)
    subprocess.run(["cp", "-a", state, template], check=True)
    Path(environment(state)["TMPDIR"]).chmod(0o1777)
    for word in filter(os.path.isabs, case.command):
        # A temporary folder of these tests, perhaps with others in between.
        for path in (*Path(word).parents, Path(word)):
            if "kstate-faults-" in str(path):
                subprocess.run(["chmod", "-R", "a+rX", path], check=True)
    _, calls = run(killed, case, app, 0, number)
    wrong, continued, resumed = [], 0, 0
    moments = range(1, calls, 3) if ALL else [1 + calls * moment // MOMENTS for moment in range(MOMENTS)]
    for at in moments:
        shutil.rmtree(state)
        subprocess.run(["cp", "-a", template, state], check=True)
        ended, _ = run(killed, case, app, at, number)
        # 70: the signal came before kstate handles signals.
        assert ended.status in (-9, 130, 70, 0), ended.output
        if of_root := directories_of_root(state):
            if len(of_root) > 1 or list(of_root[0].iterdir()):
                wrong.append(f"call {at}: of root: {of_root}")
            continue
        # A run that root has completed needs no other one.
        ended = killed(app, case.command, env={"AS_USER": str(OWNER)})
        continued += 1
        resumed += sum(run.last("resumes").get("slices", 0) for run in read_runs(app))
        if "denied" in ended.output or "belongs to" in ended.output or ended.status not in (0, 4):
            wrong.append(f"call {at}: exit {ended.status}: {ended.output[-600:]}")
    print(f"{name}: {continued} of {len(moments)} continued, {calls} calls, {resumed} slices resumed")
    assert not wrong, f"{len(wrong)} of {len(moments)}:\n" + "\n".join(wrong)
    assert continued > len(moments) // 2
    assert resumed or "restore" not in case.command

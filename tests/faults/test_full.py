"""A disk is cleaned because it is full: what announces that takes no room, and half a kept tree is never undone to."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from kstate_cli.change.fingerprint import LISTS
from kstate_cli.change.folder import read_runs
from tests.journals.states import DOWN, STATES, make

from .cases import migrate_directory
from .forked import Kstate
from .injection import FULL, KILL
from .trees import meaning

OLDER = Path(__file__).resolve().parents[1] / "journals" / "golden" / "journal-1.tar.xz"


def full(app: Path, *calls: str, killed_at: str = "") -> list[str]:
    """Options of strace: calls of these kinds about the runs of APP find no room; `CALL:when=N` kills."""
    own = app.parent / ".kstate" / app.name
    files = [path for path in own.rglob("*") if not path.is_dir()]
    names = [*files, *(run.path / name for run in read_runs(app) for name in ("journal.jsonl", "cleaning.jsonl"))]
    # strace compares arguments: a path or the path of a descriptor, and a name in an open directory.
    arguments = {*map(str, names), *(path.name for path in names)}
    options = [option for name in sorted(arguments) for option in ("-P", name)]
    options += ["-e", f"trace={','.join((*calls, *filter(None, [killed_at.partition(':')[0]])))}"]
    options += [option for call in calls for option in ("-e", f"inject={call}:{FULL}")]
    return [*options, *(("-e", f"inject={killed_at}:{KILL}") if killed_at else ())]


@pytest.mark.parametrize("calls", [("write",), ("write", "renameat")], ids=["no block", "no room for a name either"])
def test_a_full_file_system_can_be_cleaned(kstate: Kstate, tmp_path: Path, calls: tuple[str, ...]) -> None:
    app = migrate_directory(DOWN, kstate, tmp_path / "state")
    before = meaning(app)
    with kstate.under(*full(app, *calls)):
        result = kstate(app, ("clean",))
    assert result.status == 0, result.output
    assert not (app.parent / ".kstate").exists()
    assert meaning(app) == before


@pytest.mark.parametrize("nth", [1, 5, 12])
def test_a_clean_of_a_full_file_system_that_is_killed_goes_on(kstate: Kstate, tmp_path: Path, nth: int) -> None:
    """Without room even for the announcement: undo proves what is left against the digest of all of it."""
    app = migrate_directory(DOWN, kstate, tmp_path / "state")
    before = meaning(app)
    with kstate.under(*full(app, "write", "renameat", killed_at=f"unlinkat:when={nth}")):
        killed = kstate(app, ("clean",))
    assert killed.status == -signal.SIGKILL, killed.output
    if nth > len(LISTS) + 1:
        assert "has changed: " in kstate(app, ("undo",)).output
        assert meaning(app) == before
    cleaned = kstate(app, ("clean",))
    assert cleaned.status == 0, cleaned.output
    assert not (app.parent / ".kstate").exists()
    assert meaning(app) == before


def test_unproven_backup_is_announced_or_kept(kstate: Kstate, tmp_path: Path) -> None:
    """An older kstate kept no digest of the tree."""
    subprocess.run(["tar", "-xJf", OLDER, "-C", tmp_path], check=True)
    (app,) = (path for path in (tmp_path / "state").iterdir() if path.name != ".kstate")
    assert kstate(app, ("undo",)).status == 0  # its wipe of everything: of an APP without a database nothing is deleted
    backup = meaning(read_runs(app)[0].tree)
    with kstate.under(*full(app, "write", "renameat")):
        failed = kstate(app, ("clean",))
    assert failed.status == 7, failed.output
    assert meaning(read_runs(app)[0].tree) == backup
    with kstate.under(*full(app, "write")):
        result = kstate(app, ("clean",))
    assert result.status == 0, result.output
    assert not (app.parent / ".kstate").exists()


@pytest.mark.parametrize("fails", [1, 2], ids=["room for one block", "no room at all"])
def test_an_interrupted_switch_is_settled_on_a_full_file_system(kstate: Kstate, tmp_path: Path, fails: int) -> None:
    """What only an exchange that has not happened would need makes room for the record of one that has."""
    app = make(next(state for state in STATES if state.state == "after-switch"), tmp_path)
    (run,) = read_runs(app)
    options = ("-P", str(run.path / "journal.jsonl"), "-e", "trace=write", "-e", f"inject=write:{FULL}:when=1..{fails}")
    with kstate.under(*options):
        ended = kstate(app, ("undo",))
    assert ended.traced.count("(INJECTED)") == fails
    assert ended.status == (0 if fails == 1 else 6), ended.output
    assert "undid run" in (ended if fails == 1 else kstate(app, ("undo",))).output
    assert kstate(app, ("clean",)).status == 0
    assert not (app.parent / ".kstate").exists()

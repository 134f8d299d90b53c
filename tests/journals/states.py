"""An application directory with a run in each state that a run can be in, made by kstate itself and cut off by SIGKILL.

Every tree in it that holds data has a file of its own that tells it apart from the others, whatever kstate does to it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.change.journal import JOURNAL, LEAVING, encode_line
from tests.faults.cases import PARTS, fresh

DOWN = next(part for part in PARTS if part.name == "down-kv")
MIGRATE = ("migrate", "--to", "4.2", "--quiet", "--workers", "1")

_CUT = """\
import os, signal, sys
from kstate_cli.change import {module}
place, before = {module}.{name}, {before}
count = 0
def cut(*args, **kwargs):
    global count
    count += 1
    if count == {nth} and before:
        os.kill(os.getpid(), signal.SIGKILL)
    found = place(*args, **kwargs)
    if count == {nth}:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
{module}.{name} = cut
from kstate_cli.cli.app import main
main()
"""


@dataclass(frozen=True)
class Cut:
    """Where a command is killed: before or after the nth call of a function, as a module of the engine names it."""

    module: str
    name: str
    before: bool
    nth: int = 1


@dataclass(frozen=True)
class Origin:
    """How a state comes about: commands that end, then one that may be cut off."""

    state: str
    commands: tuple[tuple[str, ...], ...]
    last: tuple[str, ...] = ()
    cut: Cut | None = None
    of_an_older: bool = False
    """The journal has its usual name, and a line for it."""


STATES = (
    Origin("nothing", (), MIGRATE, Cut("folder", "invoker", before=True)),
    Origin("created", (), MIGRATE, Cut("engine", "put_mark", before=True)),
    Origin("marked", (), MIGRATE, Cut("engine", "put_mark", before=False)),
    Origin("staged", (), MIGRATE, Cut("engine", "list_trees", before=True)),
    Origin("before-switch", (), MIGRATE, Cut("commit", "exchange", before=True)),
    Origin("after-switch", (), MIGRATE, Cut("commit", "exchange", before=False)),
    Origin("switched", (), MIGRATE, Cut("commit", "remove_mark", before=True)),
    Origin("kept", (MIGRATE,)),
    Origin("undo-marked", (MIGRATE,), ("undo",), Cut("undo", "put_mark", before=False)),
    Origin("before-undo", (MIGRATE,), ("undo",), Cut("commit", "exchange", before=True)),
    Origin("after-undo", (MIGRATE,), ("undo",), Cut("commit", "exchange", before=False)),
    Origin("undone-marked", (MIGRATE,), ("undo",), Cut("commit", "remove_mark", before=True)),
    Origin("undone", (MIGRATE, ("undo",))),
    Origin("cleaning", (MIGRATE,), ("clean",), Cut("removal", "remove_tree", before=True)),
    Origin("half-cleaned", (MIGRATE,), ("clean",), Cut("removal", "remove_tree", before=False)),
    # As an older kstate announced it: a line in the journal, where now its name says so.
    Origin("cleaning-line", (MIGRATE,), ("clean",), Cut("removal", "remove_tree", before=True), of_an_older=True),
    Origin("two-runs", (MIGRATE, ("migrate", "--to", "4.3", "--quiet", "--workers", "1"))),
)


def make(outputs: Origin, folder: Path, app: Path | None = None) -> Path:
    """The application directory in ``folder/state``; or ``app``, as it is."""
    if app is None:
        app = fresh(DOWN, folder / "state")
        _stamp(app)
    for command in outputs.commands:
        _run(app, command)
    if outputs.cut is not None:
        cut = outputs.cut
        text = _CUT.format(module=cut.module, name=cut.name, before=cut.before, nth=cut.nth)
        process = subprocess.run(
            [sys.executable, "-c", text, outputs.last[0], str(app), *outputs.last[1:]],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == -9, f"{outputs.state}: exit {process.returncode}: {process.stderr}"
    if outputs.of_an_older:
        (journal,) = app.parent.glob(f".kstate/*/*/{LEAVING}")
        journal = journal.rename(journal.with_name(JOURNAL))
        row = {"event": "cleaning", "at": "2026-01-01T00:00:00.000+00:00"}
        lines = journal.read_bytes()
        journal.write_bytes(lines + encode_line(row, lines.count(b"\n")))
    return app


def _run(app: Path, command: tuple[str, ...]) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "kstate_cli", command[0], str(app), *command[1:]],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr


def _stamp(app: Path) -> None:
    os.utime(app / "kafka-streams-process-metadata", (1, 1))


def trees(state: Path) -> list[Path]:
    """The trees that hold data: application directories, and what runs keep, unless it was only staged."""
    paths = [path for path in state.iterdir() if path.is_dir() and path.name != ".kstate"]
    for path in sorted((state / ".kstate").glob("*/*/tree")):
        if path.is_dir() and not path.is_symlink() and not (path / ".kstate-staged").exists() and any(path.iterdir()):
            paths.append(path)
    return paths


def content(tree: Path) -> frozenset[tuple[str, int, int]]:
    """Which directory a tree is: its files with sizes and times; the lock, the marks and logs of RocksDB say nothing."""
    results = set()
    for folder, _, files in os.walk(tree):
        for name in files:
            if name in (".lock", ".kstate-staged", ".kstate-undoing"):
                continue
            stat = os.stat(os.path.join(folder, name))
            results.add((os.path.relpath(os.path.join(folder, name), tree), stat.st_size, stat.st_mtime_ns))
    return frozenset(results)


def copy_state(template: Path, state: Path) -> Path:
    """A copy of a state directory, with its times; hard links within it stay links."""
    shutil.rmtree(state, ignore_errors=True)
    subprocess.run(["cp", "-a", str(template), str(state)], check=True)
    return state / next(path.name for path in state.iterdir() if path.name != ".kstate")

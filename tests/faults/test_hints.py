"""Hints of commands that a fault stops at their commit, carried out: the directory is wholly the old or the new one."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.directories.support import kstate, meaning
from tests.golden import unpack

from . import tiny_dump
from .injection import available

pytestmark = [
    pytest.mark.skipif(not available(), reason="strace is missing, or may not trace"),
    pytest.mark.rotating(3),
]
MIGRATE = ("--to", "4.2", "--quiet", "--workers", "1")


def failing(app: Path, command: str, *options: str) -> tuple[Path, str]:
    """Run a command of which the first sync after the exchange fails; return its directory and its messages."""
    for nth in range(1, 20):
        state = app.parent.parent / f"state-{nth}"
        shutil.copytree(app.parent, state, symlinks=True)
        struck = state / app.name
        process = subprocess.run(
            ["strace", "-f", "-qq", "-o", os.devnull, "-P", str(state), "-e", f"inject=fsync:error=EIO:when={nth}",
             sys.executable, "-m", "kstate_cli", command, str(struck), *options],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if "could not record this in the journal" in process.stderr:
            assert process.returncode == 7, process.stderr
            return struck, process.stderr
        shutil.rmtree(state)
        if process.returncode == 0:
            break
    raise AssertionError("no sync of the state.dir came after the exchange")


def printed_commands(messages: str) -> list[str]:
    """The command of the hint."""
    (line,) = re.findall(r"^    kstate (.*)$", messages, flags=re.MULTILINE)
    return shlex.split(line)


@pytest.mark.parametrize("way", ["again", "undo"])
def test_a_switch_that_cannot_be_recorded(way: str, tmp_path: Path) -> None:
    """The command finishes the run if it runs again; the printed `undo` takes it back."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    old = meaning(app)
    struck, messages = failing(app, "migrate", *MIGRATE)
    assert "fix the disk, then run the command again to complete this run. To undo this run instead:" in messages
    if way == "again":
        kstate("migrate", struck, *MIGRATE)
        kstate("migrate", app, *MIGRATE)
        assert meaning(struck) == meaning(app) != old
        kstate("undo", struck)
    else:
        kstate(*printed_commands(messages))
    assert meaning(struck) == old
    assert [row["state"] for row in kstate("status", struck, "-o", "json").rows] == ["undone"]


def test_an_undo_that_cannot_be_recorded(tmp_path: Path) -> None:
    """The printed command finishes it."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    old = meaning(app)
    kstate("migrate", app, *MIGRATE)
    struck, messages = failing(app, "undo", "--times-lost")
    assert "fix the disk. Then complete the undo:" in messages
    kstate(*printed_commands(messages))
    assert meaning(struck) == old
    assert [row["state"] for row in kstate("status", struck, "-o", "json").rows] == ["undone"]


def test_a_restoration_that_ended_in_an_error(tmp_path: Path) -> None:
    """The printed `status` shows what happened; the cause fixed, `--after-error` restores. A dry run refuses the same."""
    dump = tiny_dump.make(tmp_path / "dump", (tiny_dump.KV,))
    app = tmp_path / "state" / tiny_dump.APP
    app.parent.mkdir()
    words = ("restore", app, *dump.options, "--for", "4.3", "--engine", "local", "--warnings-ok")
    failed = subprocess.run(
        ["strace", "-f", "-qq", "-o", os.devnull, "-e", "inject=syncfs:error=EIO", sys.executable, "-m", "kstate_cli",
         *map(str, words)], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert failed.returncode == 6, failed.stderr
    for option in ((), ("--dry-run",)):
        refusal = kstate(*words, *option, status=4)
        assert "ended in ERROR" in refusal.err, refusal.report
        assert "fix the cause, then run the command again with --after-error" in refusal.err
    (status,) = re.findall(r"to see what the runs did, run kstate (.*)$", refusal.err, flags=re.MULTILINE)
    assert "0001-restore" in kstate(*shlex.split(status)).out
    assert [row["restoration"] for row in kstate("status", app, "-o", "json").rows][-1] == "ERROR"
    kstate(*words, "--after-error", "--dry-run")
    kstate(*words, "--after-error")
    assert [*app.rglob("CURRENT")]

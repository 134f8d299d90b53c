"""
Whatever a command creates, no other user may write to it, and snapshots only their owner may read, whatever the umask.

The directory of runs has the access of state.dir, so that applications of several users can share it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.statedir.names import OWN_FOLDER

from .test_standard import CHANGING, COMMAND_LINES, DUMP, Case, make_templates
from .warm import Warm

pytestmark = pytest.mark.rotating(6)

MORE: dict[str, tuple[str, ...]] = {
    "restore in earnest": (
        "restore", "LOST", "--from-changelog", str(DUMP), "--for", "4.3", "--spec", "SPEC", "--engine", "local", "--warnings-ok",
    ),
    "restore from a snapshot": ("restore-snapshot", "LOST", "--from-snapshot", "REPO", "--accept-resurrected"),
    "metrics": ("check", "APP", "--for", "4.3", "--metrics-file", "PLACE/kstate.prom"),
    "page": ("fleet", "LISTING", "--html", "PLACE/fleet.html"),
}  # fmt: skip
LINES = {name: line for name, line in {**COMMAND_LINES, **MORE}.items() if "--help" not in line and "json" not in name}
COPIES = {"snapshot"}
"""Commands whose results only their owner may read. The umask decides who may read an export."""


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as started:
        yield started


@pytest.fixture(scope="module")
def templates(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_templates(warm, tmp_path_factory.mktemp("templates"))


def entries(folder: Path) -> dict[Path, os.stat_result]:
    """Everything below a folder."""
    return {path: path.lstat() for path in folder.rglob("*")}


@pytest.mark.parametrize("name", LINES)
def test_no_other_user_may_write(name: str, warm: Warm, templates: dict[str, Path], tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    case = Case(LINES[name], templates, tmp_path, warm)
    argv = [word.replace("PLACE/", f"{tmp_path}/") for word in case.argv]
    before = entries(tmp_path)
    changes = LINES[name][0] in CHANGING
    before |= entries(case.app.parent) if changes else {}
    warm.start(*argv, folder=tmp_path, umask=0)
    ended = warm.wait()
    assert ended.status in (0, 1, 3), ended.report
    open_to_others = []
    for path, status in entries(tmp_path).items():
        if (path in before and before[path].st_ino == status.st_ino) or stat.S_ISLNK(status.st_mode):
            continue
        too_much = 0o077 if LINES[name][0] in COPIES else 0o022
        if status.st_mode & too_much and path.name != OWN_FOLDER:
            open_to_others.append(f"{path.relative_to(tmp_path)} {stat.filemode(status.st_mode)}")
    assert open_to_others == []

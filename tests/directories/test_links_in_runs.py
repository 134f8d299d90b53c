"""The folder of a run becomes a link, right before a restoration removes what is in it: nothing behind the link is removed.

`tests/faults/test_swaps.py` replaces directories at calls that are spread over a command. These are calls that end a command.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.change.folder import read_runs
from kstate_cli.restore.running import resume
from kstate_cli.restore.running.restoration import Restoration
from kstate_cli.snapshot.restoring import SnapshotFiles

from .support import kstate, kstate_here
from .test_cold import RESTORE

pytestmark = pytest.mark.rotating(4)

LINE = (*RESTORE, "--warnings-ok", "--quiet", "--workers", "1")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state" / "orders"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """Return a folder with the names of a run in it."""
    (tmp_path / "trap" / "runs" / "inner").mkdir(parents=True)
    for name in ("runs/file", "runs/inner/file", "file"):
        (tmp_path / "trap" / name).write_text("others")
    return tmp_path / "trap"


def replace(run: Path, trap: Path) -> None:
    run.rename(run.with_name("aside"))
    run.symlink_to(trap)


def require_unchanged(trap: Path) -> None:
    names = sorted(str(path.relative_to(trap)) for path in trap.rglob("*"))
    assert names == ["file", "runs", "runs/file", "runs/inner", "runs/inner/file"]


def patched(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, before: Callable[..., object], after: Callable[..., object]
) -> None:
    real = getattr(owner, name)

    def call(*arguments: Any) -> Any:
        before(*arguments)
        result = real(*arguments)
        after(*arguments)
        return result

    monkeypatch.setattr(owner, name, call)


def nothing(*_: object) -> None:
    """Change nothing."""


@pytest.mark.rotating(1)
def test_a_restoration_that_fails(app: Path, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patched(
        monkeypatch,
        Restoration,
        "_restore_slices",
        lambda _self, _runner, run, _files: replace(run.path, trap),
        nothing,
    )
    kstate_here("restore", app, *LINE, status=6)
    require_unchanged(trap)


def test_an_interrupted_restoration(app: Path, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only finished slices are kept: the rest is removed."""

    def interrupt(_self: object, _runner: object, run: Any, _files: object) -> None:
        replace(run.path, trap)
        raise KeyboardInterrupt

    patched(monkeypatch, Restoration, "_restore_slices", nothing, interrupt)
    kstate_here("restore", app, *LINE, status=None)
    require_unchanged(trap)


def test_a_restoration_that_resumes_another(app: Path, trap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        patched(context, Restoration, "_restore_slices", nothing, interrupt)
        kstate_here("restore", app, *LINE, status=None)
    assert (read_runs(app)[0].path / "runs").is_dir()
    patched(monkeypatch, resume, "_finished_slices", nothing, lambda folder, *_: replace(folder.parent, trap))
    kstate_here("restore", app, *LINE, status=None)
    require_unchanged(trap)


def test_a_restoration_from_a_snapshot(app: Path, trap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kstate("restore", app, *LINE)
    kstate("snapshot", app, "--out", tmp_path / "snapshots", "--quiet")
    patched(
        monkeypatch, SnapshotFiles, "_copy_all", lambda _self, databases: replace(databases[0].folder.parent.parent, trap),
        nothing,
    )  # fmt: skip
    other = tmp_path / "other" / "orders"
    other.parent.mkdir()
    kstate_here(
        "restore-snapshot",
        other,
        "--from-snapshot",
        tmp_path / "snapshots",
        "--accept-resurrected",
        "--quiet",
        status=6,
    )
    require_unchanged(trap)

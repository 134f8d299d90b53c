"""A kstate.toml that says something else than the directory: every command that takes one refuses, and does nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command_line import commands
from tests.golden import unpack

from .support import kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

NAME = "4.2.1-kinds-alos"
WRONG = {
    "count": "headers-key-value",
    "kv-plain": "versioned",
    "window-plain": "session",
    "session-final": "time-ordered-window",
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(NAME, tmp_path_factory.mktemp("specs"))


def spec_of(folder: Path, text: str) -> Path:
    path = folder / "kstate.toml"
    path.write_text(f"format = 1\n{text}", encoding="utf-8")
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize(("store", "kind"), WRONG.items())
def test_another_kind_than_the_bytes_have(tmp_path: Path, app: Path, store: str, kind: str) -> None:
    spec = spec_of(tmp_path, f'[stores.{store}]\nkind = "{kind}"\n')
    before = tree_hash(app.parent)
    for arguments in (
        ("query", "raw-scan", app, store, "--spec", spec),
        ("export", app, store, "--out", tmp_path / "out", "--spec", spec),
        ("diff", app, app, "--spec", spec),
        ("diff", app, app, "--store", store, "--spec", spec),
        ("rehome", app, "--map", "0=7", "--dry-run", "--spec", spec),
    ):
        result = kstate_here(*arguments, status=4)
        assert f"store {store}" in result.err and kind in result.err, result.err
        assert not result.out
    assert tree_hash(app.parent) == before
    assert not (tmp_path / "out").exists()


def test_another_application(tmp_path: Path, app: Path) -> None:
    spec = spec_of(tmp_path, 'application = "other"\n[stores.count]\nkind = "timestamped-key-value"\n')
    kstate_here("query", "range", app, "count", "--spec", spec, status=4)
    kstate_here("export", app, "count", "--out", tmp_path / "out", "--spec", spec, status=4)
    # Two directories may well have two names.
    kstate_here("diff", app, app, "--store", "count", "--spec", spec)


def test_the_right_kind(tmp_path: Path, app: Path) -> None:
    spec = spec_of(tmp_path, '[stores.count]\nkind = "timestamped-key-value"\n')
    kstate_here("export", app, "count", "--out", tmp_path / "out", "--spec", spec)
    kstate_here("diff", app, app, "--store", "count", "--spec", spec)


def test_every_command_with_a_specification_is_here_or_in_restore() -> None:
    """A new one has to refuse too: add it above. `dump`, `fleet` and `seed` have no directory that it could contradict.

    `restore-snapshot` reads it as `restore` does.

    `check` says that `rehome` would refuse it (`test_check_topology.py`).
    """
    taking = {
        path.split()[0]
        for path, command in commands()
        if any("--spec" in parameter.opts and not parameter.is_flag for parameter in command.params)
    }
    assert taking == {
        "check",
        "diff",
        "dump",
        "export",
        "fleet",
        "query",
        "rehome",
        "restore",
        "restore-snapshot",
        "seed",
    }


def test_task_needs_the_settings_of_its_own_stores_only(tmp_path: Path) -> None:
    """`customers` is a global store, of which the bytes do not tell whether a processor fills it."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    dump = Path(__file__).resolve().parents[2] / "examples" / "dump"
    restore = ("restore", app, "--from-changelog", dump, "--for", "4.3", "--engine", "local", "--dry-run")
    assert "source of customers: the files do not show" in kstate_here(*restore, status=4).err
    for task in ("0_0", "0_1"):
        kstate_here(*restore, "--task", task, "--rebuild", status=0)
    assert "source of customers: the files do not show" in kstate_here(*restore, "--task", "global", status=4).err
    assert "defect" not in kstate_here(*restore, "--task", "nothing", status=4).err

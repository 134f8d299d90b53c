"""Hints about rights, carried out: what they name lets the command do its work, and every file keeps its owner."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden import unpack

from .support import public_folder
from .warm import ROOT

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="two users are needed, and root to become them"
)
USER = 54322
"""The user of the application. Its rights count, but for passing the folder of pytest and that of the interpreter."""


def _kstate(*argv: object, as_root: bool) -> subprocess.CompletedProcess[str]:
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    code = "import sys; sys.argv[0] = 'kstate'; from kstate_cli.cli.app import main; main()"
    python = [sys.executable, "-c", code] if as_root else [*become, *_interpreter(), "-c", code]
    return subprocess.run(
        [*python, *map(str, argv)], cwd="/", capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1",
             "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )  # fmt: skip


def _succeeds(words: list[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _interpreter() -> list[str]:
    """A Python of this version that the other user may run; the test is skipped without one."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        check = [f"--reuid={USER}", "--clear-groups", path, "-c", "import sys; sys.path += sys.argv[1:]; import typer"]
        if os.path.exists(path) and _succeeds(["setpriv", *check, *sys.path]):
            return [path]
    pytest.skip("no Python of this version that another user may run")


@pytest.fixture
def app() -> Iterator[Path]:
    """An application of the other user, in a `state.dir` of that user."""
    with public_folder() as folder:
        app = unpack("4.3.1-demo-eos", folder / "state")
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(app.parent)], check=True)
        yield app


def _owners(app: Path) -> set[int]:
    return {path.lstat().st_uid for path in app.rglob("*")}


def test_a_state_dir_of_root(app: Path) -> None:
    """The application may be changed, its `state.dir` not: both ways that the hint names."""
    os.chown(app.parent, 0, 0)
    app.parent.chmod(0o755)
    process = _kstate("migrate", app, "--to", "4.2", as_root=False)
    assert process.returncode == 4, process.stderr
    assert "Run the command as root, and the files keep their owners" in process.stderr
    (right, place) = re.findall(
        r"or grant \S+ \S* ?the permission ([rwx]+) on (\S+)", process.stderr.replace("user ", "")
    )[0]
    assert Path(place) == app.parent

    result = _kstate("migrate", app, "--to", "4.2", as_root=True)
    assert result.returncode == 0, result.stderr
    assert _owners(app) == {USER}
    undone = _kstate("undo", app, as_root=True)
    assert undone.returncode == 0, undone.stderr
    assert _owners(app) == {USER}

    subprocess.run(["chmod", f"o+{right}", place], check=True)
    subprocess.run(["rm", "-rf", str(app.parent / ".kstate")], check=True)  # of root, as its state.dir was
    result = _kstate("migrate", app, "--to", "4.2", as_root=False)
    assert result.returncode == 0, result.stderr


def test_a_file_of_another_user(app: Path) -> None:
    """This user cannot keep its owner: `--copy` copies the files, which are this user's then, and root keeps owners."""
    file = min(app.rglob("OPTIONS-*"))
    os.chown(file, 0, 0)
    file.chmod(0o644)
    process = _kstate("migrate", app, "--to", "4.2", as_root=False)
    assert process.returncode == 4 and "run kstate as root or pass --copy" in process.stderr, process.stderr
    result = _kstate("migrate", app, "--to", "4.2", as_root=True)
    assert result.returncode == 0, result.stderr
    result = _kstate("undo", app, as_root=True)
    assert result.returncode == 0, result.stderr
    assert _owners(app) == {USER, 0}
    subprocess.run(["rm", "-rf", str(app.parent / ".kstate")], check=True)
    result = _kstate("migrate", app, "--to", "4.2", "--copy", as_root=False)
    assert result.returncode == 0, result.stderr
    assert _owners(app) == {USER}

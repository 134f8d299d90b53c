"""The wheel and the sdist, built once from what is tracked, and an environment with nothing but the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from . import man_pages

ROOT = Path(__file__).resolve().parents[2]


def tracked_files() -> list[str]:
    """Paths of all files of the repository."""
    output = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def clone(folder: Path, *, tests: bool = True) -> None:
    """The files as they are now, as a clone has them, with manual pages; and what running an example leaves beside it.

    ``tests``: with all tests, not those alone that a release runs.
    """
    for name in tracked_files():
        if (
            not tests
            and name.startswith("tests/")
            and not name.startswith("tests/packaging/")
            and name != "tests/__init__.py"
        ):
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    for text in ("examples/serdes/__pycache__/avro_serde.cpython-311.pyc", "kstate_cli/__pycache__/clock.pyc"):
        (folder / text).parent.mkdir(exist_ok=True)
        (folder / text).write_bytes(b"left")
    man_pages.main(folder / "man")


@dataclass(frozen=True)
class Built:
    """Where the two are."""

    sdist: Path
    wheel: Path


def build(source: Path, out: Path) -> Built:
    """The sdist, and the wheel from the sdist, not from the repository; with this environment's setuptools."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    process = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return Built(sdist, wheel)


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and of this one's packages all but kstate."""

    environment: Path
    folder: Path
    """Empty: where commands run."""

    def __call__(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        values = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KSTATE", "VIRTUAL"))
        }
        process = subprocess.run(
            [str(self.environment / "bin" / "kstate"), *words],
            cwd=self.folder,
            env={**values, "PATH": f"{self.environment}/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert process.returncode == status, process.stdout + process.stderr
        return process


def install(wheel: Path, folder: Path) -> Installed:
    """Its dependencies come from this environment, by a path alone: an editable kstate there is not followed."""
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "install"]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([*pip, *quiet, str(wheel)], check=True)
    return Installed(environment, empty)

"""kstate on the oldest Python that ``requires-python`` names: every module is imported there, and commands run.

The type checker holds names of modules to that version (``python_version``). It does not see what only running shows:
a generic named tuple, or annotations that are evaluated when a command's options are declared.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from .built import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLDEST = PROJECT["requires-python"].removeprefix(">=")
NOT_NEEDED = {"pyspark"}
"""400 MB that no import of kstate needs: only a run with Spark imports it."""
IMPORTS = """
import importlib, pkgutil, sys
import kstate_cli

def modules(path, prefix):
    for entry in pkgutil.iter_modules(path, prefix):
        if entry.name == "kstate_cli.examples" or entry.name.endswith("__main__"):
            continue
        yield entry.name
        if entry.ispkg:
            yield from modules(importlib.import_module(entry.name).__path__, entry.name + ".")

names = list(modules(kstate_cli.__path__, "kstate_cli."))
failed = []
for name in names:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {error}")
print(sys.version_info[:2], len(names))
sys.exit("\\n".join(failed) or None)
"""


def interpreter() -> str | None:
    """Return a Python of that version that runs, and can make environments."""
    # Managers such as pyenv and uv keep versions side by side, beside the one that runs this.
    side_by_side = sorted(Path(sys.base_prefix).parent.glob(f"*{OLDEST}.*/bin/python{OLDEST}"))
    for python in (shutil.which(f"python{OLDEST}"), *map(str, side_by_side)):
        if python is not None:
            command = [python, "-c", "import ensurepip, lzma, venv"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return python
    return None


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the oldest Python with kstate's dependencies; kstate itself comes from the repository."""
    oldest = interpreter()
    if oldest is None:
        pytest.skip(f"no python{OLDEST} is installed here: the oldest supported version is not tried")
    environment = tmp_path_factory.mktemp("oldest") / "environment"
    subprocess.run([oldest, "-m", "venv", environment], check=True)
    dependencies = [line for line in PROJECT["dependencies"] if re.split(r"[<>=;\s]", line)[0] not in NOT_NEEDED]
    pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    installing = subprocess.run([*pip, *dependencies], capture_output=True, text=True, check=False)
    assert installing.returncode == 0, installing.stderr[-2000:]
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "kstate.pth").write_text(f"{ROOT}\n")
    return environment / "bin" / "python"


def run(python: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python from another folder, without compiled files beside the sources."""
    command = [str(word) for word in (python, "-B", *words)]
    return subprocess.run(command, cwd=python.parents[2], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.rotating(3, "installations")
def test_every_module_is_imported(python: Path) -> None:
    result = run(python, "-c", IMPORTS)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(str(tuple(map(int, OLDEST.split(".")))))
    assert int(result.stdout.split()[-1]) > 200


@pytest.mark.rotating(3, "installations")
def test_every_command_prints_its_help(python: Path) -> None:
    listing = run(python, "-m", "kstate_cli", "--help")
    commands = re.findall(r"^  ([a-z][a-z-]+)  ", listing.stdout, re.MULTILINE)
    assert {"migrate", "query", "restore"} <= {*commands}
    failed = [name for name in commands if run(python, "-m", "kstate_cli", name, "--help").returncode]
    assert not failed


@pytest.mark.rotating(3, "installations")
def test_a_directory_is_migrated_and_queried(python: Path, tmp_path: Path) -> None:
    with tarfile.open(ROOT / "examples" / "orders.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    (app,) = (path.parent for path in tmp_path.rglob("kafka-streams-process-metadata"))
    for words in (
        ["ls", app],
        ["check", app, "--for", "4.2"],
        ["migrate", app, "--to", "4.2", "--warnings-ok"],
        ["verify", app],
        ["undo", app],
    ):
        result = run(python, "-m", "kstate_cli", *words)
        assert result.returncode in (0, 1, 3), (words, result.stderr)
        assert "Traceback" not in result.stderr

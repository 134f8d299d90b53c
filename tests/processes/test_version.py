"""`kstate --version --verbose`: what a bug report needs, told whatever is missing, and without importing it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli import __version__
from kstate_cli.cli import version
from kstate_cli.rocks.errors import RocksError

NAMES = [
    *("installed in", "documentation", "Python", "platform", "rocksdict", "RocksDB", "pyarrow", "PySpark", "Java"),
    *("file system", "KSTATE_ variables"),
]
RUN = """
import sys
from kstate_cli.cli.app import main
try:
    main()
finally:
    heavy = sorted({"pyspark", "py4j", "pyarrow", "numpy", "rich"} & {*sys.modules})
    sys.stderr.write(" ".join(heavy))
"""


def _run(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    values = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    root = str(Path(version.__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-c", RUN, *words],
        cwd=folder,
        env={**values, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.parametrize("words", [("--version", "--verbose"), ("--verbose", "--version")])
def test_verbose_version_has_the_facts_of_a_bug_report(words: tuple[str, ...], tmp_path: Path) -> None:
    run = _run(*words, folder=tmp_path)
    assert (run.returncode, run.stderr) == (0, ""), "nothing that is slow was imported"
    first, *more = run.stdout.splitlines()
    parts = dict(line.split(": ", 1) for line in more)
    assert first == f"kstate {__version__}"
    assert list(parts) == NAMES
    assert re.fullmatch(r"\d+\.\d+\.\d+", parts["RocksDB"]) and parts["rocksdict"].startswith("0.3.")
    assert parts["Python"].startswith(".".join(map(str, sys.version_info[:3])))
    assert parts["file system"].endswith(f", of {tmp_path}")
    assert "unknown" not in run.stdout


def test_without_java(tmp_path: Path) -> None:
    assert "Java: not found on the PATH\n" in _run("--version", "--verbose", folder=tmp_path, PATH="/nowhere").stdout
    run = _run("--version", "--verbose", folder=tmp_path, JAVA_HOME="/no\x1bwhere")
    assert "Java: not found, because JAVA_HOME is /no\\x1bwhere, which has no bin/java\n" in run.stdout


def test_a_failing_fact_hides_no_other_fact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each of them fails by itself: a file system without room, a package that is not there."""

    def broken() -> str:
        raise RocksError("no room\x1b")

    monkeypatch.setitem(version._SURROUNDINGS, "RocksDB", broken)
    monkeypatch.setitem(version._SURROUNDINGS, "PySpark", version._installed("no_such_distribution"))
    parts = dict(line.split(": ", 1) for line in list(version.lines(verbose=True))[1:])
    assert list(parts) == NAMES
    assert parts["RocksDB"] == "unknown: RocksError: no room\\x1b"
    assert parts["PySpark"] == "not installed"
    for name in (*version._SURROUNDINGS,):
        monkeypatch.setitem(version._SURROUNDINGS, name, broken)
    assert len(list(version.lines(verbose=True))) == len(NAMES) + 1


def test_short_as_ever(tmp_path: Path) -> None:
    run = _run("--version", folder=tmp_path, KSTATE_VERBOSE="1", KSTATE_VERSION_VERBOSE="1", KSTATE__VERBOSE="1")
    assert run.stdout == f"kstate {__version__}\n"


def test_it_is_for_the_version_only(tmp_path: Path) -> None:
    run = _run("--verbose", "ls", ".", folder=tmp_path)
    assert run.returncode == 2
    assert "kstate: --verbose works only with --version" in run.stderr
    assert "to see the versions, run kstate --version --verbose" in run.stderr

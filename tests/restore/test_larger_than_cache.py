"""A dump that is larger than the page cache: read around it, and each file compared by the task that reads it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.bench.make_dump import make_dump

from . import support

CODE = """
import runpy, sys
from kstate_cli.dump_reader import digests, direct_file
direct_file.memory_here = lambda: 1000
whole = digests.Digests.compare
def compare(self, expected):
    print(f"compared here: {len(expected)}", file=sys.stderr, flush=True)
    whole(self, expected)
digests.Digests.compare = compare
runpy.run_module("kstate_cli", run_name="__main__")
"""
ENGINES = pytest.mark.parametrize("engine", [("--engine", "local"), ("--engine", "local", "--workers", "2"), ()])


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("larger") / "dump"
    make_dump(folder, support.TOPIC, records=1_400_000, keys=300_000, value_bytes=60, partitions=2)
    return folder


def restore(app: Path, dump: Path, *options: str) -> support.Ended:
    arguments = support.command(app, dump, *options)
    command = [sys.executable, "-c", CODE, *arguments[3:]]
    done = subprocess.run(
        command, env=support.environment(), capture_output=True, text=True, check=False, cwd=app.parent
    )
    return support.Ended(done.returncode, [], done.stderr)


def rotten(dump: Path, folder: Path) -> Path:
    """A copy of it with another bit in a value of its last file."""
    shutil.copytree(dump, folder)
    file = max(folder.rglob("*.parquet"))
    value = pq.read_table(file).column("value")[1_000].as_py()
    data = bytearray(file.read_bytes())
    data[data.index(value)] ^= 1
    file.write_bytes(data)
    return file


@ENGINES
def test_the_same_directory(engine: tuple[str, ...], dump: Path, tmp_path: Path) -> None:
    plain, around = tmp_path / "plain" / support.APP, tmp_path / "around" / support.APP
    for app in (plain, around):
        app.parent.mkdir()
    support.good(support.restore(plain, dump, "--engine", "local"))
    result = restore(around, dump, *engine)
    assert result.status == 0, result.stderr
    assert "compared here: 0\n" in result.stderr
    assert support.digest(around) == support.digest(plain)


@ENGINES
def test_rot_is_told_by_who_reads_it(engine: tuple[str, ...], dump: Path, tmp_path: Path) -> None:
    file = rotten(dump, tmp_path / "dump")
    result = restore(tmp_path / support.APP, tmp_path / "dump", *engine)
    assert result.status == 4, result.stderr
    assert file.name in result.stderr and "its SHA-256 differs" in result.stderr
    assert "Traceback" not in result.stderr
    assert not [*(tmp_path / support.APP).rglob("CURRENT")]
    result = restore(tmp_path / support.APP, tmp_path / "dump", "--skip-digests", "--after-error", *engine)
    assert result.status == 0, result.stderr


def test_what_an_earlier_run_has_finished_is_compared_here(dump: Path, tmp_path: Path) -> None:
    """Its task is not run again, and what was read then may be another file by now."""
    app, copy = tmp_path / support.APP, tmp_path / "dump"
    file = rotten(dump, copy)
    result = restore(app, copy, "--engine", "local")
    assert result.status == 4
    shutil.copy2(next(dump.rglob(file.name)), file)
    result = restore(app, copy, "--engine", "local", "--after-error")
    assert result.status == 0, result.stderr

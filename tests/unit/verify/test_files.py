"""Files that are none, in a database whose CURRENT says where to start, and in one that does not: told, never raised."""

from __future__ import annotations

import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from kstate_cli.limits import MOST_NAME_BYTES
from kstate_cli.statedir.database import read_database
from kstate_cli.statedir.problems import Place, ProblemCode
from kstate_cli.verify.findings import NOT_UNDERSTOOD

from .support import database, rows, verify

PLACE = Place(("0_0", "db"))
STARTS = {
    "whole": None,
    "missing": b"",
    "cut": b"MANIF",
    "garbled": b"\xff\0\n",
    "too large": b"x" * (MOST_NAME_BYTES + 1),
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return database(tmp_path_factory.mktemp("healthy") / "db", rows(10), rows(20, start=10))


def replace(file: Path, kind: str) -> None:
    file.unlink()
    if kind == "link":
        file.symlink_to("/dev/zero")
    elif kind == "directory":
        file.mkdir()
    else:
        os.mkfifo(file)


def begin(path: Path, text: bytes | None) -> None:
    if text is not None:
        (path / "CURRENT").unlink()
    if text:
        (path / "CURRENT").write_bytes(text)


@pytest.mark.parametrize("start", STARTS)
def test_special_files_are_reported_and_not_read(healthy: Path, tmp_path: Path, start: str) -> None:
    names = [min(healthy.glob(pattern)).name for pattern in ("*.sst", "MANIFEST-*", "OPTIONS-*")]
    for number, (name, kind) in enumerate(product(names, ("link", "directory", "FIFO"))):
        path = tmp_path / str(number)
        shutil.copytree(healthy, path)
        begin(path, STARTS[start])
        replace(path / name, kind)
        findings, problems = verify(path).findings, read_database(path, None, PLACE).problems
        assert (NOT_UNDERSTOOD, PLACE / name) in {(finding.code, finding.place) for finding in findings}, (name, kind)
        kinds = {ProblemCode.SPECIAL, ProblemCode.NOT_A_FILE}
        assert PLACE / name in {problem.place for problem in problems if problem.code in kinds}, (name, kind)


@pytest.mark.parametrize("start", STARTS)
def test_truncated_files_are_reported_whatever_current_names(healthy: Path, tmp_path: Path, start: str) -> None:
    path = tmp_path / "db"
    shutil.copytree(healthy, path)
    begin(path, STARTS[start])
    sst = min(path.glob("*.sst"))
    os.truncate(sst, 20)
    results = verify(path).findings, read_database(path, None, PLACE).problems
    for problems in results:
        assert PLACE / sst.name in {problem.place for problem in problems}

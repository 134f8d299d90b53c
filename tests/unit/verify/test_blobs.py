"""Blob files: damage is named by the file that has it, and no SST is judged without them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from kstate_cli.statedir.database import read_database
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.verify.findings import CORRUPT, MISSING, TRUNCATED

from .support import FAMILIES, options, verify
from .test_files import PLACE

_RECORD_HEADER = 32


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three SSTs with a blob file each, whose keys overlap, and one without."""
    path = tmp_path_factory.mktemp("blobs") / "db"
    with_blobs = options()
    with_blobs.set_enable_blob_files(True)
    with_blobs.set_min_blob_size(20)
    db = Rdict(str(path), with_blobs, column_families=dict.fromkeys(FAMILIES, with_blobs))
    family = db.get_column_family("default")
    for run in range(3):
        for number in range(run * 10, run * 10 + 15):
            family[b"key-%03d" % number] = b"value-%d-%03d" % (run, number) * 4
        family.flush()
    family[b"short"] = b"a"
    family.flush()
    del family
    db.close()
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    return path


def _remove(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def _longer(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def _flip_byte(at: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return flip


DAMAGES = {
    "missing": (_remove, MISSING),
    "cut off": (_cut, TRUNCATED),
    "longer": (_longer, CORRUPT),
    "header": (_flip_byte(2), CORRUPT),
    "expiration": (_flip_byte(29), CORRUPT),
    "record header": (_flip_byte(30 + 1), CORRUPT),
    "key": (_flip_byte(30 + _RECORD_HEADER), CORRUPT),
    "value": (_flip_byte(30 + _RECORD_HEADER + 10), CORRUPT),
    "record checksum": (_flip_byte(30 + _RECORD_HEADER - 1), CORRUPT),
    "footer": (_flip_byte(-30), CORRUPT),
}


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_by_its_blob_file(healthy: Path, tmp_path: Path, damage: str, number: int) -> None:
    path = tmp_path / "db"
    shutil.copytree(healthy, path)
    blob = sorted(path.glob("*.blob"))[number]
    apply, code = DAMAGES[damage]
    apply(blob)
    for each in (False, True):
        assert [(finding.code, finding.place, finding.among) for finding in verify(path, each=each).findings] == [
            (code, PLACE / blob.name, ())
        ]
    problems = read_database(path, None, PLACE).problems
    if damage in ("missing", "cut off", "longer"):
        assert [(problem.code, problem.place) for problem in problems] == [(ProblemCode.BLOB, PLACE / blob.name)]


def test_no_sst_is_judged_without_its_blob_files(healthy: Path) -> None:
    """Read alone it would be without the values that it refers to."""
    report = verify(healthy, each=True)
    assert (report.findings, report.rows) == ((), 36)
    (remark,) = report.remarks
    assert remark.count(".sst") == 3


def test_another_sst_that_is_damaged_does_not_blame_those_with_blobs(healthy: Path, tmp_path: Path) -> None:
    path = tmp_path / "db"
    shutil.copytree(healthy, path)
    last = max(path.glob("*.sst"))
    _flip_byte(5)(last)
    assert {finding.place for finding in verify(path).findings} == {PLACE / last.name}

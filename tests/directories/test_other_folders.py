"""Stores whose SSTs are in other folders: `setDbPaths` and `setCfPaths` of a `rocksdb.config.setter`, which no file names.

kstate neither opens such a database nor calls it damaged, and never advises to delete it.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from rocksdict import DBPath, Env, Options, Rdict, WriteOptions

from kstate_cli.formats.metadata_files import live_tables, may_have_paths
from kstate_cli.rocks.files import CURRENT, is_sst, sst_number
from kstate_cli.rocks.shadow import Shadow
from tests.golden import unpack

from .store_options import databases
from .support import kstate_here, tree_hash

pytestmark = pytest.mark.rotating(4)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STORE = Path("0_0/rocksdb/latest-order")
_FLUSHES = 8
_SECONDS = 300


def _manifest(database: Path) -> bytes:
    return (database / (database / CURRENT).read_text().strip()).read_bytes()


def _ssts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if is_sst(path.name))


def _fill(database: Path, folders: list[DBPath], second: Path) -> None:
    """Open the database with its folders, and write until RocksDB has put an SST into the second one."""
    options, families = Options.load_latest(str(database), Env(), True)
    options.set_db_paths(folders)
    rdict = Rdict(str(database), options, column_families=families)
    writing = WriteOptions()
    writing.disable_wal = True  # type: ignore[method-assign,assignment]
    family = rdict.get_column_family("keyValueWithTimestamp")
    family.set_write_options(writing)
    rows = list(family.items())
    before, end = _ssts(second), time.monotonic() + _SECONDS
    while _ssts(second) == before and time.monotonic() < end:
        for _ in range(_FLUSHES):
            for key, value in rows:
                family[key] = value
            family.flush()
        time.sleep(0.1)
    del family
    rdict.close()
    (database / "rocksdict-config.json").unlink(missing_ok=True)
    assert any(path for tables in live_tables(_manifest(database)).values() for path in tables.values())


def _larger_folder(database: Path, other: Path) -> None:
    """The first folder is the directory of the database, and larger SSTs are in the second."""
    _fill(database, [DBPath(str(database), 1), DBPath(str(other), 1 << 40)], other)


def _directory_second(database: Path, other: Path) -> None:
    """The directory of the database is the second folder."""
    for path in _ssts(database):
        shutil.move(path, other)
    _fill(database, [DBPath(str(other), 1), DBPath(str(database), 1 << 40)], database)


def _all_elsewhere(database: Path, other: Path) -> None:
    """One folder, which is another one: each path id is 0."""
    for path in _ssts(database):
        shutil.move(path, other)


def _move_family(database: Path, other: Path) -> None:
    """`setCfPaths`: Streams gives the column family `offsets` options of its own."""
    with Shadow(database) as shadow:
        names = [file.name for file in shadow.live_files("keyValueWithTimestamp")]
    for name in names:
        shutil.move(database / name, other)
    assert _ssts(database)


LAYOUTS = (_larger_folder, _directory_second, _all_elsewhere, _move_family)


@pytest.mark.sample(2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ssts_in_other_folders_are_unknown(layout: object, tmp_path: Path) -> None:
    """Each command answers "unknown" with the reason, or refuses with it; nothing is changed."""
    app, other = unpack("4.3.1-demo-eos", tmp_path), tmp_path / "other"
    other.mkdir()
    assert callable(layout)
    layout(app / STORE, other)
    assert _ssts(other)
    before = tree_hash(app)

    findings = [row for row in kstate_here("verify", app, "-o", "json", status=4).rows if row["type"] == "finding"]
    assert {(row["code"], row["level"]) for row in findings} == {
        ("no-ssts" if layout in (_all_elsewhere, _move_family) else "not-understood", "unknown")
    }
    assert all("setDbPaths" in row["message"] for row in findings)
    rows = kstate_here("check", app, "--for", "4.3", "-o", "json", status=3).rows
    outcomes = {row["outcome"] for row in rows if row["type"] == "prediction" and row["task"] == "0_0"}
    assert outcomes == {"unknown"}
    restoring = ("--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3")
    runs = [
        kstate_here("verify", app, status=4),
        kstate_here("ls", app, status=3),
        kstate_here("check", app, "--for", "4.3", status=3),
        kstate_here("migrate", app, "--to", "4.2", status=4),
        kstate_here("restore", app, *restoring, "--engine", "local", "--warnings-ok", status=4),
        kstate_here("query", "range", app, "latest-order", status=6),
    ]
    for run in runs:
        assert not any(
            word in run.out + run.err for word in ("kstate wipe", "kstate: damaged", "is missing", "corrupted")
        )
    for run in (runs[1], *runs[3:]):
        assert "setDbPaths" in run.err
    assert tree_hash(app) == before

    wiped = kstate_here("wipe", app, "--store", "latest-order", "--task", "0_0", "--dry-run", status=1)
    assert "may have files in other folders" in wiped.err
    printed = [line.split() for line in runs[0].err.splitlines() if line.startswith("    kstate explain ")]
    assert printed
    for words in printed:
        assert kstate_here(*words[1:]).out
    explained = kstate_here("explain", "no-ssts").out
    assert "setCfPaths" in explained and "kstate wipe" in explained


def test_a_lost_sst_beside_others_is_missing(tmp_path: Path) -> None:
    """RocksDB stores the SSTs of a family with one path id in one folder: where others are here, it was removed."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    options, families = Options.load_latest(str(app / STORE), Env(), True)
    rdict = Rdict(str(app / STORE), options, column_families=families)
    family = rdict.get_column_family("keyValueWithTimestamp")
    for key, value in list(family.items()):
        family[key] = value
    family.flush()
    del family
    rdict.close()
    (app / STORE / "rocksdict-config.json").unlink()
    with Shadow(app / STORE) as shadow:
        names = [file.name for file in shadow.live_files("keyValueWithTimestamp")]
    assert len(names) > 1
    (app / STORE / names[0]).unlink()
    findings = [row for row in kstate_here("verify", app, "-o", "json", status=3).rows if row["type"] == "finding"]
    assert [row["code"] for row in findings] == ["missing"]


@pytest.mark.parametrize("name", ["3.2.3-kinds-eos", "4.3.1-headers-eos"])
def test_the_manifest_is_read_as_rocksdb_reads_it(name: str, tmp_path: Path) -> None:
    """Every database of real releases: the same SSTs, with path id 0."""
    paths = databases(unpack(name, tmp_path))
    assert paths
    for path in paths:
        with Shadow(path) as shadow:
            names = {file.name for family in shadow.column_families for file in shadow.live_files(family)}
        tables = live_tables(_manifest(path)).values()
        assert {number for family in tables for number in family} == {sst_number(sst) for sst in names}
        assert not any(path_id for family in tables for path_id in family.values())
        assert not may_have_paths(_manifest(path))

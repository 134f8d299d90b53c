"""Damaged directories under every command that only reads: none of them says that all is well."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.command_result import CommandResult
from tests.golden import unpack

from .support import kstate_here, tree_hash
from .test_cold import EXAMPLES

pytestmark = pytest.mark.rotating(6)

STORE = "latest-order"
SEGMENTS = "orders-per-minute"


def _database(app: Path) -> Path:
    return app / "0_0/rocksdb" / STORE


def _sst(app: Path) -> Path:
    """The one with rows: the largest."""
    return max(_database(app).glob("*.sst"), key=lambda path: path.stat().st_size)


def _manifest(app: Path) -> Path:
    return _database(app) / (_database(app) / "CURRENT").read_text().strip()


def manifest_cut_between_records(app: Path) -> None:
    """The first records alone: RocksDB opens the store as it was before any row came."""
    data = _manifest(app).read_bytes()
    ends, at = [], 0
    while at < len(data):
        at += 7 + int.from_bytes(data[at + 4 : at + 6], "little")
        ends.append(at)
    assert len(data) < 32768 and ends[-1] == len(data)
    # The longest part that does not name the last SST.
    name = int(max(_database(app).glob("*.sst")).stem)
    for end in reversed(ends[:-1]):
        _manifest(app).write_bytes(data[:end])
        rows = kstate_here("verify", app, "--store", STORE, "-o", "json", status=None).rows
        if any(f"{name:06d}.sst" in str(row.get("remarks")) for row in rows):
            return
    raise AssertionError("no part of the MANIFEST leaves it out")


def manifest_cut_within_a_record(app: Path) -> None:
    _manifest(app).write_bytes(_manifest(app).read_bytes()[:-3])


def manifest_gone(app: Path) -> None:
    _manifest(app).unlink()


def current_gone(app: Path) -> None:
    (_database(app) / "CURRENT").unlink()


def sst_gone(app: Path) -> None:
    _sst(app).unlink()


def sst_cut(app: Path) -> None:
    os.truncate(_sst(app), _sst(app).stat().st_size - 10)


def byte_flipped(app: Path) -> None:
    data = bytearray(_sst(app).read_bytes())
    data[20] ^= 0xFF
    _sst(app).write_bytes(data)


def options_gone(app: Path) -> None:
    for path in _database(app).glob("OPTIONS-*"):
        path.unlink()


def sst_is_a_dangling_link(app: Path) -> None:
    path = _sst(app)
    path.unlink()
    path.symlink_to("/nowhere/000001.sst")


def position_unreadable(app: Path) -> None:
    (app / f"0_0/{STORE}.position").write_text("0\n1\nx 0\n")


def checkpoint_unreadable(app: Path) -> None:
    (app / "0_0/.checkpoint").write_text("0\n2\nx 0 5\n")


def task_is_a_dangling_link(app: Path) -> None:
    shutil.rmtree(app / "0_1")
    (app / "0_1").symlink_to("/nowhere/0_1")


def task_is_a_link(app: Path) -> None:
    (app / "0_1").rename(app.parent / "elsewhere")
    (app / "0_1").symlink_to(app.parent / "elsewhere")


def task_is_a_file(app: Path) -> None:
    shutil.rmtree(app / "0_1")
    (app / "0_1").touch()


def rocksdb_is_a_dangling_link(app: Path) -> None:
    shutil.rmtree(app / "0_0/rocksdb")
    (app / "0_0/rocksdb").symlink_to("/nowhere/rocksdb")


def store_is_a_dangling_link(app: Path) -> None:
    shutil.rmtree(_database(app))
    _database(app).symlink_to("/nowhere/store")


DAMAGES: list[Callable[[Path], None]] = [
    manifest_cut_between_records, manifest_cut_within_a_record, manifest_gone, current_gone, sst_gone, sst_cut,
    byte_flipped, options_gone, sst_is_a_dangling_link, position_unreadable, checkpoint_unreadable,
    task_is_a_dangling_link, task_is_a_link, task_is_a_file, rocksdb_is_a_dangling_link, store_is_a_dangling_link,
]  # fmt: skip
READERS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "ls": lambda app, _: ("ls", app, "-o", "json"),
    "inspect-position": lambda app, _: ("inspect-position", app),
    "lag": lambda app, _: ("lag", app, "--dump", EXAMPLES / "dump"),
    "query": lambda app, _: ("query", "range", app, STORE),
    "export": lambda app, out: ("export", app, STORE, "--out", out / "out"),
    "diff": lambda app, out: ("diff", app, out / "healthy" / app.name),
    "check": lambda app, _: ("check", app, "--for", "4.3", "-o", "json"),
    "verify": lambda app, _: ("verify", app, "--workers", 1),
    "migrate": lambda app, _: ("migrate", app, "--to", "4.2", "--dry-run"),
}
NO_MATTER: dict[Callable[[Path], None], set[str]] = {
    # Offsets are no part of the rows, and these commands show nothing else.
    checkpoint_unreadable: {"query", "export", "diff"},
    # These read no blocks of rows but the first and the last; docs/check.md and verify say who does.
    byte_flipped: {"inspect-position", "lag", "check", "migrate"},
    # RocksDB reads the rows without it: they are whole. verify says so in a remark.
    options_gone: {"verify"},
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_no_reader_says_that_all_is_well(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    shutil.copytree(app, tmp_path / "healthy" / app.name)
    damage(app)
    before = tree_hash(app)
    silent: dict[str, CommandResult] = {}
    messages: dict[str, CommandResult] = {}
    for name, arguments in READERS.items():
        result = messages[name] = kstate_here(*arguments(app, tmp_path), status=None)
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        if name in NO_MATTER.get(damage, ()):
            continue
        if result.status == 0 or not (result.err.strip() or name in ("check", "verify")):
            silent[name] = result
    # What "ls" says of a release is never better than what "check" says.
    fails = {(row["task"], row["store"]) for row in messages["check"].rows if row.get("outcome") == "start-fails"}
    for row in (row for row in messages["ls"].rows if row["type"] == "store"):
        assert (row["task"], row["store"]) not in fails or "4.3" not in row["opens_in"], row
    assert not silent
    assert tree_hash(app) == before


def test_undamaged_all_is_well(tmp_path: Path) -> None:
    """Or the sweep could not fail."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    shutil.copytree(app, tmp_path / "healthy" / app.name)
    for arguments in READERS.values():
        kstate_here(*arguments(app, tmp_path), status=0)

"""What kstate does not understand it refuses: a clear message, its exit code, nothing touched, no traceback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from tests.golden import unpack

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(4)

MALFORMED = {
    "empty": "",
    "no second line": "0\n",
    "version": "1\n0\n",
    "two fields": "0\n1\ntopic 0\n",
    "blank line": "0\n1\ntopic 0 5\n\n",
    "leading blank": "0\n1\n topic 0 5\n",
    "count": "0\n2\ntopic 0 5\n",
    "duplicate": "0\n2\ntopic 0 5\ntopic 0 6\n",
    "number": "0\n1\ntopic zero 5\n",
    "header": "zero\n1\ntopic 0 5\n",
}


def _refusal_text(app: Path, *target: str, status: int = 4) -> str:
    before = tree_hash(app.parent)
    result = kstate("migrate", app, "--to", *target, status=status)
    assert tree_hash(app.parent) == before
    # Reading goes on, shows what is wrong, and does not end as if nothing were.
    names = kstate("ls", app, status=None)
    assert names.status == (3 if "cannot migrate the directory in its current state" in result.err else 0), names.err
    assert tree_hash(app.parent) == before
    return result.err


@pytest.mark.sample(4)
@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_offset_files(tmp_path: Path, text: str) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    task = next(p.parent for p in app.glob("*/.checkpoint") if p.parent.name != "global")
    (task / ".checkpoint").write_text(text)
    assert f"{task.name}/.checkpoint" in _refusal_text(app, "4.3")
    (task / ".checkpoint").write_text("0\n1\ntopic 0 5\n")
    store = next((task / "rocksdb").iterdir()).name
    (task / f"{store}.position").write_text(text)
    assert f"{store}.position" in _refusal_text(app, "4.3")


def _store(app: Path) -> Path:
    return app / "0_0/rocksdb/latest-order"


def _unknown_family(store: Path) -> None:
    names = Rdict.list_cf(str(store))
    db = Rdict(str(store), Options(raw_mode=True), column_families={n: Options(raw_mode=True) for n in names})
    db.create_column_family("mine", Options(raw_mode=True))
    db.close()


def _truncated_manifest(store: Path) -> None:
    manifest = min(store.glob("MANIFEST-*"))
    os.truncate(manifest, manifest.stat().st_size // 2)


def _missing_sst(store: Path) -> None:
    max(store.glob("*.sst")).unlink()


def _too_new(store: Path) -> None:
    sst = max(store.glob("*.sst"))
    data = bytearray(sst.read_bytes())
    data[-12] = 7
    sst.write_bytes(bytes(data))


def _no_current(store: Path) -> None:
    (store / "CURRENT").unlink()


def _foreign_file(store: Path) -> None:
    (store / "9.sst").symlink_to("/etc/hostname")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (_unknown_family, "unknown column family mine"),
        (_truncated_manifest, "latest-order"),
        (_missing_sst, "SSTs that the MANIFEST lists is in this directory"),
        (_too_new, "format"),
        (_no_current, "CURRENT"),
        (_foreign_file, "9.sst"),
    ],
)
def test_damaged_databases(tmp_path: Path, damage: Callable[[Path], None], text: str) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    damage(_store(app))
    assert text in _refusal_text(app, "4.2")


@pytest.mark.parametrize(("name", "target"), [("4.3.1-demo-eos", "3.9"), ("4.3.1-headers-eos", "4.2")])
def test_a_flipped_byte_fails_a_rewrite_and_names_the_file(tmp_path: Path, name: str, target: str) -> None:
    app = unpack(name, tmp_path)
    sst = max(app.glob("0_0/rocksdb/*/*.sst"), key=lambda p: p.stat().st_size)
    data = bytearray(sst.read_bytes())
    data[10] ^= 0xFF
    sst.write_bytes(bytes(data))
    result = kstate("migrate", app, "--to", target, "--drop-headers", "--warnings-ok", status=None)
    assert result.status in (4, 6)
    assert sst.name in result.err
    assert max(app.glob("0_0/rocksdb/*/*.sst"), key=lambda p: p.stat().st_size).read_bytes() == bytes(data)
    assert not list((tmp_path / ".kstate").rglob("tree"))


def test_entries_that_streams_would_choke_on(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    junk = app / "0_0/visits/junk"
    junk.mkdir()
    assert "0_0/visits/junk" in _refusal_text(app, "4.2")
    junk.rmdir()
    os.rename(app / "0_1", tmp_path / "elsewhere")
    (app / "0_1").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in _refusal_text(app, "4.2")


def test_paths_that_are_none(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "a")
    kstate("ls", tmp_path / "nowhere", status=2)
    (tmp_path / "empty").mkdir()
    kstate("migrate", tmp_path / "empty", "--to", "4.2", status=2)
    kstate("migrate", app / ".lock", "--to", "4.2", status=2)
    kstate("migrate", app, "--to", "5.9", status=2)
    (tmp_path / "link").symlink_to(app)
    kstate("ls", tmp_path / "link", status=4)
    kstate("ls", app.parent)  # a state.dir that holds one application
    shutil.copytree(app, app.parent / "other")
    assert "several" in kstate("ls", app.parent, status=2).err


def test_hostile_names_are_escaped_and_refused(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    (app / "0_0/rocksdb" / "\x1b[31mred").mkdir()
    error = _refusal_text(app, "4.2")
    assert "\x1b" not in error
    assert "red" in error

"""Files that operating systems, file systems, editors, backup tools and Kubernetes leave in a state directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden import unpack

from .support import kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STORE = Path("0_0/rocksdb/latest-order")
WINDOW = Path("0_0/orders-per-minute/orders-per-minute.1704067200000")

FILES = (
    ".DS_Store", "._.checkpoint", "._latest-order.position", "Thumbs.db", "desktop.ini", ".nfs000000000123abcd00000001",
    ".fuse_hidden0000000100000002", ".checkpoint~", "latest-order.position~", "#.checkpoint#", ".#.checkpoint",
    "..checkpoint.swp", ".checkpoint_latest-order~", "CURRENT~", ".CURRENT.swp",
)  # fmt: skip
FOLDERS = (
    "lost+found", ".Spotlight-V100", ".Trashes", ".fseventsd", ".AppleDouble", "$RECYCLE.BIN",
    "System Volume Information", "@eaDir", ".snapshot", ".zfs", ".Trash-1000", "..2026_11_26_10_00_00.123456789",
)  # fmt: skip
IN_DATABASES = (
    *FILES, "._000011.sst", "000011.sst~", "#000011.sst#", ".000011.sst.swp", "000011.sst.bak", "copy of 000011.sst",
    "x.sst", "x.blob", "x.log", "000011.sst.trash", "MANIFEST-000005~", "MANIFEST-", "._MANIFEST-000005", "OPTIONS-99~",
    "OPTIONS-000099.orig", "._OPTIONS-000099", "٣.sst", "MANIFEST-٣",
)  # fmt: skip
"""RocksDB takes none of them for one of its own."""


def _leave(folder: Path, files: tuple[str, ...] = (), folders: tuple[str, ...] = ()) -> None:
    for name in files:
        (folder / name).write_bytes(b"\x00\x05\x16\x07 not what its name says")
    for name in folders:
        (folder / name).mkdir()
        (folder / name / "000012.sst").write_bytes(b"not one of a database")
    (folder / "..data").symlink_to(folders[-1] if folders else "nowhere")


def _in_the_application(app: Path) -> None:
    _leave(app, FILES, FOLDERS)


def _in_a_task(app: Path) -> None:
    _leave(app / "0_0", FILES, FOLDERS)


def _among_stores(app: Path) -> None:
    _leave(app / "0_0/rocksdb", FILES, FOLDERS)


def _in_a_database(app: Path) -> None:
    for database in (STORE, WINDOW):
        _leave(app / database, IN_DATABASES, FOLDERS)


def _contents(app: Path) -> dict[tuple[str, str], tuple[int, str]]:
    rows = kstate_here("verify", app, "-o", "json").rows
    assert not [row for row in rows if row["type"] == "finding"]
    return {(row["task"], row["store"]): (row["rows"], row["digest"]) for row in rows if row["type"] == "store"}


def _outcomes(app: Path, status: int | None) -> dict[tuple[str, str], str]:
    rows = kstate_here("check", app, "--for", "4.3", "-o", "json", status=status).rows
    return {(row["task"], row["store"]): row["outcome"] for row in rows if row["type"] == "prediction"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("leave", [_in_the_application, _in_a_task, _among_stores, _in_a_database])
def test_files_of_others_are_no_part_of_the_state(leave: Callable[[Path], None], tmp_path: Path) -> None:
    """No table, task, store, offset or damage; a change carries them along."""
    template = unpack("4.3.1-demo-eos", tmp_path / "template")
    contents, outcomes = _contents(template), _outcomes(template, 0)
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    leave(app)
    before = tree_hash(app)
    # In a task Streams counts them: under exactly-once one without offsets is wiped.
    kstate_here("ls", app, status=0)
    assert _contents(app) == contents
    assert _outcomes(app, None) == outcomes
    assert tree_hash(app) == before
    for release in ("4.2", "3.9", "4.3"):
        assert kstate_here("migrate", app, "--to", release, status=None).status in (0, 1)
        assert _contents(app) == contents
    # RocksDB removes its trash and old OPTIONS files, and takes every name that begins as theirs for one of them.
    names = {name for name in (*IN_DATABASES, *FOLDERS) if not name.startswith("OPTIONS-")}
    remainder = {path for path in before if Path(path).name in names - {"000011.sst.trash", "lost+found"}}
    assert remainder <= tree_hash(app).keys()
    for _ in range(3):
        kstate_here("undo", app)
    assert {path: entry[0] for path, entry in tree_hash(app).items()} == {
        path: entry[0] for path, entry in before.items()
    }


def test_a_folder_that_only_looks_foreign_is_a_store(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    (app / STORE).rename(app / STORE.parent / ".snapshot")
    names = {row["store"] for row in kstate_here("ls", app, "-o", "json", status=None).rows if row["type"] == "store"}
    assert ".snapshot" in names


@pytest.mark.sample(2)
@pytest.mark.parametrize("place", ["store", "segmented store", "segment", "file of a database", "task"])
def test_a_store_behind_a_link_is_unknown(place: str, tmp_path: Path) -> None:
    """It was moved to another volume, and a link was left in its place: Streams opens it, and nothing is missing."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    places = {
        "store": STORE,
        "segmented store": WINDOW.parent,
        "segment": WINDOW,
        "file of a database": STORE / max(name for name in os.listdir(app / STORE) if name.endswith(".sst")),
        "task": Path("0_0"),
    }
    path = app / places[place]
    moves = tmp_path / "elsewhere" / path.name
    moves.parent.mkdir()
    shutil.move(path, moves)
    path.symlink_to(moves)
    before = tree_hash(app)
    outcomes = _outcomes(app, 3)
    of_task = {outcome for (task, _), outcome in outcomes.items() if task == "0_0"}
    assert of_task == (set() if place == "task" else {"unknown"})
    checked = kstate_here("check", app, "--for", "4.3", status=3)
    assert "wipe" not in checked.out
    assert "missing" not in checked.out
    verified = kstate_here("verify", app, "-o", "json", status=4)
    assert {row["level"] for row in verified.rows if row["type"] == "finding"} == {"unknown"}
    result = kstate_here(
        "restore", app, "--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3",
        "--engine", "local", "--warnings-ok", status=4,
    )  # fmt: skip
    assert "is a symbolic link" in result.err
    kstate_here("migrate", app, "--to", "4.2", status=4)
    assert tree_hash(app) == before


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may read everything")
def test_a_folder_of_the_file_system_that_only_root_reads_stops_nothing(tmp_path: Path) -> None:
    """`lost+found` of a volume that was copied, or is mounted, as the application directory."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    (app / "lost+found").mkdir(mode=0)
    for command in (
        ["migrate", str(app), "--to", "4.2"],
        ["undo", str(app)],
        ["migrate", str(app), "--to", "4.2"],
        ["clean", str(app)],
    ):
        line = [sys.executable, "-m", "kstate_cli", *command]
        if os.geteuid() == 0:
            line = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all", *line]
        result = subprocess.run(line, capture_output=True, text=True, check=False)
        assert result.returncode == 0, (command, result.stderr)
    assert not (tmp_path / ".kstate" / app.name).exists()

"""``migrate``, ``undo``, ``clean`` on golden directories; what real releases do with the result is in tests/interop."""

from __future__ import annotations

import difflib
import itertools
import os
import shutil
from pathlib import Path

import pytest

from kstate_cli.change.folder import create_run
from kstate_cli.change.marks import STAGED, put_mark
from kstate_cli.cli.views.stores import span
from kstate_cli.formats import sst
from kstate_cli.rocks.files import newest_options
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.database import is_database
from tests.golden import unpack

from .changes import Change
from .support import FROM_4_3, data_rows, kstate, meaning, tree_hash

pytestmark = pytest.mark.rotating(6)

CHANGE = Change(words=("--to", "4.2"), warned=("--to", "4.2"))


def _positions(app: Path) -> dict[str, object]:
    rows = kstate("inspect-position", app, "-o", "json").rows
    return {f"{r['task']}/{r['store']}": (r["position"], r["changelog"]) for r in rows}


@pytest.mark.parametrize("guarantee", ["alos", "eos"])
def test_there_and_back_keeps_rows_offsets_and_positions(tmp_path: Path, guarantee: str) -> None:
    app = unpack(f"4.3.1-kinds-{guarantee}", tmp_path)
    rows, positions = data_rows(app), _positions(app)
    for target in ("4.2", "4.3", "3.9", "4.3"):
        kstate("migrate", app, "--to", target, "--warnings-ok", "--verify", "full")
        assert data_rows(app) == rows
        assert _positions(app) == positions
        assert "nothing to do" in kstate("migrate", app, "--to", target).err
        files = {str(p.relative_to(app)) for p in app.rglob("*") if p.name.startswith(".checkpoint")}
        assert any(name.endswith("/.checkpoint") for name in files) == (target != "4.3")
        assert any("grace-join-Buffer" in name for name in files) == (target == "4.3")


def test_every_pair_of_releases(tmp_path: Path) -> None:
    """From the 4.3 layout to each release, from there to each other: rows and offsets never change."""
    app = unpack("4.3.1-demo-eos", tmp_path)
    rows, positions = data_rows(app), _positions(app)
    for source, target in itertools.product(["3.6", "3.9", "4.1", "4.2", "4.3"], ["3.9", "4.3"]):
        kstate("migrate", app, "--to", source, "--warnings-ok", "--quiet")
        kstate("migrate", app, "--to", target, "--warnings-ok", "--quiet")
        assert (data_rows(app), _positions(app)) == (rows, positions), (source, target)
        formats = {f for r in kstate("ls", app, "-o", "json").rows for f in r["sst_formats"]}
        assert target == "4.3" or all(target in r["opens_in"] for r in kstate("ls", app, "-o", "json").rows), formats


def test_undo_gives_the_very_directory_back(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    before, inode = meaning(app), app.stat().st_ino
    kstate("migrate", app, "--to", "3.9", status=1)  # kv-nolog has no offset anywhere: named, exit 1
    assert app.stat().st_ino != inode
    kstate("undo", app)
    assert (meaning(app), app.stat().st_ino) == (before, inode)
    assert "nothing to undo" in kstate("undo", app).err
    kstate("clean", app, "--older-than", "7d")
    assert (tmp_path / ".kstate").exists()
    kstate("clean", app)
    assert not (tmp_path / ".kstate").exists()
    assert meaning(app) == before


def test_undo_is_refused_once_the_directory_has_changed(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    kstate("migrate", app, "--to", "4.2")
    current = min(app.glob("0_0/rocksdb/*/CURRENT"))
    os.utime(current)
    result = kstate("undo", app, status=4)
    assert str(current.relative_to(app)) in result.err
    assert "--to 4.3" in result.err
    kstate("undo", app, "--discard-newer")
    assert all(r["opens_in"] == FROM_4_3 for r in kstate("ls", app, "-o", "json").rows)


def test_a_dry_run_prints_the_plan_that_runs(tmp_path: Path) -> None:
    app = unpack("4.2.1-kinds-eos", tmp_path)
    planned = kstate("migrate", app, "--to", "4.3", "--dry-run", "-o", "json", "--warnings-ok")
    run = kstate("migrate", app, "--to", "4.3", "-o", "json", "--warnings-ok")
    assert planned.rows == run.rows
    assert (planned.summary["executed"], run.summary["executed"]) == (False, True)


@pytest.mark.rotating(3)
def test_stores_never_written_are_carried_into_4_3(tmp_path: Path) -> None:
    app = unpack("4.2.1-sparse-eos", tmp_path)
    before = {r["store"]: r for r in kstate("ls", app, "-o", "json").rows}
    assert any(-4 in o.values() for r in before.values() for o in r["changelog"].values())
    kstate("migrate", app, "--to", "4.3")
    rows = kstate("ls", app, "-o", "json").rows
    assert all(r["offsets_in"] == "column-family" and r["status"] == "closed" for r in rows)
    load = [r for r in rows if r["segments"] == [0]]
    assert load
    assert set(load[0]["column_families"]) == {"default", "offsets"}
    kstate("migrate", app, "--to", "4.2")
    again = {r["store"]: r for r in kstate("ls", app, "-o", "json").rows}
    assert {n: r["changelog"] for n, r in again.items()} == {n: r["changelog"] for n, r in before.items()}
    assert all(r["segments"] in (None, []) for r in again.values())


def test_a_rewrite_keeps_every_option_and_the_filter(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path)
    kstate("migrate", app, "--to", "4.2", "--warnings-ok")
    before = {p: newest_options(p).read_text() for p in _databases(app)}
    kstate("migrate", app, "--to", "3.9", "--warnings-ok")
    for path, text in before.items():
        newest = newest_options(path)
        assert newest is not None
        changed = {
            line[1:].split("=")[0].strip()
            for line in difflib.unified_diff(sorted(text.splitlines()), sorted(newest.read_text().splitlines()), n=0)
            if line[0] in "+-" and not line.startswith(("+++", "---"))
        }
        assert changed <= {"format_version", "checksum"}, path
        with Shadow(path) as shadow:
            for family in shadow.column_families:
                if shadow.live_files(family):
                    assert "filter block size=0;" not in shadow.table_properties(family), path
                for file in shadow.live_files(family):
                    footer = sst.footer((path / file.name).read_bytes()[-sst.FOOTER_LENGTH :])
                    assert footer == sst.SstFooter(sst.CHECKSUM_XXH3, 5), file


def _databases(app: Path) -> list[Path]:
    return [Path(folder) for folder, _, _ in os.walk(app) if is_database(Path(folder))]


def test_headers_are_refused_or_dropped(tmp_path: Path) -> None:
    app = unpack("4.3.1-headers-eos", tmp_path)
    before = tree_hash(app)
    assert "--drop-headers" in kstate("migrate", app, "--to", "4.2", status=4).err
    assert tree_hash(app) == before
    result = kstate("migrate", app, "--to", "3.9", "--drop-headers", "-o", "json", "--warnings-ok")
    assert result.summary["headers_dropped"] > 0
    rows = kstate("ls", app, "-o", "json").rows
    assert all("3.9" in r["opens_in"] and not r["kind"].startswith("headers") for r in rows)


@pytest.mark.parametrize(
    ("name", "target", "options"),
    [
        ("4.3.1-demo-eos", "4.2", ()),
        ("4.3.1-kinds-eos", "3.9", ()),
        ("4.3.1-sparse-eos", "4.1", ()),
        ("4.3.1-headers-eos", "4.2", ("--drop-headers",)),
        ("4.3.1-headers-joins-eos", "3.9", ("--drop-headers",)),
        ("4.2.1-kinds-eos-killed-second", "4.3", ("--wipe-unclean",)),
        ("3.2.3-kinds-eos", "4.3", ()),
    ],
)
def test_the_plan_predicts_releases_and_stores(
    tmp_path: Path, name: str, target: str, options: tuple[str, ...]
) -> None:
    """The releases are those that ``ls`` shows afterwards, and the stores those of the listing before."""
    app = unpack(name, tmp_path)
    stores = len([row for row in kstate("ls", app, "-o", "json", status=None).rows if row["type"] == "store"])
    words = ("migrate", app, "--to", target, "--warnings-ok", *options)
    printed = kstate(*words, "--dry-run").out
    summary = kstate(*words, "-o", "json").summary
    rows = [row for row in kstate("ls", app, "-o", "json", status=None).rows if row["type"] == "store"]
    common = set.intersection(*(set(row["opens_in"]) for row in rows if row["kind"] != "no-directory"))
    assert f"after the change, all stores open in {span(sorted(common, key=_number))}\n" in printed
    assert f"  {summary['stores']} stores in " in printed
    assert 0 < summary["stores"] <= stores
    assert summary["stores"] == stores or name.endswith(("sparse-eos", "kinds-eos"))


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


@pytest.mark.parametrize(
    "name", ["4.3.1-kinds-eos-killed-open", "4.2.1-kinds-eos-killed-first", "4.2.1-kinds-eos-killed-second"]
)
def test_unclean_directories_are_refused_unless_the_user_vouches(tmp_path: Path, name: str) -> None:
    target = "4.2" if name.startswith("4.3") else "4.3"
    app = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    result = kstate("migrate", app, "--to", target, status=4)
    assert "--guarantee at_least_once" in result.err
    assert "--wipe-unclean" in result.err
    assert tree_hash(tmp_path) == before
    rows = data_rows(app)
    kstate("migrate", app, "--to", target, "--guarantee", "at_least_once", "--warnings-ok")
    assert data_rows(app) == rows
    kstate("undo", app)
    kstate("migrate", app, "--to", target, "--wipe-unclean", "--warnings-ok")
    tasks = {p.name for p in app.iterdir() if p.is_dir()}
    kstate("undo", app)
    assert tasks < {p.name for p in app.iterdir() if p.is_dir()}


def test_checkpoint_beside_the_column_family_gives_the_lowest_offset(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    row = next(r for r in kstate("ls", app, "-o", "json").rows if r["store"] == "latest-order" and r["task"] == "0_0")
    ((topic, offsets),) = row["changelog"].items()
    for offset, target in ((offsets["0"] + 500, offsets["0"]), (3, 3)):
        (app / "0_0/.checkpoint").write_text(f"0\n1\n{topic} 0 {offset}\n")
        result = kstate("migrate", app, "--to", "4.3", status=1)
        both = ", ".join(map(str, sorted((offset, offsets["0"]))))
        assert f"0_0/latest-order: the offsets for {topic}:0 differ ({both})" in result.err
        assert not (app / "0_0/.checkpoint").exists()
        rows = kstate("ls", app, "-o", "json").rows
        assert [r["changelog"] for r in rows if r["task"] == "0_0" and r["store"] == "latest-order"] == [
            {topic: {"0": target}}
        ]
        kstate("undo", app)


def test_without_links_everything_is_copied(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    rows = data_rows(app)
    kstate("migrate", app, "--to", "4.2", "--copy")
    assert data_rows(app) == rows
    assert all(p.stat().st_nlink == 1 for p in app.rglob("*.sst"))


def test_an_interrupted_run_is_swept_by_the_next_command_if_its_tree_was_only_staged(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    run = create_run(app, "migrate --to 4.2")
    shutil.copytree(app, run.tree)
    with open(run.path / "journal.jsonl", "ab") as journal:
        journal.write(b'{"schema_version": 2, "eve')
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["interrupted"]
    before = meaning(app)
    for command in (("undo",), ("migrate", "--to", "4.2"), ("clean", "--run", run.name)):
        refusal = kstate(command[0], app, *command[1:], status=4)
        assert run.name in refusal.err and "its tree has no staging mark" in refusal.err
    assert (run.tree / "0_0").is_dir()
    assert run.token is not None
    put_mark(run.tree, STAGED, run.token)
    assert "removes the new files of this run" in kstate("undo", app).err
    assert meaning(app) == before
    assert not run.tree.exists()
    kstate("migrate", app, "--to", "4.2")

"""Half a task is completed from a dump: in the same run, on the one host that the texts, or somebody, say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from kstate_cli.rehome.model import WhyRefused
from tests.command_result import CommandResult
from tests.faults import tiny_dump
from tests.faults.tiny_dump import APP, KV, VERSIONED, WINDOW
from tests.unit.rehome.texts import text

from .support import data_rows, kstate, meaning, tree_hash

pytestmark = pytest.mark.rotating(6)

STORES = (KV, WINDOW, VERSIONED)
APART = {0: (KV,), 1: (WINDOW,), 2: (VERSIONED,)}


class World:
    """Three stores, one task: whole, and its parts in three tasks of before, on two hosts."""

    def __init__(self, folder: Path, release: str) -> None:
        self.folder, self.release = folder, release
        self.dump = tiny_dump.make(folder / "made", STORES)
        self.spec = self.dump.folder / "kstate.toml"
        self.whole = folder / "whole" / APP
        self.whole.parent.mkdir()
        words = ("--for", release, "--engine", "local", "--warnings-ok", "-q")
        kstate("restore", self.whole, *self.dump.options, *words)
        self.old, self.new = folder / "old.txt", folder / "new.txt"
        self.old.write_text(text(APART))
        self.new.write_text(text({0: STORES}))
        apart = folder / "apart" / APP
        shutil.copytree(self.whole, apart, symlinks=True)
        kstate("rehome", apart, "--topology", self.old, "--from", self.new, "--warnings-ok", "-q")
        self.first = self.host(apart, "first", "0_0")
        self.second = self.host(apart, "second", "1_0", "2_0")

    def host(self, apart: Path, name: str, *tasks: str) -> Path:
        here = self.folder / name / APP
        here.mkdir(parents=True)
        (here / ".lock").touch()
        for task in tasks:
            shutil.copytree(apart / task, here / task, symlinks=True)
        return here

    def rehome(self, app: Path, *words: object, dump: Path | None = None, status: int = 0) -> CommandResult:
        """With the dump, unless that is Path()."""
        folder = self.dump.folder / "dump" if dump is None else dump
        from_dump = ("--from-changelog", folder, "--for", self.release, "--engine", "local") if folder != Path() else ()
        both = ("--topology", self.new, "--from", self.old)
        if not {"--spec"} & {*words}:
            words = (*words, "--spec", self.spec)
        return kstate("rehome", app, *both, *from_dump, *words, "-o", "json", status=status)

    def refusal(self, app: Path, *words: object, dump: Path | None = None) -> str:
        """What is said; nothing was touched."""
        before = tree_hash(app.parent)
        error = json.loads(self.rehome(app, *words, dump=dump, status=4).out.splitlines()[-1])
        assert tree_hash(app.parent) == before
        return " ".join([error["code"], error["message"], *error["details"], error["hint"], *error["hint_details"]])


def built(result: CommandResult) -> list[str]:
    return [f"{row['task']}/{row['store']}" for row in result.rows if row["type"] == "store"]


@pytest.mark.rotating(3)
@pytest.mark.parametrize("release", ["4.2", "4.3"])
def test_a_host_completes_the_task_that_the_other_host_releases(tmp_path: Path, release: str) -> None:
    world = World(tmp_path, release)
    for app in (world.first, world.second):
        assert WhyRefused.HALF_A_TASK in world.refusal(app, dump=Path())
    before = meaning(world.first)
    planned = world.rehome(world.first, "--dry-run")
    assert meaning(world.first) == before and not built(planned)
    result = world.rehome(world.first, "--warnings-ok")
    assert built(result) == [f"0_0/{WINDOW}", f"0_0/{VERSIONED}"]
    assert (result.summary["moved"], result.summary["stores"]) == (0, 2)
    assert [row for row in planned.rows if row["type"] == "step"] == [
        row for row in result.rows if row["type"] == "step"
    ]
    assert data_rows(world.first) == data_rows(world.whole)
    assert offsets(world.first) == offsets(world.whole)
    assert world.rehome(world.first).summary["steps"] == 0
    kstate("undo", world.first)
    assert meaning(world.first) == before

    before = meaning(world.second)
    result = world.rehome(world.second, status=1)
    assert not built(result)
    assert "kstate removes 1_0, 2_0 from this host, because the host that has 0_0 completes 0_0" in result.out
    assert not [*world.second.glob("*_*")]
    kstate("undo", world.second)
    assert meaning(world.second) == before

    # Or somebody says it: the other one completes.
    assert "did you mean 0_0? " in world.rehome(world.first, "--complete", "0_00", status=2).out
    world.rehome(world.first, "--complete", "none", status=1)
    assert not [*world.first.glob("*_*")]
    result = world.rehome(world.second, "--complete", "0_0", "--warnings-ok")
    assert built(result) == [f"0_0/{KV}"] and result.summary["moved"] == 2
    assert data_rows(world.second) == data_rows(world.whole)
    assert offsets(world.second) == offsets(world.whole)


def test_a_dry_run_may_read_no_rows_and_a_run_may_not(tmp_path: Path) -> None:
    world = World(tmp_path, "4.3")
    damaged = tmp_path / "damaged"
    shutil.copytree(world.dump.folder / "dump", damaged)
    file = damaged / f"{tiny_dump.TOPICS[WINDOW]}-0.parquet"
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    assert world.rehome(world.first, "--dry-run", dump=damaged, status=4)
    result = world.rehome(world.first, "--dry-run", "--no-verify-dump", dump=damaged)
    notes = [row["message"] for row in result.rows if row["type"] == "note"]
    assert any(note.startswith("kstate has not read the rows of the dump (--no-verify-dump)") for note in notes)
    assert "works only with --dry-run" in world.rehome(world.first, "--no-verify-dump", dump=damaged, status=2).err
    without = world.rehome(world.first, "--dry-run", "--no-verify-dump", dump=Path(), status=2)
    assert "needs --from-changelog" in without.err


def test_the_dump_of_a_file_completes_tasks_only_with_all_that_it_takes(tmp_path: Path) -> None:
    """``[defaults] dump`` is for all commands: rehome without texts is what it was."""
    world = World(tmp_path, "4.3")
    file = tmp_path / "defaults.toml"
    file.write_text(
        f'format = 1\n[defaults]\ndump = "{world.dump.folder / "dump"}"\nrelease = "4.3"\nengine = "local"\n'
    )
    options = ("--config", file, "--dry-run", "--warnings-ok", "-o", "json")
    kstate("rehome", world.whole, "--map", "0=9", *options)
    both = ("--topology", world.new, "--from", world.old, "--spec", world.spec)
    planned = kstate("rehome", world.first, *both, *options)
    assert [row["path"] for row in planned.rows if row.get("action") == "restore store"]


def offsets(app: Path) -> dict[str, object]:
    rows = [row for row in kstate("ls", app, "-o", "json").rows if row["type"] == "store"]
    return {f"{row['task']}/{row['store']}": (row["kind"], row["changelog"], row["status"]) for row in rows}


def test_refuses_an_insufficient_dump_and_warns_of_an_old_dump(tmp_path: Path) -> None:
    world = World(tmp_path, "4.3")
    lacks = tiny_dump.make(tmp_path / "lacks", (KV, WINDOW)).folder / "dump"
    assert f"the dump does not contain {tiny_dump.TOPICS[VERSIONED]}, partition 0" in world.refusal(
        world.first, dump=lacks
    )
    corrupt = tmp_path / "corrupt"
    shutil.copytree(world.dump.folder / "dump", corrupt)
    file = corrupt / f"{tiny_dump.TOPICS[WINDOW]}-0.parquet"
    file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    before = meaning(world.first)
    assert world.rehome(world.first, dump=corrupt, status=None).status in (2, 4, 6)  # type: ignore[arg-type]
    assert meaning(world.first) == before
    older = tiny_dump.make(tmp_path / "older", STORES, part=0.5).folder / "dump"
    result = world.rehome(world.first, "--warnings-ok", "--after-error", dump=older)
    ends = {
        row["path"]: row["message"] for row in result.rows if row["type"] == "step" and row["action"] == "restore store"
    }
    assert sorted(ends) == [f"0_0/{WINDOW}", f"0_0/{VERSIONED}"] or len(ends) == 2
    assert all("up to" in message for message in ends.values())
    assert offsets(world.first)[f"0_0/{KV}"] == offsets(world.whole)[f"0_0/{KV}"]
    assert offsets(world.first)[f"0_0/{WINDOW}"] != offsets(world.whole)[f"0_0/{WINDOW}"]


def test_refuses_a_release_that_cannot_open_the_directory(tmp_path: Path) -> None:
    """`--for` names the one that runs here; or the printed command migrates the directory first."""
    world = World(tmp_path, "4.3")
    world.release = "4.2"
    refusal = world.refusal(world.first)
    assert "cannot open the directory" in refusal and "--for" in refusal
    world.release = "4.3"
    assert world.rehome(world.first, "--dry-run").summary["steps"] > 0
    (migrate,) = re.findall(r"kstate (migrate .*)$", refusal)
    kstate(*shlex.split(migrate), "--warnings-ok")
    world.release = "4.2"
    assert world.rehome(world.first, "--dry-run").summary["steps"] > 0


def test_refuses_a_store_without_a_kind_on_every_host(tmp_path: Path) -> None:
    """A store that is in memory is no half, so that its kind decides who completes, also where it leaves."""
    world = World(tmp_path, "4.3")
    none = tmp_path / "none.toml"
    none.write_text("format = 1\n")
    assert WhyRefused.KIND_UNKNOWN in world.refusal(world.first, "--spec", none)
    assert KV in world.refusal(world.second, "--spec", none)
    memory = tmp_path / "memory.toml"
    memory.write_text(f'format = 1\n[stores.{KV}]\nkind = "in-memory"\n')
    # Then nothing lacks of what the second host has.
    result = world.rehome(world.second, "--spec", memory, "--warnings-ok")
    assert not built(result) and result.summary["moved"] == 2
    assert {path.name for path in world.second.glob("*_*")} == {"0_0"}
    unlogged = tmp_path / "unlogged.toml"
    unlogged.write_text(
        world.spec.read_text().replace(f'changelog = "{tiny_dump.TOPICS[VERSIONED]}"', "logged = false")
    )
    result = world.rehome(world.first, "--spec", unlogged, status=1)
    assert (
        built(result) == [f"0_0/{WINDOW}"]
        and f"kstate cannot restore stores without a changelog ({VERSIONED})" in result.out
    )


def test_refuses_contradicting_options(tmp_path: Path) -> None:
    world = World(tmp_path, "4.2")
    dump = ("--from-changelog", world.dump.folder / "dump")
    new, old = ("--topology", world.new), ("--from", world.old)
    for words in (
        (*new, *old, "--for", "4.9"),
        (*new, *old, "--complete", "0_0"),
        (*new, *dump, "--for", "4.2"),
        (*new, *old, *dump),
        (*new, *old, *dump, "--for", "4.5"),
        (*new, *old, *dump, "--for", "4.2", "--complete", "7_0"),
        (*new, *old, *dump, "--for", "4.2", "--complete", "none", "--complete", "0_0"),
        (*new, *old, "--kafka-settings", world.spec),
    ):
        before = tree_hash(world.first.parent)
        kstate("rehome", world.first, *words, "--spec", world.spec, "-o", "json", status=2)
        assert tree_hash(world.first.parent) == before
    world.release = "4.3"
    assert "this release keeps offsets in a different place" in world.refusal(world.first)

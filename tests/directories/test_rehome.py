"""What `kstate rehome` does to real directories of every layout: stores go to their new tasks, whole, and back again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.change.engine import stage
from kstate_cli.change.verify import VerificationError, verify_staged
from kstate_cli.formats.checkpoint import parse
from kstate_cli.formats.offsets import encode_rows
from kstate_cli.formats.store_kinds import DEFAULT_CF, OFFSETS_CF
from kstate_cli.formats.topic_partition import TaskId
from kstate_cli.offsets.ages import Age, add_ages, read_ages
from kstate_cli.offsets.keeping import closed
from kstate_cli.parallel import Workers
from kstate_cli.rehome.model import WhyRefused, options_of
from kstate_cli.rehome.planner import plan_rehome
from kstate_cli.releases import RELEASES, representative
from kstate_cli.rocks.create import StoreLayout, create_store
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.names import CHECKPOINT, is_offsets_file
from kstate_cli.statedir.scan import read_application
from tests.golden import unpack
from tests.unit.rehome.texts import text

from .changes import Change
from .support import kstate, meaning, tree_hash

pytestmark = pytest.mark.rotating(6)

CHANGE = Change(words=("--map", "0=9", "--warnings-ok"), warned=("--map", "0=9"))
LEGACY, FAMILY, NAMES = "4.2.1-kinds-eos", "4.3.1-kinds-eos", "3.9.2-sparse-named-eos"
GOLDEN = [
    "3.2.3-kinds-eos",
    "3.9.2-kinds-alos",
    NAMES,
    LEGACY,
    "4.3.1-kinds-eos-upgrade-from",
    "4.3.1-headers-eos",
    FAMILY,
]
IN_MEMORY = "kv-memory"


def rows(app: Path) -> dict[str, dict[str, Any]]:
    """task/store -> what `kstate ls` says of it."""
    return {f"{row['task']}/{row['store']}": row for row in kstate("ls", app, "-o", "json").rows}


def same(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a store is wherever it lies."""
    return {name: value for name, value in row.items() if name not in ("task", "subtopology", "bytes")}


def parts(app: Path) -> dict[str, dict[int, list[str]]]:
    """Named topology (empty without one) -> sub-topology -> stores, as they lie there."""
    lines: dict[str, dict[int, list[str]]] = {}
    for name in rows(app):
        task, _, store = name.rpartition("/")
        parse = TaskId.parse(task)
        if parse.subtopology is not None:
            stores = lines.setdefault(parse.topology or "", {}).setdefault(parse.subtopology, [])
            stores += [store] if store not in stores else []
    for of_topology in lines.values():
        if "kv-plain" in of_topology[0]:
            of_topology[0].append(IN_MEMORY)
    return lines


def write_topology(path: Path, of: Mapping[str, Mapping[int, list[str]]], global_stores: list[str]) -> Path:
    """A text with these sub-topologies."""
    texts = [
        text(stores, names=topology or None, global_stores=global_stores if at == 0 else [])
        for at, (topology, stores) in enumerate(of.items())
    ]
    path.write_text("".join(texts))
    return path


def change_numbers(of: Mapping[int, list[str]]) -> dict[int, list[str]]:
    """The first one split into 1 and 8, the last two merged into 0, and those between them one number up."""
    numbers = sorted(of)
    lines: dict[int, list[str]] = {}
    for number in numbers:
        for at, store in enumerate(of[number]):
            if number == numbers[0]:
                home = 8 if at % 2 else 1
            elif number in numbers[-2:]:
                home = 0
            else:
                home = number + 1
            lines.setdefault(home, []).append(store)
    return lines


class World:
    """A directory, and the texts of before and after."""

    def __init__(self, name: str, folder: Path) -> None:
        self.app = unpack(name, folder / "state")
        self.parts = parts(self.app)
        stores = [row["store"] for row in rows(self.app).values() if row["task"] == "global"]
        self.old = write_topology(folder / "old.txt", self.parts, stores)
        self.new = write_topology(
            folder / "new.txt", {name: change_numbers(of) for name, of in self.parts.items()}, stores
        )

    @property
    def words(self) -> tuple[object, ...]:
        """What says what is to be done."""
        return ("rehome", self.app, "--topology", self.new, "--from", self.old)

    def refusal(self, *more: object, why: str) -> str:
        """The message of a refusal by this rule; nothing was touched."""
        before = tree_hash(self.app)
        result = kstate(*self.words, *more, "-o", "json", status=4)
        error = json.loads(result.out.splitlines()[-1])
        assert error["code"] == why, result.report
        assert tree_hash(self.app) == before
        return " ".join([error["message"], *error["details"]])


def report_of(app: Path) -> dict[str, Any]:
    """What a directory means, whatever the order of the lines in its files of offsets."""
    return {
        path: parse(part).entries if isinstance(part, bytes) and is_offsets_file(Path(path).name) else part
        for path, part in meaning(app).items()
    }


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", GOLDEN)
def test_every_store_is_whole_in_its_new_task_and_back(name: str, tmp_path: Path) -> None:
    world = World(name, tmp_path)
    app, before, listing = world.app, meaning(world.app), rows(world.app)
    homes = {
        (topology, store): number
        for topology, of in world.parts.items()
        for number, stores in change_numbers(of).items()
        for store in stores
    }
    planned = kstate(*world.words, "--dry-run", "--warnings-ok")
    assert meaning(app) == before
    result = kstate(*world.words, "--warnings-ok", "--verbose")
    assert planned.out.replace("kstate will keep a backup", "kstate keeps a backup") == result.out

    after = rows(app)
    target = {}
    for key, row in listing.items():
        task = TaskId.parse(row["task"])
        if task.subtopology is not None:
            number = homes[task.topology or "", row["store"]]
            key = f"{TaskId(task.topology, number, task.partition).name}/{row['store']}"
        target[key] = row
    assert after.keys() == target.keys()
    for key, row in target.items():
        assert same(after[key]) == same(row)
    assert "nothing to do" in kstate(*world.words).err

    # The way back is another change of homes, or the undo of this one.
    shutil.copytree(app.parent, tmp_path / "copy", symlinks=True)
    back = tmp_path / "copy" / app.name
    kstate("rehome", back, "--topology", world.old, "--from", world.new, "--warnings-ok")
    assert rows(back).keys() == listing.keys()
    kstate("undo", app)
    assert report_of(back) == report_of(app)
    assert meaning(app) == before


@pytest.mark.parametrize("name", [LEGACY, FAMILY, NAMES])
def test_tasks_are_as_old_as_their_oldest_store_and_ages_go_along(name: str, tmp_path: Path) -> None:
    world = World(name, tmp_path)
    key, row = next(iter(rows(world.app).items()))
    age = Age(key, {}, 1_700_000_000_000, run="0001-restore")
    add_ages(world.app, [age])
    oldest = min(path.stat().st_mtime_ns for path in world.app.rglob("*_0") if path.is_dir())
    kstate(*world.words, "--warnings-ok")
    pair = next(entry for entry, other in rows(world.app).items() if other["store"] == row["store"])
    assert [age.as_of_ms for age in read_ages(world.app) if age.store == pair] == [age.as_of_ms]
    assert oldest in {path.stat().st_mtime_ns for path in world.app.rglob("*_0") if path.is_dir()}


def test_a_new_store_is_from_the_beginning_on(tmp_path: Path) -> None:
    """Up to 4.2 a line; from 4.3 on an empty database, for which its kind must be known."""
    for name in (LEGACY, FAMILY):
        world = World(name, tmp_path / name)
        first = world.parts[""]
        first[1].extend(["new-kv", "new-window"])
        write_topology(world.new, {"": change_numbers(first)}, ["global-table"])
        spec = tmp_path / name / "kstate.toml"
        spec.write_text(
            'format = 1\n[stores.new-kv]\nkind = "timestamped-key-value"\n[stores.new-window]\nkind = "window"\n'
        )
        if name == FAMILY:
            assert "new-kv" in world.refusal(why=WhyRefused.KIND_UNKNOWN)
            kstate(*world.words, "--guarantee", "at_least_once", "--dry-run", "--warnings-ok")
        kstate(*world.words, "--spec", spec, "--warnings-ok")
        topics = {f"{world.app.name}-{store}-changelog": {"0": -4} for store in ("new-kv", "new-window")}
        if name == LEGACY:
            lines = parse((world.app / "2_0" / CHECKPOINT).read_bytes()).entries
            assert {tp.topic: {str(tp.partition): at} for tp, at in lines.items() if tp.topic in topics} == topics
        else:
            results = rows(world.app)
            assert {
                topic: offsets
                for store in ("new-kv", "new-window")
                for topic, offsets in results[f"2_0/{store}"]["changelog"].items()
            } == topics
            assert (world.app / "2_0" / "new-window" / "new-window.0").is_dir()
            assert (world.app / "2_0" / "rocksdb" / "new-kv").is_dir()


def test_stores_missing_in_the_new_topology_are_moved_out(tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    first = world.parts[""]
    first[0].remove("kv-nolog")
    first[0].remove("count")
    write_topology(world.new, {"": change_numbers(first)}, ["global-table"])
    result = kstate(*world.words, "--verbose", status=1)
    assert (
        "0_0/rocksdb/count" in result.out
        and "the new topology does not have this store. Its changelog topic is kept" in result.out
    )
    assert (
        "0_0/kv-nolog has rows, but no offset. If the store has no changelog, these rows are lost forever" in result.err
    )
    assert "0_0/count has rows" not in result.err
    assert not [key for key in rows(world.app) if key.endswith(("/count", "/kv-nolog"))]


def test_refuses_a_topology_that_does_not_fit(tmp_path: Path) -> None:
    world = World(LEGACY, tmp_path)
    other = tmp_path / "other.txt"
    other.write_text(text({0: ("something",), 1: ("else",)}))
    new, old = world.new, world.old
    world.new = other
    world.refusal(why=WhyRefused.OTHER_APPLICATION)
    world.new, world.old = new, other
    world.refusal(why=WhyRefused.OLD_DOES_NOT_FIT)
    world.old = old
    shutil.copytree(world.app / "6_0", world.app / "3_7")
    assert "3_7/versioned" in world.refusal(why=WhyRefused.OLD_DOES_NOT_FIT)
    shutil.rmtree(world.app / "3_7")
    (world.app / "4_0" / "notes").write_text("somebody's")
    assert "4_0/notes" in world.refusal(why=WhyRefused.FOREIGN)
    (world.app / "4_0" / "notes").unlink()
    shutil.rmtree(world.app / "5_1")
    assert "5_1" in world.refusal(why=WhyRefused.HALF_A_TASK)


def test_a_started_copy_gives_way_to_that_of_before(tmp_path: Path) -> None:
    """The new topology was started once, on this directory: what it made is there beside what was there before."""
    world = World(FAMILY, tmp_path)
    target = rows(world.app)
    for task in ("0_0", "0_1"):
        other = f"6_{'1' if task == '0_0' else '0'}"  # other rows: which copy it was can be told
        shutil.copytree(world.app / other / "rocksdb" / "versioned", world.app / task / "rocksdb" / "versioned")
    world.old, old = tmp_path / "none", world.old
    result = kstate(
        "rehome", world.app, "--topology", world.new, "--spec", _in_memory(tmp_path), "-o", "json", status=4
    )
    error = json.loads(result.out.splitlines()[-1])
    assert error["code"] == WhyRefused.TWO_COPIES and "versioned: 0_0, 6_0" in error["details"]
    world.old = old
    kstate(*world.words, "--warnings-ok")
    results = rows(world.app)
    for partition in (0, 1):
        assert same(results[f"0_{partition}/versioned"]) == same(target[f"6_{partition}/versioned"])


@pytest.mark.parametrize("texts", [True, False])
def test_empty_stores_of_a_failed_start_are_removed(texts: bool, tmp_path: Path) -> None:
    """Empty stores without an offset, in tasks that have no such store; the new one gets its -4 where it is."""
    world = World(FAMILY, tmp_path)
    clean, entry = rows(world.app), world.parts[""]
    entry[1].append("new-kv")
    write_topology(world.new, {"": change_numbers(entry)}, ["global-table"])
    spec = tmp_path / "kstate.toml"
    spec.write_text(_in_memory(tmp_path).read_text() + '[stores.new-kv]\nkind = "timestamped-key-value"\n')
    for place in ("6_1/rocksdb/global-table", "6_1/rocksdb/count", "6_1/rocksdb/new-kv", "2_0/rocksdb/new-kv"):
        _empty(world.app / place)
    (world.app / "6_1" / "window-count").mkdir()
    listing = rows(world.app)
    strays = listing.keys() - clean.keys()
    assert len(strays) == 5 and not any(listing[key]["changelog"] for key in strays)
    if texts:
        kstate(*world.words, "--spec", spec, "--warnings-ok")
        results = rows(world.app)
        assert results["2_0/new-kv"]["changelog"] == {f"{world.app.name}-new-kv-changelog": {"0": -4}}
        outputs = {"2_0/new-kv", "2_1/new-kv"}
    else:
        kstate("rehome", world.app, "--map", "6=9", "--warnings-ok")
        results = rows(world.app)
        outputs = {"2_0/new-kv"}
    assert len(results) == len(clean) + len(outputs)
    assert sorted(str(same(row)) for key, row in results.items() if key not in outputs) == sorted(
        str(same(row)) for row in clean.values()
    )


def _empty(path: Path) -> None:
    """A store as a start makes it, and closes it before anything was read."""
    release = representative([release for release in RELEASES if release.name == "4.3"])
    path.parent.mkdir(parents=True, exist_ok=True)
    create_store(path, StoreLayout((DEFAULT_CF, OFFSETS_CF), release))
    with WritableStore(path, release) as store:
        store.set_offsets(encode_rows(closed({})))


def _in_memory(folder: Path) -> Path:
    path = folder / "kstate.toml"
    path.write_text(f'format = 1\n[stores.{IN_MEMORY}]\nkind = "in-memory"\n')
    return path


@pytest.mark.parametrize("name", ["4.2.1-kinds-eos-killed-first", "4.3.1-kinds-eos-killed-open"])
def test_unclean_tasks_need_an_option(name: str, tmp_path: Path) -> None:
    world = World(name, tmp_path)
    world.refusal(why=WhyRefused.UNCLEAN)
    kstate(*world.words, "--guarantee", "at_least_once", "--warnings-ok", "--dry-run")
    before = rows(world.app)
    result = kstate(*world.words, "--wipe-unclean", status=1)
    assert "its task was not closed cleanly, so kstate removes it, and Kafka Streams restores it" in result.err
    after = rows(world.app)
    remainder = {key.rpartition("/")[2] for key in before} - {
        key.rpartition("/")[2] for key, row in after.items() if row["rows"]
    }
    assert remainder
    for row in after.values():
        assert row["status"] != "open" or row["task"] == "global", row


@pytest.mark.parametrize("harm", ["another file", "gone", "another family"])
def test_a_store_that_has_not_arrived_whole_fails_the_run(harm: str, tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    options = options_of(world.new, world.old, (), None, at_least_once=False, wipe_unclean=False)
    plan, staged = plan_rehome(read_application(world.app), options), tmp_path / "staged"
    with Workers(1) as workers:
        stage(plan, staged, workers, lambda path, size: None, copy_ssts=False)
        verify_staged(plan, staged, workers, full=False, linked=True)
        moves = staged / "0_0" / "rocksdb" / "versioned"
        sst = min(moves.glob("*.sst"))
        if harm == "another file":
            data = sst.read_bytes()
            sst.unlink()
            sst.write_bytes(data)
        elif harm == "gone":
            (moves / "CURRENT").unlink()
        else:
            shutil.rmtree(moves)
            shutil.copytree(world.app / "0_0" / "rocksdb" / "count", moves)
        with pytest.raises(VerificationError, match="0_0/rocksdb/versioned"):
            verify_staged(plan, staged, workers, full=False, linked=True)


def test_numbers_alone(tmp_path: Path) -> None:
    world = World(FAMILY, tmp_path)
    before = rows(world.app)
    result = kstate("rehome", world.app, "--map", "6=4", status=4)
    assert (
        "sub-topology 6 would get number 4, which another sub-topology in the directory already has" in result.err
        and "--map 4=gone" in result.err
    )
    kstate("rehome", world.app, "--map", "6=4", "--map", "4=gone", "--map", "5=gone", "--warnings-ok")
    after = rows(world.app)
    assert {key: same(row) for key, row in after.items() if key.startswith("4_")} == {
        key.replace("6_", "4_"): same(row) for key, row in before.items() if key.startswith("6_")
    }
    assert not [key for key in after if key[0] in "56"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [(), ("--map", "1=2", "--topology", "x"), ("--map", "1"), ("--from", "x", "--map", "1=2"), ("--topology", "none")],
)
def test_refuses_contradicting_options(words: tuple[str, ...], tmp_path: Path) -> None:
    app = unpack(FAMILY, tmp_path)
    assert kstate("rehome", app, *words, status=2).err

"""
Random walks over real directories: commands, starts of Streams, kills, disks that fail, damaged journals, lost directories.

These are a few fixed walks, of every golden directory that they begin with. `python -m tests.walker --seeds 0-499` walks more,
and with --shrink says the shortest walk that still goes wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .commands import Commands, Trouble
from .dumps import make as make_dump
from .walk import Step, Walk, begin, generate, parse, shrink, walk
from .world import Wrong

SEEDS = (3, 5, 8, 13, 21, 34)
ONCE_WRONG = (
    "3.9.2-kinds-eos command:503846369 command:86442380 command:98489327",
    "4.2.1-kinds-eos command:446566114 command:272461746 troubled:242590560",
)
"""Walks that went wrong, as short as they are found: a store that was wiped, then migrated or restored for 4.3."""
TRIES = 25
"""So often a walk that went wrong is tried with fewer steps."""


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as started:
        yield started


@pytest.mark.rotating(2)
@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_directory_agrees_with_the_model(commands: Commands, tmp_path: Path, seed: int) -> None:
    entry = generate(seed)
    result = walk(entry, commands, tmp_path / "walk")
    if result.wrong:
        shortest = shrink(entry, commands, tmp_path / "shrink", tries=TRIES)
        again = walk(shortest, commands, tmp_path / "again")
        text = "\n  ".join(again.report if again.wrong else result.report)
        pytest.fail(f"--walk {str(shortest)!r}\n  {text}\n  {again.wrong or result.wrong}")


@pytest.mark.parametrize("text", ONCE_WRONG)
def test_a_walk_that_went_wrong(commands: Commands, tmp_path: Path, text: str) -> None:
    result = walk(parse(text), commands, tmp_path / "walk")
    assert not result.wrong, "\n  ".join([*result.report, str(result.wrong)])


def test_walk_is_parsed_from_its_text() -> None:
    walk = generate(7)
    assert parse(str(walk)) == walk
    assert 10 <= len(walk.steps) <= 40


@pytest.mark.sample(2)
@pytest.mark.parametrize("where", ["app", "kept", "gone", "strange"])
def test_walker_sees_losses(commands: Commands, tmp_path: Path, where: str) -> None:
    """A walker that sees nothing would never fail."""
    world = begin("4.3.1-kinds-eos", commands, tmp_path)
    world.migrate("4.2")
    tree = world.runs_folder / "0001-migrate" / "tree"
    top = world.app if where == "app" else tree
    sst = min(top.rglob("*.sst"))
    if where in ("app", "kept"):
        data = bytearray(sst.read_bytes())
        data[3] ^= 1
        sst.unlink()
        sst.write_bytes(data)
    elif where == "gone":
        shutil.rmtree(tree)
    else:
        (world.runs_folder / "0007-wipe").mkdir()
    with pytest.raises(Wrong):
        world.audit(where)


def test_the_walker_sees_rows_that_a_migration_loses(commands: Commands, tmp_path: Path) -> None:
    world = begin("4.3.1-kinds-eos", commands, tmp_path)
    assert world.version is not None
    store = world.version.content.tasks["0_0"].stores["kv-timestamped"]
    rows = next(iter(store.rows.values()))
    key, value = rows.popitem()
    try:
        with pytest.raises(Wrong, match="kv-timestamped"):
            world.migrate("4.2")
    finally:
        rows[key] = value  # other walks of this process begin with the same content


def test_shrinking_gives_the_shortest_walk(commands: Commands, tmp_path: Path) -> None:
    steps = tuple(
        Step(name, 1) for name in ("the_log", "time_passes", "the_log", "impossible", "the_log", "time_passes")
    )
    assert shrink(Walk("4.2.1-kinds-eos", steps), commands, tmp_path).steps == (Step("impossible", 1),)


@pytest.mark.parametrize("release", ["4.1", "4.3"])
def test_a_fault_of_the_temporary_folder_damages_no_store(commands: Commands, tmp_path: Path, release: str) -> None:
    """A store that is past the dump is left alone: it must not be rebuilt because this host could not look at it."""
    world = begin("4.1.2-kinds-eos" if release == "4.1" else "4.3.1-kinds-eos", commands, tmp_path)
    dump = make_dump(tmp_path / "dump", world.app.name, world.streams.logs)
    argv = ("restore", *dump.options, "--for", release, "-q", "--engine", "local")
    before = world.tree()
    for step in range(2, 14):
        ended = commands(world.app, argv, Trouble("fail", step))
        assert ended.status in (0, 6), f"step {step}: exit {ended.status}: {ended.output}"
        assert world.tree() == before, step

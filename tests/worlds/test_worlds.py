"""A few generated worlds by fixed seeds; ``python -m tests.worlds --count 100`` runs more, and keeps a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.rocks.writable import WritableStore
from tests.interop.support import ALL, ROOT
from tests.walker.commands import Commands

from .draw import STEPS, Round, world
from .farm import Farm
from .figures import figures, read_record
from .life import STEPS_OF
from .run import compare, live, run
from .topology import Topology

pytestmark = pytest.mark.interop

SEEDS = ((8, 9, 14), (16, 17)) if ALL else ((8, 9, 14),)
"""Worlds of a group each."""


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    with Farm() as started:
        yield started


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as started:
        yield started


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_each_store_has_the_rows_of_its_changelog(
    farm: Farm, commands: Commands, tmp_path: Path, seeds: tuple[int, ...]
) -> None:
    lines = run(farm, commands, [world(seed) for seed in seeds], tmp_path)
    assert not [(line["seed"], line["wrong"], line["log"]) for line in lines if line["verdict"] != "right"]
    assert sum(line["compared"] for line in lines)


def test_a_row_that_is_missing_or_new_is_wrong(farm: Farm, commands: Commands, tmp_path: Path) -> None:
    """A comparison that finds nothing would never fail."""
    closed = replace(
        world(SEEDS[0][0]),
        topology=Topology(("events=plain+count",)),
        rounds=(Round(killed=False, steps=()),),
        attempt=1,
    )
    (life,) = live(farm, commands, [closed], tmp_path)
    assert not life.wrong
    (state,) = life.states
    for store, write, fault in (
        ("plain-events", lambda key, value: (key, None), "has lost 1 rows"),
        ("count-events", lambda key, value: (key + b"x", value), "has 1 rows that the log has not"),
    ):
        (database,) = state.copy.rglob(f"rocksdb/{store}")
        with WritableStore(database) as writable:
            family = next(name for name in writable.column_families if any(writable.rows(name)) and name != "offsets")
            key, value = next(iter(writable.rows(family)))
            writable.write_rows(family, [write(key, value)])
        state.stores.clear()
        life.wrong.clear()
        compare(farm, [life])
        assert any(f"{store} {fault}" in text for text in life.wrong), life.wrong


def test_a_seed_is_always_the_same_world() -> None:
    assert world(7) == world(7)
    assert world(7) != world(8)
    worlds = [world(seed) for seed in range(400)]
    assert (
        {step.name for each in worlds for entry in each.rounds for step in entry.steps} == set(STEPS) == set(STEPS_OF)
    )
    assert len({each.topology.name for each in worlds}) > 350


def test_a_world_is_shrunk_without_its_other_choices() -> None:
    each = next(world(seed) for seed in range(100) if len(world(seed).rounds) == 2)
    place = each.places[0]
    assert each.until((0, 0)).rounds == (replace(each.rounds[0], steps=each.rounds[0].steps[:1]),)
    shrunk = each.without(place)
    assert [step for entry in shrunk.rounds for step in entry.steps] == [
        step for number, entry in enumerate(each.rounds) for at, step in enumerate(entry.steps) if (number, at) != place
    ]


def test_the_record_has_no_world_that_went_wrong() -> None:
    lines = read_record()
    assert [line["seed"] for line in lines if line["verdict"] != "right"] == []
    assert len({line["seed"] for line in lines}) == len(lines)
    compared = sum(line["compared"] for line in lines)
    assert figures(lines).startswith(f"{len(lines)} worlds, {compared} stores compared")
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert f"contains {len(lines)} worlds" in page and f"{compared:,} comparisons" in page, "the page has other figures"

"""Applications that die in the middle of their work: kstate loses no row, and predicts where Streams does.

These are a few fixed seeds; ``python -m tests.kills --seeds 0-49`` kills more, and keeps a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.jvm import Event
from tests.interop.support import ALL

from . import kill
from .farm import Farm
from .figures import Figures
from .seeds import seed_of

pytestmark = pytest.mark.interop

VICTIMS = 3
SEEDS = (33, 5, 13, 24) if ALL else (33,)


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    with Farm() as started:
        yield started


Killed = tuple[list[kill.Outcome], Path]
"""What became of the applications of a seed, and the folder with their directories."""


@pytest.fixture(scope="module")
def killed(farm: Farm, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Killed]:
    """Return the function that carries out a seed, each once."""
    results: dict[int, Killed] = {}

    def carried_out(number: int) -> Killed:
        if number not in results:
            folder = tmp_path_factory.mktemp("kill") / "kill"
            results[number] = kill.run(farm, seed_of(number, VICTIMS), folder), folder
        return results[number]

    return carried_out


@pytest.mark.rotating(4, "applications that are killed")
@pytest.mark.parametrize("number", SEEDS)
def test_no_row_is_lost_unpredicted(killed: Callable[[int], Killed], number: int) -> None:
    outcomes, _ = killed(number)
    lines = [outcome.line for outcome in outcomes]
    assert len(outcomes) == VICTIMS
    assert not [(line["app"], line["lost_by_kstate"], line.get("details")) for line in lines if line["lost_by_kstate"]]
    assert not [(line["app"], line["unpredicted"], line.get("details")) for line in lines if line["unpredicted"]]
    assert Figures.of(lines).compared >= VICTIMS


@pytest.mark.in_full("tests/worlds/test_worlds.py::test_a_row_that_is_missing_or_new_is_wrong")
def test_the_replay_finds_a_row_that_is_missing(farm: Farm, killed: Callable[[int], Killed]) -> None:
    """A comparison that finds nothing would never fail."""
    choice = seed_of(SEEDS[0], VICTIMS)
    outcomes, folder = killed(SEEDS[0])
    name = next(outcome.victim.name for outcome in outcomes if outcome.record["restore"] == 0)
    restored = folder / "restored" / name

    def compared() -> dict[str, Event]:
        apps = [{"app": name, "complete": [str(restored)]}]
        reply = farm.good(choice.release, do="replay", lines=str(folder / "dump-lines"), apps=apps)
        return {event["store"]: event for event in reply.of("compared")}

    before = compared()
    assert not any(event["lost"] for event in before.values())
    lines = folder / "dump-lines" / f"{name}-count-changelog.jsonl"
    text = lines.read_text(encoding="utf-8")
    first = text.splitlines()[0].replace('"key":"', '"key":"AAAA')
    lines.write_text(f"{first}\n{text}", encoding="utf-8")
    assert compared()["count"]["lost"] == before["count"]["lost"] + 1


def test_a_seed_is_always_the_same() -> None:
    assert seed_of(7) == seed_of(7)
    assert seed_of(7) != seed_of(8)
    assert {victim.kind for number in range(6) for victim in seed_of(number).victims} == {
        "at-least-once",
        "exactly-once",
        "transactional",
    }

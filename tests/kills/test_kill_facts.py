"""What ``kstate check --for 4.4`` predicts, store by store, next to what real 4.4.0 does with and without the option."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.support import ALL
from tests.sampling import rotated

from .facts import CASES, Case, Fact, facts, make
from .farm import Farm

pytestmark = pytest.mark.interop

SAMPLE = ("closed-eos-tx", "killed-eos-tx", "killed-eos", "never-flushed-eos-tx")
CHOICE = [case for case in CASES if ALL or case.name in rotated(SAMPLE, 2, "facts about kills")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Fact]]:
    """What became of every store of every case."""
    folder = tmp_path_factory.mktemp("facts")
    with Farm() as farm:
        make(farm, CHOICE, folder)
        yield facts(farm, CHOICE, folder)


@pytest.mark.rotating(4, "applications that are killed")
@pytest.mark.parametrize("case", CHOICE, ids=lambda case: case.name)
def test_kafka_streams_confirms_the_prediction(results: list[Fact], case: Case) -> None:
    own = [fact for fact in results if fact.case == case.name]
    assert {fact.transactional for fact in own} == {False, True}
    assert not [str(fact) for fact in own if not fact.agrees]


@pytest.mark.parametrize(
    ("outcome", "records", "exact", "real", "lost", "agrees"),
    [
        ("restores", 5, True, "restores 5", 0, True),
        ("restores", 5, True, "restores 4", 0, False),
        ("restores", 5, False, "restores 4", 0, True),
        ("restores", 5, True, "restores 5", 3, False),
        ("opens-without-rows", 5, True, "restores 5", 3, True),
        ("opens", None, True, "restores 1", 0, False),
        ("task-wiped", 5, True, "task-wiped 5", 0, True),
        ("task-wiped", 5, True, "restores 5", 0, False),
        ("opens", None, True, "task-wiped 5", 0, False),
        ("start-hangs", None, True, "start-hangs", 0, True),
        ("restores", 5, True, "start-hangs", 0, False),
    ],
)
def test_a_wrong_prediction_is_seen(
    outcome: str, records: int | None, exact: bool, real: str, lost: int, agrees: bool
) -> None:
    row = {"outcome": outcome, "or_else": None, "records": records, "records_exact": exact, "code": None}
    assert Fact("case", True, "store", real, lost, row).agrees is agrees


def test_a_versioned_store_may_lose_versions() -> None:
    row = {"outcome": "restores", "or_else": None, "records": 5, "records_exact": True, "code": "versioned-replayed"}
    assert Fact("case", True, "store", "restores 5", 3, row).agrees
    assert not Fact("case", True, "store", "restores 4", 3, row).agrees
    assert not Fact("case", True, "store", "restores 5", 3, {**row, "code": "catches-up"}).agrees

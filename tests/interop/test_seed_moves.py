"""Moves of an application with real Kafka Streams; ``python -m tests.interop.moves`` runs all releases and guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Harness
from .moves import Case, Clusters, cases, proofs, prove

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def clusters(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    both = Clusters(harness, tmp_path_factory.mktemp("clusters"))
    yield both
    both.close()


SAMPLE = [
    pytest.param(
        Case("application-id", "4.2.1", "alos"),
        marks=pytest.mark.in_full("tests/interop/test_seed.py::test_another_application_id_continues"),
    ),
    pytest.param(Case("renamed-store", "4.3.1", "alos")),
    pytest.param(
        Case("more-partitions", "4.2.1", "alos"),
        marks=pytest.mark.in_full(
            "tests/interop/test_seed_partitions.py::test_an_application_continues_with_another_number_of_partitions"
        ),
    ),
    pytest.param(
        Case("lost-changelog", "4.3.1", "eos"),
        marks=pytest.mark.in_full(
            "tests/interop/test_seed_directories.py::test_an_application_continues_from_its_directories"
        ),
    ),
]
"""Moves once each. ``test_seed_clusters.py`` moves an application to another cluster."""


@pytest.mark.rotating(5, "moves of applications")
@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_moved_application_continues(clusters: Clusters, tmp_path: Path, case: Case) -> None:
    proof = prove(case, clusters, tmp_path)
    assert proof.restored == 0 and proof.seeded > 0


def test_the_record_contains_existing_cases_only() -> None:
    """A move that is renamed, or a release that is dropped, leaves no proof behind."""
    assert proofs().keys() <= {case.name for case in cases()}
    assert {proof.restored for proof in proofs().values()} <= {0}

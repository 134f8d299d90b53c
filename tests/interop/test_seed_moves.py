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
    Case("application-id", "4.2.1", "alos", quick=True),
    Case("renamed-store", "4.3.1", "alos", quick=True),
    Case("more-partitions", "4.4.0", "eos", quick=True),
    Case("another-cluster", "4.2.1", "eos", quick=True),
    Case("lost-changelog", "4.3.1", "eos", quick=True),
]
"""Each move once, of an application whose results are computed."""
COMPLETE = [Case(move, release, guarantee) for move, release, guarantee in (
    ("application-id", "4.2.1", "alos"), ("renamed-store", "4.3.1", "alos"), ("more-partitions", "4.2.1", "alos"),
    ("another-cluster", "4.2.1", "eos"), ("lost-changelog", "4.3.1", "eos"),
)]  # fmt: skip
"""The same of an application with all kinds of stores."""


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_moved_application_has_the_computed_results(clusters: Clusters, tmp_path: Path, case: Case) -> None:
    proof = prove(case, clusters, tmp_path)
    assert proof.restored == 0 and proof.seeded > 0 and proof.results > 0


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.parametrize("case", COMPLETE, ids=lambda case: case.name)
def test_a_moved_application_continues(clusters: Clusters, tmp_path: Path, case: Case) -> None:
    proof = prove(case, clusters, tmp_path)
    assert proof.restored == 0 and proof.seeded > 0


def test_the_record_contains_existing_cases_only() -> None:
    """A move that is renamed, or a release that is dropped, leaves no proof behind."""
    assert proofs().keys() <= {case.name for case in cases()}
    assert {proof.restored for proof in proofs().values()} <= {0}

"""Moves of an application with real Kafka Streams; ``python -m tests.interop.moves`` runs all releases and guarantees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Harness
from .moves import SAMPLE, Case, Clusters, cases, proofs, prove

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def clusters(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    both = Clusters(harness, tmp_path_factory.mktemp("clusters"))
    yield both
    both.close()


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.name)
def test_a_moved_application_continues(clusters: Clusters, tmp_path: Path, case: Case) -> None:
    proof = prove(case, clusters, tmp_path)
    assert proof.restored == 0 and proof.seeded > 0


def test_the_record_contains_existing_cases_only() -> None:
    """A move that is renamed, or a release that is dropped, leaves no proof behind."""
    assert proofs().keys() <= {case.name for case in cases()}
    assert {proof.restored for proof in proofs().values()} <= {0}

"""A warm process that runs kstate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.forked import Kstate


@pytest.fixture(scope="session")
def kstate() -> Iterator[Kstate]:
    """Runs commands of kstate."""
    with Kstate() as started:
        yield started

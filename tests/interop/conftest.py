"""Fixtures of the tests with real Kafka Streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .harness import Harness


def pytest_configure(config: pytest.Config) -> None:
    """The marker of these tests, which need Java 17 and, the first time, Maven and the network."""
    config.addinivalue_line("markers", "interop: runs real Kafka Streams releases (minutes; needs Java 17 and Maven)")


@pytest.fixture(scope="session")
def harness() -> Iterator[Harness]:
    """One broker, and one JVM for each release, for all tests."""
    with Harness() as started:
        yield started


@pytest.fixture(scope="module", autouse=True)
def _broker_without_topics(harness: Harness) -> Iterator[None]:
    """Leave no topic to the next file: a worker has one broker, and files come in an order that depends on the load."""
    yield
    harness.delete_topics()

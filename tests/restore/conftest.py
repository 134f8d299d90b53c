"""One dump for all tests, and what restoring it gives without any trouble."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.make_dump import make_dump

from . import support


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000,000 records over 300,000 keys in two partitions."""
    folder = tmp_path_factory.mktemp("dump") / "dump"
    make_dump(folder, support.TOPIC, records=1_000_000, keys=300_000, value_bytes=100, partitions=2)
    return folder


@pytest.fixture(scope="session")
def expected(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of an undisturbed restore."""
    app = tmp_path_factory.mktemp("expected") / support.APP
    support.good(support.restore(app, dump))
    found = support.digest(app)
    assert len(found) == 2
    assert support.left_behind(app) == []
    return found

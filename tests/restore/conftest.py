"""One dump for all tests, and what restoring it gives without any trouble."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.make_dump import make_dump

from . import support

RECORDS = 400_000
"""Of the dump: enough that what is killed is at work."""


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Over 120,000 keys, in two partitions."""
    folder = tmp_path_factory.mktemp("dump") / "dump"
    make_dump(folder, support.TOPIC, records=RECORDS, keys=120_000, value_bytes=100, partitions=2)
    return folder


@pytest.fixture(scope="session")
def expected(dump: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of an undisturbed restore."""
    app = tmp_path_factory.mktemp("expected") / support.APP
    support.good(support.restore(app, dump))
    digest = support.digest(app)
    assert len(digest) == 2
    assert support.remaining_files(app) == []
    return digest

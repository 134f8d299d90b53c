"""A versioned store is caught up from its rows, which only this host has: what is refused on a cluster, and the ways on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.faults import tiny_dump

from .cluster import Cluster

HERE = ("--for", "4.3", "--engine", "local", "--warnings-ok")
UNREACHABLE_MASTER = "spark://127.0.0.1:9"
"""What is refused is refused before anything is asked of Spark."""


@dataclass(frozen=True)
class Behind:
    """A versioned store that has the first half of its changelog, and the whole dump."""

    app: Path
    whole: tiny_dump.Dump
    staging: Path

    def here(self, command: str, *options: object, status: int = 0) -> CommandResult:
        """Run a command."""
        return kstate(command, self.app, *options, status=status)

    def caught_up(self) -> None:
        """Catch the store up without Spark."""
        self.here("restore", *self.whole.options, *HERE)

    def on(self, master: str, *options: object, status: int = 0) -> CommandResult:
        """Restore on a cluster."""
        there = ("--for", "4.3", "--engine", "spark", "--master", master, "--staging", self.staging, "--warnings-ok")
        return self.here("restore", *self.whole.options, *there, *options, status=status)

    def digests(self) -> dict[str, str]:
        """Store -> digest of its rows."""
        rows = self.here("verify", "-o", "json").rows
        return {row["store"]: row["digest"] for row in rows if row["type"] == "store"}


@pytest.fixture
def behind(tmp_path: Path) -> Behind:
    older = tiny_dump.make(tmp_path / "older", (tiny_dump.VERSIONED,), part=0.5)
    whole = tiny_dump.make(tmp_path / "whole", (tiny_dump.VERSIONED,))
    app, staging = tmp_path / "state" / tiny_dump.APP, tmp_path / "area"
    app.parent.mkdir()
    staging.mkdir()
    kstate("restore", app, *older.options, *HERE)
    return Behind(app, whole, staging)


def test_a_versioned_store_is_refused_on_a_cluster(behind: Behind) -> None:
    """The hint names both ways; without `--master` it is caught up."""
    refusal = behind.on(UNREACHABLE_MASTER, status=4)
    assert "omit --master, or rebuild them completely with --rebuild" in refusal.err, refusal.err
    behind.caught_up()
    assert len(behind.digests()) == 1


@pytest.mark.in_full("tests/restore/test_distant_bases.py::test_a_versioned_store_is_refused_on_a_cluster")
def test_a_versioned_store_is_rebuilt_on_a_cluster(behind: Behind, tmp_path: Path) -> None:
    """The other way of the hint gives the same rows."""
    behind.caught_up()
    rows = behind.digests()
    behind.here("undo")
    with Cluster(tmp_path, ["127.0.0.1"]) as cluster:
        behind.on(cluster.master, "--rebuild")
    assert behind.digests() == rows

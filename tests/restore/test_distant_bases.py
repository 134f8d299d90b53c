"""A versioned store is caught up from its rows, which only this host has: what is refused on a cluster, and the ways on."""

from __future__ import annotations

from pathlib import Path

from tests.directories.support import kstate
from tests.faults import tiny_dump

from .cluster import Cluster


def test_a_versioned_store_on_a_cluster(tmp_path: Path) -> None:
    """Both ways that the hint names: without `--master`, and as a whole with `--rebuild`."""
    older = tiny_dump.make(tmp_path / "older", (tiny_dump.VERSIONED,), part=0.5)
    whole = tiny_dump.make(tmp_path / "whole", (tiny_dump.VERSIONED,))
    app = tmp_path / "state" / tiny_dump.APP
    app.parent.mkdir()
    here = ("--for", "4.3", "--engine", "local", "--warnings-ok")
    kstate("restore", app, *older.options, *here)
    with Cluster(tmp_path, ["127.0.0.1"]) as cluster:
        there = (
            "--for",
            "4.3",
            "--engine",
            "spark",
            "--master",
            cluster.master,
            "--staging",
            tmp_path / "area",
            "--warnings-ok",
        )
        (tmp_path / "area").mkdir()
        refusal = kstate("restore", app, *whole.options, *there, status=4)
        assert "omit --master, or rebuild them completely with --rebuild" in refusal.err, refusal.err
        kstate("restore", app, *whole.options, *here)
        rows = kstate("verify", app, "-o", "json").rows
        kstate("undo", app)
        kstate("restore", app, *whole.options, *there, "--rebuild")
    digests = [
        {row["store"]: row["digest"] for row in some if row["type"] == "store"}
        for some in (rows, kstate("verify", app, "-o", "json").rows)
    ]
    assert digests[0] == digests[1] and len(digests[0]) == 1

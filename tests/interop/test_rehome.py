"""
A topology that has changed: without kstate it restores or does not start, after ``kstate rehome`` nothing is restored.

Topologies A and B are in ``Homes.java``: numbers, one split, one merge, a store that is gone and one that is new.
"""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.releases import OffsetsHome, release

from . import dumps
from .harness import App, Harness, Run, Step
from .jvm import Reply
from .support import (
    ALL,
    BATCH,
    REFUSAL,
    application,
    good,
    kstate,
    records_with_value,
    restored_records,
    sum_of,
    wipes_task,
)

pytestmark = pytest.mark.interop

CASES = [*itertools.product(["4.3.1", "4.2.1", "3.9.2"], ["eos", "alos"])] if ALL else [("4.3.1", "eos")]
REMAINING = {"count", "window-count", "reduce", "session-count", "source-table", "last-count", "global-table"}
ALWAYS = {"in-memory"}
"""Restored at every start."""
OTHERS = {"removed", "new-count"}
"""One of the two topologies has them."""


def ran(harness: Harness, folder: Path, version: str, guarantee: str) -> App:
    """Topology A in ``state``, its text in ``old.txt``, and what its stores hold in ``before.jsonl``."""
    app = application("homes-a", guarantee)
    harness.produce(version, app, BATCH)
    old = folder / "old.txt"
    good(harness.run(version, app, folder / "state", Run(read=False, options={"describe-into": str(old)})))
    shutil.copytree(folder / "state", folder / "before", symlinks=True)
    good(harness.run(version, app, folder / "before", Run(dump=folder / "before.jsonl", may_restore=[*ALWAYS])))
    return app


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.parametrize(("version", "guarantee"), CASES)
def test_another_topology_resumes_from_the_rehomed_stores(
    harness: Harness, tmp_path: Path, version: str, guarantee: str
) -> None:
    app = ran(harness, tmp_path, version, guarantee)
    after = replace(app, topology="homes-b")
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    directory = tmp_path / "state" / app.name

    # What happens without kstate: the new topology on the directory as it is.
    shutil.copytree(tmp_path / "state", tmp_path / "plain", symlinks=True)
    plain = harness.run(version, after, tmp_path / "plain", Run(read=False, options={"describe-into": str(new)}))
    _fails_or_restores(version, plain)

    spec = tmp_path / "kstate.toml"
    spec.write_text('format = 1\n[stores.new-count]\nkind = "timestamped-key-value"\n', encoding="utf-8")
    words = ("--topology", new, "--from", old, "--spec", spec)
    planned = kstate("rehome", directory, *words, "--dry-run")
    result = kstate("rehome", directory, *words)
    assert (planned.status, result.status) == (0, 0), result.report
    assert result.out.splitlines()[0] in planned.out.splitlines()
    again = kstate("rehome", directory, *words)
    assert again.status == 0 and "nothing to do" in again.err, again.report
    shutil.copytree(tmp_path / "state", tmp_path / "rehomed", symlinks=True)

    run = Run(dump=tmp_path / "after.jsonl", expect_no_restore=True, may_restore=[*ALWAYS])
    started = good(harness.run(version, after, tmp_path / "rehomed", run))
    assert not wipes_task(started), started.report()
    assert set(restored_records(started)) <= ALWAYS
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "after.jsonl", ignore=OTHERS)
    assert not [str(entry) for entry in differences]

    # The new topology was started here once, and there are two copies of what it made anew: that of before counts.
    tried = tmp_path / "plain" / app.name
    assert kstate("rehome", tried, "--topology", new, "--spec", spec).status == REFUSAL
    result = kstate("rehome", tried, *words)
    assert result.status == 0, result.report
    run = Run(dump=tmp_path / "tried.jsonl", expect_no_restore=True, may_restore=[*ALWAYS])
    assert not wipes_task(good(harness.run(version, after, tmp_path / "plain", run)))
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "tried.jsonl", ignore=OTHERS)
    assert not [str(entry) for entry in differences]

    # Back, before anything else is counted: A finds its stores.
    assert kstate("undo", directory).status == 0
    run = Run(dump=tmp_path / "undone.jsonl", expect_no_restore=True, may_restore=[*ALWAYS])
    good(harness.run(version, app, tmp_path / "state", run))
    assert not [
        str(difference) for difference in dumps.differences(tmp_path / "before.jsonl", tmp_path / "undone.jsonl")
    ]

    # B goes on counting where A ended.
    second = Step(BATCH.next(), dump=tmp_path / "second.jsonl")
    run = Run(dump=tmp_path / "first.jsonl", steps=[second], expect_no_restore=True, may_restore=[*ALWAYS])
    good(harness.run(version, after, tmp_path / "rehomed", run))
    for store, topic in (("count", "events"), ("last-count", "fk-left")):
        number = records_with_value(harness, f"{app.input}-{topic}", tmp_path)
        assert sum_of(tmp_path / "second.jsonl", store) == number > sum_of(tmp_path / "first.jsonl", store)
    harness.delete(version, app)


@pytest.mark.in_full("tests/interop/test_rehome.py::test_another_topology_resumes_from_the_rehomed_stores")
@pytest.mark.parametrize(("version", "guarantee"), [*itertools.product(["4.2.1", "3.9.2"], ["eos", "alos"])])
def test_after_a_start_that_was_killed(harness: Harness, tmp_path: Path, version: str, guarantee: str) -> None:
    """What the killed start has opened under exactly-once is restored, and nothing else is; at-least-once keeps all."""
    app = ran(harness, tmp_path, version, guarantee)
    after = replace(app, topology="homes-b")
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    directory = tmp_path / "state" / app.name
    harness.run(version, after, tmp_path / "state", Run(read=False, kill=True, options={"describe-into": str(new)}))

    words = ("rehome", directory, "--topology", new, "--from", old, "-o", "json")
    result = kstate(*words, *(("--wipe-unclean",) if guarantee == "eos" else ("--guarantee", "at_least_once")))
    assert result.status in (0, 1), result.report
    messages = [row["message"] for row in result.rows if row["type"] == "warning"]
    left_out = {
        message.partition(":")[0].partition("/")[2]
        for message in messages
        if "so kstate removes it, and Kafka Streams" in message
    }

    run = Run(dump=tmp_path / "after.jsonl", may_restore=[*ALWAYS, *left_out])
    started = good(harness.run(version, after, tmp_path / "state", run))
    assert not wipes_task(started), started.report()
    assert set(restored_records(started)) <= ALWAYS | left_out
    assert guarantee == "eos" or not left_out
    again = Run(dump=tmp_path / "again.jsonl", expect_no_restore=True, may_restore=[*ALWAYS])
    good(harness.run(version, after, tmp_path / "state", again))
    differences = dumps.differences(tmp_path / "before.jsonl", tmp_path / "again.jsonl", ignore=OTHERS)
    assert not [str(entry) for entry in differences]
    harness.delete(version, app)


def _fails_or_restores(version: str, started: Reply) -> None:
    """From 4.3 on left-over task directories end the start; older releases restore what is in other tasks now."""
    if release(version.rpartition(".")[0]).offsets_home is OffsetsHome.COLUMN_FAMILY:
        assert started.rc != 0 and "re-initialised with different task" in started.report(), started.report()
    else:
        assert set(restored_records(good(started))) > {"source-table", "last-count"}

"""
Directories of real 4.4.0 with transactional stores (KIP-892), migrated by kstate to releases that have none, and back.

The reference is real Streams in each case: 4.4.0 with the option on, restarted on a copy that kstate has not touched, or, for
what a kill left unfinished, a restoration from nothing.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli import option

from . import dumps
from .checking import PARTS, SMALL
from .harness import App, Batch, Guarantee, Harness, Run, Step
from .support import (
    BATCH,
    application,
    good,
    kstate,
    migrate,
    records_with_value,
    restored_records,
    sum_of,
    told_positions,
    wipes_task,
)
from .test_matrix import as_without_headers

pytestmark = pytest.mark.interop

RELEASE = "4.4.0"
TRANSACTIONAL = {"enable.transactional.statestores": "true"}
AS_OF = "3.9"
"""The topology is one that every release of these tests has."""
OLDER = ("4.2.1", "4.3.1", "3.9.2")
KILLED = Batch(records=330, keys=10, value_bytes=220, partitions=1)
"""Enough for small buffers to flush some stores and segments, and not others."""
KAFKA_NAMES = {"eos": "exactly_once_v2", "alos": "at_least_once"}
WITHOUT_CHANGELOG = {"kv-nolog"}
_HANGS_SECONDS = 30
"""An application that is not RUNNING after so many seconds is taken to hang, where kstate predicts it."""


def run_and_close(harness: Harness, app: App, state: Path) -> None:
    """Run with transactional stores from the beginning."""
    _run(harness, RELEASE, app, state, TRANSACTIONAL)


def switched_on(harness: Harness, app: App, state: Path) -> None:
    """Run without them, then with them: old databases keep a status of 0, new ones have none."""
    _run(harness, RELEASE, app, state, {})
    harness.produce(RELEASE, app, BATCH.next())
    _run(harness, RELEASE, app, state, TRANSACTIONAL)


def switched_off(harness: Harness, app: App, state: Path) -> None:
    """Run with them, then without."""
    _run(harness, RELEASE, app, state, TRANSACTIONAL)
    harness.produce(RELEASE, app, BATCH.next())
    _run(harness, RELEASE, app, state, {})


def upgrade(harness: Harness, app: App, state: Path) -> None:
    """Run 4.3.1, then 4.4.0 on the same directory with them."""
    _run(harness, "4.3.1", app, state, {})
    harness.produce(RELEASE, app, BATCH.next())
    _run(harness, RELEASE, app, state, TRANSACTIONAL)


def _run(harness: Harness, release: str, app: App, state: Path, conf: dict[str, str]) -> None:
    good(harness.run(release, app, state, Run(as_of=AS_OF, conf=conf, read=False)))


History = Callable[[Harness, App, Path], None]
HISTORIES: tuple[History, ...] = (run_and_close, switched_on, switched_off, upgrade)
GUARANTEES: tuple[Guarantee, ...] = ("eos", "alos")


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("history", "guarantee", "target"),
    list(itertools.product(HISTORIES, GUARANTEES, OLDER)),
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_older_releases_take_the_migrated_directory(
    harness: Harness, tmp_path: Path, history: History, guarantee: Guarantee, target: str
) -> None:
    app = application("kinds", guarantee)
    state, directory = tmp_path / "state", tmp_path / "state" / app.name
    harness.produce(RELEASE, app, BATCH)
    history(harness, app, state)
    shutil.copytree(state, tmp_path / "unmigrated")
    reference, served, grown, back = (tmp_path / f"{name}.jsonl" for name in ("reference", "served", "grown", "back"))
    run = Run(dump=reference, as_of=AS_OF, conf=TRANSACTIONAL, expect_no_restore=True)
    before = good(harness.run(RELEASE, app, tmp_path / "unmigrated", run))

    result = migrate(directory, target, "--warnings-ok")
    assert result.status == 0, result.report
    rest = BATCH.next() if history is run_and_close else BATCH.next().next()
    run = Run(dump=served, steps=[Step(rest, grown)], as_of=AS_OF, expect_no_restore=True)
    after = good(harness.run(target, app, state, run))
    assert not wipes_task(after), after.report()
    assert not [str(difference) for difference in dumps.differences(reference, served)]
    assert told_positions(after) == told_positions(before)
    count = records_with_value(harness, f"{app.input}-events", tmp_path)
    assert sum_of(grown, "count") == count

    result = migrate(directory, RELEASE, "--warnings-ok")
    assert result.status == 0, result.report
    run = Run(dump=back, as_of=AS_OF, conf=TRANSACTIONAL, expect_no_restore=True)
    again = good(harness.run(RELEASE, app, state, run))
    assert not wipes_task(again), again.report()
    assert sum_of(back, "count") == count
    harness.delete(RELEASE, app)


@pytest.mark.in_full("tests/kills/test_kill_facts.py::test_kafka_streams_confirms_the_prediction")
@pytest.mark.parametrize("target", ["4.2.1", "3.9.2"])
def test_stores_never_written(harness: Harness, tmp_path: Path, target: str) -> None:
    """They have no row, no status and no offset. With the option on 4.4.0 restores nothing, and older releases neither."""
    app = application("sparse", "eos")
    state = tmp_path / "state"
    harness.produce(RELEASE, app, BATCH)
    live, served = tmp_path / "live.jsonl", tmp_path / "served.jsonl"
    good(harness.run(RELEASE, app, state, Run(dump=live, conf=TRANSACTIONAL)))
    shutil.copytree(state, tmp_path / "unmigrated")
    # The scan at the start logs that it wipes the task, because it opens stores without the option. It wipes nothing.
    run = Run(conf=TRANSACTIONAL, expect_no_restore=True, read=False)
    assert restored_records(good(harness.run(RELEASE, app, tmp_path / "unmigrated", run))) == {}

    result = migrate(state / app.name, target)
    assert result.status == 0, result.report
    reply = good(harness.run(target, app, state, Run(dump=served, expect_no_restore=True)))
    assert not wipes_task(reply), reply.report()
    assert restored_records(reply) == {}
    assert not [str(difference) for difference in dumps.differences(live, served)]


@pytest.mark.in_full("tests/interop/test_matrix.py::test_headers_are_dropped_only_on_request")
@pytest.mark.parametrize("target", ["4.2.1", "4.3.1"])
def test_record_headers(harness: Harness, tmp_path: Path, target: str) -> None:
    """Stores with dsl.store.format=HEADERS: 4.3 takes them with the headers, older releases without."""
    app = application("headers-joins", "eos")
    state = tmp_path / "state"
    harness.produce(RELEASE, app, BATCH)
    good(harness.run(RELEASE, app, state, Run(conf=TRANSACTIONAL, read=False)))
    shutil.copytree(state, tmp_path / "unmigrated")
    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    run = Run(dump=reference, conf=TRANSACTIONAL, expect_no_restore=True)
    good(harness.run(RELEASE, app, tmp_path / "unmigrated", run))
    assert '"headers"' in reference.read_text(encoding="utf-8")

    keeps = target == "4.3.1"
    result = migrate(state / app.name, target, "--warnings-ok", *(() if keeps else ("--drop-headers",)))
    assert result.status == 0, result.report
    started = app if keeps else App(app.name, f"{app.topology}-old", app.guarantee, app.input)
    reply = good(harness.run(target, started, state, Run(dump=served, expect_no_restore=True)))
    assert restored_records(reply) == {}
    edit = None if keeps else as_without_headers
    assert not [str(difference) for difference in dumps.differences(reference, served, edit=edit)]
    assert dumps.counts(served).keys() == dumps.counts(reference).keys()


@pytest.mark.in_full("tests/kills/test_kills.py::test_no_row_is_lost_unpredicted")
@pytest.mark.parametrize(("target", "guarantee"), list(itertools.product(OLDER, GUARANTEES)))
def test_killed_with_small_buffers(harness: Harness, tmp_path: Path, target: str, guarantee: Guarantee) -> None:
    """
    Killed after some segments were flushed and others were not: each states the offset of its own last commit, or nothing.

    Nothing uncommitted is on disk, but an older release wipes the task of a store without an offset, and kstate predicts that.
    The older release ends with the contents that it restores from nothing.
    """
    app, conf = application("kinds", guarantee), {**TRANSACTIONAL, **SMALL}
    state = tmp_path / "state"
    harness.produce(RELEASE, app, KILLED)
    good(harness.run(RELEASE, app, state, Run(as_of=AS_OF, conf=conf, kill=True, read=False)))
    result = migrate(
        state / app.name, target, "--warnings-ok", option.TRANSACTIONAL_STORES, "--guarantee", KAFKA_NAMES[guarantee]
    )
    assert result.status == 0, result.report
    # The warning states what exactly-once does; at least once nothing is wiped.
    predicted = guarantee == "eos" and any("wipes the task" in row.get("message", "") for row in result.rows)
    served, truth = tmp_path / "served.jsonl", tmp_path / "truth.jsonl"
    for folder, dump in ((state, served), (tmp_path / "nothing", truth)):
        reply = good(harness.run(target, app, folder, Run(as_of=AS_OF, read=False)))
        assert wipes_task(reply) == (predicted and folder == state), reply.report()
        # Windows hide what is older than the stream time that they have seen: after a restart all rows are served.
        good(harness.run(target, app, folder, Run(dump=dump, as_of=AS_OF, expect_no_restore=True)))
    assert not [str(difference) for difference in dumps.differences(truth, served, ignore=WITHOUT_CHANGELOG)]
    harness.delete(target, app)


@pytest.mark.in_full("tests/kills/test_kill_facts.py::test_kafka_streams_confirms_the_prediction")
@pytest.mark.parametrize(("stores", "records"), [("count", 4_000), ("count+reduce+window-count", 1_000)])
def test_stores_with_status_open(harness: Harness, tmp_path: Path, stores: str, records: int) -> None:
    """
    Killed without the option under exactly-once, and started with it: the client hangs, or the task is wiped.

    Where all stores of the task have status 1 it hangs. Where one was never flushed, the order in which Streams opens them
    decides. After the command that check prints 4.4.0 starts, and has every row.
    """
    app = App(application("parts", "eos").name, f"{PARTS}{stores}", "eos")
    state, tried = tmp_path / "state", tmp_path / "tried"
    conf = {**SMALL, "statestore.cache.max.bytes": "0"}
    harness.produce(RELEASE, app, replace(KILLED, records=records))
    good(harness.run(RELEASE, app, state, Run(conf=conf, kill=True, read=False)))
    shutil.copytree(state, tried)

    directory = state / app.name
    checked = kstate(
        "check",
        directory,
        "--for",
        RELEASE,
        option.TRANSACTIONAL_STORES,
        "--guarantee",
        KAFKA_NAMES["eos"],
        "-o",
        "json",
    )
    assert checked.status == 3, checked.report
    rows = [row for row in checked.rows if row["type"] == "prediction"]
    assert {row["store"] for row in rows} == set(stores.split("+")), checked.report
    (outcomes,) = {frozenset({row["outcome"], row["or_else"]} - {None}) for row in rows}
    assert outcomes in ({"start-hangs"}, {"start-hangs", "task-wiped"}), checked.report
    reply = harness.run(RELEASE, app, tried, Run(conf=TRANSACTIONAL, read=False, options={"timeout": _HANGS_SECONDS}))
    real = "start-hangs" if reply.rc else "task-wiped"
    assert real in outcomes, f"{reply.report()}\n{checked.report}"
    if reply.rc:
        (stuck,) = reply.of("timeout")
        assert stuck["state"] == "REBALANCING", reply.report()

    (finding,) = [row for row in checked.rows if row.get("code") == "start-hangs" and row["type"] == "finding"]
    assert finding["hint"] == f"kstate wipe {directory} --task 0_0"
    result = kstate(*finding["hint"].split()[1:])
    assert result.status == 0, result.report
    served, truth = tmp_path / "served.jsonl", tmp_path / "truth.jsonl"
    for folder, dump in ((state, served), (tmp_path / "nothing", truth)):
        assert restored_records(good(harness.run(RELEASE, app, folder, Run(conf=TRANSACTIONAL, read=False))))
        run = Run(dump=dump, conf=TRANSACTIONAL, expect_no_restore=True)
        good(harness.run(RELEASE, app, folder, run))
    assert dumps.counts(served).keys() == set(stores.split("+"))
    assert not [str(difference) for difference in dumps.differences(truth, served)]
    harness.delete(RELEASE, app)

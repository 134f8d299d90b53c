"""
What real Kafka Streams releases do with directories that kstate migrated.

A directory is good when the target release takes it without restoring anything, serves from every store exactly what the
source release serves from the unmigrated copy after a restart, and makes of more input exactly what it makes of the same input
in an application that was never migrated. Two usual pairs run by default, and one that changes from day to day; all pairs with
KSTATE_INTEROP=all, those of a release that has no proof yet with KSTATE_INTEROP_RELEASE=4.4.0, and with KSTATE_INTEROP_RECORD=FILE
what that record lacks (pairs.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.releases import PROVEN
from tests.directories.support import tree_hash
from tests.golden import unpack
from tests.sampling import evenly

from . import dumps, proving
from .harness import App, Harness, Run, Step
from .pairs import Case, Proof, every_pair, hops, note, proofs, today, without_proof
from .proving import chains_with
from .releases import GLOBAL_TABLE, PROVING, number, only_what_is_forgotten
from .support import (
    ALL,
    BATCH,
    REFUSAL,
    application,
    good,
    migrate,
    records_with_value,
    restored_records,
    sum_of,
    told_positions,
    wipes_task,
)

pytestmark = pytest.mark.interop

USUAL = [
    (("4.3.1", "4.2.1"), "eos"), (("4.4.0", "3.9.2"), "alos"), (("4.2.1", "4.4.0"), "eos"), (("3.9.2", "4.3.1"), "alos"),
]  # fmt: skip
"""The record (pairs.jsonl) has the others."""


def selected_cases() -> list[Case]:
    """The pairs that run now: those without a proof where proofs are collected, else a few."""
    cases = chains_with(PROVING, everything=ALL) if PROVING else every_pair()
    if "KSTATE_INTEROP_RECORD" in os.environ:
        return without_proof(cases)
    if PROVING or os.environ.get("KSTATE_INTEROP") == "all":
        return cases
    return evenly(USUAL, 2)


UNKNOWN_BEFORE = {
    "3.6": {"grace-join-Buffer": "grace-buffer"},
    "3.5": {"versioned": "versioned", "grace-table": "versioned"},
    "3.3": {
        "fk-subscription-store": "foreign-key subscriptions of version 1",
        "window-final": "time-ordered-window",
        "session-final": "time-ordered-session",
    },
}
"""The stores of "kinds" that releases before this one do not read, and what kstate calls them."""

_never_migrated: dict[tuple[str, str, str, str], Path] = {}


def topology_for(source: str, oldest: str) -> str:
    """
    All kinds of stores, as far as the oldest release of a chain has them.

    Going back behind 3.3 a foreign-key join is refused (real 3.3.2 writes subscriptions of version 1, and all later ones do):
    then a topology without one.
    """
    return "kinds-no-fk" if number(oldest) < (3, 3) <= number(source) else "kinds"


def without_arrival_order(row: dict[str, Any]) -> None:
    """
    An edit for comparing two applications.

    A foreign-key join dates its result by the later of the two records that met, and its requests and answers travel through
    internal topics while both tables go on: which values meet last is the same in the end, that date is not.
    """
    if row["store"] == "fk-result":
        del row["timestamp"]


def as_without_headers(row: dict[str, Any]) -> None:
    """An edit: what older releases keep of a row. The windows of a join are plain there: what they date is in their key."""
    dumps.without_headers(row)
    if row["store"].startswith("join-") and row["kind"] == "window" and row.get("timestamp") == row["start"]:
        del row["timestamp"]


@pytest.fixture
def never_migrated(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, str, str], Path]:
    """What the stores hold after both batches when one release had them all along, restarted between the batches."""

    def dump(release: str, topology: str, guarantee: str, as_of: str) -> Path:
        key = (release, topology, guarantee, as_of)
        if key not in _never_migrated:
            folder = tmp_path_factory.mktemp("never-migrated")
            app = application(topology, guarantee)
            harness.produce(release, app, BATCH)
            good(harness.run(release, app, folder / "state", Run(as_of=as_of, read=False)))
            run = Run(steps=[Step(BATCH.next(), folder / "dump.jsonl")], as_of=as_of, expect_no_restore=True,
                      may_restore=only_what_is_forgotten(release))  # fmt: skip
            good(harness.run(release, app, folder / "state", run))
            harness.delete(release, app)
            _never_migrated[key] = folder / "dump.jsonl"
        return _never_migrated[key]

    return dump


@pytest.mark.rotating(2)
@pytest.mark.parametrize(
    ("chain", "guarantee"), selected_cases(), ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_migrated_directory_serves_the_same(
    harness: Harness,
    tmp_path: Path,
    never_migrated: Callable[[str, str, str, str], Path],
    chain: tuple[str, ...],
    guarantee: str,
) -> None:
    source, target = chain[0], chain[-1]
    began = time.monotonic()
    oldest = "{}.{}".format(*min(map(number, chain)))
    topology = topology_for(source, oldest)
    app = application(topology, guarantee)
    harness.produce(source, app, BATCH)
    good(harness.run(source, app, tmp_path / "state", Run(as_of=oldest, read=False)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")

    reference = tmp_path / "reference.jsonl"
    forgotten = only_what_is_forgotten(source)
    again = Run(dump=reference, as_of=oldest, expect_no_restore=True, may_restore=forgotten)
    before = good(harness.run(source, app, tmp_path / "unmigrated", again))
    for release in chain[1:]:
        result = migrate(
            tmp_path / "state" / app.name, release, "--warnings-ok"
        )  # kv-nolog has no changelog: a warning
        assert result.status == 0, result.report

    served, grown = tmp_path / "served.jsonl", tmp_path / "grown.jsonl"
    run = Run(dump=served, steps=[Step(BATCH.next(), grown)], as_of=oldest, expect_no_restore=True,
              may_restore=forgotten)  # fmt: skip
    after = good(harness.run(target, app, tmp_path / "state", run))
    assert not [str(difference) for difference in dumps.differences(reference, served)]
    assert told_positions(after) == told_positions(before)
    assert not wipes_task(after), after.report()
    assert sum_of(grown, "count") == records_with_value(harness, f"{app.input}-events", tmp_path)
    usual = never_migrated(target, topology, guarantee, oldest)
    assert not [str(difference) for difference in dumps.differences(usual, grown, edit=without_arrival_order)]
    # What the target release left behind it opens again.
    handle = Run(as_of=oldest, expect_no_restore=True, may_restore=only_what_is_forgotten(target))
    good(harness.run(target, app, tmp_path / "state", handle))
    harness.delete(target, app)
    count = after.of("summary")[-1]["restoredFromPersistentStores"] + sum(
        restored_records(after).get(entry, 0) for entry in forgotten
    )
    note(Proof(chain, guarantee, count, round(time.monotonic() - began), today(),
               f"{GLOBAL_TABLE}: {source} leaves no offset, KAFKA-18168" if count else ""))  # fmt: skip


def test_every_proven_pair_runs_here() -> None:
    assert hops(proofs()) == PROVEN


def test_a_row_is_noted_once_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSTATE_INTEROP_RECORD", str(tmp_path / "record"))
    cases = every_pair()
    assert without_proof(cases) == cases
    for seconds in (30, 31):
        note(Proof(*cases[0], 0, seconds, "2026-01-01"))
    assert without_proof(cases) == cases[1:]
    assert proofs(tmp_path / "record") == [Proof(*cases[0], 0, 31, "2026-01-01")]


def test_record_of_a_proven_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What passed is kept, and counted in the table; what failed is told, what was skipped counts for nothing."""
    results, backup = tmp_path / "results.xml", tmp_path / "proven.jsonl"
    case = '<testcase classname="tests.interop.{}" name="{}" time="{}">{}</testcase>'
    texts = [("test_killed", "a", 30, ""), ("test_killed", "b", 31, ""), ("test_query", "c", 9, "<skipped/>"),
            ("test_check", "d", 5, '<failure message="3 restored">at</failure>')]  # fmt: skip
    results.write_text(
        f"<testsuites><testsuite>{''.join(case.format(*entry) for entry in texts)}</testsuite></testsuites>"
    )
    arguments, failed = proving.ran("4.3.0", results)
    assert arguments == [proving.Ran("4.3.0", "test_killed", 2, 61, today())]
    assert failed == ["FAILED test_check::d: 3 restored"]
    monkeypatch.setattr(proving, "FINAL", backup)
    assert proving.recorded() == []
    rows = [{"release": "4.3.0", "test": "test_killed", "cases": cases, "seconds": 61, "date": "2026-01-01"}
            for cases in (2, 1)]  # fmt: skip
    backup.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    chain = Proof(("4.2.1", "4.3.0", "4.2.1"), "eos", 0, 59, "2026-01-01")
    usual = Proof(("4.2.1", "4.3.1"), "eos", 0, 59, "2026-01-01")
    table_rows = list(proving.rows(proving.recorded(), [chain, usual]))
    assert table_rows == [("4.3.0", "1", "not run", "not run", "not run", "2", "0", "2")]


@pytest.mark.in_full("tests/interop/test_failed_start.py::test_a_failed_start_of_4_2")
@pytest.mark.parametrize(
    ("made_by", "older", "message"),
    [
        ("4.3.1", "4.2.1", "Column families not opened: offsets"),
        ("4.2.1", "3.9.2", "unsupported format_version: 6"),
    ],
)
def test_without_kstate_an_older_release_refuses_the_directory(
    harness: Harness, tmp_path: Path, made_by: str, older: str, message: str
) -> None:
    app = application("kinds", "eos")
    harness.produce(made_by, app, BATCH)
    good(harness.run(made_by, app, tmp_path, Run(read=False)))
    reply = harness.run(older, app, tmp_path)
    assert reply.rc == 3
    assert message in reply.report()


@pytest.mark.in_full("tests/directories/test_migrate.py::test_stores_never_written_are_carried_into_4_3")
def test_a_store_never_written(harness: Harness, tmp_path: Path) -> None:
    """Real 4.3.1 wipes the task for it, since the store has no offset and is no empty directory; after kstate it does not."""
    app = application("sparse", "eos")
    harness.produce("4.2.1", app, BATCH)
    live = tmp_path / "live.jsonl"
    good(harness.run("4.2.1", app, tmp_path / "state", Run(dump=live)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")

    alone = harness.run("4.3.1", app, tmp_path / "unmigrated", Run(read=False))
    assert wipes_task(alone), alone.report()
    assert restored_records(alone).get("kv-written", 0) > 0

    result = migrate(tmp_path / "state" / app.name, "4.3")
    assert result.status == 0, result.report
    served = tmp_path / "served.jsonl"
    reply = good(harness.run("4.3.1", app, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert not wipes_task(reply), reply.report()
    assert restored_records(reply) == {}
    assert not [str(difference) for difference in dumps.differences(live, served)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["4.3.1-kinds-eos", "3.9.2-kinds-eos"])
@pytest.mark.parametrize("to", ["3.5", "3.4", "3.3", "3.2"])
def test_a_store_that_the_target_does_not_know_is_refused_by_name(tmp_path: Path, name: str, to: str) -> None:
    directory = unpack(name, tmp_path)
    before = tree_hash(tmp_path)
    result = migrate(directory, to, "--warnings-ok", "--drop-headers")
    assert result.status == REFUSAL, result.report
    for first, stores in UNKNOWN_BEFORE.items():
        for store, kind in stores.items():
            lines = [line for line in result.err.splitlines() if re.match(rf"\s+\d+_\d+/{store}: .*{kind}", line)]
            assert bool(lines) == (number(to) < number(first)), result.report
    assert tree_hash(tmp_path) == before


@pytest.mark.parametrize("topology", ["headers", "headers-joins"] if ALL else ["headers-joins"])
def test_headers_are_dropped_only_on_request(harness: Harness, tmp_path: Path, topology: str) -> None:
    """The topology "headers-joins" is "headers" with a stream-stream join, whose windows keep headers too."""
    app = application(topology, "eos")
    harness.produce("4.3.1", app, BATCH)
    good(harness.run("4.3.1", app, tmp_path / "state", Run(read=False)))
    shutil.copytree(tmp_path / "state", tmp_path / "unmigrated")
    reference, served = tmp_path / "reference.jsonl", tmp_path / "served.jsonl"
    good(harness.run("4.3.1", app, tmp_path / "unmigrated", Run(dump=reference, expect_no_restore=True)))
    assert '"headers"' in reference.read_text(encoding="utf-8")

    refusal = migrate(tmp_path / "state" / app.name, "4.2", "--warnings-ok")
    assert refusal.status == REFUSAL, refusal.report
    result = migrate(tmp_path / "state" / app.name, "4.2", "--warnings-ok", "--drop-headers")
    assert result.status == 0, result.report
    old = App(app.name, f"{topology}-old", app.guarantee, app.input)
    reply = good(harness.run("4.2.1", old, tmp_path / "state", Run(dump=served, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not [str(difference) for difference in dumps.differences(reference, served, edit=as_without_headers)]
    rows = dumps.counts(served)
    assert rows.keys() == dumps.counts(reference).keys()
    assert rows["kv-headers"], rows
    if topology == "headers-joins":
        assert rows["join-this-join-store"], rows
        assert rows["join-outer-other-join-store"], rows


@pytest.mark.parametrize("name", ["4.2.1-kinds-eos-killed-first", "4.2.1-kinds-eos-killed-second"])
def test_a_killed_directory_is_refused(tmp_path: Path, name: str) -> None:
    result = migrate(unpack(name, tmp_path), "4.3", "--warnings-ok")
    assert result.status == REFUSAL, result.report

"""
What differs between patch releases: task directories and rows by the releases on both sides, and `kstate rehome`.

The topologies are in ``Shared.java``: two suppliers return one StoreBuilder, and both write it or one reads it.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.patch_releases import SHARED_STORE_BUILDER
from kstate_cli.releases import release

from . import dumps
from .expiry import FAR_BEHIND, PATIENT, read_changelogs
from .harness import App, Batch, Harness, Run, Step
from .jvm import Reply
from .restoring import changelogs, dump_changelogs
from .support import application, good, kstate, restored_records, wipes_task
from .test_killed import first_record, list_stores

pytestmark = pytest.mark.interop

BATCH = Batch(records=60, keys=10, partitions=1)
THREADS = {"num.stream.threads": "3"}
"""One for each task: two tasks of one changelog in one thread may end a start of the old releases by chance, with
"There is already a changelog registered" (``StoreChangelogReader.register``)."""
PAIRS = [("4.2.1", "4.2.2"), ("4.3.1", "4.4.0")]
SEPARATE = {"0": {"count", "shared"}, "1": {"second-count", "shared"}, "2": {"last-count"}}
TOGETHER = {"0": {"count", "second-count", "shared"}, "1": {"last-count"}}


def layout(directory: Path) -> dict[str, set[str]]:
    """Sub-topology -> the stores in its task directories."""
    parts: dict[str, set[str]] = {}
    for store in directory.glob("*_*/rocksdb/*"):
        parts.setdefault(store.parent.parent.name.partition("_")[0], set()).add(store.name)
    return parts


def start(harness: Harness, version: str, app: App, state: Path, run: Run | None = None) -> Reply:
    """The application on a directory; its text and its stores are in files beside it."""
    options = {"describe-into": str(state.with_suffix(".txt"))}
    run = run or Run()
    return harness.run(
        version, app, state, replace(run, dump=state.with_suffix(".jsonl"), options=options, conf=THREADS)
    )


def copy_directory(folder: Path, name: str) -> Path:
    """A copy of the directory as the old release left it."""
    shutil.copytree(folder / "old", folder / name, symlinks=True)
    return folder / name


@pytest.mark.rotating(4, "commands next to a running application")
@pytest.mark.sample(1)
@pytest.mark.parametrize(("old", "new"), PAIRS)
@pytest.mark.parametrize("topology", ["shared-read", "shared-written"])
def test_store_builder_shared_by_two_suppliers(
    harness: Harness, tmp_path: Path, topology: str, old: str, new: str
) -> None:
    app = replace(application(topology, "eos"), topology=topology)
    harness.produce(old, app, BATCH)
    good(start(harness, old, app, tmp_path / "old"))
    directory = tmp_path / "old" / app.name
    assert layout(directory) == SEPARATE
    assert [release(entry).is_new(SHARED_STORE_BUILDER) for entry in (old, new)] == [False, True]

    # Without kstate the new release restores every store.
    upgraded = good(start(harness, new, app, copy_directory(tmp_path, "plain")))
    assert set(restored_records(upgraded)) == TOGETHER["0"] | TOGETHER["1"]
    assert layout(tmp_path / "plain" / app.name).items() >= TOGETHER.items()
    truth = tmp_path / "plain.jsonl"

    # check says so, with the texts and without.
    texts = ("--topology", tmp_path / "plain.txt", "--from", tmp_path / "old.txt")
    for words in ((), texts):
        results = kstate("check", directory, "--for", new, *words, "-o", "json")
        codes = {row["code"] for row in results.rows if row["type"] == "finding"}
        assert results.status == 3 and "shared-store-regrouped" in codes, results.report
    same = kstate("check", directory, "--for", old, "--topology", tmp_path / "old.txt", "-o", "json")
    assert same.status == 0, same.report

    # After rehome Streams restores the shared store alone, since no copy has all of its records.
    copy_directory(tmp_path, "rehomed")
    result = kstate("rehome", tmp_path / "rehomed" / app.name, *texts, "--warnings-ok")
    assert result.status == 0, result.report
    assert layout(tmp_path / "rehomed" / app.name).keys() == TOGETHER.keys()
    reply = good(start(harness, new, app, tmp_path / "rehomed", Run(expect_no_restore=True, may_restore=["shared"])))
    assert not wipes_task(reply) and set(restored_records(reply)) == {"shared"}
    assert not [str(difference) for difference in dumps.differences(truth, tmp_path / "rehomed.jsonl")]

    # Where one sub-topology alone writes it, and kstate.toml says which, nothing is restored.
    if topology == "shared-read":
        spec = tmp_path / "kstate.toml"
        spec.write_text("format = 1\n[stores.shared]\nsubtopology = 0\n", encoding="utf-8")
        copy_directory(tmp_path, "specified")
        result = kstate("rehome", tmp_path / "specified" / app.name, *texts, "--spec", spec)
        assert result.status == 0, result.report
        reply = good(start(harness, new, app, tmp_path / "specified", Run(expect_no_restore=True)))
        assert not wipes_task(reply) and not restored_records(reply)
        assert not [str(difference) for difference in dumps.differences(truth, tmp_path / "specified.jsonl")]

    # And back: what the new release left, for the old one.
    back = kstate("rehome", tmp_path / "rehomed" / app.name, "--topology", tmp_path / "old.txt", "--from", texts[1])
    assert back.status == 0, back.report
    reply = good(start(harness, old, app, tmp_path / "rehomed", Run(may_restore=["shared"])))
    assert set(restored_records(reply)) <= {"shared"}, f"{back.report}\n{reply.report()}"
    assert not [
        str(difference) for difference in dumps.differences(truth, tmp_path / "rehomed.jsonl", ignore={"shared"})
    ]
    harness.delete(new, app)


@pytest.mark.in_full("tests/interop/test_patch_releases.py::test_store_builder_shared_by_two_suppliers")
def test_at_least_once_keeps_half_of_the_rows(harness: Harness, tmp_path: Path) -> None:
    """Nothing is wiped, so the copy of the first sub-topology stays, and check calls that an error."""
    app = replace(application("shared-written", "alos"), topology="shared-written")
    harness.produce("4.2.1", app, BATCH)
    # Half of the keys come again: what the second sub-topology wrote of the others is below the offset of the first.
    again = Step(replace(BATCH.next(), keys=BATCH.keys // 2))
    good(start(harness, "4.2.1", app, tmp_path / "old", Run(steps=[again])))
    good(start(harness, "4.2.2", app, tmp_path / "fresh"))
    good(start(harness, "4.2.2", app, copy_directory(tmp_path, "plain")))
    differences = dumps.differences(tmp_path / "fresh.jsonl", tmp_path / "plain.jsonl")
    assert {difference.store for difference in differences} == {"shared"}

    directory = tmp_path / "old" / app.name
    words = ("--topology", tmp_path / "plain.txt", "--from", tmp_path / "old.txt", "--guarantee", "at_least_once")
    results = kstate("check", directory, "--for", "4.2.2", *words, "-o", "json")
    levels = {
        row["level"] for row in results.rows if row["type"] == "finding" and row["code"] == "shared-store-regrouped"
    }
    assert levels == {"error"}, results.report

    result = kstate("rehome", directory, *words, "--warnings-ok")
    assert result.status == 0, result.report
    reply = good(start(harness, "4.2.2", app, tmp_path / "old", Run(expect_no_restore=True, may_restore=["shared"])))
    assert set(restored_records(reply)) == {"shared"}
    assert not [str(difference) for difference in dumps.differences(tmp_path / "fresh.jsonl", tmp_path / "old.jsonl")]
    harness.delete("4.2.2", app)


@pytest.mark.in_full("tests/unit/check/test_transactional.py::test_counts_of_windows_far_behind_are_upper_bounds")
@pytest.mark.parametrize("version", ["4.2.1", "4.2.2", "4.4.0"])
def test_a_windowed_store_far_behind(harness: Harness, tmp_path: Path, version: str) -> None:
    """4.2.2 skips what has expired though a store has an offset, and check states an upper bound."""
    app, uncached = application("demo", "alos"), {"statestore.cache.max.bytes": "0"}
    state, behind = tmp_path / "state", tmp_path / "behind"
    harness.produce(version, app, Batch(records=200, keys=10, partitions=1))
    topics = changelogs(good(harness.run(version, app, state, Run(conf=uncached, read=False))))
    shutil.copytree(state, behind)
    harness.produce(version, app, Batch(records=FAR_BEHIND + 600, first=FAR_BEHIND + 600, keys=10, partitions=1))
    good(harness.run(version, app, state, Run(conf=uncached, read=False)))
    logs = read_changelogs(harness, version, topics, tmp_path / "logs")
    dump = dump_changelogs(harness, version, topics, tmp_path / "dump")
    begin = first_record(list_stores(behind / app.name))
    checked = kstate(
        "check", behind / app.name, "--for", version, "--guarantee", "at_least_once", "--dump", dump, "-o", "json"
    )
    predicted = {row["store"]: row for row in checked.rows if row["type"] == "prediction"}

    for folder, facts in ((behind, begin), (tmp_path / "nothing", {})):
        reply = good(harness.run(version, app, folder, Run(read=False, conf=PATIENT)))
        counts = restored_records(reply)
        windowed = [event for event in reply.of("restore-start") if logs[event["topic"], event["partition"]].windowed]
        assert {event["store"] for event in windowed} == {"orders-per-minute", "visits"}
        for event in windowed:
            key, store, first = (event["topic"], event["partition"]), event["store"], event["start"]
            log, following = logs[key], facts.get(key)
            assert first in log.first_reads(version, following), event
            assert counts[store] == log.counted(first), event
            if version == "4.2.2":
                assert first > (following or 0), event
            if folder == behind:
                row = predicted[store]
                assert row["records"] == log.counted(begin[key]), checked.report
                assert row["records_exact"] is (version != "4.2.2"), checked.report
    harness.delete(version, app)

"""
A delete that the log has forgotten: written after a store's offset, and compacted away by a real cleaner before the dump was read.

The log start has not moved, so the store's offset is as valid as ever. Real Streams goes on from it and keeps the row for ever.
"""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kstate_cli.formats.topic_partition import TopicPartition

from .harness import Harness, Run
from .restoring import (
    CompactingHarness,
    alter,
    changelog,
    changelogs,
    compact,
    different,
    dump_changelogs,
    restore,
    rows_by_store,
    write_spec,
)
from .support import BATCH, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASE, STORE = "4.3.1", "latest-order"
RETENTION_MS = 3_000
_SECONDS = 600


@pytest.fixture(scope="module")
def compacting() -> Iterator[Harness]:
    with CompactingHarness() as started:
        yield started


def records(dump: Path, topic: str) -> list[tuple[bytes, bytes | None]]:
    """Key and value of every record of partition 0, in order."""
    lines = dump.with_name(f"{dump.name}-lines") / f"{topic}.jsonl"
    documents = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    return [
        (base64.b64decode(entry["key"]), None if entry["value"] is None else base64.b64decode(entry["value"]))
        for entry in documents
        if entry.get("partition") == 0
    ]


def forget(harness: Harness, folder: Path, topic: str, key: bytes, filler: tuple[bytes, bytes | None]) -> None:
    """Deletes a key in partition 0 and has the cleaner go by until nothing in the log says that it ever was."""
    producer = Producer({"bootstrap.servers": harness.bootstrap})
    producer.produce(topic, key=key, value=None, partition=0)
    producer.flush()
    deadline = time.monotonic() + _SECONDS
    for number in range(_SECONDS):
        # Every batch begins a segment, and only what lies before the newest one is cleaned.
        producer.produce(topic, key=filler[0], value=filler[1], partition=0)
        producer.flush()
        time.sleep(1)
        dump = dump_changelogs(harness, RELEASE, [topic], folder / f"look-{number}")
        if key not in {entry for entry, _ in records(dump, topic)}:
            return
        assert time.monotonic() < deadline, "the cleaner does not come by"
    raise AssertionError("the cleaner does not come by")


def has(directory: Path, key: bytes) -> bool:
    return any(key in dict(rows) for name, rows in rows_by_store(directory, task="0_0").items() if STORE in name)


@pytest.mark.in_full("tests/loop/test_loop.py::test_five_hundred_keys_that_come_back")
def test_a_delete_that_was_compacted_away(compacting: Harness, tmp_path: Path) -> None:
    harness, app = compacting, application("demo", "eos")
    topic = changelog(app, STORE)
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    directory = tmp_path / "state" / app.name
    spec = write_spec(directory, tmp_path / "kstate.toml")

    def copy(name: str) -> Path:
        """Of the directory as it is before the delete, made young as a copy does it."""
        target = tmp_path / name / app.name
        shutil.copytree(directory, target, copy_function=shutil.copyfile)
        assert min(path.stat().st_mtime for path in target.rglob("*.sst")) >= started
        return target

    before = dump_changelogs(harness, RELEASE, [topic], tmp_path / "before")
    key = next(key for key, value in reversed(records(before, topic)) if value is not None)
    filler = next((other, value) for other, value in records(before, topic) if other != key and value is not None)
    assert has(directory, key)
    compact(harness, RELEASE, [topic])
    alter(harness, RELEASE, [topic], [f"delete.retention.ms={RETENTION_MS}"])
    forget(harness, tmp_path, topic, key, filler)
    dump = dump_changelogs(harness, RELEASE, changelogs(first), tmp_path / "dump")
    started = int(time.time())
    partition = next(
        load for load in json.loads((dump / "_manifest.json").read_text())["partitions"]
        if TopicPartition(load["topic"], load["partition"]) == TopicPartition(topic, 0)
    )  # fmt: skip
    assert partition["log_start"] == 0, "no retention has touched the log: its start tells nothing"

    # What is true: real Streams, from the log alone.
    good(harness.run(RELEASE, app, tmp_path / "streams", Run(read=False)))
    store = f"0_0/rocksdb/{STORE}"
    truth = rows_by_store(tmp_path / "streams" / app.name, task=store)
    assert truth
    assert not has(tmp_path / "streams" / app.name, key)

    # What goes wrong: real Streams on the old copy, and a dump taken in all the same. kstate says both beforehand.
    alone = copy("alone")
    check = kstate("check", alone, "--for", "4.3", "--bootstrap-server", harness.bootstrap, "-o", "json")
    (finding,) = [
        row for row in check.rows
        if row["type"] == "finding" and row["code"] == "older-than-tombstones" and row["task"] == "0_0"
    ]  # fmt: skip
    assert finding["store"] == STORE, check.report
    reply = good(harness.run(RELEASE, app, tmp_path / "alone", Run(read=False)))
    assert not wipes_task(reply), reply.report()
    assert has(alone, key)
    accepted = copy("accepted")
    result = restore(accepted, dump, RELEASE, spec, "--accept-resurrected")
    assert result.steps[store].startswith("catch up"), result.command.report
    assert has(accepted, key)

    # What kstate does of itself.
    repair = copy("mended")
    result = restore(repair, dump, RELEASE, spec)
    step = result.steps[store]
    assert step.startswith("rebuild"), result.command.report
    assert "tombstones from that period may be missing" in step
    assert not has(repair, key)
    assert not different(rows_by_store(repair, task=store), truth)
    reply = good(harness.run(RELEASE, app, tmp_path / "mended", Run(read=False, expect_no_restore=True)))
    assert restored_records(reply) == {}
    assert not wipes_task(reply), reply.report()
    assert not has(repair, key)

    # A restored store is as old as the reading, not as its files: on the next day it is not caught up either.
    again = copy("again")
    restore(again, dump, RELEASE, spec)
    assert kstate("clean", again).status == 0
    ages = json.loads((again.parent / ".kstate" / app.name / "ages.json").read_text())
    assert [age["as_of_ms"] for age in ages["stores"][f"0_0/{STORE}"]] == [partition["reading"]["started_ms"]] * 2
    time.sleep(RETENTION_MS / 1000 + 1)
    producer = Producer({"bootstrap.servers": harness.bootstrap})
    producer.produce(topic, key=filler[0], value=filler[1], partition=0)
    producer.flush()
    later = dump_changelogs(harness, RELEASE, changelogs(first), tmp_path / "later")
    result = restore(again, later, RELEASE, spec, "--dry-run")
    assert result.steps[store].startswith("rebuild"), result.command.report
    harness.delete(RELEASE, app)

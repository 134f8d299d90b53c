"""What a run of a restoration writes down: how old the data is that it has made, from which logs, and what is precious."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path

from kstate_cli.change.folder import read_runs
from kstate_cli.dump_reader.manifest import NAME, Manifest, Reading, parse, render
from kstate_cli.formats.offsets import decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.ages import SstAge, read_ages, resolve_age, sst_age
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.scan import read_application
from tests.directories.support import kstate
from tests.golden import unpack

from .support import ROOT

KEY = TopicPartition("orders-latest-order-changelog", 0)
STORE = "0_0/latest-order"
LAST = 35
HOUR = 3_600_000


def look(app: Path) -> SstAge:
    (age,) = [
        sst_age(store) for task in read_application(app).tasks for store in task.stores
        if f"{task.name}/{store.name}" == STORE
    ]  # fmt: skip
    return age


def restore(app: Path, dump: Path, *options: object) -> None:
    spec = ROOT / "examples" / "dump.toml"
    arguments = ["restore", app, "--from-changelog", dump, "--for", "4.3", "--spec", spec, "--store", "latest-order",
                 "--task", "0_0", "--engine", "local", "-o", "json", *options]  # fmt: skip
    kstate(*arguments)


def test_restoration_records_ages(tmp_path: Path) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path)
    database = app / "0_0" / "rocksdb" / "latest-order"
    with Shadow(database) as shadow:
        record = decode_rows(shadow.rows(OFFSETS_CF))
    with WritableStore(database) as store:
        store.set_offsets(encode_rows(dataclasses.replace(record, offsets={KEY: LAST - 10})))
    old = look(app)
    assert old.at_ms is not None
    dump = tmp_path / "dump"
    shutil.copytree(ROOT / "examples" / "dump", dump)
    facts = parse((dump / NAME).read_bytes())
    read = Reading(old.at_ms + 5 * HOUR, old.at_ms + 6 * HOUR, "compact", 24 * HOUR, 2)
    dated = tuple(dataclasses.replace(partition, reading=read, topic_id="an-id") for partition in facts.partitions)
    (dump / NAME).write_bytes(render(Manifest(facts.isolation, dated, facts.files, facts.committed)))

    # Caught up: old files, and data as of the beginning of the reading.
    restore(app, dump)
    caught_up = look(app)
    age = resolve_age(read_ages(app), STORE, {KEY: LAST}, caught_up)
    assert (caught_up.at_ms, age.as_of_ms) == (old.at_ms, read.started_ms)
    mark = age.logs[KEY]
    assert (mark.topic_id, mark.leader_epoch, mark.last, len(mark.digest or "")) == ("an-id", 2, LAST, 64)
    (run,) = read_runs(app)
    assert run.last("logs")["logs"] == {KEY.kafka_name: mark.as_json()}
    assert not run.last("precious")

    # Taken back: as old as it was; cleaned: what is written down stays.
    kstate("undo", app)
    assert look(app) == old
    assert resolve_age(read_ages(app), STORE, {KEY: LAST - 10}, old).as_of_ms == old.at_ms
    kstate("clean", app)
    assert read_ages(app)

    # Rebuilt over what no log has any more, because somebody says so: new files, old data, and a run that is precious.
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps({KEY.topic: {"0": {"start": 0, "end": 20, "id": "an-id"}}}), encoding="utf-8")
    options = ["--from-changelog", dump, "--for", "4.3", "--store", "latest-order", "--task", "0_0", "--dry-run"]
    refusal = kstate("restore", app, *options, "--spec", ROOT / "examples" / "dump.toml", "--offsets", bounds, status=4)
    assert "Do not start the application" in refusal.err
    start = time.time()
    restore(app, dump, "--offsets", bounds, "--rebuild", "--warnings-ok")
    rebuilt = look(app)
    assert max(path.stat().st_mtime for path in database.glob("*.sst")) >= int(start)
    assert resolve_age(read_ages(app), STORE, {KEY: LAST}, rebuilt).as_of_ms == read.started_ms
    *_, run = read_runs(app)
    assert STORE in run.last("precious")["why"]

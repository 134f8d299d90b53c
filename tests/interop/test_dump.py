"""``kstate dump`` from a real broker, and a standby of what it wrote that real Streams starts from."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from .dumping import dump, dumped, files_of, newest, on_broker
from .harness import Harness, Run
from .restoring import changelogs, restore, run_restore, write_spec
from .support import ALL, BATCH, application, good, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASE = "4.3.1"


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.parametrize("guarantee", ["eos", "alos"] if ALL else ["eos"])
def test_dumped_restored_and_started(harness: Harness, tmp_path: Path, guarantee: str) -> None:
    """Streams restores exactly the records after the dump's end, store by store, and has what it would have had.

    What it starts from is a standby: restored from the first dump, and caught up by what the next one added.
    """
    app = application("kinds", guarantee)
    harness.produce(RELEASE, app, BATCH)
    first = good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    topics = changelogs(first)
    names = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
    out = tmp_path / "dump"
    entry = dump(harness, out, "--app", app.name, *names)
    assert entry.summary["generation"] == 1
    assert dumped(out) == on_broker(harness, topics, tmp_path / "lines-1")
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in [out, *out.rglob("*")])

    spec = write_spec(tmp_path / "state" / app.name, tmp_path / "kstate.toml", memory=True)
    standby = tmp_path / "standby" / app.name
    standby.parent.mkdir()
    outputs = restore(standby, out, RELEASE, spec, "--standby")
    assert not restore(standby, out, RELEASE, spec, "--standby").of("store"), "nothing is new"

    # A second call adds what is new, and nothing else.
    before = files_of(out)
    harness.produce(RELEASE, app, BATCH.next())
    good(harness.run(RELEASE, app, tmp_path / "state", Run(read=False)))
    two = dump(harness, out, "--app", app.name, *names)
    content = on_broker(harness, topics, tmp_path / "lines-2")
    assert dumped(out) == content
    assert before < files_of(out)
    new = {(row["topic"], row["partition"]): row for row in two.rows if row["type"] == "partition"}
    first_ends = {(row["topic"], row["partition"]): row["end"] for row in entry.rows if row["type"] == "partition"}
    assert {key: row["start"] for key, row in new.items()} == first_ends
    assert {row["dumped"] for row in new.values()} == {"continued"}

    # Whatever lies there besides does not exist: a reader never looks at it.
    folder = out / next(iter(files_of(out)))
    (folder.parent / "junk.parquet").write_bytes(b"no parquet")

    by_spec = dump(harness, tmp_path / "by-spec", "--spec", spec, "--dry-run")
    planned = {row["topic"] for row in by_spec.rows if row["type"] == "partition"}
    assert planned == {topic for topic in topics if "kv-memory" not in topic}

    harness.produce(RELEASE, app, BATCH.next().next())
    live = good(harness.run(RELEASE, app, tmp_path / "state", Run(dump=tmp_path / "live.jsonl")))
    assert live
    beyond = on_broker(harness, topics, tmp_path / "lines-3")
    (tmp_path / "state").rename(tmp_path / "lost")

    caught_up = restore(standby, out, RELEASE, spec, "--standby")
    total = sum(row["records"] for row in caught_up.of("store"))
    assert 0 < total <= sum(row["records"] for row in new.values()), "what is new, and no more"
    standby.parent.rename(tmp_path / "state")
    started = good(harness.run(RELEASE, app, tmp_path / "state", Run(dump=tmp_path / "again.jsonl")))
    assert not wipes_task(started)
    ends = {key: full.end for key, full in newest(out).newest().items()}
    stores = {row["store"]: row["changelog"] for row in outputs.of("store")}
    expected = {
        store: sum(
            sum(1 for record in records if record[0] >= ends[key])
            for key, records in beyond.items()
            if any(
                key.topic in changelog
                for changelog in [row["changelog"] for row in outputs.of("store") if row["store"] == store]
            )
        )
        for store in stores
    }
    messages = restored_records(started)
    assert {store: messages.get(store, 0) for store in expected} == expected
    assert sum(expected.values()) > 0
    # Once Streams has used it, it is no standby any more.
    result = run_restore(tmp_path / "state" / app.name, out, RELEASE, spec, "--standby")
    assert result.status == 4 and "has used or changed" in result.err, result.report

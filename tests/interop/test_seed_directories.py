"""``kstate seed --from APP``: the changelogs are lost, and the directories of real Kafka Streams are what is left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kstate_cli.seed.cluster import EMPTY, Connection, read_cluster, read_topics
from tests.done import Done

from . import dumps
from .harness import App, Harness, Run
from .restoring import write_spec
from .seeding import Record, content
from .support import BATCH, application, good, kstate, wiped

pytestmark = pytest.mark.interop

CASES = [("4.3.1", "eos"), ("4.4.0", "alos"), ("4.4.0", "eos"), ("4.3.1", "alos")]
ACCEPTED = ("versioned", "fk-result")
"""Kafka Streams keeps no Position of a versioned store, and nothing else is in its task. The last answers of a
foreign-key join change no row of its result."""
GARBLED = "grace-join-Buffer"
"""Kafka Streams itself garbles the rows of such a buffer when it restores it."""
IN_MEMORY = ("kv-memory",)
NOT_SEEDED = ("kv-memory", "kv-nolog", GARBLED)
WITHOUT_TIMESTAMPS = (
    "kv-plain",
    "window-plain",
    "window-duplicates",
    "session-plain",
    "session-count",
    "session-final",
    "join-left-shared-join-store",
    GARBLED,
)
"""Stores whose rows have no timestamp, or another one than the record."""


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Size and time of every file and folder."""
    paths = [directory, *sorted(directory.rglob("*"))]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def own_changelogs(harness: Harness, app: App) -> list[str]:
    """The changelogs of an application that the broker has."""
    topics = AdminClient({"bootstrap.servers": harness.bootstrap}).list_topics(timeout=30).topics
    names = [topic for topic in topics if topic.startswith(f"{app.name}-") and topic.endswith("-changelog")]
    return sorted(name for name in names if not name.startswith(f"{app.name}-new-"))


def delete_topics(harness: Harness, topics: Iterable[str]) -> None:
    """Delete topics, and wait until the broker no longer lists them."""
    admin = AdminClient({"bootstrap.servers": harness.bootstrap})
    names = list(topics)
    for future in admin.delete_topics(names).values():
        future.result()
    deadline = time.monotonic() + 60
    while set(names) & admin.list_topics(timeout=30).topics.keys():
        assert time.monotonic() < deadline, names
        time.sleep(0.1)


def await_empty(harness: Harness, group: str) -> None:
    """Wait until the broker has removed the members of a group: Kafka Streams leaves none when it is closed."""
    deadline = time.monotonic() + 120
    while read_cluster(Connection(harness.bootstrap, {})).groups.get(group) != EMPTY:
        assert time.monotonic() < deadline, group
        time.sleep(0.5)


def seed(harness: Harness, directory: Path, folder: Path, app: str, *options: object, status: int = 0) -> Done:
    """Run the command."""
    words = ["seed", "--from", directory, "--app", app, "--bootstrap-server", harness.bootstrap]
    result = kstate(*words, "--journal", folder / f"journal-{app}.jsonl", "-o", "json", *options)
    assert result.status == status, result.report
    return result


def newest(records: Iterable[Record]) -> dict[bytes, Record]:
    """The newest record of each key; deleted keys have none."""
    by_key: dict[bytes, Record] = {}
    for record in records:
        by_key.pop(record[0] or b"", None)
        if record[1] is not None:
            by_key[record[0] or b""] = record
    return by_key


@pytest.mark.sample(1)
@pytest.mark.parametrize(("release", "guarantee"), CASES)
def test_an_application_continues_from_its_directories(
    harness: Harness, tmp_path: Path, release: str, guarantee: str
) -> None:
    """Under another id it counts on as the old one does; under its own id it has the same rows as before the loss."""
    old = application("kinds", guarantee)
    new = replace(old, name=f"{old.name}-new", prefix=old.input)
    harness.produce(release, old, BATCH)
    good(harness.run(release, old, tmp_path / "old", Run(read=False)))
    directory = tmp_path / "old" / old.name
    spec = write_spec(directory, tmp_path / "kstate.toml", memory=True)
    options = ["--spec", spec, *(word for store in ACCEPTED for word in ("--accept", store))]
    before = files(directory)
    await_empty(harness, old.name)
    seeded = seed(harness, directory, tmp_path, new.name, *options)
    assert files(directory) == before
    assert seeded.summary["written"] == seeded.summary["records"] > 0
    _same_as_the_logs(harness, old, new)
    assert seed(harness, directory, tmp_path, new.name, *options).summary["written"] == 0

    harness.produce(release, old, BATCH.then())
    for app, folder in ((old, "old"), (new, "new")):
        reply = good(harness.run(release, app, tmp_path / folder, Run(dump=tmp_path / f"{folder}.jsonl")))
        assert not wiped(reply)
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl", ignore=NOT_SEEDED)
    assert not [str(difference) for difference in differences]

    delete_topics(harness, own_changelogs(harness, old))
    await_empty(harness, old.name)
    shutil.copytree(directory, tmp_path / "copy" / old.name)
    again = seed(harness, directory, tmp_path, old.name, *options)
    assert again.summary["copied_offsets"] == 0
    # In an empty state directory, and in the one with offsets of the lost log: Kafka Streams finds the logs shorter.
    for folder in ("empty", "copy"):
        good(harness.run(release, old, tmp_path / folder, Run(dump=tmp_path / f"{folder}.jsonl")))
        differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / f"{folder}.jsonl", ignore=NOT_SEEDED)
        assert not [str(difference) for difference in differences], folder


def _same_as_the_logs(harness: Harness, old: App, new: App) -> None:
    """Every record of a row is the newest one of its key in the changelog; settings are those of the changelog."""
    connection = Connection(harness.bootstrap, {})
    for topic in own_changelogs(harness, old):
        target = topic.replace(old.name, new.name)
        store = topic.removeprefix(f"{old.name}-").removesuffix("-changelog")
        if store in IN_MEMORY:
            continue
        both = read_topics(connection, [topic, target])
        # Input of the tests is older than any retention, so that stays unlimited.
        expected = {**both[topic].settings}
        if "retention.ms" in expected:
            expected["retention.ms"] = "-1"
        assert both[target].settings == expected, topic
        seeded = content(harness, target)
        for partition, records in content(harness, topic).items():
            logged, rows = newest(records), newest(seeded[partition])
            assert rows.keys() == logged.keys(), topic
            assert [rows[key][1] for key in sorted(rows)] == [logged[key][1] for key in sorted(rows)], topic
            if store not in WITHOUT_TIMESTAMPS:
                assert [rows[key][2] for key in sorted(rows)] == [logged[key][2] for key in sorted(rows)], topic

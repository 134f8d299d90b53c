"""``kstate seed``: an application continues under another application.id, as the real release would have continued."""

from __future__ import annotations

import collections
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kstate_cli.formats.topic_partition import is_changelog, is_internal
from kstate_cli.seed.cluster import Connection, read_cluster
from tests.command_result import CommandResult

from . import dumps
from .dumping import dump
from .harness import App, Batch, Harness, Run
from .jvm import Reply
from .restoring import changelogs, line, write_spec
from .seeding import BASE_MS, await_end, content, send
from .support import ALL, BATCH, application, good, kstate, restored_records, told_positions, wipes_task

pytestmark = pytest.mark.interop

WINDOW_MS = 60_000
"""``Naming.WINDOW``; the grace is two of them."""


@dataclass(frozen=True)
class Move:
    """A release, a processing guarantee, and settings of the application."""

    release: str
    guarantee: str
    conf: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name of the case."""
        return "-".join((self.release, self.guarantee, *self.conf.values()))


TRANSACTIONAL = {"enable.transactional.statestores": "true"}
STREAMS = {"group.protocol": "streams"}
MOVES = [
    Move("4.3.1", "eos", {}),
    Move("4.2.1", "alos", {}),
    Move("4.4.0", "alos", {}),
    Move("4.2.1", "eos", STREAMS),
    Move("4.3.1", "alos", STREAMS),
    Move("4.2.1", "eos", {}),
    Move("4.3.1", "alos", {}),
    Move("4.4.0", "eos", TRANSACTIONAL),
]
COUNTED = [MOVES[4], MOVES[7], MOVES[1], MOVES[3]]
UNEXPLAINED = {"kv-nolog", "grace-table", "grace-join-Buffer"}
"""Stores without a changelog, and grace buffers, which Kafka Streams itself garbles when it restores them."""


def seed_words(harness: Harness, app: App, new: App, folder: Path, topics: Iterable[str]) -> list[object]:
    """Write a dump of everything that the application restores from; return the command that seeds the new one."""
    await_end(harness, app)
    others = [word for topic in topics if not topic.endswith("-changelog") for word in ("--topic", topic)]
    dump(harness, folder / "dump", "--app", app.name, *others)
    words: list[object] = [
        "seed",
        "--from",
        folder / "dump",
        "--app",
        new.name,
        "--bootstrap-server",
        harness.bootstrap,
    ]
    return [*words, "--journal", folder / "journal.jsonl", "-o", "json"]


def seed(harness: Harness, app: App, new: App, move: Move, folder: Path, topics: Iterable[str]) -> CommandResult:
    """Seed the new application; a second run finds nothing to write."""
    words = seed_words(harness, app, new, folder, topics)
    if STREAMS.items() <= move.conf.items():
        words.append("--source-stopped")
    planned = kstate(*words, "--dry-run")
    assert planned.status == 0, planned.report
    assert not (folder / "journal.jsonl").exists()
    seeded = kstate(*words)
    assert seeded.status == 0, seeded.report
    again = kstate(*words)
    assert again.status == 0, again.report
    assert again.summary["written"] == 0
    return seeded


def applications(topology: str, move: Move) -> tuple[App, App]:
    """Return an application and the one that takes its place: with another id and the same input."""
    old = application(topology, move.guarantee)
    return old, replace(old, name=f"{old.name}-new", prefix=old.input)


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize("move", MOVES, ids=[move.name for move in MOVES])
def test_another_application_id_continues(harness: Harness, tmp_path: Path, move: Move) -> None:
    """The new application restores its stores from the seeded changelogs, and continues behind the old one's offsets."""
    old, new = applications("kinds", move)
    harness.produce(move.release, old, BATCH)
    first = good(harness.run(move.release, old, tmp_path / "old", Run(read=False, conf=dict(move.conf))))
    seeded = seed(harness, old, new, move, tmp_path, changelogs(first))
    assert seeded.summary["written"] == seeded.summary["records"] > 0

    # Both continue behind the same offsets, with the same input. It begins with records that are late.
    harness.produce(move.release, old, Batch(records=120, first=100, keys=10, seed=3))
    harness.produce(move.release, old, BATCH.next())
    outcomes = {}
    for app, folder in ((old, "old"), (new, "new")):
        run = Run(dump=tmp_path / f"{folder}.jsonl", conf=dict(move.conf))
        outcomes[folder] = good(harness.run(move.release, app, tmp_path / folder, run))
        assert not wipes_task(outcomes[folder])
    assert restored_records(outcomes["new"])
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert not [str(difference) for difference in differences]
    # Without headers in its changelog, a restored store has the Position of the records that came later.
    before, after = (input_positions(outcomes[folder], old.input) for folder in ("old", "new"))
    assert after["count"] == before["count"]
    assert not {store for store, position in after.items() if position != before[store] and any(position.values())}

    # The changelogs outlast the directories: they hold what was seeded and what came later.
    shutil.rmtree(tmp_path / "new")
    again = good(
        harness.run(move.release, new, tmp_path / "new", Run(dump=tmp_path / "again.jsonl", conf=dict(move.conf)))
    )
    assert restored_records(again).keys() >= restored_records(outcomes["new"]).keys()
    differences = dumps.differences(tmp_path / "new.jsonl", tmp_path / "again.jsonl", ignore=UNEXPLAINED)
    assert not [str(difference) for difference in differences]


@pytest.mark.rotating(17, "whole jobs with Kafka Streams")
@pytest.mark.sample(1)
@pytest.mark.parametrize("move", COUNTED, ids=[move.name for move in COUNTED])
def test_results_after_the_move_are_those_of_own_sums(harness: Harness, tmp_path: Path, move: Move) -> None:
    """A late record counts, a closed window is emitted once, and a foreign-key join has the rows of its left side."""
    old, new = applications("moved", move)
    harness.produce(move.release, old, Batch(records=0))
    keys = [f"k{number}" for number in range(6)]
    send(harness, f"{old.input}-events", [(key, "x", second) for second in (0, 10, 70, 200) for key in keys])
    send(harness, f"{old.input}-fk-left", [(key, f"f{number % 2}|{number}", 0) for number, key in enumerate(keys)])
    send(harness, f"{old.input}-fk-right", [("f0", "before", 0), ("f1", "unchanged", 0)])
    first = good(harness.run(move.release, old, tmp_path / "old", Run(read=False, conf=dict(move.conf))))
    own = {
        topic for topic in read_cluster(Connection(harness.bootstrap, {})).topics if topic.startswith(f"{old.name}-")
    }
    queues = {topic for topic in own if is_internal(topic)}
    assert len(queues) == 3  # two of the foreign-key join, and a repartition topic
    assert {topic for topic in own - queues if not topic.startswith(old.input)} == set(filter(is_changelog, own))
    before = results(harness, old)
    emitted = {key: value for key, value in before if "@" in key or "#" in key}
    assert emitted == {f"{key}{mark}{BASE_MS}": "2" for key in keys for mark in "@#"}
    words = seed_words(harness, old, new, tmp_path, changelogs(first))
    unconfirmed = kstate(*words, "--dry-run")
    # The Kafka client cannot read whether a streams group has members.
    assert (unconfirmed.status == 4) == (STREAMS.items() <= move.conf.items()), unconfirmed.report
    if unconfirmed.status:
        assert "--source-stopped" in unconfirmed.error["hint"]
    seed(harness, old, new, move, tmp_path, changelogs(first))

    # Second 100 is late, and its window is open. Second 20 is too late. Second 1000 closes all windows before.
    send(harness, f"{old.input}-events", [(key, "x", second) for second in (205, 100, 20, 1000) for key in keys])
    send(harness, f"{old.input}-fk-right", [("f0", "after", 300)])
    # Nothing is emitted twice: behind a repartition topic only the offsets of that topic show what was emitted.
    expected = {f"{key}{mark}{BASE_MS + at * WINDOW_MS}": "2" for key in keys for mark in "@#" for at in (1, 3)}
    expected |= {key: f"f0|{number}/after" for number, key in enumerate(keys) if number % 2 == 0}
    earlier = collections.Counter(before)
    for app, folder in ((new, "new"), (old, "old")):
        outcome = good(harness.run(move.release, app, tmp_path / folder, Run(read=False, conf=dict(move.conf))))
        assert not wipes_task(outcome)
        rows = collections.Counter(results(harness, old))
        assert rows - earlier == collections.Counter(expected.items())
        earlier = rows


@pytest.mark.skipif(not ALL, reason="two restorations and four starts of real Kafka Streams")
@pytest.mark.parametrize("move", [MOVES[0], MOVES[6], MOVES[1]], ids=lambda move: move.name)
def test_the_new_directories_are_restored_in_the_same_run(harness: Harness, tmp_path: Path, move: Move) -> None:
    """Kafka Streams starts as the new application with no record to restore, and continues as the old one does."""
    old, new = applications("kinds", move)
    harness.produce(move.release, old, BATCH)
    first = good(harness.run(move.release, old, tmp_path / "old", Run(read=False)))
    spec = write_spec(tmp_path / "old" / old.name, tmp_path / "kstate.toml", memory=True)
    (tmp_path / "new").mkdir()
    words = seed_words(harness, old, new, tmp_path, changelogs(first))
    words += ["--spec", spec, "--out", tmp_path / "new", "--for", line(move.release)]
    if move.guarantee == "alos":
        words += ["--guarantee", "at_least_once"]
    # As two hosts would, with a journal that both have: the second finds the changelogs complete.
    shares = [kstate(*words, "--share", f"{number}/2") for number in (1, 2)]
    for share in shares:
        # 1: kv-nolog has no changelog.
        assert share.status == 1, share.report
        assert share.summary["restored_stores"] > 0
    assert (shares[0].summary["executed"], shares[1].summary["executed"]) == (True, False)

    start = Run(read=False, expect_no_restore=True, may_restore=["kv-memory", "kv-nolog"])
    good(harness.run(move.release, new, tmp_path / "new", start))
    harness.produce(move.release, old, BATCH.next())
    for app, folder in ((old, "old"), (new, "new")):
        run = Run(dump=tmp_path / f"{folder}.jsonl")
        assert not wipes_task(good(harness.run(move.release, app, tmp_path / folder, run)))
    differences = dumps.differences(tmp_path / "old.jsonl", tmp_path / "new.jsonl", ignore=["kv-nolog"])
    assert not [str(difference) for difference in differences]


def results(harness: Harness, app: App) -> list[tuple[str, str]]:
    """Return what the applications have written to their output topic."""
    records = [record for partition in content(harness, f"{app.input}-out").values() for record in partition]
    return [(str(key, "utf-8"), str(value, "utf-8")) for key, value, _, _ in records if key and value]


def input_positions(reply: Reply, prefix: str) -> dict[str, dict[str, object]]:
    """The Position of every store in the input topics: each application has internal topics of its own."""
    return {
        store: {
            partition: {topic: offsets for topic, offsets in topics.items() if topic.startswith(prefix)}
            for partition, topics in position.items()
        }
        for store, position in told_positions(reply).items()
    }

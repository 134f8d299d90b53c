"""What ``kstate rehome`` asks a broker: who still runs, what would never be read, and whether Streams would run at all.

Topologies are in ``Merging.java``.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kstate_cli.rehome.model import WhyRefused
from tests.command_result import CommandResult

from .background import Background
from .harness import App, Harness, Run
from .support import ALL, BATCH, REFUSAL, application, good, kstate, restored_records, wipes_task

pytestmark = pytest.mark.interop

RELEASES = ["4.3.1", "4.2.1", "3.9.2"] if ALL else ["4.3.1"]
TOPICS = ("events", "table", "versioned", "global", "left", "right", "fk-left", "fk-right", "out")
SETTLED_SECONDS = 60
FAILS, HANGS, RUNS = "Existing internal topic", "never runs", "runs"
SIZES = {
    ("left", "merge-b"): FAILS,
    ("right", "merge-stateless"): FAILS,
    ("left", "merge-tables"): HANGS,
    ("events", "merge-stateless"): RUNS,
    ("events", "merge-joined"): RUNS,
}
"""The topic that has four partitions where all others have two, and the new topology -> what Streams makes of it."""
ALWAYS_SIZES = [(("left", "merge-b"), FAILS), (("events", "merge-joined"), RUNS)]


def why(result: CommandResult) -> str:
    """The code of a refusal."""
    assert result.status == REFUSAL, result.report
    return str(json.loads(result.out.splitlines()[-1])["code"])


def details(result: CommandResult) -> str:
    return str(json.loads(result.out.splitlines()[-1])["details"])


def warnings(result: CommandResult) -> list[str]:
    return [row["message"] for row in result.rows if row["type"] == "warning"]


class World:
    """An application of topology A that has run and was closed, and the texts of A and of another topology."""

    def __init__(self, harness: Harness, version: str, folder: Path, after: str, *, wide: str | None = None) -> None:
        self.harness, self.version, self.folder = harness, version, folder
        self.app = application("merge-a", "eos")
        self.after = replace(self.app, topology=after)
        admin = AdminClient({"bootstrap.servers": harness.bootstrap})
        topics = admin.create_topics(
            [NewTopic(f"{self.app.input}-{name}", 4 if name == wide else 2, 1) for name in TOPICS]
        )
        for future in topics.values():
            future.result()
        # The controller has them, the broker's metadata perhaps not yet: who produces would create them a second time.
        while not topics.keys() <= admin.list_topics(timeout=300).topics.keys():
            time.sleep(0.05)
        harness.produce(version, self.app, BATCH)
        self.old, self.new = folder / "old.txt", folder / "new.txt"
        self.state = folder / "state"
        self.run(self.app, self.state, self.old)
        # Its id begins as that of the application does: its topics are its own all the same.
        self.other = App(f"{self.app.name}-other", after, "eos", prefix=self.app.input)

    def describe_new(self) -> None:
        """By a start that may fail: the text is written before."""
        run = Run(read=False, options={"describe-into": str(self.new), "at-once": True})
        self.harness.run(self.version, self.other, self.folder / "other", run)

    def run(self, app: App, state: Path, text: Path) -> None:
        good(self.harness.run(self.version, app, state, Run(read=False, options={"describe-into": str(text)})))

    @property
    def directory(self) -> Path:
        return self.state / self.app.name

    def rehome(self, *words: object, texts: bool = True, broker: bool = True) -> CommandResult:
        """``kstate rehome``, with both texts and the broker unless that is not wanted."""
        both = ("--topology", self.new, "--from", self.old) if texts else ()
        requests = ("--bootstrap-server", self.harness.bootstrap) if broker else ()
        return kstate("rehome", self.directory, *both, *requests, "-o", "json", *words)


@pytest.mark.rotating(4, "commands next to a running application")
@pytest.mark.parametrize("version", RELEASES)
def test_no_instance_may_run_and_nothing_may_be_unread(harness: Harness, tmp_path: Path, version: str) -> None:
    world = World(harness, version, tmp_path, "merge-b")
    world.describe_new()
    with Background(harness, version, world.app, tmp_path / "elsewhere", Run(read=False), instance="2") as running:
        rehome = world.rehome()
        assert why(rehome) == WhyRefused.MEMBERS and f"{world.app.name}-StreamThread-1" in details(rehome), (
            rehome.report
        )
        # A dry run goes on beside it, and says so.
        rehome = world.rehome("--dry-run")
        assert rehome.status == 1 and "has 1 member" in str(warnings(rehome)), rehome.report
        good(running.finish())
    # Streams leaves no group: what was closed may be a member until its session has timed out.
    rehome = world.rehome("--wait", "600")
    assert (rehome.status, warnings(rehome)) == (0, []), rehome.report
    assert kstate("undo", world.directory).status == 0

    inner = f"{world.app.name}-by-value-repartition"
    with transaction(harness, commit=False) as producer:
        producer.produce(inner, b"k", b"v", partition=0)
    assert world.rehome("--dry-run").status == 0  # neither aborted records nor markers are ever read
    with transaction(harness, commit=True) as producer:
        producer.produce(inner, b"k", b"v", partition=1)
    for words, texts in (
        ((), True),
        (("--topology", world.new), False),
        (("--map", "3=gone", "--map", "4=gone"), False),
    ):
        rehome = world.rehome(*words, texts=texts)
        assert why(rehome) == WhyRefused.UNREAD and f"{inner}:1 has 1 unread record, starting at offset" in details(
            rehome
        ), rehome.report
        assert f"{inner}:0" not in details(rehome)
    rehome = world.rehome("--dry-run", broker=False)
    assert rehome.status == 1 and "by-value-repartition" in str(warnings(rehome))

    # Another cluster has none of its changelogs.
    harness.delete(version, world.app)
    assert why(world.rehome()) == WhyRefused.OTHER_CLUSTER


@contextmanager
def transaction(harness: Harness, *, commit: bool) -> Iterator[Any]:
    """One transaction: its records are there at the end, committed or aborted."""
    producer = Producer({"bootstrap.servers": harness.bootstrap, "transactional.id": f"test-{time.monotonic_ns()}"})
    producer.init_transactions()
    producer.begin_transaction()
    yield producer
    producer.flush()
    (producer.commit_transaction if commit else producer.abort_transaction)()


@pytest.mark.in_full("tests/interop/test_fleet.py::test_a_group_of_the_streams_protocol")
@pytest.mark.parametrize("version", [release for release in RELEASES if release >= "4.2"])
def test_warns_of_a_group_that_cannot_be_described(harness: Harness, tmp_path: Path, version: str) -> None:
    """The protocol of KIP-1071 (4.2), which the client does not know: whether somebody runs is not known then."""
    run = Run(read=False, conf={"group.protocol": "streams"})
    app = application("merge-a", "eos")
    harness.produce(version, app, BATCH)
    with Background(harness, version, app, tmp_path / "streams", run) as running:
        words = ("--map", "4=9", "--bootstrap-server", harness.bootstrap, "-o", "json", "--dry-run")
        deadline = time.monotonic() + SETTLED_SECONDS
        while True:
            result = kstate("rehome", tmp_path / "streams" / app.name, *words)
            # It runs, and has not read all of its topics yet.
            if result.status != REFUSAL or why(result) != WhyRefused.UNREAD or time.monotonic() > deadline:
                break
        good(running.finish())
    assert result.status == 1 and "an instance may still be running" in str(warnings(result)), result.report


@pytest.mark.rotating(4, "commands next to a running application")
@pytest.mark.parametrize(("case", "streams"), [*SIZES.items()] if ALL else ALWAYS_SIZES)
@pytest.mark.parametrize("version", RELEASES)
def test_topics_with_two_partition_counts(
    harness: Harness, tmp_path: Path, version: str, case: tuple[str, str], streams: str
) -> None:
    """Refused where Streams ends, or never runs; a join that would not find its records is a warning."""
    wide, after = case
    world = World(harness, version, tmp_path, after, wide=wide)
    world.describe_new()
    spec = tmp_path / "kstate.toml"
    spec.write_text(
        "format = 1\n" + "".join(f'[stores.join-{side}-join-store]\nkind = "window"\n' for side in ("this", "other"))
    )
    rehome = world.rehome("--wait", "600", "--spec", spec)
    if streams is RUNS:
        assert rehome.status == 1 and "2 and 4 partitions" in str(warnings(rehome)), rehome.report
    else:
        assert why(rehome) == WhyRefused.PARTITIONS, rehome.report
        topic = world.app.input + "-table" if streams is HANGS else f"{world.app.name}-event-count-changelog"
        assert f"{topic} has 2 partitions" in details(rehome)
        # What it would be: the same change, without anybody who counts.
        if wide == "left":
            assert why(world.rehome(broker=False)) == WhyRefused.HALF_A_TASK
            for task in ("1_2", "1_3"):  # nobody has the other half
                shutil.rmtree(world.directory / task)
        survivors = world.rehome("--warnings-ok", broker=False)
        assert survivors.status == 0, survivors.report
        assert any(
            "source topics have the same number of partitions" in row["message"]
            for row in survivors.rows
            if row["type"] == "note"
        ) == (after != "merge-stateless"), survivors.report
    started = harness.run(
        version, world.after, world.state, Run(read=False, options={"timeout": 20 if streams is HANGS else 400})
    )
    if streams is RUNS:
        assert not wipes_task(good(started)) and set(restored_records(started)) <= {"by-value-count"}
    elif streams is HANGS:
        assert started.rc == 2 and not any(entry["to"] == "RUNNING" for entry in started.of("state")), started.report()
    else:
        assert started.rc == 3 and FAILS in started.report(), started.report()
    harness.delete(version, world.app)

"""``kstate dump --out s3://…``: a real broker, and a store of objects in a process of its own."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.dump_reader.growing import name_of, render
from kstate_cli.dump_reader.model import Grown
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_writer.writing import GRACE_SECONDS
from kstate_cli.formats.topic_partition import TopicPartition
from tests.object_store import ACCESS_KEY, SECRET, Fault, ObjectStore
from tests.restore.support import APP, SPEC, TOPIC, digest

from .dumping import dumped, newest
from .harness import Harness
from .support import ALL, kstate
from .test_dump_moves import QUICK, Topic, argv, running, until

pytestmark = pytest.mark.interop

_SECONDS = 300
_KILLS = 100 if ALL else 4
_KILLED = ((), ("--follow", "0.1"), ("--full", "--keep", "2"), ("--follow", "0.1"))
DUMP = "backup/dump"


class Bucketed:
    """A topic, and what of it is in the bucket."""

    def __init__(self, harness: Harness, objects: ObjectStore, folder: Path, topic: Topic) -> None:
        self.harness, self.objects, self.topic = harness, objects, topic
        self.uri = objects.uri(DUMP)
        self._folder, self._copies = folder, 0

    def call(self, *options: object, status: int = 0, out: object = None) -> Any:
        result = kstate("dump", "--bootstrap-server", self.harness.bootstrap, "--out", out or self.uri, "--engine", "local", "-o", "json",
                      "--topic", self.topic.name, *QUICK, *options)  # fmt: skip
        assert result.status == status, result.report
        assert not any(secret in result.report for secret in (SECRET, ACCESS_KEY))
        return result

    def argv(self, *options: str) -> list[str]:
        line = argv(self.harness, Path("out"), self.topic, *options)
        line[line.index("out")] = self.uri
        return line

    def copied(self) -> Path:
        """All that is there now, as files."""
        self._copies += 1
        return self.objects.copied(f"{DUMP}/", self._folder / f"copy-{self._copies}")

    def is_whole(self) -> list[Any]:
        """What a reader takes for the dump is one: every file with its digest. Its records."""
        read_dump(self.uri, complete=False, committed_only=False, check_digests=True)
        results = dumped(self.copied())
        return [record[:3] for record in results[TopicPartition(self.topic.name, 0)]]

    def files(self) -> set[str]:
        return {key for key in self.objects.keys(f"{DUMP}/") if key.endswith(".parquet")}

    def newest(self) -> Grown:
        return newest(self.copied())


@pytest.fixture
def bucketed(harness: Harness, objects: ObjectStore, tmp_path: Path) -> Bucketed:
    return Bucketed(harness, objects, tmp_path, Topic(harness.bootstrap))


@pytest.mark.rotating(4, "long dumps")
def test_dumped_and_restored(harness: Harness, objects: ObjectStore, tmp_path: Path) -> None:
    """Round after round as into a folder; the restored rows are the same; fulls that are not kept go when they are old."""
    bucketed = Bucketed(harness, objects, tmp_path, Topic(harness.bootstrap, TOPIC, partitions=2))
    topic = bucketed.topic
    for start in (0, 3_000):
        topic.produce(3_000, keys=500)
        topic.produce(1_000, partition=1)
        call = bucketed.call()
        assert call.summary["records"] == 4_000 and {
            row["start"] for row in call.rows if row["type"] == "partition"
        } == {start, start // 3}
        assert call.summary["out"] == bucketed.uri
        bucketed.call(out=tmp_path / "dump")
    assert bucketed.call("--dry-run").summary["records"] == 0
    there = dumped(bucketed.copied())
    assert there == dumped(tmp_path / "dump")
    assert [record[:3] for record in there[TopicPartition(TOPIC, 0)]] == topic.records()
    (tmp_path / "kstate.toml").write_text(SPEC)
    for name, dump in (("bucket", bucketed.uri), ("folder", str(tmp_path / "dump"))):
        (tmp_path / name).mkdir()
        restored = kstate("restore", tmp_path / name / APP, "--from-changelog", dump, "--for", "4.3", "--engine", "local",
                          "--spec", tmp_path / "kstate.toml", "-o", "json")  # fmt: skip
        assert restored.status == 0, restored.report
    assert digest(tmp_path / "bucket" / APP) == digest(tmp_path / "folder" / APP)

    before = bucketed.files()
    dropped = bucketed.call("--full", "--keep", "1").summary
    assert dropped["dropped"] == 2 and dropped["removed"] == 0 and before < bucketed.files()
    make_older(bucketed)
    removed = bucketed.call().summary["removed"]
    assert removed >= len(before)
    assert bucketed.files() == {file.path for full in bucketed.newest().fulls for file in full.files}
    bucketed.is_whole()


@pytest.mark.in_full("tests/processes/test_bucket.py::test_only_the_first_of_many_writers_commits_a_generation")
def test_first_of_two_writers_wins_and_the_second_leaves_no_object(bucketed: Bucketed) -> None:
    bucketed.topic.produce(40_000)
    with running(bucketed.argv("--max-rate", "300K")) as slow:
        until(
            lambda: any(request.startswith("DELETE") for request in bucketed.objects.requests())
        )  # it has probed, and reads
        bucketed.call()
        won = bucketed.files()
        _, text = slow.communicate(timeout=_SECONDS)
    assert slow.returncode == 5, text
    assert "another process has written generation 1 of the dump" in text and "does not add this run's records" in text
    assert bucketed.files() == won and bucketed.objects.uploads() == []
    assert bucketed.is_whole() == bucketed.topic.records()


@pytest.mark.rotating(4, "long dumps")
def test_a_store_that_no_longer_answers_is_not_waited_for_after_a_signal(bucketed: Bucketed) -> None:
    """It accepts connections, and says nothing: boto3 alone would ask each of many things for five minutes."""
    bucketed.topic.produce(40_000)
    with running(bucketed.argv("--max-rate", "300K", "-o", "json")) as process:
        until(lambda: any(request.startswith("DELETE") for request in bucketed.objects.requests()))
        bucketed.objects.behave(Fault(".*", stalls=True))
        try:
            process.send_signal(signal.SIGTERM)
            messages, text = process.communicate(timeout=_SECONDS)
        finally:
            bucketed.objects.behave()
    assert process.returncode == 128 + signal.SIGTERM, text
    # A signal that comes before the reading has begun leaves nothing to tidy up, and nothing is waited for.
    assert "interrupted by SIGTERM" in text
    if "kstate stopped waiting" in text:
        assert "what remains: files of this run that no manifest lists" in text
    assert json.loads(messages.splitlines()[-1])["code"] == "interrupted"
    assert bucketed.call().summary["records"] == 40_000


@pytest.mark.in_full("tests/restore/test_object_store.py::test_killed_at")
def test_a_signal_leaves_nothing(bucketed: Bucketed) -> None:
    """Not even parts: they are the run's own, and all of its tasks have ended."""
    bucketed.topic.produce(40_000)
    with running(bucketed.argv("--max-rate", "300K")) as process:
        until(lambda: any(request.startswith("DELETE") for request in bucketed.objects.requests()))
        bucketed.objects.client.create_multipart_upload(Bucket=bucketed.objects.bucket, Key="theirs")
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        _, text = process.communicate(timeout=_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, text
    assert bucketed.objects.keys() == [] and bucketed.objects.uploads() == ["theirs"]


@pytest.mark.in_full("tests/restore/test_object_store.py::test_killed_at")
def test_killed_at_any_moment(bucketed: Bucketed) -> None:
    """The next call completes: nothing is doubled, nothing is missing, and at no moment half a dump passes for one."""
    topic, moments, had = bucketed.topic, random.Random(16), 0
    for number in range(_KILLS):
        topic.produce(2_000)
        with running(bucketed.argv("--max-rate", "300K", *_KILLED[number % len(_KILLED)])) as process:
            moment = time.monotonic() + moments.uniform(0.4, 4.0)
            while time.monotonic() < moment:
                topic.produce(20)
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.wait()
        if any(key.startswith("_manifest-") for key in bucketed.objects.keys(f"{DUMP}/")):
            results = bucketed.is_whole()
            assert results == topic.records()[: len(results)], number
            assert len(results) >= had, "what one manifest has, those after it have"
            had = len(results)
    files = bucketed.files()
    bucketed.call()
    assert bucketed.is_whole() == topic.records()
    assert files <= bucketed.files(), "what is young may be of a dump that goes on"
    make_older(bucketed)
    bucketed.call()
    now = bucketed.newest()
    assert bucketed.files() == {file.path for full in now.fulls for file in full.files} | {
        entry.path for entry in now.forgotten
    }
    assert bucketed.objects.uploads() == [] and bucketed.is_whole() == topic.records()


@pytest.mark.in_full("tests/interop/test_dump_object_store.py::test_dumped_and_restored")
@pytest.mark.parametrize("moment", ["the files", "the manifest"])
def test_a_store_that_goes_away(bucketed: Bucketed, moment: str) -> None:
    """The dump is as it was, and nobody says more than is known; the next call goes on."""
    bucketed.topic.produce(3_000)
    bucketed.call()
    before = bucketed.files()
    bucketed.topic.produce(3_000)
    bucketed.objects.behave(
        Fault("^(PUT|HEAD) .*" + {"the files": "parquet", "the manifest": "/_manifest"}[moment], 503, "SlowDown")
    )
    call = bucketed.call(status=6 if moment == "the files" else 7)
    assert ("does not know whether" in call.err) == (moment == "the manifest")
    assert (bucketed.files() == before) == (moment == "the files"), "what a manifest may name stays"
    bucketed.objects.behave()
    assert bucketed.call().summary["records"] == 3_000
    assert bucketed.is_whole() == bucketed.topic.records()


@pytest.mark.in_full("tests/interop/test_dump_object_store.py::test_dumped_and_restored")
def test_on_spark(bucketed: Bucketed) -> None:
    """Executors find their credentials by themselves; the same tasks, and so the same files."""
    bucketed.topic.produce(600_000)
    line = ["dump", "--bootstrap-server", bucketed.harness.bootstrap, "--out", bucketed.uri, "--master", "local[2,4]", "-o", "json",
            "--topic", bucketed.topic.name]  # fmt: skip
    result = kstate(*line)
    assert result.status == 0, result.report
    assert result.summary["records"] == 600_000 and result.summary["files"] >= 2
    bucketed.topic.produce(50)
    assert bucketed.call().summary["records"] == 50
    assert bucketed.is_whole() == bucketed.topic.records()


def make_older(bucketed: Bucketed) -> None:
    """As if all of it had been there for two days."""
    document = json.loads(render(bucketed.newest()))
    document["generation"] += 1
    for entry in document["forgotten"]:
        entry["at_ms"] = int((time.time() - 2 * GRACE_SECONDS) * 1000)
    bucketed.objects.put(f"{DUMP}/{name_of(document['generation'])}", json.dumps(document).encode())
    bucketed.objects.behave(later_seconds=2 * GRACE_SECONDS)

"""A dump in a bucket is restored as the same records in a folder are; and what a store does not give is told as it is."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_writer.bucket import BucketStore, Upload
from kstate_cli.dump_writer.writing import path_of
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.s3_objects import Objects, place_in_bucket
from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.growing import GrowingDump
from tests.object_store import ACCESS_KEY, SECRET, Fault, ObjectStore, action_of

from .support import APP, ROOT, SPEC, TOPIC, digest, environment

pytestmark = pytest.mark.rotating(6)

KEYS = (TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1))
UNREACHABLE = "http://127.0.0.1:9"


class Both:
    """The same records in a bucket and in a folder, round after round."""

    def __init__(self, folder: Path, objects: ObjectStore) -> None:
        self.folder, self.objects = folder, objects
        self.dumps = [GrowingDump(out, pack=True) for out in (objects.uri("backup/bulk"), str(folder / "dump"))]
        self._chance = random.Random(11)
        (folder / "kstate.toml").write_text(SPEC, encoding="utf-8")
        for name in ("bucket", "folder"):
            (folder / name).mkdir()

    def more(self, count: int = 40) -> None:
        records = {
            key: [
                (b"k%05d" % self._chance.randrange(300), None if self._chance.random() < 0.1 else b"v%d" % number, 1_700_000_000_000 + number)
                for number in range(count)
            ]
            for key in KEYS
        }  # fmt: skip
        for dump in self.dumps:
            dump.add(records)

    def argv(self, number: int, *options: str) -> list[str]:
        app = self.folder / ("bucket", "folder")[number] / APP
        return ["restore", str(app), "--from-changelog", self.dumps[number].uri, "--for", "4.3", "--engine", "local",
                "--spec", str(self.folder / "kstate.toml"), *options]  # fmt: skip

    def restored(self, *options: str) -> list[CommandResult]:
        kstates = [kstate(*self.argv(number, "-o", "json", *options)) for number in (0, 1)]
        assert digest(self.folder / "bucket" / APP) == digest(self.folder / "folder" / APP)
        assert [entry.summary["records"] for entry in kstates] == [kstates[0].summary["records"]] * 2
        return kstates


@pytest.fixture
def both(tmp_path: Path, objects: ObjectStore) -> Both:
    outputs = Both(tmp_path, objects)
    outputs.more(400)
    return outputs


@pytest.mark.rotating(1)
def test_restored_as_from_a_folder(both: Both) -> None:
    """Round after round, also of files that were joined meanwhile: and only what is new is read."""
    both.restored("--standby")
    both.more()
    both.objects.behave()
    assert both.restored("--standby")[0].summary["records"] == 80
    read = {line.partition("?")[0].rpartition("/")[2] for line in both.objects.requests() if line.startswith("GET")}
    assert len([name for name in read if name.endswith(".parquet")]) <= 4, (
        "what is new, and what says that it is the same log"
    )
    state = both.folder / "folder" / APP
    outputs = [kstate("ls", state, "--spec", "--from-changelog", dump.uri, status=None).out for dump in both.dumps]
    assert outputs[0] == outputs[1] and "partitions = 2" in outputs[0]
    kstates = [
        kstate("check", state, "--for", "4.3", "--dump", dump.uri, "-o", "json", status=None) for dump in both.dumps
    ]
    assert kstates[0].rows == kstates[1].rows and kstates[0].status == kstates[1].status
    for _ in range(16):
        both.more(5)
    assert both.restored("--standby")[0].summary["records"] == 160
    assert read_dump(
        both.dumps[0].uri, complete=False, committed_only=False, check_digests=True
    ).partitions.keys() == set(KEYS)


@pytest.mark.in_full("tests/restore/test_object_store.py::test_restored_as_from_a_folder")
def test_on_spark(both: Both) -> None:
    line = [sys.executable, "-m", "kstate_cli", *both.argv(0)]
    line[line.index("--engine") : line.index("--engine") + 2] = ["--master", "local[2,4]"]
    process = subprocess.run(
        line, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert process.returncode == 0, process.stderr
    kstate(*both.argv(1))
    assert digest(both.folder / "bucket" / APP) == digest(both.folder / "folder" / APP)


def test_refuses_changed_and_missing_objects(both: Both) -> None:
    path = next(key for key in both.objects.keys("backup/bulk/") if key.endswith(".parquet"))
    content = both.objects.content(f"backup/bulk/{path}")
    both.objects.put(f"backup/bulk/{path}", content[:60] + bytes([content[60] ^ 1]) + content[61:])
    assert kstate(*both.argv(0), status=None).status in (3, 4, 6)
    both.objects.client.delete_object(Bucket=both.objects.bucket, Key=f"backup/bulk/{path}")
    assert path in kstate(*both.argv(0), status=4).err


CASES = {
    "unreachable": ([], UNREACHABLE, "", 6, 4, "does not respond at http://127.0.0.1:9"),
    "no such bucket": ([], "", "s3://nobody-s-bucket/dump", 2, 2, "bucket nobody-s-bucket does not exist"),
    "denied": ([Fault(".", 403, "AccessDenied")], "", "", 4, 4, "this user lacks the permission"),
    "secret is wrong": ([Fault(".", 403, "SignatureDoesNotMatch")], "", "", 4, 4, "SignatureDoesNotMatch"),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES)
def test_writer_and_reader_report_denied_requests(both: Both, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said by the writer and by the reader, and what is secret is in neither's words."""
    faults, endpoint, out, writes, reads, words = CASES[case]
    both.objects.behave(*faults)
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    out = out or both.dumps[0].uri
    # Nobody listens there: the store is looked at before the broker is.
    writer = kstate(
        "dump",
        "--bootstrap-server",
        "127.0.0.1:9",
        "--out",
        out,
        "--topic",
        "t",
        "--engine",
        "local",
        "-o",
        "json",
        status=writes,
    )
    line = both.argv(0)
    line[line.index("--from-changelog") + 1] = out
    reader = kstate(*line, status=reads)
    assert words in writer.err and "said by a test" not in writer.report and writer.error["hint"], writer.report
    for result in (writer, reader):
        assert not any(secret in result.report for secret in (SECRET, ACCESS_KEY)), result.report
    assert out in reader.err


def policies() -> list[dict[str, Any]]:
    """Those of the documentation: of who dumps, and of who restores."""
    text = (ROOT / "docs" / "how-to" / "object-store.md").read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    return [block for block in blocks if "Statement" in block]


def for_bucket(policy: dict[str, Any], bucket: str) -> dict[str, Any]:
    replaced: dict[str, Any] = json.loads(json.dumps(policy).replace(":::backups", f":::{bucket}"))
    return replaced


def without(policy: dict[str, Any], action: str) -> dict[str, Any]:
    less: dict[str, Any] = json.loads(json.dumps(policy))
    for entry in less["Statement"]:
        names = entry["Action"] if isinstance(entry["Action"], list) else [entry["Action"]]
        entry["Action"] = [name for name in names if name != action]
    return less


def actions(policy: dict[str, Any]) -> set[str]:
    return {
        name
        for entry in policy["Statement"]
        for name in ([entry["Action"]] if isinstance(entry["Action"], str) else entry["Action"])
    }


def test_the_rights_of_the_documentation_are_enough_and_none_is_too_many(
    tmp_path: Path, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request of a dump, of what comes after a killed one, and of a restore; and each right is one that is asked for."""
    writes, reads = (for_bucket(row, objects.bucket) for row in policies())
    monkeypatch.setattr("kstate_cli.dump_writer.bucket._PART_BYTES", 2000)
    uri = objects.uri("orders")
    store = BucketStore(place_in_bucket(uri))
    killed_upload = Upload(Objects(place_in_bucket(uri)), path_of(KEYS[0], 0, 9, 1, "0123456789ab", "00000000"))
    killed_upload.append(memoryview(bytes(5000)))
    objects.behave(policy=writes, later_seconds=2 * 24 * 3600)
    dump = GrowingDump(uri, pack=True)
    rows = {key: [(b"k%05d" % number, bytes(str(number * 7919), "ascii"), 1) for number in range(2000)] for key in KEYS}
    dump.add(rows)
    for _ in range(16):
        dump.add({KEYS[0]: [(b"k", b"v", 1)]})
    newest = store.read_newest()
    assert newest is not None
    store.check_named(newest)
    assert store.present([file.path for full in newest.fulls for file in full.files])
    assert store.sweep(newest) > 1 and objects.requests()
    store.remove_files_of("0123456789ab", KEYS, [])
    requests = {action_of(line)[0] for line in objects.requests()}
    assert actions(writes) == requests

    objects.behave(policy=reads)
    assert objects.bucket and actions(reads) < actions(writes)
    (tmp_path / "app").mkdir()
    (tmp_path / "kstate.toml").write_text(SPEC)
    line = ["restore", str(tmp_path / "app" / APP), "--from-changelog", uri, "--for", "4.3", "--engine", "local", "--standby",
            "--spec", str(tmp_path / "kstate.toml")]  # fmt: skip
    kstate(*line)
    assert {action_of(line)[0] for line in objects.requests()} == actions(reads)
    for action in actions(reads):
        objects.behave(policy=without(reads, action))
        kstate(*line, status=4)


def test_the_rules_of_the_documentation_expire_nothing_that_is_needed(objects: ObjectStore) -> None:
    """They are rules as the API takes them; no object goes because it is old."""
    text = (ROOT / "docs" / "how-to" / "object-store.md").read_text(encoding="utf-8")
    (rules,) = [
        document
        for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)
        if "Rules" in (document := json.loads(block))
    ]
    objects.client.put_bucket_lifecycle_configuration(Bucket=objects.bucket, LifecycleConfiguration=rules)
    backup = objects.client.get_bucket_lifecycle_configuration(Bucket=objects.bucket)["Rules"]
    assert [rule["ID"] for rule in backup] == [rule["ID"] for rule in rules["Rules"]]
    for rule in rules["Rules"]:
        assert "Transitions" not in rule and not {"Days", "Date"} & set(rule.get("Expiration", {}))
        assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] > 1 if "Expiration" not in rule else True
    for policy in policies():
        objects.client.put_bucket_policy(Bucket=objects.bucket, Policy=json.dumps(for_bucket(policy, objects.bucket)))


@pytest.mark.in_full("tests/restore/test_object_store.py::test_restored_as_from_a_folder")
def test_followed(both: Both) -> None:
    """Each new manifest is one more round."""
    with subprocess.Popen(
        [sys.executable, "-m", "kstate_cli", *both.argv(0, "--follow", "0.2", "--standby", "-o", "json")],
        env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as follower:  # fmt: skip
        assert follower.stdout is not None
        rounds = (json.loads(line) for line in follower.stdout)
        for _ in range(3):
            assert next(row for row in rounds if row["type"] == "round")["records"] > 0
            both.more()
        assert next(row for row in rounds if row["type"] == "round")["records"] == 80
        follower.send_signal(signal.SIGTERM)
        follower.communicate(timeout=300)
    assert follower.returncode == 128 + signal.SIGTERM
    kstate(*both.argv(1))
    assert digest(both.folder / "bucket" / APP) == digest(both.folder / "folder" / APP)


def test_denied_listing_is_no_empty_dump(both: Both) -> None:
    """Nor a dump without a manifest, all of whose files count."""
    both.objects.behave(Fault("^GET .*list-type", 403, "AccessDenied", times=1))
    with pytest.raises(DumpError, match="cannot list the dump"):
        read_dump(both.dumps[0].uri, complete=True, committed_only=True)


@pytest.mark.in_full("tests/restore/test_object_store.py::test_restored_as_from_a_folder")
def test_maintained(both: Both) -> None:
    """``maintain`` with a dump in a bucket: the standby follows, and the metrics tell of the dump."""
    (both.folder / "maintained").mkdir()
    config = both.folder / "maintain.toml"
    config.write_text(
        f'{SPEC}\n[defaults]\nrelease = "4.3"\ndump = "{both.dumps[0].uri}"\nengine = "local"\nguarantee = "at_least_once"\n'
        f'[maintain]\nmemory_file = "memory.json"\nstandby = "maintained/{APP}"\nmetrics_file = "kstate.prom"\n[maintain.restore]\n'
    )
    kstate("maintain", "--config", config)
    kstate(*both.argv(1))
    assert digest(both.folder / "maintained" / APP) == digest(both.folder / "folder" / APP)
    text = (both.folder / "kstate.prom").read_text()
    assert "kstate_dump_bytes" in text and "kstate_dump_headroom_seconds" in text


# --- a writer that is killed ------------------------------------------------------------------------------------------

NEXT = f"""
import sys
from kstate_cli.dump_writer.stores import store_of
from kstate_cli.formats.topic_partition import TopicPartition
from tests.growing import GrowingDump
newest = store_of(sys.argv[1]).read_newest()
dump = GrowingDump(sys.argv[1])
dump.generation = 0 if newest is None else newest.generation
keys = [TopicPartition("{TOPIC}", number) for number in (0, 1)]
dump.add({{key: [(b"k%05d" % number, b"v", 1) for number in range(2000)] for key in keys}})
"""
SWEEP = """
import sys
from kstate_cli.dump_writer.stores import store_of
store = store_of(sys.argv[1])
store.sweep(store.read_newest())
"""
WRITER = f"""
import sys
from tests.growing import GrowingDump
from kstate_cli.dump_writer import bucket
from kstate_cli.formats.topic_partition import TopicPartition
bucket._PART_BYTES = 2000
keys = [TopicPartition("{TOPIC}", number) for number in (0, 1)]
dump = GrowingDump(sys.argv[1])
dump.add({{key: [(b"k%05d" % number, bytes(str(number * 7919), "ascii"), 1) for number in range(2000)] for key in keys}})
"""
MOMENTS = {
    "the probe": "^PUT .*_manifest-0000000000",
    "the second probe": "^DELETE .*_manifest-0000000000",
    "an upload that has begun": "^PUT .*partNumber=1(&|$)",
    "parts that are sent": "^PUT .*partNumber=4(&|$)",
    "the end of an upload": "^POST .*uploadId",
    "a file that is there": "^POST .*partition(=|%3D)1/.*uploads",
    "the manifest": "^PUT .*/_manifest-",
    "what comes after it": "^GET .*delimiter",
}
"""Requests that the store was asked for and has not carried out when the writer dies."""


@pytest.mark.rotating(3)
@pytest.mark.sample(3)
@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at(tmp_path: Path, objects: ObjectStore, moment: str) -> None:
    """No half file is ever seen; what the next writer makes is whole, and what is left over goes when it is old."""
    uri = kill_writer(objects, Fault(MOMENTS[moment], stalls=True))
    objects.behave()
    there = objects.keys("dump/")
    manifests = [key for key in there if key.startswith("_manifest-")]
    assert len(manifests) == (moment == "what comes after it")
    assert not manifests or assert_complete(uri)
    remainder = {*there, *objects.uploads()}
    python(NEXT, uri)
    dump = assert_complete(uri)
    assert remainder <= {*objects.keys("dump/"), *objects.uploads()}, "what is young may be of a dump that goes on"
    objects.behave(later_seconds=2 * 24 * 3600)
    python(SWEEP, uri)
    names = {piece.path.partition("/dump/")[2] for part in dump.partitions.values() for piece in part.pieces}
    assert {key for key in objects.keys("dump/") if not key.startswith("_manifest-")} == names
    assert objects.uploads() == []


def test_a_manifest_that_comes_when_its_writer_is_dead(objects: ObjectStore) -> None:
    """What it names is still there: it counts, or it was too late."""
    uri = kill_writer(objects, Fault(MOMENTS["the manifest"], stalls=True, carried_out=True))
    assert not [key for key in objects.keys("dump/") if key.startswith("_manifest-")]
    objects.behave()
    while not [key for key in objects.keys("dump/") if key.startswith("_manifest-")]:
        time.sleep(0.02)
    assert_complete(uri)
    python(NEXT, uri)
    assert_complete(uri)


def kill_writer(objects: ObjectStore, at: Fault) -> str:
    """A dump whose first writer was killed when it had sent that request."""
    objects.behave(at)
    uri = objects.uri("dump")
    with subprocess.Popen([sys.executable, "-c", WRITER, uri], cwd=ROOT, env=environment()) as writer:
        while not any(re.search(at.match, line) for line in objects.requests()):
            assert writer.poll() is None, "it has not come so far"
            time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    return uri


def assert_complete(uri: str) -> Dump:
    """What a reader takes for the dump: every record, every file with its digest."""
    dump = read_dump(uri, complete=False, committed_only=False, check_digests=True)
    assert {key: part.rows for key, part in dump.partitions.items()} == dict.fromkeys(KEYS, 2000)
    return dump


def python(code: str, uri: str) -> None:
    subprocess.run([sys.executable, "-c", code, uri], cwd=ROOT, env=environment(), check=True)


def test_a_store_that_no_longer_answers_ends_within_the_deadline(both: Both) -> None:
    """A signal ends the restoration although pyarrow waits for the store; what remains is named, and is no hindrance."""
    both.objects.behave(Fault(r"GET .*\.parquet", stalls=True))
    process = subprocess.Popen(
        [sys.executable, "-m", "kstate_cli", *both.argv(0)], cwd=ROOT, env=environment(), stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 300
        while not any(".parquet" in request for request in both.objects.requests()):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, messages = process.communicate(timeout=300)
    finally:
        process.kill()
        both.objects.behave()
    assert process.returncode == 128 + signal.SIGTERM, messages
    # Either the reader gave way to the signal, or the deadline has ended the process.
    assert "interrupted by SIGTERM" in messages
    assert "nothing has changed" in messages or "what remains: " in messages, messages
    assert both.restored()[0].status == 0

"""What a bucket must grant to readers, writers and cleaners of snapshots: exactly what the documentation lists."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.snapshot.bucket import BucketRepository
from kstate_cli.snapshot.expiry import INTENT_SECONDS
from tests.faults.small import small
from tests.object_store import ROOT, Fault, ObjectStore, action_of

from .repositories import BucketPlace
from .support import kstate

pytestmark = pytest.mark.rotating(6)

OLD = "--accept-resurrected"
READER, WRITER, CLEANER = USERS = ("AKIAREADER0000000000", "AKIAWRITER0000000000", "AKIACLEANER000000000")
_LARGE = 9_000


def policies(bucket: str) -> dict[str, dict[str, Any]]:
    """Those of the documentation, by user."""
    text = (ROOT / "docs" / "how-to" / "snapshots.md").read_text(encoding="utf-8")
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    assert len(blocks) == len(USERS)
    return dict(zip(USERS, json.loads(json.dumps(blocks).replace(":::backups", f":::{bucket}")), strict=True))


def actions(policy: dict[str, Any]) -> set[str]:
    return {
        action
        for entry in policy["Statement"]
        for action in ([entry["Action"]] if isinstance(entry["Action"], str) else entry["Action"])
    }


def without(policy: dict[str, Any], action: str) -> dict[str, Any]:
    less: dict[str, Any] = json.loads(json.dumps(policy))
    for entry in less["Statement"]:
        names = [entry["Action"]] if isinstance(entry["Action"], str) else entry["Action"]
        entry["Action"] = [name for name in names if name != action]
    return less


@pytest.fixture
def place(objects: ObjectStore) -> BucketPlace:
    return BucketPlace(objects, "snapshots")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped",))


def requested_actions(place: BucketPlace) -> set[str]:
    return {action_of(line)[0] for line in place.store.requests()}


def as_user(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", user)


def test_each_user_can_do_its_work_and_nothing_else(
    app: Path, place: BucketPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = policies(place.store.bucket)
    assert actions(granted[READER]) < actions(granted[WRITER]) < actions(granted[CLEANER])
    snapshot = ("snapshot", app, "--out", place.out)
    cleaning = (*snapshot, "--keep", "1", "--grace", "0s")
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    reading = [
        ("ls", place.out),
        ("verify", "--snapshot", place.out),
        ("restore", lost, "--from-snapshot", place.out, OLD, "--dry-run"),
    ]

    place.store.behave(policies=granted)
    as_user(WRITER, monkeypatch)
    for _ in range(2):
        kstate(*snapshot)
    assert requested_actions(place) == actions(granted[WRITER]) - {"s3:AbortMultipartUpload"}
    # The snapshot was taken: a missing right to delete must not look as if nothing had happened.
    refusal = kstate(*cleaning, "--keep-for", "0s", status=None)
    while refusal.status == 0:
        refusal = kstate(*cleaning, status=None)
    assert refusal.status == 7 and "wrote snapshot" in refusal.err and "lacks the permission" in refusal.err

    place.store.behave(policies=granted)
    as_user(READER, monkeypatch)
    for words in reading:
        kstate(*words)
    assert requested_actions(place) == actions(granted[READER])
    assert "lacks the permission" in kstate(*snapshot, status=4).err

    for user, commands in ((READER, reading), (WRITER, [snapshot])):
        as_user(user, monkeypatch)
        for action in actions(granted[user]) - {"s3:AbortMultipartUpload"}:
            place.store.behave(policies={user: without(granted[user], action)})
            for words in commands:
                assert "lacks the permission" in kstate(*words, status=4).err, (action, words)

    # Two days later the claim of the cleaner that could not delete is old, and its list goes.
    place.store.behave(policies=granted, later_seconds=INTENT_SECONDS + 3_600)
    as_user(CLEANER, monkeypatch)
    for _ in range(3):
        kstate(*cleaning)
    assert requested_actions(place) >= actions(granted[CLEANER]) - {"s3:AbortMultipartUpload"}
    assert len(place.generations()) <= 3
    kstate("verify", "--snapshot", place.out)
    for action in ("s3:DeleteObject", "s3:ListBucketMultipartUploads"):
        place.store.behave(policies={CLEANER: without(granted[CLEANER], action)}, later_seconds=INTENT_SECONDS + 3_600)
        refusal = kstate(*cleaning, status=7)
        assert "lacks the permission" in refusal.err and "wrote snapshot" in refusal.err, action


def test_uploads_in_parts_end_whole_or_not_at_all(place: BucketPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the rights of a writer; those that a killed writer left are aborted by a cleaner."""
    monkeypatch.setattr("kstate_cli.snapshot.bucket._PART_BYTES", 2_000)
    monkeypatch.setattr("kstate_cli.snapshot.repository.CHUNK", 1_000)
    granted = policies(place.store.bucket)
    as_user(WRITER, monkeypatch)
    place.store.behave(policies=granted)
    repository = place.repository()
    assert isinstance(repository, BucketRepository)
    repository.create()
    content = bytes(number % 251 for number in range(_LARGE))
    first = repository.put(io.BytesIO(content))
    assert first.is_new and place.read(place.paths("objects/")[0]) == content
    assert not repository.put(io.BytesIO(content)).is_new
    with repository.open_object(first.name) as file:
        assert file.read() == content
    # Errors of the server are repeated; one that stays ends the snapshot, and leaves no part.
    place.store.behave(Fault("^PUT .*partNumber=2", 500, times=2), policies=granted)
    assert repository.put(io.BytesIO(content + b"x")).is_new
    place.store.behave(Fault("^PUT .*partNumber=3", 403, "AccessDenied"), policies=granted)
    with pytest.raises(Exception, match="AccessDenied"):
        repository.put(io.BytesIO(content + b"y"))
    assert place.store.uploads() == [] and len(place.objects()) == 2
    assert "s3:AbortMultipartUpload" in requested_actions(place)

    place.store.client.create_multipart_upload(Bucket=place.store.bucket, Key="snapshots/objects/ab/killed")
    place.store.client.create_multipart_upload(Bucket=place.store.bucket, Key="theirs")
    as_user(CLEANER, monkeypatch)
    cleaner = place.repository()
    place.store.behave(policies=granted)
    # moto states the year 2010 as the beginning of every upload.
    assert cleaner.remove_drafts(INTENT_SECONDS * 1000) == 1
    assert place.store.uploads() == ["theirs"]

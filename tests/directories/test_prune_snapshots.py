"""``prune-snapshots``: what expires, what a dry run announces, and what a listing shows of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kstate_cli import clock
from kstate_cli.snapshot.model import name_of, utc_name
from tests.faults.small import small
from tests.object_store import Fault, ObjectStore

from .repositories import BucketPlace, FolderPlace, Place
from .support import kstate

pytestmark = pytest.mark.rotating(6)

NOW = ("--grace", "0s")
DAY_MS = 86_400_000


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped", "window-count"))


def take(app: Path, place: Place, *words: str) -> str:
    """Take a snapshot that has a file of its own, and return its name."""
    current = app / "0_0" / "rocksdb" / "kv-timestamped" / "CURRENT"
    current.touch()
    return str(kstate("snapshot", app, "--out", place.out, "-o", "json", *words).summary["snapshot"])


def make_older(place: Place, name: str, days: int) -> str:
    """Give a snapshot an earlier time, as if it had been taken then; return its new name."""
    document = json.loads(place.read(f"generations/{name}.json"))
    document["created_ms"] -= days * DAY_MS
    data = json.dumps(document).encode()
    older = name_of(utc_name(document["created_ms"]), data)
    place.write(f"generations/{older}.json", data)
    place.remove(f"generations/{name}.json")
    return older


def prune(place: Place, *words: str, status: int = 0) -> Any:
    return kstate("prune-snapshots", place.out, *words, "-o", "json", status=status)


def outcomes(result: Any) -> dict[str, str]:
    return {row["snapshot"]: row["after_run"] for row in result.rows if row["type"] == "snapshot"}


def numbers(result: Any) -> dict[str, Any]:
    return {name: value for name, value in result.summary.items() if name != "executed"}


def prune_twice(place: Place, *words: str) -> Any:
    """Prune, and prove that a dry run announced the same and wrote nothing."""
    before = {path: place.read(path) for path in place.paths()}
    planned = prune(place, *words, "--dry-run")
    assert {path: place.read(path) for path in place.paths()} == before
    assert planned.summary["executed"] is False
    carried_out = prune(place, *words)
    assert outcomes(planned) == outcomes(carried_out) and numbers(planned) == numbers(carried_out)
    return carried_out


def list_snapshots(place: Place) -> dict[str, Any]:
    return {row["snapshot"]: row for row in kstate("ls", place.out, "-o", "json").rows if row["type"] == "snapshot"}


def test_snapshots_expire_without_a_new_snapshot(app: Path, place: Place) -> None:
    first, second, third = (take(app, place) for _ in range(3))
    assert outcomes(prune_twice(place, "--keep", "3")) == dict.fromkeys((first, second, third), "kept")
    marked = prune_twice(place, "--keep", "1")
    assert outcomes(marked) == {first: "expired", second: "expired", third: "kept"}
    assert marked.summary["condemned"] == 2 and place.generations() == sorted((first, second, third))
    assert {name: row["will_be_deleted"] for name, row in list_snapshots(place).items()} == {
        first: True,
        second: True,
        third: False,
    }
    assert "ok, but expired" in re.sub(r"\s+", " ", kstate("ls", place.out).out)
    # Within the grace period a second run finds nothing to do.
    assert prune_twice(place, "--keep", "1").summary["condemned"] == 0
    # A run without a rule must not take the list away from cleaners that have one.
    assert prune_twice(place, *NOW).summary["removed"] == 0
    deleted = prune_twice(place, "--keep", "1", *NOW)
    assert outcomes(deleted) == {first: "deleted", second: "deleted", third: "kept"}
    assert place.generations() == [third]
    kstate("verify-snapshots", place.out)


def test_files_that_no_snapshot_needs_are_deleted_without_a_rule(app: Path, place: Place) -> None:
    """A killed writer has left them, or a user has removed the snapshots of an application."""
    newest = take(app, place)
    unneeded = take(small("4.3.1-kinds-eos", app.parents[1] / "other", ("kv-timestamped", "session-count")), place)
    place.remove(f"generations/{unneeded}.json")
    before = set(place.objects())
    waiting = prune_twice(place, *NOW).summary
    assert waiting["removed"] == 0 < waiting["waiting"] and waiting["waiting_bytes"] > 0
    removed = prune_twice(place, *NOW).summary
    assert (removed["removed"], removed["removed_bytes"]) == (waiting["waiting"], waiting["waiting_bytes"])
    assert set(place.objects()) < before and place.generations() == [newest]
    kstate("verify-snapshots", place.out)


def test_snapshots_of_a_host_that_does_not_exist_any_more(app: Path, place: Place) -> None:
    """The newest of each task and host stays, unless the user states for how long."""
    pod = make_older(place, take(app, place, "--host", "pod-a"), 40)
    assert outcomes(prune_twice(place, "--keep", "1")) == {pod: "kept"}, "the newest of a stopped application"
    assert outcomes(prune_twice(place, "--abandoned", "1d")) == {pod: "kept"}
    older, newer = make_older(place, take(app, place), 1), take(app, place)
    assert outcomes(prune_twice(place, "--keep-for", "0s", "--grace", "1d"))[pod] == "kept"
    assert outcomes(prune_twice(place, "--abandoned", "41d")) == {pod: "kept", older: "expired", newer: "kept"}
    result = prune_twice(place, "--abandoned", "30d", *NOW)
    assert outcomes(result)[pod] == "expired" and outcomes(result)[newer] == "kept"
    assert outcomes(prune_twice(place, "--abandoned", "30d", *NOW))[pod] == "deleted"
    assert newer in place.generations()
    kstate("verify-snapshots", place.out)


def test_nothing_is_deleted_beside_a_snapshot_that_cannot_be_read(app: Path, place: Place) -> None:
    first, second = (take(app, place) for _ in range(2))
    prune(place, "--keep", "1")
    path = f"generations/{second}.json"
    content = place.read(path)
    place.write(path, content[:-9])
    before = place.paths()
    for words in ((), ("--dry-run",)):
        refusal = prune(place, "--keep", "1", *NOW, *words, status=4)
        assert path in refusal.err and f"kstate verify-snapshots {place.out}" in refusal.err
        assert path in kstate("verify-snapshots", place.out, status=3).err
    assert place.paths() == before
    # As the hint says: from another copy of the repository.
    place.write(path, content)
    assert outcomes(prune(place, "--keep", "1", *NOW))[first] == "deleted"


def test_two_cleaners_of_a_folder(app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    take(app, place)
    with place.repository().only_cleaner() as alone:
        assert alone
        refusal = prune(place, "--keep", "1", status=5)
        assert "another process is cleaning" in refusal.err
    prune(place, "--keep", "1")


def test_a_snapshot_in_progress_delays_the_deletion(app: Path, place: Place) -> None:
    take(app, place)
    take(app, place)
    place.repository().create_note("intents", "0123456789abcdef.begun", {"created_ms": clock.now_ms()})
    prune(place, "--keep", "1")
    result = prune(place, "--keep", "1", *NOW)
    assert result.summary["removed"] == 0 and "still in progress" in result.summary["message"]
    assert len(place.generations()) == 2


def test_a_bucket_that_fails_after_the_first_deletion(app: Path, objects: ObjectStore) -> None:
    place = BucketPlace(objects, "snapshots")
    _, second, third = (take(app, place) for _ in range(3))
    prune(place, "--keep", "1")
    objects.behave(Fault(f"^DELETE .*{second}", 403, "AccessDenied"))
    failed = prune(place, "--keep", "1", *NOW, status=7)
    assert "lacks the permission" in failed.err and place.generations() == [second, third]
    objects.behave()
    kstate("verify-snapshots", place.out)


def test_a_listing_shows_until_when_the_log_continues_a_snapshot(app: Path, tmp_path: Path) -> None:
    """The rows of the golden directory are older than a log keeps deletes."""
    place = FolderPlace(tmp_path / "repository")
    name = take(app, place)
    assert list_snapshots(place)[name]["usable"] is False
    text = re.sub(r"\s+", " ", kstate("ls", place.out).report)
    assert "(past)" in text and "1 snapshot is too old for the logs" in text
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    kstate("restore", lost, "--from-snapshot", place.out, status=4)
    document = json.loads(place.read(f"generations/{name}.json"))
    for task in document["tasks"]:
        for store in task["stores"]:
            store["as_of_ms"] = clock.now_ms()
    data = json.dumps(document).encode()
    young = name_of(utc_name(document["created_ms"]), data)
    place.write(f"generations/{young}.json", data)
    place.remove(f"generations/{name}.json")
    assert list_snapshots(place)[young]["usable"] is True
    kstate("restore", lost, "--from-snapshot", place.out)


def test_a_list_of_expired_snapshots_that_cannot_be_read(app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    name = take(app, place)
    place.write("condemned/20261126T120000.000Z-00000000.json", b"[")
    assert list_snapshots(place)[name]["will_be_deleted"] is None
    assert "cannot read one of the lists of expired snapshots" in kstate("ls", place.out).err
    refusal = prune(place, "--keep", "1", status=6)
    assert "condemned/20261126T120000.000Z-00000000.json" in refusal.err
    (note,) = place.paths("condemned/2")
    # As the hint says.
    shutil.move(place.path / note, tmp_path / "moved.json")
    prune(place, "--keep", "1")


def test_a_place_without_snapshots_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    for words in ((), ("--dry-run",)):
        assert "thesis.txt" in prune(FolderPlace(tmp_path), "--keep", "1", *words, status=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

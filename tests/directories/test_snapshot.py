"""Snapshots of directories of real releases: what is captured, what is skipped, and that no damage restores anything wrong."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli import clock
from kstate_cli.change.fingerprint import every_file
from kstate_cli.formats.offsets import STATUS_OPEN, decode_rows, encode_rows
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.snapshot.capture import capture
from kstate_cli.snapshot.capture_plan import CaptureRequest
from kstate_cli.snapshot.folder import FolderRepository
from kstate_cli.statedir.names import PROCESS_FILE
from tests.faults.small import small
from tests.golden import unpack
from tests.object_store import ObjectStore

from .repositories import BucketPlace, FolderPlace, Place, sync
from .support import kstate
from .test_locks import locked

pytestmark = pytest.mark.rotating(6)

CLOSED = [
    "4.3.1-kinds-eos",
    "4.3.1-kinds-alos",
    "4.2.1-kinds-eos",
    "4.2.1-kinds-alos",
    "3.6.2-kinds-eos",
    "4.3.1-headers-eos",
]
KILLED = ["4.3.1-kinds-eos-killed-open", "4.2.1-kinds-eos-killed-first", "4.2.1-kinds-eos-killed-second"]
OLD = "--accept-resurrected"
"""Golden directories are older than a log keeps deletes."""


def _files(app: Path) -> dict[str, bytes]:
    """The content of every file that an application needs."""
    skipped = ("LOG", "LOCK", ".lock", PROCESS_FILE)
    return {
        str(path.relative_to(app)): path.read_bytes()
        for path in app.rglob("*")
        if path.is_file() and not path.name.startswith(skipped) and not path.name.startswith("OPTIONS-")
    }


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped", "window-count", "grace-join-Buffer"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", CLOSED)
def test_a_closed_directory_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    app = unpack(name, tmp_path / "state")
    before = every_file(app)
    result = kstate("snapshot", app, "--out", tmp_path / "repository", "-o", "json")
    assert every_file(app) == before, "a snapshot changed its source"
    restored = tmp_path / "elsewhere" / app.name
    restored.parent.mkdir()
    kstate("restore", restored, "--from-snapshot", tmp_path / "repository", OLD, "--warnings-ok")
    assert kstate("diff", app, restored, "-o", "json").summary["equal"] is True
    ours, theirs = _files(restored), _files(app)
    assert not any(PROCESS_FILE in path for path in every_file(restored))
    # .checkpoint is written again: the order of its lines is the only thing that may differ.
    for path in theirs:
        if path.rpartition("/")[2].startswith(".checkpoint") or path.endswith(".position"):
            assert sorted(ours[path].splitlines()) == sorted(theirs[path].splitlines()), path
        else:
            assert ours.get(path) == theirs[path], path
    assert result.summary["skipped"] == 0
    release = ["--for", ".".join(name.split(".")[:2])]
    # Without what the process file of another host, or its absence, is worth a finding.
    rows_of_both = [kstate("check", where, *release, "-o", "json", status=None).rows for where in (app, restored)]
    outcomes = [
        {(row["task"], row["store"]): row["outcome"] for row in rows if row["type"] == "prediction"}
        for rows in rows_of_both
    ]
    assert outcomes[0] == outcomes[1] and outcomes[0]


@pytest.mark.parametrize("name", KILLED)
def test_a_killed_directory_is_refused_and_says_why(name: str, tmp_path: Path) -> None:
    app = unpack(name, tmp_path / "state")
    result = kstate("snapshot", app, "--out", tmp_path / "repository", status=None)
    captured = {row["task"] for row in kstate("ls", app, "-o", "json", status=None).rows if row.get("task")}
    assert result.status in (1, 4), result.report
    assert "not closed cleanly" in result.err
    if result.status == 4:
        assert not (tmp_path / "repository").exists(), captured


def test_a_second_snapshot_shares_every_file(app: Path, place: Place) -> None:
    repository = place.out
    first = kstate("snapshot", app, "--out", repository, "-o", "json").summary
    again = kstate("snapshot", app, "--out", repository, "--dry-run", "-o", "json").summary
    assert (again["new_bytes"], again["snapshot"]) == (0, None)
    second = kstate("snapshot", app, "--out", repository, "-o", "json").summary
    assert first["new_bytes"] > 0 == second["new_bytes"]
    assert first["new_bytes"] == sum(len(place.read(path)) for path in place.paths("objects/"))
    listing = kstate("ls", repository, "-o", "json")
    assert [row["snapshot"] for row in listing.rows] == [first["snapshot"], second["snapshot"]]
    assert all(row["shared_bytes"] == first["new_bytes"] and row["damage"] is None for row in listing.rows)
    assert kstate("verify", "--snapshot", repository, "-o", "json").summary["ok"] is True


def test_only_the_owner_reads_a_repository(app: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    kstate("snapshot", app, "--out", repository)
    for path in (repository, *repository.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert not list(repository.rglob(".new-*"))


def test_restored_and_taken_back(app: Path, place: Place, tmp_path: Path) -> None:
    kstate("snapshot", app, "--out", place.out)
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    planned = kstate("restore", lost, "--from-snapshot", place.out, OLD, "--dry-run", "-o", "json")
    assert not lost.exists() and planned.summary["executed"] is False
    result = kstate("restore", lost, "--from-snapshot", place.out, OLD, "-o", "json")
    steps = [row["path"] for row in planned.rows if row["type"] == "step"]
    assert steps == [row["path"] for row in result.rows if row["type"] == "step"]
    again = kstate("restore", lost, "--from-snapshot", place.out, "-o", "json")
    assert (again.summary["executed"], again.summary["left"]) == (False, result.summary["stores"])
    assert kstate("diff", app, lost, "-o", "json").summary["equal"] is True
    kstate("undo", lost)
    assert not [path for path in every_file(lost) if "rocksdb" in path]


def test_a_store_that_was_wiped_comes_back_beside_the_others(tmp_path: Path) -> None:
    """Up to 4.2 one file has the lines of all stores of a task."""
    app = unpack("4.2.1-kinds-eos", tmp_path / "state")
    kstate("snapshot", app, "--out", tmp_path / "repository")
    before = shutil.copytree(app, tmp_path / "before" / app.name)
    kstate("wipe", app, "--store", "count", "--warnings-ok")
    shutil.rmtree(app / "0_0" / "rocksdb" / "count", ignore_errors=True)
    kstate("restore", app, "--from-snapshot", tmp_path / "repository", OLD, "--store", "count")
    assert kstate("diff", before, app, "-o", "json").summary["equal"] is True
    for task in ("0_0", "0_1"):
        lines = [sorted((where / task / ".checkpoint").read_text().splitlines()) for where in (before, app)]
        assert lines[0] == lines[1]


def test_old_data_is_refused(app: Path, tmp_path: Path) -> None:
    kstate("snapshot", app, "--out", tmp_path / "repository")
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    refusal = kstate("restore", lost, "--from-snapshot", tmp_path / "repository", status=4)
    assert "deleted keys would reappear" in refusal.err and not lost.exists()
    # Without the specification, kstate would refuse to read the dump.
    assert "pass --from-changelog DUMP --spec FILE" in refusal.err
    kstate("restore", lost, "--from-snapshot", tmp_path / "repository", OLD)


def test_a_running_application_that_has_flushed_nothing_is_captured(app: Path, tmp_path: Path) -> None:
    """Its directory is as the last run left it: without status 1 nothing was flushed since the databases were opened."""
    (app / ".lock").touch()
    before = every_file(app)
    with locked(app, "application"):
        result = kstate("snapshot", app, "--out", tmp_path / "repository", "-o", "json")
    assert every_file(app) == before, "a snapshot changed its source"
    assert result.summary["skipped"] == 0
    restored = tmp_path / "elsewhere" / app.name
    restored.parent.mkdir()
    kstate("restore", restored, "--from-snapshot", tmp_path / "repository", OLD)
    assert kstate("diff", app, restored, "-o", "json").summary["equal"] is True


def test_a_running_application_with_uncommitted_rows_is_not_captured(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos-killed-open", tmp_path / "state")
    (app / ".lock").touch()
    with locked(app, "application"):
        result = kstate("snapshot", app, "--out", tmp_path / "repository", status=None)
    assert result.status in (1, 4) and "status is open" in result.err, result.report


def test_tasks_that_were_skipped_while_running_are_captured_after_the_stop(tmp_path: Path) -> None:
    """With the guarantee that the hint names, only versioned stores remain. The printed command captures them."""
    app = unpack("4.2.1-kinds-eos", tmp_path / "state")
    (app / ".lock").touch()
    repository = tmp_path / "repository"
    with locked(app, "application"):
        refusal = kstate("snapshot", app, "--out", repository, status=4)
        partial = kstate("snapshot", app, "--out", repository, "--guarantee", "at_least_once", status=1)
        quiet = kstate("snapshot", app, "--out", repository, "--guarantee", "at_least_once", "-q", status=1)
    assert "pass --guarantee at_least_once" in refusal.err
    (hint,) = [line for line in partial.err.splitlines() if line.startswith("to capture all tasks, stop ")]
    assert "warning: kstate skipped 6_0: versioned: " in partial.err and "to capture" not in quiet.err
    after = kstate(*shlex.split(hint[hint.index("kstate ") :])[1:], "-o", "json")
    assert after.summary["skipped"] == 0 and after.summary["captured"] == after.summary["tasks"]


@pytest.fixture
def partly_unclean(tmp_path: Path) -> Path:
    """Three tasks, one of which a kill has left with a store whose status is open."""
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    path = app / "0_0" / "rocksdb" / "latest-order"
    with Shadow(path) as shadow:
        record = decode_rows(shadow.rows("offsets"))
    with WritableStore(path) as database:
        database.set_offsets(encode_rows(replace(record, status=STATUS_OPEN)))
    return app


def test_uncommitted_rows_are_captured_under_at_least_once(partly_unclean: Path, tmp_path: Path) -> None:
    (partly_unclean / ".lock").touch()
    words = ("snapshot", partly_unclean, "--out", tmp_path / "repository")
    with locked(partly_unclean, "application"):
        before = kstate(*words, status=1)
        after = kstate(*words, "--guarantee", "at_least_once", "-o", "json")
    assert "kstate skipped 0_0: latest-order: its status is open" in before.err
    assert "if the application runs with at-least-once, pass --guarantee at_least_once. Otherwise, " in before.err
    assert after.summary["skipped"] == 0


def test_check_explains_a_task_that_was_skipped(partly_unclean: Path, tmp_path: Path) -> None:
    result = kstate("snapshot", partly_unclean, "--out", tmp_path / "repository", status=1)
    (hint,) = [line for line in result.err.splitlines() if line.startswith("to see what to do about skipped tasks")]
    words = shlex.split(hint[hint.index("kstate ") :].replace("RELEASE", "4.3"))
    checked = kstate(*words[1:], status=None)
    assert "0_0/latest-order" in checked.out and "\nwhat to do:\n" in checked.out


def test_a_killed_at_least_once_directory_is_restored_as_closed(tmp_path: Path) -> None:
    """The offset of each database is that of its rows, and a restoration writes that it was closed."""
    app = unpack("4.3.1-kinds-eos-killed-open", tmp_path / "state")
    words = ("--guarantee", "at_least_once", "--warnings-ok", "-o", "json")
    result = kstate("snapshot", app, "--out", tmp_path / "repository", *words)
    unclean = [row for row in kstate("ls", app, "-o", "json", status=None).rows if row.get("status") == "open"]
    captured = {(row["task"], row["store"]) for row in result.rows if row["type"] == "store"}
    assert captured & {(row["task"], row["store"]) for row in unclean}, result.report
    restored = tmp_path / "elsewhere" / app.name
    restored.parent.mkdir()
    kstate("restore", restored, "--from-snapshot", tmp_path / "repository", OLD, "--warnings-ok")
    rows = [row for row in kstate("ls", restored, "-o", "json", status=None).rows if row["type"] == "store"]
    assert rows and not [row for row in rows if row.get("status") == "open"]
    changelogs = {(row["task"], row["store"]): row["changelog"] for row in result.rows if row["type"] == "store"}
    assert {(row["task"], row["store"]): row["changelog"] for row in rows} == changelogs


def test_each_segment_of_a_restored_store_states_its_offset(tmp_path: Path) -> None:
    """Streams was killed while it created a segment: the segment has no column family `offsets` yet."""
    app = small("4.3.1-kinds-eos", tmp_path / "state", ("kv-timestamped", "window-count"))
    segments = sorted((app / "0_0" / "window-count").iterdir())
    for path in segments:
        with Shadow(path) as shadow:
            record = decode_rows(shadow.rows("offsets"))
        with WritableStore(path) as database:
            database.set_offsets(encode_rows(replace(record, status=STATUS_OPEN)))
            if path == segments[-1]:
                database.drop("offsets")
    words = ("--guarantee", "at_least_once", "--warnings-ok", "-o", "json")
    result = kstate("snapshot", app, "--out", tmp_path / "repository", *words)
    (captured,) = (row for row in result.rows if row.get("task") == "0_0" and row.get("store") == "window-count")
    restored = tmp_path / "elsewhere" / app.name
    restored.parent.mkdir()
    kstate("restore", restored, "--from-snapshot", tmp_path / "repository", OLD, "--warnings-ok")
    stated = []
    for path in sorted((restored / "0_0" / "window-count").iterdir()):
        with Shadow(path) as shadow:
            stated.append(decode_rows(shadow.rows("offsets")).offsets)
    assert len(stated) > 1
    (changelog,) = captured["changelog"].values()
    assert [list(offsets.values()) for offsets in stated] == [list(changelog.values())] * len(stated)
    (row,) = (row for row in kstate("ls", restored, "-o", "json", status=None).rows
              if row.get("task") == "0_0" and row.get("store") == "window-count")  # fmt: skip
    assert row["segments_without_offset"] == [] and row["changelog"] == captured["changelog"]


def test_the_lock_of_a_running_application_outlives_a_snapshot(app: Path, tmp_path: Path) -> None:
    """A snapshot opens and closes ``.lock``: POSIX then drops the locks of its own process, and of no other."""
    (app / ".lock").touch()
    with locked(app, "application"), (app / ".lock").open("r+b") as lock:
        for _ in range(2):
            kstate("snapshot", app, "--out", tmp_path / "repository", status=None)
            with pytest.raises(BlockingIOError):
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_another_change_excludes_it(app: Path, tmp_path: Path) -> None:
    (app / ".lock").touch()
    with locked(app, "kstate"):
        kstate("snapshot", app, "--out", tmp_path / "repository", status=5)


def test_a_task_whose_files_change_meanwhile_is_not_captured(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path / "state")
    repository = FolderRepository(tmp_path / "repository")
    touched = app / "1_0" / "rocksdb" / "source-table" / "CURRENT"
    calls = []

    def progress(size: int) -> None:
        # As a start of the application in the middle of the copy: RocksDB replaces CURRENT.
        if not calls:
            data = touched.read_bytes()
            touched.unlink()
            touched.write_bytes(data)
        calls.append(size)

    report = capture(CaptureRequest(app, host="h"), repository, dry_run=False, progress=progress, begin=lambda _: None)
    assert set(report.skipped) == {"1_0"} and "changed" in report.skipped["1_0"]
    assert report.generation is not None
    generation = repository.generation(report.generation)
    assert "1_0" not in {task.name for task in generation.tasks} and len(generation.tasks) == 12


def test_hosts_share_a_repository(tmp_path: Path) -> None:
    app = unpack("4.3.1-kinds-eos", tmp_path / "state")
    other = tmp_path / "other" / app.name
    shutil.copytree(app, other)
    for where, number in ((app, "0"), (other, "1")):
        for task in where.iterdir():
            if task.is_dir() and task.name != "global" and task.name[-1] != number:
                shutil.rmtree(task)
        kstate("snapshot", where, "--out", tmp_path / "repository", "--host", f"host-{number}")
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    kstate("restore", lost, "--from-snapshot", tmp_path / "repository", OLD, "--warnings-ok")
    assert {path.name for path in lost.iterdir()} - {".lock"} == {
        *(f"{number}_{partition}" for number in (0, 1, 3, 4, 5, 6) for partition in (0, 1)), "global"
    }  # fmt: skip
    part = tmp_path / "part" / app.name
    part.parent.mkdir()
    kstate("restore", part, "--from-snapshot", tmp_path / "repository", OLD, "--share", "1/2", "--warnings-ok")
    assert len([path for path in part.iterdir() if path.is_dir()]) == 7


# --- damage -----------------------------------------------------------------------------------------------------------


def _damages(place: Place) -> Iterator[tuple[str, str]]:
    kinds = ["flip", "cut", "remove", "swap", "grow"]
    if isinstance(place, FolderPlace):
        kinds.append("link")
    for path in place.paths():
        # An intent counts for nothing here: no writer and no cleaner is at work.
        if not path.startswith("intents/"):
            for damage in kinds:
                yield path, damage


def _do(place: Place, path: str, damage: str) -> None:
    data = place.read(path)
    if damage == "flip":
        middle = len(data) // 2
        place.write(path, data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    elif damage == "cut":
        place.write(path, data[: len(data) // 2])
    elif damage == "grow":
        place.write(path, data + b"x")
    elif damage == "remove":
        place.remove(path)
    elif damage == "link":
        assert isinstance(place, FolderPlace)
        new_place = place.path.parent / "moved"
        (place.path / path).rename(new_place)
        (place.path / path).symlink_to(new_place)
    else:
        place.write(path, place.read(next(other for other in place.paths() if other != path)))


def test_every_damage_is_named_and_restores_nothing_wrong(app: Path, place: Place, tmp_path: Path) -> None:
    """Each file of a repository: one bit, a half, nothing, the bytes of another file, a link, a byte too many."""
    kstate("snapshot", app, "--out", place.out)
    expected = _files(app)
    cases = list(_damages(place))
    if isinstance(place, BucketPlace):
        cases = cases[::3]  # each command takes a client of its own; the checks are those of the folder
    for number, (relative, damage) in enumerate(cases):
        copy = place.copied(f"case-{number}/repository")
        _do(copy, relative, damage)
        label = f"{damage} {relative}"
        verified = kstate("verify-snapshots", copy.out, status=None)
        lost = tmp_path / f"state-{number}" / app.name
        lost.parent.mkdir()
        restored = kstate("restore", lost, "--from-snapshot", copy.out, OLD, status=None)
        if relative.startswith("generations/") and damage == "remove":
            # Nothing says that it was there; and without it there is nothing to restore.
            assert restored.status == 4, label
        elif relative == "kstate-snapshots.json" and damage == "remove":
            # Without the marker, the place is another one, as for every command.
            for result in (verified, restored):
                assert result.status == 2, f"{label}: {result.report}"
                assert "contains other files, but no kstate-snapshots.json: generations, objects" in result.err, label
        else:
            assert verified.status in (3, 4), f"{label}: {verified.report}"
            assert relative in verified.err + verified.out or relative == "kstate-snapshots.json", (
                f"{label}: {verified.report}"
            )
            assert restored.status == 4, f"{label}: {restored.report}"
            assert relative in restored.err or relative == "kstate-snapshots.json", f"{label}: {restored.report}"
        assert not lost.exists(), label
        if isinstance(copy, FolderPlace):
            shutil.rmtree(copy.path)
    assert cases and _files(app) == expected


def test_warns_of_an_older_snapshot_in_place_of_a_damaged_snapshot(app: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    first = kstate("snapshot", app, "--out", repository, "-o", "json").summary["snapshot"]
    second = kstate("snapshot", app, "--out", repository, "--host", "b", "-o", "json").summary["snapshot"]
    damaged = repository / "generations" / f"{second}.json"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    result = kstate("restore", lost, "--from-snapshot", repository, OLD, "-o", "json", status=1)
    assert result.summary["snapshots"] == [first]
    assert second in next(row["message"] for row in result.rows if row["type"] == "warning")


def test_a_snapshot_that_was_renamed(app: Path, tmp_path: Path) -> None:
    """Readers take the newest by its name: an old one must not become the newest by a new name."""
    repository = tmp_path / "repository"
    name = kstate("snapshot", app, "--out", repository, "-o", "json").summary["snapshot"]
    renamed = f"2{int(name[1]) + 1}{name[2:]}"
    (repository / "generations" / f"{name}.json").rename(repository / "generations" / f"{renamed}.json")
    verified = kstate("verify-snapshots", repository, status=3)
    assert renamed in verified.report and "the file was renamed" in verified.report
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    assert kstate("restore", lost, "--from-snapshot", repository, OLD, status=4).report.count(renamed) == 1
    assert not lost.exists()


def test_a_damaged_file_is_stored_again_once_it_is_out_of_the_way(app: Path, place: Place) -> None:
    kstate("snapshot", app, "--out", place.out)
    (damaged, *_) = place.paths("objects/")
    place.write(damaged, place.read(damaged)[:-1])
    listing = kstate("ls", place.out, status=3)
    assert damaged in listing.err
    # Nobody replaces a file of the repository: the user decides which one is good.
    assert damaged in kstate("snapshot", app, "--out", place.out, status=4).err
    place.remove(damaged)
    kstate("snapshot", app, "--out", place.out)
    kstate("ls", place.out)
    kstate("verify-snapshots", place.out)


def test_a_copy_by_any_tool_is_usable_at_once(app: Path, place: Place, objects: ObjectStore, tmp_path: Path) -> None:
    """The names and bytes of a folder and of a bucket are the same, so a copy of one is the other."""
    first = kstate("snapshot", app, "--out", place.out, "-o", "json").summary
    copies = [FolderPlace(tmp_path / "copy"), BucketPlace(objects, "copy")]
    for copy in copies:
        sync(place, copy)
        listing = kstate("ls", copy.out, "-o", "json").summary
        assert listing["snapshots"] == [first["snapshot"]]
        kstate("verify", "--snapshot", copy.out)
        again = kstate("snapshot", app, "--out", copy.out, "-o", "json").summary
        assert again["new_bytes"] == 0
    lost = tmp_path / "elsewhere" / app.name
    lost.parent.mkdir()
    kstate("restore", lost, "--from-snapshot", copies[1].out, OLD)
    assert kstate("diff", app, lost, "-o", "json").summary["equal"] is True


# --- expiry -----------------------------------------------------------------------------------------------------------


def _expiry(app: Path, place: Place, *words: str) -> dict[str, Any]:
    return kstate("snapshot", app, "--out", place.out, "-o", "json", *words).summary


def test_an_expired_snapshot_is_deleted_after_the_grace_period(app: Path, place: Place) -> None:
    first = _expiry(app, place)["snapshot"]
    # With a day of grace it is only condemned; a later cleaner does not condemn it again.
    assert _expiry(app, place, "--keep", "1")["condemned"] == 1
    again = _expiry(app, place, "--keep", "1")
    assert (again["condemned"], again["removed"]) == (1, 0)
    assert first in place.generations()
    assert _expiry(app, place, "--keep", "1", "--grace", "0s")["removed"] == 2
    names = [row["snapshot"] for row in kstate("ls", place.out, "-o", "json").rows]
    assert first not in names and names
    kstate("verify-snapshots", place.out)


def test_the_newest_snapshot_of_a_task_stays(app: Path, place: Place) -> None:
    """Whatever its age: another host may be lost, and this is all there is of its tasks."""
    only = _expiry(app, place, "--store", "kv-timestamped")["snapshot"]
    for _ in range(3):
        _expiry(app, place, "--keep-for", "0s", "--grace", "0s")
    assert 0 < len(place.generations()) <= 3
    kstate("verify-snapshots", place.out)
    assert only is not None


def test_no_cleaner_deletes_while_a_writer_may_rely_on_it(app: Path, place: Place) -> None:
    _expiry(app, place)
    # A writer on another host that began before: it has listed the objects, and knows no condemned list.
    place.repository().create_note("intents", "0123456789abcdef.begun", {"created_ms": clock.now_ms()})
    for _ in range(3):
        assert _expiry(app, place, "--keep", "1", "--grace", "0s")["removed"] == 0
    place.repository().remove_note("intents", "0123456789abcdef.begun")
    assert _expiry(app, place, "--keep", "1", "--grace", "0s")["removed"] != 0
    kstate("verify-snapshots", place.out)


def test_a_new_snapshot_does_not_rely_on_condemned_objects(app: Path, place: Place) -> None:
    _expiry(app, place)
    objects = sorted(place.objects())
    document = {"created_ms": clock.now_ms(), "generations": [], "objects": objects}
    place.repository().create_note("condemned", "20261126T120000.000Z-00000000", document)
    second = _expiry(app, place)
    assert second["new_bytes"] != 0
    stored = set(place.objects()) - set(objects)
    assert {name[:64] for name in stored} == set(objects) and all(len(name) == 73 for name in stored)
    # Only what the first snapshot needs is condemned; without it the objects go, and the second stays whole.
    for name in place.generations():
        if name != second["snapshot"]:
            place.remove(f"generations/{name}.json")
    _expiry(app, place, "--keep", "5", "--grace", "0s")
    assert set(place.objects()) == stored
    kstate("verify-snapshots", place.out)


def test_nothing_is_deleted_while_a_snapshot_cannot_be_read(app: Path, place: Place) -> None:
    _expiry(app, place)
    (path,) = place.paths("generations/")
    place.write(path, place.read(path) + b" ")
    result = kstate("snapshot", app, "--out", place.out, "--keep", "1", "--grace", "0s")
    assert "cannot read a snapshot" in result.err and path in place.paths()


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("folder", "name", "content"),
    [
        ("condemned", "20261126T120000.000Z-00000000", b"{}"),
        ("condemned", "20261126T120000.000Z-00000000", b'{"generations": [], "objects": [["x"]]}'),
        ("condemned", "20261126T120000.000Z-00000000", b"[" * 100_000),
        ("intents", "0123456789abcdef.begun", b"\xff"),
        ("intents", "0123456789abcdef.begun", b"[]"),
    ],
)
def test_a_malformed_note_is_named(folder: str, name: str, content: bytes, app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    _expiry(app, place)
    before = set(place.paths("objects/"))
    _expiry(app, place, "--keep", "1")
    place.write(f"{folder}/{name}.json", content)
    result = kstate("snapshot", app, "--out", place.out, "--keep", "1", "--grace", "0s", status=None)
    assert result.status in (6, 7) and f"cannot read {folder}/{name}.json" in result.err, result.report
    assert before <= set(place.paths("objects/"))


@pytest.mark.parametrize("entry", ["objects/ab", "objects/ab/x", "objects/zz/y"])
def test_a_link_in_a_repository_is_named_and_not_followed(entry: str, app: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "repository")
    kstate("snapshot", app, "--out", place.out)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    link = place.path / entry
    link.parent.mkdir(exist_ok=True)
    if link.is_dir():
        shutil.rmtree(link)
    link.symlink_to(foreign)
    assert entry in kstate("verify-snapshots", place.out, status=3).err
    kstate("ls", place.out, status=None)
    kstate("snapshot", app, "--out", place.out, status=None)
    assert not os.listdir(foreign)


def test_the_intent_of_a_killed_writer_on_this_host_delays_no_cleaner(app: Path, tmp_path: Path) -> None:
    """The kernel drops the lock of its intent; that of another kernel, or without a lock, counts for a week."""
    place = FolderPlace(tmp_path / "repository")
    _expiry(app, place)
    child = os.fork()
    if child == 0:
        with place.repository().intent("0123456789abcdef", {"created_ms": clock.now_ms()}):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert "intents/0123456789abcdef.begun.json" in place.paths()
    with place.repository().intent("fedcba9876543210", {"created_ms": clock.now_ms()}):
        _expiry(app, place, "--keep", "1", "--grace", "0s")
        assert _expiry(app, place, "--keep", "1", "--grace", "0s")["removed"] == 0
        assert place.paths("intents/") == ["intents/fedcba9876543210.begun.json"]
    assert _expiry(app, place, "--keep", "1", "--grace", "0s")["removed"] != 0


# --- the place --------------------------------------------------------------------------------------------------------


def test_a_folder_with_other_files_is_no_repository(app: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for words, status in (
        (("snapshot", app, "--out"), 4),
        (("restore-snapshot", tmp_path / "lost", "--from-snapshot"), 2),
        (("verify-snapshots",), 2),
    ):
        refusal = kstate(*words, foreign, status=status)
        assert "thesis.txt" in refusal.err
    assert os.listdir(foreign) == ["thesis.txt"]


def test_a_repository_is_not_in_an_application(app: Path) -> None:
    kstate("snapshot", app, "--out", app / "snapshots", status=2)
    kstate("snapshot", app, "--out", app.parent, status=2)

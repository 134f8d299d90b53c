"""What runs keep: nothing of somebody else's is touched, undo proves what it puts back, clean tells the truth."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kstate_cli.change.folder import create_run, read_runs
from kstate_cli.diagnosis import redacted
from kstate_cli.restore.staging_area import make_area
from kstate_cli.texts import shell
from tests.command_result import CommandResult
from tests.faults.cases import PARTS, fresh
from tests.frozen.running import run_at
from tests.golden import unpack
from tests.journals.states import STATES, content, make

from .support import FROM_4_3, kstate, tree_hash

pytestmark = pytest.mark.rotating(6)

DOWN = next(part for part in PARTS if part.name == "down-kv")
OLDER = Path(__file__).resolve().parents[1] / "journals" / "golden" / "journal-1.tar.xz"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A small application directory of 4.3.1."""
    return fresh(DOWN, tmp_path / "w" / "state")


def migrate(app: Path, to: str = "4.2", **options: int) -> CommandResult:
    return kstate("migrate", app, "--to", to, "--quiet", **options)


def test_foreign_files_are_never_touched(app: Path, tmp_path: Path) -> None:
    migrate(app)
    own = app.parent / ".kstate" / app.name
    victim = tmp_path / "victim"
    (victim / "tree").mkdir(parents=True)
    (victim / "tree" / "mine").write_text("only copy")
    (own / "notes").mkdir()
    (own / "notes" / "mine").write_text("x")
    (own / "2024-backup").mkdir()
    (own / "2024-backup" / "mine").write_text("x")
    (own / "0002-migrate").symlink_to(victim)
    before = tree_hash(victim), tree_hash(own / "notes"), tree_hash(own / "2024-backup")
    kstate("undo", app)
    migrate(app)
    kstate("clean", app)
    assert (tree_hash(victim), tree_hash(own / "notes"), tree_hash(own / "2024-backup")) == before
    assert (own / "0002-migrate").is_symlink()
    assert [path.name for path in own.iterdir() if path.name.endswith("-migrate")] == ["0002-migrate"]


def test_a_link_in_place_of_the_folder_of_runs_is_refused(app: Path, tmp_path: Path) -> None:
    migrate(app)
    own = app.parent / ".kstate" / app.name
    own.rename(tmp_path / "elsewhere")
    own.symlink_to(tmp_path / "elsewhere")
    before = tree_hash(tmp_path / "elsewhere")
    for command in ("undo", "clean", "status"):
        assert "symbolic link" in kstate(command, app, status=4).err
    assert tree_hash(tmp_path / "elsewhere") == before


def test_runs_are_ordered_by_number(app: Path) -> None:
    migrate(app)
    migrate(app, "4.3")
    own = app.parent / ".kstate" / app.name
    (own / "0001-migrate").rename(own / "9999-migrate")
    (own / "0002-migrate").rename(own / "10000-migrate")
    assert [run.name for run in read_runs(app)] == ["9999-migrate", "10000-migrate"]
    assert "run 10000-migrate" in kstate("undo", app).err
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["kept", "undone"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("damage", ["sst", "task", "size", "time", "more", "link"])
def test_undo_verifies_the_backup(app: Path, damage: str) -> None:
    migrate(app)
    (run,) = read_runs(app)
    sst = min(run.tree.rglob("*.sst"))
    if damage == "sst":
        sst.unlink()
    elif damage == "task":
        shutil.rmtree(run.tree / "0_0")
    elif damage == "size":
        (sst.parent / "IDENTITY").write_bytes(b"x")
    elif damage == "time":
        os.utime(sst.parent / "IDENTITY", (1, 1))
    elif damage == "more":
        (run.tree / "0_0" / "more").mkdir()
    else:
        sst.rename(run.path / sst.name)
        sst.symlink_to(run.path / sst.name)
    before = tree_hash(app.parent)
    for options in ((), ("--discard-newer",)):
        refusal = kstate("undo", app, *options, status=4)
        assert "has changed: " in refusal.err
        assert run.name in refusal.err
    assert tree_hash(app.parent) == before
    (run.path / "kept.json").unlink()
    assert "has changed: " in kstate("undo", app, status=4).err


def test_a_list_that_is_lost_does_not_stand_in_the_way(app: Path) -> None:
    before = tree_hash(app).keys()
    migrate(app)
    (run,) = read_runs(app)
    (run.path / "kept.json").unlink()
    (run.path / "made.json").unlink()
    kstate("undo", app)
    assert tree_hash(app).keys() == before


def test_a_copied_state_directory_can_be_undone(app: Path, tmp_path: Path) -> None:
    """Other inodes, as after a copy or on an overlay file system that was mounted again."""
    before = tree_hash(app).keys()
    migrate(app)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", app.parent, copy], check=True)
    kstate("undo", copy / app.name)
    assert tree_hash(copy / app.name).keys() == before


def test_undo_restores_a_backup_of_an_older_kstate(tmp_path: Path) -> None:
    subprocess.run(["tar", "-xJf", OLDER, "-C", tmp_path], check=True)  # tarfile rounds times
    (app,) = (path for path in (tmp_path / "state").iterdir() if path.name != ".kstate")
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["kept", "kept"]
    kstate("undo", app)
    assert (app / "0_0" / "rocksdb" / "kv-timestamped" / "CURRENT").exists()
    (run, _) = read_runs(app)
    sst = min(run.tree.rglob("*.sst"))
    data = sst.read_bytes()
    sst.unlink()
    assert "cannot restore the backup" in kstate("undo", app, status=4).err
    sst.write_bytes(data)
    kstate("undo", app)
    assert [row["opens_in"] for row in kstate("ls", app, "-o", "json").rows] == [FROM_4_3]
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["undone", "undone"]
    kstate("clean", app)
    assert not (tmp_path / "state" / ".kstate").exists()


def test_undo_status_and_clean_after_everything_is_wiped(app: Path) -> None:
    before = tree_hash(app).keys()
    result = kstate("wipe", app, "--all", "--everything")
    assert f"kstate undo {app}" in result.err
    assert [path.name for path in app.iterdir()] == [".lock"]
    assert [row["state"] for row in kstate("status", app, "-o", "json").rows] == ["kept"]
    kstate("undo", app)
    assert tree_hash(app).keys() == before
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()
    kstate("wipe", app, "--all", "--everything", "--quiet")
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()


def immutable(path: Path, *, on: bool) -> None:
    result = subprocess.run(["chattr", "+i" if on else "-i", str(path)], capture_output=True, text=True, check=False)
    if result.returncode:
        pytest.skip(f"only root can make a file immutable: {result.stderr.strip()}")


@pytest.mark.parametrize("command", ["clean", "purge"])
def test_a_clean_that_fails_midway_says_so_and_goes_on_later(app: Path, command: str) -> None:
    name = Path("0_0", "rocksdb", "kv-timestamped", "CURRENT")
    if command == "clean":
        migrate(app)
    parent = app.parent / ".kstate" / app.name / ("0001-migrate" if command == "clean" else "0001-wipe") / "tree" / name
    memory = parent if command == "clean" else app / name
    options = () if command == "clean" else ("--store", "kv-timestamped", "--purge", "--yes")
    immutable(memory, on=True)
    memory = parent
    try:
        failed = kstate(command.replace("purge", "wipe"), app, *options, status=7)
        assert str(memory) in failed.err
        assert "nothing has changed" not in failed.err
        assert "cleaning" in [row["state"] for row in kstate("status", app, "-o", "json").rows]
        assert "nothing to undo" in kstate("undo", app).err
        if command == "clean":
            migrate(app, "4.3")
            kstate("undo", app)
        assert str(memory) in kstate("clean", app, status=7).err
    finally:
        immutable(memory, on=False)
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()


def test_clean_keeps_interrupted_and_precious_runs(app: Path) -> None:
    migrate(app)
    (run,) = read_runs(app)
    run.write("precious", why="the log has lost what it holds")
    remainder = kstate("clean", app)
    assert "the log has lost what it holds" in remainder.err
    assert f"kstate clean {app} --run 0001-migrate" in remainder.err
    assert run.tree.is_dir()
    kstate("clean", app, "--run", "0009-migrate", status=2)
    kstate("clean", app, "--run", "0001-migrate")
    assert not (app.parent / ".kstate").exists()
    interrupted = create_run(app, "migrate --to 4.2")
    assert f"kstate keeps run {interrupted.name}: the run was interrupted" in kstate("clean", app).err
    assert interrupted.path.is_dir()
    kstate("clean", app, "--run", interrupted.name)
    assert not (app.parent / ".kstate").exists()


def test_the_journal_says_who_and_why(app: Path) -> None:
    kstate("migrate", app, "--to", "4.2", "--reason", "INC-42: back to 4.2", "--quiet")
    (row,) = kstate("status", app, "-o", "json").rows
    assert row["by"]["reason"] == "INC-42: back to 4.2"
    assert row["by"]["argv"][:2] == ["migrate", str(app)]
    assert row["by"]["user"] and row["by"]["host"] and row["by"]["version"]


def test_secrets_are_left_out_of_the_journal() -> None:
    texts = ["s3://key:secret@bucket/x?sig=abc", "--conf", "spark.hadoop.fs.s3a.secret.key=abc", "--to", "4.2", "a?b"]
    assert redacted(texts) == [
        "s3://***@bucket/x?***",
        "--conf",
        "spark.hadoop.fs.s3a.secret.key=***",
        "--to",
        "4.2",
        "a?b",
    ]


def acl(path: Path) -> dict[str, bytes]:
    return {name: os.getxattr(path, name) for name in os.listxattr(path) if "posix_acl" in name}


def test_new_tree_has_the_permissions_of_the_old_tree(app: Path) -> None:
    """A default ACL on state.dir opens what is made below it; an ACL on CURRENT must outlive RocksDB's rewriting it."""
    setfacl = shutil.which("setfacl")
    if setfacl is None:
        pytest.fail("setfacl is not installed (Debian: apt-get install acl)")
    store = app / "0_0" / "rocksdb" / "kv-timestamped"
    subprocess.run([setfacl, "-m", "u:12345:r", store / "CURRENT"], check=True)
    subprocess.run([setfacl, "-m", "u:12346:rx,d:u:12346:r", app / "0_0"], check=True)
    os.chmod(store / "IDENTITY", 0o600)
    modes = {path.relative_to(app): (path.stat().st_mode, acl(path)) for path in app.rglob("*")}
    subprocess.run([setfacl, "-m", "d:u:54321:rwx", app.parent], check=True)
    migrate(app)
    for path in app.rglob("*"):
        name = path.relative_to(app)
        if name in modes:
            assert (path.stat().st_mode, acl(path)) == modes[name], name
        assert b"\x31\xd4\x00\x00" not in b"".join(acl(path).values()), name
    own = app.parent / ".kstate"
    for folder in (own, own / app.name, read_runs(app)[0].path):
        assert acl(folder) == {}
        assert folder == own or folder.stat().st_mode & 0o777 == 0o750


def test_task_directories_keep_their_age(app: Path) -> None:
    """4.3 deletes task directories by their mtime (state.cleanup.dir.max.age.ms): what is old must not look young."""
    for task in (app / "0_0", app):
        os.utime(task, (1_700_000_000, 1_700_000_000))
    migrate(app)
    assert (app / "0_0").stat().st_mtime == 1_700_000_000
    kstate("wipe", app, "--store", "kv-timestamped", "--quiet")
    assert (app / "0_0").stat().st_mtime == 1_700_000_000
    kstate("undo", app)
    assert (app / "0_0").stat().st_mtime == 1_700_000_000


def test_a_wipe_does_not_make_an_unclean_task_look_clean(tmp_path: Path) -> None:
    """Up to 4.2 an SST that is younger than .checkpoint is all that tells of a crash: that file must not become younger."""
    app = unpack("4.2.1-kinds-eos-killed-second", tmp_path)
    kstate("migrate", app, "--to", "4.3", status=4)
    unclean = {row["task"] for row in kstate("ls", app, "-o", "json").rows if row["status"] == "open"}
    messages = kstate("migrate", app, "--to", "4.3", status=4).err
    kstate("wipe", app, "--store", "count", "--store", "kv-plain", "--quiet", "--warnings-ok")
    again = kstate("migrate", app, "--to", "4.3", status=4).err
    tasks = {name for name in ("0_0", "0_1", "1_0", "1_1") if f"{name}/" in messages}
    assert tasks
    assert all(f"{name}/" in again for name in tasks), (messages, again, unclean)


def test_wiped_store_keeps_its_minus_four_on_the_way_to_4_3(tmp_path: Path) -> None:
    """4.3 reads .checkpoint_<store> of custom stores only; without -4 in the store exactly-once wipes the whole task."""
    app = unpack("4.2.1-kinds-eos", tmp_path)
    before = {(row["task"], row["store"]): row for row in kstate("ls", app, "-o", "json").rows}
    wiped = [("0_0", "kv-timestamped"), ("0_0", "window-count"), ("0_0", "session-plain")]
    for task, store in wiped:
        assert (task, store) in before, sorted(before)
        kstate("wipe", app, "--task", task, "--store", store, "--quiet", "--warnings-ok")
    kstate("migrate", app, "--to", "4.3", "--quiet", "--warnings-ok")
    after = {(row["task"], row["store"]): row for row in kstate("ls", app, "-o", "json").rows}
    for entry in wiped:
        ((topic, offsets),) = after[entry]["changelog"].items()
        assert set(offsets.values()) == {-4}, (topic, offsets)
        assert after[entry]["offsets_in"] == "column-family"
    assert not list((app / "0_0").glob(".checkpoint_kv-timestamped"))


def test_a_store_that_was_wiped_everywhere_on_the_way_to_4_3(tmp_path: Path) -> None:
    """Under exactly-once 4.3 wipes a task in which a store has no offset, and with it what nothing brings back."""
    app = unpack("4.2.1-kinds-eos", tmp_path)
    kstate("wipe", app, "--store", "kv-timestamped", "--quiet", "--warnings-ok")
    before = tree_hash(app)
    messages = kstate("migrate", app, "--to", "4.3", "--quiet", status=4).err
    assert "kv-timestamped was wiped" in messages
    assert "These stores of the task have no offset: kv-nolog" in messages
    assert tree_hash(app) == before
    report = kstate("migrate", app, "--to", "4.3", "--quiet", "--guarantee", "at_least_once", "--dry-run", status=1).err
    assert "kv-timestamped was wiped" in report
    kstate("wipe", app, "--store", "kv-nolog", "--quiet", "--warnings-ok")
    assert "kv-timestamped was wiped" in kstate("migrate", app, "--to", "4.3", "--quiet", status=1).err


def test_remains_in_a_staging_area_are_listed_and_removed(app: Path, tmp_path: Path) -> None:
    area = tmp_path / "area"
    (area / "of-another-host").mkdir(parents=True)
    (area / "of-another-host" / "a.sst").write_bytes(b"theirs")
    run = create_run(app, "restore --for 4.3")
    remainder = Path(make_area(str(area), app.name, run))
    (remainder / "a.sst").write_bytes(b"0123456789")
    run.write("failed", why="it was killed")
    (row,) = kstate("status", app, "-o", "json").rows
    assert row["staging"]["path"] == str(remainder)
    assert row["staging"]["files"] == 2
    (remainder / "_kstate.json").rename(tmp_path / "mark")
    assert str(remainder) in kstate("clean", app, status=6).err
    assert (remainder / "a.sst").exists()
    (tmp_path / "mark").rename(remainder / "_kstate.json")
    kstate("clean", app)
    assert [path.name for path in area.iterdir()] == ["of-another-host"]
    assert (area / "of-another-host" / "a.sst").exists()
    assert not (app.parent / ".kstate").exists()


def test_unreachable_staging_area_keeps_its_run_until_the_run_is_named(app: Path, tmp_path: Path) -> None:
    """The credentials of its URI are nowhere any more: whoever names the run has looked there, or need not."""
    run = create_run(app, "restore --for 4.3")
    area = tmp_path / "gone" / "area"
    path = Path(make_area(str(area), app.name, run))
    run.write("failed", why="it was killed")
    (tmp_path / "gone").rename(tmp_path / "unmounted")
    (row,) = kstate("status", app, "-o", "json").rows
    assert row["staging"]["path"] == str(path)
    assert "not mounted" in row["staging"]["message"]
    assert "staging area" in kstate("status", app).out
    messages = kstate("clean", app, status=6).err
    assert f"kstate clean {app} --run {run.name}" in messages
    assert run.path.is_dir()
    assert str(path) in kstate("clean", app, "--run", run.name, status=1).err
    assert not (app.parent / ".kstate").exists()
    assert (tmp_path / "unmounted" / "area" / path.name).is_dir()


_HOLD = """\
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def _waits_for(app: Path, *command: str) -> subprocess.Popen[str]:
    """Start a command that waits for the lock, and return once it has opened the lock."""
    line = [sys.executable, "-m", "kstate_cli", command[0], str(app), *command[1:], "--wait", "600"]
    waiting = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while str(app / ".lock") not in _open_files(waiting.pid):
        assert waiting.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    return waiting


def _open_files(pid: int) -> set[str]:
    links = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.add(str(descriptor.readlink()))
    return links


@pytest.mark.parametrize("change", ["removed", "another", "exchanged"])
def test_who_waits_for_a_lock_gets_that_of_the_directory_that_is_there_then(app: Path, change: str) -> None:
    """The lock that was opened may be that of a directory which has lost its name meanwhile."""
    migrate(app)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(app / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None and first.stdout.readline() == b"held\n"
        waiting = _waits_for(app, "undo")
        if change == "exchanged":
            app.rename(app.parent / "aside")
            subprocess.run(["cp", "-r", app.parent / "aside", app], check=True)
        else:
            (app / ".lock").unlink()
            if change == "another":
                (app / ".lock").touch()
        (app / ".lock").touch()
        with subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(app / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as application:
            assert application.stdout is not None and application.stdout.readline() == b"held\n"
            before = tree_hash(app)
            first.kill()
            time.sleep(0.5)
            assert waiting.poll() is None, waiting.communicate()
            assert tree_hash(app) == before
            application.kill()
        _, text = waiting.communicate(timeout=300)
        assert waiting.returncode in ((0,) if change != "exchanged" else (0, 4)), text


@pytest.mark.parametrize("command", ["migrate", "undo", "wipe"])
def test_lock_has_the_same_inode_before_and_after_an_exchange(app: Path, command: str) -> None:
    if command == "undo":
        migrate(app)
        (run,) = read_runs(app)
        (run.tree / ".lock").unlink()  # as copies without hard links leave it
        (run.tree / ".lock").touch()
    before = (app / ".lock").stat().st_ino
    options = {"migrate": ("--to", "4.2"), "wipe": ("--all", "--everything"), "undo": ()}[command]
    kstate(command, app, *options, "--quiet")
    assert (app / ".lock").stat().st_ino == before


def test_a_tree_that_an_application_has_run_on_is_no_staged_tree(tmp_path: Path) -> None:
    """Killed after the exchange, started with the mark, rolled back by hand: the mark alone proves nothing then."""
    after = next(state for state in STATES if state.state == "after-switch")
    app = make(after, tmp_path)
    (app / "0_1").mkdir()
    (app / "0_1" / "data").write_text("days of work")
    (run,) = read_runs(app)
    app.rename(tmp_path / "x")
    run.tree.rename(app)
    (tmp_path / "x").rename(run.tree)
    for command in (("undo",), ("migrate", "--to", "4.2")):
        assert "has changed since" in kstate(command[0], app, *command[1:], status=4).err
    assert (run.tree / "0_1" / "data").read_text() == "days of work"


def test_clean_deletes_nothing_in_a_run_that_is_not_kstates(app: Path) -> None:
    migrate(app)
    (run,) = read_runs(app)
    (run.path / "my-backup.tar.gz").write_text("mine")
    before = tree_hash(app.parent)
    assert "my-backup.tar.gz" in kstate("clean", app, status=4).err
    assert tree_hash(app.parent) == before


@pytest.mark.parametrize(("trouble", "alone"), [("a foreign file", 4), ("a staging area that is not mounted", 6)])
def test_a_run_that_stays_does_not_say_that_nothing_was_touched(
    app: Path, tmp_path: Path, trouble: str, alone: int
) -> None:
    """``clean`` deletes the other runs nevertheless: exit codes 4 and 6 say that nothing has changed."""
    if trouble == "a foreign file":
        migrate(app)
        (stays,) = read_runs(app)
        (stays.path / "notes.txt").write_text("mine")
    else:
        stays = create_run(app, "restore --for 4.3")
        make_area(str(tmp_path / "mounted" / "area"), app.name, stays)
        stays.write("failed", why="it was killed")
        (tmp_path / "mounted").rename(tmp_path / "unmounted")
    before = tree_hash(app.parent)
    kstate("clean", app, status=alone)
    assert tree_hash(app.parent) == before

    deleted = create_run(app, "migrate --to 4.2")
    deleted.write("failed", why="it was killed")
    messages = kstate("clean", app, "-o", "json", status=7)
    assert [run.name for run in read_runs(app)] == [stays.name]
    assert f"kstate deleted these runs before it failed: {deleted.name}" in messages.err
    assert [line["code"] for line in map(json.loads, messages.out.splitlines()) if line["type"] == "error"] == [
        "run-halfway"
    ]


def test_a_copy_of_a_run_is_refused(app: Path) -> None:
    migrate(app)
    (run,) = read_runs(app)
    subprocess.run(["cp", "-a", run.path, run.path.with_name("0002-migrate")], check=True)
    before = tree_hash(app.parent)
    for command in ("undo", "clean"):
        assert "is a copy of run 0001-migrate" in kstate(command, app, status=4).err
    assert tree_hash(app.parent) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_applications_of_two_owners_share_a_state_directory(app: Path) -> None:
    """And root with a narrow umask leaves nothing that the owner cannot go on with."""
    other = app.parent / "other"
    subprocess.run(["cp", "-a", app, other], check=True)
    os.chmod(app.parent, 0o1777)
    for folder in (app.parent, *app.parent.parents):
        if folder.stat().st_uid == 0 and not folder.stat().st_mode & 1 and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o111)
    subprocess.run(["chown", "-R", "1001:1001", app], check=True)
    subprocess.run(["chown", "-R", "1002:1002", other], check=True)
    before = os.umask(0o077)
    try:
        migrate(app)
    finally:
        os.umask(before)
    assert (app.parent / ".kstate").stat().st_mode & 0o1777 == 0o1777
    (run,) = read_runs(app)
    for path in (run.path, *run.path.iterdir(), app):
        assert path.stat().st_uid == 1001, path
        assert path.is_dir() or path.stat().st_mode & 0o444 == 0o444, path
    migrate(other)
    assert (app.parent / ".kstate" / "other").stat().st_uid == 1002


def test_lost_application_is_recovered_by_mv_after_an_undo(app: Path) -> None:
    """Undo looks at what is kept only: it would say that there is nothing to undo."""
    migrate(app)
    (run,) = read_runs(app)
    new = content(app)
    kstate("undo", app)
    shutil.rmtree(app)
    line = shell("mv", run.tree, app)
    messages = kstate("clean", app, status=4).err
    assert f"{line}\n" in messages
    assert "kstate undo" not in messages
    subprocess.run(line, shell=True, check=True)
    assert content(app) == new
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()


def test_backup_is_preferred_to_the_tree_of_an_undone_run(app: Path) -> None:
    migrate(app)
    migrate(app, "4.3")
    kstate("undo", app)
    shutil.rmtree(app)
    assert f"kstate undo {app}\n" in kstate("clean", app, status=4).err
    assert "undid run" in kstate("undo", app).err


def test_a_run_that_is_too_young_stays(app: Path) -> None:
    migrate(app)
    messages = kstate("clean", app, "--older-than", "1h").err
    assert re.search(r"kstate keeps run 0001-migrate: it ended at .* UTC, less than 1 h 00 min ago\n", messages)
    assert "nothing to clean" in messages
    assert read_runs(app)[0].tree.is_dir()
    kstate("clean", app, "--older-than", "0s")
    assert not (app.parent / ".kstate").exists()


def test_a_run_that_is_named_is_deleted_however_young(app: Path) -> None:
    migrate(app)
    kstate("clean", app, "--run", "0001-migrate", "--older-than", "7d")
    assert not (app.parent / ".kstate").exists()


def test_a_run_that_ends_in_the_future_stays_with_a_command_that_deletes_it(app: Path) -> None:
    """The clock of the host was set back since: ``status`` offers to clean a run that clean alone does not delete."""
    migrate(app)
    ended = run_at(datetime(2020, 1, 1, tzinfo=timezone.utc), "clean", str(app))
    match = re.search(r"in the future according to this host's clock. To delete it now: kstate (.*)\n", ended.err)
    assert match and "kstate keeps run 0001-migrate" in ended.err and "nothing to clean" in ended.err
    assert run_at(datetime(2020, 1, 1, tzinfo=timezone.utc), *shlex.split(match[1])).status == 0
    assert not (app.parent / ".kstate").exists()


def test_clean_names_every_run_that_stays(app: Path) -> None:
    migrate(app)
    migrate(app, "4.3")
    runs = read_runs(app)
    for run in runs:
        (run.path / "notes").write_text("mine")
    messages = kstate("clean", app, status=4).err
    assert [run.name for run in runs if f"the folder of run {run.name} contains notes," in messages] == [
        run.name for run in runs
    ]


@pytest.mark.sample(2)
@pytest.mark.parametrize("memory", ["tree/0_0/rocksdb/kv-timestamped/CURRENT", "journal.jsonl"])
@pytest.mark.parametrize("state", ["staged", "kept"])
def test_complete_tree_alone_is_reported_as_unchanged(tmp_path: Path, state: str, memory: str) -> None:
    app = make(next(entry for entry in STATES if entry.state == state), tmp_path)
    (run,) = read_runs(app)
    before = len(content(run.path))
    immutable(run.path / memory, on=True)
    try:
        failed = kstate("clean", app, "--run", run.name, status=None)
        assert failed.status in (6, 7)
        assert ("the run is unchanged" in failed.err) == (len(content(run.path)) == before), failed.err
    finally:
        for path in run.path.glob("*.jsonl"):
            immutable(path, on=False)
        if (run.path / memory).exists():
            immutable(run.path / memory, on=False)
    kstate("clean", app, "--run", run.name)
    assert not (app.parent / ".kstate").exists()

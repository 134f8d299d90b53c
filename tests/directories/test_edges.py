"""Where a change, its undo and its clean meet a file system, a copy or a hand that the usual course does not."""

from __future__ import annotations

import ast
import contextlib
import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kstate_cli.change import engine
from kstate_cli.change.commits_made import forget_commits, note_commit, unchanged
from kstate_cli.change.edit import EditJob, edit
from kstate_cli.change.folder import create_run, read_runs
from kstate_cli.change.journal import RunState
from kstate_cli.change.marks import STAGED, UNDOING, put_mark
from kstate_cli.offsets.ages import Age, add_ages
from kstate_cli.restore.running.restoration import interrupted_hint
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.texts import shell
from tests import syntax
from tests.command_result import CommandResult
from tests.faults import tiny_dump
from tests.faults.cases import DOWN as SEVERAL_STORES
from tests.faults.cases import UP, fresh
from tests.golden import unpack
from tests.journals.states import DOWN, MIGRATE, STATES, Origin, content, make
from tests.mounts import mounted

from .support import kstate, kstate_here, tree_hash

pytestmark = pytest.mark.rotating(6)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A small application directory of 4.3.1."""
    return fresh(DOWN, tmp_path / "w" / "state")


def migrate(app: Path, **options: int) -> CommandResult:
    return kstate("migrate", app, *MIGRATE[1:], **options)


def interrupt_run(state: str, folder: Path) -> Path:
    """A directory with a run in this state."""
    return make(next(entry for entry in STATES if entry.state == state), folder)


# --- copies ---------------------------------------------------------------------------------------------------------


def copy_application(app: Path, folder: Path, way: str) -> Path:
    folder.mkdir()
    if way == "tar":
        archive = folder / "state.tar"
        subprocess.run(["tar", "--format=gnu", "-cf", archive, "-C", app.parent.parent, "state"], check=True)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    else:
        subprocess.run(["cp", "-r", app.parent, folder / "state"], check=True)
    return folder / "state" / app.name


@pytest.mark.parametrize("way", ["tar", "cp -r"])
def test_a_copy_without_times_can_be_undone(app: Path, tmp_path: Path, way: str) -> None:
    before = content(app)
    migrate(app)
    copy = copy_application(app, tmp_path / "copy", way)
    state = tree_hash(copy.parent)
    refusal = kstate("undo", copy, status=4)
    assert "the same name and size, but a different time" in refusal.err
    assert f"kstate undo {copy} --times-lost\n" in refusal.err
    assert "kstate clean" not in refusal.err
    assert tree_hash(copy.parent) == state
    kstate("undo", copy, "--times-lost")
    assert content(copy) == before, "the times are those of before"


def test_a_copy_without_times_that_is_damaged_is_refused(app: Path, tmp_path: Path) -> None:
    migrate(app)
    copy = copy_application(app, tmp_path / "copy", "cp -r")
    (run,) = read_runs(copy)
    sst = min(run.tree.rglob("*.sst"))
    data = bytearray(sst.read_bytes())
    data[3] ^= 1
    sst.write_bytes(data)
    state = tree_hash(copy.parent)
    assert "cannot restore the backup" in kstate("undo", copy, "--times-lost", status=4).err
    assert tree_hash(copy.parent) == state


@pytest.mark.parametrize("way", [(), ("--times-lost",)], ids=["as it was", "without times"])
def test_undo_refuses_a_backup_with_a_changed_bit(tmp_path: Path, way: tuple[str, ...]) -> None:
    """One bit of every file, its size and its time as they were: a number in .checkpoint has no checksum but kstate's."""
    app = fresh(UP, tmp_path / "w" / "state")
    (app / "kafka-streams-process-metadata").write_text('{"processId":"x","version":1}')
    kstate("migrate", app, *UP.migrate[1:])
    if way:
        app = copy_application(app, tmp_path / "copy", "cp -r")
    (run,) = read_runs(app)
    files = [path for path in sorted(run.tree.rglob("*")) if path.is_file() and path.stat().st_size]
    # Blocks of an SST are read, by their checksums, where times are lost.
    files = [path for path in files if not path.name.startswith("LOG") and (way or path.suffix != ".sst")]
    assert {".checkpoint", "CURRENT", "IDENTITY"} <= {path.name for path in files}
    for path in files:
        data, stat = path.read_bytes(), path.stat()
        path.write_bytes(
            data[:-1] + bytes([data[-1] ^ 1]) if path.suffix != ".sst" else bytes([data[0] ^ 1]) + data[1:]
        )
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        messages = kstate("undo", app, *way, status=4).err
        assert path.name in messages, messages
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    kstate("undo", app, *way)


def test_missing_files_are_named_before_files_with_another_time(app: Path, tmp_path: Path) -> None:
    migrate(app)
    copy = copy_application(app, tmp_path / "copy", "cp -r")
    (run,) = read_runs(copy)
    min(run.tree.rglob("*.sst")).rename(run.tree / "elsewhere")
    messages = kstate("undo", copy, "--times-lost", status=4).err
    assert "elsewhere" in messages and ".sst" in messages and "IDENTITY" not in messages


def test_other_sizes_are_no_lost_times(app: Path, tmp_path: Path) -> None:
    migrate(app)
    copy = copy_application(app, tmp_path / "copy", "cp -r")
    (run,) = read_runs(copy)
    (min(run.tree.rglob("CURRENT")).parent / "IDENTITY").write_bytes(b"x")
    messages = kstate("undo", copy, "--times-lost", status=4).err
    assert "has changed: " in messages
    assert "--times-lost" not in messages


def test_an_application_that_has_run_since_has_lost_no_times(app: Path) -> None:
    migrate(app)
    current = min(app.rglob("CURRENT"))
    manifest = current.parent / current.read_text().strip()
    manifest.rename(manifest.with_name("MANIFEST-000099"))
    current.write_text("MANIFEST-000099\n")
    assert "has changed since" in kstate("undo", app, "--times-lost", status=4).err


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "arguments", [(), ("--times-lost",), ("--discard-newer",), ("--lock-is-shared",)], ids=" ".join
)
def test_each_printed_undo_repeats_the_earlier_options(app: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Where several things are wrong: who pastes what is printed comes to the end, and is not sent round in circles."""
    before = content(app)
    migrate(app)
    copy = copy_application(app, tmp_path / "copy", "cp -r")
    (min(copy.rglob("CURRENT")).parent / "LOG.old.1").write_text("another name")
    requests = {*arguments}
    while (result := kstate("undo", copy, *sorted(requests), status=None)).status:
        printed = [shlex.split(line)[3:] for line in re.findall(r"kstate undo .*", result.err)]
        assert printed and all(requests < {*flags} for flags in printed), result.err
        requests = {*printed[-1]}
    assert content(copy) == before


@pytest.mark.parametrize("there", [True, False], ids=["there", "lost"])
def test_the_runs_of_another_application_are_refused(app: Path, there: bool) -> None:
    migrate(app)
    other = app.parent / "app2"
    if there:
        subprocess.run(["cp", "-a", app, other], check=True)
    own = app.parent / ".kstate"
    subprocess.run(["cp", "-a", own / app.name, own / other.name], check=True)
    before = tree_hash(app.parent)
    commands: list[tuple[str, ...]] = [("undo",), ("undo", "--discard-newer"), ("clean",)]
    for command in [*commands, *([("migrate", "--to", "4.3")] if there else [])]:
        messages = kstate(command[0], other, *command[1:], status=4).err
        assert f"its journal belongs to application {app.name} instead of app2" in messages
    (row,) = kstate("status", other, "-o", "json").rows
    assert (row["state"], app.name in row["message"]) == ("damaged", True)
    assert tree_hash(app.parent) == before
    kstate("undo", app)


# --- marks, and a directory that is lost ------------------------------------------------------------------------------


@pytest.mark.parametrize("also", [False, True], ids=["in APP", "in both"])
def test_a_mark_of_undoing_that_nothing_proves_is_refused(app: Path, also: bool) -> None:
    migrate(app)
    (run,) = read_runs(app)
    assert run.token is not None
    put_mark(app, UNDOING, run.token)
    if also:
        put_mark(run.tree, UNDOING, run.token)
        put_mark(app, STAGED, run.token)
    before = tree_hash(app.parent)
    for command in (("undo",), MIGRATE):
        messages = kstate(command[0], app, *command[1:], status=4).err
        assert "there is no other sign of it" in messages
        assert str(app / UNDOING) in messages
    assert tree_hash(app.parent) == before
    (app / UNDOING).unlink()
    assert "undid run" in kstate("undo", app).err


def test_an_undo_whose_journal_has_lost_a_line_is_proved_by_the_trees(tmp_path: Path) -> None:
    app = interrupt_run("after-undo", tmp_path)
    (run,) = read_runs(app)
    assert run.events[-1]["event"] == "undoing"
    journal = run.path / "journal.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    before = content(app)
    assert "has completed this" in kstate("undo", app).err
    assert content(app) == before
    assert [run.state.value for run in read_runs(app) if run.state] == ["undone"]


@pytest.mark.parametrize("undone", [False, True], ids=["kept", "undone"])
def test_clean_leaves_the_copy_of_a_directory_that_somebody_has_emptied(app: Path, undone: bool) -> None:
    """After ``rm -rf APP/*`` the nightly ``clean`` would delete the only copy; whoever names the run wants it."""
    migrate(app)
    if undone:
        kstate("undo", app)
    for entry in app.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
    before = tree_hash(app.parent)
    messages = kstate("clean", app).err
    assert f"{app} no longer contains any tasks" in messages
    assert f"kstate clean {app} --run 0001-migrate" in messages
    # Nobody who only looks is told that all is well.
    reads = kstate("ls", app, "-o", "json", status=1)
    assert [row["code"] for row in reads.rows] == ["only-kept"]
    assert f"run 0001-migrate: {app} no longer contains any tasks" in reads.err
    assert f"run 0001-migrate: {app} no longer contains any tasks" in kstate("verify", app, status=1).err
    checked = kstate("check", app, "--for", "4.3", "-o", "json", status=3)
    assert [row["code"] for row in checked.rows if row["type"] == "finding"] == ["only-kept"]
    # What one run only has put aside is found, and moved, by hand. All commands say the same of it.
    (finding,) = (row["message"] for row in checked.rows if row["type"] == "finding")
    status = kstate("status", app).out
    for message in (messages, reads.err, finding, status):
        assert (f"kstate undo {app} --discard-newer" in message) is not undone
        assert f"kstate clean {app} --run 0001-migrate" in message
    assert f"kstate clean {app}\n" not in status and f"kstate undo {app}\n" not in status
    assert {path: element for path, element in tree_hash(app.parent).items() if "tree" in path} == {
        path: element for path, element in before.items() if "tree" in path
    }
    if undone:
        kstate("clean", app, "--run", "0001-migrate")
        assert not (app.parent / ".kstate").exists()
    else:
        kstate("undo", app, "--discard-newer")
        assert holds_tasks(app)


@pytest.mark.parametrize("undone", [False, True], ids=["kept", "undone"])
def test_status_and_clean_agree_about_a_lost_directory(app: Path, undone: bool) -> None:
    migrate(app)
    if undone:
        kstate("undo", app)
    shutil.rmtree(app)
    refusal, status = kstate("clean", app, status=4).err, kstate("status", app).out
    back = f"mv {app.parent}/.kstate/{app.name}/0001-migrate/tree {app}" if undone else f"kstate undo {app}"
    for messages in (refusal, status):
        assert f"{app} is missing, and run 0001-migrate has the only copy of " in messages
        assert f"    {back}\n" in messages
    assert f"kstate clean {app}" not in status


def only_global(app: Path) -> None:
    for task in app.glob("[0-9]*"):
        shutil.rmtree(task)


def no_sst(app: Path) -> None:
    for file in [*app.rglob("*.sst"), *app.rglob("*.log")]:
        file.unlink()


@pytest.mark.parametrize("loss", [only_global, no_sst])
def test_clean_keeps_the_backup_of_a_nearly_lost_directory(tmp_path: Path, loss: Callable[[Path], None]) -> None:
    app = unpack("4.3.1-demo-eos", tmp_path / "state")
    migrate(app)
    loss(app)
    messages = kstate("clean", app).err
    (run,) = read_runs(app)
    assert f"kstate keeps run {run.name}: {app} no longer contains any " in messages
    assert f"kstate undo {app} --discard-newer" in messages
    kstate("undo", app, "--discard-newer")
    assert len(list(app.glob("[0-9]*"))) == 2
    kstate("clean", app)
    assert read_runs(app) == [], "a directory that is whole needs no copy"


def test_an_emptied_directory_is_not_migrated_back(app: Path) -> None:
    """It is where every release wants it: the only way is the one that brings something back."""
    migrate(app)
    shutil.rmtree(app / "0_0")
    messages = kstate("undo", app, status=4).err
    assert "kstate migrate" not in messages
    assert f"kstate undo {app} --discard-newer" in messages


def test_hint_never_moves_a_folder_without_list_permission(app: Path) -> None:
    """Copied by root, or the wrong user: a task as any other."""
    (app / "0_0").chmod(0)
    try:
        for command in (("migrate", "--to", "4.2", "--dry-run"), ("wipe", "--store", "kv-timestamped", "--dry-run")):
            result = without_privileges(command[0], app, *command[1:])
            assert result.status == 4
            assert "0_0: kstate cannot list the directory: Permission denied" in result.err
            assert "leave the stores unchanged" in result.err
            assert "move" not in result.err.replace(str(app), "")
    finally:
        (app / "0_0").chmod(0o755)


def test_more_workers_than_steps_need_no_more_room(app: Path) -> None:
    kstate("migrate", app, *MIGRATE[1:3], "--dry-run", "--workers", "99999999")


def test_no_code_comes_from_the_working_directory(app: Path, tmp_path: Path) -> None:
    """Whoever may write there, in /tmp for one, would have it run as the user of kstate, in its worker processes."""
    here = tmp_path / "here"
    (here / "kstate_cli").mkdir(parents=True)
    for name in ("pickle.py", "json.py", "kstate_cli/__init__.py"):
        (here / name).write_text(f"open({str(here / 'ran')!r}, 'w').close()\n")
    kstate_script = Path(sys.executable).with_name("kstate")
    result = subprocess.run([kstate_script, "verify", app], cwd=here, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not (here / "ran").exists()


def test_a_directory_that_was_lost_after_an_interrupted_switch_is_put_back(tmp_path: Path) -> None:
    app = interrupt_run("after-switch", tmp_path)
    (run,) = read_runs(app)
    old = content(run.tree)
    shutil.rmtree(app)
    assert "which was missing" in kstate("undo", app).err
    assert content(app) == old
    kstate("clean", app)
    assert not (app.parent / ".kstate").exists()


def test_a_directory_that_was_lost_before_an_interrupted_switch_can_be_taken_from_the_run(tmp_path: Path) -> None:
    app = interrupt_run("before-switch", tmp_path)
    (run,) = read_runs(app)
    new = content(run.tree)
    shutil.rmtree(app)
    before = tree_hash(app.parent)
    for command in ("undo", "clean"):
        messages = kstate(command, app, status=4 if command == "undo" else 0).err
        assert tree_hash(app.parent) == before
        if command == "undo":
            line = shell("mv", run.tree, app)
            assert f"{line}\n" in messages
    subprocess.run(line, shell=True, check=True)
    assert "has completed this" in kstate("migrate", app, *MIGRATE[1:-3]).err
    assert content(app) == new
    kstate("clean", app)
    assert not (app / STAGED).exists()


def dump_of(app: Path, folder: Path) -> tuple[str, ...]:
    """A small dump, and a specification that says it is of this application: the options of restore."""
    dump = tiny_dump.make(folder, (tiny_dump.KV,))
    spec = folder / "kstate.toml"
    spec.write_text(spec.read_text().replace(f'application = "{tiny_dump.APP}"', f'application = "{app.name}"'))
    return (*dump.options, "--for", "4.3", "--quiet", "--workers", "1", "--engine", "local", "--warnings-ok")


def empty(app: Path) -> None:
    shutil.rmtree(app)
    app.mkdir()


@pytest.mark.sample(2)
@pytest.mark.parametrize("loss", [shutil.rmtree, empty], ids=["lost", "emptied"])
@pytest.mark.parametrize("state", ["staged", "before-switch"])
def test_no_command_deletes_the_last_links_to_lost_files(
    tmp_path: Path, state: str, loss: Callable[[Path], None]
) -> None:
    app = interrupt_run(state, tmp_path)
    (run,) = read_runs(app)
    loss(app)
    before = content(run.tree)
    commands: list[tuple[str, ...]] = [("restore", *dump_of(app, tmp_path / "dump")), ("undo",)]
    if state == "staged":
        commands += [("clean", "--run", run.name)]
    for command in commands:
        messages = kstate(command[0], app, *command[1:], status=4).err
        assert str(run.tree) in messages, messages
        assert content(run.tree) == before, command
        assert app.exists() == (loss is empty), command


@pytest.mark.sample(2)
@pytest.mark.parametrize("cut", ["before-switch", "staged"])
@pytest.mark.parametrize("again", ["there", "lost"])
def test_interrupted_restoration_of_a_lost_directory_is_swept_and_repeated(
    tmp_path: Path, cut: str, again: str
) -> None:
    """Its tree was made from the dump: nothing of it is anybody's only copy."""
    app = tmp_path / "state" / "orders"
    app.parent.mkdir()
    restore = ("restore", *dump_of(app, tmp_path / "dump"))
    make(Origin(cut, (), restore, next(state.cut for state in STATES if state.state == cut)), tmp_path, app)
    (run,) = read_runs(app)
    assert content(run.tree)
    if again == "lost":
        shutil.rmtree(app)
    if (cut, again) == ("before-switch", "lost"):
        # What is whole may as well be taken.
        assert shell("mv", run.tree, app) in kstate(restore[0], app, *restore[1:], status=4).err
        return
    kstate(restore[0], app, *restore[1:], "--after-error")
    assert not run.tree.exists()
    assert list(app.rglob("CURRENT"))


def test_an_undo_that_is_announced_on_disk_alone_is_cancelled_by_the_proof_of_its_tree(tmp_path: Path) -> None:
    """Neither the line nor its removal was durable, so the undo that failed took its mark away again."""
    app = interrupt_run("before-undo", tmp_path)
    (run,) = read_runs(app)
    old = content(run.tree)
    (run.tree / UNDOING).unlink()
    assert "undid run" in kstate("undo", app).err
    assert content(app) == old


def test_an_undo_without_marks_and_without_proof_is_refused(tmp_path: Path) -> None:
    app = interrupt_run("before-undo", tmp_path)
    (run,) = read_runs(app)
    (run.tree / UNDOING).unlink()
    min(run.tree.rglob("*.sst")).unlink()
    before = tree_hash(app.parent)
    assert "no mark shows whether the swap happened" in kstate("undo", app, status=4).err
    assert tree_hash(app.parent) == before


# --- who looks, and when ----------------------------------------------------------------------------------------------


def test_clean_does_not_call_a_run_that_goes_on_interrupted(app: Path) -> None:
    run = create_run(app, "migrate --to 4.2")
    with open(app / ".lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is in use" in kstate("clean", app, status=5).err
        assert "is in progress or was interrupted" in kstate("clean", app, "--dry-run").err
    assert f"kstate keeps run {run.name}: the run was interrupted" in kstate("clean", app).err


def test_clean_names_the_command_that_settles_a_switch(tmp_path: Path) -> None:
    """Whoever wants to keep what a run has made must not be sent to undo."""
    app = interrupt_run("after-switch", tmp_path)
    messages = kstate("clean", app).err
    assert "while it was swapping the directories. The next command that changes the directory completes or" in messages
    assert f"To complete and undo it now, run kstate undo {app}" in messages
    new = content(app)
    assert (
        "interrupted after it swapped the directories. kstate has completed this run"
        in kstate("migrate", app, "--to", "4.2").err
    )
    assert content(app) == new


def test_clean_names_the_command_that_finishes_an_undo(tmp_path: Path) -> None:
    app = interrupt_run("after-undo", tmp_path)
    assert f"during its undo. To complete the undo, run kstate undo {app}" in kstate("clean", app).err
    assert "has completed this" in kstate("undo", app).err


@pytest.mark.parametrize(
    "command", [("clean",), ("wipe", "--store", "kv-timestamped", "--purge", "--yes")], ids=lambda words: words[0]
)
def test_signal_during_a_deletion_reports_the_partial_deletion(
    app: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """A new journal name says that no undo is left; so must the command that has given it, and how it goes on."""
    if command[0] == "clean":
        migrate(app)
    unlink = os.unlink

    def and_a_signal(path: str, **more: int) -> None:
        unlink(path, **more)
        signal.raise_signal(signal.SIGTERM)

    over = threading.Event()
    # Another test may have left a thread: this process must not end by the signal then.
    threading.Thread(target=over.wait, daemon=True).start()
    with monkeypatch.context() as patch:
        patch.setattr("kstate_cli.change.removal.os", SimpleNamespace(**{**vars(os), "unlink": and_a_signal}))
        ended = kstate_here(command[0], app, *command[1:], status=128 + signal.SIGTERM)
    over.set()
    (run,) = read_runs(app)
    assert run.state is RunState.CLEANING
    assert (
        f"run {run.name} is partially deleted. You can no longer undo this run. To continue the deletion, run "
        in ended.err
    )
    go_on = re.findall(r"To continue the deletion, run kstate (.*)", ended.err)[0]
    kstate(*shlex.split(go_on))
    assert not (app.parent / ".kstate").exists()


def test_clean_makes_no_lock_for_nothing(app: Path) -> None:
    migrate(app)
    (app / ".lock").unlink()
    assert "nothing to clean" in kstate("clean", app, "--older-than", "7d").err
    assert not (app / ".lock").exists()


def without_privileges(*command: object) -> CommandResult:
    """kstate for which the permissions of files count, even where root runs the tests."""
    line = [sys.executable, "-m", "kstate_cli", *map(str, command)]
    if os.geteuid() == 0:
        line = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *line]
    result = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in result.stderr, result.stderr
    return CommandResult(result.returncode, result.stdout, result.stderr)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "name",
    ["ages.json", "0001-migrate/journal.jsonl", "0001-migrate/kept.json", "0001-migrate/tree", "0001-migrate", "."],
)
def test_missing_read_permission_is_never_reported_as_damage(app: Path, name: str) -> None:
    """Not as damaged: nobody is told to move away what another user can read."""
    migrate(app)
    add_ages(app, [Age("0_0/s", {}, 1_700_000_000_000)])
    path = app.parent / ".kstate" / app.name / name
    if name.endswith("kept.json"):
        os.utime(next(read_runs(app)[0].tree.rglob("IDENTITY")), (1, 1))
    before = tree_hash(app.parent)
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        for command in (("undo",), ("check", "--for", "4.3"), ("status",)):
            of_ages = name == "ages.json"
            if (command[0] == "check") != of_ages or (command[0] == "status" and "/" in name[5:]):
                continue
            result = without_privileges(command[0], app, *command[1:])
            assert result.status == 4, (command, result.err)
            assert "Permission denied" in result.err
            assert f"{path} belongs to " in result.err and " with mode 0000, which denies " in result.err
            assert "to its owner (this user). Run chmod u+" in result.err
            assert "run as" not in result.err, "said to that very user"
            assert "move" not in result.err
    finally:
        path.chmod(mode & 0o7777)
    assert tree_hash(app.parent).keys() == before.keys()


def test_failed_command_reports_the_interrupted_run_that_was_settled(tmp_path: Path) -> None:
    app = interrupt_run("staged", tmp_path)
    failed = kstate("wipe", app, "--store", "no-such-store", status=None)
    assert failed.status in (2, 4), failed.err
    assert "run 0001-migrate was interrupted before it swapped the directories" in failed.err


# --- one owner --------------------------------------------------------------------------------------------------------


def _docstrings(tree: ast.Module) -> set[int]:
    return {id(node.value) for node in syntax.nodes(tree) if isinstance(node, ast.Expr)}


def test_a_single_module_states_that_nothing_has_changed() -> None:
    """What fails or is interrupted after the exchange does not know of it."""
    messages = {
        name
        for name, tree in syntax.modules()
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and "nothing has changed" in node.value.lower()
        and id(node) not in _docstrings(tree)
    }
    assert messages == {"change/commits_made.py"}


def _users(name: str) -> set[str]:
    """The modules that call or hand on a function, but for the one that defines it."""
    return {
        module
        for module, tree in syntax.modules()
        if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)
        for node in syntax.nodes(tree)
        if (isinstance(node, ast.Name) and node.id == name) or (isinstance(node, ast.Attribute) and node.attr == name)
    }


def test_a_single_module_exchanges_directories() -> None:
    assert _users("exchange") == {"change/commit.py"}
    assert _users("note_commit") == {"change/commit.py", "change/course.py"}, "--purge notes that no backup was kept"


def test_clean_and_purge_alone_delete_backups() -> None:
    assert _users("remove_run") == {"change/clean.py", "change/course.py"}
    assert _users("remove_tree") == set(), "it deletes any tree: what calls it proves first whose"


def test_after_the_exchange_nobody_says_that_nothing_has_changed() -> None:
    try:
        assert str(interrupted_hint("kstate keeps 3 files")).startswith("nothing has changed; kstate keeps 3 files; ")
        note_commit("0001-restore")
        assert interrupted_hint() is None
        assert unchanged("x") is None
    finally:
        forget_commits()


@pytest.mark.parametrize("ending", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_nothing_is_swept_while_somebody_still_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: BaseException
) -> None:
    """One database fails, or a signal comes, while another is being written: it is waited for, then all of it is swept."""
    app = fresh(SEVERAL_STORES, tmp_path / "w" / "state")
    before, order, start = content(app), iter(range(100)), threading.Event()
    paths: list[Path] = []

    def edit_or_fail(job: EditJob) -> object:
        if next(order) == 0:
            assert start.wait(300)
            if isinstance(ending, OSError):
                raise ending
            os.kill(os.getpid(), signal.SIGINT)
        start.set()
        time.sleep(0.5)
        result = edit(job)
        paths.append(job.staged / job.step.path)
        return result

    monkeypatch.setattr(engine, "edit", edit_or_fail)
    code = 6 if isinstance(ending, OSError) else 130
    messages = kstate_here("migrate", app, "--to", "4.2", "--workers", "2", status=code).err
    assert paths, "somebody wrote when it was over"
    assert "still" not in messages
    assert content(app) == before
    assert not any(run.tree.exists() for run in read_runs(app))


# --- file systems -----------------------------------------------------------------------------------------------------


def test_a_read_only_file_system_is_refused_as_that(app: Path, tmp_path: Path) -> None:
    migrate(app)
    with mounted(tmp_path / "mount", "-t", "tmpfs", "kstate-test") as folder:
        copy = Path(shutil.copytree(app.parent, folder / "state", symlinks=True)) / app.name
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        for command in (("undo",), ("clean",), ("migrate", "--to", "4.3"), ("wipe", "--all")):
            messages = kstate(command[0], copy, *command[1:], status=4).err
            assert "mounted read-only" in messages, command
            assert "application's user" not in messages


@pytest.mark.parametrize("place", ["APP", "a task", ".kstate"])
def test_a_subvolume_is_refused_before_there_is_a_run(app: Path, tmp_path: Path, place: str) -> None:
    """No table of mounts has it, and nothing is exchanged or linked across its border."""
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("btrfs-progs are not installed")
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(128 << 20)
    subprocess.run(["mkfs.btrfs", "-q", image], check=True, capture_output=True)
    with mounted(tmp_path / "mount", "-o", "loop", str(image)) as folder:
        state = folder / "state"
        copy = state / app.name
        state.mkdir()
        where = {"APP": copy, "a task": copy / "0_0", ".kstate": state / ".kstate"}[place]
        where.parent.mkdir(exist_ok=True)
        subprocess.run(["btrfs", "subvolume", "create", where], check=True, capture_output=True)
        subprocess.run(["cp", "-a", "-T", app, copy], check=True)
        before = content(copy)
        messages = migrate(copy, status=4).err
        assert f"{where} is a separate file system" in messages
        assert content(copy) == before
        assert [path.name for path in state.rglob("*-migrate")] == []
        # Whatever is there already can be deleted: that exchanges nothing.
        run = create_run(copy, "migrate --to 4.2")
        kstate("clean", copy, "--run", run.name)
        assert not run.path.exists()


def bound(path: Path) -> contextlib.AbstractContextManager[Path]:
    """A mount of the same file system: its device tells nothing, and yet nothing is renamed across it."""
    path.mkdir(exist_ok=True)
    return mounted(path, "--bind", str(path))


@pytest.mark.sample(3)
@pytest.mark.parametrize("where", ["APP", "inside", ".kstate", ".kstate/app", "tree"])
def test_a_mount_in_the_way_is_named_before_anything_is_done(app: Path, where: str) -> None:
    """What is exchanged is refused; what is only deleted stays possible where the mount hides nothing of it."""
    migrate(app)
    (run,) = read_runs(app)
    own = app.parent / ".kstate"
    point = {"APP": app, "inside": app / "0_0", ".kstate": own, ".kstate/app": own / app.name, "tree": run.tree / "0_0"}
    before = content(app), content(run.tree)
    with bound(point[where]):
        for command in (("undo",), ("migrate", "--to", "4.3")):
            messages = kstate(command[0], app, *command[1:], status=4).err
            assert f"{point[where]} is a mount point" in messages, command
        if where == "tree":
            assert f"{point[where]} is a mount point" in kstate("clean", app, status=4).err
        assert (content(app), content(run.tree)) == before
        if where in ("APP", "inside"):
            kstate("clean", app)
            assert content(app) == before[0]
            assert read_runs(app) == []
    if where not in ("APP", "inside"):
        kstate("undo", app)
        assert content(app) == before[1]

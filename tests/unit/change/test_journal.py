"""The journal of a run: what was not announced cannot be read, and what a crash has left is understood."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kstate_cli.change import journal, nofollow
from kstate_cli.change.commit import RecoveryOutcome, recover
from kstate_cli.change.engine import _failed
from kstate_cli.change.fingerprint import STAGED_LIST
from kstate_cli.change.folder import create_run, forget, read_runs
from kstate_cli.change.journal import JOURNAL, JournalError, Run, RunState, encode_line, read_run
from kstate_cli.change.marks import STAGED, UNDOING, put_mark
from kstate_cli.change.plan import Plan
from kstate_cli.change.removal import remove_run
from kstate_cli.diagnosis import redacted
from kstate_cli.errors import Interrupted, RunFailed
from kstate_cli.host import HostError

OLDER = Path(__file__).resolve().parents[2] / "journals" / "golden" / "journal-1.tar.xz"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "state" / "app"
    path.mkdir(parents=True)
    return path


EVENTS = ("switching", "switched", "undoing", "undone", "cleaning")


def write(run: Run, event: str) -> None:
    details = {"kept": "0" * 64, "made": "0" * 64} if event == "switching" else {}
    run.write(event, **details)


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), Interrupted(15)], ids=["EIO", "signal"])
@pytest.mark.parametrize("failing", EVENTS)
@pytest.mark.parametrize("call", ["fsync", "write"])
def test_failed_announcement_leaves_no_readable_line(
    app: Path, monkeypatch: pytest.MonkeyPatch, failing: str, call: str, error: Exception
) -> None:
    run = create_run(app, "migrate --to 4.2")
    for event in EVENTS[: EVENTS.index(failing)]:
        write(run, event)
    before, state = read_run(run.path), run.state
    real: Callable[..., object] = getattr(os, call)
    calls = []

    def fail(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            if call == "write":
                real(arguments[0], bytes(arguments[1])[:40])  # type: ignore[call-overload]
            raise error
        return real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(type(error)):
            write(run, failing)
    after = read_run(run.path)
    assert (after.state, len(after.events), after.damage) == (state, len(before.events), None)
    write(run, failing)
    assert read_run(run.path).state is run.state is not state


FOLLOWS = {
    RunState.STAGING: {"switching", "failed"},
    RunState.SWITCHING: {"switched", "failed"},
    RunState.KEPT: {"undoing", "undone"},
    RunState.UNDOING: {"undone", "undo-cancelled"},
    RunState.UNDONE: set(),
    RunState.FAILED: set(),
}
"""As docs/internals/engine.md#run-states has them; ``cleaning`` follows everything, and ``created`` nothing."""
WAYS = {
    RunState.STAGING: (),
    RunState.SWITCHING: ("switching",),
    RunState.KEPT: ("switching", "switched"),
    RunState.UNDOING: ("switching", "switched", "undoing"),
    RunState.UNDONE: ("switching", "switched", "undoing", "undone"),
    RunState.FAILED: ("failed",),
}


@pytest.mark.parametrize("state", WAYS, ids=lambda state: state.value)
def test_refuses_a_line_out_of_order(app: Path, state: RunState) -> None:
    for event in sorted({"created", "cleaning", *(event for events in FOLLOWS.values() for event in events)}):
        run = create_run(app, "migrate --to 4.2")
        members = {**run.events[0], "why": "", "kept": "0" * 64, "made": "0" * 64}
        for own in ("event", "at", "n"):
            members.pop(own, None)
        for before in WAYS[state]:
            run.write(before, **members)
        assert run.state is state
        may = event == "cleaning" or event in FOLLOWS[state]
        if may:
            run.write(event, **members)
        else:
            with pytest.raises(JournalError, match=f"the event {event} cannot follow {state.value}"):
                run.write(event, **members)
        # One that somebody has put there, with its number and its checksum, is damage.
        with open(run.path / "journal.jsonl", "ab") as file:
            if not may:
                file.write(encode_line({"event": event, "at": run.settled_at, **members}, len(run.events)))
        assert (read_run(run.path).damage is None) == may, event


def test_a_sweep_that_was_cut_off_after_an_announced_switch_goes_on(app: Path) -> None:
    for remainder in ("nothing", "an empty tree"):
        run = create_run(app, "migrate --to 4.2")
        run.tree.mkdir()
        assert run.token is not None
        put_mark(run.tree, STAGED, run.token)
        write(run, "switching")
        (run.tree / STAGED).unlink()
        if remainder == "nothing":
            run.tree.rmdir()
        assert [run.outcome for run in recover(app, print)] == [RecoveryOutcome.SWEPT]
        assert read_run(run.path).state is RunState.FAILED


@pytest.mark.parametrize(
    "outcome",
    [RecoveryOutcome.SWEPT, RecoveryOutcome.UNDO_CANCELLED, RecoveryOutcome.FINISHED, RecoveryOutcome.UNDO_FINISHED],
)
def test_whatever_settles_a_run_finds_room_on_a_full_disk(
    app: Path, monkeypatch: pytest.MonkeyPatch, outcome: RecoveryOutcome
) -> None:
    run = create_run(app, "migrate --to 4.2")
    assert run.token is not None
    run.tree.mkdir()
    (run.path / STAGED_LIST).write_text("{}")
    finished, undo = (
        outcome is RecoveryOutcome.FINISHED,
        outcome in (RecoveryOutcome.UNDO_CANCELLED, RecoveryOutcome.UNDO_FINISHED),
    )
    for event in EVENTS[: 3 if undo else int(finished)]:
        write(run, event)
    put_mark(
        app if outcome in (RecoveryOutcome.FINISHED, RecoveryOutcome.UNDO_FINISHED) else run.tree,
        UNDOING if undo else STAGED,
        run.token,
    )
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if (run.path / STAGED_LIST).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    assert [run.outcome for run in recover(app, print)] == [outcome]
    assert read_run(run.path).damage is None


def run_of_older_version(tmp_path: Path) -> Run:
    """Without a digest of its tree, so that undo could not tell half of it from the whole."""
    subprocess.run(["tar", "-xJf", OLDER, "-C", tmp_path], check=True)
    (app,) = (path for path in (tmp_path / "state").iterdir() if path.name != ".kstate")
    return read_runs(app)[-1]


@pytest.mark.parametrize("back", [True, False], ids=["is renamed back", "cannot be renamed back"])
def test_an_announcement_that_may_not_be_durable_deletes_nothing_that_undo_could_not_prove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    older = tmp_path / "older"
    older.mkdir()
    run = run_of_older_version(older)
    before = sorted(run.tree.rglob("*"))
    real = nofollow.rename

    def rename(source: Path, target: Path) -> None:
        if target.name == "journal.jsonl" and not back:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(nofollow, "rename", rename)
    monkeypatch.setattr(journal, "sync_directory", full)
    with pytest.raises(OSError, match="No space"):
        remove_run(run)
    assert sorted(run.tree.rglob("*")) == before
    assert (run.state, read_run(run.path).state) == ((RunState.KEPT,) * 2 if back else (RunState.CLEANING,) * 2)


def test_a_signal_does_not_part_the_new_name_of_a_journal_from_the_state(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = create_run(app, "migrate --to 4.2")
    real = nofollow.rename

    def rename(source: Path, target: Path) -> None:
        real(source, target)
        os.kill(os.getpid(), signal.SIGTERM)

    def ended(number: int, _: object) -> None:
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        monkeypatch.setattr(nofollow, "rename", rename)
        with pytest.raises(Interrupted):
            run.give_up()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert run.state is read_run(run.path).state is RunState.CLEANING


def test_a_journal_that_gets_its_other_name_while_it_is_read_is_no_damage(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``status`` beside a ``clean``."""
    run = create_run(app, "migrate --to 4.2")
    run.tree.mkdir()
    real = os.listdir
    cleaning: list[bool] = []

    def listdir(path: Path) -> list[str]:
        names = real(path)
        if not cleaning:
            cleaning.append(True)
            run.give_up()
        return names

    monkeypatch.setattr(os, "listdir", listdir)
    journal = read_run(run.path)
    assert (journal.state, journal.damage) == (RunState.CLEANING, None)


def test_a_run_with_something_foreign_in_its_folder_is_not_forgotten(app: Path) -> None:
    """Without its journal nothing would say what the rest is, and every command would refuse the run."""
    run = create_run(app, "wipe --store s")
    run.write("failed", why="refused")
    (run.path / "notes").write_text("mine")
    forget(app, run)
    (journal,) = read_runs(app)
    assert journal.damage is None
    assert journal.state is RunState.FAILED


@pytest.mark.parametrize("command", ["migrate", "restore-snapshot", "of-a-newer-release"])
def test_a_directory_without_its_journal_is_a_run_of_any_command(app: Path, command: str) -> None:
    """It may be the only backup: `undo` and `clean` must report it."""
    run = create_run(app, command)
    run.tree.mkdir()
    (run.path / JOURNAL).unlink()
    (run.path.parent / "2024-backup").mkdir()
    (damaged,) = read_runs(app)
    assert (damaged.name, damaged.damage) == (f"0001-{command}", "its journal is missing")


def test_an_error_within_a_run_keeps_its_hint_and_its_place(app: Path) -> None:
    error = HostError("no descriptors are left", where="/x", hint="raise ulimit -n", hint_details=["to 4096"])
    failure = _failed(Plan(app, "migrate --to 4.2", "4.3", "4.2", ()), None, error)
    assert isinstance(failure, RunFailed)
    assert failure.where == "/x"
    assert failure.hint_details == ("raise ulimit -n", "to 4096")
    assert "is unchanged" in str(failure.hint)


def test_a_run_that_is_forgotten_keeps_its_journal_to_the_last(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it is cut off, the next command can go on with what is left."""
    names = ["journal.jsonl", "kept.json", "made.json"]
    for number in range(len(names) + 1):
        run = create_run(app, "wipe --store s")
        for name in names[1:]:
            (run.path / name).write_text("{}")
        run.write("failed", why="refused")
        removals: list[str] = []
        real = nofollow.unlink

        def unlink(
            path: Path, missing: list[str] = removals, backup: int = number, real: Callable[[Path], None] = real
        ) -> None:
            if len(missing) == backup:
                raise OSError(errno.EIO, "Input/output error")
            missing.append(path.name)
            real(path)

        with monkeypatch.context() as patched:
            patched.setattr(nofollow, "unlink", unlink)
            forget(app, run)
        assert all(run.damage is None for run in read_runs(app)), removals
        recover(app, print)


@pytest.mark.parametrize(
    "secret",
    [
        "fs.s3a.access.key=AKIA",
        "fs.azure.account.key.me.blob.core.windows.net=AKIA",
        "ssl.keystore.key=-----BEGIN AKIA",
        'sasl.jaas.config=x required username="u" password="a AKIA";',
        "s3://AKIA:se/cret@bucket/path",
        "s3://bucket/path?sig=AKIA",
        "spark.hadoop.fs.s3a.secret.key=AKIA",
    ],
)
def test_no_secret_reaches_the_journal(secret: str) -> None:
    assert "AKIA" not in " ".join(redacted(["--conf", secret]))
    assert "se/cret" not in " ".join(redacted(["--conf", secret]))

"""How a command ends: exit codes of errors, and what is said of them, before and after something was changed."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.change.commits_made import committed, forget_commits, note_commit
from kstate_cli.cli.app import app
from kstate_cli.cli.ending import exit_code_of, report_errors
from kstate_cli.errors import (
    ConditionNotMet,
    Interrupted,
    InUse,
    KstateError,
    OutputLost,
    Refused,
    RunFailed,
    RunHalfway,
    SeveralApplicationsError,
    UsageError,
)
from kstate_cli.rocks.errors import RocksError
from kstate_cli.signals import ENDING

LOST, CLOSED = (
    OutputLost(OSError(errno.ENOSPC, "No space left on device")),
    OutputLost(BrokenPipeError(errno.EPIPE, "gone")),
)


@pytest.fixture(autouse=True)
def _nothing_committed() -> Iterator[None]:
    forget_commits()
    yield
    forget_commits()


ERRORS: list[tuple[BaseException, int, int]] = [
    (UsageError("u"), 2, 2),
    (SeveralApplicationsError(Path("/data"), [Path("/data/a"), Path("/data/b")]), 2, 2),
    (ConditionNotMet("c"), 3, 3),
    (Refused("r"), 4, 4),
    (InUse("i"), 5, 5),
    (RunFailed("f"), 6, 7),
    (RunHalfway("h"), 7, 7),
    (Interrupted(15), 143, 143),
    (LOST, 6, 7),
    (CLOSED, 141, 141),
    (OSError(errno.EIO, "Input/output error", "/data/app"), 6, 7),
    (RocksError("Corruption"), 6, 7),
    (ValueError("a defect"), 6, 7),
    (MemoryError(), 6, 7),
    (RecursionError("deep"), 6, 7),
    (SystemExit(3), 3, 3),
    (SystemExit(), 0, 0),
    (SystemExit("text"), 1, 1),
]


@pytest.mark.parametrize(("error", "before", "after"), ERRORS, ids=lambda error: str(error)[:20])
def test_codes(error: BaseException, before: int, after: int, capsys: pytest.CaptureFixture[str]) -> None:
    """6 means that nothing has changed: it never is the code once something has."""
    assert exit_code_of(error) == before
    report_errors(error)
    assert "was changed" not in capsys.readouterr().err
    note_commit("0007-migrate", Path("/data/my app"))
    assert exit_code_of(error) == after
    report_errors(error)
    messages = capsys.readouterr().err
    if after:
        assert "run 0007-migrate has changed /data/my app" in messages
        assert "kstate undo '/data/my app'" in messages
    forget_commits()
    assert committed() is None


def test_every_error_of_the_tree_is_here() -> None:
    def below(kind: type) -> set[type]:
        return {kind} | {subclass for inner in kind.__subclasses__() for subclass in below(inner)}

    ours = {kind for kind in below(KstateError) if kind.__module__ == "kstate_cli.errors"}
    assert ours - {KstateError} == {type(error) for error, _, _ in ERRORS if isinstance(error, KstateError)}


def test_failure_after_an_undo_reports_the_undo(capsys: pytest.CaptureFixture[str]) -> None:
    note_commit("0007-migrate", Path("/data/app"), undone=True)
    report_errors(LOST)
    messages = capsys.readouterr().err
    assert "run 0007-migrate was undone, and /data/app is the directory from before the run" in messages
    assert "kstate undo" not in messages


def _print_error(error: BaseException, capsys: pytest.CaptureFixture[str]) -> str:
    report_errors(error)
    messages = capsys.readouterr().err
    assert "nothing has changed" not in messages
    return messages.splitlines()[0]


def test_an_error_of_the_system_names_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody knows here what it has changed: so nobody says that nothing was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for call in (lambda: os.listdir("file"), lambda: os.listdir(tmp_path / "file"), lambda: os.listdir(b"file")):
        with pytest.raises(NotADirectoryError) as raised:
            call()
        assert _print_error(raised.value, capsys) == f"kstate: Not a directory {tmp_path}/file"
    with pytest.raises(FileNotFoundError) as missing:
        os.rename(tmp_path / "no", tmp_path / "other")
    assert _print_error(missing.value, capsys) == f"kstate: No such file or directory {tmp_path}/no -> {tmp_path}/other"
    assert _print_error(OSError(errno.EIO, "Input/output error"), capsys) == "kstate: Input/output error"
    assert _print_error(OSError("no number"), capsys) == "kstate: no number"


def test_name_below_a_descriptor_gets_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `shutil.rmtree` has them: a made-up path would send somebody to the wrong file."""
    monkeypatch.chdir(tmp_path)
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileNotFoundError) as raised:
            os.unlink("inner", dir_fd=top)
    finally:
        os.close(top)
    assert _print_error(raised.value, capsys) == "kstate: No such file or directory inner"
    with pytest.raises(FileNotFoundError):
        shutil.rmtree(tmp_path / "none")


def test_a_defect_can_be_looked_at(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The code stays that of a failure: it was 1, as of warnings, and a traceback."""
    assert "kstate has a bug: ValueError: odd" in _print_error(ValueError("odd"), capsys)
    monkeypatch.setenv("KSTATE_DEBUG", "1")
    report_errors(ValueError("odd"))
    assert "Traceback" not in capsys.readouterr().out
    assert exit_code_of(ValueError("odd")) == 6


def test_unexpected_error_names_the_status_command_of_the_directory(capsys: pytest.CaptureFixture[str]) -> None:
    """An error of the system or a defect may come from anywhere; what the command was about is known all the same."""
    for line in (["status", "/nowhere/my app"], ["query", "key", "/nowhere/my app", "count", "a"]):
        with pytest.raises(UsageError):
            app(line, standalone_mode=False, prog_name="kstate")
        for error, messages in (
            (OSError(errno.EIO, "Input/output error", "/dev/sda"), "kstate status '/nowhere/my app'"),
            (ValueError("odd"), "kstate status '/nowhere/my app'"),
            (RocksError("Corruption"), "kstate verify '/nowhere/my app'"),
        ):
            report_errors(error)
            assert capsys.readouterr().err.rstrip().endswith(messages)


ENDS = """
import atexit, os, sys
number = int(sys.argv.pop(1))
atexit.register(lambda: os.kill(os.getpid(), number))
from kstate_cli.cli.app import main
main()
"""


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("arguments", [["--version"], ["no-such-command"]], ids=["done", "failed"])
def test_a_signal_after_the_command_has_ended(number: signal.Signals, arguments: list[str]) -> None:
    """While Python ends there is nobody whom it could be raised to: it ends the process, without a word."""
    process = subprocess.run(
        [sys.executable, "-c", ENDS, str(int(number)), *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == -number
    assert "Traceback" not in process.stderr
    assert "Interrupted" not in process.stderr


def test_message_names_the_signal() -> None:
    messages = [str(Interrupted(number)) for number in (*ENDING, 99)]
    assert messages == [
        "interrupted by SIGINT", "interrupted by SIGTERM", "interrupted by SIGHUP", "interrupted by signal 99"
    ]  # fmt: skip


_WITHOUT_ANYTHING = """
import errno, os, resource, sys
import kstate_cli.cli.app
from click import UsageError as OfClick
from kstate_cli.cli import json_lines
from kstate_cli.cli.ending import exit_code_of, report_errors, print_json_error
from kstate_cli.errors import *
from kstate_cli.rocks.errors import RocksError

class Nothing:
    def find_spec(self, name, path=None, target=None):
        raise AssertionError(f"{name} is imported while an error is reported")

json_lines.begin(["ls", "-o", "json"])
errors = [
    UsageError("u"), ConditionNotMet("c"), Refused("r"), InUse("i"), RunFailed("f"), RunHalfway("h"), Interrupted(15),
    OutputLost(OSError(errno.ENOSPC, "No space left on device")), OSError(errno.EIO, "Input/output error", "/data/app"),
    OSError(errno.EACCES, "Permission denied", "/data/app"), OSError(errno.EMFILE, "Too many open files", "/data/app"),
    OSError(errno.ENOSPC, "No space left on device", "/data/app"), RocksError("Corruption"), MemoryError(),
    RuntimeError("can't start new thread"), ImportError("x.so: failed to map segment from shared object"), ValueError("d"),
    OfClick("no such option"), SystemExit(3),
]
sys.meta_path.insert(0, Nothing())
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for error in errors:
    json_lines._Command.has_failed = False
    code = exit_code_of(error)
    print_json_error(error, code)
    report_errors(error)
print("all of them")
"""


def test_the_end_of_a_command_needs_nothing() -> None:
    """No descriptor and no import: where either is exhausted, a handler that needs it is the second traceback."""
    process = subprocess.run([sys.executable, "-c", _WITHOUT_ANYTHING], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout.endswith("all of them\n")


@pytest.mark.parametrize(
    ("shortage", "hint"),
    [
        (OSError(errno.EMFILE, "Too many open files", "/a/000012.sst"), "limit of open files"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
        (MemoryError(), "memory"),
        (RuntimeError("can't start new thread"), "limit of processes"),
        (ImportError("libarrow.so: failed to map segment from shared object"), "memory"),
    ],
)
def test_shortage_outranks_the_error_that_it_caused(
    shortage: Exception, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a reader has made of it, a shortage of this host is exit code 6 with a hint about the resource."""
    for outcome in (
        None,
        UsageError("/a cannot be read"),
        Refused("no topology"),
        RunFailed("migrate failed", hint="h"),
    ):
        error: Exception = shortage
        if outcome is not None:
            try:
                raise shortage
            except Exception:
                try:
                    raise outcome from None
                except Exception as raised:
                    error = raised
        assert exit_code_of(error) == 6
        report_errors(error)
        messages = capsys.readouterr().err
        assert hint in messages and "defect" not in messages, messages
        assert outcome is None or str(outcome.headline) in messages


def test_workers_are_named_where_the_command_has_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No hint names an option that the command does not have, or repeats one that was given."""
    for workers, is_named in ((None, False), (0, True), (4, True), (1, False)):
        monkeypatch.setattr("kstate_cli.cli.ending.workers", lambda workers=workers: workers)
        report_errors(MemoryError())
        assert ("--workers 1" in capsys.readouterr().err) is is_named

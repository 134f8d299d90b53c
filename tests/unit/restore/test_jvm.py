"""What Spark has started ends, or kstate says that it does not: it never waits for ever."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from kstate_cli.cli.ending import exit_code_of, report_errors
from kstate_cli.errors import Interrupted, Refused, RunFailed
from kstate_cli.spark import context, engine
from kstate_cli.spark.engine import Jvm


def deaf_session() -> subprocess.Popen[bytes]:
    """A process that does not end with its standard input, in a session of its own."""
    return subprocess.Popen(["sleep", "3600"], stdin=subprocess.PIPE, start_new_session=True)


def test_gives_up_a_process_that_cannot_be_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process in the hands of a hung network share takes no signal; here it is the signal that does not leave."""
    process = deaf_session()
    try:
        with (tmp_path / "said").open("wb") as log:
            jvm = Jvm([], log, tmp_path)
            jvm._process = process
            with monkeypatch.context() as deaf:
                deaf.setattr("kstate_cli.spark.engine.os.kill", lambda pid, number: None)
                deaf.setattr(engine, "_KILLED_SECONDS", 0.3)
                began = time.monotonic()
                assert jvm.end(0.1) == (process.pid,)
                assert time.monotonic() - began < 3600  # seconds before the process ends by itself
            assert jvm.end(0.1) == ()
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("support", ["as here", "not in this Python", "not in this system"])
def test_it_ends_with_or_without_the_call_that_hears_it(
    support: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Some builds of Python lack ``os.pidfd_open``."""

    def unknown(*_: object) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    if support == "not in this Python":
        monkeypatch.delattr(os, "pidfd_open")
    elif support == "not in this system":
        monkeypatch.setattr(os, "pidfd_open", unknown)
    process = deaf_session()
    try:
        with (tmp_path / "said").open("wb") as log:
            jvm = Jvm([], log, tmp_path)
            jvm._process = process
            assert jvm.end(0.1) == ()
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_reports_processes_that_may_still_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results that are whole are of no use while somebody may still write beside them; a signal stays a signal."""
    monkeypatch.setattr(context._Spark, "start", lambda self: None)
    monkeypatch.setattr(context._Spark, "stop", lambda self: (4711,))
    with pytest.raises(RunFailed, match="4711"), context.spark_context(context.SparkSettings()):
        pass
    with pytest.raises(KeyboardInterrupt), context.spark_context(context.SparkSettings()):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [Refused("a slice"), Interrupted(signal.SIGTERM), ValueError("a defect")])
def test_reports_processes_that_may_still_write_beside_another_error(
    error: BaseException, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(context._Spark, "start", lambda self: None)
    monkeypatch.setattr(context._Spark, "stop", lambda self: (4711,))
    with pytest.raises(RunFailed) as caught:
        # As the engine does: what failed becomes an error of the run.
        try:
            with context.spark_context(context.SparkSettings()):
                raise error
        except BaseException as inner:
            assert inner is error
            raise RunFailed("the run") from inner
    for error_ in (error, caught.value):
        report_errors(error_)
        messages = capsys.readouterr().err
        assert messages.count("processes that Spark has started have not ended (process 4711) and may still write") == 1
    assert exit_code_of(error) == getattr(error, "exit_code", 6)


def test_a_signal_while_spark_starts_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody waits for the thread in which it starts: what that has begun may not be its to remove."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    question, enough = threading.Event(), threading.Event()

    def gateway(*_: object) -> tuple[int, str]:
        question.set()
        enough.wait(300)
        raise Refused("its JVM has ended")

    def struck(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jvm, "_first_gateway", gateway)
    before = signal.signal(signal.SIGALRM, struck)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with context.spark_context(context.SparkSettings()):
                pass
        assert question.is_set()
        assert list(tmp_path.iterdir()) == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        enough.set()

"""Attempts that die, attempts that are run twice, signals, and a real cluster: the same rows each time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kstate_cli.change.folder import read_runs
from kstate_cli.restore.staging_area import left_in_area

from . import support
from .cluster import Cluster
from .conftest import RECORDS

pytestmark = pytest.mark.rotating(6)


def wait_for(process: subprocess.Popen[str], subject: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        results = subject()
        if results:
            return results
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before it happened: {process.communicate()[1]}")
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def kill_attempts(process: subprocess.Popen[str], app: Path, most: int) -> dict[str, int]:
    """Kills the first ``most`` attempts of every slice as soon as they have begun; returns kills by slice."""
    numbers: set[int] = set()
    killed: dict[str, int] = {}
    while process.poll() is None:
        for note in support.notes(app, ".started"):
            if note["pid"] in numbers or killed.get(note["slice"], 0) >= most:
                continue
            numbers.add(note["pid"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(note["pid"], signal.SIGKILL)
                killed[note["slice"]] = killed.get(note["slice"], 0) + 1
        time.sleep(0.005)
    return killed


@pytest.mark.rotating(3, "killed workers")
@pytest.mark.sample(1)
@pytest.mark.parametrize("kills", [2, 1])
def test_a_worker_that_is_killed(dump: Path, expected: dict[str, str], tmp_path: Path, kills: int) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, "--master", "local[1,4]")
    killed = kill_attempts(process, app, kills)
    assert max(killed.values()) == kills
    support.good(support.await_end(process))
    assert support.digest(app) == expected
    assert support.remaining_files(app) == []


@pytest.mark.in_full("tests/restore/test_engines.py::test_a_process_that_is_killed")
def test_a_worker_that_always_dies(dump: Path, tmp_path: Path) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, "--master", "local[1,2]")
    killed = kill_attempts(process, app, 2)
    assert max(killed.values()) == 2
    result = support.await_end(process)
    assert result.status == 6, result.stderr
    assert "PENDING_ERROR" in result.stderr
    assert not app.exists()
    assert support.remaining_files(app) == []


IN_TURN = ("--master", "local[1,4]")
"""Two slices, one after the other."""
IN_PROCESS = ("--engine", "local")
"""By the command itself, without Spark's start: where what is looked at is what becomes of slices, not who makes them."""


def finished_runs(app: Path) -> list[dict[str, Any]]:
    return support.notes(app, ".done")


def wait_for_a_finished_slice(process: subprocess.Popen[str], app: Path) -> int:
    """Waits until one slice is finished and the next has begun, and stops that attempt; returns its pid."""

    def second() -> list[dict[str, Any]]:
        texts = {f"{note['task']}-{note['store']}-{note['number']}" for note in finished_runs(app)}
        return [note for note in support.notes(app, ".started") if note["slice"] not in texts] if texts else []

    pid = int(wait_for(process, second)[0]["pid"])
    os.kill(pid, signal.SIGSTOP)
    return pid


def end(process: subprocess.Popen[str], number: signal.Signals, stopped: int) -> None:
    """Ends the command. The attempt that was stopped never comes to its end, which takes no longer than that of Spark."""
    jvm, deadline = os.getsid(stopped), time.monotonic() + 300
    process.send_signal(number)
    with contextlib.suppress(ProcessLookupError):
        while lives(jvm) and time.monotonic() < deadline:
            # Where the JVM has ended the system lets go on what was stopped.
            os.kill(stopped, signal.SIGSTOP)
            time.sleep(0.005)
        os.kill(stopped, signal.SIGKILL)
    process.communicate(timeout=300)


def lives(pid: int) -> bool:
    """Whether a process still does something; one that has ended may wait for whoever collects it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def in_its_own_process(app: Path, dump: Path, number: signal.Signals) -> None:
    """A run that ends by this signal when one of its two slices is finished."""
    process = support.start(app, dump, *IN_PROCESS)
    wait_for(process, lambda: finished_runs(app))
    process.send_signal(number)
    process.communicate(timeout=300)


def events(result: support.Ended, kind: str) -> list[dict[str, Any]]:
    """JSON events on standard error."""
    rows = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    return [row for row in rows if row["type"] == kind]


@pytest.mark.in_full("tests/restore/test_signals.py::test_a_signal")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_restoring(dump: Path, tmp_path: Path, number: signal.Signals) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump)
    started = wait_for(process, lambda: support.notes(app, ".started"))
    process.send_signal(number)
    result = support.await_end(process)
    assert result.status == 128 + number, result.stderr
    assert [row["restoration"] for row in events(result, "state")][-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert not app.exists()
    for note in started:
        assert not lives(note["pid"]), "a worker outlived the command"


@pytest.mark.in_full("tests/restore/test_attempts.py::test_signal_in_the_local_engine_keeps_finished_slices")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_finished_slices_of_an_interrupted_run_are_used(
    dump: Path, expected: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, *IN_TURN)
    stopped = wait_for_a_finished_slice(process, app)
    live = support.status(app)[-1]
    end(process, number, stopped)
    assert live["restoration"] == "RESTORING"
    assert [(entry["slices"], entry["of"], entry["records"]) for entry in live["progress"]] in (
        [(1, 1, RECORDS // 2), (0, 1, 0)],
        [(0, 1, 0), (1, 1, RECORDS // 2)],
    )

    row = support.status(app)[-1]
    assert row["restoration"] == ("NOT_RUNNING" if number is signal.SIGTERM else "INTERRUPTED")
    assert row["bytes_pinned"] > 0
    resumed = support.good(support.restore(app, dump, *IN_TURN))
    (event,) = events(resumed, "resumed")
    assert event["predecessor"] == row["run"]
    assert (event["slices"], event["of"]) == (1, 2)
    assert resumed.of("summary")[0]["records"] == RECORDS
    assert support.status(app)[-1]["predecessor"] == row["run"]
    assert support.digest(app) == expected
    assert support.remaining_files(app) == []


def test_finished_slices_of_a_changed_dump_are_not_used(dump: Path, expected: dict[str, str], tmp_path: Path) -> None:
    app, mine = tmp_path / support.APP, tmp_path / "dump"
    shutil.copytree(dump, mine)
    in_its_own_process(app, mine, signal.SIGTERM)
    for file in mine.rglob("*.parquet"):
        os.utime(file)
    resumed = support.good(support.restore(app, mine, *IN_PROCESS))
    assert [event["slices"] for event in events(resumed, "resumed")] == [0]
    assert support.digest(app) == expected
    assert support.remaining_files(app) == []


@pytest.fixture
def no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what a host without Java has; Python is named by its path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("no_java")
def test_engines_give_the_same_result(dump: Path, expected: dict[str, str], tmp_path: Path) -> None:
    app = tmp_path / support.APP
    result = support.good(support.restore(app, dump, *IN_PROCESS))
    assert support.digest(app) == expected
    assert support.remaining_files(app) == []
    assert [row["restoration"] for row in events(result, "state")] == [
        "REBALANCING", "RESTORING", "RUNNING", "PENDING_SHUTDOWN", "NOT_RUNNING",
    ]  # fmt: skip
    assert [(row["slices"], row["of"]) for row in events(result, "progress")][-1] == (2, 2)


@pytest.mark.rotating(3, "killed workers")
@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_in_the_local_engine_keeps_finished_slices(
    dump: Path, expected: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, *IN_PROCESS)
    wait_for(process, lambda: support.notes(app, ".done"))
    process.send_signal(number)
    result = support.await_end(process)
    assert result.status == 128 + number, result.stderr
    assert [row["restoration"] for row in events(result, "state")][-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert not app.exists()
    resumed = support.good(support.restore(app, dump, *IN_PROCESS))
    assert [(event["slices"], event["of"]) for event in events(resumed, "resumed")] == [(1, 2)]
    assert support.digest(app) == expected


def test_a_command_hears_of_every_state(dump: Path, tmp_path: Path) -> None:
    app, messages = tmp_path / support.APP, tmp_path / "heard"
    script = tmp_path / "hear.sh"
    script.write_text(f'#!/bin/sh\necho "$1 $2 $KSTATE_APP" >> {messages}\nexit 3\n')
    script.chmod(0o755)
    result = support.good(support.restore(app, dump, "--on-state-change", str(script), *IN_PROCESS))
    assert [line.split()[:2] for line in messages.read_text().splitlines()] == [
        ["CREATED", "REBALANCING"],
        ["REBALANCING", "RESTORING"],
        ["RESTORING", "RUNNING"],
        ["RUNNING", "PENDING_SHUTDOWN"],
        ["PENDING_SHUTDOWN", "NOT_RUNNING"],
    ]
    assert {line.split()[2] for line in messages.read_text().splitlines()} == {str(app)}
    assert "exited with status 3" in result.stderr


def test_a_command_that_hangs_does_not_hold_the_run_up(dump: Path, tmp_path: Path) -> None:
    app = tmp_path / support.APP
    hangs = ("--on-state-change", "sh -c 'case $1 in PENDING*) sleep 3600;; esac' hear")
    process = support.start(app, dump, *hangs, *IN_PROCESS)
    wait_for(process, lambda: support.notes(app, ".started"))
    began = time.monotonic()
    process.terminate()
    result = support.await_end(process)
    assert time.monotonic() - began < 3600  # the command would take longer
    assert "killed" in result.stderr
    assert [row["restoration"] for row in events(result, "state")][-1] == "NOT_RUNNING"
    assert support.remaining_files(app) == [] or support.status(app)[-1]["bytes_pinned"] > 0
    support.clean(app)
    assert not (app.parent / ".kstate").exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("garbage", ["[1]", "{}", "not JSON", '{"max_time": "x", "files": [1], "positions": 3}'])
def test_notes_that_nobody_can_read_are_passed_over(
    dump: Path, expected: dict[str, str], tmp_path: Path, garbage: str
) -> None:
    app = tmp_path / support.APP
    in_its_own_process(app, dump, signal.SIGKILL)
    (runs,) = (app.parent / ".kstate" / app.name).glob("*/runs")
    (runs / "zz.done").write_text(garbage)
    for note in runs.glob("0_*.done"):
        whole = json.loads(note.read_text())
        note.write_text(json.dumps({**whole, "attempt": "../../x"}))
    support.status(app)
    resumed = support.good(support.restore(app, dump, *IN_PROCESS))
    assert [event["slices"] for event in events(resumed, "resumed")] == [0]
    assert support.digest(app) == expected
    assert support.remaining_files(app) == []


def test_a_damaged_file_of_the_same_size(dump: Path, tmp_path: Path) -> None:
    """Bytes within values are still Parquet: only the manifest's digest tells."""
    app, mine = tmp_path / support.APP, tmp_path / "dump"
    shutil.copytree(dump, mine)
    file = min(mine.rglob("*.parquet"))
    content = bytearray(file.read_bytes())
    value = pq.read_table(file, columns=["value"]).column("value")[1_000].as_py()
    content[content.index(value) + 50] ^= 0x5A
    file.write_bytes(content)
    restore = support.restore(app, mine, *IN_PROCESS)
    assert (restore.status, "SHA-256" in restore.stderr, file.name in restore.stderr) == (4, True, True), restore.stderr
    assert not app.exists()
    assert support.remaining_files(app) == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Different names: a speculative attempt never runs on the host of the first one.
    with Cluster(tmp_path_factory.mktemp("cluster"), ["127.0.0.1", "localhost"]) as running:
        yield running


@pytest.mark.in_full("tests/restore/test_attempts.py::test_a_worker_that_is_killed")
def test_a_standalone_cluster(dump: Path, expected: dict[str, str], tmp_path: Path, cluster: Cluster) -> None:
    app, staging = tmp_path / support.APP, tmp_path / "staging"
    staging.mkdir()
    support.good(support.restore(app, dump, "--master", cluster.master, "--staging", str(staging)))
    assert support.digest(app) == expected
    assert list(staging.iterdir()) == []
    assert support.remaining_files(app) == []


@pytest.mark.in_full("tests/restore/test_attempts.py::test_a_worker_that_is_killed")
def test_two_hosts_share_a_staging_folder(dump: Path, expected: dict[str, str], tmp_path: Path) -> None:
    """The same application on both, and the first run of each; one ends while the other goes on, which is killed then."""
    staging = tmp_path / "staging"
    apps = [tmp_path / host / support.APP for host in ("one", "two")]
    for app in apps:
        app.parent.mkdir()
    start = support.start(apps[0], dump, *IN_TURN, "--staging", str(staging))
    started = wait_for(start, lambda: [note for path in staging.glob("*/*.started") if (note := _read(path))])
    os.kill(started[0]["pid"], signal.SIGSTOP)
    (folder,) = staging.iterdir()
    support.good(support.restore(apps[1], dump, "--staging", str(staging), *IN_PROCESS))
    assert support.digest(apps[1]) == expected
    assert list(staging.iterdir()) == [folder]
    end(start, signal.SIGKILL, started[0]["pid"])
    assert list(staging.iterdir()) == [folder]
    (run,) = read_runs(apps[0])
    remainder = left_in_area(run)
    assert remainder is not None
    assert (remainder.place, remainder.why) == (str(folder), None)
    # The next run removes it; so does `kstate clean`.
    support.good(support.restore(apps[0], dump, "--staging", str(staging), *IN_PROCESS))
    assert support.digest(apps[0]) == expected
    assert list(staging.iterdir()) == []
    assert [left_in_area(run) for run in read_runs(apps[0])] == [None, None]


@pytest.mark.in_full("tests/restore/test_attempts.py::test_a_worker_that_is_killed")
def test_speculation(dump: Path, expected: dict[str, str], tmp_path: Path, cluster: Cluster) -> None:
    app, staging = tmp_path / support.APP, tmp_path / "staging"
    staging.mkdir()
    conf = ["speculation=true", "speculation.interval=100ms", "speculation.multiplier=1.1", "speculation.quantile=0.5"]
    process = support.start(
        app, dump, "--master", cluster.master, "--staging", str(staging), *(f"--conf=spark.{entry}" for entry in conf)
    )

    def started() -> list[dict[str, Any]]:
        return [note for path in staging.glob("*/*.started") if (note := _read(path))]

    first = wait_for(process, started)[0]
    os.kill(first["pid"], signal.SIGSTOP)
    try:
        wait_for(process, lambda: sum(note["slice"] == first["slice"] for note in started()) >= 2)
        support.good(support.await_end(process))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first["pid"], signal.SIGCONT)
    assert support.digest(app) == expected
    assert list(staging.iterdir()) == []


def _read(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document


def test_after_an_error_somebody_must_look(dump: Path, tmp_path: Path) -> None:
    """A cron job does not restore, or wipe, in a loop. The error: a run that is not what its task wrote any more.

    RocksDB takes a file in by its name, its first and its last row: without a look at it, it would be switched in.
    """
    app = tmp_path / support.APP
    process = support.start(app, dump, *IN_PROCESS)
    wait_for(process, lambda: finished_runs(app))
    process.send_signal(signal.SIGSTOP)
    spoilt = Path(finished_runs(app)[0]["files"][0][1])
    content = bytearray(spoilt.read_bytes())
    content[len(content) // 2] ^= 1
    spoilt.write_bytes(content)
    process.send_signal(signal.SIGCONT)
    failed = support.await_end(process)
    assert failed.status == 6, failed.stderr
    assert [row["restoration"] for row in events(failed, "state")][-2:] == ["PENDING_ERROR", "ERROR"]
    assert support.remaining_files(app) == []
    (row,) = support.status(app)
    assert (row["state"], row["restoration"]) == ("failed", "ERROR")
    assert spoilt.name in row["message"]
    assert "SHA-256" in row["message"]
    again = support.restore(app, dump)
    assert (again.status, "--after-error" in again.stderr) == (4, True)
    support.good(support.restore(app, dump, "--after-error", *IN_PROCESS))
    assert [row["restoration"] for row in support.status(app)] == ["ERROR", "NOT_RUNNING"]

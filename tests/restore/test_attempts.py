"""Attempts that die, attempts that are run twice, signals, and a real cluster: the same rows each time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from . import support
from .cluster import Cluster


def wait_for(process: subprocess.Popen[str], what: Callable[[], Any], seconds: float = 120) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        if process.poll() is not None:
            raise AssertionError(f"ended with {process.returncode} before it happened: {process.communicate()[1]}")
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def kill_attempts(process: subprocess.Popen[str], app: Path, most: int) -> dict[str, int]:
    """Kills the first ``most`` attempts of every slice as soon as they have begun; returns kills by slice."""
    seen: set[int] = set()
    killed: dict[str, int] = {}
    while process.poll() is None:
        for note in support.notes(app, ".started"):
            if note["pid"] in seen or killed.get(note["slice"], 0) >= most:
                continue
            seen.add(note["pid"])
            with contextlib.suppress(ProcessLookupError):
                os.kill(note["pid"], signal.SIGKILL)
                killed[note["slice"]] = killed.get(note["slice"], 0) + 1
        time.sleep(0.005)
    return killed


@pytest.mark.parametrize("kills", [1, 2])
def test_a_worker_that_is_killed(dump: Path, expected: dict[str, str], tmp_path: Path, kills: int) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, "--master", "local[1,4]")
    killed = kill_attempts(process, app, kills)
    assert max(killed.values()) == kills
    support.good(support.ended(process))
    assert support.digest(app) == expected
    assert support.left_behind(app) == []


def test_a_worker_that_always_dies(dump: Path, tmp_path: Path) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump, "--master", "local[1,2]")
    killed = kill_attempts(process, app, 2)
    assert max(killed.values()) == 2
    result = support.ended(process)
    assert result.status == 6, result.stderr
    assert "PENDING_ERROR" in result.stderr
    assert not app.exists()
    assert support.left_behind(app) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_restoring(dump: Path, expected: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump)
    started = wait_for(process, lambda: support.notes(app, ".started"))
    process.send_signal(number)
    result = support.ended(process)
    assert result.status == 128 + number, result.stderr
    assert '"state": "NOT_RUNNING"' in result.stderr
    assert not app.exists()
    assert support.left_behind(app) == []
    for note in started:
        assert not Path(f"/proc/{note['pid']}").exists(), "a worker outlived the command"
    support.good(support.restore(app, dump))
    assert support.digest(app) == expected


def test_killed_outright_and_taken_over(dump: Path, expected: dict[str, str], tmp_path: Path) -> None:
    app = tmp_path / support.APP
    process = support.start(app, dump)
    wait_for(process, lambda: support.notes(app, ".started"))
    process.kill()
    process.communicate()
    support.good(support.restore(app, dump))
    assert support.digest(app) == expected
    assert support.left_behind(app) == []


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Different names: a speculative attempt never runs on the host of the first one.
    with Cluster(tmp_path_factory.mktemp("cluster"), ["127.0.0.1", "localhost"]) as running:
        yield running


def test_a_standalone_cluster(dump: Path, expected: dict[str, str], tmp_path: Path, cluster: Cluster) -> None:
    app, staging = tmp_path / support.APP, tmp_path / "staging"
    staging.mkdir()
    support.good(support.restore(app, dump, "--master", cluster.master, "--staging", str(staging)))
    assert support.digest(app) == expected
    assert list(staging.iterdir()) == []
    assert support.left_behind(app) == []


def test_speculation(dump: Path, expected: dict[str, str], tmp_path: Path, cluster: Cluster) -> None:
    app, staging = tmp_path / support.APP, tmp_path / "staging"
    staging.mkdir()
    conf = ["speculation=true", "speculation.interval=100ms", "speculation.multiplier=1.1", "speculation.quantile=0.5"]
    process = support.start(
        app, dump, "--master", cluster.master, "--staging", str(staging), *(f"--conf=spark.{one}" for one in conf)
    )

    def started() -> list[dict[str, Any]]:
        return [note for path in staging.glob("*/*.started") if (note := _read(path))]

    first = wait_for(process, started)[0]
    os.kill(first["pid"], signal.SIGSTOP)
    try:
        wait_for(process, lambda: sum(note["slice"] == first["slice"] for note in started()) >= 2)
        support.good(support.ended(process))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(first["pid"], signal.SIGCONT)
    assert support.digest(app) == expected
    assert list(staging.iterdir()) == []


def _read(path: Path) -> dict[str, Any] | None:
    import json

    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def test_after_an_error_somebody_must_look(dump: Path, tmp_path: Path) -> None:
    """A cron job does not restore, or wipe, in a loop."""
    app = tmp_path / support.APP
    no_room = tmp_path / "file"
    no_room.write_text("")
    bad = ("--staging", str(no_room))
    failed = support.restore(app, dump, *bad)
    assert failed.status == 6, failed.stderr
    again = support.restore(app, dump)
    assert (again.status, "--after-error" in again.stderr) == (4, True)
    support.good(support.restore(app, dump, "--after-error"))

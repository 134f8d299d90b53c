"""
A snapshot, and a restoration from it, killed at moments spread over the whole run.

The moments are those of `killed_commands.py`. The whole process group is killed, as by a host that goes down; what was
written before stays.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.faults.small import small
from tests.object_store import ObjectStore

from .bucket_kills import STORES, kill_all, prepare, world_of
from .killed_commands import KilledCommands, Started

Run = Callable[..., int]

MOMENTS = int(os.environ.get("KSTATE_KILLS", "9"))
"""Of each of the three sweeps."""
BUCKET_MOMENTS = int(os.environ.get("KSTATE_KILLS", "4"))
"""Of the sweep of a bucket: each moment takes three clients and a verification."""
BUCKET_SEEDS = max(1, BUCKET_MOMENTS // 4)
"""Of the sweep that also restores: five kills each."""
OLD = "--accept-resurrected"


@pytest.fixture(scope="module")
def commands() -> Iterator[KilledCommands]:
    with KilledCommands() as started:
        yield started


@pytest.fixture
def run(commands: KilledCommands) -> Run:
    """Run a command, killed at the moment; 0 is none. Return its status."""

    def ended(folder: Path, at: int, *words: object) -> int:
        output = folder.parent / "output"
        status = commands.start(folder, at, folder.parent / "count", *words, output=output).wait()
        assert "Traceback" not in output.read_text(), output.read_text()
        return status

    return ended


def _count(folder: Path) -> int:
    return int((folder.parent / "count").read_text())


def _kstate(*words: object) -> CommandResult:
    return kstate(*words, status=None)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return small("4.3.1-kinds-eos", tmp_path / "state", STORES)


def _moments(total: int) -> list[int]:
    return sorted({1 + number * (total - 1) // max(1, MOMENTS - 1) for number in range(MOMENTS)})


def test_a_snapshot_that_is_killed_exists_or_does_not(app: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "repositories"
    folder.mkdir()
    assert run(folder, 0, "snapshot", app, "--out", folder / "whole", "-q") == 0
    killed = 0
    for at in _moments(_count(folder)):
        repository = folder / f"killed-{at}"
        killed += run(folder, at, "snapshot", app, "--out", repository, "-q") == -signal.SIGKILL
        if (repository / "kstate-snapshots.json").exists():
            verification = _kstate("verify-snapshots", repository)
            assert verification.status == 0, f"moment {at}: {verification.out}{verification.err}"
        # The next call finds what there is, and completes it.
        again = _kstate("snapshot", app, "--out", repository, "-q")
        assert again.status == 0, f"moment {at}: {again.err}"
        verification = _kstate("verify-snapshots", repository)
        assert verification.status == 0, f"moment {at}: {verification.out}{verification.err}"
        shutil.rmtree(repository)
    assert killed >= MOMENTS // 2, "hardly any run was killed"


def test_a_restoration_that_is_killed_leaves_all_or_nothing(app: Path, tmp_path: Path, run: Run) -> None:
    repository = tmp_path / "repository"
    assert _kstate("snapshot", app, "--out", repository, "-q").status == 0
    folder = tmp_path / "lost"
    folder.mkdir()
    words = ("--from-snapshot", repository, OLD, "-q")
    (folder / "whole").mkdir()
    assert run(folder, 0, "restore", folder / "whole" / app.name, *words) == 0
    killed = 0
    for at in _moments(_count(folder)):
        lost = folder / f"killed-{at}" / app.name
        lost.parent.mkdir()
        killed += run(folder, at, "restore", lost, *words) == -signal.SIGKILL
        databases = sorted(path.parent.name for path in lost.rglob("CURRENT")) if lost.exists() else []
        assert databases in ([], sorted(path.parent.name for path in app.rglob("CURRENT"))), f"moment {at}"
        again = _kstate("restore", lost, *words, "--after-error")
        assert again.status == 0, f"moment {at}: {again.err}"
        verification = _kstate("diff", app, lost)
        assert verification.status == 0, f"moment {at}: {verification.out}{verification.err}"
        shutil.rmtree(lost.parent)
    assert killed >= MOMENTS // 2, "hardly any run was killed"


def test_two_writers_and_a_cleaner_that_are_killed_leave_only_whole_snapshots(
    app: Path, tmp_path: Path, run: Run, commands: KilledCommands
) -> None:
    """No grace, so that what a cleaner condemns is deleted by the next: only the intents of writers protect them."""
    folder = tmp_path / "repositories"
    folder.mkdir()
    other = tmp_path / "other" / app.name
    shutil.copytree(app, other)
    repository = folder / "shared"
    cleaning = ("--keep", "1", "--grace", "0s", "-q")

    def start(at: int, *words: object) -> Started:
        return commands.start(folder, at, tmp_path / f"count-{at}", *words)

    assert run(folder, 0, "snapshot", app, "--out", repository, *cleaning, "--host", "a") == 0
    killed = 0
    for at in _moments(_count(folder)):
        started = [
            start(at, "snapshot", app, "--out", repository, "-q", "--host", "a"),
            start(at + 3, "snapshot", other, "--out", repository, "-q", "--host", "b"),
            start(max(1, at - 3), "snapshot", app, "--out", repository, *cleaning, "--host", "c"),
        ]
        killed += sum(process.wait() == -signal.SIGKILL for process in started)
        verification = _kstate("verify-snapshots", repository)
        assert verification.status == 0, f"moment {at}: {verification.out}{verification.err}"
    # Intents of killed writers make the cleaner wait; without them it deletes all but what the newest snapshot needs.
    for intent in (repository / "intents").iterdir():
        intent.unlink()
    for _ in range(3):
        verification = _kstate("snapshot", app, "--out", repository, *cleaning)
        assert verification.status == 0, verification.err
    # Those of this host, and the newest one of each of the three others.
    assert len(list((repository / "generations").glob("2*.json"))) <= 2 + 3
    verification = _kstate("verify-snapshots", repository)
    assert verification.status == 0 and killed >= MOMENTS // 2, f"{killed} {verification.err}"


def test_writers_and_a_cleaner_of_a_bucket_that_are_killed_leave_only_whole_snapshots(
    app: Path, objects: ObjectStore, tmp_path: Path, commands: KilledCommands
) -> None:
    """The moments are the sendings of requests: what was sent may be carried out although its sender is dead."""
    out = objects.uri("shared")
    cleaning = ("--keep", "1", "--grace", "0s", "-q")

    def start(at: int, *words: object) -> Started:
        return commands.start("s3://", at, tmp_path / f"count-{at}", *words)

    assert start(0, "snapshot", app, "--out", out, *cleaning, "--host", "a").wait() == 0
    total = int((tmp_path / "count-0").read_text())
    moments = sorted({1 + number * (total - 1) // max(1, BUCKET_MOMENTS - 1) for number in range(BUCKET_MOMENTS)})
    killed = 0
    for at in moments:
        started = [
            start(at, "snapshot", app, "--out", out, "-q", "--host", "a"),
            start(at + 3, "snapshot", app, "--out", out, "-q", "--host", "b"),
            start(max(1, at - 3), "snapshot", app, "--out", out, *cleaning, "--host", "c"),
        ]
        killed += sum(process.wait() == -signal.SIGKILL for process in started)
        verification = _kstate("verify-snapshots", out)
        assert verification.status == 0, f"moment {at}: {verification.out}{verification.err}"
    assert killed >= len(moments)
    # Eight days later no intent and no claim is in the way: the next cleaners delete what nothing needs.
    before = len(objects.keys("shared/"))
    objects.behave(later_seconds=8 * 86_400)
    for _ in range(4):
        cleaned = _kstate("snapshot", app, "--out", out, *cleaning)
        assert cleaned.status == 0, cleaned.err
    assert len(objects.keys("shared/intents/")) <= 3 and len(objects.keys("shared/generations/")) <= 2 + 3
    assert len(objects.keys("shared/")) < before
    verification = _kstate("verify-snapshots", out)
    assert verification.status == 0, verification.err


def test_kills_of_writers_a_cleaner_and_a_restoration_leave_whole_snapshots_in_a_bucket(
    object_store_endpoint: str, tmp_path: Path, commands: KilledCommands
) -> None:
    """The first seeds of `python -m tests.faults.bucket_kills`, which runs as many as a user wants."""
    world = world_of(tmp_path, object_store_endpoint, commands)
    most = prepare(world)
    lines = [kill_all(world, seed, most) for seed in range(BUCKET_SEEDS)]
    world.objects.behave()
    killed = [status for line in lines for status in line.status.values() if status == -signal.SIGKILL]
    assert len(killed) >= 2 * BUCKET_SEEDS

"""Who keeps whom out: the application, commands that change its directory, and those that only look after what is kept."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.golden import unpack

from .support import kstate, tree_hash

pytestmark = pytest.mark.rotating(4)

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
(fcntl.lockf if sys.argv[2] == "application" else fcntl.flock)(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def locked(app: Path, kind: str) -> Iterator[int]:
    """The lock as a JVM takes it, or that of a command of kstate, held by another process."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(app / ".lock"), kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process.pid
    finally:
        process.stdin.close()
        process.wait()


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    app = unpack("4.3.1-demo-eos", tmp_path)
    (app / ".lock").touch()
    kstate("migrate", app, "--to", "4.2")
    return app


def test_clean_goes_on_beside_the_application(migrated: Path) -> None:
    before = tree_hash(migrated)
    with locked(migrated, "application") as pid:
        refusal = kstate("undo", migrated, status=5)
        assert f"process {pid}" in refusal.err
        kstate("clean", migrated)
        assert not (migrated.parent / ".kstate").exists()
    assert tree_hash(migrated).keys() == before.keys()


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", [("clean",), ("undo",), ("migrate", "--to", "4.3"), ("wipe", "--store", "visits")])
def test_never_two_commands_at_once(migrated: Path, command: tuple[str, ...]) -> None:
    with locked(migrated, "kstate"):
        kstate(command[0], migrated, *command[1:], status=5)
    kstate(command[0], migrated, *command[1:])


def test_the_lock_file_of_a_live_application_is_not_dropped(migrated: Path) -> None:
    """Closing a descriptor drops the locks of one's own process only; a second look shows that it is held still."""
    with locked(migrated, "application"):
        kstate("clean", migrated)
        descriptor = os.open(migrated / ".lock", os.O_RDWR)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)

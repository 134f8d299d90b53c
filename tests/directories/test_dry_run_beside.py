"""``--dry-run`` beside a running application: a plan as of the last flush, no lock taken, nothing written."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.command_result import CommandResult
from tests.golden import unpack

from .support import kstate, kstate_here, tree_hash
from .test_locks import locked

pytestmark = pytest.mark.rotating(6)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESTORE = ("--from-changelog", EXAMPLES / "dump", "--spec", EXAMPLES / "dump.toml", "--for", "4.3", "--engine", "local")
BUSY = """
import fcntl, os, select, sys, time
from rocksdict import Options, Rdict
app = sys.argv[1]
lock = open(os.path.join(app, ".lock"), "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
options = Options(raw_mode=True)
path = os.path.join(app, sys.argv[2])
families = {name: Options(raw_mode=True) for name in Rdict.list_cf(path, options) if name != "default"}
store = Rdict(path, options, column_families=families)
rows = store.get_column_family(sys.argv[3])
print("locked", flush=True)
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    number += 1
    rows[b"k%08d" % (number % 50)] = bytes(8) + os.urandom(2000)
    if number % 10 == 0:
        rows.flush()
    if number % 40 == 0:
        rows.compact_range(None, None)
    # Fifty flushes a second, far more than an application's. Without a pause its files never stand still for a reader
    # on a machine with other work, who then rightly says so.
    time.sleep(0.002)
"""


def question(app: Path) -> list[tuple[object, ...]]:
    return [
        ("migrate", app, "--to", "4.2", "--dry-run"),
        ("wipe", app, "--store", "visits", "--dry-run"),
        ("restore", app, *RESTORE, "--warnings-ok", "--dry-run"),
        ("restore", app, *RESTORE, "--warnings-ok", "--rebuild", "--dry-run"),
        ("clean", app, "--dry-run"),
    ]


def holds(app: Path) -> bool:
    """Whether somebody else holds the lock. Closing a descriptor drops none but those of this process."""
    descriptor = os.open(app / ".lock", os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def busy(app: Path, store: str, family: str) -> Iterator[int]:
    """A process that holds the lock as a JVM does, and writes, flushes and compacts all the time."""
    argv = [sys.executable, "-c", BUSY, str(app), store, family]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    try:
        yield process.pid
        assert process.poll() is None, "it has ended early: nothing changed meanwhile"
    finally:
        process.stdin.close()
        process.wait()


def says_as_of(result: CommandResult, pid: int) -> None:
    notes = [row["message"] for row in result.rows if row["type"] == "note"]
    assert any("is based on the last flush" in note and f"process {pid}" in note for note in notes), notes
    assert result.summary["executed"] is False


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    path = unpack("4.3.1-demo-eos", tmp_path / "state")
    (path / ".lock").touch()
    return path


def test_a_plan_and_nothing_else(app: Path) -> None:
    before = tree_hash(app.parent)
    with locked(app, "application") as pid:
        for argv in question(app):
            result = kstate_here(*argv, "-o", "json")
            if argv[0] != "clean":
                says_as_of(result, pid)
                assert result.summary["steps"] or argv[0] == "restore", argv
            messages = kstate_here(*argv).err
            assert argv[0] == "clean" or "is based on the last flush" in messages, argv
            assert holds(app), argv
    assert tree_hash(app.parent) == before


def under_way(app: Path) -> dict[str, Path]:
    """What a running application leaves for a moment: a segment before its CURRENT, an SST before the MANIFEST names it."""
    segment = app / "0_1" / "visits" / "visits.1704069000000"
    segment.mkdir()
    (segment / "LOG").write_text("")
    sst = app / "0_0" / "rocksdb" / "latest-order" / "000961.sst"
    sst.write_bytes(b"begun")
    return {"0_1/visits/visits.1704069000000": segment, "0_0/rocksdb/latest-order": sst}


def test_store_under_construction_is_no_warning(app: Path) -> None:
    """Exit code 0, whenever it is asked: nothing is wrong."""
    outputs = under_way(app)
    with locked(app, "application") as pid:
        for argv in question(app):
            quiet_of_them = [word for word in argv if word != "--warnings-ok"]
            result = kstate_here(*quiet_of_them, "-o", "json", status=None)
            if argv[0] == "clean":
                continue
            says_as_of(result, pid)
            warnings = [row["message"] for row in result.rows if row["type"] == "warning"]
            assert not [text for text in warnings if any(place in text for place in outputs)], argv
            notes = [row["message"] for row in result.rows if row["type"] == "note"]
            if argv[0] == "migrate":
                assert result.status == 0 and not warnings
                for place in outputs:
                    assert any(
                        text.startswith(place) and "running application is creating or dropping the database" in text
                        for text in notes
                    )


def test_while_its_files_change(app: Path) -> None:
    names = set(os.listdir(app.parent))
    with busy(app, "0_0/rocksdb/latest-order", "keyValueWithTimestamp") as pid:
        for _ in range(3):
            for argv in question(app)[:-1]:
                says_as_of(kstate(*argv, "-o", "json"), pid)
        assert holds(app)
    assert set(os.listdir(app.parent)) == names


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("4.3.1-kinds-eos-killed-open", "4.2"),  # every status is open, as it is while it runs
        ("4.2.1-kinds-eos-killed-first", "4.3"),  # exactly-once: no .checkpoint until it is closed
        ("4.2.1-kinds-eos-killed-second", "4.3"),
    ],
)
def test_files_that_a_shutdown_writes_are_not_required_while_running(tmp_path: Path, name: str, target: str) -> None:
    """The same directories without a process are refused: nothing says that they were closed."""
    app = unpack(name, tmp_path)
    (app / ".lock").touch()
    with locked(app, "application") as pid:
        result = kstate_here("migrate", app, "--to", target, "--dry-run", "-o", "json", "--warnings-ok")
    says_as_of(result, pid)
    assert result.summary["steps"]
    assert "unclean shutdown" in kstate_here("migrate", app, "--to", target, "--dry-run", status=4).err


def test_a_run_is_refused_still(app: Path) -> None:
    before = tree_hash(app.parent)
    with locked(app, "application") as pid:
        for argv in question(app)[:-1]:
            result = kstate_here(*argv[:-1], status=5)
            assert f"process {pid}" in result.err
    assert tree_hash(app.parent) == before


def test_not_amid_a_change(app: Path) -> None:
    """Beside a command that is changing the directory there is no telling which of the two directories is meant."""
    kstate("migrate", app, "--to", "4.2")
    journal = next((app.parent / ".kstate").rglob("journal.jsonl"))
    first = journal.read_bytes().splitlines(keepends=True)[0]
    journal.write_bytes(first)
    with locked(app, "application") as pid:
        result = kstate_here("wipe", app, "--store", "visits", "--dry-run", status=5)
    assert f"process {pid}" in result.err

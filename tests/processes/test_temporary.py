"""Temporary folders of processes that were killed: the next process removes them, and nothing else."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from rocksdict import Options, Rdict

from kstate_cli import temporary as leftovers
from kstate_cli.rocks.shadow import Shadow
from tests import syntax

pytestmark = pytest.mark.rotating(3)

ROOT = Path(leftovers.__file__).parent
_NAMELESS = frozenset({"TemporaryFile"})
"""What leaves nothing behind, however the process ends: it has no name."""

HOLD = """
import sys, time
from pathlib import Path
from kstate_cli.rocks.shadow import Shadow
with Shadow(Path(sys.argv[1])):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "db"
    db = Rdict(str(path), Options(raw_mode=True))
    db[b"a"] = b"v"
    db.flush()
    db.close()
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(leftovers, "_swept", set())
    return folder


def hold(database: Path) -> subprocess.Popen[str]:
    """Another process with the database open."""
    command = [sys.executable, "-c", HOLD, str(database)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def test_folder_of_a_killed_process_is_removed_and_of_a_living_process_kept(
    database: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = hold(database)
    (dead,) = temporary.iterdir()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    living = hold(database)
    try:
        # The other process has looked already; what it has made stays, and is what this one must not touch.
        (alive,) = temporary.iterdir()
        assert alive != dead
        with Shadow(database) as shadow:
            assert list(shadow.rows("default")) == [(b"a", b"v")]
            assert alive.is_dir()
        assert list(temporary.iterdir()) == [alive]
    finally:
        living.communicate("")
    assert living.returncode == 0
    assert list(temporary.iterdir()) == []


def test_only_folders_of_dead_kstate_processes_are_removed(database: Path, temporary: Path) -> None:
    process = hold(database)
    (outputs,) = temporary.iterdir()
    process.kill()
    process.wait()
    name = outputs.name
    assert re.fullmatch(r"kstate-shadow-[0-9a-f]{32}-\d+-\d+-\d+-[0-9a-f]{32}", name)
    boot, namespace, pid, start, random = name.removeprefix("kstate-shadow-").split("-")
    elsewhere = temporary / "victim"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    texts = [
        f"kstate-shadow-{'0' * 32}-{namespace}-{pid}-{start}-{random}",  # another host, or before a restart
        f"kstate-shadow-{boot}-{int(namespace) + 1}-{pid}-{start}-{random}",  # another container
        f"kstate-shadow-{boot}-{namespace}-{pid}-0-{random}",  # of a process that did not tell
        f"kstate-shadow-{boot}-{namespace}-{os.getpid()}-{leftovers._start(os.getpid())}-{random}",  # it lives
        f"kstate-shadow-{random}",
        "kstate-shadow-",
        f"{name}.bak",
    ]
    for entry in texts:
        (temporary / entry).mkdir()
    link = temporary / f"kstate-shadow-{boot}-{namespace}-{pid}-{start}-{'0' * 32}"
    link.symlink_to(elsewhere)
    file = temporary / f"kstate-shadow-{boot}-{namespace}-{pid}-{start}-{'1' * 32}"
    file.touch()
    given_again = temporary / f"kstate-shadow-{boot}-{namespace}-{os.getpid()}-1-{random}"
    given_again.mkdir()
    leftovers.sweep(temporary)
    assert {path.name for path in temporary.iterdir()} == {*texts, link.name, file.name, "victim"}
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("digits", [9, 10, 11, 21, 100])
def test_a_number_that_no_process_has(digits: int, database: Path, temporary: Path) -> None:
    """Anybody may make such a folder in /tmp: it must not end every command of everybody."""
    *head, _, start, random = leftovers._new_name("shadow").split("-")
    outputs = temporary / "-".join([*head, "9" * digits, start, random])
    outputs.mkdir()
    with Shadow(database) as shadow:
        assert list(shadow.rows("default")) == [(b"a", b"v")]
    # 2^31 - 1 is the greatest number that the system can be asked about.
    assert outputs.exists() is (digits > 9)


@pytest.mark.parametrize("unknown", ["/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"])
def test_a_host_that_does_not_tell_which_it_is_proves_nothing(
    unknown: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two such hosts, or containers, that share the folder have the same name: a process of one is not in the other."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()

    def name() -> str:
        parts = leftovers._new_name("shadow").split("-")
        return "-".join([*parts[:4], str(dead.pid), *parts[5:]])

    facts = temporary / name()
    facts.mkdir()
    read, look = Path.read_text, os.stat

    def refuse(path: object) -> Any:
        if os.fspath(path) == unknown:  # type: ignore[call-overload]
            raise PermissionError(13, "Permission denied", unknown)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda path, *args: refuse(path) or read(path, *args))
        patch.setattr(os, "stat", lambda path, **args: refuse(path) or look(path, **args))
        nameless = temporary / name()
        nameless.mkdir()
        leftovers.sweep(temporary)
        assert nameless.is_dir()
        assert facts.is_dir()
    leftovers._swept.clear()
    leftovers.sweep(temporary)
    assert list(temporary.iterdir()) == [nameless]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_stays(temporary: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = leftovers._new_name("shadow").split("-")
    name[4] = str(dead.pid)
    theirs = temporary / "-".join(name)
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    leftovers.sweep(temporary)
    assert theirs.is_dir()
    os.chown(theirs, os.geteuid(), -1)
    leftovers._swept.clear()
    leftovers.sweep(temporary)
    assert not theirs.exists()


def test_only_private_copies_are_below_the_folder_of_a_process() -> None:
    """Another name there would collide with the folder of another command."""
    for path in ROOT.rglob("*.py"):
        for node in syntax.nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "temporary.folder":
                assert path.name == "shadow.py", f"{path.relative_to(ROOT)}:{node.lineno}"


MADE_BY = {
    "runs": "from kstate_cli.restore.staging import Staging; Staging('s3://bucket/runs').new_file('0.sst')",
    "spark": "context._Spark.start = lambda _: hold(); "
    "spark = context.spark_context(context.SparkSettings()); spark.__enter__()",
    "demo": "ls.ls = lambda *_, **__: hold(); demo()",
    "examples": "examples.example_files = hold; examples.write_examples(Path(temporary.folder()) / 'new')",
    "version": "create.newest_options = lambda _: hold(); create.rocksdb_version()",
    "dump": "RangesInProcesses(Pool()).run([], print, print)",
    "options": "stack = temporary.private_folder('options'); stack.__enter__()",
    "seed": "stack = temporary.private_folder('seed'); stack.__enter__()",
    "export": "write_parts([], 0, 'one process', 1, Watcher())",
}
BEFORE = """
import sys, time
from pathlib import Path
from kstate_cli import temporary
from kstate_cli.cli.commands import ls
from kstate_cli.cli.commands import examples
from kstate_cli.cli.commands.demo import demo
from kstate_cli.spark import context
from kstate_cli.dump_writer.rounds import RangesInProcesses
from kstate_cli.export.files import write_parts
from kstate_cli.rocks import create
def hold():
    print("made", flush=True)
    sys.stdin.read()
class Pool:
    def work_off(self, *_):
        hold()
class Watcher:
    def begin(self, *_):
        hold()
    def at(self, *_):
        pass
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "subject", [argument for argument in get_args(leftovers.Purpose) if argument not in ("shadow", "verify")]
)
def test_remains_of_every_purpose_are_removed(subject: str, database: Path, temporary: Path) -> None:
    command = [sys.executable, "-c", f"{BEFORE}\n{MADE_BY[subject]}\nhold()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    (path,) = temporary.iterdir()
    assert path.name.startswith(f"kstate-{subject}-")
    assert path.stat().st_mode & 0o777 == 0o700
    leftovers.sweep(temporary)
    assert path.is_dir()  # its process lives
    process.kill()
    process.communicate()
    os.utime(path, (0, 0))  # old enough, where age counts
    leftovers._swept.clear()
    with Shadow(database):
        assert not path.exists()
    assert list(temporary.iterdir()) == []


def test_a_killed_verification(database: Path, temporary: Path) -> None:
    """Its folder is that of its workers too; they end with it."""
    script = (
        "import sys; from pathlib import Path; from kstate_cli import temporary\n"
        "with temporary.private_folder('verify') as folder:\n"
        "    (folder / 'shadow').mkdir(); print('made', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    (path,) = temporary.iterdir()
    process.kill()
    process.communicate()
    leftovers.sweep(temporary)
    assert not path.exists()


def test_where_a_jvm_is_about_to_write_stays_for_a_while(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that cannot write where it listens never ends, although its kstate was killed: it is given the time."""
    code = "from kstate_cli import temporary; temporary.make('spark'); temporary.make('verify')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len([*temporary.iterdir()]) == 2
    leftovers.sweep(temporary)
    (path,) = temporary.iterdir()
    assert path.name.startswith("kstate-spark-")
    os.utime(path, (0, 0))
    monkeypatch.setattr(leftovers, "_swept", set())
    leftovers.sweep(temporary)
    assert [*temporary.iterdir()] == []

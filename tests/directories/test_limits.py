"""
Every command under every limit of a host: descriptors, memory, threads.

Each ends as it always does, or it reports what the host lacks with exit code 6 and a hint that names it. No traceback, no
"defect of kstate", no library that ends the process. With the limit raised, as the hint says, the same command does its work.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstate_cli.cli.registry import COMMANDS
from tests.faults.small import small
from tests.sampling import ALL

from .limits import USER, Limited, Limits
from .listings import write_listing
from .support import public_folder
from .test_standard import CHANGING, COMMAND_LINES, DUMP, KINDS

pytestmark = pytest.mark.rotating(6)

NEEDS_OTHERS = {"dump": "a broker", "seed": "a broker", "verify-dump": "a growing dump", "warm-up": "Spark"}
"""Commands of which only the help is here."""
LEVELS = {"descriptors": (14, 24, 48), "memory": (8, 100), "threads": (2, 8)}
HINTS = {
    "descriptors": ("limit of open files",),
    "memory": ("limit of address space", "limit of processes"),
    "threads": ("limit of processes",),
}
_SSTS = 60
_MORE_SSTS = """
import os, sys
from rocksdict import Env, Options, Rdict
options, families = Options.load_latest(sys.argv[1], Env(), True)
for one in families.values():
    one.set_disable_auto_compactions(True)
database = Rdict(sys.argv[1], options, column_families=families)
family = database.get_column_family("keyValueWithTimestamp")
rows = [(bytes(key), bytes(value)) for key, value in family.items()]
for _ in range(int(sys.argv[2])):
    for key, value in rows:
        family[key] = value
    family.flush()
del family
database.close()
os.unlink(sys.argv[1] + "/rocksdict-config.json")
"""


@pytest.fixture(scope="module")
def state() -> Iterator[Path]:
    """A folder with an application of many SSTs, another one, and one that was migrated."""
    with public_folder() as top:
        yield _application(top)


def _application(top: Path) -> Path:
    app = small(KINDS, top / "state", ("kv-timestamped", "window-count", "global-table"))
    database = app / "0_0" / "rocksdb" / "kv-timestamped"
    subprocess.run([sys.executable, "-c", _MORE_SSTS, str(database), str(_SSTS)], check=True)
    # Of a copy: it leaves a folder of kstate beside the directory.
    source = shutil.copytree(app, top / "source" / app.name, symlinks=True)
    subprocess.run(
        [sys.executable, "-m", "kstate_cli", "snapshot", str(source), "--out", str(top / "snapshots"), "-q"], check=True
    )
    return app


class Sweep:
    """Runs the command lines of `test_standard`, each in directories of its own where it changes one."""

    def __init__(self, app: Path, folder: Path, limits: Limits, owner: int) -> None:
        self._app, self._folder, self._limits, self._owner = app, folder, limits, owner
        self._count = 0

    def words(self, name: str) -> list[str]:
        """The command line, in a new folder."""
        self._count += 1
        folder = self._folder / str(self._count)
        (folder / "lost").mkdir(parents=True)
        shutil.copytree(self._app.parent, folder / "state", symlinks=True)
        app = folder / "state" / self._app.name
        places = {
            "APP": app, "OTHER": self._app, "OUT": folder / "out", "LOST": folder / "lost" / "orders", "PLACE": folder,
            "LISTING": write_listing(self._app), "SPEC": DUMP.parent / "dump.toml", "CONFIG": DUMP.parent / "maintain.toml",
            "CHANGED": app, "REPO": self._app.parents[1] / "snapshots",
        }  # fmt: skip
        argv = COMMAND_LINES[name]
        if argv[0] == "restore-snapshot":
            places["LOST"] = folder / "lost" / self._app.name
        if self._owner != os.geteuid():
            subprocess.run(["chown", "-R", f"{self._owner}:{self._owner}", str(folder)], check=True)
        if "CHANGED" in argv:
            migrated = self._limits("", 0, "migrate", app, "--to", "4.2", "-q")
            assert migrated.status == 0, migrated.report
        return [str(places.get(argument, argument)) for argument in argv]

    def __call__(self, name: str, limit: str, level: int, **variables: str) -> Limited:
        """One command line under one limit."""
        words = self.words(name)
        ended = self._limits(limit, level, *words, **variables)
        if ended.status == 6 and words[0] in CHANGING and "CHANGED" not in COMMAND_LINES[name]:
            # The hint: raise the limit, and run the command again.
            again = self._limits("", 0, *words)
            assert again.status == 0, again.report
        return ended


NORMAL = {"ls spec": 1, "check": 3}


def judge(name: str, ended: Limited) -> None:
    """As always, or with what the host lacks: nothing in between."""
    normal = NORMAL.get(name, 0)
    messages = ended.err.replace("This error does not mean that stores are damaged", "")
    for word in ("Traceback", "defect", "terminate called", "Rust", "Exception ignored", "wipe", "damaged", "corrupt"):
        # What a command that does its work has to say of its subject is no matter of the limit.
        assert word not in messages or (ended.status == normal and word == "wipe"), ended.report
    if ended.status == normal:
        return
    # 7: it failed after the directories were exchanged, and says so.
    assert ended.status == 6 or (ended.status == 7 and "has changed" in ended.err), ended.report
    assert any(hint in ended.err for hint in HINTS[ended.limit]), ended.report
    if "json" in ended.argv and ended.status == 6:
        error = json.loads(ended.out.splitlines()[-1])
        assert (error["type"], error["exit"]) == ("error", 6), ended.report


def test_every_command_is_here() -> None:
    covered = {argv[0] for argv in COMMAND_LINES.values() if "--help" not in argv}
    assert covered >= set(COMMANDS) - set(NEEDS_OTHERS)


FEW = ("ls", "verify", "migrate json", "restore")
"""What the usual run tries at every level; each of the other command lines is tried at one."""


def _cases(limit: str) -> list[tuple[int, str]]:
    levels = LEVELS[limit]
    names = [name for name in COMMAND_LINES if not name.startswith("help")]
    return [
        (level, name)
        for at, name in enumerate(names)
        for level in (levels if ALL or name in FEW else (levels[at % len(levels)],))
    ]


def _sweep(app: Path, tmp_path: Path, limit: str, owner: int = 0) -> None:
    codes: dict[str, list[int]] = {}
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    temporary.chmod(0o777)
    with Limits(tmp_path, other_user=bool(owner)) as limits:
        sweep = Sweep(app, tmp_path / "runs", limits, owner or os.geteuid())
        for level, name in _cases(limit):
            ended = sweep(name, limit, level, TMPDIR=str(temporary))
            judge(name, ended)
            codes.setdefault(name, []).append(ended.status)
    # The sweep means something: the commands that need the most met the limit.
    assert sum(6 in codes[name] for name in FEW) >= len(FEW) - 1, codes


# How much memory a library takes differs from host to host: what the sweep meets at a level is no test of every run.
@pytest.mark.rotating(5, "sweeps of every command")
@pytest.mark.parametrize("limit", ["descriptors", *(["memory"] if ALL else [])])
def test_every_command(state: Path, tmp_path: Path, limit: str) -> None:
    _sweep(state, tmp_path, limit)


@pytest.mark.in_full("tests/directories/test_limits.py::test_every_command")
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="another user is needed")
def test_every_command_without_threads(state: Path) -> None:
    with public_folder() as folder:
        os.chown(folder, USER, USER)
        _sweep(state, folder, "threads", USER)

"""
A directory on the way becomes a symbolic link while a command runs: nothing behind the link is changed.

Each directory that a command uses is replaced at a few calls that are spread over the command; KSTATE_FAULTS=all takes every third.
Another test exchanges the directory and the link again and again while the command runs, so that a check before or after a call does
not see the link.
Behind the link are files with the same names as in the directory, so that a command that follows it would find all that it
needs. RocksDB opens its files by path and follows the link: its own files may be changed then, and the command must fail.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstate_cli.change.journal import SORTED_FILES, TREE
from kstate_cli.statedir.names import OWN_FOLDER

from .case import MAY_END, Case
from .cases import SMALLEST
from .forked import Ended, Kstate, environment
from .restorations import RESTORED_IN_PARTS
from .swapping_zygote import ASIDE
from .sweep import ALL

MOMENTS = 2
"""So many calls of each command and directory."""
WARNED, UNUSABLE, IN_USE = 1, 2, 5
"""Exit codes of commands that meet the link otherwise: in the next start, instead of a store, or where the lock is."""
_OF_ROCKSDB = re.compile(
    r"CURRENT|IDENTITY|LOCK|LOG(\.old\.\d+)?|MANIFEST-\d+|OPTIONS-\d+(\.dbtmp)?|\d+\.(sst|blob|log|dbtmp)|rocksdict-config\.json"
)


@functools.cache
def _template() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kstate-faults-")


def _lost(kstate: Kstate, state: Path) -> Path:
    """An application that is lost, of which there is a snapshot."""
    app = SMALLEST[0].make(kstate, state)
    if not (repository := Path(_template().name) / "snapshots").exists():
        ended = kstate(app, ("snapshot", "--out", str(repository), "--quiet"))
        assert ended.status == 0, ended.output
    shutil.rmtree(app)
    return app


def from_snapshot() -> Case:
    """`kstate restore-snapshot`."""
    command = (
        "restore-snapshot", "--from-snapshot", f"{_template().name}/snapshots", "--accept-resurrected", "--quiet", "--workers", "1",
    )  # fmt: skip
    return Case("restore-snapshot", _lost, command, {}, ())


CASES = {case.name: case for case in (*SMALLEST, RESTORED_IN_PARTS[0], from_snapshot())}

Facts = dict[str, tuple[int, ...]]
"""Path -> the status of a file or directory."""


@pytest.fixture(scope="module")
def attacked() -> Iterator[Kstate]:
    with Kstate("tests.faults.swapping_zygote") as started:
        yield started


def directories(after: Path, app: str) -> list[str]:
    """Every directory that a command has used, by what it has left: those of runs, of both trees, of a task, and a database."""
    results = [app, OWN_FOLDER, f"{OWN_FOLDER}/{app}"]
    trees = [app]
    for run in sorted((after / OWN_FOLDER / app).glob("*-*")) or [Path("0001-migrate")]:
        results += [
            f"{OWN_FOLDER}/{app}/{run.name}",
            *(f"{OWN_FOLDER}/{app}/{run.name}/{name}" for name in (SORTED_FILES, TREE)),
        ]
        trees.append(results[-1])
    database = min(path.parent for path in (after / app).rglob("CURRENT")).relative_to(after / app)
    inner = [*reversed(database.parents[:-1]), database]
    return results + [f"{tree}/{path}" for tree in trees for path in inner]


def facts(folder: Path) -> Facts:
    """What no command may change: also the ctime, so that a chmod to the same mode and a second link are noticed."""
    results: Facts = {}
    for top, folders, names in os.walk(folder):
        for path in (top, *(os.path.join(top, name) for name in (*folders, *names))):
            status = os.lstat(path)
            results[os.path.relpath(path, folder)] = (
                status.st_ino, status.st_mode, status.st_uid, status.st_gid, status.st_nlink, status.st_ctime_ns,
            )  # fmt: skip
    return results


def moments(calls: int, number: int) -> list[int]:
    """The calls at which directory `number` is replaced: those of the directories differ."""
    if ALL:
        return list(range(1 + number % 3, calls + 1, 3))
    spread = calls / MOMENTS
    return [1 + int(spread * (moment + (number * 0.618) % 1)) for moment in range(MOMENTS)]


def run(kstate: Kstate, case: Case, app: Path, place: str, trap: Path, at: int) -> tuple[Ended, int]:
    """Run the command, with a link to `trap` instead of a directory from a call on. Returns also the number of its calls."""
    count = Path(environment(app.parent)["TMPDIR"]) / "count"
    env = {"SWAP_AT": str(at), "SWAP_PATH": str(app.parent / place), "SWAP_TO": str(trap), "SWAP_COUNT": str(count)}
    ended = kstate(app, case.command, env=env)
    return ended, int(count.read_text())


@pytest.mark.rotating(5)
@pytest.mark.timeout(7200)
# RocksDB opens the databases of a restoration by path, at calls that differ from run to run.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=pytest.mark.in_full("tests/directories/test_links_in_runs.py::test_a_restoration_that_fails")
        )
        if name.startswith("restore")
        else name
        for name in CASES
    ],
)
def test_nothing_behind_a_link_is_changed(attacked: Kstate, tmp_path: Path, name: str) -> None:
    case, state, trap = CASES[name], tmp_path / "w" / "state", tmp_path / "trap"
    app = case.make(attacked, state)
    template, changed = tmp_path / "template", tmp_path / "changed"
    _copy(state, template)
    ended, calls = run(attacked, case, app, "nothing", trap, 0)
    assert ended.status == 0, ended.output
    _copy(state, changed)
    whole = template if case.command[0] == "clean" else changed
    wrong, count, swapped = [], 0, 0
    for number, place in enumerate(directories(whole, app.name)):
        for at in moments(calls, number):
            _copy(template, state)
            # What is there after the command or before it, and for a folder that exists only meanwhile the new directory.
            _copy(next(path for path in (whole / place, template / place, changed / app.name) if path.is_dir()), trap)
            before = facts(trap)
            ended, _ = run(attacked, case, app, place, trap, at)
            count += 1
            swapped += any(state.rglob(f"*{ASIDE}"))
            wrong += [f"{place} at call {at}: {line}" for line in problems(before, facts(trap), ended)]
    print(f"{name}: {swapped} of {count} replaced, {calls} calls")
    assert swapped > count // 5
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong[:40])


@pytest.mark.rotating(2)
# RocksDB creates databases by path, so the files behind a link are only those of RocksDB.
@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("restore-lost")])
def test_nothing_behind_a_link_that_comes_and_goes_is_changed(attacked: Kstate, tmp_path: Path, name: str) -> None:
    case, state, trap = CASES[name], tmp_path / "w" / "state", tmp_path / "trap"
    app = case.make(attacked, state)
    template, changed, link = tmp_path / "template", tmp_path / "changed", tmp_path / "link"
    _copy(state, template)
    ended, _ = run(attacked, case, app, "nothing", trap, 0)
    assert ended.status == 0, ended.output
    _copy(state, changed)
    whole = template if case.command[0] == "clean" else changed
    wrong = []
    for number, place in enumerate(directories(whole, app.name)):
        _copy(template, state)
        _copy(next(path for path in (whole / place, template / place, changed / app.name) if path.is_dir()), trap)
        if os.path.lexists(link):
            (os.unlink if link.is_symlink() else shutil.rmtree)(link)
        link.symlink_to(trap)
        before = facts(trap)
        with _exchanging(state / place, link, number):
            ended, _ = run(attacked, case, app, "nothing", trap, 0)
        after = facts(trap)
        # RocksDB creates a directory for its files if the link has none of that name.
        created = {path for path in before.keys() ^ after.keys() if stat.S_ISDIR((before | after)[path][1])}
        if ended.status not in (0, WARNED) and created:
            before = {
                path: after.get(path, status) if stat.S_ISDIR(status[1]) else status for path, status in before.items()
            }
            after = {path: status for path, status in after.items() if path not in created}
        wrong += [f"{place}: {line}" for line in problems(before, after, ended)]
    assert not wrong, "\n".join(wrong)


@contextmanager
def _exchanging(directory: Path, link: Path, seed: int) -> Iterator[None]:
    """Exchange a directory and a link in another process, at random moments, until the end of the block."""
    process = subprocess.Popen([sys.executable, "-c", _EXCHANGES, directory, link, str(seed)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


_EXCHANGES = """
import ctypes, os, random, sys, time
directory, link, seed = sys.argv[1:]
libc, draw = ctypes.CDLL(None), random.Random(seed)
while True:
    libc.renameat2(-100, os.fsencode(directory), -100, os.fsencode(link), 2)  # RENAME_EXCHANGE
    if draw.random() < 0.3:
        time.sleep(draw.random() * 0.002)
"""


def _copy(source: Path, target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)


def problems(before: Facts, after: Facts, ended: Ended) -> list[str]:
    """What is wrong with how the command ended, and what it changed behind the link."""
    if (
        ended.status not in MAY_END | {WARNED, UNUSABLE, IN_USE}
        or "Traceback" in ended.output
        or "defect" in ended.output
    ):
        return [f"exit {ended.status}: {ended.output[-1500:]}"]
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    databases = {os.path.dirname(path) or "." for path in before if os.path.basename(path) == "CURRENT"}
    others = [path for path in changed if path not in databases and not _OF_ROCKSDB.fullmatch(os.path.basename(path))]
    if others or (changed and ended.status in (0, WARNED)):
        return [f"exit {ended.status}, changed {changed[:6]}: {ended.output[-300:]}"]
    return []

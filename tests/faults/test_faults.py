"""
Whatever fails, and whenever kstate is killed: the application directory is wholly the old one or wholly the new one, and the
next command brings it to either end.

By default every step of kstate itself around the switch fails and is killed once: journal, syncs, exchange; of every other
kind of call (copying, linking, RocksDB's own writes, renames and syncs) a few steps, spread over the run, fail or are killed
in turn. KSTATE_FAULTS=all does every step with every fault: more than an hour.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.golden import unpack
from tests.interop.harness import open_databases
from tests.interop.jvm import Jvm

from .injection import CALLS, Step, available, disturbed, kstate, steps, struck
from .trees import Meaning, differences, meaning

ALL = os.environ.get("KSTATE_FAULTS") == "all"
SPREAD = 2
"""So many steps of each kind of call that is not of the switch."""
AROUND_THE_SWITCH = ("write", "fsync", "fdatasync", "syncfs", "renameat2")
KILL = "signal=SIGKILL"
ERRORS = ("error=EIO", "error=ENOSPC")
ENDS = {0, 4, 6, 7, -9, 137}
"""4: a fault while the directory was still being read; what cannot be read is refused."""
OPTIONS = {"migrate": ("--warnings-ok", "--quiet", "--workers", "1"), "undo": ()}

pytestmark = pytest.mark.skipif(not available(), reason="strace is not installed or may not trace")


@dataclass(frozen=True)
class Direction:
    """A directory of one release, and the release that it is migrated to."""

    golden: str
    source: str
    target: str

    @property
    def options(self) -> tuple[str, ...]:
        return ("--to", self.target.rpartition(".")[0], *OPTIONS["migrate"])


DOWN = Direction("4.3.1-demo-eos", "4.3.1", "4.2.1")
UP = Direction("4.2.1-sparse-eos", "4.2.1", "4.3.1")


@dataclass(frozen=True)
class Prepared:
    """A directory before and after, what both mean, and the steps in between."""

    direction: Direction
    old: Meaning
    new: Meaning
    migrate: tuple[Step, ...]
    undo: tuple[Step, ...]


def fresh(direction: Direction, folder: Path) -> Path:
    """An application directory in a state directory of its own, always at the same path."""
    shutil.rmtree(folder, ignore_errors=True)
    return unpack(direction.golden, folder / "state").resolve()


@pytest.fixture(scope="module", params=[DOWN, UP], ids=["down", "up"])
def prepared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    direction: Direction = request.param
    app = fresh(direction, tmp_path_factory.mktemp("undisturbed"))
    old = meaning(app)
    forward = steps(app, "migrate", *direction.options)
    new = meaning(app)
    assert old != new
    back = steps(app, "undo")
    assert meaning(app) == old
    assert sum(step.call == "renameat2" for step in forward) == 1
    return Prepared(direction, old, new, tuple(forward), tuple(back))


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Jvm]]:
    """The real RocksDB, as these releases open it; empty where there is no Java."""
    with contextlib.ExitStack() as stack:
        if shutil.which("java") is None or shutil.which("javac") is None:
            yield {}
            return
        logs = tmp_path_factory.mktemp("jvm")
        yield {
            version: stack.enter_context(Jvm(version, logs / f"{version}.log", heap="256m"))
            for version in ("4.2.1", "4.3.1")
        }


def around_the_switch(step: Step) -> bool:
    """kstate's own journal, its folders, the syncs and the exchange; not the files that it makes in the new directory."""
    return step.kstate and step.call in AROUND_THE_SWITCH and "/tree/" not in step.path


def faults(found: tuple[Step, ...], call: str) -> list[tuple[Step, str]]:
    """What is done to the steps of one kind."""
    mine = [step for step in found if step.call == call]
    if ALL:
        return [(step, action) for step in mine for action in (*ERRORS, KILL)]
    near = [step for step in mine if around_the_switch(step)]
    others = [step for step in mine if step not in near]
    chosen = [others[(2 * i + 1) * len(others) // (2 * SPREAD)] for i in range(min(SPREAD, len(others)))]
    return [(step, action) for i, step in enumerate(near) for action in (ERRORS[i % 2], KILL)] + [
        (step, (ERRORS[len(call) % 2], KILL)[i % 2]) for i, step in enumerate(chosen)
    ]


def check(app: Path, prepared: Prepared, step: Step, action: str, command: str) -> tuple[str, str]:
    """One fault and what follows. Returns what the directory was before the repair, and what was wrong (or nothing)."""
    ended = disturbed(app, step, action, command, *(prepared.direction.options if command == "migrate" else ()))
    wrong = []
    if not struck(app):
        wrong.append("the fault did not happen")
    if ended.status not in ENDS or "Traceback" in ended.output:
        wrong.append(f"exit {ended.status}: {ended.output[-1500:]}")
    now = meaning(app)
    which = "old" if now == prepared.old else "new" if now == prepared.new else "neither"
    if which == "neither":
        wrong.append(f"neither old nor new: {differences(now, prepared.old)[:3]}; {differences(now, prepared.new)[:3]}")
    if ended.status == 0 and which != ("new" if command == "migrate" else "old"):
        wrong.append(f"exit 0, and the directory is the {which} one")
    if ended.status in (4, 6) and which != ("old" if command == "migrate" else "new"):
        wrong.append(f"exit 6, and the directory is the {which} one")
    return which, "; ".join(wrong)


def repaired(app: Path, prepared: Prepared, repair: str) -> str:
    """What is wrong after the repair, an undo that has nothing left to do, and a clean."""
    wrong = []
    ended = kstate(app, repair, *(prepared.direction.options if repair == "migrate" else ()))
    wanted = prepared.new if repair == "migrate" else prepared.old
    if ended.status or meaning(app) != wanted:
        wrong.append(f"{repair}: exit {ended.status}: {ended.output[-800:]}; {differences(meaning(app), wanted)[:2]}")
    if repair == "undo":
        again = kstate(app, "undo")
        if again.status or "nothing to undo" not in again.output:
            wrong.append(f"second undo: exit {again.status}: {again.output[-800:]}")
    cleaned = kstate(app, "clean")
    if cleaned.status or (app.parent / ".kstate").exists() or meaning(app) != wanted:
        wrong.append(f"clean: exit {cleaned.status}: {cleaned.output[-800:]}")
    return "; ".join(wrong)


def opened(app: Path, prepared: Prepared, which: str, releases: dict[str, Jvm]) -> str:
    """What the release that the directory is for says about its databases."""
    version = prepared.direction.source if which == "old" else prepared.direction.target
    if version not in releases:
        return ""
    reply = open_databases(releases[version], app)
    return "" if reply.rc == 0 and reply.of("database") else f"{version} does not open it: {reply.told()[-800:]}"


@pytest.mark.parametrize("call", CALLS)
def test_a_migration_is_whole_or_not_at_all(
    prepared: Prepared, releases: dict[str, Jvm], tmp_path: Path, call: str
) -> None:
    chosen = faults(prepared.migrate, call)
    if not chosen:
        pytest.skip("no such call")
    found = []
    for number, (step, action) in enumerate(chosen):
        app = fresh(prepared.direction, tmp_path / "w")
        # The two faults of a step are followed by the one and the other repair in every second step.
        repair = ("migrate", "undo")[(number + number // 2) % 2]
        which, wrong = check(app, prepared, step, action, "migrate")
        if not wrong and (around_the_switch(step) or call == "link"):
            wrong = opened(app, prepared, which, releases)
        wrong = "; ".join(filter(None, [wrong, repaired(app, prepared, repair)]))
        print(f"{step} {action}: {which}, then {repair}")
        if wrong:
            found.append(f"{step} {action}, then {repair}: {wrong}")
    assert not found, "\n\n".join(found)


@pytest.fixture
def migrated(prepared: Prepared, tmp_path: Path) -> Path:
    app = fresh(prepared.direction, tmp_path / "w")
    done = kstate(app, "migrate", *prepared.direction.options)
    assert done.status == 0, done.output
    return app


@pytest.mark.parametrize("repair", ["migrate", "undo"])
def test_an_undo_is_whole_or_not_at_all(prepared: Prepared, tmp_path: Path, repair: str) -> None:
    found = []
    app = fresh(prepared.direction, tmp_path / "w")
    chosen = [step for step in prepared.undo if step.call in AROUND_THE_SWITCH]
    assert any(step.call == "renameat2" for step in chosen)
    for number, step in enumerate(chosen):
        for action in (*ERRORS, KILL) if ALL else (KILL, ERRORS[number % 2]):
            app = fresh(prepared.direction, tmp_path / "w")
            done = kstate(app, "migrate", *prepared.direction.options)
            assert done.status == 0, done.output
            which, wrong = check(app, prepared, step, action, "undo")
            wrong = "; ".join(filter(None, [wrong, repaired(app, prepared, repair)]))
            print(f"{step} {action}: {which}, then {repair}")
            if wrong:
                found.append(f"undo: {step} {action}, directory was {which}, then {repair}: {wrong}")
    assert not found, "\n\n".join(found)


def open_as_streams(app: Path) -> Path:
    """Open one database for writing, as every start of Streams does. Returns it."""
    from rocksdict import Options, Rdict

    path = sorted(app.rglob("CURRENT"))[0].parent
    names = Rdict.list_cf(str(path), Options(raw_mode=True))
    database = Rdict(
        str(path), Options(raw_mode=True), column_families={name: Options(raw_mode=True) for name in names}
    )
    database.close()
    # rocksdict leaves a file of its own, which Streams would not.
    (path / "rocksdict-config.json").unlink(missing_ok=True)
    return path


def test_undo_after_a_start_is_refused(prepared: Prepared, migrated: Path) -> None:
    path = open_as_streams(migrated)
    before = meaning(migrated)
    refused = kstate(migrated, "undo")
    assert refused.status == 4, refused.output
    assert str(path.relative_to(migrated)) in refused.output
    assert f"kstate migrate {migrated} --to {prepared.direction.source.rpartition('.')[0]}" in refused.output
    assert meaning(migrated) == before

    done = kstate(migrated, "undo", "--discard-newer")
    assert done.status == 0, done.output
    assert meaning(migrated) == prepared.old


_HOLD = """\
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(app: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process holds the lock, until its input is closed."""
    command = [sys.executable, "-c", _HOLD, str(app / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("command", ["migrate", "undo", "clean"])
def test_the_lock_is_respected(prepared: Prepared, migrated: Path, command: str) -> None:
    options = ("--to", prepared.direction.source.rpartition(".")[0]) if command == "migrate" else ()
    with held(migrated) as process:
        refused = kstate(migrated, command, *options)
        assert refused.status == 5, refused.output
        assert f"process {process.pid}" in refused.output
        assert "Traceback" not in refused.output
    assert meaning(migrated) == prepared.new


def test_the_lock_is_waited_for(prepared: Prepared, migrated: Path) -> None:
    with held(migrated) as process:
        late = kstate(migrated, "undo", "--wait", "0.5")
        assert late.status == 5, late.output
        command = [sys.executable, "-m", "kstate_cli", "undo", str(migrated), "--wait", "20"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as waiting:
            time.sleep(1.5)
            assert waiting.poll() is None
            process.kill()
            output, _ = waiting.communicate(timeout=30)
        assert waiting.returncode == 0, output
    assert meaning(migrated) == prepared.old


@contextlib.contextmanager
def small_file_system(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs of a few megabytes or inodes; skips where mounting is not allowed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "kstate-test", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount")
@pytest.mark.parametrize(
    "limit", ["size=8m", "size=26m", "size=30m", "nr_inodes=+40", "nr_inodes=+70", "nr_inodes=+250"]
)
def test_a_full_file_system(prepared: Prepared, tmp_path: Path, limit: str) -> None:
    used = sum(1 for _ in fresh(prepared.direction, tmp_path / "w").rglob("*")) + 4
    name, _, value = limit.partition("=")
    amount = f"{used + int(value)}" if value.startswith("+") else value
    with small_file_system(tmp_path / "mount", f"{name}={amount}") as folder:
        app = unpack(prepared.direction.golden, folder / "state").resolve()
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-m", "kstate_cli", "migrate", str(app), *prepared.direction.options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
        print(limit, done.returncode, done.stderr)
        assert done.returncode in (0, 4, 6), done.stderr
        assert "Traceback" not in done.stderr
        if limit in ("size=8m", "nr_inodes=+40") and done.returncode == 4:
            assert not (app.parent / ".kstate").exists()
        if limit == "size=8m":
            assert done.returncode == 4
        assert meaning(app) == (prepared.new if done.returncode == 0 else prepared.old)
        staged = list((app.parent / ".kstate").rglob("tree"))
        assert not staged or done.returncode == 0

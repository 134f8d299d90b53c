"""
The table of exit codes, a cell for each command and code: either it is driven here, or it says why it cannot occur.

Whatever happens on the way, "nothing has changed" is only said where a digest of the application directory, and of what
kstate keeps of it, says so too.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import kstate_cli
from kstate_cli.cli.registry import COMMANDS
from tests.faults.forked import Kstate
from tests.faults.injection import available
from tests.faults.small import small

from .changes import change_commands
from .listings import write_listing
from .proof import NOTHING, digest, hold_to_its_word
from .test_locks import locked
from .test_standard import DUMP, KINDS
from .test_verify import _flip
from .warm import FULL, ROOT, Ended, Warm

pytestmark = pytest.mark.rotating(6)

SIGNAL = 128 + signal.SIGTERM
CODES = (0, 1, 2, 3, 4, 5, 6, 7, SIGNAL)
STORE = "kv-timestamped"
OF_NO_DIRECTORY = (
    *("fleet", "dump", "seed", "ls-snapshots", "verify-snapshots", "prune-snapshots"),
    *("start-barrier", "maintain", "explain", "warm-up", "demo", "examples"),
)
"""Commands that are given no application."""
SPARK = ("--from-changelog", DUMP, "--for", "4.3", "--spec", DUMP.parent / "dump.toml")
LOCAL = ("--engine", "local")
NEEDS_STRACE = pytest.mark.skipif(not available(), reason="needs strace")


@dataclass
class World:
    """A folder, directories to put into it, and a kstate to run on them."""

    warm: Warm
    templates: dict[str, Path]
    folder: Path

    def fresh(self, name: str = "APP") -> Path:
        """A copy of an application directory; CHANGED was migrated where it lies, and can be taken back."""
        here = self.templates["APP" if name == "CHANGED" else name]
        top = self.folder / f"copy-{len(list(self.folder.iterdir()))}"
        subprocess.run(["cp", "-a", str(here.parent), str(top)], check=True)
        if name == "CHANGED":
            result = self.warm("migrate", top / here.name, "--to", "4.2", "-q")
            assert result.status == 0, result.report
        return top / here.name

    def argv(self, command: str, app: Path | str) -> list[object]:
        """The command on a directory; as a rule it ends with 0."""
        more: dict[str, tuple[object, ...]] = {
            "query": (STORE,),
            "export": (STORE, "--out", self.folder / "out"),
            "diff": (self.templates["APP"],),
            "check": ("--for", "4.3"),
            "lag": ("--offsets", self.offsets(), "--warnings-ok"),
            "fleet": (write_listing(self.templates["APP"]),),
            **{name: change.on(STORE) for name, change in change_commands().items()},
            "dump": ("--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--out", self.folder / "dump", *LOCAL),
            "seed": ("--from", DUMP, "--app", "new", "--bootstrap-server", "127.0.0.1:1", "--dry-run"),
            "restore": (*SPARK, "--dry-run"),
            "snapshot": ("--out", self.folder / "snapshots"),
            "restore-snapshot": ("--from-snapshot", self.templates["REPO"], "--accept-resurrected", "--dry-run"),
            "ls-snapshots": (self.templates["REPO"],),
            "verify-snapshots": (self.templates["REPO"],),
            "prune-snapshots": (self.templates["REPO"], "--keep", "7"),
            "examples": ("--out", self.folder / "examples"),
            "start-barrier": (self.folder, "--hosts", "1", "-o", "json"),
            "maintain": ("--config", self.config(), "--dry-run"),
        }
        words = ("query", "range") if command == "query" else (command,)
        return [*words, *(() if command in OF_NO_DIRECTORY else (app,)), *more.get(command, ())]

    def lost(self, command: str) -> Path | None:
        """The directory that a command creates; None of one that needs a directory."""
        names = {"restore": "orders", "restore-snapshot": self.templates["APP"].name}
        if command not in names:
            return None
        state = self.folder / "created"
        state.mkdir(exist_ok=True)
        return state / names[command]

    def offsets(self) -> Path:
        """The ends of the log of one partition, far behind which its store is; those of the others are unknown."""
        path = self.folder / "offsets.json"
        path.write_text('{"golden-431-kinds-eos-kv-timestamped-changelog": {"0": {"start": 0, "end": 1000}}}')
        return path

    def config(self) -> Path:
        """What ``maintain`` is told: to check an application."""
        path = self.folder / "maintain.toml"
        app = self.templates["APP"]
        path.write_text(
            f'format = 1\n[defaults]\ndirectory = "{app}"\nrelease = "4.3"\n'
            '[maintain]\nmemory_file = "memory.json"\n[maintain.check]\n'
        )
        return path

    def run(self, app: Path, argv: list[object], *more: object, **streams: Any) -> Ended:
        """Run a command, and hold it to its word."""
        before = digest(app)
        ended = self.warm(*argv, *more, **streams)
        hold_to_its_word(ended.report, before, app)
        return ended


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    top = tmp_path_factory.mktemp("templates")
    app = small(KINDS, top / "state", (STORE, "window-count", "global-table"))
    warned = small(KINDS, top / "warned", (STORE, "kv-nolog"))
    for entry in (app, warned):
        (entry / ".lock").touch()
    changed = top / "changed" / app.name
    shutil.copytree(app, changed)
    with Warm() as warm:
        result = warm("migrate", changed, "--to", "4.2", "-q")
    assert result.status == 0, result.report
    with Warm() as warm:
        result = warm("snapshot", app, "--out", top / "snapshots", "-q")
    assert result.status == 0, result.report
    return {"APP": app, "CHANGED": changed, "WARNED": warned, "REPO": top / "snapshots"}


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as warm_process:
        yield warm_process


Cell = Callable[[World, str], Ended]
"""Makes a command end with the code."""


def _usual(world: World, command: str) -> Ended:
    name = "CHANGED" if command in ("undo", "clean", "status") else "APP"
    app = world.fresh(name) if command in ("undo", "clean", *change_commands()) else world.templates[name]
    argv = world.argv(command, world.lost(command) or app)
    return world.run(app, argv)


def _with(*more: object, name: str = "APP") -> Cell:
    """The usual command line with more on it."""
    return lambda world, command: world.run(app := world.fresh(name), world.argv(command, app), *more)


def _warned(world: World, command: str) -> Ended:
    """A change of a directory with a store that has no changelog."""
    app = world.fresh("WARNED")
    return world.run(app, [command, app, *change_commands()[command].with_warning(STORE)])


def _without(word: str) -> Cell:
    """The usual command line without one of its words."""
    return lambda world, command: world.run(
        app := world.fresh(), [argument for argument in world.argv(command, app) if argument != word]
    )


def _empty(world: World, command: str) -> Ended:
    app = world.templates["APP"]
    return world.run(app, world.argv(command, ""), *(("--no-such-option",) if command in OF_NO_DIRECTORY else ()))


def _link(world: World, command: str) -> Ended:
    app = world.templates["APP"]
    (world.folder / "link").symlink_to(app)
    return world.run(app, world.argv(command, world.folder / "link"))


def _lock(kind: str) -> Cell:
    def drive(world: World, command: str) -> Ended:
        app = world.fresh("CHANGED" if command in ("undo", "clean") else "APP")
        argv = [argument for argument in world.argv(command, app) if argument != "--dry-run"]  # which asks for no lock
        with locked(app, kind):
            return world.run(app, argv)

    return drive


def _no_memory(world: World, command: str) -> Ended:
    """What is remembered is somebody else's file."""
    (world.folder / "memory.json").write_text("{}")
    return world.run(world.templates["APP"], world.argv(command, ""))


def _not_ours(world: World, command: str) -> Ended:
    """What this host is to write there is a folder of somebody's."""
    (world.folder / "barrier-web-1.json").mkdir()
    return world.run(world.templates["APP"], world.argv(command, ""), "--host", "web-1")


def _memory_locked(world: World, command: str) -> Ended:
    argv = world.argv(command, "")[:-1]  # without --dry-run, which asks for no lock
    with open(world.folder / ".memory.json.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return world.run(world.templates["APP"], argv)


def _metrics_locked(world: World, command: str) -> Ended:
    app, file = world.templates["APP"], world.folder / "kstate.prom"
    with open(world.folder / ".kstate.prom.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return world.run(app, world.argv(command, app), "--metrics-file", file)


def _disk_full(world: World, command: str) -> Ended:
    """Standard output is what a full disk leaves of it."""
    app = world.templates["CHANGED" if command == "status" else "APP"]
    argv = world.argv(command, world.lost(command) or app)
    return world.run(app, argv, stdout=FULL)


def _inject(world: World, command: str, app: Path, *strace: str) -> Ended:
    """With faults of strace. One that could not be injected would change nothing, and the code would be 0."""
    before = digest(app)
    with Kstate() as started, started.under(*strace) as kstate:
        argv = tuple(str(argument) for argument in world.argv(command, app))
        ended = kstate(app, (argv[0], *argv[2:]))
    assert "Traceback" not in ended.output, ended.output
    hold_to_its_word(ended.output, before, app)
    return Ended(ended.status, "", ended.output)


def _failing(call: str, error: str, occurrence: str, name: str = "APP") -> Cell:
    return lambda world, command: _inject(
        world, command, world.fresh(name), "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={occurrence}"
    )


def _after_the_exchange(world: World, command: str) -> Ended:
    """The exchange is not made durable: the next fsync of the state directory fails."""
    name = "CHANGED" if command == "undo" else "APP"
    app = world.fresh(name)
    argv = tuple(str(argument) for argument in world.argv(command, app))
    with Kstate() as started, started.under("-y", "-e", "trace=fsync,renameat2") as kstate:
        traced = kstate(app, (argv[0], *argv[2:])).traced
    before, exchange, _ = traced.partition("RENAME_EXCHANGE")
    assert exchange, traced
    nth = len(re.findall(rf"fsync\(\d+<{re.escape(str(app.parent))}>\)", before)) + 1
    app = world.fresh(name)
    remainder = digest(app)
    place = ("-P", str(app.parent))
    ended = _inject(world, command, app, *place, "-e", "trace=fsync", "-e", f"inject=fsync:error=EIO:when={nth}")
    assert digest(app) != remainder, f"it failed before the exchange: {ended.report}"
    return ended


def _summary_lost(world: World, command: str) -> Ended:
    """A real run on Spark, whose summary cannot be written any more."""
    app, out = world.folder / "lost" / "orders", world.folder / "summary"
    app.parent.mkdir()
    out.touch()
    argv = [
        sys.executable,
        "-m",
        "kstate_cli",
        command,
        app,
        *SPARK,
        "--engine",
        "spark",
        "-o",
        "json",
        "--memory",
        "1500M",
    ]
    # The plan is the first write; Spark is not traced.
    strace = ["strace", "-o", os.devnull, "-P", out, "-e", "trace=write", "-e", "inject=write:error=ENOSPC:when=2+"]
    with out.open("w") as file:
        result = subprocess.run(
            [*map(str, (*strace, *argv))],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert app.is_dir() and f"run 0001-restore has changed {app}" in result.stderr, result.stderr
    assert not NOTHING.search(result.stderr)
    return Ended(result.returncode, "", result.stderr)


def _send_signal(world: World, command: str) -> Ended:
    """SIGTERM while it writes: nobody reads, and the pipe is full."""
    on_stderr = command in ("undo", "clean")
    name = "CHANGED" if command in ("undo", "clean", "status") else "APP"
    app = world.fresh(name)
    pipe = world.folder / "pipe"
    os.mkfifo(pipe)
    other_end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(other_end, b" " * 4096)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(other_end, b" ")
    before = digest(app)
    argv = world.argv(command, world.lost(command) or app)
    streams: dict[str, Any] = {"stderr" if on_stderr else "stdout": str(pipe)}
    pid = world.warm.start(*argv, **streams)
    _wait_for_room(pid)
    os.kill(pid, signal.SIGTERM)
    # What it says of its end must have room; or it would wait for ever.
    deadline = time.monotonic() + 300
    text = b""
    while _alive(pid) and time.monotonic() < deadline:
        if select.select([other_end], [], [], 0.05)[0]:
            text += os.read(other_end, 1 << 16)
    ended = world.warm.wait()
    os.close(other_end)
    hold_to_its_word(ended.report + text.decode(errors="replace"), before, app)
    return ended


def _wait_for_room(pid: int) -> None:
    """Until it waits for the reader, with poll: a write that waited could not be interrupted between two bytes."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/syscall").read_text().split()[0] == "7":  # poll, on x86-64
                return
        time.sleep(0.02)
    raise AssertionError("it never wrote anything")


def _alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _damage(world: World, command: str) -> Ended:
    app = world.fresh()
    _flip(next((app / "0_0" / "rocksdb" / STORE).glob("*.sst")), 20)
    return world.run(app, world.argv(command, app))


def _cut_off(world: World, command: str) -> Ended:
    app = world.templates["APP"]
    cut = world.folder / "cut.json"
    cut.write_text(write_listing(app).read_text().rpartition('{"schema_version"')[0])
    return world.run(app, [command, cut])


def _too_many(world: World, command: str) -> Ended:
    app = world.templates["APP"]
    offsets = world.folder / "offsets.json"
    messages = write_listing(app)
    (topic, *_) = [
        name for line in messages.read_text().splitlines() for name in json.loads(line).get("changelog") or ()
    ]
    offsets.write_text(json.dumps({topic: {"2147483646": {"start": 0, "end": 1}}}))
    return world.run(app, [command, messages, "--offsets", offsets])


def _different(world: World, command: str) -> Ended:
    app = world.fresh()
    assert world.run(app, ["wipe", app, "--store", STORE]).status == 0
    return world.run(app, world.argv(command, app))


def _remove_changelog(world: World, command: str) -> Ended:
    """A store that has no changelog is none that a dump could bring back."""
    spec = world.folder / "kstate.toml"
    more = '\n[stores.scratch]\nkind = "key-value"\nlogged = false\nsubtopology = 0\npartitions = 2\n'
    spec.write_text((DUMP.parent / "dump.toml").read_text() + more)
    argv = [command, world.folder / "orders", *SPARK[:-1], spec, "--dry-run"]
    return world.run(world.templates["APP"], argv)


READS = "the signal has no effect"
NO_WARNINGS = "it has results, no warnings: what is found is 3, 4 or 6"
UNKNOWN_OUTCOME = "of an unknown outcome: test_check_running.py"
ASKS_NOTHING = "it asks no question that could be answered with no"
RUNNING = "it shows what was flushed last, beside a running application too"
NO_DIRECTORY = "it is about no directory"
OWN = "its directory is its own, in a temporary folder"
NEW = "its directory is a new one, which is there whole or not at all"
WAY_ON = "it is asked for one thing: there is nothing to warn of"
OF_ITS_STEPS = "it is the code of a command that it ran: test_maintain.py"
OF_SNAPSHOTS = "of snapshots: test_snapshot.py"
OF_PRUNING = "of expired snapshots: test_prune_snapshots.py"
OF_A_DUMP = "of a dump: test_verify_dump.py"
OF_A_LISTING = "of a dump: test_ls_dump.py"
OF_A_BROKER = "it takes a broker: tests/interop/test_dump_moves.py"
OF_SEEDS = "it takes a broker: tests/interop/test_seed_topics.py"
OF_SPARK = "it takes Spark: tests/restore/test_warm_up.py"
TABLE: dict[str, dict[int, Cell | str]] = {
    "ls": {1: _with("--spec"), 3: ASKS_NOTHING, 5: RUNNING, 7: READS},
    "inspect-position": {1: NO_WARNINGS, 3: _with("--at", "t:0=9999999"), 5: RUNNING, 7: READS},
    "lag": {1: _without("--warnings-ok"), 3: _with("--max-lag", "0"), 5: _metrics_locked, 7: READS},
    "query": {1: NO_WARNINGS, 3: _with("--require-active"), 5: _lock("application"), 7: READS},
    "export": {1: NO_WARNINGS, 3: ASKS_NOTHING, 5: _lock("application"), 7: "DIR is not the application's"},
    "diff": {1: NO_WARNINGS, 3: _different, 5: _lock("application"), 7: READS},
    "check": {1: UNKNOWN_OUTCOME, 3: lambda world, command: world.run(
        app := world.templates["APP"], ["check", app, "--for", "4.2"]), 5: _metrics_locked, 7: READS},
    "fleet": {1: NO_WARNINGS, 3: _cut_off, 4: _too_many, 5: _metrics_locked, 7: READS},
    "verify": {1: NO_WARNINGS, 3: _damage, 5: _metrics_locked, 7: READS},
    **{name: {1: _warned, 3: ASKS_NOTHING, 5: _lock("application"), 6: _failing("fsync", "EIO", "1"), 7: _after_the_exchange}
       for name in change_commands()},
    "dump": {0: OF_A_BROKER, 1: OF_A_BROKER, 3: ASKS_NOTHING, 4: _with("--out", "."), 5: OF_A_BROKER, 6: OF_A_BROKER,
             7: "a manifest is there whole or not at all", SIGNAL: OF_A_BROKER},
    "ls-dump": {0: OF_A_LISTING, 1: NO_WARNINGS, 2: OF_A_LISTING, 3: OF_A_LISTING, 4: OF_A_LISTING, 5: "it takes no lock",
                6: OF_A_LISTING, 7: READS, SIGNAL: "as verify-dump: tests/processes/test_deadline.py"},
    "verify-dump": {0: OF_A_DUMP, 1: OF_A_DUMP, 2: OF_A_DUMP, 3: OF_A_DUMP, 4: OF_A_DUMP, 5: "it takes no lock", 6: OF_A_DUMP,
                    7: READS, SIGNAL: OF_A_DUMP},
    "restore": {1: _remove_changelog, 3: ASKS_NOTHING, 5: _lock("application"), 7: _summary_lost},
    "snapshot": {1: OF_SNAPSHOTS, 3: ASKS_NOTHING, 5: _lock("kstate"), 7: "a snapshot is there whole or not at all"},
    "restore-snapshot": {1: OF_SNAPSHOTS, 3: ASKS_NOTHING, 5: _lock("application"), 7: OF_SNAPSHOTS},
    "ls-snapshots": {1: NO_WARNINGS, 3: OF_SNAPSHOTS, 4: OF_SNAPSHOTS, 5: "it takes no lock", 7: READS},
    "verify-snapshots": {1: NO_WARNINGS, 3: OF_SNAPSHOTS, 4: OF_SNAPSHOTS, 5: "it takes no lock", 7: READS},
    "prune-snapshots": {1: WAY_ON, 3: ASKS_NOTHING, 4: OF_PRUNING, 5: OF_PRUNING, 7: OF_PRUNING},
    "seed": {0: OF_SEEDS, 1: NO_WARNINGS, 3: ASKS_NOTHING, 4: OF_SEEDS, 5: OF_SEEDS, 6: OF_SEEDS, 7: "the same command continues it",
             SIGNAL: OF_SEEDS},
    "start-barrier": {1: _with("--hosts", "2", "--timeout", "0"), 3: ASKS_NOTHING, 4: _not_ours, 5: "it waits for nobody's lock",
                      7: READS},
    "maintain": {1: OF_ITS_STEPS, 3: OF_ITS_STEPS, 4: _no_memory, 5: _memory_locked, 7: OF_ITS_STEPS},
    "undo": {1: WAY_ON, 3: ASKS_NOTHING, 5: _lock("application"), 6: _failing("renameat2", "EIO", "1", "CHANGED"),
             7: _after_the_exchange},
    "status": {1: NO_WARNINGS, 3: ASKS_NOTHING, 5: RUNNING, 7: READS},
    "clean": {1: "of a run that was named, and may have left something elsewhere: test_runs.py", 3: ASKS_NOTHING, 5: _lock("kstate"), 6: _failing("fsync", "EIO", "1", "CHANGED"),
              7: _failing("unlinkat", "EIO", "1", "CHANGED")},
    "explain": {1: NO_WARNINGS, 3: ASKS_NOTHING, 4: NO_DIRECTORY, 5: NO_DIRECTORY, 7: READS},
    "warm-up": {0: OF_SPARK, 1: WAY_ON, 3: ASKS_NOTHING, 4: OF_SPARK, 5: "it waits for another one", 6: OF_SPARK,
                7: "an archive is there whole or not at all", SIGNAL: OF_SPARK},
    "demo": {1: "its warnings are part of the story", 3: ASKS_NOTHING, 4: OWN, 5: OWN, 7: OWN},
    "examples": {1: WAY_ON, 3: ASKS_NOTHING, 4: _with("--out", "."), 5: NEW, 7: NEW},
}  # fmt: skip
"""Of each command what is its own; the rest is the same for all."""
SAME: dict[int, Cell] = {0: _usual, 2: _empty, 4: _link, 6: _disk_full, SIGNAL: _send_signal}
CELLS = [(command, code, {**SAME, **TABLE[command]}.get(code)) for command in COMMANDS for code in CODES]
FAILING = (*((command, 6) for command in (*change_commands(), "undo", "clean")), ("clean", 7))
STRACE = (_after_the_exchange, _summary_lost)


def test_the_table_has_every_command_and_every_code() -> None:
    assert TABLE.keys() == COMMANDS.keys()
    assert not [(command, code) for command, code, cell in CELLS if cell is None]


@pytest.mark.sample(40)
@pytest.mark.parametrize(
    ("command", "code", "cell"),
    [
        pytest.param(
            *cell,
            id=f"{cell[0]}-{cell[1]}",
            marks=[NEEDS_STRACE] if cell[2] in STRACE or cell[:2] in FAILING else [],
        )
        for cell in CELLS
        if not isinstance(cell[2], str)
    ],
)
def test_the_code(command: str, code: int, cell: Cell, warm: Warm, templates: dict[str, Path], tmp_path: Path) -> None:
    ended = cell(World(warm, templates, tmp_path), command)
    assert ended.status == code, ended.report
    assert "defect" not in ended.err


# --- "nothing has changed" --------------------------------------------------------------------------------------------

MESSAGES = {
    "change/commits_made.py": 1,
    "change/engine.py": 1,
    "cli/app.py": 1,
    "cli/views/plan.py": 1,
    "explain/error_codes.py": 1,
    "snapshot/planner.py": 1,
    "snapshot/restoring.py": 1,
}
"""In how many texts of a module. What fails does not say it by itself: one that fails after the exchange knows nothing of
it. Whoever adds one has a test that holds it to its word: see `hold_to_its_word`."""


def test_modules_that_state_that_nothing_has_changed() -> None:
    package = Path(kstate_cli.__file__).parent
    results = {}
    for path in sorted(package.rglob("*.py")):
        # Texts, not comments and docstrings.
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if re.search(r"""["'].*["']""", line)]
        count = sum(1 for line in lines if NOTHING.search(line) and not line.strip().startswith(('"""', "#")))
        if count:
            results[path.relative_to(package).as_posix()] = count
    assert results == MESSAGES

"""
Replay the operations of commands without those that a power failure loses: ``python -m tests.faults.replay --count 600``.

strace records what a command does to its directory, once for each case. A trial draws a moment and what has reached the disk by
then (:mod:`tests.faults.lost_writes`), writes this directory, and runs the next commands on it. The directory must be the old one
or the new one. If the command had ended before the moment, it must be the new one. The same repairs as after a kill must work.

Each row of the record, ``replay.jsonl``, is one trial; trials that the record has are not run again. ``--folder`` should be in
memory: trials need a file system, but nothing of it has to last.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import random
import shutil
import signal
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from kstate_cli.export.files import MANIFEST as EXPORT_MANIFEST

from .case import Case, Sweep
from .cases import DOWN, IN_PARTS, SMALLEST
from .file_operations import STRACE_OPTIONS, Recording, Tree, read_operations
from .forked import Ended, Kstate
from .lost_writes import ORDERS, PowerFailure, draw
from .power import problems
from .restorations import RESTORED_IN_PARTS
from .small import STORES, small
from .trees import meaning
from .trials import Outcome, Record, Trial, defects

RECORD = Path(__file__).with_suffix(".jsonl")
_NAMES = (
    "down-kv up-kv up-window up-versioned undo-down-kv undo-up-kv clean-down-kv wipe-up-few rehome-up-few "
    "restore-lost-4.3-latest-order restore-wiped-4.2-latest-order-prices restore-behind-4.2-customers "
    "restore-resumed-4.2-customers rehome-half-4.2"
)
CASES = {case.name: case for case in (*SMALLEST, *IN_PARTS, *RESTORED_IN_PARTS) if case.name in _NAMES.split()}
_KILLED = Ended(-signal.SIGKILL, "")
_COMPLETED = Ended(0, "")


@dataclasses.dataclass(frozen=True)
class Replay(Trial):
    """What is replayed; `file_system` is how its model orders names that are not synced."""

    seed: int

    @property
    def key(self) -> str:
        """What the record knows this trial by."""
        return f"{self.case} {self.file_system} {self.seed}"

    def failure(self, recording: Recording) -> PowerFailure:
        """Draw the moment."""
        return draw(recording, self.file_system, random.Random(self.key))


@dataclasses.dataclass(frozen=True)
class Row(Outcome, Replay):
    """A line of the record."""

    moment: int = 0
    """After so many operations."""
    operations: int = 0
    """So many are recorded."""
    digest: str = ""
    """Of the directory that the next commands met."""


class Directory:
    """Replays a command that changes an application directory."""

    def __init__(self, case: Case, kstate: Kstate, folder: Path) -> None:
        self.sweep = Sweep(case, kstate, folder, {})
        app = self.sweep.fresh()
        self.app = app
        self.sweep.old = meaning(app)
        self.recording = record(kstate, app, case.command, self.sweep.state().resolve())
        self.sweep.new = meaning(app)
        self._meanings: dict[str, str] = {}

    def judge(self, tree: Tree, *, has_ended: bool, turn: int) -> tuple[str, list[str]]:
        """Return what the directory is, and what is wrong with it or after the next commands."""
        state = self.sweep.state().resolve()
        shutil.rmtree(state.parent)
        state.parent.mkdir()
        tree.write(state)
        which = self._which(tree)
        wrong = problems(self.sweep, _COMPLETED if has_ended else _KILLED, which)
        if self.app.exists():
            wrong += defects(self.sweep.kstate(self.app, ("status",)))
        repairs = self.sweep.case.repairs
        return which, wrong + self.sweep.repaired(self.app, repairs[turn % len(repairs)])

    def _which(self, tree: Tree) -> str:
        """Compare the directory, once for each content that it has in any trial."""
        number = tree.find(self.app.name)
        digest = digest_of(tree, self.app.name) if number is not None else ""
        if digest not in self._meanings:
            self._meanings[digest] = self.sweep.which(self.app)
        return self._meanings[digest]


class Output(ABC):
    """Replays a command that writes versions of something to a folder, which is not an application directory."""

    def __init__(self, kstate: Kstate, folder: Path, before: int) -> None:
        """Write `before` versions, and record the next one."""
        self.kstate = kstate
        self.disk = (folder / "disk").resolve()
        self.disk.mkdir(parents=True)
        # The command creates two folders.
        self.path = self.disk / "backup" / "output"
        self.folder = folder
        self.before = before
        self.prepare()
        for number in range(before):
            ended = self.write(number)
            assert ended.status == 0, ended.output
        tree = Tree.read(self.disk)
        with self.tracing():
            ended = self.write(before)
        assert ended.status == 0, ended.output
        self.recording = read_operations(ended.traced, tree, self.disk)

    @abstractmethod
    def prepare(self) -> None:
        """Create what the command reads."""

    @abstractmethod
    def write(self, number: int) -> Ended:
        """Run the command."""

    def tracing(self) -> AbstractContextManager[object]:
        """Return the context in which strace is attached."""
        return self.kstate.under(*STRACE_OPTIONS)

    @abstractmethod
    def versions(self) -> tuple[int, list[str]]:
        """Return the number of versions, and what is wrong with them."""

    def judge(self, tree: Tree, *, has_ended: bool, turn: int) -> tuple[str, list[str]]:
        """Return whether the version exists, and what is wrong with it or with the next one."""
        shutil.rmtree(self.disk)
        tree.write(self.disk)
        count, wrong = self.versions()
        if has_ended and count != self.before + 1:
            wrong.append(f"the command ended with 0, and there are {count} versions")
        wrong += self.counts(count) + defects(ended := self.write(turn % 2))
        if ended.status:
            wrong.append(f"the next one: exit {ended.status}: {ended.output[-800:]}")
        return "new" if count == self.before + 1 else "old", wrong + self.after(count, turn % 2)

    def counts(self, count: int) -> list[str]:
        """Return what is wrong with the number of versions before the command has ended."""
        return [] if count in (self.before, self.before + 1) else [f"{count} versions"]

    def after(self, count: int, number: int) -> list[str]:
        """Return what is wrong after the next version, whose number is also that of its input."""
        now, wrong = self.versions()
        return wrong if now == count + 1 else [*wrong, f"{now} versions after the next one"]


class Repository(Output):
    """Replays the first snapshot of a repository, or one of an application with other stores."""

    def prepare(self) -> None:
        """Create two applications."""
        self.apps = [
            small(DOWN.golden, self.folder / str(at) / "state", STORES[2 * at : 2 * at + 2]) for at in range(2)
        ]

    def write(self, number: int) -> Ended:
        """Take a snapshot."""
        return self.kstate(self.apps[number], ("snapshot", "--out", str(self.path), "--quiet"))

    def versions(self) -> tuple[int, list[str]]:
        """Verify each byte of the repository."""
        count = len(list((self.path / "generations").glob("2*.json")))
        if not count:
            return 0, []
        ended = self.kstate(self.path, ("verify-snapshots",))
        return count, [] if ended.status == 0 else [f"verify-snapshots: exit {ended.status}: {ended.output[-800:]}"]


class Export(Output):
    """Replays an export into a new folder, or over an older export: then no export is complete for a while."""

    def prepare(self) -> None:
        """Create the application, and both exports in another place."""
        self.app = small(DOWN.golden, self.folder / "state", STORES[:1])
        self.contents: dict[int, dict[str, bytes]] = {}
        usual, self.path = self.path, self.folder / "elsewhere"
        for number in range(2):
            ended = self.write(number)
            assert ended.status == 0, ended.output
            self.contents[number] = {path.name: path.read_bytes() for path in self.path.iterdir()}
        self.path = usual

    def write(self, number: int) -> Ended:
        """Export keys as bytes or as text."""
        serde = ("bytes", "string")[number]
        command = ("export", STORES[0], "--out", str(self.path), "--overwrite", "--key-serde", serde, "--quiet")
        return self.kstate(self.app, command)

    def versions(self) -> tuple[int, list[str]]:
        """Return which export is complete: with a manifest, it must have its files."""
        if not (self.path / EXPORT_MANIFEST).exists():
            return 0, []
        files = {path.name: path.read_bytes() for path in self.path.iterdir() if path.is_file()}
        numbers = [number for number, content in self.contents.items() if content == files]
        return (numbers[0] + 1, []) if numbers else (0, [f"the export with a manifest is incomplete: {sorted(files)}"])

    def counts(self, count: int) -> list[str]:
        """Return nothing: an old export that is being replaced may be incomplete."""
        return []

    def after(self, count: int, number: int) -> list[str]:
        """Compare the bytes of the next export."""
        return [] if self.versions() == (number + 1, []) else ["the next export is incomplete"]


Subject = Directory | Output
OUTPUTS: dict[str, tuple[type[Output], int]] = {
    "snapshot-first": (Repository, 0),
    "snapshot-second": (Repository, 1),
    "export-first": (Export, 0),
    "export-again": (Export, 1),
}
"""Commands that write versions, and the number of versions before."""


def subject_of(name: str, kstate: Kstate, folder: Path) -> Subject:
    """Record the command of a case."""
    if name in OUTPUTS:
        subject, before = OUTPUTS[name]
        return subject(kstate, folder, before)
    return Directory(CASES[name], kstate, folder)


def record(kstate: Kstate, app: Path, command: tuple[str, ...], folder: Path) -> Recording:
    """Run a command under strace, and return its operations on a folder."""
    before = Tree.read(folder)
    with kstate.under(*STRACE_OPTIONS):
        ended = kstate(app, command)
    assert ended.status == 0, ended.output
    return read_operations(ended.traced, before, folder)


def digest_of(tree: Tree, path: str = "") -> str:
    """Return a digest of names and bytes below a path."""
    digest = hashlib.sha256()
    for name, number in sorted(tree.paths()):
        if name == path or name.startswith(f"{path}/" if path else ""):
            entry = tree.entries[number]
            digest.update(f"{name}\0{entry.mode}\0{len(entry.content)}\0".encode() + entry.content)
    return digest.hexdigest()[:16]


def run(subject: Subject, trial: Replay) -> Row:
    """Run one trial."""
    began = time.monotonic()
    failure = trial.failure(subject.recording)
    count = len(subject.recording.operations)
    tree = failure.remains(subject.recording)
    has_ended = failure.moment == count
    which, wrong = subject.judge(tree, has_ended=has_ended, turn=trial.seed)
    return Row(
        **dataclasses.asdict(trial), status=0 if has_ended else -signal.SIGKILL, directory=which, wrong="; ".join(wrong),
        seconds=round(time.monotonic() - began, 2), moment=failure.moment, operations=count, digest=digest_of(tree),
    )  # fmt: skip


def trials(count: int) -> list[Replay]:
    """Return the first trials: seeds, then cases, then orders take turns."""
    names = [*CASES, *OUTPUTS]
    rounds = -(-count // (len(names) * len(ORDERS)))
    return [Replay(name, order, seed) for seed in range(rounds) for name in names for order in ORDERS][:count]


def run_all(rows: list[Replay], folder: Path, report: Callable[[Row], None]) -> None:
    """Run trials, those of one case after each other."""
    with Kstate() as kstate:
        for name in dict.fromkeys(row.case for row in rows):
            (folder / name).mkdir()
            subject = subject_of(name, kstate, folder / name)
            for trial in (row for row in rows if row.case == name):
                report(run(subject, trial))
            shutil.rmtree(folder / name)


def main() -> int:
    """Run what the record lacks, and print figures; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--case", choices=[*CASES, *OUTPUTS], action="append")
    parser.add_argument("--folder", type=Path, help="the folder for the directories, for example /dev/shm")
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    file = Record(options.record, Row)
    there = file.rows()
    rows = [row for row in trials(options.count) if not options.case or row.case in options.case]
    with tempfile.TemporaryDirectory(prefix="kstate-replay-", dir=options.folder) as folder:
        run_all([row for row in rows if row.key not in there], Path(folder), file.add)
    recorded = file.rows().values()
    figures = Counter((row.case, row.file_system, row.directory[:7]) for row in recorded)
    for (case, order, directory), count in sorted(figures.items()):
        print(f"{case:40} {order:10} {directory:8} {count:5}")
    print(f"{len({(row.case, row.digest) for row in recorded})} different directories")
    return file.summarize("replays")


if __name__ == "__main__":
    sys.exit(main())

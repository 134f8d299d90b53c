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
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .case import Case, Repair, Sweep
from .cases import IN_PARTS, PARTS, SMALLEST, fresh
from .file_operations import STRACE_OPTIONS, Names, Recording, Sync, Tree, read_operations
from .forked import Ended, Kstate
from .lost_writes import ORDERS, PowerFailure, draw, durable_part
from .outputs import Dump, Export, Output, Repository
from .power import problems
from .restorations import RESTORED_IN_PARTS
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

    def close(self) -> None:
        """Do nothing."""

    def _which(self, tree: Tree) -> str:
        """Compare the directory, once for each content that it has in any trial."""
        number = tree.find(self.app.name)
        digest = digest_of(tree, self.app.name) if number is not None else ""
        if digest not in self._meanings:
            self._meanings[digest] = self.sweep.which(self.app)
        return self._meanings[digest]


class Folder:
    """Replays a command that writes a version of something to a folder."""

    def __init__(self, kind: type[Output], before: int, kstate: Kstate, folder: Path) -> None:
        """Write `before` versions, and record the next one."""
        self.disk = (folder / "disk").resolve()
        self.disk.mkdir(parents=True)
        self.before = before
        # The command creates both folders.
        self.output = kind(kstate, folder, self.disk / "backup" / "output")
        for number in range(before):
            ended = self.output.write(number)
            assert ended.status == 0, ended.output
        self.recording = record(self.output.kstate, *self.output.command(before), self.disk)

    def judge(self, tree: Tree, *, has_ended: bool, turn: int) -> tuple[str, list[str]]:
        """Return whether the version exists, and what is wrong with it or with the next one."""
        shutil.rmtree(self.disk)
        tree.write(self.disk)
        count, wrong = self.output.versions()
        expected = {self.before + 1} if has_ended else {self.before, self.before + 1}
        if count not in expected and (has_ended or self.output.keeps_earlier):
            wrong.append(f"{count} versions instead of {sorted(expected)}")
        number = turn % 2
        ended = self.output.write(number)
        now, more = self.output.versions()
        wrong += defects(ended) + more
        if ended.status or now != (count if self.output.keeps_earlier else number) + 1:
            wrong.append(f"the next one: exit {ended.status}, {now} versions: {ended.output[-800:]}")
        return "new" if count == self.before + 1 else "old", wrong

    def close(self) -> None:
        """End what the command needs."""
        self.output.close()


Subject = Directory | Folder
OUTPUTS: dict[str, tuple[type[Output], int]] = {
    "snapshot-first": (Repository, 0),
    "snapshot-second": (Repository, 1),
    "export-first": (Export, 0),
    "export-again": (Export, 1),
    "dump-first": (Dump, 0),
    "dump-again": (Dump, 1),
}
"""Commands that write versions, and the number of versions before."""


def subject_of(name: str, kstate: Kstate, folder: Path) -> Subject:
    """Record the command of a case."""
    if name in OUTPUTS:
        return Folder(*OUTPUTS[name], kstate, folder)
    return Directory(CASES[name], kstate, folder)


def _interrupt(kstate: Kstate, state: Path, *, is_swapped: bool) -> Path:
    """Make a directory whose migration a power failure has interrupted right before or after the swap."""
    app = fresh(_DIRECTION, state)
    recording = record(kstate, app, _DIRECTION.migrate, state.resolve())
    names = [operation.call if isinstance(operation, Names) else "" for operation in recording.operations]
    moment = names.index("renameat2")
    if is_swapped:
        syncs = (at for at in range(moment, len(names)) if isinstance(recording.operations[at], Sync))
        # Both folders are synced.
        moment = [next(syncs), next(syncs)][-1] + 1
    shutil.rmtree(state)
    durable_part(Recording(recording.before, recording.operations[:moment])).write(state)
    return app


def _after_failure(name: str, command: tuple[str, ...], releases: dict[str, str], *, is_swapped: bool) -> Case:
    """Return the case of a command whose power fails after an earlier power failure."""
    return Case(
        name,
        lambda kstate, state: _interrupt(kstate, state, is_swapped=is_swapped),
        command,
        releases,
        (Repair(command, "new"),),
    )


_DIRECTION = PARTS[0]
_RELEASES = {"old": _DIRECTION.source, "new": _DIRECTION.target}
_AGAIN = (
    _after_failure("down-kv-after-failure", _DIRECTION.migrate, _RELEASES, is_swapped=False),
    _after_failure(
        "undo-down-kv-after-failure", ("undo",), {"old": _DIRECTION.target, "new": _DIRECTION.source}, is_swapped=True
    ),
)
CASES |= {case.name: case for case in _AGAIN}


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
            try:
                for trial in (row for row in rows if row.case == name):
                    report(run(subject, trial))
            finally:
                subject.close()
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

"""Signals at every phase of a whole restoration on real Spark, its start and its stop included.

A moment is something that can be seen from outside: a line on standard error, a process, a note in the staging folder.
There the command is struck, in four ways; then the same command is run again, as the message says.

``python -m tests.restore.signals FOLDER`` strikes all of them and prints the totals.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.make_dump import make_dump

from . import support

SECONDS = 600
"""Much more than a restoration takes, on a machine that does much else."""
IN_TURN = ("--master", "local[1,4]")
"""Two slices, one after the other."""


class Watched:
    """A restoration that goes on, as it is seen from outside."""

    def __init__(self, app: Path, dump: Path) -> None:
        self.app = app
        self.scratch = app.parent.parent / "scratch"
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self.process = subprocess.Popen(
            support.command(app, dump, *IN_TURN),
            env={**support.environment(), "TMPDIR": str(self.scratch)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.sessions: set[int] = set()
        """Sessions that were begun below it: Spark's."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def ended(self) -> tuple[int, str]:
        """Waits for its end; the exit status (of one that hangs it is that of SIGABRT), and what it said."""
        try:
            status = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)
            status = self.process.wait()
        self._reader.join(300)
        return status, "".join(self.lines)

    def has_line(self, **members: str) -> bool:
        """Whether there was an event with these members."""
        return any(members.items() <= event.items() for event in self.events())

    def events(self) -> list[dict[str, str]]:
        """JSON lines on standard error."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{") and line.endswith("\n")]

    def spark(self) -> dict[int, str]:
        """The processes of Spark by their command lines."""
        results = {}
        for pid, parent, session in processes():
            if parent == self.process.pid and session == pid:
                self.sessions.add(pid)
            if session in self.sessions:
                with contextlib.suppress(OSError):
                    results[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        return results

    def notes(self, suffix: str) -> int:
        """Notes of this run (the newest) in its staging folder."""
        runs = sorted((self.app.parent / ".kstate" / self.app.name).glob("*/runs"))
        return (
            len(list(runs[-1].glob(f"*{suffix}")))
            if runs and self.has_line(type="state", restoration="RESTORING")
            else 0
        )


def processes() -> list[tuple[int, int, int]]:
    """(pid, parent, session) of all that live."""
    results = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                state, parent, _, session = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:4]
                if state not in ("Z", "X"):
                    results.append((int(name), int(parent), int(session)))
    return results


@dataclass(frozen=True)
class Moment:
    """When to strike, and up to how many seconds after that."""

    phase: str
    name: str
    has_come: Callable[[Watched], bool]
    later: float = 0.0
    switched: bool | None = False
    """Whether the new directory is in place then; None where either may be."""


def _java(run: Watched) -> bool:
    return any(
        "org.apache.spark.deploy.SparkSubmit" in line and "java" in line.split(" ")[0] for line in run.spark().values()
    )


def _worker(run: Watched) -> bool:
    return any("pyspark.daemon" in line for line in run.spark().values())


def _spark_ends(run: Watched) -> bool:
    return run.notes(".done") > 1 and not _worker(run) and bool(run.sessions)


def _spark_ended(run: Watched) -> bool:
    return run.notes(".done") > 1 and not run.spark() and bool(run.sessions)


MOMENTS = (
    Moment("before the run", "the directory is made", lambda run: run.app.exists(), 0.1),
    Moment("before the run", "the plan is shown", lambda run: run.has_line(type="plan")),
    Moment("Spark starts", "Spark is to start", lambda run: run.has_line(type="phase", phase="spark")),
    Moment("Spark starts", "its script runs", lambda run: bool(run.spark()), 0.2),
    Moment("Spark starts", "its JVM runs", _java, 0.3),
    Moment("Spark starts", "its JVM has run for a while", _java, 3.0),
    Moment("Spark starts", "its first worker runs", _worker, 0.3),
    Moment("slices", "slices are assigned", lambda run: run.has_line(type="state", restoration="RESTORING"), 0.1),
    Moment("slices", "a slice has begun", lambda run: run.notes(".started") > 0, 0.3),
    Moment("slices", "a slice is finished", lambda run: run.notes(".done") > 0, 0.05),
    Moment("Spark stops", "every slice is finished", lambda run: run.notes(".done") > 1, 0.1),
    Moment("Spark stops", "its workers have ended", _spark_ends, 0.1),
    Moment("Spark stops", "its JVM has ended", _spark_ended),
    Moment("taking in", "staging", lambda run: run.has_line(type="phase", phase="stage"), 0.02),
    Moment("switch", "switching", lambda run: run.has_line(type="phase", phase="switch"), 0.02, None),
)


@dataclass(frozen=True)
class Way:
    """How to strike."""

    name: str
    number: signal.Signals
    whole_group: bool = False
    """The whole process group, and all that the command has started, as systemd does it."""

    def strike(self, run: Watched) -> None:
        if self.whole_group:
            others = list(run.spark())
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.process.pid, self.number)
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, self.number)
            return
        run.process.send_signal(self.number)


WAYS = (
    Way("INT", signal.SIGINT),
    Way("TERM", signal.SIGTERM),
    Way("TERM to all", signal.SIGTERM, whole_group=True),
    Way("KILL", signal.SIGKILL),
)


@dataclass
class Signals:
    """Strikes at a restoration of one dump."""

    folder: Path
    dump: Path
    expected: dict[str, str]
    seed: int = 1
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(phase, way): how often."""
    ended: Counter[str] = field(default_factory=Counter)
    """How a run that was struck ended, and how those that followed did."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._app = self.folder / "state" / support.APP

    def fresh(self) -> None:
        """Nothing is there."""
        shutil.rmtree(self._app.parent, ignore_errors=True)
        self._app.parent.mkdir(parents=True)

    def strike(self, moment: Moment, way: Way) -> list[str]:
        """Starts a restoration and strikes it; what was wrong."""
        run = Watched(self._app, self.dump)
        deadline = time.monotonic() + SECONDS
        while not moment.has_come(run):
            if run.process.poll() is not None or time.monotonic() > deadline:
                run.process.kill()
                ended = run.ended()
                if any(event.get("slices") == event.get("of") for event in run.events() if event["type"] == "resumed"):
                    # Those that were struck before it have left it nothing to do: there is no such moment.
                    self.fresh()
                    return self.strike(moment, way)
                return [f"the moment never came: {ended}"]
            time.sleep(0.002)
        time.sleep(self._random.random() * moment.later)
        run.spark()
        if moment.switched is False and run.has_line(type="phase", phase="switch"):
            # The run was quicker than the one that looks: this is another moment already.
            run.process.kill()
            run.ended()
            self.fresh()
            return self.strike(moment, way)
        way.strike(run)
        status, text = run.ended()
        self.struck[moment.phase, way.name] += 1
        wrong = self._looked_at(run, moment, way, status, text)
        return [f"{entry}\n{text[-3000:]}" for entry in wrong]

    def _looked_at(self, run: Watched, moment: Moment, way: Way, status: int, text: str) -> list[str]:
        wrong = ["a traceback"] if "Traceback" in text else []
        killed = way.number is signal.SIGKILL
        # Once all is done the interpreter ends, and a signal meets its default action, which shells call 128+N, or nobody.
        late = moment.switched is None and status in (0, -way.number) and '"NOT_RUNNING"' in text
        if status != (-way.number if killed else 128 + way.number) and not late:
            wrong.append(f"exit {status}")
        wrong += self._processes(run, at_once=not killed)
        now = support.digest(self._app) if self._app.exists() else {}
        switched = bool(now)
        if now not in ({}, self.expected) or (moment.switched is not None and switched != moment.switched):
            wrong.append(f"the directory has {now}")
        states = [event["restoration"] for event in run.events() if event.get("type") == "state"]
        if not killed:
            if states and states[-1] != "NOT_RUNNING":
                wrong.append(f"the states were {states}")
            if not switched and "nothing has changed; " not in text:
                wrong.append("it does not say that nothing has changed")
            if not switched and "run the same command again" not in text:
                wrong.append("it does not say what to do")
            if names := sorted(path.name for path in run.scratch.iterdir() if "hsperfdata" not in path.name):
                wrong.append(f"left in TMPDIR: {names}")
        output = support.status(self._app)[-1:] if (self._app.parent / ".kstate" / self._app.name).exists() else []
        texts = {"INTERRUPTED", "NOT_RUNNING", None} if killed else {"NOT_RUNNING", None}
        wrong += [f"its state is {row['restoration']}" for row in output if row["restoration"] not in texts]
        outcome = "the new directory" if switched else "the old directory"
        outcome += ", all was done before it came" if late and not killed else ""
        self.ended["killed" if killed else f"exit 128+N, {states[-1] if states else 'no run'}, {outcome}"] += 1
        if switched:
            self.fresh()
        return wrong

    def _processes(self, run: Watched, *, at_once: bool) -> list[str]:
        """Of Spark nothing is left; after a kill it notices by itself."""
        deadline = time.monotonic() + (0 if at_once else 60)
        while (spark := run.spark()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [f"still running: {spark}"] if spark else []

    def again(self) -> list[str]:
        """The same command once more, undisturbed; what was wrong."""
        run = Watched(self._app, self.dump)
        status, text = run.ended()
        resumed = [event for event in run.events() if event.get("type") == "resumed"]
        wrong = [] if status == 0 else [f"exit {status} when run again"]
        if support.digest(self._app) != self.expected:
            wrong.append("other rows when run again")
        if remainder := support.remaining_files(self._app):
            wrong.append(f"left behind: {remainder}")
        if not wrong:
            choice = f", {resumed[0]['slices']} of {resumed[0]['of']} slices taken over" if resumed else ""
            self.ended[f"run again: done{choice}"] += 1
        return [f"{entry}\n{text[-3000:]}" for entry in wrong]


def prepare(folder: Path) -> Signals:
    """A dump, and what restoring it gives without any trouble."""
    dump = folder / "dump"
    make_dump(dump, support.TOPIC, records=40_000, keys=10_000, value_bytes=100, partitions=2)
    app = folder / "expected" / support.APP
    app.parent.mkdir()
    support.good(support.restore(app, dump, *IN_TURN))
    return Signals(folder, dump, support.digest(app))


def main() -> int:
    """All signals at all moments."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    signals = prepare(folder)
    moments = [moment for moment in MOMENTS if not sys.argv[2:] or moment.name in sys.argv[2:]]
    failed = 0
    for moment in moments:
        signals.fresh()
        for way in WAYS:
            wrong = signals.strike(moment, way)
            failed += bool(wrong)
            print(f"{moment.phase}: {moment.name}: {way.name}: {wrong or 'good'}", flush=True)
        wrong = signals.again()
        failed += bool(wrong)
        print(f"{moment.phase}: {moment.name}: again: {wrong or 'good'}", flush=True)
    phases = list(dict.fromkeys(moment.phase for moment in moments))
    for phase in phases:
        print(phase, {way.name: signals.struck[phase, way.name] for way in WAYS})
    for outcome, times in sorted(signals.ended.items()):
        print(f"{times:4d} {outcome}")
    print(f"{sum(signals.struck.values())} signals, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

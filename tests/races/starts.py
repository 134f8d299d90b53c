"""
Real Kafka Streams starts at any moment of a command that changes its directory, or the command begins while Streams starts.

One side has the lock, and the other one fails or waits. Afterwards Kafka Streams starts once more: it must find a valid
directory, and restore nothing that the command did not remove. For ``rehome``, Kafka Streams starts with the new topology. If it
starts too early, it restores its stores, and ``rehome`` must replace them all the same.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from tests.faults.forked import Ended, Kstate
from tests.interop.harness import App, Batch, Harness, Run
from tests.interop.jvm import Reply
from tests.interop.restoring import changelogs, dump_changelogs, line, write_spec
from tests.interop.support import restored_records

from .pairs import unfinished_runs, with_repository
from .record import Race, Row

STREAMS = "Kafka Streams"
RELEASES = {STREAMS: "4.3.1", f"{STREAMS} 4.2.1": "4.2.1"}
"""Participant -> the release that it is."""
BATCH = Batch(records=60, keys=10, partitions=1)
WIPED = "latest-order"
_QUIET = ("--quiet", "--workers", "1", "--warnings-ok")
_NEW_STORE = 'format = 1\n[stores.new-count]\nkind = "timestamped-key-value"\n'
COMMANDS: dict[str, tuple[str, ...]] = {
    "migrate": ("migrate", "--to", "{older}", *_QUIET),
    "undo": ("undo",),
    "wipe": ("wipe", "--store", WIPED, *_QUIET),
    "clean": ("clean",),
    "snapshot": ("snapshot", "--quiet"),
    "restore": ("restore", "--rebuild", "--from-changelog", "{dump}", "--spec", "{spec}", "--for", "{line}", "--engine", "local", *_QUIET),
    "rehome": ("rehome", "--topology", "{new}", "--from", "{old}", "--spec", "{spec}", *_QUIET),
    "maintain": ("maintain", "--config", "{config}", "--quiet", "--warnings-ok"),
}  # fmt: skip
"""Commands on a directory with the backup of a run that has changed nothing that Kafka Streams reads."""
OLDER = {"4.3.1": "4.2", "4.2.1": "3.9"}
"""Release -> a line whose directories it opens, although ``migrate`` has something to do."""
_CONFIG = """
[defaults]
directory = "{app}"
release = "{line}"
guarantee = "exactly_once_v2"

[maintain]
memory_file = "{folder}/memory.json"

[maintain.snapshot]
out = "{folder}/repository"
[maintain.check]
[maintain.verify]
[maintain.clean]
older_than = "1m"
"""
WAITS = ("--wait", "60")
CAN_WAIT = frozenset(COMMANDS) - {"maintain"}
ENDS = {0, 1, 4, 5}
FINDINGS = 3
IN_USE = 5
_ENDS_MS = 2500
"""About how long a run of Kafka Streams lasts, in ms: a command may also begin when it closes."""
_LOCKED = ("Unable to initialize state", "already locked", "lock")
_CLOSED_AT_ONCE = {"session.timeout.ms": "6000", "internal.leave.group.on.close": "true"}


def races(count: int) -> list[Race]:
    """The first races: commands and releases take turns."""
    kinds = [*product(COMMANDS, RELEASES)]
    return [Race("streams", *kinds[number % len(kinds)], number // len(kinds)) for number in range(count)]


@dataclass(frozen=True)
class Stage:
    """An application of real Streams: its directory, of which each race gets a copy, and the files that commands read."""

    folder: Path
    release: str
    app: App
    started: App
    """What starts in a race: for ``rehome`` the application with its new topology."""
    always: frozenset[str]
    """Stores in memory: every start restores them."""

    @property
    def template(self) -> Path:
        """A state.dir as Streams closed it."""
        return self.folder / "template"

    @property
    def state(self) -> Path:
        """The state.dir of a race."""
        return self.folder / "w" / "state"

    def command(self, name: str) -> tuple[str, ...]:
        """Return a command with its files."""
        values = {
            "older": OLDER[self.release],
            "line": line(self.release),
            **{file: str(self.folder / file) for file in ("dump", "spec", "old", "new", "config")},
        }
        return with_repository(tuple(word.format(**values) for word in COMMANDS[name]), self.state)

    def fresh(self) -> Path:
        """Return the application directory in a new copy of the template."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.state.parent)
        self.state.parent.mkdir(parents=True)
        subprocess.run(["cp", "-a", str(self.template), str(self.state)], check=True)
        for file in self.folder.glob("memory.json*"):
            file.unlink()
        return (self.state / self.app.name).resolve()


@dataclass
class Lab:
    """Runs races in a folder."""

    folder: Path
    kstate: Kstate
    harness: Harness
    _stages: dict[tuple[str, bool], Stage] = field(default_factory=dict)
    _seconds: dict[tuple[str, str], float] = field(default_factory=dict)

    def run(self, race: Race) -> Row:
        """Run a race, and judge what it leaves."""
        began = time.monotonic()
        generator = race.draw()
        stage = self._stage(RELEASES[race.second], homes=race.first == "rehome")
        usual = self._usual(stage, race.first)
        # Negative: the command begins after the start of Streams.
        delay = generator.uniform(-_ENDS_MS / 1000, usual)
        waits = race.first in CAN_WAIT and generator.random() < 0.5
        directory = stage.fresh()
        command = stage.command(race.first) + (WAITS if waits else ())
        ended, start = self._together(stage, directory, command, delay)
        wrong = self._problems(stage, directory, race.first, ended, start, waits=waits)
        outcome = f"{'Streams ran' if start.rc == 0 else 'Streams failed'}, exit {ended.status}"
        return Row(
            race.kind, race.first, race.second, race.seed, round(delay * 1000), (ended.status, start.rc), outcome,
            "; ".join(wrong), round(time.monotonic() - began, 2),
        )  # fmt: skip

    def _together(self, stage: Stage, directory: Path, command: tuple[str, ...], delay: float) -> tuple[Ended, Reply]:
        """Run the command, and start and stop Streams `delay` seconds later (before it if negative)."""
        replies: list[Reply] = []

        def start() -> None:
            time.sleep(max(0.0, delay))
            replies.append(self._start(stage, directory))

        thread = threading.Thread(target=start)
        thread.start()
        time.sleep(max(0.0, -delay))
        ended = self.kstate(directory, command)
        thread.join()
        assert replies, "the JVM has ended"
        return ended, replies[0]

    def _problems(
        self, stage: Stage, directory: Path, name: str, ended: Ended, start: Reply, *, waits: bool
    ) -> list[str]:
        wrong = []
        # maintain checks and verifies a directory that Streams has open.
        ends = ENDS | {FINDINGS} if name == "maintain" else ENDS
        if ended.status not in ends or "Traceback" in ended.output or "defect" in ended.output:
            wrong.append(f"exit {ended.status}: {ended.output[-1000:]}")
        # A snapshot waits for commands of kstate only: Streams may run for days.
        if waits and ended.status == IN_USE and name != "snapshot":
            wrong.append(f"did not wait: {ended.output[-400:]}")
        changed = ended.status in (0, 1)
        removed = {WIPED} if name == "wipe" and changed else set()
        if name == "rehome":
            # A start before rehome fails, or restores what is not at its new place. rehome must then succeed all the same.
            judged = []
            if not changed:
                repeated = self.kstate(directory, (*stage.command(name), "--wipe-unclean"))
                if repeated.status not in (0, 1):
                    wrong.append(f"again: exit {repeated.status}: {repeated.output[-1000:]}")
        else:
            judged = [start]
            if start.rc and not (start.rc == 3 and any(word in start.report() for word in _LOCKED)):
                wrong.append(f"Streams: {start.rc} {start.report()[-1500:]}")
            wrong += [f"restored {store} in the race" for store in _stores(start) - removed - stage.always]
        wrong += unfinished_runs(directory)
        again = self._start(stage, directory)
        if again.rc:
            wrong.append(f"Streams afterwards: {again.rc} {again.report()[-1500:]}")
        if any("orrupted" in str(event["text"]) for reply in (*judged, again) for event in reply.of("log")):
            wrong.append("a task was wiped")
        # What the start of the race has restored already is not restored again.
        wrong += [f"restored {store} afterwards" for store in _stores(again) - removed - stage.always]
        cleaned = self.kstate(directory, ("clean",))
        if cleaned.status:
            wrong.append(f"clean afterwards: exit {cleaned.status}: {cleaned.output[-400:]}")
        return wrong

    def _start(self, stage: Stage, directory: Path) -> Reply:
        run = Run(read=False, conf=dict(_CLOSED_AT_ONCE), options={"timeout": 60})
        return self.harness.run(stage.release, stage.started, directory.parent, run)

    def _usual(self, stage: Stage, name: str) -> float:
        """The seconds of a command alone."""
        key = stage.release, name
        if key not in self._seconds:
            directory = stage.fresh()
            began = time.monotonic()
            ended = self.kstate(directory, stage.command(name))
            assert ended.status in (0, 1), ended.output
            self._seconds[key] = time.monotonic() - began
        return self._seconds[key]

    def _stage(self, release: str, *, homes: bool) -> Stage:
        """Prepare an application, once."""
        if (release, homes) not in self._stages:
            self._stages[release, homes] = self._prepared(release, homes=homes)
        return self._stages[release, homes]

    def _prepared(self, release: str, *, homes: bool) -> Stage:
        """The directory as Streams closed it, with the backup of a run that has changed nothing that Streams reads."""
        name = f"races-{'homes' if homes else 'demo'}-{release.replace('.', '')}"
        app = App(name, "homes-a" if homes else "demo", "eos")
        always = frozenset({"in-memory"} if homes else ())
        folder = self.folder / name
        folder.mkdir(parents=True)
        started = replace(app, topology="homes-b") if homes else app
        stage = Stage(folder, release, app, started, always)
        self.harness.produce(release, app, BATCH)
        starts = []
        for _ in range(2):  # the second start finds what the first one closed
            run = Run(
                read=False, conf=dict(_CLOSED_AT_ONCE), options={"describe-into": str(folder / "old"), "timeout": 60}
            )
            reply = self.harness.run(release, app, stage.template, run)
            assert reply.rc == 0, reply.report()
            starts.append(reply)
        directory = stage.template / app.name
        if homes:
            copied = folder / "tried"
            subprocess.run(["cp", "-a", str(stage.template), str(copied)], check=True)
            self.harness.run(release, started, copied, Run(read=False, options={"describe-into": str(folder / "new")}))
            (folder / "spec").write_text(_NEW_STORE, encoding="utf-8")
        else:
            dump_changelogs(self.harness, release, changelogs(starts[0]), folder / "dump")
            write_spec(directory, folder / "spec", global_topic="")
        config = _CONFIG.format(app=stage.state / app.name, line=line(release), folder=folder)
        (folder / "config").write_text(f"format = 1\n{config}", encoding="utf-8")
        for command in (stage.command("migrate"), ("migrate", "--to", line(release), *_QUIET)):
            ended = self.kstate(directory, command)
            assert ended.status == 0, ended.output
        return stage


def _stores(reply: Reply) -> set[str]:
    """The stores that a start has restored."""
    return set(restored_records(reply)) if reply.of("summary") else set()

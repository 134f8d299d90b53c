"""
Real Kafka Streams on what a fault has left, before any repair.

At each step of the switch (the announcement in the journal, its sync, the exchange, the syncs after it, the record) kstate is
killed or its call fails. Then the release that the directory is for is started in place: it must restore nothing into a
persistent store, wipe nothing, and serve exactly what it served before. Only then kstate runs again.

By default kstate is killed at five steps, three of them in each direction, with a small application; KSTATE_FAULTS=all takes the topology with every kind
of store, and does every step, with an I/O error as well, of a migration and of its undo.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kstate_cli.change.marks import MARKS
from tests.interop import dumps
from tests.interop.harness import App, Batch, Harness, Run
from tests.interop.jvm import Reply

from .case import Case, Sweep
from .forked import Kstate
from .injection import EIO, KILL, Fault, Step
from .sweep import ALL, around_the_switch

pytestmark = pytest.mark.interop

TOPOLOGY = "kinds" if ALL else "demo"
BATCH = Batch(records=120, keys=10, partitions=1)
STEPS = 7
IN_SHORT = {"4.3.1": (0, 2, 3), "4.2.1": (1, 3, 5)}
"""The announcement, its sync, before the exchange, after it (before the sync of the parent), the record: by the source."""
WAYS = [("4.3.1", "4.2.1", "migrate"), ("4.2.1", "4.3.1", "migrate")]
if ALL:
    WAYS += [(source, target, "undo") for source, target, _ in WAYS]


@pytest.fixture(scope="module")
def streams() -> Iterator[Harness]:
    """A broker, and a JVM for each release."""
    with Harness() as started:
        yield started


@dataclass(frozen=True)
class Application:
    """An application as one release left it, and what that release serves from it after a restart."""

    app: App
    base: Path
    reference: Path
    source: str
    target: str

    @property
    def migrate(self) -> tuple[str, ...]:
        """The command line; a store without a changelog is a warning."""
        return ("migrate", "--to", self.target.rpartition(".")[0], "--quiet", "--workers", "1", "--warnings-ok")

    def case(self, command: str) -> Case:
        """The migration, or its undo."""
        releases = {"old": self.source, "new": self.target}
        if command == "migrate":
            return Case("migrate", lambda _, state: self.copy(state), self.migrate, releases, ())
        return Case("undo", self._migrated, ("undo",), {"old": self.target, "new": self.source}, ())

    def copy(self, state: Path) -> Path:
        """The state directory, with the times that its files had."""
        state.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", str(self.base), str(state)], check=True)
        return state.resolve() / self.app.name

    def _migrated(self, kstate: Kstate, state: Path) -> Path:
        app = self.copy(state)
        result = kstate(app, self.migrate)
        assert result.status == 0, result.output
        return app


def start(streams: Harness, application: Application, version: str, state: Path, dump: Path) -> Reply:
    """Start the application; a persistent store that restores anything makes it fail."""
    return streams.run(version, application.app, state, Run(dump=dump, as_of="4.2", expect_no_restore=True))


@functools.cache
def application(streams: Harness, source: str, target: str, folder: Path) -> Application:
    """Run an application under its first release, and stop it."""
    app = App(f"faults-{source}".replace(".", ""), TOPOLOGY, "eos")
    streams.produce(source, app, BATCH)
    entry = Application(app, folder / "base", folder / "reference.jsonl", source, target)
    live = streams.run(source, app, entry.base, Run(as_of="4.2", read=False))
    assert live.rc == 0, live.report()
    shutil.copytree(entry.base, folder / "restarted")
    restart = start(streams, entry, source, folder / "restarted", entry.reference)
    assert restart.rc == 0, restart.report()
    return entry


def steps_of_the_switch(sweep: Sweep) -> list[Step]:
    """From the announcement to the record."""
    near = [step for step in sweep.trace.steps if around_the_switch(step)]
    switch = next(i for i, step in enumerate(near) if step.call == "renameat2")
    results = near[switch - 2 : switch + 5]
    assert len(results) == STEPS and all("journal" in results[i].path for i in (0, 1, 5, 6)), results
    return results


def judge(streams: Harness, application: Application, sweep: Sweep, app: Path, which: str) -> list[str]:
    """What is wrong when the release that the directory is for runs on it."""
    served = app.parent.parent / "served.jsonl"
    reply = start(streams, application, sweep.case.releases[which], app.parent, served)
    wrong = [] if reply.rc == 0 else [f"{sweep.case.releases[which]} ends with {reply.rc}: {reply.report()[-1500:]}"]
    if any("orrupted" in str(event["text"]) for event in reply.of("log")):
        wrong.append(f"a task was wiped: {reply.report()[-1500:]}")
    if not wrong:
        wrong = [str(difference) for difference in dumps.differences(application.reference, served)]
    return wrong


def afterwards(sweep: Sweep, application: Application, app: Path, which: str) -> list[str]:
    """Streams has run: what it did must not be lost by an undo; a migration that did not happen can still be made."""
    migrated = (which == "new") == (sweep.case.command[0] == "migrate")
    undo = sweep.kstate(app, ("undo",))
    texts = (4, "has changed since") if migrated else (0, "")
    wrong = (
        [] if (undo.status == texts[0] and texts[1] in undo.output) else [f"undo: exit {undo.status}: {undo.output}"]
    )
    again = sweep.kstate(app, application.migrate)
    if again.status or sweep.kstate(app, application.migrate).status:
        wrong.append(f"migrate: exit {again.status}: {again.output[-800:]}")
    return wrong


@pytest.mark.rotating(2)
@pytest.mark.parametrize(("source", "target", "command"), WAYS, ids=["-".join(way) for way in WAYS])
def test_real_streams_before_any_repair(
    streams: Harness, kstate: Kstate, tmp_path_factory: pytest.TempPathFactory, source: str, target: str, command: str
) -> None:
    entry = application(streams, source, target, tmp_path_factory.getbasetemp() / f"streams-{source}")
    releases = {version: streams.jvm(version) for version in (source, target)}
    sweep = Sweep(entry.case(command), kstate, tmp_path_factory.mktemp("w"), releases)
    sweep.learn()
    wrong, names, marked = [], [], 0
    for i, step in enumerate(steps_of_the_switch(sweep)):
        for action in (KILL, EIO) if ALL else (KILL,) if i in IN_SHORT[source] else ():
            fault = Fault(step.call, step.nth_filtered, action)
            app, ended, struck = sweep.struck(fault, step)
            which = sweep.which(app)
            names.append(which)
            texts = [] if struck else ["the fault did not happen"]
            # Streams starts from what is there, marks and all.
            marked += which == "new" and any((app / mark).exists() for mark in MARKS)
            texts += judge(streams, entry, sweep, app, which) if which in ("old", "new") else [which]
            texts += afterwards(sweep, entry, app, which)
            print(f"{command} {step} {action}: exit {ended.status}, {which}")
            if texts:
                wrong.append(f"{command}: {step} {action}, directory was {which}: {'; '.join(texts)}")
    assert not wrong, "\n\n".join(wrong)
    assert {"old", "new"} <= set(names)
    assert marked, "no release was started from a directory with a mark"

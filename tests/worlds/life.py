"""One world that runs: its directory, what was done to it, and the commands of kstate."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstate_cli.releases import unproven_too
from tests.command_result import CommandResult
from tests.directories.support import kstate
from tests.interop.dumping import dump
from tests.interop.seeding import content
from tests.kills.kill import LOSING_CODES
from tests.walker.commands import Commands, Trouble

from .draw import RELEASES, Group, Step, World
from .farm import Farm
from .rules import State
from .topology import Topology, spec

USAGE = 2
"""Of a command whose directory does not exist."""
REFUSALS = (USAGE, 3, 4)
"""Exit codes after which nothing has changed."""
_LOSING = frozenset({"opens-without-rows", "lost", "may-be-lost", "start-hangs", "start-fails"})


class WrongError(Exception):
    """kstate did what it must not do."""


@dataclass
class Run:
    """A run of kstate that ``undo`` can undo: what was true before it."""

    before: State
    release: str
    transactional: bool
    topology: Topology
    description: str
    exempt: set[str]
    ran_since: bool
    """An application had run since the run before it."""


@dataclass
class Life:
    """A world while it runs."""

    world: World
    group: Group
    folder: Path
    farm: Farm
    commands: Commands
    """Runs commands that kill themselves."""
    release: str = ""
    transactional: bool = False
    topology: Topology = field(default_factory=lambda: Topology(()))
    states: list[State] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    exempt: set[str] = field(default_factory=set)
    ran_since: bool = False
    """An application has run since the newest run of kstate."""
    killed: bool = False
    dump_is_current: bool = False
    """No application has run since the last call of ``dump``."""
    wrong: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    over: bool = False
    early: str = ""
    """Why it ended before its last step, if nothing went wrong."""
    place: tuple[int, int] = (0, -1)
    """The round, and the step of it, that came last; -1 is the start."""

    def __post_init__(self) -> None:
        self.release = self.world.release
        self.transactional = self.world.guarantee.endswith("-tx")
        self.topology = self.world.topology
        self.folder.mkdir(parents=True)

    # --- facts ---

    @property
    def app(self) -> Path:
        """Its application directory."""
        return self.folder / "state" / self.world.name

    @property
    def description(self) -> Path:
        """The text of the topology that ran last."""
        return self.folder / "topology.txt"

    @property
    def bootstrap(self) -> str:
        """The broker."""
        return self.farm.bootstrap

    @property
    def dump(self) -> Path:
        """Its dump, which exists after the first step that needs one."""
        return self.folder / "dump"

    @property
    def guarantee(self) -> str:
        """The value of ``--guarantee``."""
        return "at_least_once" if self.world.guarantee.startswith("alos") else "exactly_once_v2"

    @property
    def line(self) -> str:
        """The release line of the directory."""
        return self.release.rpartition(".")[0]

    def spec(self) -> Path:
        """Write its ``kstate.toml``."""
        file = self.folder / "kstate.toml"
        text = self.description.read_text(encoding="utf-8")
        file.write_text(spec(self.topology, text, self.world.name, self.group.prefix), encoding="utf-8")
        return file

    def instance(self) -> dict[str, Any]:
        """Return what the farm needs to start it."""
        return {
            "app": self.world.name,
            "prefix": self.group.prefix,
            "state-dir": str(self.app.parent),
            "guarantee": self.world.guarantee.removesuffix("-tx"),
            "transactional": self.transactional,
            "commit-ms": self.world.commit_ms,
            "topology": self.topology.name,
            "describe-into": str(self.description),
        }

    def stores(self, application: str) -> list[dict[str, Any]]:
        """Return the stores of an application with its topology as the comparison needs them."""
        return [
            {
                "store": store.name,
                "kind": store.replay,
                "topic": store.changelog(application, self.group.prefix),
                "global": store.is_global,
            }
            for store in self.topology.stores
        ]

    # --- states ---

    def state(self, label: str, directory: Path | None = None, **rules: Any) -> State:
        """Copy the directory, to be compared later."""
        directory = directory or self.app
        copy = self.folder / "states" / f"{len(self.states):03}"
        if directory.exists():
            shutil.copytree(directory, copy, ignore=shutil.ignore_patterns(".lock"))
        extra = self.killed and self.guarantee == "at_least_once"
        state = State(label, copy, exempt=frozenset(self.exempt), extra=extra, **rules)
        self.states.append(state)
        return state

    @property
    def last(self) -> State:
        """The state of the directory that counts now."""
        return next(state for state in reversed(self.states) if not state.label.startswith("("))

    # --- commands ---

    def kstate(self, command: str, *words: object, good: Sequence[int] = (0, 1)) -> CommandResult:
        """Run a command; it may refuse, and nothing has changed then."""
        result = kstate(command, *words, "-o", "json", status=None)
        self.log.append(f"{command} {' '.join(map(str, words))} -> {result.status}")
        if result.status not in (*good, *REFUSALS) or (result.status == USAGE and self.app.exists()):
            raise WrongError(f"{command} ended with {result.status}: {result.report[-2500:]}")
        return result

    def reads(self, command: str, *words: object, good: Sequence[int] = (0, 1)) -> CommandResult:
        """Run a command that changes nothing."""
        before = _tree(self.app)
        result = self.kstate(command, self.app, *words, good=good)
        if _tree(self.app) != before:
            raise WrongError(f"{command} has changed the directory")
        return result

    def changes(self, step: Step, command: str, *words: object, **rules: Any) -> CommandResult | None:
        """Run a command that changes the directory, and record its state; None if it refused."""
        run = self.run()
        if step.killed and command in _KILLED and self.app.exists():
            self._killed(step, command, *words)
        tree = _tree(self.app)
        result = self.kstate(command, self.app, *words)
        if result.status in REFUSALS:
            if _tree(self.app) != tree:
                raise WrongError(f"{command} refused, and has changed the directory: {result.report[-1500:]}")
            return None
        state = self.state(str(step), **rules)
        if _tree(self.app) != _tree(run.before.copy):
            self.runs.append(run)
            self.ran_since = False
        if command == "restore" and self.dump_is_current:
            state.at_end = self._restored(result)
        return result

    def _restored(self, result: CommandResult) -> set[str]:
        # A table on its source topic is restored up to the offset that its group has committed, and no further.
        sources = {store.name for store in self.topology.stores if store.source}
        return {row["store"] for row in result.rows if row["type"] == "store"} - sources

    def run(self) -> Run:
        """Return what is true before a run that may follow."""
        text = self.description.read_text(encoding="utf-8")
        return Run(self.last, self.release, self.transactional, self.topology, text, set(self.exempt), self.ran_since)

    def _killed(self, step: Step, command: str, *words: object) -> None:
        """Let a command kill itself at one of its steps: the directory is the old or the new one."""
        at = random.Random(step.dice).randint(1, 80)
        ended = self.commands(self.app, (command, *map(str, words), "-o", "json"), Trouble("kill", at))
        self.log.append(f"{command} killed at step {at} -> {ended.status}")
        self.state(f"{step} killed at {at}")

    def step(self, step: Step) -> None:
        """Carry out one step."""
        dice = random.Random(step.dice)
        STEPS_OF[step.name](self, step, dice)

    def options(self) -> list[str]:
        """Return the options about guarantee and stores that changing commands have."""
        return ["--guarantee", self.guarantee, *["--transactional-stores"] * self.transactional]

    def losing(self, release: str, transactional: bool) -> tuple[set[str], bool]:
        """Return the stores of which ``check`` says that the next start loses rows, and whether the start ends at all."""
        if not self.app.exists():
            return set(), True
        line = release.rpartition(".")[0]
        words = ["--guarantee", self.guarantee, *["--transactional-stores"] * (transactional and release == "4.4.0")]
        result = self.reads("check", *words, "--for", line, "--bootstrap-server", self.bootstrap)
        rows = [row for row in result.rows if row["type"] in ("prediction", "finding")]
        predictions = [(row, {row["outcome"], row["or_else"]}) for row in rows if row["type"] == "prediction"]
        ends = not any(outcomes & {"start-hangs", "start-fails"} for _, outcomes in predictions)
        losing = {row["store"] for row, outcomes in predictions if outcomes & _LOSING}
        for row in rows:
            if (
                row["type"] == "finding"
                and row.get("store")
                and (row["level"] == "error" or row["code"] in LOSING_CODES)
            ):
                losing.add(row["store"])
        return losing, ends

    def dirty(self) -> set[str]:
        """
        Return the stores whose ``.checkpoint`` a killed start has left, although it went on processing under exactly-once.

        Kafka Streams up to 4.2 writes that file when restoration is complete, and does not remove it afterwards. Rows of an
        aborted transaction may then be there, and segments missing that the time of its records had expired.
        """
        if self.guarantee != "exactly_once_v2":
            return set()
        stores: set[str] = set()
        for checkpoint in self.app.glob("[0-9]*_*/.checkpoint"):
            task = checkpoint.parent
            written = checkpoint.stat().st_mtime_ns
            places = [
                *task.glob("rocksdb/*"),
                *(path for path in task.iterdir() if path.is_dir() and path.name != "rocksdb"),
            ]
            if any(path.stat().st_mtime_ns > written for place in places for path in [place, *place.rglob("*")]):
                stores |= {place.name for place in places}
        return stores

    def write_dump(self) -> None:
        """Write a dump of its changelogs, or extend it."""
        sources = [word for store in self.topology.stores if store.source
                   for word in ("--topic", store.changelog(self.world.name, self.group.prefix))]  # fmt: skip
        dump(self.farm, self.dump, "--app", self.world.name, *sources, "--workers", 1, "--warnings-ok")
        self.dump_is_current = True

    def restore_words(self, dice: random.Random) -> list[object]:
        """Return what ``restore`` needs, after a dump."""
        if not self.dump.exists() or dice.random() < 0.6:
            self.write_dump()
        wipe = ["--wipe-unclean"] * (dice.random() < 0.6)
        return ["--from-changelog", self.dump, "--for", self.line, "--spec", self.spec(), "--engine", "local", "--workers", 1,
                *self.options(), *wipe, "--warnings-ok", *unproven_too(self.line)]  # fmt: skip


def _tree(directory: Path) -> dict[str, tuple[Any, ...]] | None:
    """Return names, sizes and bytes of a tree. What links and times a staged copy leaves does not count."""
    if not directory.exists():
        return None
    files = sorted(path for path in directory.rglob("*") if path.name != ".lock")
    return {
        str(path.relative_to(directory)): (path.is_dir(), hashlib.sha256(path.read_bytes()).hexdigest())
        if path.is_file() else (True,)
        for path in files
    }  # fmt: skip


def _migrate(life: Life, step: Step, dice: random.Random) -> None:
    target = dice.choice(RELEASES)
    line = target.rpartition(".")[0]
    wipe = ["--wipe-unclean"] * (dice.random() < 0.5)
    result = life.changes(
        step, "migrate", "--to", line, "--workers", 1, *life.options(), *wipe, "--warnings-ok", *unproven_too(line),
        rows_of=life.last, wiping=bool(wipe),
    )  # fmt: skip
    if result is not None:
        life.release = target
        life.transactional = life.transactional and target == "4.4.0"


def _check(life: Life, step: Step, dice: random.Random) -> None:
    life.losing(dice.choice(RELEASES), life.transactional)


def _read(life: Life, step: Step, dice: random.Random) -> None:
    options = {"lag": ["--bootstrap-server", life.bootstrap], "verify": ["--workers", "1"]}
    words = options.get(step.name, [])
    result = life.reads(step.name, *words)
    if step.name == "verify" and result.status == 3:
        raise WrongError(f"verify reports damage: {result.report[-1500:]}")


def _wipe(life: Life, step: Step, dice: random.Random) -> None:
    stores = [store for store in life.topology.stores if store.kind != "in-memory"]
    task = sorted(path.name for path in life.app.glob("[0-9]*_0"))
    choices: list[list[object]] = [["--all"], ["--global"], ["--store", dice.choice(stores).name]]
    if task:
        choices += [["--task", dice.choice(task)]] * 2
    words = dice.choice(choices)
    if words[0] == "--store" and not any(life.app.glob(f"*/**/{words[1]}")):
        # kstate rejects the name of a store that no task has on disk, for example after an earlier wipe.
        words = ["--all"]
    life.changes(step, "wipe", *words, "--workers", 1, "--warnings-ok", rows_of=life.last, wiping=True)


def _lose(life: Life, step: Step, dice: random.Random) -> None:
    """Remove the directory, a task, or a store, as a user or a broken disk does."""
    tasks = sorted(path for path in life.app.glob("[0-9]*_0"))
    stores = sorted(life.app.glob("*/rocksdb/*"))
    choice = dice.random()
    if choice < 0.3 or not tasks:
        victim = life.app
    elif choice < 0.7 or not stores:
        victim = dice.choice(tasks)
    else:
        victim = dice.choice(stores)
    shutil.rmtree(victim, ignore_errors=True)
    life.log.append(f"lose {victim}")
    life.state(str(step), rows_of=life.last)


def _restore(life: Life, step: Step, dice: random.Random) -> None:
    rebuild = ["--rebuild"] * (step.name == "rebuild")
    life.changes(step, "restore", *life.restore_words(dice), *rebuild)


def _standby(life: Life, step: Step, dice: random.Random) -> None:
    directory = life.folder / "standby" / life.world.name
    directory.parent.mkdir(exist_ok=True)
    result = life.kstate("restore", directory, *life.restore_words(dice), "--standby")
    if result.status not in REFUSALS:
        life.state(f"({step})", directory)


def _dump(life: Life, step: Step, dice: random.Random) -> None:
    life.write_dump()
    if life.kstate("verify-dump", life.dump).status:
        raise WrongError("verify-dump reports damage")


def _undo(life: Life, step: Step, dice: random.Random) -> None:
    discard = ["--discard-newer"] * (life.ran_since and dice.random() < 0.5)
    run = life.runs[-1] if life.runs else None
    tree = _tree(life.app)
    result = life.kstate("undo", life.app, *discard)
    if result.status in REFUSALS or run is None:
        if _tree(life.app) != tree:
            raise WrongError(f"undo ended with {result.status}, and has changed the directory: {result.report[-1500:]}")
        return
    life.runs.pop()
    life.release, life.transactional, life.topology = run.release, run.transactional, run.topology
    life.exempt, life.ran_since = run.exempt, run.ran_since
    life.description.write_text(run.description, encoding="utf-8")
    life.state(str(step), same_as=run.before, sound=run.before.sound)


def _clean(life: Life, step: Step, dice: random.Random) -> None:
    if life.reads("clean").status not in REFUSALS:
        life.runs.clear()


def _snapshot(life: Life, step: Step, dice: random.Random) -> None:
    words = ["--guarantee", life.guarantee] if life.guarantee == "at_least_once" else []
    bounds = ["--bootstrap-server", life.bootstrap] if dice.random() < 0.7 else []
    life.reads(
        "snapshot", "--out", life.folder / "snapshots", "--host", "h", "--workers", 1, *words, *bounds, "--warnings-ok"
    )


def _restore_snapshot(life: Life, step: Step, dice: random.Random) -> None:
    repository = life.folder / "snapshots"
    if not repository.exists():
        _snapshot(life, step, dice)
        if not repository.exists():
            return  # kstate skipped every task
    words: list[object] = [
        "--from-snapshot",
        repository,
        "--for",
        life.line,
        "--workers",
        1,
        *life.options(),
        "--warnings-ok",
    ]
    words += ["--bootstrap-server", life.bootstrap, *unproven_too(life.line)]
    if dice.random() < 0.5:
        words.append("--rebuild")
    if dice.random() < 0.4:
        life.write_dump()
        words += ["--from-changelog", life.dump, "--spec", life.spec()]
    life.changes(step, "restore-snapshot", *words)


def _rehome(life: Life, step: Step, dice: random.Random) -> None:
    topology = life.topology.reordered(dice)
    new = life.folder / "new-topology.txt"
    life.farm.good(life.world.release, do="describe", topology=topology.name, prefix=life.group.prefix, into=str(new))
    wipe = ["--wipe-unclean"] * (dice.random() < 0.5)
    words = [
        "--topology",
        new,
        "--from",
        life.description,
        "--spec",
        life.spec(),
        "--guarantee",
        life.guarantee,
        *wipe,
        "--workers",
        1,
    ]
    if life.changes(step, "rehome", *words, "--warnings-ok", rows_of=life.last, wiping=bool(wipe)) is not None:
        life.topology = topology
        shutil.copy(new, life.description)


def _seed(life: Life, step: Step, dice: random.Random) -> None:
    """Seed a new application from a dump, restore its directory, and compare its changelogs and its stores."""
    new = f"{life.world.name}-{step.dice}"
    life.write_dump()
    spec_file = life.spec()
    (life.folder / "seeded").mkdir(exist_ok=True)
    result = life.kstate(
        "seed", "--from", life.dump, "--app", new, "--bootstrap-server", life.bootstrap,
        "--journal", life.folder / f"{new}.journal", "--source-app", life.world.name, "--source-bootstrap-server", life.bootstrap,
        "--out", life.folder / "seeded", "--for", life.line, "--spec", spec_file, "--guarantee", life.guarantee,
    )  # fmt: skip
    if result.status in REFUSALS:
        return
    for store in life.topology.stores:
        if store.logged and not store.source:
            old, copy = (
                _latest(life.farm, store.changelog(name, life.group.prefix)) for name in (life.world.name, new)
            )
            if store.replay != "versioned" and old != copy:
                raise WrongError(f"the changelog of {store.name} has {len(old)} rows, that of {new} {len(copy)}")
    life.state(f"({step})", life.folder / "seeded" / new, application=new)


def _latest(farm: Farm, topic: str) -> dict[bytes | None, bytes | None]:
    rows = {key: value for key, value, _, _ in content(farm, topic)[0]}
    return {key: value for key, value in rows.items() if value is not None}


_KILLED = frozenset({"migrate", "wipe", "restore", "rehome"})
"""Commands whose second call has nothing left to do if the first has come to its commit."""
STEPS_OF: dict[str, Callable[[Life, Step, random.Random], None]] = {
    "migrate": _migrate,
    "check": _check,
    "verify": _read,
    "ls": _read,
    "lag": _read,
    "wipe": _wipe,
    "lose": _lose,
    "restore": _restore,
    "rebuild": _restore,
    "standby": _standby,
    "dump": _dump,
    "undo": _undo,
    "clean": _clean,
    "snapshot": _snapshot,
    "restore-snapshot": _restore_snapshot,
    "rehome": _rehome,
    "seed": _seed,
}

"""One application whose logs, dumps and directories are worked on, round after round, and compared with the model."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import stores
from .calls import Call, Calls, Clock, Outcome
from .dumps import DumpOfLoop
from .histories import Partition, Rows
from .logs import Logs, Write

RETENTIONS_MS = (300, 1_500, 1_500, 2_500, 2_500, 2_500, 6_000, 600_000, 600_000)
FORGET_MS = 2_500
"""Of tombstones that live no longer, rounds wait for the end."""
RELEASES = ("4.2", "4.3")
SKEWS_MS = (0, 0, 0, 45_000, -45_000, 3_000, -3_000, 86_400_000)
_KEYS = 30
_SHORTAGE = "this host does not have enough resources"
"""What a call prints when other processes have taken the memory of this host: nothing may have changed then."""
_SLOW = "12K"
"""``--max-rate`` of calls during which something happens."""
_SETTINGS = "fetch.wait.max.ms=20\n"
DISTURBANCES = {
    "none": 50,
    "kill": 12,
    "terminate": 4,
    "writes": 10,
    "recreate": 6,
    "retention": 4,
    "transaction": 6,
    "second call": 3,
    "process killed": 2,
    "process": 1,
}
OPERATIONS = {
    "puts": 30,
    "deletes": 24,
    "delete all": 5,
    "hot key": 10,
    "transaction": 16,
    "open transaction": 8,
    "end transaction": 12,
    "pause": 12,
    "clean": 8,
    "forget": 20,
    "retention": 14,
    "retention and back": 3,
    "recreate": 4,
    "dump lost": 4,
    "dump from backup": 2,
}
DIRECTORIES = {"fresh": 30, "standby": 45, "host": 25, "copy": 12, "bare copy": 8}
"""``copy``: an older copy of the host's directory, with what kstate keeps beside it; ``bare copy``: without."""


class WrongError(Exception):
    """Rows are not those of the log, and nothing said so; or something that never happens."""


@dataclass
class Directory:
    """A state directory that lasts for several rounds."""

    path: Path
    standby: bool = False
    rebuild: bool = False
    """The documented advice after a retention that was changed and changed back."""


@dataclass
class Tally:
    """What the rounds of a world did."""

    counts: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, number: int = 1) -> None:
        """Count."""
        self.counts.setdefault(kind, Counter())[name] += number

    def line(self) -> dict[str, Any]:
        """Return the tally as a line of the record."""
        return {**{kind: dict(sorted(count.items())) for kind, count in self.counts.items()}, "wrong": self.wrong}


class World:
    """One application. All choices follow from the seed; how long things take does not."""

    def __init__(self, seed: str, logs: Logs, calls: Calls, folder: Path, tally: Tally) -> None:
        self.seed, self._logs, self._calls, self._folder, self.tally = seed, logs, calls, folder, tally
        chance = random.Random(seed)
        self.app = f"loop-{seed}"
        self.release = chance.choice(RELEASES)
        self._retentions = {store.topic(self.app): chance.choice(RETENTIONS_MS) for store in stores.STORES}
        self.synchronized = chance.random() < 0.3
        self.steps: list[str] = []
        self._partitions = stores.partitions(self.app)
        folder.mkdir(parents=True)
        (folder / "client.properties").write_text(_SETTINGS, encoding="utf-8")
        (folder / "kstate.toml").write_text(stores.spec(self.app), encoding="utf-8")
        self._dumps = [DumpOfLoop(folder / "dump-a"), DumpOfLoop(folder / "dump-b")]
        self._backup: DumpOfLoop | None = None
        self._directories = {
            "standby": Directory(folder / "standby" / self.app, standby=True),
            "host": Directory(folder / "host" / self.app),
        }
        self._copied: Directory | None = None
        self._ahead_ms = 0
        self._values = 0
        for store in stores.STORES:
            self._logs.create(store.topic(self.app), store.partitions, self._retentions[store.topic(self.app)])

    @property
    def topics(self) -> list[str]:
        """Return its changelogs."""
        return list(self._retentions)

    def round(self, number: int) -> None:
        """One round: operations, calls of dump, restorations, and comparisons. Raises WrongError."""
        chance = random.Random(f"{self.seed}/{number}")
        self._step(f"round {number}")
        for _ in range(chance.randint(1, 4)):
            name = _pick(chance, OPERATIONS)
            self.tally.add("operations", name)
            self._step(name)
            self._operate(name, chance)
        dump = self._dumps[0] if chance.random() < 0.92 else self._dumps[1]
        self._dump(dump, chance)
        for _ in range(chance.choice((1, 1, 2))):
            source = dump if chance.random() < 0.9 else chance.choice(self._dumps)
            if source.generation:
                self._restore(source, _pick(chance, DIRECTORIES), chance)
        self.tally.add("rounds", "rounds")

    def check_model(self) -> None:
        """Hold the model against what a plain consumer reads."""
        for partition in self._partitions:
            history = self._logs.histories.of(partition)
            rows, count = self._logs.rows(partition)
            if rows != history.rows(history.stable):
                raise WrongError(f"the model of {partition} is not what a consumer reads")
            self.tally.add("cleaner", "records that exist", count)
            self.tally.add("cleaner", "records removed", len(history.records) - count)
        self.tally.add("rounds", "model compared")

    def disk(self, *, from_copy: bool) -> None:
        """Kill the broker, and start it with its disk, or with an older copy of that."""
        name = "broker disk restored" if from_copy else "broker killed"
        self.tally.add("operations", name)
        self._step(name)
        self._logs.restart(from_copy=from_copy)

    def _step(self, text: str) -> None:
        self.steps.append(text)

    # --- what happens to the logs ---

    def _operate(self, name: str, chance: random.Random) -> None:
        logs = self._logs
        match name:
            case "puts":
                for _ in range(chance.randint(1, 3)):
                    logs.write(self._writes(chance, chance.randint(3, 20), deletes=0.1))
            case "deletes":
                logs.write(self._writes(chance, chance.randint(2, 20), deletes=1.0))
            case "delete all":
                partition = chance.choice(self._partitions)
                logs.write([(partition, _key(number), None) for number in range(_KEYS)])
            case "hot key":
                partition = chance.choice(self._partitions)
                for _ in range(chance.randint(2, 6)):
                    logs.write([(partition, _key(0), self._value())])
            case "transaction" | "open transaction":
                logs.begin_transaction()
                for _ in range(chance.randint(1, 2)):
                    logs.write_in_transaction(self._writes(chance, chance.randint(2, 12), deletes=0.4))
                if name == "transaction":
                    logs.end_transaction(committed=chance.random() < 0.6)
            case "end transaction":
                logs.end_transaction(committed=chance.random() < 0.6)
            case "pause":
                time.sleep(chance.uniform(0.05, 0.5))
            case "clean":
                self._clean(chance, 0.35)
            case "forget":
                logs.write(self._writes(chance, chance.randint(2, 20), deletes=1.0))
                short = [ms for ms in self._retentions.values() if ms <= FORGET_MS]
                self._clean(chance, 0.1)
                longer = chance.random() < 0.35
                if short:
                    time.sleep(max(short) / 1000)
                    self._clean(chance, 0.3)
                if longer:
                    self._alter(chance.choice(self.topics), 600_000)
            case "retention":
                self._alter(chance.choice(self.topics), chance.choice(RETENTIONS_MS))
            case "retention and back":
                topic = chance.choice(self.topics)
                before = self._retentions[topic]
                self._alter(topic, 1)
                logs.write(self._writes(chance, 10, deletes=1.0))
                self._clean(chance, 0.1)
                self._clean(chance, 0.1)
                self._alter(topic, before)
                for dump in self._dumps:
                    dump.needs_full = True
                for directory in self._directories.values():
                    directory.rebuild = True
                if self._copied is not None:
                    self._copied.rebuild = True
            case "recreate":
                self._recreate(chance)
            case "dump lost":
                dump = chance.choice(self._dumps)
                dump.back_from(DumpOfLoop(self._folder / "nothing", needs_full=dump.needs_full))
            case "dump from backup":
                if self._backup is None:
                    self._backup = self._dumps[0].copy(self._folder / "backup")
                else:
                    self._dumps[0].back_from(self._backup)
                    self._backup = None

    def _clean(self, chance: random.Random, seconds: float) -> None:
        """Let the cleaner pass twice: what comes after the pauses makes it clean what is before."""
        for _ in range(2):
            self._logs.write([(partition, b"filler", self._value()) for partition in self._partitions])
            time.sleep(chance.uniform(seconds / 2, seconds))

    def _alter(self, topic: str, retention_ms: int) -> None:
        self._logs.alter(topic, "delete.retention.ms", retention_ms)
        self._retentions[topic] = retention_ms

    def _recreate(self, chance: random.Random) -> None:
        store = chance.choice(stores.STORES)
        topic = store.topic(self.app)
        self._retentions[topic] = chance.choice(RETENTIONS_MS)
        self._logs.recreate(topic, store.partitions, self._retentions[topic])
        if chance.random() < 0.8:
            self._logs.write(self._writes(chance, chance.randint(5, 30), deletes=0.1))

    def _writes(self, chance: random.Random, count: int, *, deletes: float) -> list[Write]:
        return [
            (
                chance.choice(self._partitions),
                _key(chance.randrange(_KEYS)),
                None if chance.random() < deletes else self._value(),
            )
            for _ in range(count)
        ]

    def _value(self) -> bytes:
        self._values += 1
        return b"v%07d" % self._values

    # --- kstate dump ---

    def _clock(self, chance: random.Random) -> Clock:
        """Return how the host of the next call sees the time: the usual one, or another one."""
        if chance.random() < 0.15:
            self._ahead_ms = chance.choice(SKEWS_MS)
        host, other_ms = chance.random(), chance.choice(SKEWS_MS)
        if self.synchronized:
            clock = Clock("host" if host < 0.8 else "other", chance.randint(-40, 40), 50)
        elif host < 0.85:
            clock = Clock("host", self._ahead_ms)
        else:
            clock = Clock("other", other_ms, None)
        self.tally.add("clocks", "right" if abs(clock.ahead_ms) < 100 else "wrong")
        return clock

    def _dump(self, dump: DumpOfLoop, chance: random.Random) -> None:
        disturbance = _pick(chance, DISTURBANCES)
        argv = ["dump", "--bootstrap-server", self._logs.bootstrap, "--out", str(dump.path), "--app", self.app,
                "--engine", "local", "--workers", "4", "--kafka-settings", str(self._folder / "client.properties"),
                "-o", "json"]  # fmt: skip
        if chance.random() < 0.1 or dump.needs_full:
            argv.append("--full")
        if chance.random() < 0.1:
            argv += ["--keep", str(chance.randint(1, 2))]
        slow = disturbance not in ("none", "process", "process killed", "second call")
        if slow and (disturbance != "kill" or chance.random() < 0.3):
            argv += ["--max-rate", _SLOW]
        clock = self._clock(chance)
        stable = {partition: self._logs.histories.of(partition).stable for partition in self._partitions}
        self._step(f"dump {dump.path.name} ({disturbance}) {clock} {' '.join(argv[13:])}")
        self.tally.add("calls", "dump" if not disturbance.startswith("process") else "dump (process)")
        self.tally.add("disturbances", disturbance)
        call = self._calls.start_process(argv) if disturbance.startswith("process") else self._calls.start(argv, clock)
        actions: list[Callable[[], None]] = []
        other: Call | None = None
        match disturbance:
            case "kill" | "process killed":
                if not call.ends_within(chance.uniform(0.0, 1.2 if disturbance == "kill" else 4.0)):
                    call.send(signal.SIGKILL)
            case "terminate":
                if not call.ends_within(chance.uniform(0.0, 1.5)):
                    call.send(signal.SIGTERM)
            case "writes":
                actions.append(lambda: self._operate(chance.choice(("puts", "deletes", "hot key", "clean")), chance))
            case "recreate":
                actions.append(lambda: self._recreate(chance))
            case "retention":
                topic, retention = chance.choice(self.topics), chance.choice(RETENTIONS_MS)
                actions.append(lambda: self._alter(topic, retention))
            case "transaction":
                kind = chance.choice(("transaction", "open transaction", "end transaction"))
                actions.append(lambda: self._operate(kind, chance))
            case "second call":
                other = self._calls.start(argv, clock)
        for action in actions:
            call.ends_within(chance.uniform(0.0, 1.0))
            action()
        outcomes = [entry.outcome() for entry in (call, other) if entry is not None]
        for outcome in outcomes:
            self._step(f"  ended {outcome.status} {[*outcome.warnings, outcome.error]}")
            self.tally.add("ends of dump", str(outcome.status))
            self._note(outcome)
        self._check_dump(dump, outcomes, stable, disturbance)

    def _check_dump(
        self, dump: DumpOfLoop, outcomes: list[Outcome], stable: dict[Partition, int], disturbance: str
    ) -> None:
        outcome = min(outcomes, key=lambda outcome: outcome.status if outcome.status >= 0 else 100)
        new = dump.look(self._logs.histories)
        usual = {"recreate": (0, 1, 6), "terminate": (0, 1, 143, -15)}.get(disturbance, (0, 1))
        if not outcome.killed and outcome.status not in usual and _SHORTAGE not in outcome.error:
            raise WrongError(f"dump ended with {outcome.status}: {outcome.error} {outcome.err}")
        if outcome.status in (0, 1):
            if not new:
                raise WrongError("a dump that succeeded has no new manifest")
            dump.needs_full = False
            for partition, least in stable.items():
                if disturbance != "recreate" and dump.ends[partition][1] < least:
                    raise WrongError(
                        f"{partition} is dumped below {dump.ends[partition][1]}, and ended earlier, at {least}"
                    )

    # --- kstate restore ---

    def _restore(self, dump: DumpOfLoop, kind: str, chance: random.Random) -> None:
        directory = self._directory(kind)
        if directory is None:
            return
        existed = directory.path.exists()
        before = self._rows(directory) if existed else {}
        argv = ["restore", str(directory.path), "--from-changelog", str(dump.path), "--for", self.release, "--spec",
                str(self._folder / "kstate.toml"), "--engine", "local", "--workers", "1", "-o", "json"]  # fmt: skip
        options = ["--standby"] if directory.standby else []
        if directory.rebuild and existed:
            options.append("--rebuild")
        if chance.random() < 0.4:
            options.append("--allow-empty")
        if chance.random() < 0.15:
            options += ["--bootstrap-server", self._logs.bootstrap]
        clock = self._clock(chance)
        ending = _pick(chance, {"none": 80, "kill": 14, "terminate": 6})
        self._step(f"restore {kind} from {dump.path.name} ({ending}) {clock} {' '.join(options)}")
        self.tally.add("calls", f"restore {kind}")
        directory.path.parent.mkdir(parents=True, exist_ok=True)
        call = self._calls.start([*argv, *options], clock)
        if ending != "none" and not call.ends_within(chance.uniform(0.0, 0.7)):
            call.send(signal.SIGKILL if ending == "kill" else signal.SIGTERM)
        outcome = call.outcome()
        self._step(f"  ended {outcome.status} {[*outcome.warnings, outcome.error]}")
        self.tally.add("ends of restore", str(outcome.status))
        self._note(outcome)
        self._compare(directory, dump, before, outcome)
        if kind in ("fresh", "copy", "bare copy"):
            shutil.rmtree(directory.path.parent)
        elif outcome.status in (0, 1):
            directory.rebuild = False
            if kind == "host" and chance.random() < 0.25:
                self._copied = self._copy(directory, "copied", with_runs=True)

    def _directory(self, kind: str) -> Directory | None:
        if kind in self._directories:
            return self._directories[kind]
        if kind == "fresh":
            return Directory(self._folder / "fresh" / self.app)
        if self._copied is None:
            return None
        return self._copy(self._copied, "old", with_runs=kind == "copy")

    def _copy(self, directory: Directory, name: str, *, with_runs: bool) -> Directory:
        """Copy an application directory; ``with_runs``: with the whole state directory, which contains the runs."""
        to = self._folder / name
        shutil.rmtree(to, ignore_errors=True)
        if with_runs:
            shutil.copytree(directory.path.parent, to, symlinks=True)
        else:
            shutil.copytree(directory.path, to / self.app)
        return Directory(to / self.app, rebuild=directory.rebuild)

    def _rows(self, directory: Directory) -> dict[Partition, Rows]:
        return stores.rows_of(directory.path, self.app, self._folder / "scratch")

    def _compare(self, directory: Directory, dump: DumpOfLoop, before: dict[Partition, Rows], outcome: Outcome) -> None:
        rows = self._rows(directory) if directory.path.exists() else {}
        of_log = {key: stores.expected_rows(rows, key) for key, rows in dump.rows().items()}
        self.tally.add("compared", "restorations")
        self.tally.add("compared", "stores", len(of_log))
        self.tally.add("compared", "rows", sum(map(len, of_log.values())))
        if outcome.status in (0, 1):
            differing = [key for key in of_log if rows.get(key, {}) != of_log[key]]
            if not differing:
                self.tally.add("results", "as the log")
                return
            reports = [text for text in outcome.warnings if _names(text, differing)]
            if len(reports) == 0:
                raise WrongError("\n".join(_difference(key, rows.get(key, {}), of_log[key]) for key in differing))
            self.tally.add("results", "reported")
            for text in reports:
                self.tally.add("reports", _form(text))
            return
        refusal = outcome.status in (4, 143) or _SHORTAGE in outcome.error
        if outcome.status >= 0 and not outcome.killed and not refusal:
            raise WrongError(f"restore ended with {outcome.status}: {outcome.error} {outcome.err}")
        if rows == before or (not any(rows.values()) and not any(before.values())):
            self.tally.add("results", "unchanged")
        elif outcome.status < 0 or outcome.status > 128:
            if rows != {key: of_log.get(key, {}) for key in rows}:
                raise WrongError("a restoration that was ended left neither the old rows nor the new ones")
            self.tally.add("results", "ended after the exchange")
        else:
            raise WrongError("a restoration that was refused changed rows")

    def _note(self, outcome: Outcome) -> None:
        for text in outcome.warnings:
            self.tally.add("warnings", _form(text))
        if outcome.error:
            self.tally.add("refusals", f"{outcome.status}: {_form(outcome.error)}")

    def close(self) -> None:
        """Delete the topics."""
        self._logs.forget_topics(self.topics)
        shutil.rmtree(self._folder, ignore_errors=True)


def _pick(chance: random.Random, weights: dict[str, int]) -> str:
    return chance.choices(list(weights), list(weights.values()))[0]


def _key(number: int) -> bytes:
    return b"k%02d" % number


def _names(text: str, keys: list[Partition]) -> bool:
    """Return whether a warning is about one of these partitions, or about all."""
    return any(topic in text or topic.rpartition("-changelog")[0].rpartition("-")[2] in text for topic, _ in keys)


def _form(text: str) -> str:
    """Return a message without what differs from call to call."""
    words = []
    for word in text.split():
        words.append("…" if any(entry.isdigit() for entry in word) or "/" in word else word)
    return " ".join(words)[:160]


def _difference(key: Partition, rows: Rows, of_log: Rows) -> str:
    more = sorted(rows.keys() - of_log.keys())
    less = sorted(of_log.keys() - rows.keys())
    other = sorted(key for key in rows.keys() & of_log.keys() if rows[key] != of_log[key])
    return f"{key}: rows that the log does not have {more}, rows that are missing {less}, other values {other}"

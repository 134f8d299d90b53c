"""What the comparison of ``kstate check`` with real Streams shares: directories to edit, edits, and what a start really did."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstate_cli.formats.offsets import OffsetsRecord, decode_rows, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.statedir.database import is_database
from tests.command_result import CommandResult

from .harness import App, Batch, Guarantee, Harness, Run
from .jvm import Reply
from .releases import InteropError, number
from .restoring import changelog, delete_before, dump_changelogs, log_bounds
from .support import BATCH, application, good, kstate

TABLE, WINDOWS, SESSIONS, GLOBAL = "latest-order", "orders-per-minute", "visits", "customers"
"""The stores of the topology "demo"."""
SMALL = {"rocksdb.config.setter": "interop.SmallBuffers"}
PARTS = "parts:"
"""Begins the names of topologies that are made by their names (``Parts.java``)."""
ANY = "any number"
"""Restored is the whole of a log that nobody knows."""
AT_MOST = "at most "
"""Begins a predicted count that is an upper bound."""
_NEVER = 240
"""Seconds after which a start is not waited for any more."""
_QUIET_SECONDS = 0.5
_SOON = 120
"""Seconds after which an application that has lost its global thread is given up: 4.3.1 stays REBALANCING for ever."""


@dataclass(frozen=True)
class Kind:
    """How a directory is made."""

    release: str
    guarantee: Guarantee
    topology: str = "demo"
    killed: bool = False
    cut: bool = False
    """The first half of the log of 0_0's table and of the global topic is gone."""
    named: str | None = None
    """The name of its topology."""

    @property
    def run_options(self) -> dict[str, Any]:
        """What a start of it needs besides."""
        return {"named": self.named} if self.named else {}


@dataclass(frozen=True)
class Base:
    """A directory that a real release has left, and the dump of its changelogs."""

    kind: Kind
    app: App
    folder: Path

    @property
    def dump(self) -> Path:
        """The changelogs."""
        return self.folder / "dump"

    def copy(self, state: Path) -> Directory:
        """A copy to edit, in the state.dir ``state``."""
        shutil.copytree(self.folder / "left" / self.app.name, state / self.app.name)
        return Directory(self, state / self.app.name)


def make(harness: Harness, kind: Kind, folder: Path) -> Base:
    """Let the release run the application; close or kill it; dump its changelogs."""
    app = application(kind.topology, kind.guarantee)
    batch = Batch(records=600, keys=10, value_bytes=220) if kind.killed else BATCH
    harness.produce(kind.release, app, batch)
    state = folder / "left"
    run = Run(read=False, kill=kind.killed, conf=SMALL if kind.killed else {}, options=kind.run_options)
    first = good(harness.run(kind.release, app, state, run))
    topics = sorted({event["topic"] for event in first.of("restore-start")})
    if kind.cut:
        cut = {(changelog(app, TABLE), 0): 30, (f"{app.input}-global", 0): 30}
        delete_before(harness, kind.release, cut)
    dump_changelogs(harness, kind.release, topics, folder / "dump")
    return Base(kind, app, folder)


@dataclass
class Directory:
    """A copy of a directory, with the edits that cases make."""

    base: Base
    path: Path
    options: list[str] = field(default_factory=list)
    """More options of ``kstate check``."""
    conf: dict[str, str] = field(default_factory=dict)
    """More settings of the application."""

    @property
    def in_files(self) -> bool:
        """True where the release keeps offsets in ``.checkpoint``."""
        return number(self.base.kind.release) < (4, 3)

    def task(self, name: str = "0_0") -> Path:
        """A task's directory."""
        return self.path / name

    def databases(self, store: str, task: str = "0_0") -> list[Path]:
        """Every RocksDB of a store, by segment."""
        single = self.task(task) / "rocksdb" / store
        return [single] if single.is_dir() else sorted((self.task(task) / store).iterdir())

    def key(self, store: str, task: str = "0_0") -> TopicPartition:
        """The changelog partition of a store."""
        if task == "global":
            return TopicPartition(f"{self.base.app.input}-global", 0)
        return TopicPartition(changelog(self.base.app, store), int(task.rpartition("_")[2]))

    def record(self, store: str, task: str, change: Callable[[OffsetsRecord], OffsetsRecord]) -> None:
        """Edit the column family ``offsets`` of every database of a store."""
        for database in self.databases(store, task):
            with Shadow(database) as shadow:
                results = decode_rows(shadow.rows(OFFSETS_CF))
            with WritableStore(database) as writable:
                writable.set_offsets(encode_rows(change(results)))

    def offset(self, store: str, change: Callable[[int], int | None], task: str = "0_0") -> None:
        """Edit a store's offset where its release keeps it; None removes it."""
        key = self.key(store, task)
        if self.in_files:
            lines = self.lines(task)
            new = change(lines.pop(key))
            if new is not None:
                lines[key] = new
            self.write_lines(lines, task)
            return

        def edit(record: OffsetsRecord) -> OffsetsRecord:
            offsets = dict(record.offsets)
            new = change(offsets.pop(key))
            return dataclasses.replace(record, offsets=offsets if new is None else {**offsets, key: new})

        self.record(store, task, edit)

    def lines(self, task: str = "0_0") -> dict[TopicPartition, int]:
        """The lines of ``.checkpoint``."""
        text = (self.task(task) / ".checkpoint").read_text(encoding="utf-8").splitlines()[2:]
        return {TopicPartition(topic, int(partition)): int(at) for topic, partition, at in map(str.split, text)}

    def write_lines(self, lines: dict[TopicPartition, int], task: str = "0_0") -> None:
        """Write ``.checkpoint``, whatever it says."""
        rows = [f"{key.topic} {key.partition} {offset}" for key, offset in lines.items()]
        (self.task(task) / ".checkpoint").write_text("\n".join(["0", str(len(rows)), *rows, ""]), encoding="utf-8")


Edit = Callable[[Directory], None]
Fates = dict[tuple[str, str], str]
"""Task and store -> what becomes of it."""


@dataclass(frozen=True)
class Real:
    """What a start did."""

    failed: bool
    text: str
    fates: Fates
    hangs: bool = False
    """``KafkaStreams#start`` never returned."""


def identities(directory: Path) -> dict[str, dict[str, bytes]]:
    """Task -> what a wipe takes with it: its databases, by identities that new ones do not have, and a foreign file."""
    results: dict[str, dict[str, bytes]] = {}
    for path in sorted(directory.rglob("IDENTITY")):
        if is_database(path.parent):
            inside = path.relative_to(directory)
            task = "/".join(inside.parts[: 2 if inside.parts[0].startswith("__") else 1])
            results.setdefault(task, {})[str(inside)] = path.read_bytes()
    for path in directory.glob("*_*/README"):
        results.setdefault(path.parent.name, {})["README"] = b""
    return results


TaskOf = Callable[[str, int], str | None]
"""Store and partition -> the task that has it in the topology that is started; None where that has no such store."""


def _settled(log: Path, begin: int) -> str:
    """What was said since, once nothing was added for a while."""
    size = -1
    while size != (size := log.stat().st_size):
        time.sleep(_QUIET_SECONDS)
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(begin)
        return lines.read()


def start(
    harness: Harness,
    release: str,
    directory: Directory,
    folder: Path,
    *,
    topology: str | None = None,
    task_of: TaskOf | None = None,
) -> Real:
    """Start the application on the directory, and see what becomes of each store; ``task_of`` where it has many tasks."""
    of_store = task_of or _only_subtopology
    base = directory.base
    app = dataclasses.replace(base.app, topology=topology or base.app.topology)
    before, rows_before = identities(directory.path), _rows_of_base(harness, release, base, topology)
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(dump=folder / "rows.jsonl", conf=directory.conf, options={"timeout": _SOON, **base.kind.run_options})
    log = harness.folder / "logs" / f"{release}.log"
    begin = log.stat().st_size if log.exists() else 0
    try:
        reply = harness.jvm(release).call(harness.run_command(app, directory.path.parent, run), timeout=_NEVER)
    except InteropError:
        # KafkaStreams#start has not returned: its global thread died without saying so to it.
        return Real(True, _settled(log, begin), {}, hangs=True)
    text = "\n".join(_statement(reply))
    if reply.rc:
        assert reply.rc == 3 or "global state failed" in text, reply.report()
        # The thread that fails may say why after the one that has waited for it has said that it failed.
        return Real(True, f"{text}\n{_settled(log, begin)}", {})
    restored: dict[tuple[str, str], int] = {}
    for event in reply.of("restore-end"):
        task = of_store(event["store"], event["partition"])
        assert task is not None, event
        restored[task, event["store"]] = restored.get((task, event["store"]), 0) + int(event["restored"])
    after, rows = identities(directory.path), _rows(folder / "rows.jsonl")
    fates: Fates = {}
    for (task, store), count in restored.items():
        get = before.get(task, {})
        wiped = bool(get) and not any(after.get(task, {}).get(name) == value for name, value in get.items())
        if wiped and task != "global":
            fates[task, store] = f"wiped, {count}"
        elif count:
            fates[task, store] = str(count)
        else:
            fates[task, store] = "opens"
    for (store, partition), counted_rows in rows_before.items():
        of = of_store(store, partition)
        logged = of is not None and (of, store) in fates
        if of is not None and (logged or task_of) and fates.get((of, store), "opens") == "opens":
            fates[of, store] = "opens" if rows.get((store, partition), 0) >= counted_rows else "without rows"
    return Real(False, text, fates)


def _only_subtopology(store: str, partition: int) -> str:
    return "global" if store in (GLOBAL, "global-table") else f"0_{partition}"


_healthy: dict[tuple[str, str | None], dict[tuple[str, int], int]] = {}


def _rows_of_base(harness: Harness, release: str, base: Base, topology: str | None) -> dict[tuple[str, int], int]:
    """The rows that the unedited stores serve: counted once, by the release that made them."""
    # Of those that are made by their names many are started on one directory.
    key = (base.app.name, None if base.kind.topology.startswith(PARTS) else topology)
    if key not in _healthy:
        _healthy[key] = {}
        whole = base.kind.topology == "demo" or base.kind.topology.startswith(PARTS)
        if whole and not base.kind.killed and not base.kind.cut:
            path = base.folder / f"healthy-{len(_healthy)}"
            base.copy(path / "state")
            run = Run(dump=path / "rows.jsonl", options=base.kind.run_options)
            good(harness.run(base.kind.release, base.app, path / "state", run))
            _healthy[key] = _rows(path / "rows.jsonl")
    return _healthy[key]


def _rows(dump: Path) -> dict[tuple[str, int], int]:
    """Of each store and partition; −1 is that of global stores."""
    results: dict[tuple[str, int], int] = {}
    for line in dump.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        key = row["store"], max(-1, row["partition"])
        results[key] = results.get(key, 0) + 1
    return results


def _statement(reply: Reply) -> list[str]:
    results = [str(event["text"]) for event in reply.of("log")]
    for event in reply.of("exception"):
        results += [f"{event['class']}: {event['message']}", *map(str, event["causes"])]
    return results


@dataclass(frozen=True)
class Predicted:
    """What ``kstate check`` says."""

    command: CommandResult

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of one type."""
        return [row for row in self.command.rows if row["type"] == kind]

    @property
    def failed(self) -> bool:
        """Whether the start fails."""
        return bool(self.command.summary["start_fails"])

    @property
    def failures(self) -> list[list[str]]:
        """What Streams prints, for each store that fails: the first that is opened decides."""
        return [row["messages"] for row in self.of("prediction") if row["outcome"] == "start-fails"]

    @property
    def codes(self) -> set[str]:
        """The codes of the findings that are not merely expected."""
        return {row["code"] for row in self.of("finding") if row["level"] != "expected"}

    @property
    def fates(self) -> dict[tuple[str, str], set[str]]:
        """Task and store -> what may become of it."""
        results = {}
        for row in self.of("prediction"):
            texts = {_fate(row, row["outcome"])}
            results[row["task"], row["store"]] = texts | ({_fate(row, row["or_else"])} if row["or_else"] else set())
        return results


def _log_bounds(base: Base) -> Path:
    """Log starts and ends, as somebody who asks the broker writes them down: those of the dump, which is of now."""
    path = base.folder / "offsets.json"
    if not path.exists():
        results: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition), (start, end, _) in log_bounds(base.dump).items():
            results.setdefault(topic, {})[str(partition)] = {"start": start, "end": end}
        path.write_text(json.dumps(results), encoding="utf-8")
    return path


def agrees(fate: str, predicted: set[str]) -> bool:
    """Return True if one of the predicted fates allows what became of a store."""
    if fate in predicted or (ANY in predicted and fate.isdigit()):
        return True
    wiped = "wiped, " if fate.startswith("wiped, ") else ""
    count = "0" if fate == "opens" else fate.removeprefix(wiped)
    bounds = [entry.removeprefix(f"{wiped}{AT_MOST}") for entry in predicted if entry.startswith(f"{wiped}{AT_MOST}")]
    return count.isdigit() and any(int(count) <= int(bound) for bound in bounds)


def _fate(row: dict[str, Any], outcome: str) -> str:
    bound = "" if row["records_exact"] else AT_MOST
    if outcome == "task-wiped":
        return f"wiped, {ANY}" if row["records"] is None else f"wiped, {bound}{row['records']}"
    if outcome in ("restores", "restores-all"):
        if row["records"] is None:
            return ANY if outcome == "restores-all" else "opens"
        return f"{bound}{row['records']}" if row["records"] else "opens"
    return {"opens": "opens", "opens-without-rows": "without rows"}.get(outcome, outcome)


def predict(release: str, directory: Directory, guarantee: Guarantee | None = None) -> Predicted:
    """What ``kstate check`` says of the directory, with a dump of its changelogs."""
    eos = (guarantee or directory.base.kind.guarantee) == "eos"
    options = ["--guarantee", "exactly_once_v2" if eos else "at_least_once"]
    options += ["--dump", str(directory.base.dump)]
    if "--offsets" not in directory.options:
        options += ["--offsets", str(_log_bounds(directory.base))]
    result = kstate("check", directory.path, "--for", release, "-o", "json", *options, *directory.options)
    assert result.status in (0, 1, 3), result.report
    return Predicted(result)

"""Applications of real Kafka Streams: produce their input, run them, read their stores."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from confluent_kafka.admin import AdminClient

from kstate_cli.releases import OffsetsHome, release

from .broker import Broker
from .jvm import Event, Jvm, Reply
from .releases import BROKER_VERSION

Guarantee = Literal["alos", "eos"]


@dataclass(frozen=True)
class Batch:
    """Seeded input records, `records` for each topic. The same batch is the same records, whatever the prefix."""

    records: int = 300
    first: int = 0
    keys: int = 40
    value_bytes: int = 24
    seed: int = 1
    partitions: int = 2

    def next(self) -> Batch:
        """The batch after this one: event time goes on at the same pace."""
        return replace(self, first=self.first + self.records)

    def command(self, topology: str, prefix: str) -> Event:
        """As a command of the harness."""
        return {"do": "produce", "topology": topology, "prefix": prefix, "records": self.records, "first": self.first,
                "keys": self.keys, "value-bytes": self.value_bytes, "seed": self.seed, "partitions": self.partitions}  # fmt: skip


@dataclass(frozen=True)
class App:
    """An application: its id, the topology it has, the prefix of its input topics, and its processing guarantee."""

    name: str
    topology: str
    guarantee: Guarantee
    prefix: str = ""

    @property
    def input(self) -> str:
        """The prefix of its input topics."""
        return self.prefix or f"{self.name}-in"


@dataclass(frozen=True)
class Step:
    """What follows while an application runs: a batch, if any, and what is asked and dumped once it is consumed."""

    batch: Batch | None = None
    dump: Path | None = None
    queries: Path | None = None
    answers: Path | None = None


@dataclass
class Run:
    """
    One start of an application: which batches follow while it runs, where its stores are dumped, how it ends.

    `queries` and `answers` go together: see the module queries.
    """

    dump: Path | None = None
    steps: list[Step] = field(default_factory=list)
    queries: Path | None = None
    answers: Path | None = None
    expect_no_restore: bool = False
    may_restore: list[str] = field(default_factory=list)
    kill: bool = False
    as_of: str | None = None
    upgrade_from: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    read: bool = True
    options: dict[str, Any] = field(default_factory=dict)


class Harness:
    """A broker, and a JVM for each release that is used. Everything ends with it."""

    def __init__(self, folder: Path | None = None, properties: str = "", broker: str = BROKER_VERSION) -> None:
        """Nothing starts before it is needed. `folder` holds the broker's data and the logs; without, a temporary one.

        `properties`: lines of the broker's own, over the usual ones. `broker`: its version.
        """
        self._properties, self._version = properties, broker
        self._own = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="kstate-interop-")) if folder is None else folder
        self._broker: Broker | None = None
        self._jvms: dict[str, Jvm] = {}

    def __enter__(self) -> Harness:
        """Nothing to do."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process; delete the folder if it is a temporary one."""
        for jvm in self._jvms.values():
            jvm.close()
        if self._broker is not None:
            self._broker.stop()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def bootstrap(self) -> str:
        """The address of the broker, which is started when it does not run yet."""
        if self._broker is None:
            self._broker = Broker(self.folder / "broker", properties=self._properties, version=self._version)
            self._broker.start()
        return self._broker.bootstrap

    def jvm(self, version: str) -> Jvm:
        """The JVM of this release."""
        jvm = self._jvms.get(version)
        if jvm is None or not jvm.alive:
            jvm = self._jvms[version] = Jvm(version, self.folder / "logs" / f"{version}.log", archives=True)
        return jvm

    def command(self, version: str, **members: Any) -> Reply:
        """Send any command that needs the broker."""
        return self.jvm(version).call({"bootstrap": self.bootstrap, **members})

    def produce(self, version: str, app: App, batch: Batch) -> None:
        """Create the application's input topics where they are missing, and send a batch."""
        reply = self.command(version, **batch.command(app.topology, app.input))
        if reply.rc:
            raise AssertionError(reply.report())

    def run(self, version: str, app: App, state_dir: Path, run: Run | None = None) -> Reply:
        """
        Start the application on `state_dir` and stop it again when all its input is consumed.

        The reply's rc: 0 good, 2 its input was not consumed in time, 3 Streams ended in ERROR, 4 a persistent store restored
        although `expect_no_restore`, 5 a store cannot be read.
        """
        run = run or Run()
        command = self.run_command(app, state_dir, run)
        if not run.kill:
            return self.jvm(version).call(command)
        with Jvm(version, self.folder / "logs" / f"{version}-killed.log") as mortal:
            return mortal.call(command)

    def run_command(self, app: App, state_dir: Path, run: Run) -> Event:
        """What `run` sends to the JVM."""
        return {
            "do": "run",
            "bootstrap": self.bootstrap,
            "app": app.name,
            "state-dir": str(state_dir),
            "topology": app.topology,
            "prefix": app.input,
            "guarantee": app.guarantee,
            **_reading(run),
            "no-dump": not run.read,
            "expect-no-restore": run.expect_no_restore,
            "may-restore": run.may_restore,
            "kill": run.kill,
            "as-of": run.as_of,
            "upgrade-from": run.upgrade_from,
            "conf": [f"{name}={value}" for name, value in run.conf.items()],
            "then": [
                {"produce": step.batch.command(app.topology, app.input) if step.batch else None, **_reading(step),
                 "no-dump": not run.read}
                for step in run.steps
            ],
            **run.options,
        }  # fmt: skip

    def open(self, version: str, path: Path) -> Reply:
        """Open a copy of every database below a directory as this release does; rc 1 when one cannot be opened."""
        return open_databases(self.jvm(version), path)

    def delete_topics(self) -> None:
        """Delete all topics of all tests so far. Nothing happens if no broker has started."""
        if self._broker is None:
            return
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        names = [name for name in admin.list_topics(timeout=300).topics if not name.startswith("__")]
        if names:
            for deletion in admin.delete_topics(names, operation_timeout=300, request_timeout=300).values():
                deletion.result()

    def delete(self, version: str, app: App) -> None:
        """Delete the application's internal topics and its group."""
        self.command(version, do="delete-app", app=app.name)


def _reading(step: Run | Step) -> Event:
    files = {"dump": step.dump, "queries": step.queries, "answers": step.answers}
    return {name: str(path) if path else None for name, path in files.items()}


def open_databases(jvm: Jvm, path: Path) -> Reply:
    """
    Open a copy of every RocksDB below `path` as the JVM's release does, without a broker.

    The reply has an event "database" for each: path, families, data (rows and sha256 of each data column family), for 4.3
    offsets (key -> value in hex), and error when it does not open. rc 1 when any does not.
    """
    inside = release(jvm.version).offsets_home is OffsetsHome.COLUMN_FAMILY
    return jvm.call({"do": "open", "path": str(path), "offsets": inside})


def scan(jvm: Jvm, path: Path, family: str = "default", rounds: int = 1) -> list[Event]:
    """
    Read a column family of one RocksDB from beginning to end, that many times, as fast as the JVM's release does.

    Of each round rows, bytes and seconds. A JVM that is to be fast needs quick=False, and some rounds before those that count.
    """
    reply = jvm.call({"do": "scan", "path": str(path), "family": family, "rounds": rounds}, timeout=3600)
    if reply.rc:
        raise AssertionError(reply.report())
    return reply.of("scan")


def positions(reply: Reply, step: int = 0) -> dict[str, Any]:
    """Store -> partition -> Position (topic -> partition -> offset), as Streams said it."""
    return {event["store"]: event["position"] for event in reply.of("store") if event["step"] == step}

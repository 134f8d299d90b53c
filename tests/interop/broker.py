"""A one-node broker on 127.0.0.1, started and stopped by its process id."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.ports import number_of, reserved_port

from .releases import BROKER_VERSION, SILENT, InteropError, archive_of, broker_jars, home, one_process

_START_SECONDS = 300
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
# A closed or killed application leaves its group by request, and a new one starts at once.
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
delete.topic.enable=true
# Nothing is ever compacted, nor deleted for its age: event times lie in the past, and Streams gives the changelogs of windows
# cleanup.policy=compact,delete with a retention.ms: the cleaner would delete those segments within 15 s. Ten years and not
# the largest long, which overflows in the broker's scheduler.
log.cleaner.enable=false
log.retention.check.interval.ms=315360000000
log.initial.task.delay.ms=315360000000
log.retention.ms=-1
log.roll.hours=87600
log.segment.bytes=1073741824
log.index.size.max.bytes=65536
num.network.threads=2
num.io.threads=4
"""


def listens(port: int) -> bool:
    """Whether something accepts connections on this port of 127.0.0.1."""
    with socket.socket() as entry:
        entry.settimeout(0.5)
        return entry.connect_ex(("127.0.0.1", port)) == 0


def _java(heap: str, version: str) -> list[str]:
    """The JVM of a broker, without its main class."""
    return ["java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{broker_jars(version)}/*"]  # fmt: skip


def _formatted(version: str, properties: str) -> Path:
    """Return the folder of a log directory that is formatted with these properties; a JVM formats it on first use."""
    config = _PROPERTIES.format(controller=1, port=2, data="{data}") + properties
    target = home() / "formatted" / f"{version}-{hashlib.sha256(config.encode()).hexdigest()[:16]}"
    with one_process("formatted"):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                data, file = Path(folder, "data"), Path(folder, "server.properties")
                file.write_text(config.replace("{data}", str(data)))
                words = ["kafka.tools.StorageTool", "format", "-t", "a3N0YXRlLWludGVyb3AtMQ", "-c", str(file)]
                subprocess.run([*_java("128m", version), *words], check=True, capture_output=True)
                data.rename(target)
    return target


def _archive_options(version: str) -> list[str]:
    """
    Return the options that let a broker map its classes from an archive, which half of its start would load and verify.

    The first broker of a version and a JVM writes the archive when it ends. A JVM does not use the archive of another one.
    """
    target = archive_of(f"broker-{version}", str(broker_jars(version)))
    with one_process("archives"):
        if not target.exists():
            _write_archive(version, target)
    return [f"-XX:SharedArchiveFile={target}", *SILENT]


def _write_archive(version: str, target: Path) -> None:
    """Start a broker, end it in order, and keep the archive of the classes that it has used."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial, file, data = Path(folder, "new.jsa"), Path(folder, "server.properties"), Path(folder, "data")
        shutil.copytree(_formatted(version, ""), data)
        keepers = [reserved_port() for _ in range(2)]
        port, controller = map(number_of, keepers)
        file.write_text(_PROPERTIES.format(port=port, controller=controller, data=data))
        words = [*_java("512m", version), f"-XX:ArchiveClassesAtExit={partial}", "kafka.Kafka", str(file)]
        with subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            deadline = time.monotonic() + _START_SECONDS
            while not listens(port) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            process.terminate()
        for keeper in keepers:
            keeper.close()
        if not partial.exists():
            raise InteropError(f"a broker of {version} writes no archive of its classes")
        partial.rename(target)


@dataclass
class Broker:
    """A broker whose data lies in a folder of its own: `with Broker(folder) as broker: broker.bootstrap`."""

    folder: Path
    heap: str = "512m"
    properties: str = ""
    """More lines of server.properties, over those above."""
    version: str = BROKER_VERSION
    port: int = field(default=0, init=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    _ports: list[socket.socket] = field(default_factory=list, init=False, repr=False)

    @property
    def bootstrap(self) -> str:
        """The value for bootstrap.servers."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Broker:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> int:
        """Start the broker on ports of its own, wait until it answers, and return its process id."""
        # Kept until it is stopped: if another worker's broker had the port, this one's tests would share its topics.
        self._ports = [reserved_port() for _ in range(2)]
        self.port, controller = map(number_of, self._ports)
        data = self.folder / "data"
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        config.write_text(_PROPERTIES.format(port=self.port, controller=controller, data=data) + self.properties)
        java = [*_java(self.heap, self.version), *_archive_options(self.version)]
        if not (data / "meta.properties").exists():
            shutil.copytree(_formatted(self.version, self.properties), data, dirs_exist_ok=True)
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(config)], cwd=self.folder, start_new_session=True,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log)  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while not listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise InteropError(f"the broker does not start: see {self.folder / 'broker.log'}")
            time.sleep(0.05)
        return self._process.pid

    def stop(self) -> None:
        """Kill it: its data is not needed any more, and a clean end takes seconds."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
        for keeper in self._ports:
            keeper.close()
        self._ports = []

"""The engine of a command, and the reason for it: Spark, or processes of this host, which need no Java.

``auto`` chooses Spark if it is configured: a master, settings of Spark, or spark-submit. Otherwise local processes do
the work. On one host they are as fast as Spark at every size that docs/performance.md measures.

Spark's JVM (:class:`Jvm`) is started here, in a separate session, with signals ignored, and is ended with all processes
that it has started. pyspark would start it in the process group of kstate. A SIGTERM to this group, or to all processes
of a systemd unit, would then end the JVM while kstate still needs it. And while the JVM starts, kstate could not end
it, because pyspark reports it only afterwards. So pyspark finds this JVM in the same way as one of spark-submit.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from kstate_cli import option, regular_files
from kstate_cli.errors import Interrupted, Refused

if TYPE_CHECKING:
    from kstate_cli.spark.context import SparkSettings


REQUESTED: Final = f"{option.ENGINE} requests it"


class Engine(str, Enum):
    """What does the work."""

    spark = "spark"
    local = "local"


class EngineOption(str, Enum):
    """The user's choice of an engine."""

    auto = "auto"
    local = "local"
    spark = "spark"


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine, and the reason for it."""

    engine: Engine
    reason: str
    """Without a subject: it follows the name of the engine in plans, and is a member of JSON."""
    is_requested: bool = False
    """The user chose it by an option."""
    is_automatic: bool = False
    """The user did not choose it. Local processes may then start Spark to sort what only Spark can sort."""

    @property
    def is_spark(self) -> bool:
        """Whether Spark does the work."""
        return self.engine is Engine.spark


def choose_engine(choice: EngineOption, settings: SparkSettings) -> EngineChoice:
    """Return the engine that ``option`` means with these settings of Spark."""
    if choice is not EngineOption.auto:
        return EngineChoice(Engine(choice.value), REQUESTED, is_requested=True)
    if settings.master is not None:
        return EngineChoice(Engine.spark, f"a Spark master is configured: {settings.master}", is_automatic=True)
    if settings.conf:
        return EngineChoice(Engine.spark, f"a Spark setting is configured: {min(settings.conf)}", is_automatic=True)
    if under_spark_submit():
        return EngineChoice(Engine.spark, "spark-submit started kstate", is_automatic=True)
    return EngineChoice(Engine.local, "no Spark master is configured", is_automatic=True)


_DEAF: Final = """trap '' HUP INT TERM; exec "$@\""""
"""Ignored signals stay ignored across exec, and HotSpot leaves ignored ones alone."""
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"
_POLL_SECONDS: Final = 0.05
_END_SECONDS: Final = 10.0
_KILLED_SECONDS: Final = 10.0
"""A killed process lives on while the system is about something for it, on a hung network share for ever."""
JAVA: Final = 17
_OLD_JAVA: Final = 8
_ON_ITS_WAY_SECONDS: Final = 1.0
"""A signal to a whole group, or to all that a unit has started, reaches one process after the other."""
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
RELEASE: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
"""The line of the file ``release`` of a Java with the version."""
_MOST_BYTES: Final = 1 << 20


def under_spark_submit() -> bool:
    """Return True if spark-submit has started this process, and its JVM exists already."""
    return _PORT in os.environ


_SUBMITTER: Final = os.getppid() if under_spark_submit() else None


def let_signals_come() -> None:
    """Wait for a signal that may be on its way, before an error of Spark counts as a failure.

    Spark may have died of it.

    Raises Interrupted if spark-submit, to which users send signals, has ended: it does not pass signals on.
    """
    time.sleep(_ON_ITS_WAY_SECONDS)
    if _SUBMITTER is not None and os.getppid() != _SUBMITTER:
        raise Interrupted(signal.SIGTERM)


def find_java() -> str | None:
    """Return the Java that Spark would start: that of JAVA_HOME if it is set, else of the PATH; None without one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        # Java is looked for only in JAVA_HOME if that is set: Spark's scripts do not search the PATH then either.
        return shutil.which(f"{home}/bin/java")
    return shutil.which("java")


def version_text(java: str) -> str:
    """Return what Java prints about its version, in quotes on the first line. Raises OSError if it cannot run."""
    # To standard error, as every Java up to today does.
    process = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace", check=False)
    return process.stderr


def check_java() -> None:
    """Raise Refused if Spark would not find a suitable Java."""
    if under_spark_submit() or _has_spark_env():
        return  # spark-env.sh may set JAVA_HOME, which only a start of Spark shows
    home = os.environ.get("JAVA_HOME")
    java = find_java()
    least_version = _needed_version()
    hint = (
        f"install Java {least_version} or later or set JAVA_HOME to it. Or pass {option.ENGINE} local, which does "
        "not need Java"
    )
    if java is None and home:
        raise Refused(f"Spark needs Java, but JAVA_HOME is {home}, which has no bin/java", hint=hint)
    if java is None:
        raise Refused("Spark needs Java, but java is not on the PATH", hint=hint)
    try:
        # The version is read from a file if possible: starting a JVM takes far longer, and every restoration with Spark
        # comes here.
        version = _version_in_release(java) or _VERSION.search(version_text(java))
    except OSError as error:
        raise Refused(f"Spark needs Java, but kstate cannot run {java}: {error.strerror}", hint=hint) from None
    if version and int(version[1]) < least_version:
        raise Refused(f"Spark needs Java {least_version} or later, but {java} is Java {version[1]}", hint=hint)


def release_file(java: str) -> str:
    """Return the file of an installed Java that states its version without a start. Raises OSError."""
    path = Path(os.path.realpath(java)).parent.parent / "release"
    return regular_files.read_small(path, _MOST_BYTES).decode(errors="replace")


def _version_in_release(java: str) -> re.Match[str] | None:
    with contextlib.suppress(OSError):
        return RELEASE.search(release_file(java))
    return None


def _needed_version() -> int:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        if int(metadata.version("pyspark").split(".")[0]) < 4:
            return _OLD_JAVA
    return JAVA


def _has_spark_env() -> bool:
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder and (home := os.environ.get("SPARK_HOME")):
        folder = f"{home}/conf"
    return bool(folder) and os.path.isfile(f"{folder}/spark-env.sh")


def spark_home() -> str:
    """Return the home of the Spark that pyspark would start. Raises Refused."""
    from pyspark.find_spark_home import _find_spark_home

    try:
        return str(_find_spark_home())
    except SystemExit:
        raise Refused(
            "neither SPARK_HOME nor PySpark's folder contains Spark",
            hint="unset SPARK_HOME or set it to Spark's folder",
        ) from None


@dataclass(frozen=True, slots=True)
class Launch:
    """How a JVM is started: the words, and variables beside those of this process."""

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def by_spark_submit(conf: Mapping[str, str]) -> Launch:
    """Return the start by Spark's own scripts, with all that they and their settings files decide. Raises Refused."""
    words = [os.path.join(spark_home(), "bin", "spark-submit")]
    for key, value in conf.items():
        words += ["--conf", f"{key}={value}"]
    return Launch([*words, *shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))])


class Jvm:
    """One JVM with a gateway for pyspark. ``end`` may be called at any time, from another thread too."""

    def __init__(self, launches: Sequence[Callable[[], Launch | None]], output: IO[bytes], folder: Path) -> None:
        """Take ``launches``, which are tried one after another; None is one that does not exist.

        ``output`` gets what the JVM writes to its standard output and error. It writes its gateway into ``folder``,
        which no other user can read, and which is removed once the gateway is known.
        """
        self._launches, self._output, self._folder = launches, output, folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    @contextlib.contextmanager
    def started(self, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Start the JVM, and wait for its gateway, to which pyspark connects within the block. Raises OSError.

        Raises Refused if the JVM ends before it has a gateway. ``meanwhile`` is called while the JVM starts.
        """
        port, secret = self._first_gateway(self._folder / "gateway", meanwhile)
        # Removed at once, so that nothing is left if the process is killed while Spark is running.
        shutil.rmtree(self._folder, ignore_errors=True)
        os.environ[_PORT], os.environ[_SECRET] = str(port), secret
        try:
            yield
        finally:
            del os.environ[_PORT], os.environ[_SECRET]

    def _first_gateway(self, path: Path, meanwhile: Callable[[], object]) -> tuple[int, str]:
        """Try the ways to start the JVM in their order; return the port and the secret of its gateway.

        Raises Refused.
        """
        failed: Refused | None = None
        for prepare in self._launches:
            launch = prepare()
            if launch is None:
                continue
            # Only the output of the last attempt explains why Spark does not start.
            self._output.seek(0)
            self._output.truncate()
            self._launch(launch, path)
            # While the JVM starts, ``meanwhile`` imports PySpark and numpy, which takes about as long.
            meanwhile()
            try:
                return self._gateway(path)
            except Refused as error:
                failed = error
                if self._ended.is_set():
                    break
        raise failed or Refused("the command that starts its JVM is missing")

    def _launch(self, launch: Launch, path: Path) -> None:
        """Start the JVM with the command ``launch``; it writes the port of its gateway to ``path``."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _DEAF, "sh", *launch.words],
            stdin=subprocess.PIPE,  # the JVM ends with it, however kstate ends
            stdout=self._output,
            stderr=self._output,
            env={
                **os.environ,
                **launch.environment,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(path),
            },
            # A separate session: signals to the group of kstate do not reach the JVM, and all processes that it starts
            # have this session.
            start_new_session=True,
        )
        if self._ended.is_set():
            self.end(0)  # end() was called before the process existed

    def _gateway(self, path: Path) -> tuple[int, str]:
        """Return the port and the secret that the JVM writes when it listens: two big-endian numbers, and the text."""
        assert self._process is not None
        while not path.is_file():
            status = self._process.poll()
            if status is not None:
                raise Refused(f"its JVM exited with status {status}")
            time.sleep(_POLL_SECONDS)
        content = path.read_bytes()
        # ``PythonGatewayServer`` renames the file when it is complete.
        port, length = struct.unpack_from(">ii", content)
        return port, content[8 : 8 + length].decode()

    def end(self, seconds: float = _END_SECONDS) -> tuple[int, ...]:
        """End the JVM by closing its standard input, after which it cleans up. After ``seconds``, kill it.

        Processes that it has started and that are still alive are killed at once: a worker could still write, and if it
        is stopped, the system continues it. If the result is empty, nothing is written any more. Returns the processes
        that are alive some seconds after they were killed.
        """
        self._ended.set()
        process = self._process
        if process is None:
            return ()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        _wait(process, seconds)
        deadline = time.monotonic() + _KILLED_SECONDS
        # Repeated, because a process may start another one just before it is killed.
        while (members := _members(process.pid)) and time.monotonic() < deadline:
            for pid in members:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        if not members:
            process.wait()
        return tuple(members)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a process has ended, but at most ``seconds``. Python's own wait only checks every 50 ms."""
    # pidfd_open needs Linux 5.3 and is missing in some builds of Python; it also fails if the process has ended.
    with contextlib.suppress(OSError, AttributeError):
        # poll returns as soon as the process ends.
        ended = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(ended)
        seconds = 0
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _members(session: int) -> list[int]:
    """Return the living processes of a session. Its number is not used again as long as it has members."""
    processes = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                # The format is: pid (command) state parent group session … A command may contain blanks and
                # parentheses.
                state, _, _, of = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()[:4]
                # Zombies no longer write. They stay if their parent hangs and never waits for them.
                if int(of) == session and state not in (b"Z", b"X"):
                    processes.append(int(name))
    return processes

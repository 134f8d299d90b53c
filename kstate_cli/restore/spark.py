"""Starts Spark, runs one task per slice, stops Spark. Nothing of Spark is left when this returns or raises.

There is no shuffle: a task reads its slice, writes its runs and returns one small result. Spark gives back one result
per slice whatever attempts there were; only those results are used.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kstate_cli.errors import KstateError, Refused, RunFailed
from kstate_cli.restore.jobs import SliceJob, SliceResult
from kstate_cli.restore.runs import build_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL = "local"
_DRIVER_MEMORY = "512m"
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM runs for seconds and works little: compiling well would take longer than it saves."""
_POLL_SECONDS = 0.2
_WARM_TASKS, _WARM_SECONDS = 8, 0.25
_TAIL_LINES = 5
_END_SECONDS = 30
Job = TypeVar("Job")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to run Spark."""

    master: str | None = None
    """None: ``local[*,4]`` (with ``local[*]`` Spark would never retry), or what spark-submit says."""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """All tasks run on this host, in Spark's own JVM."""
        return (self.effective_master or "").startswith(_LOCAL)

    @property
    def effective_master(self) -> str | None:
        """The master to ask for; None under spark-submit, which has chosen one."""
        if self.master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
            return None
        return self.master or "local[*,4]"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal is an answer, not a failure: trying again would give the same."""

    error: KstateError


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[Job, Answer]):
    """What Spark calls for a job."""

    function: Callable[[Job], Answer]
    refusals: type[KstateError]

    def __call__(self, job: Job) -> Answer | _Refusal:
        try:
            return self.function(job)
        except self.refusals as error:
            return _Refusal(error)


@contextlib.contextmanager
def spark_session(settings: SparkSettings, *, name: str = "kstate restore") -> Iterator[SparkSession]:
    """A session that is stopped in the end. Raises RunFailed when Spark does not start."""
    master = settings.effective_master
    local = master is not None and master.startswith(_LOCAL)
    loopback = local or (master or "").startswith("spark://127.0.0.1")
    environment: dict[str, str] = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with _environment(environment):
        interrupt = signal.getsignal(signal.SIGINT)
        session = _start(settings, master, name, local=local, loopback=loopback)
        # pyspark puts its own handler in the place of kstate's.
        signal.signal(signal.SIGINT, interrupt)
        try:
            yield session
        finally:
            _stop(session)


def _start(settings: SparkSettings, master: str | None, name: str, *, local: bool, loopback: bool) -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RunFailed(f"PySpark cannot be imported: {error}", hint="pip install 'kstate'") from None
    quiet = resources.files("kstate_cli.restore") / "log4j2.properties"
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.locality.wait": "0",
        # Modules of this very installation, for workers that Spark starts elsewhere on this host.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet} {_JAVA_OPTIONS}",
    }
    if loopback:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**conf, **settings.conf}.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_to(said.fileno()):
                session = builder.getOrCreate()
        except KstateError:
            raise  # a signal that came meanwhile
        except Exception as error:
            said.seek(0)
            tail = said.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
            raise RunFailed(
                f"Spark does not start: {_last_line(error)}",
                details=tail,
                hint="Java 17 or later is needed; look at --master and --conf",
            ) from error
    session.sparkContext.setLogLevel("OFF" if local else "ERROR")
    return session


def _stop(session: SparkSession) -> None:
    """Stops Spark and its JVM: its Python workers go with it, and nobody writes to the staging area any more."""
    context = session.sparkContext
    gateway = context._gateway  # pyspark has no public way to end the JVM that it started
    process = getattr(gateway, "proc", None)
    own = "PYSPARK_GATEWAY_PORT" not in os.environ
    steps: list[Callable[[], object]] = [session.stop]
    if own and gateway is not None:
        steps += [gateway.shutdown, lambda: _end(process)]
    ended: list[KstateError] = []
    for step in steps:
        try:
            step()
        except KstateError as error:
            ended.append(error)  # a signal: closing comes first
        except Exception:
            pass
    if own:
        type(context)._gateway = None
        type(context)._jvm = None
    if ended:
        raise ended[0]


def _end(process: subprocess.Popen[bytes] | None) -> None:
    """Spark's JVM ends with its standard input."""
    if process is not None and process.stdin is not None:
        process.stdin.close()
        process.wait(timeout=_END_SECONDS)


def slots_of(session: SparkSession) -> int:
    """How many tasks run at once. A first small job starts the Python workers; on a cluster executors register late."""
    context = session.sparkContext
    local = (context.master or "").startswith(_LOCAL)
    tasks, seconds = (int(context.defaultParallelism), 0.0) if local else (_WARM_TASKS, _WARM_SECONDS)
    context.parallelize(range(tasks), tasks).map(lambda _: time.sleep(seconds)).collect()
    return int(context.defaultParallelism)


def run_jobs(session: SparkSession, jobs: Sequence[SliceJob], on_poll: Callable[[], None]) -> list[SliceResult]:
    """One task per job. Raises Refused for what a slice refuses, RunFailed when Spark gives a task up."""
    return run_tasks(session, build_runs, jobs, on_poll, refusals=Refused)


def run_tasks(
    session: SparkSession,
    function: Callable[[Job], Answer],
    jobs: Sequence[Job],
    on_poll: Callable[[], None],
    *,
    refusals: type[KstateError] = KstateError,
) -> list[Answer]:
    """One task per job, the answers in the order of the jobs; ``function`` is one of a module.

    ``refusals`` are raised here as they are, the first one; anything else Spark tries again, and it is RunFailed where
    it gives up. ``on_poll`` is called now and then, in this thread.
    """
    context = session.sparkContext
    attempt = _Attempt(function, refusals)
    outcome: dict[str, Any] = {}

    def collect() -> None:
        try:
            outcome["results"] = context.parallelize(jobs, len(jobs)).map(attempt).collect()
        except BaseException as error:  # handed to the thread that waits
            outcome["error"] = error

    thread = threading.Thread(target=collect, name="spark-job", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            on_poll()
    except BaseException:
        with contextlib.suppress(Exception):
            context.cancelAllJobs()
        raise
    if "error" in outcome:
        raise _failure(outcome["error"]) from outcome["error"]
    results: list[Answer] = []
    for one in outcome["results"]:
        if isinstance(one, _Refusal):
            raise one.error
        results.append(one)
    return results


def _failure(error: BaseException) -> KstateError:
    if isinstance(error, KstateError):
        return error
    return RunFailed(
        f"a Spark task failed for good: {_last_line(error)}",
        hint="nothing has changed; mend the cause and run the command again",
    )


def _last_line(error: BaseException) -> str:
    """Of a Java error with a Python traceback in it, the line that says what went wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _is_python_error(line)]
    return (told or lines or [type(error).__name__])[-1 if told else 0][:500]


def _is_python_error(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and (name.endswith(("Error", "Exception", "Refused"))) and not name.startswith(("at ", "Caused"))


@contextlib.contextmanager
def _stderr_to(descriptor: int) -> Iterator[None]:
    """What the JVM inherits as its standard error: it greets and warns there, whatever its log level is."""
    sys.stderr.flush()
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    for name, value in values.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)

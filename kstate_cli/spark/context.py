"""Start Spark, run one task for each job, and stop Spark. After that, no process of Spark is left.

Tasks do not shuffle: each reads its part, writes its files and returns one small result. Spark returns one result for
each job, even if it has repeated a task. Only these results are used.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, Generic, TypeVar

from kstate_cli import option, temporary
from kstate_cli.change.commits_made import unchanged
from kstate_cli.deadline import contact
from kstate_cli.errors import KstateError, Refused, RunFailed, note
from kstate_cli.host import cores_here
from kstate_cli.signals import signals_held, start
from kstate_cli.spark import kept_start
from kstate_cli.spark.daemon import MODULE as DAEMON
from kstate_cli.spark.daemon import MODULES, import_modules
from kstate_cli.spark.engine import JAVA, Jvm, Launch, by_spark_submit, let_signals_come, under_spark_submit

if TYPE_CHECKING:
    from pyspark import SparkContext


_LOCAL = "local"
_DRIVER_MEMORY = "512m"
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The JVM runs for seconds and works little: compiling well would take longer than it saves."""
_LOCAL_SLOTS = re.compile(r"local(?:\[(\*|\d+)(?:,\d+)?\])?")
_WARM_TASKS, _WARM_SECONDS = 8, 0.25
_TAIL_LINES = 5
_STOP_SECONDS = 20
_LOOK_SECONDS = 0.01
Job = TypeVar("Job")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to run Spark."""

    master: str | None = None
    """None: ``local[*,4]`` (with ``local[*]`` Spark would never retry), or the choice of spark-submit."""
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def local(self) -> bool:
        """All tasks run on this host, in Spark's own JVM."""
        return (self.effective_master or "").startswith(_LOCAL)

    @property
    def effective_master(self) -> str | None:
        """The master to ask for; None under spark-submit, which has chosen one.

        ``local[*]`` gets its number here: whether the memory is enough is judged before Spark starts.
        """
        if self.master is None and under_spark_submit():
            return None
        master = self.master or "local[*,4]"
        return re.sub(r"^local\[\*", f"local[{cores_here()}", master)

    @property
    def loopback(self) -> bool:
        """Nothing of it is on another host."""
        return self.local or (self.effective_master or "").startswith("spark://127.0.0.1")

    @property
    def slots(self) -> int | None:
        """Tasks at once on a local master; None where only Spark knows."""
        local = _LOCAL_SLOTS.fullmatch(self.effective_master or "")
        if local is None:
            return None
        return int(local[1] or 1)


@dataclass(frozen=True, slots=True)
class _TaskRefusal:
    """A refusal is an answer, not a failure: trying again would give the same."""

    error: KstateError


@dataclass(frozen=True, slots=True)
class _Attempt(Generic[Job, Answer]):
    """What Spark calls for a job."""

    function: Callable[[Job], Answer]
    refusals: type[KstateError]

    def __call__(self, job: Job) -> Answer | _TaskRefusal:
        try:
            return self.function(job)
        # The error is returned as a value: for an exception Spark would run the task four times.
        except self.refusals as error:
            return _TaskRefusal(error)


Launches = Callable[[Mapping[str, str]], Sequence[Callable[[], Launch | None]]]
"""Ways to start a JVM with such settings, the first that comes up counts; None is a way that there is not."""


@contextlib.contextmanager
def spark_context(
    settings: SparkSettings,
    *,
    name: str = "kstate restore",
    launches: Launches | None = None,
    modules: Sequence[str] = (),
) -> Iterator[SparkContext]:
    """Yield a context of Spark, which is stopped in the end. Raises Refused if Spark does not start.

    ``modules`` are those that tasks need. This process and the workers of this host import them before the first task.
    ``launches`` are ways to start the JVM, tried in this order.

    The context is not a SparkSession, which takes seconds longer: a caller that needs DataFrames creates one from it.

    A signal that arrives while Spark starts or stops is raised when no process of Spark is left.
    """
    environment: dict[str, str] = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # Otherwise Spark resolves the name of this host, which may take long or give another address.
    if settings.loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        contact(f"Spark at {settings.effective_master or 'the master of spark-submit'}")
    # The folder belongs to this thread, because a signal may end the thread that starts Spark.
    with _environment(environment), tempfile.TemporaryFile() as output, temporary.private_folder("spark") as folder:
        conf = {f"spark.executorEnv.{MODULES}": ",".join(modules), **conf_of(settings, name)}
        jvm = None
        if not under_spark_submit():
            jvm = Jvm((launches or _usual_launches)(conf), output, folder)
        spark = _Spark(conf, jvm, modules, local=settings.local)
        survivors: tuple[int, ...] = ()
        try:
            try:
                try:
                    context = in_side_thread(spark.start)
                except Exception as error:
                    let_signals_come()
                    raise _does_not_start(error, output) from error
                yield context
            finally:
                with signals_held():
                    survivors = spark.stop()
        except BaseException as error:
            if survivors:
                note(error, _lives_on(survivors))
            raise
        if survivors:
            raise RunFailed(
                _lives_on(survivors), hint="check what these processes are waiting for, then run the command again"
            )


def _lives_on(processes: tuple[int, ...]) -> str:
    return (
        f"processes that Spark has started have not ended (process {', '.join(map(str, processes))}) and may still "
        "write"
    )


def _usual_launches(conf: Mapping[str, str]) -> Sequence[Callable[[], Launch | None]]:
    """Return the recorded start, if there is one, and Spark's own scripts for when no JVM comes up by that."""

    def as_kept() -> Launch | None:
        start_record = kept_start.find(conf)
        if start_record is None:
            return None
        return Launch(start_record.argv(conf), start_record.environment)

    return as_kept, partial(by_spark_submit, conf)


def conf_of(settings: SparkSettings, name: str) -> dict[str, str]:
    """Return the settings for Spark: kstate's defaults, and over them the user's ``settings.conf``."""
    master = settings.effective_master
    quiet = resources.files("kstate_cli.spark") / "log4j2.properties"
    conf = {
        "spark.app.name": name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": _DRIVER_MEMORY,
        # By default, Spark waits up to three seconds for an executor near the data. No executor is near the files of a
        # dump.
        "spark.locality.wait": "0",
        # Workers on this host start in another directory, and import the modules of this installation. Workers on other
        # hosts do not have these paths, so Python ignores them there.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{quiet} {_JAVA_OPTIONS}",
    }
    if master is not None:
        conf["spark.master"] = master
    if settings.local and "SPARK_HOME" not in os.environ:
        # kstate's own parent of the Python workers starts them faster (see the module). It imports the PySpark that is
        # installed here. SPARK_HOME may be a Spark of another version, so it keeps its own.
        conf["spark.python.daemon.module"] = DAEMON
    if settings.loopback:
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    # The user's settings come last, so that they override all others.
    return {**conf, **settings.conf}


def _import(modules: Sequence[str]) -> None:
    importlib.import_module("pyspark")
    import_modules(modules)


def quieten_py4j() -> None:
    """Silence py4j, which logs a traceback for every broken connection: kstate reports what that means.

    Part of it goes to its own loggers, and part to the root logger.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


class _Spark:
    """Spark while it starts, runs and stops. pyspark keeps what it has started in its classes: one at a time."""

    def __init__(self, conf: Mapping[str, str], jvm: Jvm | None, modules: Sequence[str], *, local: bool) -> None:
        """Take the ``jvm`` to start, None if spark-submit has started it. ``modules``: see ``spark_context``."""
        self._conf, self._jvm, self._modules, self._local = conf, jvm, modules, local
        self._context: SparkContext | None = None
        self._added: set[str] = set()

    def start(self) -> SparkContext:
        """Start Spark and return its context. Raises errors of pyspark, and Refused if the JVM ends."""
        quieten_py4j()
        with contextlib.nullcontext() if self._jvm is None else self._jvm.started(partial(_import, self._modules)):
            from pyspark import SparkConf, SparkContext

            before = {*sys.path}
            context = SparkContext.getOrCreate(SparkConf().setAll([*self._conf.items()]))
            self._added = {*sys.path} - before
        self._context = context
        _quieten_accumulators(context)
        if self._local:
            # This process gets every error of a local task and reports it, so Spark need not log it.
            context.setLogLevel("OFF")
        else:
            context.setLogLevel("ERROR")
        return context

    def stop(self) -> tuple[int, ...]:
        """Stop Spark, and the JVM that was started here with its Python workers. Nothing is written afterwards.

        Returns the processes that could not be ended.
        """
        of_python = threading.Thread(target=self._stop_context, name="spark-context", daemon=True)
        stopping = threading.Thread(target=self._stop_java, args=[of_python], name="spark-stop", daemon=True)
        # Stopping hangs if the JVM hangs, so both threads get a limited time.
        start(of_python)
        start(stopping)
        stopping.join(_STOP_SECONDS)
        survivors: tuple[int, ...] = ()
        if self._jvm is not None:
            # Ends the JVM and all processes that it has started, even if stopping Spark has failed.
            survivors = self._jvm.end()
        # The JVM has ended, so every call to it fails, and the thread ends.
        of_python.join(_STOP_SECONDS)
        if self._jvm is not None:
            _forget_gateway()
            # Spark has removed these folders. Any user could create one of them below /tmp again, with modules that
            # Python would import.
            sys.path[:] = [path for path in sys.path if path not in self._added]
        return survivors

    def _stop_context(self) -> None:
        # What its death has broken already needs no stopping.
        with contextlib.suppress(Exception):
            if self._context is not None:
                self._context.stop()

    def _stop_java(self, of_python: threading.Thread) -> None:
        """Stop pyspark's connection to Java after its context: its server of accumulators ends only with the JVM."""
        context = self._context
        if context is None:
            return
        gateway = context._gateway  # pyspark has no public way to the JVM
        while context._jsc is not None and of_python.is_alive():
            of_python.join(_LOOK_SECONDS)
        with contextlib.suppress(Exception):
            if self._jvm is not None and gateway is not None:
                # Closed before the JVM ends: otherwise threads in this process would print that their connection is
                # broken.
                gateway.shutdown()


def _quieten_accumulators(context: SparkContext) -> None:
    """Silence the server of accumulators, which prints a traceback when its connection to the JVM ends."""
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _forget_gateway() -> None:
    """Make the next context start a JVM of its own instead of asking one that has ended."""
    with contextlib.suppress(ImportError):
        from pyspark import SparkContext

        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None


def _does_not_start(error: Exception, output: IO[bytes]) -> Refused:
    """Return the error for a failed start of Spark, with the last lines of its output."""
    if isinstance(error, ImportError):
        return Refused(
            f"kstate cannot import PySpark: {error}",
            hint=f"pass {option.ENGINE} local, which does not need Spark. Or reinstall kstate with its dependencies",
        )
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines()]
    # Of a stack trace only the lines with errors are shown, without the places in the code.
    tail = [line for line in lines if line and not line.startswith("at ")][-_TAIL_LINES:]
    return Refused(
        f"Spark failed to start: {_last_line(error)}",
        details=tail,
        hint=f"install Java {JAVA} or later, and check {option.MASTER} and {option.CONF}",
    )


def slots_of(context: SparkContext) -> int:
    """Return how many tasks run at once, after a first small job: on a cluster executors register late."""
    return ask(partial(_warm_up, context))


def _warm_up(context: SparkContext) -> int:
    tasks, seconds = _WARM_TASKS, _WARM_SECONDS
    if (context.master or "").startswith(_LOCAL):
        # The executor is this JVM: one task in each slot starts all Python workers.
        tasks, seconds = int(context.defaultParallelism), 0.0
    # One job that does nothing: executors of a cluster register while it waits, and workers import what tasks need.
    context.parallelize(range(tasks), tasks).map(lambda _: time.sleep(seconds)).collect()
    return int(context.defaultParallelism)


def run_tasks(
    context: SparkContext,
    function: Callable[[Job], Answer],
    jobs: Sequence[Job],
    on_poll: Callable[[], None],
    *,
    refusals: type[KstateError] = KstateError,
) -> list[Answer]:
    """Run one task for each job; return the answers in the order of the jobs.

    If tasks raise errors of the classes ``refusals``, that of the first job is raised here, after all tasks have ended.
    After any other error, Spark repeats the task (not with a master such as ``local[2]``). RunFailed is raised if all
    attempts fail. ``on_poll`` is called regularly, in this thread.
    """
    attempt = _Attempt(function, refusals)
    answers = ask(lambda: context.parallelize(jobs, len(jobs)).map(attempt).collect(), on_poll)
    results: list[Answer] = []
    for answer in answers:
        if isinstance(answer, _TaskRefusal):
            raise answer.error
        results.append(answer)
    return results


def ask(work: Callable[[], Answer], on_poll: Callable[[], None] | None = None) -> Answer:
    """Return the result of a call of Spark. Raises RunFailed if Spark fails, Interrupted if a signal was the cause."""
    try:
        return in_side_thread(work, on_poll)
    except RunFailed:
        let_signals_come()
        raise
    except KstateError:
        raise  # an error of on_poll
    except Exception as error:
        let_signals_come()
        raise _failure(error) from error


def _failure(error: Exception) -> RunFailed:
    return RunFailed(
        f"a Spark task failed in every attempt: {_last_line(error)}",
        hint=unchanged("fix the cause, then run the command again"),
    )


def _last_line(error: BaseException) -> str:
    """Return the line of a Java error with a Python traceback in it that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    python_errors = [line for line in lines if _is_python_error(line)]
    if python_errors:
        # A Python traceback ends in its error, and the last traceback is that of the cause.
        return python_errors[-1][:500]
    return (lines or [type(error).__name__])[0][:500]


def _is_python_error(line: str) -> bool:
    name, colon, _ = line.partition(":")
    return bool(colon) and (name.endswith(("Error", "Exception", "Refused"))) and not name.startswith(("at ", "Caused"))


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    # setdefault: what the user has set counts.
    for name, value in values.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)


_POLL_SECONDS: Final = 0.2


def in_side_thread(work: Callable[[], Answer], on_poll: Callable[[], None] | None = None) -> Answer:
    """Run ``work`` in another thread and wait for it in this thread, which signals interrupt.

    Every call of Spark goes through this function. Spark's client treats any exception during a call as its own error,
    also that of a signal, and then continues with an incomplete message. So no signal may interrupt it. ``work`` that
    was interrupted continues until Spark is stopped. Raises its errors. ``on_poll`` is called regularly, in this
    thread.
    """
    ended = threading.Event()
    value: list[Answer] = []
    error: list[BaseException] = []

    def run() -> None:
        try:
            value.append(work())
        except BaseException as raised:  # handed to the thread that waits
            error.append(raised)
        finally:
            ended.set()

    start(threading.Thread(target=run, name="spark", daemon=True))
    while not ended.wait(_POLL_SECONDS):
        if on_poll is not None:
            on_poll()
    if error:
        raise error[0]
    return value[0]

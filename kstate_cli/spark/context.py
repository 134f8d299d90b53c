"""Starts Spark, runs one task per job, stops Spark. Nothing of Spark is left when this returns or raises.

There is no shuffle: a task reads its part, writes its files and returns one small result. Spark gives back one result
per job whatever attempts there were; only those results are used.
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

from kstate_cli import temporary
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
        # As a value: Spark would run the task four times before it gave up on an exception.
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
    """Yield a context that is stopped in the end. Raises Refused if Spark does not start: nothing has begun then.

    ``modules``: what tasks need; this process and the workers of this host import them before the first task.

    It is no SparkSession, which takes seconds more: a caller that needs DataFrames makes one of it.

    A signal while Spark starts or stops is raised here, once nothing of Spark is left.
    """
    environment: dict[str, str] = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    # Without it Spark asks the resolver for the name of this host, which may be slow, or lead to another address.
    if settings.loopback:
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    else:
        contact(f"Spark at {settings.effective_master or 'the master of spark-submit'}")
    # The folder is this thread's: the one in which Spark starts may be left behind by a signal.
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
                _lives_on(survivors), hint="check what those processes wait for, then run the command again"
            )


def _lives_on(processes: tuple[int, ...]) -> str:
    return (
        f"processes that Spark has started do not end (process {', '.join(map(str, processes))}), and may still write"
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
    # The user's settings last: they win over all of these.
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
        """Start Spark. Raises what pyspark raises, Refused if the JVM ends."""
        quieten_py4j()
        with contextlib.nullcontext() if self._jvm is None else self._jvm.started(partial(_import, self._modules)):
            from pyspark import SparkConf, SparkContext

            before = {*sys.path}
            context = SparkContext.getOrCreate(SparkConf().setAll([*self._conf.items()]))
            self._added = {*sys.path} - before
        self._context = context
        _quieten_accumulators(context)
        if self._local:
            # Every error of a local task comes back to this process, and kstate reports it.
            context.setLogLevel("OFF")
        else:
            context.setLogLevel("ERROR")
        return context

    def stop(self) -> tuple[int, ...]:
        """Stop Spark and the JVM that was started here: its Python workers end with it, and nothing writes any more.

        Returns the processes that do not end.
        """
        of_python = threading.Thread(target=self._stop_context, name="spark-context", daemon=True)
        stopping = threading.Thread(target=self._stop_java, args=[of_python], name="spark-stop", daemon=True)
        # Stopping may hang with its JVM, so neither thread is waited for without a limit.
        start(of_python)
        start(stopping)
        stopping.join(_STOP_SECONDS)
        survivors: tuple[int, ...] = ()
        if self._jvm is not None:
            # Whatever became of stopping: this ends the JVM, and all that it has started.
            survivors = self._jvm.end()
        # With the JVM gone, every call to it has failed by now.
        of_python.join(_STOP_SECONDS)
        if self._jvm is not None:
            _forget_gateway()
            # Spark removed this folder: below /tmp any user could create it again, with modules in it.
            sys.path[:] = [path for path in sys.path if path not in self._added]
        return survivors

    def _stop_context(self) -> None:
        # What its death has broken already needs no stopping.
        with contextlib.suppress(Exception):
            if self._context is not None:
                self._context.stop()

    def _stop_java(self, of_python: threading.Thread) -> None:
        """Stop Java once its context has stopped: pyspark's server of accumulators ends only with the JVM."""
        context = self._context
        if context is None:
            return
        gateway = context._gateway  # pyspark has no public way to the JVM
        while context._jsc is not None and of_python.is_alive():
            of_python.join(_LOOK_SECONDS)
        with contextlib.suppress(Exception):
            if self._jvm is not None and gateway is not None:
                # Before the JVM ends: its threads in this process would print that their connection broke.
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
    if isinstance(error, ImportError):
        return Refused(
            f"kstate cannot import PySpark: {error}",
            hint=("pass --engine local, which does not need Spark. Or install kstate again, with its dependencies"),
        )
    output.seek(0)
    lines = [line.strip() for line in output.read().decode(errors="replace").splitlines()]
    # A stack trace: keep the lines with the error, without those with places.
    tail = [line for line in lines if line and not line.startswith("at ")][-_TAIL_LINES:]
    return Refused(
        f"Spark failed to start: {_last_line(error)}",
        details=tail,
        hint=f"install Java {JAVA} or later, and check --master and --conf",
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
    """Run one task per job; return the answers in the order of the jobs. ``function`` is one of a module.

    The first of ``refusals`` is raised here. Spark tries again after any other error, and RunFailed is raised once it
    gives up. ``on_poll`` is called now and then, in this thread.
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
    """Return what Spark answers. Raises RunFailed if it gives up, Interrupted if a signal caused that."""
    try:
        return in_side_thread(work, on_poll)
    except RunFailed:
        let_signals_come()
        raise
    except KstateError:
        raise  # what on_poll raises
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
    """Do ``work`` in another thread and wait for it here, in the thread that signals interrupt.

    Everything that asks Spark goes through here: its client mistakes any exception amid a conversation, a signal's too,
    for an error of its own, and continues with half a conversation. Raises what ``work`` raises. Interrupted work
    continues until Spark is ended. ``on_poll`` is called now and then, here.
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

"""Run jobs in worker processes, and count their progress in a file that all of them map.

rocksdict holds the interpreter's lock while it opens and closes a database, so threads would take turns. A worker is a
fresh interpreter, never a fork: RocksDB's threads do not survive a fork, and the caller may have threads of its own. A
worker gets jobs as pickles on its standard input, and ends with its parent, however the parent ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from kstate_cli import option
from kstate_cli.host import HostError, most_descriptors
from kstate_cli.signals import ENDING, now_and_then, signals_held, submitted
from kstate_cli.texts import suggest

_MANY = 96
"""From so many jobs on, processes gain more than their start costs."""
_PR_SET_PDEATHSIG = 1
Job = TypeVar("Job")
Answer = TypeVar("Answer")
_Process = subprocess.Popen[bytes]


class Workers:
    """Runs jobs, ``count`` at once: in threads while there are few, else in processes. A context manager.

    To be used from the thread that made it: the processes end with that thread.
    """

    _many = _MANY

    def __init__(self, count: int) -> None:
        self.count = max(1, count)
        most_descriptors()  # an open database has dozens, whether threads or processes read it
        self._threads = ThreadPoolExecutor(self.count)
        self._processes: list[_Process] = []
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        self._submitted: list[Future[Any]] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # First no new job, then an end to those that run: a thread that waits for a process would otherwise wait for
        # ever.
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.stop()
        self._threads.shutdown(wait=True)

    def stop(self) -> None:
        """End all jobs: those in processes at once, those in threads when they are done. Others may follow.

        Call it before what jobs write is deleted: a job that fails, or a signal, leaves others running.
        """
        # A second signal amid this would leave processes that no list names.
        with signals_held():
            running = [future for future in self._submitted if not future.cancel()]
            for process in self._processes:
                # No answer is needed any more, or they are idle. A thread that still waits gets the end of file.
                process.kill()
            for process in self._processes:
                process.wait()
            # Threads may still be writing what their caller is about to delete.
            wait(running)
            for process in self._processes:
                for pipe in (process.stdin, process.stdout):
                    # Jobs that could not be sent to a dead process are dropped.
                    with contextlib.suppress(OSError):
                        pipe.close()  # type: ignore[union-attr]
            self._submitted, self._processes, self._idle = [], [], SimpleQueue()

    def map(self, function: Callable[[Job], Answer], jobs: Sequence[Job]) -> Iterator[Answer]:
        """Yield the answers, in the order of the jobs. ``function`` is one of a module; jobs and answers are data.

        The first job that fails ends it: jobs that have not begun are dropped, and its error is raised; HostError if a
        process has died. Jobs that have begun continue: :meth:`stop` ends them.
        """
        # A new interpreter takes longer to start than a few databases take to open.
        if self.count > 1 and len(jobs) >= self._many and not self._processes:
            self._start()
        self._submitted = [future for future in self._submitted if not future.done()]
        # Who calls stop has no other list.
        futures = submitted(self._threads, partial(self._run, function), jobs, self._submitted)
        ended: SimpleQueue[Future[Answer]] = SimpleQueue()
        for future in futures:
            future.add_done_callback(ended.put)
        try:
            for future in futures:
                # Whichever ends meanwhile: one that has failed is not waited for in its turn.
                while not future.done():
                    # Any job that has ended, in whatever order: its error must not wait for the jobs before it.
                    ended.get().result()
                yield future.result()
        finally:
            for future in futures:
                future.cancel()

    def work_off(
        self,
        function: Callable[[Job], Answer],
        take: Callable[[], Job | None],
        ended: Callable[[Job, Answer], object],
    ) -> None:
        """Run the jobs that ``take`` gives, ``count`` at once, until it gives None and all have ended.

        ``ended`` gets each job with its answer, in this thread and at once; it may make other jobs.
        The first job that fails ends it, as in :meth:`map`.
        """
        running: dict[Future[Answer], Job] = {}
        finished: SimpleQueue[Future[Answer]] = SimpleQueue()
        try:
            while True:
                # No more jobs than can run: ``take`` may decide by what has ended since.
                while len(running) < self.count and (job := take()) is not None:
                    self._submitted = [future for future in self._submitted if not future.done()]
                    (future,) = submitted(self._threads, partial(self._run, function), [job], self._submitted)
                    running[future] = job
                    future.add_done_callback(finished.put)
                if not running:
                    return
                future = finished.get()
                ended(running.pop(future), future.result())
        finally:
            for future in running:
                future.cancel()

    def _start(self) -> None:
        environment = same_modules()
        for _ in range(self.count):
            process = subprocess.Popen(
                another_python(f"from kstate_cli.parallel import serve; serve({os.getpid()})"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            self._processes.append(process)
            self._idle.put(process)

    def _run(self, function: Callable[[Job], Answer], job: Job) -> Answer:
        if not self._processes:
            return function(job)
        # One job for each process, because a process answers in the order of its jobs.
        process = self._idle.get()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((function, job), process.stdin)
            process.stdin.flush()
            good, answer = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise _ended(process.wait()) from None
        finally:
            # A dead one too: the job that takes it next fails in the same way, and no job waits for ever.
            self._idle.put(process)
        if good:
            return answer  # type: ignore[no-any-return]
        raise answer


def another_python(statements: str) -> list[str]:
    """Return the command of another Python; with ``same_modules`` as environment it finds what this one finds.

    Python would search the working directory first, for its own modules too: anybody's modules may be there, or those
    of another version.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path); {statements}"]


def same_modules() -> dict[str, str]:
    """Return the environment of another Python that finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}


class Processes(Workers):
    """Processes from the first job on: for rows that Python code reads, where threads would take turns."""

    _many = 0

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._start()


def _ended(status: int) -> HostError:
    """Return the error of a process that was killed, mostly for want of memory: that proves nothing about its input."""
    return HostError(
        f"a worker process exited with status {status}",
        hint=(
            f"{suggest(f'pass fewer {option.WORKERS} to use less memory. ', option.WORKERS)}The system log may show "
            "why the process ended"
        ),
    )


def serve(parent: int) -> None:
    """Run a worker process. ``parent``: the process that it ends with."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return  # it died while this one began: no answer is needed, and nothing owns what the jobs would write
    most_descriptors()
    # Ctrl-C and a supervisor's signal reach the whole group: the parent decides, and its end is theirs.
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed here must not get between the answers
    while True:
        try:
            function, job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            answer = True, function(job)
        except Exception as error:
            answer = False, error
        pickle.dump(answer, answers)
        answers.flush()


_BYTES = 8
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter in a file of them."""

    file: Path
    number: int


class Progress:
    """Counts the bytes of one job; without a counter it counts for itself."""

    def __init__(self, counter: Counter | None, total: int) -> None:
        self._total = total
        self._count = 0
        self._shared: mmap.mmap | None = None
        # Mapped, not written: counting must cost no call of the system.
        if counter is not None:
            self._at = counter.number * _BYTES
            with open(counter.file, "r+b") as file:
                self._shared = mmap.mmap(file.fileno(), 0)

    def add(self, size: int) -> None:
        """Add bytes."""
        # Rows take more or fewer bytes than the SSTs that they are in: never past the end.
        self._count = min(self._count + size, self._total)
        self._write()

    def finished(self) -> None:
        """End the job, however many bytes were counted."""
        self._count = self._total
        self._write()
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _write(self) -> None:
        if self._shared is not None:
            self._shared[self._at : self._at + _BYTES] = self._count.to_bytes(_BYTES, "little")


class Counters:
    """The counters of all jobs."""

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        # A file to map must not be empty.
        file.write_bytes(bytes(_BYTES * max(1, count)))

    def counter(self, number: int) -> Counter:
        """Return the counter of one job."""
        return Counter(self._file, number)

    def total(self) -> int:
        """Return the sum of all counters."""
        # A counter that is written meanwhile may be read torn: it is a display, and right again at the next look.
        data = self._file.read_bytes()
        return sum(int.from_bytes(data[at : at + _BYTES], "little") for at in range(0, len(data), _BYTES))


@contextmanager
def progress_counters(scratch: Path, jobs: int, at: Callable[[int], None]) -> Iterator[Counters]:
    """Yield the counters of so many jobs, in ``scratch``; ``at`` gets their sum now and then, from a thread."""
    counters = Counters(scratch / "counters", jobs)
    with now_and_then(lambda: at(counters.total()), _LOOK_SECONDS):
        yield counters


def leave_everything_in(scratch: Path) -> None:
    """Make this worker process put temporary files into ``scratch``, which its parent removes.

    So nothing of it remains, whenever it is killed.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)

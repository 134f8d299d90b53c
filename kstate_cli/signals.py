"""Hold back signals, so that no block of statements is interrupted and no thread is half started."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command."""
CLOSING_SECONDS: Final = 9.0
"""So long after a signal a command that has a deadline may wait for what does not answer; 10 s include its end."""
Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers
"""What ``signal.signal`` takes."""
Job = TypeVar("Job")
Answer = TypeVar("Answer")


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold back the signals that end a command until the block is left. An error of the block goes before them.

    A mask alone does not: it holds for this thread only. A signal that is sent to the process goes to one of RocksDB's
    threads instead, and Python runs the handler here all the same. So meanwhile the handlers only take a note.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread: what they raise is not raised here
        return
    caught: list[int] = []
    handlers = {number: signal.getsignal(number) for number in ENDING}
    # Blocked while the handlers are exchanged, so that no signal meets half of the new ones.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    failed = True
    try:
        for number in ENDING:
            # The handler only takes a note: list.append cannot fail in a way that would leave the block.
            signal.signal(number, lambda number, _: caught.append(number))
        yield
        failed = False
    finally:
        # What waits for this thread is noted, too, before the real handlers are back.
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        # The note-takers go last to first: what one of the real ones raises must not leave others behind.
        raised: BaseException | None = None
        for number, handler in handlers.items():
            before = _restorable(handler)
            # Until it is set: signal.signal runs pending handlers first, and one of them may raise.
            while signal.getsignal(number) is not before:
                try:
                    signal.signal(number, before)
                except BaseException as error:
                    raised = raised or error
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # An error that is on its way ends the command as well, and may state something that no other message does.
        if not failed:
            if raised is not None:
                raise raised
            if caught:
                signal.raise_signal(caught[0])


def watch_signals(at_deadline: Callable[[int], object], seconds: float) -> bool:
    """Call ``at_deadline`` with the number of an ending signal, so long after it, from a daemon thread.

    Python runs a handler only between two of its instructions, and the error that it raises may meet code that contacts
    a server once more for its cleanup. So the thread waits for the signal at a pipe, which the C handler writes to.
    Return False outside the main thread, where Python allows no such pipe.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    # The writing end must not block: the C handler writes to it wherever the process is. The reading end may.
    receiving, sending = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    os.set_blocking(receiving, True)

    def watch() -> None:
        while numbers := os.read(receiving, 64):
            ending = next((number for number in numbers if number in ENDING), None)
            if ending is not None:
                time.sleep(seconds)
                at_deadline(ending)

    # A daemon thread: it waits for ever, and must not keep the process alive.
    start(threading.Thread(target=watch, name="deadline", daemon=True))
    signal.set_wakeup_fd(sending, warn_on_full_buffer=False)
    return True


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block once it has taken so long. In other threads than the main one there is no limit.

    By SIGALRM: a call that waits in the system ends too. A timer that ran before runs no more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(_number: int, _frame: object) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    # The handler comes before the timer, and goes after it: SIGALRM without a handler ends the process.
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # First the timer, then the handler: see above.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, _restorable(before))


def _restorable(handler: Handler | None) -> Handler:
    """Return a handler that Python can set again; getsignal returns None for one that C code has set."""
    return signal.SIG_DFL if handler is None else handler


class Startable(Protocol):
    """A thread, or what has one: a progress bar that draws itself."""

    def start(self) -> object:
        """Start the thread."""


def start(thread: Startable) -> None:
    """Start a thread. Only this function, :func:`submitted` and :class:`FullPool` start threads.

    If something is raised while ``Thread.start`` waits for the thread, it removes the thread from the list of beginning
    threads. The thread begins all the same, does not find itself there, and ends with a KeyError and a traceback. Here
    a signal is raised once the thread runs.
    """
    with signals_held():
        thread.start()


@contextmanager
def now_and_then(look: Callable[[], object], seconds: float) -> Iterator[None]:
    """Call ``look`` every ``seconds`` in a separate thread, which has ended when the block is left."""
    over = threading.Event()

    def until_over() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=until_over, daemon=True)
    try:
        start(thread)
        yield
    finally:
        over.set()
        # A thread that did not start cannot be joined: join would raise, and hide the error of the start.
        if thread.ident is not None:
            thread.join()


class FullPool:
    """A pool whose threads have all started. A job starts none, so no signal has to be held back for it.

    Holding them takes ten calls of the system: too much for each of many small jobs.
    """

    def __init__(self, threads: int, name: str) -> None:
        """Start the threads. Raises RuntimeError if the system cannot start so many."""
        # Imported here: most commands have no pool, and every command imports this module.
        from concurrent.futures import ThreadPoolExecutor

        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        barrier = threading.Barrier(threads + 1)
        try:
            with signals_held():
                # No thread is idle before all have begun: so each submit starts another thread.
                for _ in range(threads):
                    self._pool.submit(barrier.wait)
                barrier.wait()
        except BaseException:
            # Threads that wait at the barrier would keep shutdown waiting for ever.
            barrier.abort()
            self._pool.shutdown()
            raise

    def ask(self, function: Callable[[Job], Answer], job: Job) -> Future[Answer]:
        """Hand a job to the first free thread."""
        return self._pool.submit(function, job)

    def shutdown(self) -> None:
        """Wait until all jobs are finished, and end the threads."""
        self._pool.shutdown()

    def __enter__(self) -> FullPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


def submitted(
    pool: Executor,
    function: Callable[[Job], Answer],
    jobs: Iterable[Job],
    register: list[Future[Answer]] | None = None,
) -> list[Future[Answer]]:
    """Submit jobs to a pool, whose threads start here. ``register`` gets them before a held signal is raised.

    An exception of a signal during the start of a thread would leave a thread that the pool has no record of. No one
    would end it, and the process would wait for it for ever.
    """
    with signals_held():
        futures = [pool.submit(function, job) for job in jobs]
        if register is not None:
            # Before the block ends: a held signal is raised there, and the caller must know the futures to end them.
            register += futures
        return futures


def mapped(pool: Executor, function: Callable[[Job], Answer], jobs: Iterable[Job]) -> list[Answer]:
    """Return the answers in the order of the jobs. Raises the first error; jobs that have not begun are dropped."""
    futures = submitted(pool, function, jobs)
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()

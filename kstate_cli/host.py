"""What this host is short of, and what it cannot read: neither says anything about what is in a file.

A process has only so many descriptors and threads, a machine only so much memory, and a folder for temporary files only
so much space. A reader that meets such a limit has learnt nothing about the store: reported as damage, it would lead to
``kstate wipe`` of a healthy one. So each shortage is a :class:`HostError`, which no reader treats as a finding.

Three things keep a shortage from ending a command in silence or with a traceback:

* :func:`prepare` raises what kstate may raise itself, and keeps a few descriptors and some memory in reserve, which the
  first HostError releases: cleaning up and reporting need them.
* :func:`require_headroom` tries out threads and memory before RocksDB or Arrow needs them. Those libraries end the
  process where they get none, and no handler in Python could report it.
* :func:`shortage` recognizes a shortage in any error, and in the errors that this error was made of.
"""

from __future__ import annotations

import _thread
import errno
import math
import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kstate_cli.capacity import memory_here
from kstate_cli.errors import RunFailed
from kstate_cli.naming import file_of

SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""This host has no more of something."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A file system has no space. No reader meets these but in what it writes itself."""
CANNOT: Final = (errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN)
"""A file that exists, and that the system does not give."""
CHECK_THE_DISK: Final = "the system's log may say what is wrong with the disk, and ls -l who may read the file"
"""What to do about a file that cannot be read."""
STORES_STAY: Final = f"that says nothing of the stores, which are to stay as they are: {CHECK_THE_DISK}"
"""What to do about stores of which a file cannot be read."""
READING_THREADS: Final = 8
"""Threads that RocksDB starts for a few databases that are read, with some to spare."""
WRITING_THREADS: Final = 28
"""Threads that RocksDB or Arrow starts where databases are written: 16 of them open the files of one database."""
_HEADROOM: Final = 192 << 20
"""Bytes of address space for the libraries, a few open databases and the stacks of their threads."""
_STACK_BYTES: Final = 8 << 20
"""Of a thread, where RLIMIT_STACK sets no limit."""
_LOOK_SECONDS: Final = 0.05
_SILENT_SECONDS: Final = 30.0
"""After so long a thread that does not report has found no memory."""
_RESERVED_DESCRIPTORS: Final = 8
_RESERVED_BYTES: Final = 1 << 20
_FEWEST_DESCRIPTORS: Final = 64
"""Below this limit the work needs every descriptor."""
_M_ARENA_MAX: Final = -8
"""Of ``mallopt`` in glibc: for how many threads malloc keeps memory of their own, 64 MiB of address space each."""


class HostError(RunFailed):
    """This host keeps a file from being read: no descriptors, threads, memory, space for temporary files, or rights.

    No finding about the file: a reader that treats it as one would call a healthy store damaged.
    """

    code = "host"
    fewer_workers_help = False
    """Whether the command needs less of what is short when it runs with fewer ``--workers``."""


# --- before the work --------------------------------------------------------------------------------------------------


class _Reserve:
    """What :func:`prepare` keeps, of this process."""

    descriptors: Final[list[int]] = []
    memory: bytearray | None = None
    tried: Final[set[tuple[int, int]]] = set()
    """Process and number of threads that were tried out."""


def prepare() -> None:
    """Raise the limits that kstate may raise, and reserve what an error path needs. Never raises."""
    raise_descriptor_limit()
    # NumPy's BLAS, which nothing here uses, starts a thread per core, and ends the command with SIGINT if it cannot.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _soft(resource.RLIMIT_AS) is not None:
        _keep_malloc_small()
    if not _Reserve.descriptors and (_soft(resource.RLIMIT_NOFILE) or _FEWEST_DESCRIPTORS) >= _FEWEST_DESCRIPTORS:
        with suppress(OSError):
            for _ in range(_RESERVED_DESCRIPTORS):
                _Reserve.descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    if _Reserve.memory is None:
        with suppress(MemoryError):
            _Reserve.memory = bytearray(_RESERVED_BYTES)


def release_reserve() -> None:
    """Give back what :func:`prepare` has reserved: from now on the command cleans up and reports."""
    _Reserve.memory = None
    while _Reserve.descriptors:
        os.close(_Reserve.descriptors.pop())


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit of open files to the hard one. Return the limit, None where there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (resource.RLIM_INFINITY, soft):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return None if soft == resource.RLIM_INFINITY else soft


def require_headroom(threads: int) -> None:
    """Raise HostError unless this process can start ``threads`` threads and map some memory. Tried once per process."""
    key = os.getpid(), threads
    if key in _Reserve.tried:
        return
    held: mmap.mmap | None = None
    try:
        if _soft(resource.RLIMIT_AS) is not None:
            held = mmap.mmap(-1, _HEADROOM)
        _try_threads(threads)
    except (OSError, MemoryError, RuntimeError) as error:
        raise shortage(error) or error from None
    finally:
        if held is not None:
            held.close()
    _Reserve.tried.add(key)


def _try_threads(count: int) -> None:
    """Start so many threads at once, and wait for their end.

    RuntimeError where the system starts no more. MemoryError where one started, and found no memory to call its
    function: Python ends such a thread, and whatever waits for it waits for ever.
    """
    gate, ended = threading.Lock(), threading.Semaphore(0)
    silent = time.monotonic() + _SILENT_SECONDS if _limited() else math.inf

    def wait() -> None:
        with gate:
            pass
        ended.release()

    started = released = 0
    with _threads_without_memory() as failed:
        with gate:
            for _ in range(count):
                try:
                    _thread.start_new_thread(wait, ())
                except RuntimeError:
                    break
                started += 1
        while released + len(failed) < started and time.monotonic() < silent:
            released += ended.acquire(timeout=_LOOK_SECONDS)
    if released < started:
        raise MemoryError("a thread found no memory to begin")
    if started < count:
        raise RuntimeError(_NO_THREAD)


@contextmanager
def _threads_without_memory() -> Iterator[list[object]]:
    """Collect the MemoryErrors of threads that could not begin, which Python reports to nobody but this hook."""
    failed: list[object] = []
    before = sys.unraisablehook

    def collect(report: sys.UnraisableHookArgs) -> None:
        if issubclass(report.exc_type, MemoryError):
            failed.append(report.exc_type)
        else:
            before(report)

    sys.unraisablehook = collect
    try:
        yield failed
    finally:
        sys.unraisablehook = before


def _keep_malloc_small() -> None:
    """Have malloc keep one arena for all threads: with a limit of address space theirs would use it up."""
    import ctypes

    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


# --- errors -----------------------------------------------------------------------------------------------------------

_NO_THREAD: Final = "can't start new thread"
"""What Python says, in a bare RuntimeError."""
_NO_EXCEPTION: Final = ("error return without exception set", "returned NULL without setting an exception")
"""What Python says, in a SystemError, where code in C fails and does not say why."""
_LOADER: Final = {
    "Too many open files": errno.EMFILE,
    "Cannot allocate memory": errno.ENOMEM,
    "failed to map segment": errno.ENOMEM,
    "cannot allocate memory": errno.ENOMEM,
}
"""What the dynamic loader says of a library that it cannot load, in an ImportError."""


def shortage(error: BaseException) -> HostError | None:
    """Return the HostError for an error that is about what this host lacks; None for every other error."""
    if isinstance(error, HostError):
        return error
    number = _number(error)
    return None if number is None else _short(number, file_of(error) if isinstance(error, OSError) else None)


def shortage_behind(error: BaseException) -> HostError | None:
    """As :func:`shortage`, of an error and of those that it was made of, whoever has put other words on them."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        # A lock that another process holds is a BlockingIOError, too.
        if (cause is error or not isinstance(cause, BlockingIOError)) and (short := shortage(cause)) is not None:
            return short
        cause = cause.__cause__ or cause.__context__
    return None


def _text(error: BaseException) -> str:
    """Return what an error says; nothing if it cannot say it: one of Java's asks a JVM that may be gone."""
    try:
        return str(error)
    except Exception:
        return ""


def host_error(error: OSError) -> HostError | None:
    """What to raise where this host is short of something; None where the error is about what was asked for."""
    return shortage(error)


def refuse_to_guess(error: OSError) -> None:
    """Raise HostError where a file could not be read for a shortage: a default in its place would be a guess."""
    if (short := shortage(error)) is not None:
        raise short from None


def short_of(number: int, writes_in: str) -> HostError:
    """The error for an errno of ``SHORT`` or ``FULL``, met while reading through a folder that is written to."""
    return _short(number, writes_in if number in FULL else None)


def cannot_be_read(error: OSError) -> bool:
    """Whether an error says that a file cannot be read: broken hardware, or no rights."""
    return error.errno in CANNOT


def _number(error: BaseException) -> int | None:
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, BlockingIOError):  # of fork; whoever takes a lock without waiting handles its own
        return errno.EAGAIN if error.filename is None else None
    if isinstance(error, OSError):
        return error.errno if error.errno in SHORT else None
    text = _text(error)
    if isinstance(error, ImportError):
        return next((number for words, number in _LOADER.items() if words in text), None)
    if isinstance(error, RuntimeError) and text == _NO_THREAD:
        # Each thread needs address space for its stack.
        return errno.EAGAIN if _can_map(_HEADROOM + WRITING_THREADS * _stack_bytes()) else errno.ENOMEM
    if isinstance(error, SystemError) and any(words in text for words in _NO_EXCEPTION):
        # Code in C got no memory, and did not report it. Without a limit it would be a defect.
        return errno.ENOMEM if _limited() else None
    return None


def _stack_bytes() -> int:
    return _soft(resource.RLIMIT_STACK) or _STACK_BYTES


def _limited() -> bool:
    """Return whether this process has a limit of memory, so that an allocation can fail."""
    return any(_soft(kind) is not None for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))


def _can_map(size: int) -> bool:
    try:
        mmap.mmap(-1, size).close()
    except (OSError, MemoryError):
        return False
    return True


def _short(number: int, where: str | None) -> HostError:
    release_reserve()
    words = "no more threads or processes" if number == errno.EAGAIN else os.strerror(number)
    error = HostError(
        f"this host has run short: {words}; this says nothing about the stores",
        where=where,
        hint=_hint(number),
    )
    error.fewer_workers_help = number in (errno.ENOMEM, errno.EAGAIN)
    return error


def full_hint(error: OSError) -> str:
    """What to do about a file system that has no space, or no inodes, left for a file."""
    if error.errno == errno.EDQUOT:
        return "free space within your quota (quota -s), and run the command again"
    with suppress(OSError):
        path = file_of(error) or os.curdir
        while not os.path.lexists(path):
            path = os.path.dirname(os.path.abspath(path))
        free = os.statvfs(path)
        if free.f_files and not free.f_favail:
            return f"delete files on that file system, which has no inodes left (df -i), {_AGAIN}"
    return f"free space on that file system (df -h), {_AGAIN}"


_AGAIN: Final = "and run the command again"


def _hint(number: int) -> str:
    """What to do about a shortage. It names the limit of this process, where it has one."""
    if number == errno.EMFILE:
        limit = _soft(resource.RLIMIT_NOFILE)
        return f"raise the limit of open files{_here(limit)} (ulimit -n; LimitNOFILE= of a systemd unit), {_AGAIN}"
    if number == errno.ENFILE:
        return f"this machine has too many open files: raise fs.file-max with sysctl, {_AGAIN}"
    if number == errno.EAGAIN:
        limit = _soft(resource.RLIMIT_NPROC)
        return (
            f"raise the limit of processes{_here(limit)} (ulimit -u; TasksMax= of a systemd unit; pids.max of a"
            f" container), {_AGAIN}"
        )
    if number == errno.ENOMEM:
        for kind, name in ((resource.RLIMIT_AS, "address space"), (resource.RLIMIT_DATA, "data")):
            if (limit := _soft(kind)) is not None:
                flag = "-v" if kind == resource.RLIMIT_AS else "-d"
                return f"raise the limit of {name}{_here(limit >> 20, ' MiB')} (ulimit {flag}), {_AGAIN}"
        return f"give this host or container more memory than {memory_here() >> 20} MiB, or stop others, {_AGAIN}"
    return "free space there, or name another folder with TMPDIR, and run the command again"


def _here(limit: int | None, unit: str = "") -> str:
    return "" if limit is None else f", {limit}{unit} here"


def _soft(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft

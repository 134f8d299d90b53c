"""The memory and processors of this host, and its shortages, which prove nothing about the contents of a file.

Descriptors, threads, memory and temporary space are limited. A reader that meets such a limit has learnt nothing about
the store: if it were reported as damage, users would wipe a healthy store. So each shortage is a :class:`HostError`,
which no reader treats as a finding.

Three functions keep a shortage from ending a command silently or with a traceback:

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
from pathlib import Path
from typing import Final

from kstate_cli.errors import RunFailed, file_of

SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""The host is out of descriptors or memory."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The file system or the quota is full. A reader meets these only in its own temporary files."""
CANNOT: Final = (errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN)
"""The file exists, but the system denies it or cannot read it."""
CHECK_THE_DISK: Final = "check the file's permissions (ls -l) and the system log for disk errors"
"""The hint about a file that cannot be read."""
STORES_STAY: Final = f"leave the stores unchanged, because an unreadable file may be intact, and {CHECK_THE_DISK}"
"""The hint about stores with a file that cannot be read."""
READING_THREADS: Final = 8
"""Threads that RocksDB starts for a few databases that are read, with some to spare."""
WRITING_THREADS: Final = 28
"""Threads that RocksDB or Arrow starts where databases are written: 16 of them open the files of one database."""
_HEADROOM: Final = 192 << 20
"""Bytes of address space for the libraries, a few open databases and the stacks of their threads."""
_STACK_BYTES: Final = 8 << 20
"""The stack of a thread if RLIMIT_STACK sets no limit."""
_LOOK_SECONDS: Final = 0.05
_SILENT_SECONDS: Final = 30.0
"""A thread that has not reported for so long got no memory to begin."""
_RESERVED_DESCRIPTORS: Final = 8
_RESERVED_BYTES: Final = 1 << 20
_FEWEST_DESCRIPTORS: Final = 64
"""Below this limit the work needs every descriptor."""
# The mount point of cgroups in containers: v2 has one tree, v1 one for each controller.
_CGROUPS: Final = Path("/sys/fs/cgroup")
_M_ARENA_MAX: Final = -8
"""The parameter of glibc's ``mallopt``: how many arenas malloc keeps, each with 64 MiB of address space."""


class HostError(RunFailed):
    """This host lacks file descriptors, threads, memory, temporary space or the permission to read a file.

    It is no finding about the file: a reader that reports it as one would call a healthy store damaged.
    """

    code = "host"
    fewer_workers_help = False
    """Whether the command needs less of what is short when it runs with fewer workers."""


# --- memory and processors -------------------------------------------------------------------------------------------


def memory_here() -> int:
    """Return the physical memory in bytes, or the limit of the container (cgroup v2, v1) if that is lower."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # "max" of v2 is no number; the huge number of v1 without a limit is never the minimum.
    for path in (_CGROUPS / "memory.max", _CGROUPS / "memory/memory.limit_in_bytes"):
        text = _first_text(path)
        if text.isdigit():
            memory = min(memory, int(text))
    return memory


def cores_here() -> int:
    """Return how many processors this process may use: at most the quota of the container (cgroup v2, v1).

    A part of a processor counts as one: 1.5 become 2.
    """
    cores = len(os.sched_getaffinity(0))
    # ``cpu.max`` has quota and period in microseconds; a quota of "max" (v2) or -1 (v1) is no number.
    quota = _first_text(_CGROUPS / "cpu.max").split()
    if not quota:
        quota = [_first_text(_CGROUPS / f"cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    if len(quota) == 2 and all(part.isdigit() for part in quota) and int(quota[1]):
        cores = min(cores, -(-int(quota[0]) // int(quota[1])))
    return max(1, cores)


def _first_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


# --- before the work --------------------------------------------------------------------------------------------------


class _Reserve:
    """The resources that :func:`prepare` reserves for error paths of this process."""

    descriptors: Final[list[int]] = []
    memory: bytearray | None = None
    tried: Final[set[tuple[int, int]]] = set()
    """The process and number of threads of each trial that succeeded: a forked child tries again."""


class _UmaskBefore:
    """The umask that :func:`narrow_umask` has replaced; -1 before, which ``Popen`` reads as no change."""

    mask: int = -1


_OTHERS_WRITE: Final = 0o022
"""The bits of a mode that let the group and all other users write."""


def narrow_umask() -> None:
    """Let no other user write to the files and directories that this process and its workers create.

    RocksDB and Arrow create files too, with a mode that only the umask restricts.
    """
    before = os.umask(_OTHERS_WRITE)
    os.umask(before | _OTHERS_WRITE)
    _UmaskBefore.mask = before


def umask_before() -> int:
    """Return the umask of the user, for a command of the user; -1 if this process has not narrowed it."""
    return _UmaskBefore.mask


def prepare() -> None:
    """Raise the limits that kstate may raise, and reserve what an error path needs. Never raises."""
    raise_descriptor_limit()
    # NumPy's BLAS, which nothing here uses, starts a thread per core, and ends the command with SIGINT if it cannot.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Only with a limit of address space: otherwise arenas cost nothing, and make threads faster.
    if _soft(resource.RLIMIT_AS) is not None:
        _keep_malloc_small()
    # The limit was raised above: what remains is the hard one.
    if not _Reserve.descriptors and (_soft(resource.RLIMIT_NOFILE) or _FEWEST_DESCRIPTORS) >= _FEWEST_DESCRIPTORS:
        with suppress(OSError):
            for _ in range(_RESERVED_DESCRIPTORS):
                _Reserve.descriptors.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    if _Reserve.memory is None:
        # Too little memory even for the reserve: the first real allocation reports it.
        with suppress(MemoryError):
            _Reserve.memory = bytearray(_RESERVED_BYTES)


# From here on the command ends: what it had in reserve is for its cleanup and its report.
def release_reserve() -> None:
    """Release the reserve of :func:`prepare`, so that the command can clean up and report."""
    _Reserve.memory = None
    while _Reserve.descriptors:
        os.close(_Reserve.descriptors.pop())


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit of open files to the hard one. Return the limit, None if there is none."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # An unlimited hard limit stays: some programs close every possible descriptor, which then takes minutes.
    if hard not in (resource.RLIM_INFINITY, soft):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return _finite(soft)


def require_headroom(threads: int) -> None:
    """Raise HostError unless this process can start ``threads`` threads and map some memory. Tried once per process."""
    key = os.getpid(), threads
    if key in _Reserve.tried:
        return
    headroom: mmap.mmap | None = None
    try:
        if _soft(resource.RLIMIT_AS) is not None:
            # Mapped while the threads start: memory and stacks must fit at the same time.
            headroom = mmap.mmap(-1, _HEADROOM)
        _try_threads(threads)
    except (OSError, MemoryError, RuntimeError) as error:
        raise shortage(error) or error from None
    finally:
        if headroom is not None:
            headroom.close()
    _Reserve.tried.add(key)


def _try_threads(count: int) -> None:
    """Start so many threads at once, and wait for their end.

    Raise RuntimeError if the system starts fewer. Raise MemoryError if a thread started, but got no memory to call its
    function: Python ends such a thread silently, so a plain join would wait for ever.
    """
    gate, ended = threading.Lock(), threading.Semaphore(0)
    # Without a limit of memory every thread begins, however long a loaded host takes.
    silent = math.inf
    if _limited():
        silent = time.monotonic() + _SILENT_SECONDS

    def wait() -> None:
        # All threads wait here until the last has started: their stacks must exist at the same time.
        with gate:
            pass
        ended.release()

    started = released = 0
    with _threads_without_memory() as failed:
        with gate:
            for _ in range(count):
                try:
                    # Not threading.Thread: its start waits for the thread to begin, and would wait for ever without
                    # memory.
                    _thread.start_new_thread(wait, ())
                except RuntimeError:
                    break
                started += 1
        # Polled: a thread that dies before its first instruction releases no semaphore.
        while released + len(failed) < started and time.monotonic() < silent:
            released += ended.acquire(timeout=_LOOK_SECONDS)
    if released < started:
        raise MemoryError("the host did not have enough memory to start a thread")
    if started < count:
        raise RuntimeError(_NO_THREAD)


@contextmanager
def _threads_without_memory() -> Iterator[list[object]]:
    """Collect the MemoryErrors of threads that could not begin: Python reports them to ``sys.unraisablehook`` only."""
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
    """Have malloc keep one arena for all threads: an arena per thread would use up a limited address space."""
    import ctypes

    with suppress(OSError, AttributeError):  # another C library than glibc
        # The result is not checked: without effect the limit is reached sooner, and reported like every shortage.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


# --- errors -----------------------------------------------------------------------------------------------------------

_NO_THREAD: Final = "can't start new thread"
"""The text of Python's bare RuntimeError."""
_NO_EXCEPTION: Final = ("error return without exception set", "returned NULL without setting an exception")
"""Texts of Python's SystemError if code in C fails without an exception."""
_LOADER: Final = {
    "Too many open files": errno.EMFILE,
    "Cannot allocate memory": errno.ENOMEM,
    "failed to map segment": errno.ENOMEM,
    "cannot allocate memory": errno.ENOMEM,
}
"""Words of the dynamic loader in an ImportError, and the errno that they mean."""


def shortage(error: BaseException) -> HostError | None:
    """Return the HostError for an error that means a shortage of this host; None for every other error."""
    if isinstance(error, HostError):
        return error
    number = _number(error)
    if number is None:
        return None
    return _short(number, file_of(error) if isinstance(error, OSError) else None)


def shortage_behind(error: BaseException) -> HostError | None:
    """Return the HostError for an error or one of its causes; None if none means a shortage."""
    visited: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
        # A lock that another process holds is a BlockingIOError, too.
        if (cause is error or not isinstance(cause, BlockingIOError)) and (short := shortage(cause)) is not None:
            return short
        cause = cause.__cause__ or cause.__context__
    return None


def _text(error: BaseException) -> str:
    """Return the text of an error; empty if that fails: an error of Java asks its JVM, which may have ended."""
    try:
        return str(error)
    except Exception:
        return ""


def host_error(error: OSError) -> HostError | None:
    """Return what to raise if an error means a shortage of this host; None if it is about the file itself."""
    return shortage(error)


def refuse_to_guess(error: OSError) -> None:
    """Raise HostError if a shortage kept a file from being read: a default in its place would be a guess."""
    if (short := shortage(error)) is not None:
        raise short from None


def short_of(number: int, writes_in: str) -> HostError:
    """Return the error for an errno of ``SHORT`` or ``FULL`` of a reader that writes to the folder ``writes_in``."""
    return _short(number, writes_in if number in FULL else None)


def cannot_be_read(error: OSError) -> bool:
    """Return whether an error means that a file cannot be read: broken hardware, or no rights."""
    return error.errno in CANNOT


def _number(error: BaseException) -> int | None:
    """Return the errno of the shortage that an error means; None for every other error."""
    if isinstance(error, MemoryError):
        return errno.ENOMEM
    if isinstance(error, BlockingIOError) and error.filename is None:
        return errno.EAGAIN  # of fork; who takes a lock without waiting handles that error itself
    if isinstance(error, OSError):
        # Any other errno is about the file itself: damage, rights, or a place that does not exist.
        return next((number for number in SHORT if number == error.errno), None)
    return _number_by_text(error, _text(error))


def _number_by_text(error: BaseException, text: str) -> int | None:
    """Return the errno of a shortage that Python, or a library in C, reports by a text alone."""
    if isinstance(error, ImportError):
        # The loader reports its errno as a text only. pyarrow and NumPy load libraries at their first import.
        return next((number for words, number in _LOADER.items() if words in text), None)
    if isinstance(error, RuntimeError) and text == _NO_THREAD:
        # Each thread needs address space for its stack.
        return errno.EAGAIN if _can_map(_HEADROOM + WRITING_THREADS * _stack_bytes()) else errno.ENOMEM
    # Code in C got no memory, and did not report it. Without a limit it would be a defect.
    if isinstance(error, SystemError) and _limited() and any(words in text for words in _NO_EXCEPTION):
        return errno.ENOMEM
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
    words = os.strerror(number)
    if number == errno.EAGAIN:
        # "Resource temporarily unavailable" names no resource.
        words = "the host cannot start more threads or processes"
    error = HostError(
        f"this host does not have enough resources: {words}. This error does not mean that stores are damaged",
        where=where,
        hint=_hint(number),
    )
    error.fewer_workers_help = number in (errno.ENOMEM, errno.EAGAIN)
    return error


def full_hint(error: OSError) -> str:
    """Return the hint about a file system without free space, or without free inodes, for a file."""
    if error.errno == errno.EDQUOT:
        return "delete files to stay within your quota (quota -s), then run the command again"
    with suppress(OSError):
        path = file_of(error) or os.curdir
        # A file that could not be created has no file system: that of its folder counts.
        while not os.path.lexists(path):
            path = os.path.dirname(os.path.abspath(path))
        free = os.statvfs(path)
        # Some file systems, such as btrfs, have no fixed number of inodes, and state 0.
        if free.f_files and not free.f_favail:
            return f"delete files on that file system, which has no inodes left (df -i), {_AGAIN}"
    return f"free space on that file system (df -h), {_AGAIN}"


_AGAIN: Final = "and run the command again"


def _hint(number: int) -> str:
    """Return the hint about a shortage. It names the limit of this process, if it has one."""
    if number == errno.EMFILE:
        limit = _soft(resource.RLIMIT_NOFILE)
        return f"raise the limit of open files{_here(limit)} (ulimit -n; LimitNOFILE= of a systemd unit), {_AGAIN}"
    if number == errno.ENFILE:
        return f"this host has too many open files. Raise fs.file-max with sysctl, {_AGAIN}"
    if number == errno.EAGAIN:
        limit = _soft(resource.RLIMIT_NPROC)
        return (
            f"raise the limit of processes{_here(limit)} (ulimit -u; TasksMax= of a systemd unit; pids.max of a"
            f" container), {_AGAIN}"
        )
    if number == errno.ENOMEM:
        for kind, name, flag in ((resource.RLIMIT_AS, "address space", "-v"), (resource.RLIMIT_DATA, "data", "-d")):
            if (limit := _soft(kind)) is not None:
                return f"raise the limit of {name}{_here(limit >> 20, ' MiB')} (ulimit {flag}), {_AGAIN}"
        return (
            f"give this host or container more memory than {memory_here() >> 20} MiB or stop other processes, {_AGAIN}"
        )
    return "free disk space there or set TMPDIR to another folder, then run the command again"


def _here(limit: int | None, unit: str = "") -> str:
    if limit is None:
        return ""
    return f", which is {limit}{unit}"


def _soft(kind: int) -> int | None:
    soft, _ = resource.getrlimit(kind)
    return _finite(soft)


def _finite(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def most_descriptors() -> int:
    """Raise the limit of open files as far as the process may, and return it."""
    limit = raise_descriptor_limit()
    if limit is None:
        return sys.maxsize
    return limit

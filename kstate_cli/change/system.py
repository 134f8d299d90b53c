"""The few system calls that Python does not have: exchanging two directories, syncing one file system."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _libc() -> ctypes.CDLL:
    # The process has libc already; ctypes.util.find_library would start ldconfig or a compiler amid the switch.
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def signals_held() -> Iterator[None]:
    """Holds back the signals that end a command until the block is left.

    A mask alone does not: it holds for this thread only. A signal that is sent to the process goes to one of RocksDB's
    threads instead, and Python runs the handler here all the same. So meanwhile the handlers only take a note.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread: what they raise is not raised here
        return
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    caught: list[int] = []
    handlers = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in held}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if caught:
            signal.raise_signal(caught[0])


def exchange(one: Path, other: Path) -> None:
    """Swaps two directories in one step: ``renameat2(RENAME_EXCHANGE)``.

    Raises OSError: EINVAL or ENOSYS where the file system cannot, EXDEV and EBUSY for mount points.
    """
    libc = _libc()
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, "this system has no renameat2")
    done = libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def sync_file_system(path: Path) -> None:
    """Makes everything written to the file system of ``path`` durable. Raises OSError when writing back failed.

    One call in place of an fsync per file: a store has a handful of small files, and there are hundreds of stores.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        libc = _libc()
        if hasattr(libc, "syncfs"):
            if libc.syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        else:
            os.sync()
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Makes the entries of one directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

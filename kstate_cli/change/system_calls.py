"""The few system calls that Python does not have: exchanging two directories, syncing one file system."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

from kstate_cli.errors import naming

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _libc() -> ctypes.CDLL:
    # The process has libc already; ctypes.util.find_library would start ldconfig or a compiler amid the switch.
    return ctypes.CDLL(None, use_errno=True)


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


def free(path: Path) -> None:
    """What was deleted is free once the file system has written that down. Raises nothing where that fails."""
    with suppress(OSError):
        sync_file_system(path)


def sync_directory(path: Path) -> None:
    """Makes the entries of one directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

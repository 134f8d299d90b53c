"""System calls that Python lacks or wraps poorly: exchange two directories, sync a file system or a directory.

No path may contain a symbolic link (:mod:`kstate_cli.change.nofollow`).
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path

from kstate_cli.change import nofollow
from kstate_cli.errors import naming

_RENAME_EXCHANGE = 2
"""Of ``linux/fs.h``."""


def _libc() -> ctypes.CDLL:
    # The process has libc already: ctypes.util.find_library would start ldconfig or a compiler amid a switch.
    return ctypes.CDLL(None, use_errno=True)


def exchange(path: Path, other: Path) -> None:
    """Exchange two directories in one step: ``renameat2(RENAME_EXCHANGE)``.

    Raise OSError: EINVAL or ENOSYS if the file system cannot, EXDEV and EBUSY for mount points.
    """
    libc = _libc()
    # glibc has it since 2.28.
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, "this system does not support renameat2")
    with nofollow.parent(path) as (folder, name), nofollow.parent(other) as (other_folder, other_name):
        # Both names exist at every moment, even for a concurrent reader and after a power failure.
        names = os.fsencode(name), os.fsencode(other_name)
        if libc.renameat2(folder, names[0], other_folder, names[1], _RENAME_EXCHANGE) == 0:
            return
        number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), str(path))


def sync_file_system(path: Path) -> None:
    """Make everything written to the file system of ``path`` durable. Raise OSError if writing back failed.

    One ``syncfs`` replaces an fsync per file: an application has hundreds of stores with a dozen small files each.
    """
    with nofollow.directory(path) as descriptor:
        libc = _libc()
        if hasattr(libc, "syncfs"):
            if libc.syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        else:
            os.sync()


def free(path: Path) -> None:
    """Have the file system release the blocks of deleted files now. Suppress OSError.

    Copy-on-write file systems such as btrfs release them only once a transaction is written.
    """
    with suppress(OSError):
        sync_file_system(path)


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable. Raise OSError.

    An fsync of a file makes its bytes durable, not its name: a new, renamed or removed entry needs this call.
    """
    with nofollow.directory(path) as descriptor, naming(path):
        os.fsync(descriptor)

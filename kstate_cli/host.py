"""What this host is short of, and what it cannot read: neither says anything about what is in a file.

A process has only so many descriptors, a machine only so much memory, and a folder for temporary files only so much
room. Whoever meets that while reading a store has learnt nothing of the store: told as damage of it, it would lead to
``kstate wipe`` of a healthy one. So it is an error of its own, which no reader takes for a finding.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from kstate_cli.errors import RunFailed
from kstate_cli.naming import file_of

SHORT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""This host has no more of something."""
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A file system has no room. No reader meets these but in what it writes itself."""
CANNOT: Final = (errno.EIO, errno.EACCES, errno.EPERM, errno.ESTALE, errno.ETIMEDOUT, errno.EUCLEAN)
"""A file that is there, and that the system does not give."""
_HINTS: Final = {
    errno.EMFILE: "raise the limit of open files (ulimit -n) and run the command again, or give fewer --workers",
    errno.ENFILE: "this machine has too many open files (fs.file-max): run the command again when it has fewer",
    errno.ENOMEM: "run the command again when this machine has more memory, or give fewer --workers",
}
_ROOM: Final = "make room there, or name another folder with TMPDIR, and run the command again"
CHECK_THE_DISK: Final = "the system's log may say what is wrong with the disk, and ls -l who may read the file"
"""What to do about a file that cannot be read."""
STORES_STAY: Final = f"that says nothing of the stores, which are to stay as they are: {CHECK_THE_DISK}"
"""What to do about stores of which a file cannot be read."""


class HostError(RunFailed):
    """This host keeps a file from being looked at: no descriptors, no memory, no room for temporary files, no rights.

    No finding about the file: whoever took it for one would call a healthy store damaged.
    """

    code = "host"


def host_error(error: OSError) -> HostError | None:
    """What to raise where this host is short of something; None where the error is about what was asked for."""
    if error.errno not in SHORT:
        return None
    return _short(error.errno, file_of(error))


def short_of(number: int, writes_in: str) -> HostError:
    """The error for an errno of ``SHORT`` or ``FULL``, met while reading through a folder that is written to."""
    return _short(number, writes_in if number in FULL else None)


def cannot_be_read(error: OSError) -> bool:
    """Whether an error says that a file cannot be read: broken hardware, or no rights."""
    return error.errno in CANNOT


def _short(number: int, where: str | None) -> HostError:
    return HostError(
        f"this host cannot go on reading: {os.strerror(number)}; that says nothing of what is read",
        where=where,
        hint=_HINTS.get(number, _ROOM),
    )

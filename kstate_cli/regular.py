"""The one way to read files that others wrote: regular ones only, and small ones only up to a stated size.

Whoever opens a FIFO waits until somebody writes to it, a device may act, and a file that is small in every healthy
directory may be as large as the disk in a damaged one. What a command is given by an option is another matter:
``--spec <(kstate ls APP --spec)`` is a FIFO, and meant (:func:`read_given`).
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from kstate_cli.host import host_error
from kstate_cli.texts import size_text

MIB = 1 << 20

MOST_OFFSETS_BYTES = 16 * MIB
"""``.checkpoint``, ``.checkpoint_<store>`` and ``<store>.position``: a line for each partition of each store."""
MOST_NAME_BYTES = 4096
"""``CURRENT`` and ``IDENTITY``: one name."""
MOST_OPTIONS_BYTES = 4 * MIB
"""``OPTIONS-<number>``: a few KiB for each column family."""
MOST_MANIFEST_BYTES = 256 * MIB
"""``MANIFEST-<number>``: begun anew at each open; some hundred bytes for each flush and compaction since."""
MOST_GIVEN_BYTES = 64 * MIB
"""What an option names."""

_KINDS = (
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotReadableError(OSError):
    """The file is not of a kind, or not of a size, that is read. ``filename`` says where."""

    @property
    def why(self) -> str:
        """What it is instead."""
        return self.strerror or ""


def kind_of(mode: int) -> str:
    """What ``st_mode`` says that a file is, for messages: ``a FIFO``."""
    return next((name for fits, name in _KINDS if fits(mode)), "a file of an unknown kind")


def is_utf8(path: Path | str) -> bool:
    """Whether a path can be given to RocksDB and to pyarrow, which take UTF-8 only."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_special(mode: int) -> bool:
    """True for what is neither a regular file nor a directory nor a symbolic link."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def open_regular(path: Path | str) -> int:
    """A descriptor of a regular file, open for reading; the caller closes it.

    Never waits, and follows no link in the last part of ``path``. Raises NotReadableError for anything else than a
    regular file, HostError where this host is short of descriptors, OSError where it cannot be opened.
    """
    name = os.fspath(path)
    # Some devices act when they are opened.
    require_regular(os.lstat(name), name)
    # Another file may have taken its name since: the descriptor is looked at too.
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise host_error(error) or error from None
    try:
        require_regular(os.fstat(descriptor), name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(status: os.stat_result, path: Path | str) -> None:
    """Raises NotReadableError unless ``status`` is the stat of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        name = os.fspath(path)
        raise NotReadableError(errno.EINVAL, f"is {kind_of(status.st_mode)}, not a regular file", name)


def read_small(path: Path | str, most: int) -> bytes:
    """The bytes of a regular file that has ``most`` bytes at most. Raises NotReadableError, HostError, OSError."""
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        # The size is looked at first: a file that says too much of itself is not read at all.
        data = b"" if size > most else file.read(most + 1)
    if size > most or len(data) > most:
        raise too_large(path, max(size, len(data)), most)
    return data


def read_given(path: Path | str, most: int = MOST_GIVEN_BYTES) -> bytes:
    """The bytes of what an option names: a regular file, or a FIFO or terminal until its end, ``most`` bytes at most.

    A FIFO is read once. Raises NotReadableError for block devices, sockets and what is longer, OSError otherwise.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
                raise NotReadableError(errno.EINVAL, f"is {kind_of(mode)}", name)
            data = file.read(most + 1)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise NotReadableError(errno.EINVAL, f"is {kind_of(os.stat(name).st_mode)}", name) from None
        raise
    if len(data) > most:
        raise NotReadableError(errno.EFBIG, f"is larger than the {size_text(most)} that kstate reads", name)
    return data


def too_large(path: Path | str, size: int, most: int) -> NotReadableError:
    """The error for a file of ``size`` bytes where ``most`` are read."""
    text = f"has {size:,} bytes, and kstate reads {size_text(most)} at most"
    return NotReadableError(errno.EFBIG, text, os.fspath(path))

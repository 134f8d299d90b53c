"""Files that are read and written around the page cache (``O_DIRECT``).

Data that is larger than the memory of its host has left the page cache before it is read again, and has evicted the
data of other processes.
"""

from __future__ import annotations

import errno
import os
from typing import Final

PAGE_BYTES: Final = 4_096
"""Places in the file, addresses in memory and sizes are multiples of it: no disk in use asks for more."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
# tmpfs and some network file systems reject O_DIRECT at the open.
_UNSUPPORTED: Final = errno.EINVAL, errno.EOPNOTSUPP
"""Of file systems that have only the page cache."""


def open_direct(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file around the page cache if its file system can do that; return the descriptor. Raises OSError."""
    try:
        # The kernel copies between the disk and the buffer of the process: nothing of other processes is evicted.
        return os.open(path, flags | os.O_CLOEXEC | _DIRECT, mode)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        if flags & os.O_CREAT:
            # The name may have been made all the same.
            flags = flags & ~os.O_EXCL | os.O_NOFOLLOW
        return os.open(path, flags | os.O_CLOEXEC, mode)


def aligned(size: int) -> memoryview:
    """Return memory for ``size`` bytes that begins at a page."""
    import numpy as np

    space = np.empty(size + PAGE_BYTES, dtype=np.uint8)
    # NumPy aligns to 16 or 64 bytes only, so a page more is taken, and the begin is skipped to the next page.
    skipped = -space.ctypes.data % PAGE_BYTES
    return space[skipped : skipped + size].data


def whole_pages(begin: int, end: int) -> tuple[int, int]:
    """Return the begin and the end of the pages that contain these bytes."""
    return begin - begin % PAGE_BYTES, end + -end % PAGE_BYTES


def read_into(descriptor: int, buffer: memoryview, begin: int) -> int:
    """Read until the buffer is full or the file ends; return the number of bytes. Raises OSError."""
    size = 0
    while size < len(buffer) and (more := os.preadv(descriptor, [buffer[size:]], begin + size)):
        size += more
        if size % PAGE_BYTES:
            break  # only the end of a file is no page
    return size


def write_from(descriptor: int, buffer: memoryview, begin: int) -> None:
    """Write the whole buffer. Raises OSError."""
    size = 0
    while size < len(buffer):
        # A write may be short: at a signal, and at 2 GiB less one page (write(2)).
        size += os.pwritev(descriptor, [buffer[size:]], begin + size)

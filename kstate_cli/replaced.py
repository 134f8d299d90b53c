"""Files outside a state directory that are replaced as a whole: nobody ever reads half of one.

The new text lies beside the old one under a name that follows from it, so that what a killed command left is written
over by the next one, and nothing is left for ever.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from kstate_cli.naming import naming

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def replace_text(path: Path, text: str, *, mode: int) -> None:
    """Writes a text, durable when this returns. ``mode`` is narrowed by the umask. Of two writers the last one counts.

    Raises OSError, which always names a file, with the old file as it was.
    """
    with naming(path):
        _replace(path, text, mode)


def _replace(path: Path, text: str, mode: int) -> None:
    new = path.with_name(f".{path.name}.new")
    while True:
        with open(os.open(new, _FLAGS, mode), "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(new, file.fileno()):
                continue  # another writer has put it in its place while this one waited
            os.ftruncate(file.fileno(), 0)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(new, path)
        break
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False

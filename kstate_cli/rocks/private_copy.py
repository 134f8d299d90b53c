"""A database seen through a private folder: links to its SSTs, copies of its small files.

The folder is in memory where there is room: nothing in it has to outlive the process, and RocksDB waits for the disk
many times while it opens, edits and closes a database.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from kstate_cli import temporary
from kstate_cli.host import FULL, HostError, shortage
from kstate_cli.regular_files import open_regular, require_regular
from kstate_cli.rocks.files import CURRENT, check_size, is_never_changed, newest_options

WRITTEN = re.compile(rf"{CURRENT}|MANIFEST-[0-9]+|OPTIONS-[0-9]+|IDENTITY|[0-9]+\.log")
"""The other files that RocksDB reads, replaces and removes; it has no use for any but these."""
_READ = re.compile(rf"{CURRENT}|MANIFEST-[0-9]+|[0-9]+\.log")
"""Those that a read-only open needs."""
_PIECE = 1 << 20


def private_copy(path: Path, *, writable: bool) -> Path:
    """A new folder that RocksDB can open in place of the database in ``path``; ``remove_copy`` ends it.

    Raises HostError, which says nothing of the database; and OSError: NotReadableError for what is no regular file, or
    far too large to be RocksDB's, and FileNotFoundError where a running application removes a file meanwhile.
    """
    with os.scandir(path) as entries:
        # CURRENT first: the MANIFEST that it names is then at least as new.
        ordered = sorted(entries, key=lambda entry: (entry.name != CURRENT, entry.name))
    copied = WRITTEN if writable else _READ
    small = [entry.name for entry in ordered if copied.fullmatch(entry.name)]
    options = newest_options(path)
    if options is not None:
        # RocksDB reads the newest only, and would delete the older ones.
        small = [name for name in small if not name.startswith("OPTIONS-") or name == options.name]
    size = sum(_size(f"{path}/{name}") for name in small)
    folder = temporary.new_path("shadow", temporary.in_memory(size))
    try:
        with in_temporary(folder):
            os.mkdir(folder, 0o700)
        for name in small:
            with os.fdopen(open_regular(f"{path}/{name}"), "rb") as source:
                _copy(source, folder, name)
        real = path.absolute()
        for entry in ordered:
            if is_never_changed(entry.name):
                if not entry.is_file():
                    # RocksDB would wait for a FIFO.
                    require_regular(os.stat(entry.path), entry.path)
                with in_temporary(folder):
                    os.symlink(f"{real}/{entry.name}", f"{folder}/{entry.name}")
    except BaseException:
        remove_copy(folder)
        raise
    return folder


def _copy(source: BinaryIO, folder: Path, name: str) -> None:
    with in_temporary(folder):
        target = open(folder / name, "xb", buffering=0)  # noqa: SIM115
    with target:
        while piece := memoryview(source.read(_PIECE)):
            while piece:
                with in_temporary(folder):
                    piece = piece[target.write(piece) :]


@contextlib.contextmanager
def in_temporary(folder: Path) -> Iterator[None]:
    """What fails in here says nothing of the database. Raises HostError."""
    try:
        yield
    except OSError as error:
        if (short := shortage(error)) is not None:
            raise short from error
        raise HostError(
            f"{folder.parent}, the folder for temporary files, cannot be used: {error.strerror}",
            hint="free space there, or name another folder with TMPDIR, and run the command again"
            if error.errno in FULL
            else "name another folder with TMPDIR, and run the command again",
        ) from error


def _size(path: str) -> int:
    status = os.stat(path, follow_symlinks=False)
    if (error := check_size(path, status)) is not None:
        raise error
    return status.st_size


def remove_copy(folder: Path) -> None:
    """Removes a folder that ``private_copy`` has made."""
    shutil.rmtree(folder, ignore_errors=True)

"""Temporary folders: their place, their names, and the removal of those of killed processes.

They go to ``TMPDIR``, else ``/tmp`` or ``/var/tmp``, and never to the working directory. Python's own choice tries each
by writing a file, and takes the working directory where all others fail: on a full disk that may be the very state
directory that is only to be looked at.

``kstate-<purpose>-<boot>-<pid namespace>-<pid>-<start>-<random>`` identifies the process of a folder, so that the next
process can tell whether it has died. A process number is unique on one host, in one pid namespace, and until the system
reuses it: the other parts distinguish these. Every temporary folder of kstate gets its name here.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Literal, get_args

from kstate_cli import clock
from kstate_cli.errors import file_of
from kstate_cli.host import FULL, short_of

Purpose = Literal[
    "shadow", "verify", "export", "dump", "runs", "spark", "demo", "version", "examples", "options", "seed"
]
"""What a folder is for; shadows are private copies of databases that are only read."""

PREFIX: Final = "kstate-"
_NAME: Final = re.compile(
    rf"{PREFIX}(?:{'|'.join(get_args(Purpose))})-([0-9a-f]{{32}})-(\d+)-(\d{{1,10}})-(\d+)-[0-9a-f]{{32}}"
)
_USUAL: Final = ("/tmp", "/var/tmp")
_MEMORY: Final = Path("/dev/shm")
_SPARE_BYTES: Final = 64 * 1024 * 1024
"""What stays free there: RocksDB writes a MANIFEST and OPTIONS, and other processes use the place too."""
_START: Final = 19
"""Of ``/proc/<pid>/stat`` after the name of the program: ``starttime``, ticks since the host has started."""

_JVM_SECONDS: Final = 600
"""Longer than a JVM takes to come up."""
_NO_BOOT: Final = "0" * 32
"""In place of the boot id where the host does not tell it."""

# With the process id: a forked child looks again, because others may have died meanwhile.
_swept: set[tuple[int, Path]] = set()


def settle() -> None:
    """Fix the folder for this process and for those that it starts: later errors name it."""
    # Libraries that ask tempfile, such as pyspark, then use the same folder, and never the working directory.
    tempfile.tempdir = folder()


def folder() -> str:
    """Return the absolute path of the first folder that this user may write to; else the requested one."""
    requested = [os.path.abspath(path) for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))]
    candidates = [*requested, *_USUAL]
    return next(
        (path for path in candidates if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)), candidates[0]
    )


def in_memory(size: int) -> Path | None:
    """Return the folder in memory, for ``size`` bytes; None if ``TMPDIR`` names another, or memory is short."""
    sweep(_MEMORY)  # what a dead process has left there takes room
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    space = os.statvfs(_MEMORY)
    if size + _SPARE_BYTES > space.f_bavail * space.f_frsize:
        return None
    return _MEMORY


def new_path(purpose: Purpose, parent: Path | None = None) -> Path:
    """Return the path of a new folder of this process, in ``parent`` or where temporary files go.

    The caller knows the path before the folder exists, so that a signal during its creation leaves nothing behind.
    Folders of dead processes beside it are removed first.
    """
    usual = Path(folder())
    for place in {usual, parent or usual}:
        sweep(place)
    return (parent or usual) / _new_name(purpose)


def make(purpose: Purpose) -> Path:
    """Create a folder that only this user can read; the caller removes it. Raises OSError."""
    path = new_path(purpose)
    # No exist_ok: the name is random, so a folder that exists already is not ours.
    path.mkdir(0o700)
    return path


@contextmanager
def private_folder(purpose: Purpose, parent: Path | None = None) -> Iterator[Path]:
    """Create a folder that only this user can read, and remove it with its content at the end. Raises OSError."""
    path = new_path(purpose, parent)
    try:
        path.mkdir(0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def private_file(purpose: Purpose) -> Iterator[BinaryIO]:
    """Create an empty file that only this user can read, open it, and remove it at the end.

    Raises OSError, and HostError if its file system is full: an error of a write names no file.
    """
    place = folder()
    try:
        with private_folder(purpose) as parent, open(parent / "content", "w+b") as file:
            yield file
    except OSError as error:
        of_file = file_of(error)
        if error.errno in FULL and (of_file is None or Path(of_file).is_relative_to(place)):
            raise short_of(error.errno, place) from None
        raise


def _new_name(purpose: Purpose) -> str:
    pid = os.getpid()
    return f"{PREFIX}{purpose}-{_boot()}-{_namespace()}-{pid}-{_start(pid) or 0}-{os.urandom(16).hex()}"


def sweep(parent: Path) -> None:
    """Remove the folders of dead processes, once in the life of a process; failures are left to the next one.

    Only real directories of this user are removed, with a name of kstate, of this boot and pid namespace. A name of
    another host, or from before a restart, proves nothing.
    """
    place = (os.getpid(), parent)
    if place in _swept:
        return
    _swept.add(place)
    try:
        with os.scandir(parent) as entries:
            names = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for name in names:
        # Whose it is comes first: in /tmp a name is anybody's to choose.
        if _is_ours(parent / name) and _is_dead(name) and not _is_awaited(parent / name):
            shutil.rmtree(parent / name, ignore_errors=True)


def _is_awaited(path: Path) -> bool:
    """Return whether a JVM whose kstate has died may still write there.

    A JVM that cannot report its port never reads its input, so it never learns that kstate has died: it stays.
    """
    try:
        return path.name.startswith(f"{PREFIX}spark-") and clock.now_seconds() - path.stat().st_mtime < _JVM_SECONDS
    except OSError:
        return False


def _is_dead(name: str) -> bool:
    match = _NAME.fullmatch(name)
    boot, namespace = _boot(), _namespace()
    if boot == _NO_BOOT or not namespace:
        return False  # a host that does not tell which it is has the name of every other such host
    if match is None or match[1] != boot or int(match[2]) != namespace or not int(match[4]):
        return False
    pid = int(match[3])
    try:
        # Signal 0 is never sent: the call only reports whether the process exists, and whether we may signal it.
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False  # it lives, and is of another user; or it is no process number at all
    start = _start(pid)
    # A process that exists, and whose start is not shown, is treated as the process of the folder.
    return start is not None and start != int(match[4])


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
    except OSError:
        return _NO_BOOT


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _start(pid: int) -> int | None:
    """Return when a process began, in ticks; None if it has ended, or the system does not show it."""
    try:
        # The name of the program comes in brackets, and may contain spaces and brackets itself: the last one ends it.
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return int(text.rpartition(b")")[2].split()[_START])
    except (OSError, ValueError, IndexError):
        return None

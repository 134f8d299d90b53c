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
from typing import Final, Literal, get_args

from kstate_cli import clock

Purpose = Literal["shadow", "verify", "export", "dump", "runs", "spark", "demo", "version", "examples", "options"]
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
    """Decides for this process and for those that it starts; what fails there later, fails by its name."""
    # Libraries that ask tempfile (pyspark, pyarrow) then use the same folder, and never the working directory.
    tempfile.tempdir = folder()


def folder() -> str:
    """The folder, absolute; the first that is one and may be written to, else the one that was asked for."""
    requested = [os.path.abspath(path) for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))]
    candidates = [*requested, *_USUAL]
    return next(
        (path for path in candidates if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)), candidates[0]
    )


def in_memory(size: int) -> Path | None:
    """The folder in memory, for ``size`` bytes; None where ``TMPDIR`` names another, or where memory is short."""
    sweep(_MEMORY)  # what a dead process has left there takes room
    if "TMPDIR" in os.environ or not os.access(_MEMORY, os.W_OK | os.X_OK):
        return None
    space = os.statvfs(_MEMORY)
    if size + _SPARE_BYTES > space.f_bavail * space.f_frsize:
        return None
    return _MEMORY


def new_path(purpose: Purpose, parent: Path | None = None) -> Path:
    """The path of a folder of this process that nobody else has; in ``parent``, by default where temporary files go.

    Known before the folder is there, so that a signal while it is made does not leave it behind. What dead processes
    have left beside it is removed first.
    """
    usual = Path(folder())
    for place in {usual, parent or usual}:
        sweep(place)
    return (parent or usual) / _new_name(purpose)


def make(purpose: Purpose) -> Path:
    """Makes a folder that only this user can look into; who asked for it removes it. Raises OSError."""
    path = new_path(purpose)
    # No exist_ok: the name is random, so a folder that exists already is not ours.
    path.mkdir(0o700)
    return path


@contextmanager
def private_folder(purpose: Purpose, parent: Path | None = None) -> Iterator[Path]:
    """A folder that only this user can look into, gone with all that is in it at the end. Raises OSError."""
    path = new_path(purpose, parent)
    try:
        path.mkdir(0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _new_name(purpose: Purpose) -> str:
    pid = os.getpid()
    return f"{PREFIX}{purpose}-{_boot()}-{_namespace()}-{pid}-{_start(pid) or 0}-{os.urandom(16).hex()}"


def sweep(parent: Path) -> None:
    """Removes the folders of processes that have died, once in the life of a process; what fails is left to the next.

    Only real directories of this user's with a name of ours, of this boot and pid namespace. A name of another host,
    or of before a restart, proves nothing and stays.
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
    """Whether a JVM that its kstate has not lived to see may still be about to write there.

    One that cannot tell where it listens never looks at its input, and so never sees that it is alone: it stays.
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
        return False  # it lives, and is somebody else's; or it is no process number at all
    start = _start(pid)
    # A process that is there and does not tell when it began is taken for the one that we look for.
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
    """When a process began; None where it is gone, or does not tell."""
    try:
        # The name of the program comes in brackets, and may contain spaces and brackets itself: the last one ends it.
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return int(text.rpartition(b")")[2].split()[_START])
    except (OSError, ValueError, IndexError):
        return None

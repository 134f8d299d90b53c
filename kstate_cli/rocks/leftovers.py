"""Private folders that a killed process has left: whose they are stands in their names, so that the next one knows.

``kstate-<what>-<boot>-<pid namespace>-<pid>-<start>-<random>``: a process number says something on one host, in one
pid namespace and until it is given to another process; that is what the rest tells.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import Final

PREFIX: Final = "kstate-"
_NAME: Final = re.compile(r"kstate-(?:shadow|verify|export)-([0-9a-f]{32})-(\d+)-(\d+)-(\d+)-[0-9a-f]{32}")
_START: Final = 19
"""Of ``/proc/<pid>/stat`` after the name of the program: ``starttime``, ticks since the host has started."""

_swept: set[tuple[int, Path]] = set()


def new_name(what: str = "shadow") -> str:
    """A name for a folder of this process that nobody else has: ``shadow``, or those of ``verify`` and ``export``."""
    pid = os.getpid()
    return f"{PREFIX}{what}-{_boot()}-{_namespace()}-{pid}-{_start(pid) or 0}-{secrets.token_hex(16)}"


def sweep(parent: Path) -> None:
    """Removes the folders of processes that have died, once in the life of a process; what fails is left to the next.

    Only real directories of this user's with a name of ours, of this boot and pid namespace. A name of another host,
    or of before a restart, proves nothing and stays.
    """
    known = (os.getpid(), parent)
    if known in _swept:
        return
    _swept.add(known)
    try:
        with os.scandir(parent) as entries:
            found = [entry.name for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for name in found:
        if _is_dead(name) and _is_ours(parent / name):
            shutil.rmtree(parent / name, ignore_errors=True)


def _is_dead(name: str) -> bool:
    match = _NAME.fullmatch(name)
    if match is None or match[1] != _boot() or int(match[2]) != _namespace() or not int(match[4]):
        return False
    pid = int(match[3])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it lives, and is somebody else's
    start = _start(pid)
    # A process that is there and does not tell when it began is taken for the one that we look for.
    return start is not None and start != int(match[4])


def _is_ours(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip().replace("-", "")
    except OSError:
        return "0" * 32


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _start(pid: int) -> int | None:
    """When a process began; None where it is gone, or does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        return int(text.rpartition(b")")[2].split()[_START])
    except (OSError, ValueError, IndexError):
        return None

"""Who holds a lock, as the kernel tells it: readers never open or create ``.lock``.

Closing any descriptor of a locked file drops the locks of the whole process: even looking is left to ``/proc/locks``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.host import refuse_to_guess

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The inode of the first pid namespace is a constant of the kernel (``PROC_PID_INIT_INO``)."""


@dataclass(frozen=True, slots=True)
class LockTable:
    """The POSIX locks that this process can see, by inode; ``complete`` is false where some may be hidden."""

    holders: dict[tuple[int, int], int]
    complete: bool

    def holder(self, path: Path) -> int | None:
        """The pid that holds a write lock on ``path``, or None."""
        try:
            stat = path.stat(follow_symlinks=False)
        except OSError:
            return None
        return self.holders.get((stat.st_dev, stat.st_ino))

    def held(self, path: Path) -> bool | None:
        """True or false; None where no lock shows but one may be hidden (another pid namespace, no ``/proc``)."""
        if self.holder(path) is not None:
            return True
        return False if self.complete and not self._maybe(path) else None

    def _maybe(self, path: Path) -> bool:
        """Some file systems (btrfs, overlay) show other device numbers here than in stat."""
        try:
            inode = path.stat(follow_symlinks=False).st_ino
        except OSError:
            return False
        return any(known == inode for _, known in self.holders)


def read_lock_table() -> LockTable:
    """The locks of ``/proc/locks``. Locks of processes in other pid namespaces are not listed there."""
    try:
        text = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        refuse_to_guess(error)
        return LockTable({}, complete=False)
    holders: dict[tuple[int, int], int] = {}
    for line in text.splitlines():
        # "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; a waiter has "->" after the number.
        fields = line.split()
        if len(fields) < 8 or fields[1] not in ("POSIX", "OFDLCK") or fields[3] != "WRITE":
            continue
        try:
            major, minor, inode = fields[5].split(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            # What this process holds itself is no obstacle to it.
            if int(fields[4]) != os.getpid():
                holders[device, int(inode)] = int(fields[4])
        except ValueError:
            continue
    try:
        complete = os.readlink("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        complete = False
    return LockTable(holders, complete)

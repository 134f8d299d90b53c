"""Locks and mounts as the kernel shows them: ``/proc/locks`` and ``/proc/self/mountinfo``.

Readers never open or create ``.lock``: closing any descriptor of a locked file drops all locks of the process on it.
The mount of a path shows whether its file system shares locks with the host of the application.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.host import refuse_to_guess

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The inode of the first pid namespace is a constant of the kernel (``PROC_PID_INIT_INO``)."""


@dataclass(frozen=True, slots=True)
class LockTable:
    """The POSIX locks that this process can see, by device and inode; ``complete`` is False if some may be hidden."""

    holders: dict[tuple[int, int], int]
    complete: bool

    def holder(self, path: Path) -> int | None:
        """Return the id of the process that holds a write lock on ``path``; None if none is visible."""
        try:
            # stat opens no descriptor. Closing one would drop this process's own lock on the file.
            stat = path.stat(follow_symlinks=False)
        except OSError:
            return None
        return self.holders.get((stat.st_dev, stat.st_ino))

    def is_locked(self, path: Path) -> bool | None:
        """Return whether a process holds a write lock on ``path``; None if a lock may be hidden.

        Another pid namespace or a missing ``/proc`` hides locks.
        """
        if self.holder(path) is not None:
            return True
        # False needs a complete table, and no lock that might be on this file.
        if not self.complete or self._maybe(path):
            return None
        return False

    def _maybe(self, path: Path) -> bool:
        """Return whether there is a lock on the inode of ``path``, but on another device.

        On some file systems (btrfs, overlay) ``/proc/locks`` has another device number than stat, so it may be this
        file.
        """
        try:
            inode = path.stat(follow_symlinks=False).st_ino
        except OSError:
            return False
        return any(locked_inode == inode for _, locked_inode in self.holders)


def read_lock_table() -> LockTable:
    """Return the locks in ``/proc/locks``, without those of this process. Raise HostError.

    It lists no locks of processes in other pid namespaces. The table is not complete then.
    """
    try:
        text = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        refuse_to_guess(error)
        return LockTable({}, complete=False)
    holders: dict[tuple[int, int], int] = {}
    for line in text.splitlines():
        # "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 0 EOF". A process that waits for the lock has "->" after the
        # number.
        fields = line.split()
        # FLOCK is the lock of kstate's own commands. It does not show that an application is running.
        if len(fields) < 8 or fields[1] not in ("POSIX", "OFDLCK") or fields[3] != "WRITE":
            continue
        try:
            major, minor, inode = fields[5].split(":")
            device = os.makedev(int(major, 16), int(minor, 16))
            # This process is not hindered by its own locks.
            if int(fields[4]) != os.getpid():
                holders[device, int(inode)] = int(fields[4])
        except ValueError:
            continue
    try:
        # Only the first pid namespace shows the locks of all processes. A container has another one.
        complete = os.readlink("/proc/self/ns/pid") == _INITIAL_PID_NAMESPACE
    except OSError:
        complete = False
    return LockTable(holders, complete)


SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "glusterfs", "lustre", "virtiofs")
"""Prefixes of file system types whose POSIX locks may not be shared with the host of the application."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: the mount point and the file system type."""

    point: Path
    kind: str

    @property
    def may_not_share_locks(self) -> bool:
        """True for network and user-space file systems."""
        return self.kind.startswith(SHARED_FILE_SYSTEMS)


def read_mounts() -> tuple[Mount, ...]:
    """Return all mounts of this process, in mount order; none if the system does not show them. Raises HostError."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        refuse_to_guess(error)
        return ()
    mounts = []
    for line in lines:
        # The number of optional fields before the separator varies, so the type is the first field after it.
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:
            mounts.append(Mount(Path(_unescape(fields[4])), after.split(" ")[0]))
    return tuple(mounts)


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount | None:
    """Return the mount of ``path`` (resolved): the one with the longest mount point, and of several there the last."""
    best: Mount | None = None
    for mount in mounts:
        # >= and not >: a later mount on the same point hides the earlier one.
        if path.is_relative_to(mount.point) and (best is None or len(mount.point.parts) >= len(best.point.parts)):
            best = mount
    return best


def mounts_at_or_below(path: Path, mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Return the mounts whose point is ``path`` or below it."""
    return tuple(mount for mount in mounts if mount.point.is_relative_to(path))


def _unescape(text: str) -> str:
    """Return the text without octal escapes, which mountinfo uses for blanks and similar characters."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

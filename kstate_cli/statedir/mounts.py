"""Which file system a path lies on, and which mounts lie below it (``/proc/self/mountinfo``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.host import refuse_to_guess

SHARED_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "fuse", "ceph", "glusterfs", "lustre", "virtiofs")
"""Prefixes of file system types whose POSIX locks may not be shared with the host of the application."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: where, and what type."""

    point: Path
    kind: str

    @property
    def may_not_share_locks(self) -> bool:
        """True for network and user-space file systems."""
        return self.kind.startswith(SHARED_FILE_SYSTEMS)


def read_mounts() -> tuple[Mount, ...]:
    """Return all mounts of this process, in mount order; none where the system does not show them. Raises HostError."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        refuse_to_guess(error)
        return ()
    mounts = []
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) > 4 and after:
            mounts.append(Mount(Path(_unescape(fields[4])), after.split(" ")[0]))
    return tuple(mounts)


def mount_of(path: Path, mounts: tuple[Mount, ...]) -> Mount | None:
    """The mount that ``path`` (resolved) lies on: the last one mounted over its longest prefix."""
    best: Mount | None = None
    for mount in mounts:
        if path.is_relative_to(mount.point) and (best is None or len(mount.point.parts) >= len(best.point.parts)):
            best = mount
    return best


def mounts_at_or_below(path: Path, mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Mounts whose point is ``path`` or lies below it."""
    return tuple(mount for mount in mounts if mount.point.is_relative_to(path))


def _unescape(text: str) -> str:
    """Blanks and the like are octal escapes in mountinfo."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

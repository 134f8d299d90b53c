"""What this user may not do with a file or a directory, and whose it is: told apart, so that it can be put right."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

DENIED: Final = (errno.EACCES, errno.EPERM)
"""What an OSError says where it is about rights."""
_BITS = {os.R_OK: "r", os.W_OK: "w", os.X_OK: "x"}


def access_hint(path: str | os.PathLike[str] | None, wanted: int = os.R_OK) -> str:
    """The hint where this user may not do what is ``wanted`` (bits of ``os.access``) with ``path``.

    It is about the directory on the way that denies it, or ``path`` itself: whose it is, its mode, and who asks. Nobody
    who is that user already is told to become it; where the mode allows it, something else denies it.
    """
    denying, bits = _denying(Path(os.path.abspath(path or ".")), wanted)
    try:
        status = os.stat(denying)
    except OSError as error:
        return f"{denying} cannot be looked at ({error.strerror}): give this user the right to"
    shown = f"{denying} belongs to {_user(status.st_uid)}:{_group(status.st_gid)} with mode {_mode(status)}"
    letters = "".join(letter for bit, letter in _BITS.items() if bits & bit)
    if _allows(status, bits):
        denies = "an ACL (getfacl), an attribute (lsattr) or a security module denies it"
        return f"{shown}, which allows {letters} to {_user(os.geteuid())}: {denies}"
    if status.st_uid == os.geteuid():
        return f"{shown}, which denies {letters} to its owner, who this is: chmod u+{letters}"
    me, owner = _user(os.geteuid()), _user(status.st_uid)
    # Root changes no owner of what it replaces; any other owner may be the application's user, or may not.
    who = "root, and the files keep their owners" if status.st_uid == 0 else owner
    return f"{shown}, and this is {me}: run the command as {who}; or give {me} the right {letters} on {denying}"


def user_name(uid: int) -> str:
    """A user as people know it; the number of one that has no name here."""
    return _user(uid)


def _denying(path: Path, wanted: int) -> tuple[Path, int]:
    for above in reversed(path.parents):
        if not os.access(above, os.X_OK, effective_ids=True):
            return above, os.X_OK
    # Not Path.is_dir: it raises where a directory on the way of a link may not be passed.
    bits = wanted | (os.X_OK if os.path.isdir(path) else 0)
    missing = [bit for bit in _BITS if bits & bit and not os.access(path, bit, effective_ids=True)]
    return path, sum(missing) or wanted


def _allows(status: os.stat_result, bits: int) -> bool:
    if status.st_uid == os.geteuid():
        given = status.st_mode >> 6
    elif status.st_gid in {os.getegid(), *os.getgroups()}:
        given = status.st_mode >> 3
    else:
        given = status.st_mode
    return given & bits == bits


def _mode(status: os.stat_result) -> str:
    return f"{stat.S_IMODE(status.st_mode):04o}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"group {number}"

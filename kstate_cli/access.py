"""Why this user may not access a file or a directory, and who can change that."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

DENIED: Final = (errno.EACCES, errno.EPERM)
"""The errnos of an OSError about rights."""
_BITS = {os.R_OK: "r", os.W_OK: "w", os.X_OK: "x"}


def access_hint(path: str | os.PathLike[str] | None, access: int = os.R_OK) -> str:
    """Return the hint if this user may not ``access`` (bits of ``os.access``) ``path``.

    It names the first directory on the way that denies it, or ``path`` itself, with owner and mode. The hint never says
    to become the present user; if the mode allows the access, an ACL or the like denies it.
    """
    denying, bits = _denying(Path(os.path.abspath(path or ".")), access)
    try:
        status = os.stat(denying)
    except OSError as error:
        return f"{denying} cannot be looked at ({error.strerror}): give this user the right to"
    facts = f"{denying} belongs to {_user(status.st_uid)}:{_group(status.st_gid)} with mode {_mode(status)}"
    letters = "".join(letter for bit, letter in _BITS.items() if bits & bit)
    if _allows(status, bits):
        denies = "an ACL (getfacl), an attribute (lsattr) or a security module denies it"
        return f"{facts}, which allows {letters} to {_user(os.geteuid())}: {denies}"
    if status.st_uid == os.geteuid():
        return f"{facts}, which denies {letters} to its owner, who this is: chmod u+{letters}"
    me, owner = _user(os.geteuid()), _user(status.st_uid)
    # Root changes no owner of what it replaces; any other owner may be the application's user, or may not.
    who = "root, and the files keep their owners" if status.st_uid == 0 else owner
    return f"{facts}, and this is {me}: run the command as {who}; or give {me} the right {letters} on {denying}"


def user_name(uid: int) -> str:
    """Return the name of a user, or ``user 1000`` without a name."""
    return _user(uid)


def _denying(path: Path, access: int) -> tuple[Path, int]:
    for above in reversed(path.parents):
        if not os.access(above, os.X_OK, effective_ids=True):
            return above, os.X_OK
    # Not Path.is_dir: it raises where a directory on the way of a link may not be passed.
    bits = access | (os.X_OK if os.path.isdir(path) else 0)
    missing = [bit for bit in _BITS if bits & bit and not os.access(path, bit, effective_ids=True)]
    return path, sum(missing) or access


def _allows(status: os.stat_result, bits: int) -> bool:
    if status.st_uid == os.geteuid():
        granted = status.st_mode >> 6
    elif status.st_gid in {os.getegid(), *os.getgroups()}:
        granted = status.st_mode >> 3
    else:
        granted = status.st_mode
    return granted & bits == bits


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

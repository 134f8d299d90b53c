"""Who may read and write what kstate makes: exactly those who might before, not more and not fewer.

A default ACL on a directory reaches every file that is made below it, and a file that RocksDB replaces loses its own.
So what is made for an existing file takes owner, mode and ACL of that file, and what it has beyond them goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import Final

ACL: Final = ("system.posix_acl_access", "system.posix_acl_default")
NO_ATTRIBUTES: Final = (errno.ENOTSUP, errno.ENODATA, errno.EINVAL)


def attributes(path: Path | int) -> list[str]:
    """Names of the extended attributes, ACLs among them; none where the file system has none. Raises OSError."""
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in NO_ATTRIBUTES:
            return []
        raise


def keep_attributes(source: Path | int, target: Path | int) -> None:
    """Extended attributes and ACLs, where the file system has them and this user may set them. Raises OSError."""
    wanted = attributes(source)
    for name in attributes(target):
        if name in ACL and name not in wanted:
            os.removexattr(target, name)
    for name in wanted:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, *NO_ATTRIBUTES):
                raise


def keep_access(source: Path, target: Path) -> None:
    """Mode, extended attributes and ACLs of one file for another; the owner is ``own_like``'s. Raises OSError."""
    mode = os.stat(source, follow_symlinks=False).st_mode & 0o7777
    if os.stat(target, follow_symlinks=False).st_mode & 0o7777 != mode:
        os.chmod(target, mode)
    keep_attributes(source, target)


def drop_acl(path: Path) -> None:
    """Takes every ACL from a directory of kstate's own: what is made in it is for the owner alone."""
    for name in ACL:
        with contextlib.suppress(OSError):
            os.removexattr(path, name)

"""Whether anybody else could change what lies somewhere: for what is run, and was not installed.

What a JVM maps into its memory, or a command that is started as it was noted, is code. It is taken only where nobody
but this user and root can have put it there, and nobody else can exchange it between the look and the use.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from kstate_cli.regular_files import kind_of

_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def why_not_safe(path: Path) -> str | None:
    """What lets another user change a file or folder, or exchange it; None where nothing does.

    ``path`` is absolute, and has no links in it. Raises OSError where it is not there.
    """
    for folder in reversed(path.parents):
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            return f"{folder} is {kind_of(status.st_mode)}, not a directory"
        # In a folder like /tmp others may add names, and not take those of ours.
        if (why := _of_others(folder, status, sticky=bool(status.st_mode & stat.S_ISVTX))) is not None:
            return why
    status = os.lstat(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return f"{path} is {kind_of(status.st_mode)}"
    return _of_others(path, status, sticky=False)


def _of_others(path: Path, status: os.stat_result, *, sticky: bool) -> str | None:
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to uid {status.st_uid}"
    if status.st_mode & _OTHERS_MAY_WRITE and not sticky:
        return f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o})"
    return None

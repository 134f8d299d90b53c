"""Whose new files are: root may run kstate, and Streams must be able to write what it has made."""

from __future__ import annotations

import os
from pathlib import Path


def own_like(path: Path | int, model: os.stat_result, *, follow_symlinks: bool = True) -> None:
    """Gives a new file (or descriptor) to the owner of ``model``. Only root can, and only root needs to."""
    if os.geteuid() != 0:
        return
    # A descriptor has no other way than to be followed.
    stat = os.fstat(path) if isinstance(path, int) else os.stat(path, follow_symlinks=follow_symlinks)
    if (stat.st_uid, stat.st_gid) == (model.st_uid, model.st_gid):
        return
    if isinstance(path, int):
        os.fchown(path, model.st_uid, model.st_gid)
    else:
        os.chown(path, model.st_uid, model.st_gid, follow_symlinks=follow_symlinks)

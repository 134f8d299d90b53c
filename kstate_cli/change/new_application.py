"""An application directory that is lost, made anew: empty, for a restoration to fill, and gone again if that fails."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kstate_cli.change.folder import read_runs
from kstate_cli.change.lockfile import application_lock
from kstate_cli.change.owner import own_like
from kstate_cli.change.recover import recover
from kstate_cli.statedir.names import LOCK


def make_where_lost(app: Path, wait: float, tell: Callable[[str], None]) -> int | None:
    """The inode of the directory that is made where it is lost; None where it is there.

    Unfinished runs are taken over first, and it is made under the lock of the lost: an empty directory would make what
    a run has of the application look like something beside it, and an undo may be about to put it back.

    Raises InUse and Refused.
    """
    if os.path.lexists(app):
        return None
    if not read_runs(app):
        return _make(app)
    with application_lock(app, wait):
        recover(app, tell)
        return None if os.path.lexists(app) else _make(app)


def remove_empty(app: Path, made: int) -> None:
    """Removes the directory of that inode, if it is still that one and empty. For who could not lock it."""
    with contextlib.suppress(OSError):
        if app.stat().st_ino == made:
            app.rmdir()


def unmake(app: Path, made: int) -> None:
    """Removes the directory of that inode, if it is still that one and nobody has put anything into it.

    The lock is held: nobody else's lock file goes with it.
    """
    with contextlib.suppress(OSError):
        if app.stat().st_ino == made and set(os.listdir(app)) <= {LOCK}:
            (app / LOCK).unlink(missing_ok=True)
            remove_empty(app, made)


def _make(app: Path) -> int:
    """An empty application directory as ``StateDirectory`` makes it: rwxr-x---, of the state.dir's owner.

    Returns its inode: after a switch another directory has its name.
    """
    app.mkdir(mode=0o750)
    own_like(app, app.parent.stat())
    return app.stat().st_ino

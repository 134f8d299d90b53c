"""The application lock: ``APP/.lock``, a POSIX record lock as the JVM takes it (``StateDirectory.lockStateDirectory``).

``flock`` would not conflict with Java; on the same file it keeps commands of kstate apart, also those that may go on
beside a running application. The file is opened once and never again while the lock is held: closing any descriptor of
it would drop the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kstate_cli.access import access_hint
from kstate_cli.change.access import own_like
from kstate_cli.change.folder import runs_folder
from kstate_cli.errors import InUse, Refused
from kstate_cli.statedir.locks import mount_of, read_lock_table, read_mounts
from kstate_cli.statedir.names import LOCK

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def application_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Holds the application's lock, waiting up to ``wait`` seconds for it.

    Of a lost application, which cannot run, it is the lock of what kstate has kept of it. Raises InUse (with the pid
    where the system tells) when somebody else holds it, Refused when it cannot be opened.
    """
    deadline = time.monotonic() + wait
    while True:
        if not os.path.lexists(app):
            with _lock_of_the_lost(app, deadline):
                if os.path.lexists(app):
                    continue  # who held it before has put it back
                yield
            return
        with _opened(app) as descriptor:
            _wait_for(lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), app, deadline)
            if _tells_locks_apart(app):
                _flock(descriptor, app, deadline)
            if _in_place(descriptor, app):
                _LOG.debug("holds the lock of %s", app)
                yield
                return


@contextlib.contextmanager
def kstate_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Keeps other commands of kstate out, not the application: for what is beside its directory only.

    Raises InUse and Refused as ``application_lock`` does, which it is where the file system knows one kind of lock.
    """
    if not app.exists() or not _tells_locks_apart(app):
        with application_lock(app, wait):
            yield
        return
    deadline = time.monotonic() + wait
    while True:
        with _opened(app) as descriptor:
            _flock(descriptor, app, deadline)
            if _in_place(descriptor, app):
                yield
                return


def _in_place(descriptor: int, app: Path) -> bool:
    """Whether the file that is locked is the lock of APP still: while one waits another directory may get the name."""
    try:
        in_place = os.stat(app / LOCK, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(descriptor)
    return (in_place.st_dev, in_place.st_ino) == (held.st_dev, held.st_ino)


def share_lock(app: Path, other: Path) -> None:
    """Makes the lock file of ``other``, which is about to take APP's place, the very one that is held. Raises OSError.

    The lock guards what has the name of the application only if it is one inode before and after the exchange.
    """
    held = os.stat(app / LOCK, follow_symlinks=False)
    try:
        in_other = os.stat(other / LOCK, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        if (in_other.st_dev, in_other.st_ino) == (held.st_dev, held.st_ino):
            return
        os.unlink(other / LOCK)
    os.link(app / LOCK, other / LOCK)


@contextlib.contextmanager
def _lock_of_the_lost(app: Path, deadline: float) -> Iterator[None]:
    folder = runs_folder(app)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(
            f"{app} is not there, and {folder} cannot be opened for locking: {error.strerror}",
            hint=access_hint(folder),
        ) from None
    try:
        _flock(descriptor, app, deadline)
        yield
    finally:
        os.close(descriptor)


def _tells_locks_apart(app: Path) -> bool:
    """NFS and the like make both kinds of locks into one."""
    mount = mount_of(app, read_mounts())
    return mount is not None and not mount.may_not_share_locks


@contextlib.contextmanager
def _opened(app: Path) -> Iterator[int]:
    path = app / LOCK
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused(
            f"{path} is not a regular file",
            hint="Streams locks a regular file of that name: see what it is, and move it away",
        )
    is_new = not path.exists()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise Refused(
            f"{path} cannot be opened for locking: {error.strerror}",
            hint=access_hint(path if os.path.lexists(path) else app, os.R_OK | os.W_OK),
        ) from None
    try:
        if is_new:
            own_like(descriptor, app.stat())
        yield descriptor
    finally:
        os.close(descriptor)


def _flock(descriptor: int, app: Path, deadline: float) -> None:
    _wait_for(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), app, deadline)


def _wait_for(lock: Callable[[], object], app: Path, deadline: float) -> None:
    waits = deadline > time.monotonic()
    while True:
        try:
            lock()
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise Refused(
                    f"{app / LOCK} cannot be locked: {error.strerror}",
                    hint="its file system has no POSIX locks: move the state.dir to a local one, or correct its mount",
                ) from None
            if time.monotonic() >= deadline:
                raise in_use(app, read_lock_table().holder(app / LOCK), waited=waits) from None
            time.sleep(_POLL_SECONDS)


def in_use(app: Path, pid: int | None, *, waited: bool = False) -> InUse:
    """Return the error for a directory that another process holds; ``waited``: the command has waited for it."""
    who = f"process {pid}" if pid else "another process"
    return InUse(
        f"{app} is in use by {who}",
        hint="stop the application (or the other kstate) first, or wait for it "
        + ("longer" if waited else "with --wait SECONDS"),
    )

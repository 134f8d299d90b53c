"""The application lock: ``APP/.lock``, a POSIX record lock as the JVM takes it (``StateDirectory.lockStateDirectory``).

``flock`` does not conflict with Java. On the same file it excludes other commands of kstate, also those that may run
while the application is running. The file is opened once, and never again while the lock is held: POSIX drops the lock
when *any* descriptor of the file is closed.
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

from kstate_cli.change.access import own_like
from kstate_cli.change.folder import runs_folder
from kstate_cli.errors import InUse, Refused
from kstate_cli.regular_files import access_hint
from kstate_cli.statedir.locks import mount_of, read_lock_table, read_mounts
from kstate_cli.statedir.names import LOCK

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2


@contextlib.contextmanager
def application_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the application's lock, and wait up to ``wait`` seconds for it.

    If the application directory is missing, its folder of runs is locked instead. Raise InUse (with the pid if the
    system reports it) if another process holds the lock, Refused if it cannot be opened.
    """
    deadline = time.monotonic() + wait
    while True:
        if not os.path.lexists(app):
            with _lock_of_the_lost(app, deadline):
                if os.path.lexists(app):
                    continue  # the previous holder has restored it
                yield
            return
        with _lock_file(app) as descriptor:
            # First Java's lock, then that of kstate: every command takes them in this order, so none waits in a circle.
            _wait_for(lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), app, deadline)
            if _tells_locks_apart(app):
                _flock(descriptor, app, deadline)
            if _in_place(descriptor, app):
                _LOG.debug("holds the lock of %s", app)
                yield
                return


@contextlib.contextmanager
def kstate_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Exclude other commands of kstate, but not the application: for changes beside its directory only.

    Raise InUse and Refused as :func:`application_lock`, which is used if the file system has one kind of lock.
    """
    if not app.exists() or not _tells_locks_apart(app):
        with application_lock(app, wait):
            yield
        return
    deadline = time.monotonic() + wait
    while True:
        with _lock_file(app) as descriptor:
            _flock(descriptor, app, deadline)
            if _in_place(descriptor, app):
                yield
                return


def _in_place(descriptor: int, app: Path) -> bool:
    """Return whether the locked file is still the lock of APP: during a wait another directory may get the name."""
    try:
        in_place = os.stat(app / LOCK, follow_symlinks=False)
    except FileNotFoundError:
        return False
    locked = os.fstat(descriptor)
    return (in_place.st_dev, in_place.st_ino) == (locked.st_dev, locked.st_ino)


def share_lock(app: Path, other: Path) -> None:
    """Make the held lock file that of ``other`` too, which is about to take APP's place. Raise OSError.

    A POSIX lock belongs to an inode: it guards the application's name only if both trees have the same one.
    """
    locked = os.stat(app / LOCK, follow_symlinks=False)
    try:
        in_other = os.stat(other / LOCK, follow_symlinks=False)
    except FileNotFoundError:
        pass
    else:
        if (in_other.st_dev, in_other.st_ino) == (locked.st_dev, locked.st_ino):
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
    """Return whether the file system has two kinds of locks: NFS and the like make ``flock`` a POSIX lock."""
    mount = mount_of(app, read_mounts())
    return mount is not None and not mount.may_not_share_locks


@contextlib.contextmanager
def _lock_file(app: Path) -> Iterator[int]:
    """Open the lock file, created if it is missing, and close it at the end. Raise Refused."""
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
                raise in_use(app, read_lock_table().holder(app / LOCK), after_wait=waits) from None
            time.sleep(_POLL_SECONDS)


def in_use(app: Path, pid: int | None, *, after_wait: bool = False) -> InUse:
    """Return the error for a directory that another process holds; ``after_wait``: the command has waited for it."""
    who = f"process {pid}" if pid else "another process"
    return InUse(
        f"{app} is in use by {who}",
        hint="stop the application (or the other kstate) first, or wait for it "
        + ("longer" if after_wait else "with --wait SECONDS"),
    )

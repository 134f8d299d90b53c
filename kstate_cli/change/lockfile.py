"""The application lock, and the checks that a directory can be changed safely where it is: file system, space, owner.

The lock is ``APP/.lock``, a POSIX record lock as the JVM takes it (``StateDirectory.lockStateDirectory``). ``flock``
does not conflict with that lock of Java. So kstate also takes a ``flock`` on the same file, which excludes only other
commands of kstate. A command that may run while the application is running takes the ``flock`` alone. The file is
opened once, and never again while the lock is held: POSIX drops the lock when *any* descriptor of the file is closed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change import nofollow
from kstate_cli.change.access import own_like, reading
from kstate_cli.change.folder import read_runs, runs_folder
from kstate_cli.change.journal import RunState
from kstate_cli.change.plan import EditDatabase, Plan
from kstate_cli.errors import InUse, Refused
from kstate_cli.regular_files import access_hint, user_name
from kstate_cli.rocks.files import is_never_changed
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.locks import Mount, mount_of, mounts_at_or_below, read_lock_table, read_mounts
from kstate_cli.statedir.names import LOCK, LOST_AND_FOUND
from kstate_cli.texts import command, size_text

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_FLOCK: Final = struct.Struct("hhqqi0q")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


@contextlib.contextmanager
def application_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Hold the application's lock, so that neither Streams nor another kstate can use it. Wait up to ``wait`` seconds.

    If the application directory is missing, its folder of runs is locked instead. Raise InUse (with the process id, if
    the system shows it) if another process holds the lock, Refused if the file cannot be opened.
    """
    deadline = time.monotonic() + wait
    while True:
        if not os.path.lexists(app):
            with _lock_of_the_lost(app, deadline):
                if os.path.lexists(app):
                    continue  # the process that held the lock before has restored the directory
                yield
            return
        with _lock_file(app) as descriptor:
            # The POSIX lock first, then the ``flock``: every command uses this order, so no two commands wait for each
            # other.
            _wait_for(lambda: fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), app, deadline)
            if _distinguishes_locks(app):
                _flock(descriptor, app, deadline)
            if _in_place(descriptor, app):
                _LOG.debug("holds the lock of %s", app)
                yield
                return


@contextlib.contextmanager
def kstate_lock(app: Path, wait: float = 0.0) -> Iterator[None]:
    """Exclude other commands of kstate, but not the application. For changes outside the application directory only.

    If the file system has only one kind of lock, this is :func:`application_lock`, which excludes both. Raise InUse and
    Refused as that function does.
    """
    if not app.exists() or not _distinguishes_locks(app):
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


@dataclass(frozen=True, slots=True)
class ReaderLock:
    """The lock of a command that reads a directory for long (:func:`reader_lock`)."""

    descriptor: int | None
    """The open lock file; None if the directory has none."""

    def application_pid(self) -> int | None:
        """Return the process that holds Java's lock, 0 if another pid namespace hides it; None if none does."""
        if self.descriptor is None:
            return None
        # F_GETLK asks the kernel for a lock that would conflict with a write lock. It needs no right to write. It also
        # reports locks of other pid namespaces, which /proc/locks does not list.
        request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_GETLK, request))
        if kind == fcntl.F_UNLCK:
            return None
        return max(int(pid), 0)


@contextlib.contextmanager
def reader_lock(app: Path, wait: float | None) -> Iterator[ReaderLock]:
    """Keep other commands of kstate from exchanging a directory while this one reads it. Nothing is written.

    The application may start meanwhile: this function takes no lock that Streams needs, because Streams would fail if
    it did not get its own. So the caller calls :meth:`ReaderLock.application_pid` before and after reading. Raise InUse
    if a command is changing the directory, and Refused if the lock file cannot be opened.

    ``wait``: the seconds to wait; None for a command that cannot wait, whose hint then suggests no waiting.
    """
    path = app / LOCK
    try:
        # Opened for reading only, so that it works on a read-only mount and for a user without the right to write.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        yield ReaderLock(None)
        return
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error.strerror}", hint=access_hint(path)) from None
    try:
        if _distinguishes_locks(app):
            # A shared lock, because two snapshots must not exclude each other. A change takes the same lock
            # exclusively.
            deadline = time.monotonic() + (wait or 0.0)
            _wait_for(
                lambda: fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB), app, deadline, can_wait=wait is not None
            )
        yield ReaderLock(descriptor)
    finally:
        # Closing the file drops POSIX locks of this process, but never those of Java. This process has none on this
        # file: a command that changes a directory never reads it through this function.
        os.close(descriptor)


def _in_place(descriptor: int, app: Path) -> bool:
    """Return whether the locked file is still that of APP. A command may have exchanged APP while this one waited."""
    try:
        in_place = os.stat(app / LOCK, follow_symlinks=False)
    except FileNotFoundError:
        return False
    locked = os.fstat(descriptor)
    return (in_place.st_dev, in_place.st_ino) == (locked.st_dev, locked.st_ino)


def share_lock(app: Path, other: Path) -> None:
    """Make the held lock file that of ``other`` too, the tree that is about to get APP's name. Raise OSError.

    A POSIX lock belongs to an inode. So the lock guards the name APP before and after the exchange only if the lock
    file of both trees is the same inode.
    """
    locked = nofollow.stat(app / LOCK)
    try:
        in_other = nofollow.stat(other / LOCK)
    except FileNotFoundError:
        pass
    else:
        if (in_other.st_dev, in_other.st_ino) == (locked.st_dev, locked.st_ino):
            return
        nofollow.unlink(other / LOCK)
    nofollow.link(app / LOCK, other / LOCK)


@contextlib.contextmanager
def _lock_of_the_lost(app: Path, deadline: float) -> Iterator[None]:
    """Hold a lock on the folder of runs of an application whose directory is missing. Raise InUse and Refused."""
    folder = runs_folder(app)
    try:
        descriptor = nofollow.open_directory(folder)
    except OSError as error:
        raise Refused(
            f"{app} is missing, and kstate cannot open {folder} for locking: {error.strerror}",
            hint=access_hint(folder),
        ) from None
    try:
        _flock(descriptor, app, deadline)
        yield
    finally:
        os.close(descriptor)


def _distinguishes_locks(app: Path) -> bool:
    """Return whether POSIX locks and ``flock`` are separate there. On NFS, for example, they are one kind."""
    mount = mount_of(app, read_mounts())
    return mount is not None and not mount.may_not_share_locks


@contextlib.contextmanager
def _lock_file(app: Path) -> Iterator[int]:
    """Open the lock file, created if it is missing, and close it at the end. Raise Refused."""
    path = app / LOCK
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused(
            f"{path} is not a regular file",
            hint=("inspect this entry, then move it elsewhere. Kafka Streams expects a regular file with this name"),
        )
    # Only a file that this call creates gets an owner: an existing file keeps the one that Streams has given it.
    is_new = not path.exists()
    try:
        descriptor = nofollow.open_file(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise Refused(
            f"kstate cannot open {path} for locking: {error.strerror}",
            # If the file does not exist, creating it has failed, so the rights of its folder are the cause.
            hint=access_hint(_existing(path, app), os.R_OK | os.W_OK),
        ) from None
    try:
        if is_new:
            own_like(descriptor, app.stat())
        yield descriptor
    finally:
        os.close(descriptor)


def _existing(path: Path, folder: Path) -> Path:
    """Return ``path`` if it exists, else the folder that it would be in."""
    return path if os.path.lexists(path) else folder


def _flock(descriptor: int, app: Path, deadline: float) -> None:
    """Take an exclusive ``flock`` by ``deadline``, in seconds of the monotonic clock. Raise InUse and Refused."""
    _wait_for(lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB), app, deadline)


def _wait_for(lock: Callable[[], object], app: Path, deadline: float, *, can_wait: bool = True) -> None:
    """Call ``lock``, which must not block, until it succeeds or ``deadline`` passes. Raise InUse and Refused."""
    waits = deadline > time.monotonic()
    while True:
        try:
            lock()
            return
        except OSError as error:
            # If another process holds the lock, POSIX lets lockf fail with either of these two errors.
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise Refused(
                    f"kstate cannot lock {app / LOCK}: {error.strerror}",
                    hint=(
                        "this file system has no POSIX locks. Move the state.dir to a local file system or fix the "
                        "mount"
                    ),
                ) from None
            if time.monotonic() >= deadline:
                raise in_use(app, read_lock_table().holder(app / LOCK), after_wait=waits, can_wait=can_wait) from None
            # Polled, since a blocking lock (F_SETLKW) can be given a time limit only by a signal.
            time.sleep(_POLL_SECONDS)


def in_use(app: Path, pid: int | None, *, after_wait: bool = False, can_wait: bool = True) -> InUse:
    """Return the error for a directory that another process uses; ``pid`` is 0 or None if that process is not visible.

    ``after_wait``: the command has already waited for it. ``can_wait``: the command has an option to wait.
    """
    # The process may be in another pid namespace, or on another host.
    holder = f"process {pid}" if pid else "another process"
    problem = f"{app} is in use by {holder}"
    if not can_wait:
        return InUse(problem, hint="stop the application (or the other kstate process), then run the command again")
    wait = f"with {option.WAIT} SECONDS"
    if after_wait:
        wait = "longer"
    return InUse(problem, hint=f"stop the application (or the other kstate process) first or wait for it {wait}")


_OPEN_STORE_BYTES = 24 * 1024 * 1024
"""The space that RocksDB reserves for the MANIFEST and the log of an open database."""


def check_change(plan: Plan, *, workers: int, copy_ssts: bool, lock_is_shared: bool) -> None:
    """Raise Refused if the plan cannot be carried out safely in its directory: lock, mounts, owner, free space."""
    check_location(plan.app, lock_is_shared=lock_is_shared)
    with reading():
        if not copy_ssts:
            _check_owner(plan.app)
        _check_space(plan, workers, copy_ssts=copy_ssts)


def check_location(app: Path, *, lock_is_shared: bool, exchanges: bool = True) -> None:
    """Raise Refused if a command cannot rely on the lock of a directory, or cannot write beside it.

    With ``exchanges`` also raise it if the directory cannot be exchanged with another one in one step.
    """
    mounts = read_mounts()
    if exchanges:
        _check_mounts_of_app(app, mounts)
    _check_mounts_of_runs(app, mounts, exchanges=exchanges)
    check_locks(app, mounts, lock_is_shared=lock_is_shared)
    if exchanges:
        _check_devices(app)
    # Checked before access(2), which reports EROFS just like missing rights.
    if os.statvfs(app.parent).f_flag & os.ST_RDONLY:
        raise Refused(
            f"{app.parent} is on a file system that is mounted read-only",
            hint=(
                "after a disk error, the kernel remounts a file system read-only. Find the cause, then mount it "
                "read-write again"
            ),
        )
    if not os.access(app.parent, os.W_OK | os.X_OK):
        raise Refused(
            f"this user does not have permission to write to {app.parent}",
            hint=access_hint(app.parent, os.R_OK | os.W_OK | os.X_OK),
        )


def check_locks(app: Path, mounts: tuple[Mount, ...], *, lock_is_shared: bool) -> None:
    """Raise Refused if the lock of a directory does not prove that the application is stopped on every host."""
    mount = mount_of(app, mounts)
    if mount is not None and mount.may_not_share_locks and not lock_is_shared:
        raise Refused(
            (f"{app} is on {mount.kind} ({mount.point}), where the application's host may not see kstate's locks"),
            hint=f"make sure that the application is stopped on all hosts, then pass {option.LOCK_IS_SHARED}",
        )


def _check_mounts_of_app(app: Path, mounts: tuple[Mount, ...]) -> None:
    """Raise Refused if APP is a mount point, or contains one: no exchange and no hard link crosses a mount."""
    at_or_below = mounts_at_or_below(app, mounts)
    if any(mount.point == app for mount in at_or_below):
        raise Refused(
            f"{app} is a mount point, so kstate cannot swap it with the new directory in one step",
            hint="mount the state.dir instead of the application directory",
        )
    if at_or_below:
        raise Refused(
            f"{at_or_below[0].point} is a mount point inside the application directory", hint="unmount it first"
        )


def _check_mounts_of_runs(app: Path, mounts: tuple[Mount, ...], *, exchanges: bool) -> None:
    """Raise Refused for mount points in the folder of runs.

    No exchange crosses a mount, not even a bind mount of the same file system (``renameat2`` fails with EXDEV). And
    ``clean`` must not delete files on a file system that is mounted inside a run.
    """
    folder = runs_folder(app)
    for mount in mounts_at_or_below(folder.parent, mounts):
        if mount.point in (folder.parent, folder):
            if exchanges:
                raise Refused(
                    (f"{mount.point} is a mount point, so kstate cannot swap directories across it in one step"),
                    hint=f"unmount it so that the run backups are on the file system of {app}",
                )
        elif mount.point.is_relative_to(folder):
            raise Refused(f"{mount.point} is a mount point inside the run backups", hint="unmount it first")


def _check_devices(app: Path) -> None:
    """Raise Refused for btrfs subvolumes: no link or exchange crosses their border, and no table of mounts has them."""
    device = os.stat(app.parent).st_dev
    for path in (app, runs_folder(app).parent, runs_folder(app)):
        with reading():
            # A folder that does not exist yet will be created on the device of its parent.
            its_device = os.lstat(path).st_dev if os.path.lexists(path) else device
        if its_device != device:
            raise Refused(
                (
                    f"{path} is a separate file system, such as a btrfs subvolume, so kstate cannot swap directories "
                    "across its boundary in one step"
                ),
                hint=f"replace it with a plain directory in {app.parent} (which may itself be a subvolume)",
            )


def required_space(plan: Plan, workers: int, *, copy_ssts: bool) -> int:
    """Return the bytes that a plan needs in addition: copied files, rewritten SSTs, and reserves of open databases.

    Raise Refused if a directory in APP is on another device, although no table of mounts lists it.
    """
    copied = _copied_bytes(plan.app, copy_ssts=copy_ssts)
    return copied + plan.rewritten_bytes + reserve_of(plan, workers)


def reserve_of(plan: Plan, workers: int) -> int:
    """Return the bytes that RocksDB reserves while ``workers`` databases are open."""
    return min(workers, len(plan.steps)) * _OPEN_STORE_BYTES


def _check_space(plan: Plan, workers: int, *, copy_ssts: bool) -> None:
    """Raise Refused if the file system has no space, or no inodes, for the staged directory."""
    edits = sum(1 for step in plan.steps if isinstance(step, EditDatabase))
    required = required_space(plan, workers, copy_ssts=copy_ssts)
    stat = os.statvfs(plan.app)
    free = stat.f_bavail * stat.f_frsize
    if required > free:
        text = (
            f"not enough free space for {plan.app}: kstate needs {size_text(required)}, but the file system has only "
            f"{size_text(free)}"
        )
        # Backups have links to SSTs that the application has compacted away, so they are often the cause.
        if any(run.state in (RunState.KEPT, RunState.UNDONE) for run in read_runs(plan.app)):
            raise Refused(
                text,
                hint="free disk space, for example by deleting the undo backups of earlier runs:",
                hint_details=[command("clean", plan.app)],
            )
        raise Refused(text, hint="free disk space, then run the command again")
    # RocksDB creates at most about 16 files when it opens a database: MANIFEST, OPTIONS, CURRENT, LOG and an SST for
    # each flushed family. Links need no inode. f_files is 0 on btrfs, which has no fixed number of inodes.
    files = edits * 16
    if stat.f_files and stat.f_favail < files:
        raise Refused(
            f"not enough free inodes for {plan.app}: kstate needs {files}, but the file system has only "
            f"{stat.f_favail}",
            hint="delete files on that file system, then run the command again",
        )


def _copied_bytes(path: Path, *, copy_ssts: bool) -> int:
    """Return the bytes of the files below ``path`` that staging copies and does not link.

    Raise Refused for subvolumes.
    """
    total = 0
    try:
        device = os.stat(path).st_dev
        database = (path / "CURRENT").exists() and is_database(path)
        entries = list(os.scandir(path))
    except FileNotFoundError:
        return 0  # a running application has removed the directory (a dry run takes no lock)
    for entry in entries:
        if entry.name == LOST_AND_FOUND:
            continue
        if entry.is_dir(follow_symlinks=False):
            if _on_device(entry, device):
                total += _copied_bytes(Path(entry.path), copy_ssts=copy_ssts)
        elif not database or copy_ssts or not is_never_changed(entry.name):
            # During a dry run the application may be running, and may remove files.
            with contextlib.suppress(FileNotFoundError):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _on_device(entry: os.DirEntry[str], device: int) -> bool:
    """Return whether a directory exists. Raise Refused if it is not on ``device``, that of its parent."""
    try:
        its_device = entry.stat(follow_symlinks=False).st_dev
    except FileNotFoundError:
        return False  # a running application has removed it
    if its_device != device:
        raise Refused(
            (
                f"{entry.path} is a separate file system inside the application directory, such as a btrfs "
                "subvolume, so kstate cannot link its files"
            ),
            hint="replace it with a plain directory",
        )
    return True


def _who_may(uid: int) -> str:
    """Return the users who can keep the owner ``uid`` of a file; the present user cannot.

    A file of the present user has a foreign group then, which only root can set.
    """
    if uid in (0, os.geteuid()):
        return "root"
    return f"{user_name(uid)} or root"


def _check_owner(app: Path) -> None:
    """Raise Refused if this user cannot give a copy the owner and group that the original file has."""
    if os.geteuid() == 0:
        return
    groups = {os.getegid(), *os.getgroups()}
    for folder, folders, files in os.walk(app):
        folders[:] = [name for name in folders if name != LOST_AND_FOUND]
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            try:
                stat = os.stat(path, follow_symlinks=False)
            except FileNotFoundError:
                continue  # a running application has removed it
            # Without CAP_CHOWN a user can give a file to itself and to its own groups only.
            if stat.st_uid != os.geteuid() or stat.st_gid not in groups:
                raise Refused(
                    (
                        f"{path} belongs to uid {stat.st_uid} and gid {stat.st_gid}, and this user does not have "
                        "permission to create a copy with the same owner"
                    ),
                    hint=f"run kstate as {_who_may(stat.st_uid)} or pass {option.COPY}",
                )

"""System calls on absolute paths of which no part may be a symbolic link.

Each system call resolves its path again. A user who may write to a directory on the way could replace a directory by a
symbolic link after it was checked. kstate, perhaps as root, would then change files elsewhere. So each function here
opens the directory of its path without following any link (``openat2`` with ``RESOLVE_NO_SYMLINKS``, Linux 5.6), and
calls the kernel relative to that descriptor. The last name of a path is never followed either.

If a part of a path is a link, each function raises OSError with ``ELOOP``, and has changed nothing. Errors name the
whole path. kstate resolves the path of an application directory once, at its start. A link that is in it later was not
part of what the user passed.

RocksDB opens its files by path. :func:`unmoved` checks that its directory is the same one before and after.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat as kinds
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final, TypeAlias

from kstate_cli.errors import naming

Target: TypeAlias = str | os.PathLike[str]

_OPENAT2: Final = 437
"""The number of the system call on every architecture. glibc has no function for it."""
_RESOLVE_NO_SYMLINKS: Final = 0x04
"""Of ``linux/openat2.h``."""
_AT_FDCWD: Final = -100
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SEARCHED: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Needs only the right to search the directory, as a system call with its path does."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not blocking: opening a FIFO would wait for its writer."""
_IS_LINK: Final = "{} is a symbolic link, which kstate does not follow here"
_IS_ANOTHER: Final = "was replaced by another directory while RocksDB was using it"


class _OpenHow(ctypes.Structure):
    """``struct open_how``: flags, mode, resolve."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _open(path: Target, flags: int) -> int:
    """Open a directory, and follow no link. Raise OSError, with ELOOP for a link."""
    open_how = _OpenHow(flags, 0, _RESOLVE_NO_SYMLINKS)
    name = ctypes.c_char_p(os.fsencode(path))
    while True:
        descriptor = int(
            _libc.syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(_AT_FDCWD),
                name,
                ctypes.byref(open_how),
                ctypes.c_size_t(ctypes.sizeof(open_how)),
            )
        )
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        # Linux before 5.6 lacks the call, and the filters of old container runtimes deny calls that they do not list.
        # A link as the last directory gives ENOTDIR, since ``flags`` have O_DIRECTORY: the steps find which part it is.
        if number in (errno.ENOSYS, errno.EPERM, errno.ELOOP, errno.ENOTDIR):
            return open_by_steps(path, flags)
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), os.fspath(path))


def open_by_steps(path: Target, flags: int) -> int:
    """Open a directory name by name, and follow no link. Raise OSError, with ELOOP for a link."""
    names = [name for name in os.fsdecode(path).split("/") if name]
    try:
        descriptor = os.open("/" if os.path.isabs(path) else ".", _SEARCHED if names else flags)
        for at, name in enumerate(names, 1):
            above = descriptor
            try:
                descriptor = os.open(name, flags if at == len(names) else _SEARCHED, dir_fd=above)
            except NotADirectoryError:
                # With O_DIRECTORY the kernel reports a link in the same way as a file.
                if kinds.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                    link = "/" * os.path.isabs(path) + "/".join(names[:at])
                    raise OSError(errno.ELOOP, _IS_LINK.format(link)) from None
                raise
            finally:
                os.close(above)
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror, os.fspath(path)) from None
    return descriptor


def open_directory(path: Target) -> int:
    """Return a descriptor of a directory, for reading it. Raise OSError."""
    return _open(path, _FOLDER)


@contextmanager
def directory(path: Target) -> Iterator[int]:
    """Yield a descriptor of a directory, for reading it. Raise OSError."""
    descriptor = open_directory(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent(path: Target) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the directory of ``path``, for searching, and the last name of ``path``.

    An OSError of the block gets the whole path: with a descriptor it would have the name only.
    """
    folder, name = os.path.split(os.fspath(path))
    # The root directory has no name. It is its own entry.
    name = name or "."
    try:
        descriptor = _open(folder or ".", _SEARCHED)
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    with whole_path(path):
        try:
            yield descriptor, name
        finally:
            os.close(descriptor)


@contextmanager
def whole_path(path: Target) -> Iterator[None]:
    """Give each OSError of the block the name ``path``, unless it has a whole path already."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, (str, bytes)) or not os.path.isabs(error.filename):
            error.filename = os.fspath(path)
        raise


def open_file(path: Target, flags: int, mode: int = 0o600) -> int:
    """Return a descriptor of a file, which no program started later inherits. Raise OSError."""
    with parent(path) as (folder, name):
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=folder)


@contextmanager
def entry_descriptor(path: Target) -> Iterator[int]:
    """Yield a descriptor of a file or a directory, to read or set its owner, mode, times and attributes."""
    descriptor = open_file(path, _READ)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_at(folder: int, name: str, path: Target) -> int:
    """Return a descriptor for reading the file ``name`` of an open directory. ``path`` is its path, for errors."""
    with whole_path(path):
        return os.open(name, _READ, dir_fd=folder)


def reader(descriptor: int) -> BinaryIO:
    """Return a file that reads a descriptor and closes it, also if it is that of a directory: then raise OSError."""
    try:
        return open(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def stat(path: Target) -> os.stat_result:
    """Return the status of a file, directory or link itself."""
    with parent(path) as (folder, name):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


def listed(path: Target) -> list[str]:
    """Return the names in a directory."""
    with directory(path) as folder:
        return os.listdir(folder)


def mkdir(path: Target, mode: int) -> None:
    """Create a directory. The umask narrows ``mode``."""
    with parent(path) as (folder, name):
        os.mkdir(name, mode, dir_fd=folder)


def rmdir(path: Target) -> None:
    """Remove an empty directory."""
    with parent(path) as (folder, name):
        os.rmdir(name, dir_fd=folder)


def unlink(path: Target, *, missing_ok: bool = False) -> None:
    """Remove a file or a link."""
    try:
        with parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        if not missing_ok:
            raise


def rename(path: Target, other: Target) -> None:
    """Rename ``path`` to ``other``; an existing file there is replaced."""
    with parent(other) as (to, new), parent(path) as (source, name):
        os.rename(name, new, src_dir_fd=source, dst_dir_fd=to)


def link(path: Target, other: Target) -> None:
    """Give the file ``path`` the second name ``other``."""
    with parent(other) as (to, new), parent(path) as (source, name):
        os.link(name, new, src_dir_fd=source, dst_dir_fd=to, follow_symlinks=False)


def chown(path: Target, uid: int, gid: int) -> None:
    """Set the owner of a file, directory or link itself."""
    with parent(path) as (folder, name):
        os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)


def chmod(path: Target, mode: int) -> None:
    """Set the mode of a file or directory."""
    with entry_descriptor(path) as descriptor, naming(path):
        os.fchmod(descriptor, mode)


def utime(path: Target, ns: tuple[int, int]) -> None:
    """Set the times of a file, directory or link itself, in ns."""
    with parent(path) as (folder, name):
        os.utime(name, ns=ns, dir_fd=folder, follow_symlinks=False)


@contextmanager
def unmoved(path: Target) -> Iterator[None]:
    """Raise OSError after the block if ``path`` is no longer the same directory: RocksDB opens its files by path."""
    with directory(path) as before:
        yield
        # The descriptor keeps the inode number in use, so that no other directory can have it.
        now: os.stat_result | None = None
        with suppress(FileNotFoundError), directory(path) as after:
            now = os.fstat(after)
        if now is None or not os.path.samestat(os.fstat(before), now):
            raise OSError(errno.ESTALE, _IS_ANOTHER, os.fspath(path))

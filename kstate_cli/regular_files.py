"""Read files that other programs wrote, replace files as a whole, and explain which rights to a file are missing.

Only regular files of a limited size are read.

Opening a FIFO waits for its writer, opening a device may act, and a file that is small in every healthy directory may
fill the disk in a damaged one. A file that the user names may be a FIFO all the same: a shell passes one for ``<(…)``
(:func:`read_given`).

A directory outside the state directory gets a durable name (:func:`make_durable_directory`).

A file outside the state directory is replaced by a rename (:func:`replace_text`), so no reader ever gets a part of it.
Its new text is written to a name that follows from the old one: the next command overwrites what a killed one left.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import io
import os
import pwd
import stat
from pathlib import Path
from typing import Final, Protocol

from kstate_cli.errors import naming
from kstate_cli.host import host_error
from kstate_cli.limits import MOST_GIVEN_BYTES
from kstate_cli.texts import size_text

_PIECE_BYTES: Final = 1 << 16
_KINDS = (
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


class NotReadableError(OSError):
    """The file has a kind or a size that kstate does not read. ``filename`` is its path."""

    @property
    def why(self) -> str:
        """Return what the file is instead, for messages."""
        return self.strerror or ""


def kind_of(mode: int) -> str:
    """Return the kind of a file by its ``st_mode``, for messages: ``a FIFO``."""
    return next((name for fits, name in _KINDS if fits(mode)), "a file of an unknown kind")


def is_utf8(path: Path | str) -> bool:
    """Return whether RocksDB and pyarrow, which take UTF-8 only, can open a path."""
    try:
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_special(mode: int) -> bool:
    """Return whether a mode is of neither a regular file nor a directory nor a symbolic link."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def open_regular(path: Path | str, *, dir_fd: int | None = None) -> int:
    """Open a regular file for reading, and return its descriptor, which the caller closes.

    It never waits, and follows no link in the last part of ``path``. With ``dir_fd``, an open directory, only the last
    part of ``path`` is used, in that directory. Raise NotReadableError if it is no regular file, HostError if this host
    is short of descriptors, OSError if it cannot be opened.
    """
    name = os.fspath(path)
    relative_name = name if dir_fd is None else os.path.basename(name)
    try:
        # Before the open, since some devices act when they are opened.
        require_regular(os.stat(relative_name, dir_fd=dir_fd, follow_symlinks=False), name)
        # Again after it, by the descriptor: another file may have taken the name in between.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(relative_name, flags, dir_fd=dir_fd)
    except OSError as error:
        error.filename = name
        raise host_error(error) or error from None
    try:
        require_regular(os.fstat(descriptor), name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(status: os.stat_result, path: Path | str) -> None:
    """Raise NotReadableError unless ``status`` is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        name = os.fspath(path)
        raise NotReadableError(errno.EINVAL, f"is {kind_of(status.st_mode)}, not a regular file", name)


def read_small(path: Path | str, most: int) -> bytes:
    """Return the bytes of a regular file of at most ``most`` bytes. Raise NotReadableError, HostError, OSError."""
    descriptor = open_regular(path)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        # A file that is too large is not read at all. One that grows meanwhile is read to one byte too many.
        if size > most:
            raise too_large(path, size, most)
        data = read_at_most(file, most, size)
    if len(data) > most:
        raise too_large(path, len(data), most)
    return data


class Readable(Protocol):
    """A file or stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return ``size`` bytes; fewer at the end of the file."""
        ...


def read_at_most(file: Readable, most: int, expected: int = 0) -> bytes:
    """Return the rest of a file, but at most ``most + 1`` bytes: one too many if the file is too long.

    ``expected``: its size in bytes, if known; then one read is enough. A read allocates as many bytes as it requests,
    so a read of ``most`` bytes would need that memory for every small file.
    """
    length = min(most, max(expected, _PIECE_BYTES)) + 1
    data = file.read(length)
    if len(data) < length or length > most:
        return data
    whole = io.BytesIO()
    whole.write(data)
    # At the end of the file, a terminal would need another Ctrl-D for another read.
    while len(data) == length and (length := min(most + 1 - whole.tell(), _PIECE_BYTES)):
        data = file.read(length)
        whole.write(data)
    return whole.getvalue()


def read_given(path: Path | str, most: int = MOST_GIVEN_BYTES) -> bytes:
    """Return the bytes of an option's file: a regular file, FIFO or terminal, ``most`` bytes at most.

    A FIFO can be read only once. Raise NotReadableError for block devices, sockets and longer files, OSError otherwise.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
                raise NotReadableError(errno.EINVAL, f"is {kind_of(mode)}", name)
            data = read_at_most(file, most)
    except OSError as error:
        # A socket: open(2) answers with ENXIO before its kind could be asked.
        if error.errno == errno.ENXIO:
            raise NotReadableError(errno.EINVAL, f"is {kind_of(os.stat(name).st_mode)}", name) from None
        raise
    if len(data) > most:
        raise NotReadableError(errno.EFBIG, f"is larger than {size_text(most)}, which is kstate's limit", name)
    return data


def too_large(path: Path | str, size: int, most: int) -> NotReadableError:
    """Return the error for a file of ``size`` bytes if kstate reads at most ``most``."""
    text = f"has {size:,} bytes, but kstate reads at most {size_text(most)}"
    return NotReadableError(errno.EFBIG, text, os.fspath(path))


# No O_TRUNC: the file is emptied only under the lock. O_NONBLOCK: a FIFO of that name must not block the open.
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def replace_text(path: Path, text: str, *, mode: int) -> None:
    """Replace a file by a text, durably. The umask narrows ``mode``. Of two writers the last one counts.

    Raise OSError, which always has a file name; the old file is unchanged then.
    """
    with naming(path):
        _replace(path, text, mode)


def _replace(path: Path, text: str, mode: int) -> None:
    """Write the new file, and fsync it before the rename, so that the name never leads to a file without its bytes.

    The fsync of the folder comes last: it makes the rename itself durable.
    """
    new = path.with_name(f".{path.name}.new")
    while True:
        with open(os.open(new, _FLAGS, mode), "r+", encoding="utf-8") as file:
            # Two writers open the same new file: the second waits until the first has renamed it.
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_still(new, file.fileno()):
                continue  # another writer renamed it while this one waited for the lock
            os.ftruncate(file.fileno(), 0)
            file.write(text)
            file.flush()
            # The bytes first: after a crash the name must not lead to an empty file.
            os.fsync(file.fileno())
            os.replace(new, path)
        break
    # Now the entry: without it a crash may bring the old file back.
    sync_names(path.parent)


def make_durable_directory(path: Path, mode: int) -> None:
    """Create a directory and its missing parents, and make their names durable. Raise OSError.

    ``mode`` is that of the last directory only, as in ``os.makedirs``.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    os.makedirs(path, mode, exist_ok=True)
    # Each new name is in the directory above: without its fsync a power failure may lose everything below the name.
    for folder in missing:
        sync_names(folder.parent)
    if not missing:
        # The process that created the directory may have died before it synced the name. If this user may not do it,
        # another user has created the directory.
        with contextlib.suppress(OSError):
            sync_names(path.parent)


def sync_names(folder: Path) -> None:
    """Make the names in a directory durable. Raise OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        # This user may create names here, but not list them. Only a sync of all file systems is left.
        os.sync()
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
        return f"kstate cannot check {denying} ({error.strerror}). Give this user permission to access it"
    facts = f"{denying} belongs to {_user(status.st_uid)}:{_group(status.st_gid)} with mode {_mode(status)}"
    letters = "".join(letter for bit, letter in _BITS.items() if bits & bit)
    if _allows(status, bits):
        denies = "an ACL (getfacl), an attribute (lsattr) or a security module denies it"
        return f"{facts}, which allows {letters} to {_user(os.geteuid())}, but {denies}"
    if status.st_uid == os.geteuid():
        return f"{facts}, which denies {letters} to its owner (this user). Run chmod u+{letters}"
    me, owner = _user(os.geteuid()), _user(status.st_uid)
    owner_text = owner
    if status.st_uid == 0:
        # Root changes no owner of what it replaces; any other owner may be the application's user, or may not.
        owner_text = "root, and the files keep their owners"
    way = f"Run the command as {owner_text} or grant {me} the permission {letters} on {denying}"
    return f"{facts}, and this user is {me}. {way}"


def user_name(uid: int) -> str:
    """Return the name of a user, or ``user 1000`` without a name."""
    return _user(uid)


def _denying(path: Path, access: int) -> tuple[Path, int]:
    # From the root downwards: the first directory that denies decides, whatever the modes below it are.
    for above in reversed(path.parents):
        if not os.access(above, os.X_OK, effective_ids=True):
            return above, os.X_OK
    bits = access
    # Not Path.is_dir: it raises where a directory on the way of a link may not be passed.
    if os.path.isdir(path):
        bits |= os.X_OK
    missing = [bit for bit in _BITS if bits & bit and not os.access(path, bit, effective_ids=True)]
    return path, sum(missing) or access


def _allows(status: os.stat_result, bits: int) -> bool:
    # The kernel checks one class only: an owner without a right is denied, even if all others have it.
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

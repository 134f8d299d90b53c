"""Who owns, reads and writes the files that kstate makes: exactly those who could before.

Root may run kstate, and Streams must be able to write the result. A default ACL on a directory reaches every file below
it, and a file that RocksDB replaces loses its own ACL. So a file that replaces another one takes owner, mode and ACL of
that file, and loses every ACL beyond them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kstate_cli.change import nofollow
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import Refused
from kstate_cli.regular_files import access_hint

ACL: Final = ("system.posix_acl_access", "system.posix_acl_default")
NO_ATTRIBUTES: Final = (errno.ENOTSUP, errno.ENODATA, errno.EINVAL)
"""Error numbers for a file system or a file that has no extended attributes."""
_KIND = re.compile(r"(?<=LOG)\..*|\d+")
"""The parts of a file name that two files of one kind differ in: numbers, and the suffix of an old LOG."""


@contextmanager
def reading() -> Iterator[None]:
    """Raise Refused for a PermissionError of a block that only reads: an unreadable file is not damaged or lost."""
    try:
        yield
    except PermissionError as error:
        raise Refused(
            f"kstate cannot read {error.filename}: {error.strerror}", hint=access_hint(error.filename)
        ) from None


def own_like(path: Path | int, model: os.stat_result) -> None:
    """Give a new file (or descriptor) to the owner of ``model``. Only root can, and only root needs to.

    If ``path`` is a symbolic link, the link itself gets the owner.
    """
    if os.geteuid() != 0:
        return
    owner = (model.st_uid, model.st_gid)
    if isinstance(path, int):
        status = os.fstat(path)
        # chown changes ctime and clears set-id bits, so it is called only if the owner differs.
        if (status.st_uid, status.st_gid) != owner:
            os.fchown(path, *owner)
        return
    status = nofollow.stat(path)
    if (status.st_uid, status.st_gid) != owner:
        nofollow.chown(path, *owner)


def attributes(path: int) -> list[str]:
    """Return the names of the extended attributes, ACLs among them; none if the file system has none. Raise OSError."""
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in NO_ATTRIBUTES:
            return []
        raise


def keep_attributes(source: int, target: int) -> None:
    """Copy extended attributes and ACLs, if the file system has them and this user may set them. Raise OSError.

    Both are descriptors.
    """
    # The names of the source are read first: they decide which inherited ACLs the target may keep.
    names = attributes(source)
    for name in attributes(target):
        if name in ACL and name not in names:
            # The target inherited this ACL from the default ACL of its directory. The ACL would admit users that the
            # source does not admit.
            os.removexattr(target, name)
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            # Only a privileged process may set the attributes security.* and trusted.*. Streams reads neither, so the
            # copy is complete without them.
            if error.errno not in (errno.EPERM, errno.EACCES, *NO_ATTRIBUTES):
                raise


def keep_access(source: int, target: int) -> None:
    """Copy mode, extended attributes and ACLs; :func:`own_like` copies the owner. Raise OSError.

    Both are descriptors.
    """
    mode = os.fstat(source).st_mode & 0o7777
    if os.fstat(target).st_mode & 0o7777 != mode:
        os.fchmod(target, mode)
    keep_attributes(source, target)


def drop_acl(path: Path) -> None:
    """Remove every ACL from a directory that kstate created for its own files, which only their owner may use."""
    # The default ACL too: each file that is created in the folder later would inherit it.
    with nofollow.directory(path) as folder:
        for name in ACL:
            with contextlib.suppress(OSError):
                os.removexattr(folder, name)


def make_own_directory(path: Path, model: os.stat_result, mode: int, *, durable: bool = True) -> None:
    """Create a directory with the owner of ``model`` and ``mode``, whatever the umask, without an ACL. Raise OSError.

    If root is interrupted, the owner of the application must be able to continue, so no such directory stays root's.
    Until its owner is set, no other user may use it. Unless ``durable``, the caller syncs its parent.
    """
    nofollow.mkdir(path, 0o700)
    drop_acl(path)
    own_like(path, model)
    nofollow.chmod(path, mode)
    # Makes the name durable before anything is written into the directory.
    if durable:
        sync_directory(path.parent)


def take_access(path: Path, app: Path, original: Path) -> None:
    """Give the staged database in ``path``, and its new files, the owner, mode and ACL of ``original``, file by file.

    ``original`` is the database in APP that ``path`` replaces. A new file takes the access of the file with its name in
    ``original``. If there is none, it takes that of a file of its kind (:func:`_by_kind`).

    If ``original`` is no database, another database of the application is the model. If the application has none, only
    the owner is set. Hard links are skipped, because they are files of APP.
    """
    model: Path | None = original
    # A new store has no predecessor. Streams created the other databases as one process, so any of them is a good
    # model.
    if not (original / "CURRENT").exists():
        model = _any_database(app)
    parent = nofollow.stat(path.parent)
    if model == original:
        own_like(path, nofollow.stat(original))
    else:
        own_like(path, parent)
    models: dict[str, Path] = {}
    if model is not None:
        models = _by_kind(model)
        # A clone has this access already, but a directory that was built or placed has not.
        with nofollow.directory(model) as like_folder, nofollow.directory(path) as folder:
            keep_access(like_folder, folder)
    with nofollow.directory(path) as folder, os.scandir(folder) as entries:
        for entry in entries:
            # A file with a second link is a file of APP too: a chmod here would change it there.
            if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_nlink > 1:
                continue
            like = models.get(entry.name) or models.get(_kind(entry.name)) or models.get("CURRENT")
            _take_access_of(folder, entry.name, path, like, parent)


def _take_access_of(folder: int, name: str, path: Path, like: Path | None, parent: os.stat_result) -> None:
    """Give a file of an open directory the access of ``like``; without it, the owner of ``parent``. Raise OSError."""
    file = nofollow.read_at(folder, name, path / name)
    try:
        # The descriptor decides, because another file may have taken the name since the directory was listed.
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return
        if like is None:
            own_like(file, parent)
            return
        with nofollow.entry_descriptor(like) as model:
            # The owner first: chown clears set-id bits, which the mode then restores.
            own_like(file, os.fstat(model))
            keep_access(model, file)
    finally:
        os.close(file)


def _kind(name: str) -> str:
    """Return a file name without its number: ``.sst`` for ``000011.sst``."""
    return _KIND.sub("", name)


def _by_kind(database: Path) -> dict[str, Path]:
    """Return a model file for each name, and for each kind of file, in a database: the first file of the kind.

    Two files are of one kind if their names differ only in numbers, or are old ``LOG`` files.
    """
    models: dict[str, Path] = {}
    with os.scandir(database) as entries:
        # Sorted, so that the model of a kind is the same in every run: of 000004.sst and 000011.sst it is the former.
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file(follow_symlinks=False):
                models[entry.name] = Path(entry.path)
                models.setdefault(_kind(entry.name), Path(entry.path))
    return models


def _any_database(app: Path) -> Path | None:
    """Return a database of the application; None if it has none yet."""
    try:
        database = _first_database(app)
        # The cached path may be outdated: a change can have moved this database.
        if not (database / "CURRENT").exists():
            _first_database.cache_clear()
            database = _first_database(app)
    except LookupError:
        return None
    return database


# Cached: otherwise each of hundreds of new stores would walk the whole tree of the application. lru_cache does not keep
# an error, so an application without a database is searched again after the next run has created one (a process that
# follows a dump carries out several runs).
@functools.lru_cache(maxsize=4)
def _first_database(app: Path) -> Path:
    """Return the first database below ``app``, by the order of the walk. Raise LookupError if there is none."""
    for folder, folders, files in os.walk(app):
        folders.sort()
        if "CURRENT" in files:
            return Path(folder)
    raise LookupError(app)

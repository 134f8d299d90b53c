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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kstate_cli.errors import Refused
from kstate_cli.regular_files import access_hint

ACL: Final = ("system.posix_acl_access", "system.posix_acl_default")
NO_ATTRIBUTES: Final = (errno.ENOTSUP, errno.ENODATA, errno.EINVAL)
"""Errors of file systems and files without extended attributes."""
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


def own_like(path: Path | int, model: os.stat_result, *, follow_symlinks: bool = True) -> None:
    """Give a new file (or descriptor) to the owner of ``model``. Only root can, and only root needs to."""
    if os.geteuid() != 0:
        return
    owner = (model.st_uid, model.st_gid)
    # A descriptor cannot be a link, and os.stat refuses follow_symlinks for one.
    if isinstance(path, int):
        stat = os.fstat(path)
        # chown changes ctime and clears set-id bits: an equal owner is left alone.
        if (stat.st_uid, stat.st_gid) != owner:
            os.fchown(path, *owner)
        return
    stat = os.stat(path, follow_symlinks=follow_symlinks)
    if (stat.st_uid, stat.st_gid) != owner:
        os.chown(path, *owner, follow_symlinks=follow_symlinks)


def attributes(path: Path | int) -> list[str]:
    """Return the names of the extended attributes, ACLs among them; none if the file system has none. Raise OSError."""
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in NO_ATTRIBUTES:
            return []
        raise


def keep_attributes(source: Path | int, target: Path | int) -> None:
    """Copy extended attributes and ACLs, if the file system has them and this user may set them. Raise OSError."""
    # Names first: a name that the target inherited and the source has is overwritten below anyway.
    names = attributes(source)
    for name in attributes(target):
        if name in ACL and name not in names:
            # Inherited from a default ACL of the directory: it would admit users that the source does not.
            os.removexattr(target, name)
    for name in names:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            # security.* and trusted.* need privileges. Streams reads neither, so the copy is complete
            # without them.
            if error.errno not in (errno.EPERM, errno.EACCES, *NO_ATTRIBUTES):
                raise


def keep_access(source: Path, target: Path) -> None:
    """Copy mode, extended attributes and ACLs; :func:`own_like` copies the owner. Raise OSError."""
    mode = os.stat(source, follow_symlinks=False).st_mode & 0o7777
    if os.stat(target, follow_symlinks=False).st_mode & 0o7777 != mode:
        os.chmod(target, mode)
    keep_attributes(source, target)


def drop_acl(path: Path) -> None:
    """Remove every ACL from a directory of kstate's own: its files are for the owner alone."""
    # Both kinds: the default ACL would reach every file that is created in the folder later.
    for name in ACL:
        with contextlib.suppress(OSError):
            os.removexattr(path, name)


def take_access(path: Path, app: Path, original: Path) -> None:
    """Give the staged database in ``path`` and its new files owner, mode and ACL of ``original``, file by file.

    A file without a namesake there takes those of a file of its kind. If ``original`` is no database, another database
    of the application is the model; without any, only the owner is copied. Linked files are the original's already.
    """
    model: Path | None = original
    # A new store has no predecessor: any database of the application was created by the same process.
    if not (original / "CURRENT").exists():
        model = _any_database(app)
    parent = os.stat(path.parent)
    if model == original:
        own_like(path, os.stat(original))
    else:
        own_like(path, parent)
    models: dict[str, Path] = {}
    if model is not None:
        models = _by_kind(model)
    if model is not None and model != original:
        keep_access(model, path)
    with os.scandir(path) as entries:
        for entry in entries:
            # A second link is the original's own file: a chmod here would change it in APP.
            if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_nlink > 1:
                continue
            like = models.get(entry.name) or models.get(_kind(entry.name)) or models.get("CURRENT")
            if like is None:
                own_like(Path(entry.path), parent)
                continue
            # The owner first: chown clears set-id bits, which the mode then restores.
            own_like(Path(entry.path), os.stat(like))
            keep_access(like, Path(entry.path))


def _kind(name: str) -> str:
    return _KIND.sub("", name)


def _by_kind(database: Path) -> dict[str, Path]:
    """Return a model for each name and each kind of file in a database: the first of the kind."""
    models: dict[str, Path] = {}
    with os.scandir(database) as entries:
        # Sorted, so that the model of a kind is the same in every run: 000004.sst before 000011.sst.
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file(follow_symlinks=False):
                models[entry.name] = Path(entry.path)
                models.setdefault(_kind(entry.name), Path(entry.path))
    return models


def _any_database(app: Path) -> Path | None:
    """Return a database of the application; None if it has none yet."""
    try:
        database = _first_database(app)
        # A change may have moved it since: an outdated entry is no model.
        if not (database / "CURRENT").exists():
            _first_database.cache_clear()
            database = _first_database(app)
    except LookupError:
        return None
    return database


# Hundreds of new stores of one application would walk its whole tree again each. An error is not kept: a tree without
# a database gets one when the next run switches, in a process that continues (--follow).
@functools.lru_cache(maxsize=4)
def _first_database(app: Path) -> Path:
    for folder, folders, files in os.walk(app):
        folders.sort()
        if "CURRENT" in files:
            return Path(folder)
    raise LookupError(app)

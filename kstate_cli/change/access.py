"""Who may read and write what kstate makes: exactly those who might before, not more and not fewer.

A default ACL on a directory reaches every file that is made below it, and a file that RocksDB replaces loses its own.
So what is made for an existing file takes owner, mode and ACL of that file, and what it has beyond them goes.
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

from kstate_cli.access import access_hint
from kstate_cli.errors import Refused

ACL: Final = ("system.posix_acl_access", "system.posix_acl_default")
NO_ATTRIBUTES: Final = (errno.ENOTSUP, errno.ENODATA, errno.EINVAL)


def attributes(path: Path | int) -> list[str]:
    """Names of the extended attributes, ACLs among them; none where the file system has none. Raises OSError."""
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno in NO_ATTRIBUTES:
            return []
        raise


def keep_attributes(source: Path | int, target: Path | int) -> None:
    """Extended attributes and ACLs, where the file system has them and this user may set them. Raises OSError."""
    wanted = attributes(source)
    for name in attributes(target):
        if name in ACL and name not in wanted:
            os.removexattr(target, name)
    for name in wanted:
        try:
            os.setxattr(target, name, os.getxattr(source, name))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, *NO_ATTRIBUTES):
                raise


def keep_access(source: Path, target: Path) -> None:
    """Mode, extended attributes and ACLs of one file for another; the owner is ``own_like``'s. Raises OSError."""
    mode = os.stat(source, follow_symlinks=False).st_mode & 0o7777
    if os.stat(target, follow_symlinks=False).st_mode & 0o7777 != mode:
        os.chmod(target, mode)
    keep_attributes(source, target)


def drop_acl(path: Path) -> None:
    """Takes every ACL from a directory of kstate's own: what is made in it is for the owner alone."""
    for name in ACL:
        with contextlib.suppress(OSError):
            os.removexattr(path, name)


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


_KIND = re.compile(r"(?<=LOG)\..*|\d+")
"""What is taken out of a file's name to get its kind: numbers, and what tells one LOG from another."""


def take_access(path: Path, app: Path, original: Path) -> None:
    """Gives the database in ``path`` and its new files owner, mode and ACL of those of ``original``, file by file.

    A file that the original has not gets those of one of its kind. Where there is no such database, another one of the
    application is the model; without any, only the owner is carried over. Files that are linked are the original's.
    """
    model = original if (original / "CURRENT").exists() else _any_database(app)
    parent = os.stat(path.parent)
    own_like(path, os.stat(model) if model == original else parent)
    models = {} if model is None else _by_kind(model)
    if model is not None and model != original:
        keep_access(model, path)
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_nlink > 1:
                continue
            like = models.get(entry.name) or models.get(_kind(entry.name)) or models.get("CURRENT")
            own_like(Path(entry.path), parent if like is None else os.stat(like))
            if like is not None:
                keep_access(like, Path(entry.path))


def _kind(name: str) -> str:
    return _KIND.sub("", name)


def _by_kind(database: Path) -> dict[str, Path]:
    models: dict[str, Path] = {}
    with os.scandir(database) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file(follow_symlinks=False):
                models[entry.name] = Path(entry.path)
                models.setdefault(_kind(entry.name), Path(entry.path))
    return models


@functools.lru_cache(maxsize=4)
def _any_database(app: Path) -> Path | None:
    for folder, folders, files in os.walk(app):
        folders.sort()
        if "CURRENT" in files:
            return Path(folder)
    return None


@contextmanager
def reading() -> Iterator[None]:
    """Within it things are only looked at. Raises Refused in place of PermissionError."""
    try:
        yield
    except PermissionError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}", hint=access_hint(error.filename)) from None

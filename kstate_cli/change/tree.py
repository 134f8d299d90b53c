"""Clone directories: SSTs as links, all other files as copies, with owner, mode, times and attributes.

Nothing is synced here: a clone is durable with the file system, before the switch is announced.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from kstate_cli.change.access import keep_attributes, own_like
from kstate_cli.change.marks import MARKS
from kstate_cli.errors import Refused, naming
from kstate_cli.regular_files import open_regular
from kstate_cli.rocks.files import is_never_changed
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.names import LOCK, LOST_AND_FOUND

_CHUNK = 1 << 30
"""Bytes of one ``sendfile``, which copies at most 2 GiB less a page."""
_NONE: frozenset[Path] = frozenset()


def copy_tree(
    source: Path, target: Path, omit: frozenset[Path] = _NONE, later: frozenset[Path] = _NONE, *, copy_ssts: bool
) -> None:
    """Clone a directory without the paths in ``omit``: SSTs and the lock file as links, all other files as copies.

    Directories in ``later`` are created and stay empty. ``copy_ssts`` copies the SSTs as well, for file systems without
    hard links and users who cannot keep the owner.
    """
    target.mkdir(exist_ok=True)
    database = (source / "CURRENT").exists() and is_database(source)
    for entry in sorted(os.scandir(source), key=lambda e: e.name):
        path, copy = Path(entry.path), target / entry.name
        # A mark is about the tree that it is in, never about a copy.
        if path in omit or entry.name == LOST_AND_FOUND or entry.name in MARKS:
            continue
        if entry.is_symlink():
            copy.symlink_to(os.readlink(path))
            own_like(copy, entry.stat(follow_symlinks=False), follow_symlinks=False)
        elif path in later:
            copy.mkdir()
            _keep(entry.stat(), path, copy, required=not copy_ssts)
        elif entry.is_dir(follow_symlinks=False):
            copy_tree(path, copy, omit, later, copy_ssts=copy_ssts)
        elif entry.name == LOCK or (database and is_never_changed(entry.name) and not copy_ssts):
            # The lock guards both directories only if both have one inode. RocksDB never changes an SST or blob file.
            os.link(path, copy)
        elif entry.is_file(follow_symlinks=False):
            copy_file(path, copy, required=not copy_ssts)
        else:
            raise Refused(
                f"{path} is neither a file nor a directory", hint="Streams makes nothing like it: move it away"
            )
    _keep(source.stat(), source, target, required=not copy_ssts)


def make_folder(source: Path, target: Path, *, required: bool) -> None:
    """Create an empty directory like ``source`` if it is missing. If ``required``, a lost owner is an error."""
    if not target.is_dir():
        target.mkdir()
        _keep(source.stat(), source, target, required=required)


def copy_file(source: Path | str, target: Path | str, *, required: bool) -> None:
    """Copy a regular file. If ``required``, a lost owner is an error.

    An application has hundreds of stores with a dozen small files each: ``shutil`` would take three times as long.
    """
    original = open_regular(source)
    try:
        with naming(target):
            stat = os.fstat(original)
            copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.st_mode & 0o777)
            try:
                copied = 0
                while copied < stat.st_size:
                    sent = os.sendfile(copy, original, copied, min(stat.st_size - copied, _CHUNK))
                    if sent == 0:
                        raise OSError(errno.EIO, "is shorter than it was", str(source))
                    copied += sent
                _keep(stat, original, copy, required=required)
            finally:
                os.close(copy)
    finally:
        os.close(original)


def _keep(stat: os.stat_result, source: Path | int, target: Path | int, *, required: bool) -> None:
    """Copy owner, mode, extended attributes and times to a path or a descriptor.

    The mode follows the owner, since chown clears set-id bits. Times come last: each call before changes them.
    """
    created = os.stat(target)
    try:
        if (stat.st_uid, stat.st_gid) != (created.st_uid, created.st_gid):
            os.chown(target, stat.st_uid, stat.st_gid)
    except PermissionError:
        if required:
            raise
    if stat.st_mode != created.st_mode:
        os.chmod(target, stat.st_mode & 0o7777)
    keep_attributes(source, target)
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))

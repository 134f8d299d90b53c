"""The folder of a dump that grows: what may lie there, how a manifest becomes one, and what nobody needs any more.

Nothing here is a state directory. But what a manifest names is somebody's backup: files are only ever added, each under
a name of its own; a manifest comes last, in one step (``link``), and never in place of another one; and what is removed
has a name that only a dump gives, and is named by no manifest.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kstate_cli import clock
from kstate_cli.access import DENIED, access_hint
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.dump_reader import growing, manifest
from kstate_cli.dump_reader.growing import Grown
from kstate_cli.dump_reader.location import is_link, open_location
from kstate_cli.dump_reader.open import newest_manifest
from kstate_cli.dump_writer.keeping import (
    GRACE_SECONDS,
    MANIFEST_SECONDS,
    MANIFESTS_KEPT,
    PARTITION,
    TOPIC,
    UNNAMED_SECONDS,
    folder_of,
    gone,
    lost,
    lost_file,
    needed,
    new_manifest,
    run_of,
)
from kstate_cli.dump_writer.writing import OWN_FOLDER
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular_files import kind_of
from kstate_cli.statedir.entries import IGNORED
from kstate_cli.texts import printable, some

_SHOWN: Final = 3
_PARTITION: Final = re.compile(rf"{PARTITION}(0|[1-9][0-9]{{0,9}})")
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def local_folder(out: str) -> str:
    """The folder that ``--out`` names, absolute. Raises UsageError where something else lies there."""
    folder = os.path.abspath(out)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{printable(folder)} is not a folder", hint="name a new one, or that of a dump")
    return folder


def read_newest(folder: str) -> Grown | None:
    """The manifest that counts; None in a new folder. Raises Refused for a folder that holds something else."""
    if not os.path.isdir(folder):
        return None
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        if error.errno in DENIED:
            raise Refused(f"{folder} cannot be read: {error.strerror}", hint=access_hint(folder)) from None
        raise
    foreign = [name for name in names if not _ours(name)]
    if manifest.NAME in names:
        raise Refused(
            f"{folder} holds a dump that was written at once ({manifest.NAME}), and that cannot grow",
            hint="name a new folder",
        )
    if foreign:
        raise Refused(
            f"{folder} holds what is not of a dump: {some([printable(one) for one in foreign], _SHOWN)}",
            hint="name a new folder, or one that was dumped to before",
        )
    _refuse_what_leads_elsewhere(folder, names)
    filesystem, root = open_location(folder)
    return newest_manifest(filesystem, root, folder)


def _refuse_what_leads_elsewhere(folder: str, names: Iterable[str]) -> None:
    """Raises Refused for what is no folder where files are written, as a link: restore reads nothing through one."""
    for topic in (name for name in names if name.startswith(TOPIC)):
        inner = [os.path.join(topic, one) for one in _names(os.path.join(folder, topic)) if one.startswith(PARTITION)]
        for relative in (topic, *inner):
            mode = os.lstat(os.path.join(folder, relative)).st_mode
            if not stat.S_ISDIR(mode):
                raise Refused(
                    f"{printable(relative)} is {kind_of(mode)}, not a folder",
                    where=folder,
                    hint="see who has put it there, and put the folder itself in its place",
                )


def _ours(name: str) -> bool:
    if name in (manifest.VERIFIED, f".{manifest.VERIFIED}.new"):
        return True
    return (
        name in IGNORED or name.startswith(TOPIC) or growing.generation_of(name) is not None or run_of(name) is not None
    )


def make(folder: str, run: str) -> None:
    """Makes the folder where it is missing, and tries out what the commit needs. Raises Refused and OSError."""
    os.makedirs(folder, OWN_FOLDER, exist_ok=True)
    probe = os.path.join(folder, new_manifest(0, run))
    linked = os.path.join(folder, new_manifest(1, run))
    try:
        with open(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"):
            pass
        os.link(probe, linked)
    except OSError as error:
        if error.errno in DENIED and not os.access(folder, os.W_OK | os.X_OK):
            raise Refused(f"{folder} cannot be written to", hint=access_hint(folder, os.W_OK)) from None
        if error.errno not in _NO_LINKS:
            raise
        raise Refused(
            f"{folder}: its file system has no hard links, with which a manifest becomes one in one step",
            hint="dump to another one, and copy from there: manifests last",
        ) from None
    finally:
        for path in (probe, linked):
            with suppress(FileNotFoundError):
                os.unlink(path)


def commit(folder: str, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
    """From now on ``grown`` is what the dump is. ``keys`` are the partitions that have new files.

    Raises InUse where another dump was there first, Refused where a file is not there any more, OSError where that
    cannot be made durable.
    """
    check_named(folder, grown)
    for place in dict.fromkeys(part for key in keys for part in (folder_of(key), f"{TOPIC}{key.topic}", "")):
        path = os.path.join(folder, *place.split("/")) if place else folder
        if os.path.isdir(path):
            sync_directory_of(path)
    waiting = os.path.join(folder, new_manifest(grown.generation, run))
    final = os.path.join(folder, growing.name_of(grown.generation))
    try:
        with open(os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
            new.write(growing.render(grown))
            new.flush()
            os.fsync(new.fileno())
        try:
            os.link(waiting, final)
        except FileExistsError:
            raise lost(folder, grown.generation) from None
    finally:
        with suppress(FileNotFoundError):
            os.unlink(waiting)
    later = [one for name in os.listdir(folder) if (one := growing.generation_of(name) or 0) > grown.generation]
    if later:
        # Slower than manifests are kept: one of this number had been there, and is gone.
        os.unlink(final)
        raise lost(folder, max(later))
    sync_directory_of(folder)


def check_named(folder: str, grown: Grown) -> None:
    """Raises Refused where a file that the manifest names is not there, or plainly not what was written."""
    for full in grown.fulls:
        for file in full.files:
            _check(folder, file.path, file.size)


def sync_directory_of(path: str) -> None:
    """Makes the names in a folder durable. Raises OSError."""
    from pathlib import Path

    sync_directory(Path(path))


def _check(folder: str, path: str, size: int) -> None:
    try:
        there = os.lstat(os.path.join(folder, *path.split("/")))
    except (FileNotFoundError, NotADirectoryError):
        there = None
    if (
        there is None
        or not stat.S_ISREG(there.st_mode)
        or there.st_size != size
        or is_link(os.path.join(folder, path), folder)
    ):
        raise lost_file(path, folder)


def content(path: str, shown_as: str) -> bytes:
    """All of a file. Raises DumpError where it is not there, OSError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise gone(shown_as) from None


def remove_files_of(folder: str, run: str, keys: Iterable[TopicPartition], named: Iterable[str]) -> None:
    """Removes what a run has written and no manifest names (``named``: relative paths). Raises nothing."""
    keep = set(named)
    for key in set(keys):
        relative = folder_of(key)
        for name in _names(os.path.join(folder, *relative.split("/"))):
            if run_of(name) == run and f"{relative}/{name}" not in keep:
                with suppress(OSError):
                    os.unlink(os.path.join(folder, *relative.split("/"), name))


def sweep(folder: str, grown: Grown) -> int:
    """Removes what dead runs have left, and manifests that nobody reads any more; how many files. Raises nothing.

    Only what has a name that a dump gives, is a regular file, is old, and is named by no manifest that is there.
    """
    manifests = sorted(name for name in _names(folder) if growing.generation_of(name) is not None)
    removed = 0
    for name in manifests[:-MANIFESTS_KEPT]:
        removed += _removed_if_old(os.path.join(folder, name), MANIFEST_SECONDS)
    named = needed(grown)
    for name in _names(folder):
        if run_of(name) is not None:
            removed += _removed_if_old(os.path.join(folder, name), GRACE_SECONDS)
    for topic in (name for name in _names(folder) if name.startswith(TOPIC)):
        for partition in filter(_PARTITION.fullmatch, _names(os.path.join(folder, topic))):
            for name in _names(os.path.join(folder, topic, partition)):
                if run_of(name) is not None and f"{topic}/{partition}/{name}" not in named:
                    removed += _removed_if_old(os.path.join(folder, topic, partition, name), UNNAMED_SECONDS)
    return removed


def _names(folder: str) -> list[str]:
    """What lies in a folder; nothing where it is none: a link leads elsewhere."""
    if os.path.islink(folder) or not os.path.isdir(folder):
        return []
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _removed_if_old(path: str, seconds: int) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and clock.now_seconds() - status.st_mtime > seconds:
            os.unlink(path)
            return True
    return False

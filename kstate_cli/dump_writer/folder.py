"""A dump in a folder: what it may contain, how a manifest is committed, and which files are removed.

The folder is no state directory, but the files that a manifest names are a backup. So files are only ever added, each
under its own name. A manifest comes last, in one step (``link``), and never replaces another one. A file is removed
only if its name is one that dumps use and no manifest names it.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kstate_cli import clock
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.dump_reader import growing, manifest
from kstate_cli.dump_reader.growing_source import newest_manifest
from kstate_cli.dump_reader.location import is_link, open_location
from kstate_cli.dump_reader.model import Grown
from kstate_cli.dump_writer.writing import (
    GRACE_SECONDS,
    MANIFEST_SECONDS,
    MANIFESTS_KEPT,
    OWN_FOLDER,
    PARTITION,
    TOPIC,
    UNNAMED_SECONDS,
    LocalFile,
    Sink,
    files_in_use,
    folder_of,
    lost_file,
    lost_race,
    missing_file,
    new_manifest,
    run_of,
)
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.regular_files import DENIED, access_hint, kind_of, make_durable_directory
from kstate_cli.statedir.entries import IGNORED
from kstate_cli.texts import printable, some

_MOST_NAMES: Final = 3
# No leading zeros, as :func:`folder_of` writes it: other folders are not touched.
_PARTITION: Final = re.compile(rf"{PARTITION}(0|[1-9][0-9]{{0,9}})")
# What link(2) answers on FAT, some FUSE and object file systems; EMLINK where an inode may have one name only.
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def local_folder(out: str) -> str:
    """Return the absolute path of the folder ``out``. Raises UsageError if the path is not a folder."""
    folder = os.path.abspath(out)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{printable(folder)} is not a folder", hint="pass a new folder or the folder of a dump")
    return folder


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A :class:`kstate_cli.dump_writer.stores.DumpStore` in a folder of this host, or mounted on it."""

    path: str
    """Absolute."""
    unanswered: bool = False
    """Always False: ``link`` has created the manifest, or it has not."""

    def read_newest(self) -> Grown | None:
        """Return the newest manifest; None in a new folder. Raises Refused for a folder with foreign files."""
        folder = self.path
        if not os.path.isdir(folder):
            return None
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            if error.errno in DENIED:
                raise Refused(f"kstate cannot read {folder}: {error.strerror}", hint=access_hint(folder)) from None
            raise
        if manifest.NAME in names:
            raise Refused(
                (
                    f"{folder} contains a dump that was written in one go ({manifest.NAME}). kstate cannot add records "
                    "to such a dump"
                ),
                hint="pass a new folder",
            )
        # kstate removes files here later, so it refuses a folder that also has files of others.
        foreign = [printable(name) for name in names if not _is_of_dump(name)]
        if foreign:
            raise Refused(
                f"{folder} contains files that do not belong to a dump: {some(foreign, _MOST_NAMES)}",
                hint="pass a new folder or the folder of a growing dump",
            )
        _refuse_links(folder, names)
        filesystem, root = open_location(folder)
        return newest_manifest(filesystem, root, folder)

    def make(self, run: str) -> None:
        """Create the folder if it is missing, and try the operations of a commit. Raises Refused and OSError."""
        folder = self.path
        # The mode is for a new folder only: an existing one keeps the mode that its user chose.
        make_durable_directory(Path(os.path.realpath(folder)), OWN_FOLDER)
        probe = os.path.join(folder, new_manifest(0, run))
        linked = os.path.join(folder, new_manifest(1, run))
        try:
            # The commit, maybe hours later, needs a link. If the file system has none, it must show now, not after the
            # reading.
            with open(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"):
                pass
            os.link(probe, linked)
        except OSError as error:
            if error.errno in DENIED and not os.access(folder, os.W_OK | os.X_OK):
                raise Refused(f"kstate cannot write to {folder}", hint=access_hint(folder, os.W_OK)) from None
            if error.errno not in _NO_LINKS:
                raise
            raise Refused(
                (
                    f"{folder}: the file system does not support hard links, but kstate needs them to commit a "
                    "manifest in one step"
                ),
                hint="write the dump to a folder on another file system. Then copy it, manifests last",
            ) from None
        finally:
            for path in (probe, linked):
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """Write the manifest, which makes the files of the round a part of the dump.

        ``keys`` are the partitions with new files.

        Raises InUse if another dump committed first, Refused if a file is missing, OSError if the disk fails.
        """
        folder = self.path
        self.check_named(grown)
        # The data files are durable, but maybe not yet their names. These must be before the manifest has them, so the
        # folders are synced, from the leaves to the root.
        places = dict.fromkeys(place for key in keys for place in (folder_of(key), f"{TOPIC}{key.topic}"))
        for path in map(self._local, places):
            # A partition without records has no file, and so no folder to sync.
            if os.path.isdir(path):
                sync_directory(Path(os.path.realpath(path)))
        if places:
            sync_directory(Path(os.path.realpath(folder)))
        waiting = os.path.join(folder, new_manifest(grown.generation, run))
        final = os.path.join(folder, growing.name_of(grown.generation))
        try:
            with open(os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                new.write(growing.render(grown))
                new.flush()
                # Synced before the link: after a crash, the name of a manifest must never lead to an empty file.
                os.fsync(new.fileno())
            try:
                os.link(waiting, final)  # unlike rename, it never replaces the manifest of another process
            except FileExistsError:
                raise lost_race(folder, grown.generation) from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(waiting)
        generations = (growing.generation_of(name) or 0 for name in os.listdir(folder))
        later = [generation for generation in generations if generation > grown.generation]
        if later:
            # This process took longer than old manifests stay. Another one had this generation, and its manifest was
            # swept since. The manifest here is removed: the later generation counts, and a sweep may remove files that
            # only this one names.
            os.unlink(final)
            raise lost_race(folder, max(later))
        # After this sync the commit is durable. Before it, a crash may lose the name of the manifest, and the dump is
        # the old one.
        sync_directory(Path(os.path.realpath(folder)))

    def check_named(self, grown: Grown) -> None:
        """Raise Refused if a file of the manifest is missing, is a link, or has another size."""
        for full in grown.fulls:
            for file in full.files:
                self._check(file.path, file.size)

    def _check(self, relative: str, size: int) -> None:
        path = self._local(relative)
        try:
            # lstat: a link in place of a file may lead to another file of the same size.
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise lost_file(relative, self.path) from None
        if not stat.S_ISREG(status.st_mode) or status.st_size != size or is_link(path, self.path):
            raise lost_file(relative, self.path)

    def new_file(self, path: str) -> Sink:
        """Return a new file, which only its owner may read."""
        return LocalFile(self._local(path))

    def content(self, path: str) -> bytes:
        """Return the bytes of a file. Raises DumpError if it is missing, OSError if it cannot be read."""
        try:
            with open(self._local(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            raise missing_file(path) from None

    def present(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that exist; a link to nothing exists, too."""
        return {path for path in paths if os.path.lexists(self._local(path))}

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], manifest_files: Iterable[str]) -> None:
        """Remove the files of a run that no manifest names (``manifest_files``: relative paths). Raises nothing."""
        paths_of_manifest = set(manifest_files)
        for key in set(keys):
            relative = folder_of(key)
            for name in _names(self._local(relative)):
                if run_of(name) == run and f"{relative}/{name}" not in paths_of_manifest:
                    # Another call may remove it first, and what fails is left to the next one.
                    with suppress(OSError):
                        os.unlink(os.path.join(self._local(relative), name))

    def sweep(self, grown: Grown) -> int:
        """Remove files of runs that have ended without a manifest, and old manifests; return how many. Raises nothing.

        Only regular files are removed that have a name of a dump, are old, and are not named by any manifest.
        """
        folder = self.path
        names = _names(folder)
        # Sorted by name is sorted by generation: its number has ten digits.
        manifests = sorted(name for name in names if growing.generation_of(name) is not None)
        removed = sum(
            _removed_if_old(os.path.join(folder, name), MANIFEST_SECONDS) for name in manifests[:-MANIFESTS_KEPT]
        )
        unfinished = (name for name in _names(folder) if run_of(name) is not None)
        removed += sum(_removed_if_old(os.path.join(folder, name), GRACE_SECONDS) for name in unfinished)
        in_use = files_in_use(grown)
        unnamed = (path for path in _data_files(folder) if path not in in_use)
        return removed + sum(_removed_if_old(self._local(path), UNNAMED_SECONDS) for path in unnamed)

    def _local(self, path: str) -> str:
        return os.path.join(self.path, *path.split("/"))


def _refuse_links(folder: str, names: Iterable[str]) -> None:
    """Raise Refused if what should be the folder of a topic or partition is anything else: restore follows no link."""
    for topic in (name for name in names if name.startswith(TOPIC)):
        partitions = [name for name in _names(os.path.join(folder, topic)) if name.startswith(PARTITION)]
        for relative in (topic, *(os.path.join(topic, name) for name in partitions)):
            mode = os.lstat(os.path.join(folder, relative)).st_mode
            if not stat.S_ISDIR(mode):
                raise Refused(
                    f"{printable(relative)} is {kind_of(mode)}, not a folder",
                    where=folder,
                    hint="find out what created this entry, then replace it with a real folder",
                )


def _is_of_dump(name: str) -> bool:
    """Return whether a dump may have such a name in its root."""
    if name in (manifest.VERIFIED, f".{manifest.VERIFIED}.new"):
        return True
    return (
        name in IGNORED or name.startswith(TOPIC) or growing.generation_of(name) is not None or run_of(name) is not None
    )


def _data_files(folder: str) -> Iterable[str]:
    """Yield the relative paths of all files with names of data files."""
    for topic in (name for name in _names(folder) if name.startswith(TOPIC)):
        for partition in filter(_PARTITION.fullmatch, _names(os.path.join(folder, topic))):
            for name in _names(os.path.join(folder, topic, partition)):
                if run_of(name) is not None:
                    yield f"{topic}/{partition}/{name}"


def _names(folder: str) -> list[str]:
    """Return the names in a folder; none for a link, which leads elsewhere, and for anything else."""
    # A sweep that followed a link would delete files outside of the dump.
    if os.path.islink(folder) or not os.path.isdir(folder):
        return []
    with suppress(OSError):
        return os.listdir(folder)
    return []


def _removed_if_old(path: str, seconds: int) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        # The time of day of this host against that of the file system: the ages are so long that their difference does
        # not matter.
        if stat.S_ISREG(status.st_mode) and clock.now_seconds() - status.st_mtime > seconds:
            os.unlink(path)
            return True
    return False

"""A dump in a bucket: what it may contain, how a manifest is committed, and which objects are removed.

The rules are those of :mod:`kstate_cli.dump_writer.folder`, but a bucket keeps them in other ways. An object exists
completely or not at all, so nothing has to be made durable. The store creates a manifest only if its name is free
(``If-None-Match: *``). A request may succeed although its answer is lost. Then it is unknown whether the manifest
counts, and the files that it names must stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kstate_cli.dump_reader import growing, manifest
from kstate_cli.dump_reader.growing_source import newest_of
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.model import Grown
from kstate_cli.dump_writer.writing import (
    GRACE_SECONDS,
    MANIFEST_SECONDS,
    MANIFESTS_KEPT,
    PARTITION,
    TOPIC,
    UNNAMED_SECONDS,
    files_in_use,
    folder_of,
    lost_file,
    lost_race,
    missing_file,
    new_manifest,
    run_of,
)
from kstate_cli.errors import KstateError, Refused, RunFailed, RunHalfway
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.s3_objects import NotAnsweredError, ObjectEntry, Objects, S3Place
from kstate_cli.texts import printable, some

_MOST_NAMES: Final = 3
_PART_BYTES: Final = 16 << 20
_PARTS_OF_A_SIZE: Final = 1000
"""After so many parts, parts are twice as large, because S3 allows at most 10,000 parts of an upload."""
# The number of a partition without leading zeros, as :func:`folder_of` writes it: no other spelling is ours.
_FILE: Final = re.compile(rf"{TOPIC}[^/]+/{PARTITION}(0|[1-9][0-9]{{0,9}})/([^/]+)")


class BucketStore:
    """A :class:`kstate_cli.dump_writer.stores.DumpStore`."""

    def __init__(self, place: S3Place) -> None:
        self.unanswered = False
        self._where = place.uri
        self._objects = Objects(place)
        self._proven = False

    def read_newest(self) -> Grown | None:
        """Return the newest manifest; None for an empty prefix.

        Raises Refused if foreign objects are below the prefix.
        """
        objects, folders = self._objects.root()
        # Only the root is listed, in one request: listing the data files of a large dump would take thousands.
        names = [entry.path for entry in objects]
        if manifest.NAME in names:
            raise Refused(
                (
                    f"{self._where} contains a dump that was written in one go ({manifest.NAME}). kstate cannot add "
                    "records to such a dump"
                ),
                hint="pass a new prefix",
            )
        foreign = [
            name
            for name in names
            if growing.generation_of(name) is None and run_of(name) is None and name != manifest.VERIFIED
        ]
        # :meth:`sweep` removes objects below the prefix, so none of another program may be there.
        foreign += [f"{name}/" for name in folders if not name.startswith(TOPIC)]
        if foreign:
            raise Refused(
                (
                    f"{self._where} contains files that do not belong to a dump: "
                    f"{some([printable(name) for name in foreign], _MOST_NAMES)}"
                ),
                hint="pass a new prefix or the prefix of a growing dump",
            )
        entries = [ListedFile(f"{self._where}/{entry.path}", entry.path, entry.size) for entry in objects]
        return newest_of(entries, self._where, lambda entry: self.content(entry.relative))

    def check_named(self, grown: Grown) -> None:
        """Raise Refused if a file of the manifest is missing, or has another size."""
        files = [file for full in grown.fulls for file in full.files]
        if not files:
            return
        # One listing for all files: a request for each would take minutes, and cost money.
        there = {entry.path: entry.size for entry in self._objects.below()}
        for file in files:
            if there.get(file.path) != file.size:
                raise lost_file(file.path, self._where)

    def make(self, run: str) -> None:
        """Create nothing, but prove once that the store evaluates ``If-None-Match``. Raises Refused and RunFailed."""
        if self._proven:
            return
        # The probe has the name of an unfinished manifest, which readers skip. If this process dies here, a later sweep
        # removes it.
        probe = new_manifest(0, run)
        try:
            self._objects.create(probe, b"", run)
            # A second object of that name must get the answer 412. It is created for another run, because ``create``
            # takes an object of its own run for an earlier attempt whose answer was lost.
            if self._objects.create(probe, b"", f"not {run}"):
                raise self._objects.without_conditions("another writer replaced an object")
        except NotAnsweredError as error:
            raise RunFailed(str(error), hint="run the command again. kstate has not read or written anything") from None
        finally:
            # A probe that cannot be removed does no harm: a later call sweeps it.
            with suppress(KstateError):
                self._objects.remove(probe)
        self._proven = True

    def new_file(self, path: str) -> Upload:
        """Return a new object, which exists once it is complete."""
        return Upload(self._objects, path)

    def content(self, path: str) -> bytes:
        """Return the bytes of a file. Raises DumpError if it is missing."""
        content = self._objects.read(path)
        if content is None:
            raise missing_file(path)
        return content

    def present(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that exist."""
        paths = set(paths)
        if not paths:
            return set()
        return paths & {entry.path for entry in self._objects.below()}

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """Write the manifest, which makes the files of the round a part of the dump.

        Raises InUse if another dump committed first, Refused if an object is missing, RunHalfway if no answer came.
        """
        # The files that the manifest names are looked up again: hours may have passed since the start, and some may be
        # lost.
        self.check_named(grown)
        name = growing.name_of(grown.generation)
        self.unanswered = True  # also where a signal comes in the middle
        try:
            created = self._objects.create(name, growing.render(grown), run)
        except NotAnsweredError as error:
            # Code 7, because the dump may have changed: neither "done" nor "nothing changed" would be true.
            raise RunHalfway(
                f"kstate does not know whether generation {grown.generation} was written: {error}",
                where=self._where,
                hint=("run the command again. The dump is complete in either case, and kstate continues from it"),
            ) from None
        except KstateError:
            self.unanswered = False
            raise
        self.unanswered = False
        # The store answered 412: another process has committed this generation, and its manifest names none of the
        # files here.
        if not created:
            raise lost_race(self._where, grown.generation)
        generations = (growing.generation_of(generation.path) for generation in self._objects.root()[0])
        later = [generation for generation in generations if generation is not None and generation > grown.generation]
        if later:
            # This process took longer than old manifests stay. Another one had this generation, and its manifest was
            # swept since. The later generation counts, and a sweep may have removed files that only the manifest here
            # names.
            self._objects.remove(name)
            raise lost_race(self._where, max(later))

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], manifest_files: Iterable[str]) -> None:
        """Remove the objects of a run that no manifest names. Raises nothing."""
        keep = set(manifest_files)
        # Only the folders of this run's partitions are listed, since the whole dump may have a hundred thousand
        # objects.
        for key in set(keys):
            with suppress(KstateError):
                for entry in self._objects.below(f"{folder_of(key)}/"):
                    if entry.path not in keep and _run(entry.path) == run:
                        self._remove(entry.path)
        with suppress(KstateError):
            # Unfinished uploads are aborted: a store keeps their parts, and charges for them, until then.
            for upload in self._objects.uploads():
                if _run(upload.path) == run:
                    self._abort(upload)

    def sweep(self, grown: Grown) -> int:
        """Remove objects of runs that have ended without a manifest, and old manifests; return how many.

        Raises nothing.

        Only objects are removed that have a name of a dump, are old by the clock of the store, and are not named by any
        manifest.
        """
        removed = 0
        with suppress(KstateError):
            there = self._objects.below()
            manifests = sorted((entry for entry in there if growing.generation_of(entry.path) is not None), key=_path)
            # The newest manifests stay whatever their age: a reader may have one of them open.
            old = [entry for entry in manifests[:-MANIFESTS_KEPT] if entry.age > MANIFEST_SECONDS]
            files = files_in_use(grown)
            old += [
                entry
                for entry in there
                if entry.age > UNNAMED_SECONDS and _is_of_a_run(entry.path) and entry.path not in files
            ]
            removed = sum(self._remove(entry.path) for entry in old)
        with suppress(KstateError):
            for upload in self._objects.uploads():
                if upload.age > GRACE_SECONDS and _is_of_a_run(upload.path):
                    # The age of an upload is not enough: that of a large file may have begun a day ago and still get
                    # parts.
                    removed += self._objects.idle_seconds(upload) > GRACE_SECONDS and self._abort(upload)
        return removed

    def _remove(self, path: str) -> bool:
        with suppress(KstateError):
            self._objects.remove(path)
            return True
        return False

    def _abort(self, upload: ObjectEntry) -> bool:
        with suppress(KstateError):
            self._objects.abort_upload(upload.path, upload.upload)
            return True
        return False


def _path(entry: ObjectEntry) -> str:
    return entry.path


def _run(path: str) -> str | None:
    """Return the run of a data file or an unfinished manifest; None for any other object."""
    if "/" not in path:
        return run_of(path)
    match = _FILE.fullmatch(path)
    if match is None:
        return None
    return run_of(match[2])


def _is_of_a_run(path: str) -> bool:
    return _run(path) is not None


class Upload:
    """One new object, which exists once it is complete: a :class:`kstate_cli.dump_writer.writing.Sink`.

    What fits into one part is sent at once; else parts are sent as they come, and held by the store until the last.
    """

    def __init__(self, objects: Objects, path: str) -> None:
        self._objects, self._path = objects, path
        self._waiting = bytearray()
        self._size = 0
        self._upload = ""
        self._tags: list[str] = []

    def append(self, data: memoryview) -> None:
        """Send a part when there is enough for one."""
        self._waiting += data
        self._size += len(data)
        # Twice as large after each thousand parts: 10,000 parts of 16 MiB alone would end at 160 GiB.
        while len(self._waiting) >= (part_bytes := _PART_BYTES << len(self._tags) // _PARTS_OF_A_SIZE):
            self._send(part_bytes)

    def finish(self) -> None:
        """Create the object."""
        # No part was sent, so one plain request creates the object: it exists completely or not at all.
        if not self._upload:
            self._objects.write(self._path, bytes(self._waiting))
            return
        if self._waiting:
            self._send(len(self._waiting))
        self._objects.complete_upload(self._path, self._upload, self._tags, self._size)

    def discard(self) -> None:
        """Discard the parts that were sent. If that fails, a later call of ``kstate dump`` does it."""
        with suppress(Exception):
            if self._upload:
                self._objects.abort_upload(self._path, self._upload)

    def _send(self, size: int) -> None:
        if not self._upload:
            self._upload = self._objects.begin_upload(self._path)
        # A copy of one part, not of all that waits: the slice of a bytearray would be copied twice.
        part = bytes(memoryview(self._waiting)[:size])
        self._tags.append(self._objects.upload_part(self._path, self._upload, len(self._tags) + 1, part))
        # Frees the part: a task holds one part in memory, not its whole file.
        del self._waiting[:size]

"""A dump in a bucket: what may lie there, how a manifest becomes one, and what nobody needs any more.

The rules are those of :mod:`kstate_cli.dump_writer.folder`. What differs is how a store keeps them: an object is there
whole or not at all, so nothing has to be made durable; and a manifest becomes one by a request that the store carries
out only where the name is free (``If-None-Match: *``). A request may be carried out although its answer got lost: then
it is not known whether the manifest counts, and what it names must stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from kstate_cli.dump_reader import growing, manifest
from kstate_cli.dump_reader.growing import Grown
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.open import counting
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
from kstate_cli.dump_writer.s3_objects import Listed, NotAnsweredError, Objects, S3Place, Upload
from kstate_cli.errors import KstateError, Refused, RunFailed, RunHalfway
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.texts import printable, some

_SHOWN: Final = 3
_FILE: Final = re.compile(rf"{TOPIC}[^/]+/{PARTITION}(0|[1-9][0-9]{{0,9}})/([^/]+)")


class BucketStore:
    """A :class:`kstate_cli.dump_writer.stores.DumpStore`."""

    def __init__(self, place: S3Place) -> None:
        self.unanswered = False
        self._where = place.uri
        self._objects = Objects(place)
        self._proven = False

    def read_newest(self) -> Grown | None:
        """The manifest that counts; None where nothing is. Raises Refused for a place that holds something else."""
        objects, folders = self._objects.root()
        names = [one.path for one in objects]
        if manifest.NAME in names:
            raise Refused(
                f"{self._where} holds a dump that was written at once ({manifest.NAME}), and that cannot grow",
                hint="name a new prefix",
            )
        foreign = [
            name
            for name in names
            if growing.generation_of(name) is None and run_of(name) is None and name != manifest.VERIFIED
        ]
        foreign += [f"{name}/" for name in folders if not name.startswith(TOPIC)]
        if foreign:
            raise Refused(
                f"{self._where} holds what is not of a dump: {some([printable(one) for one in foreign], _SHOWN)}",
                hint="name a new prefix, or one that was dumped to before",
            )
        entries = [ListedFile(f"{self._where}/{one.path}", one.path, one.size) for one in objects]
        return counting(entries, self._where, lambda one: self.content(one.relative))

    def check_named(self, grown: Grown) -> None:
        """Raises Refused where a file that the manifest names is not there, or plainly not what was written."""
        files = [file for full in grown.fulls for file in full.files]
        there = {one.path: one.size for one in self._objects.below()} if files else {}
        for file in files:
            if there.get(file.path) != file.size:
                raise lost_file(file.path, self._where)

    def make(self, run: str) -> None:
        """Nothing has to be made. Proves, once, that the store makes an object only where there is none."""
        if self._proven:
            return
        probe = new_manifest(0, run)
        try:
            self._objects.create(probe, b"", run)
            # Another one of that name, and another run's: 412, or the store takes what it is not to take.
            if self._objects.create(probe, b"", f"not {run}"):
                raise self._objects.without_conditions("it has made an object in place of another one")
        except NotAnsweredError as error:
            raise RunFailed(str(error), hint="nothing was read or written: run the command again") from None
        finally:
            with suppress(KstateError):
                self._objects.remove(probe)
        self._proven = True

    def opened(self, path: str) -> Upload:
        """Nothing is there before it is whole."""
        return Upload(self._objects, path)

    def content(self, path: str) -> bytes:
        """All of a file. Raises DumpError where it is not there."""
        content = self._objects.read(path)
        if content is None:
            raise gone(path)
        return content

    def present(self, paths: Iterable[str]) -> set[str]:
        """Those of them that are there."""
        wanted = set(paths)
        return wanted & {one.path for one in self._objects.below()} if wanted else set()

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """From now on ``grown`` is what the dump is."""
        self.check_named(grown)
        name = growing.name_of(grown.generation)
        self.unanswered = True  # also where a signal comes in the middle
        try:
            created = self._objects.create(name, growing.render(grown), run)
        except NotAnsweredError as error:
            raise RunHalfway(
                f"whether generation {grown.generation} has come to be is not known: {error}",
                where=self._where,
                hint="the dump is whole either way: run the command again, which goes on from what is there",
            ) from None
        except KstateError:
            self.unanswered = False
            raise
        self.unanswered = False
        if not created:
            raise lost(self._where, grown.generation)
        generations = (growing.generation_of(one.path) for one in self._objects.root()[0])
        later = [one for one in generations if one is not None and one > grown.generation]
        if later:
            # Slower than manifests are kept: one of this number had been there, and is gone.
            self._objects.remove(name)
            raise lost(self._where, max(later))

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], named: Iterable[str]) -> None:
        """Removes what a run has written and no manifest names. Raises nothing."""
        keep = set(named)
        for key in set(keys):
            with suppress(KstateError):
                for one in self._objects.below(f"{folder_of(key)}/"):
                    if one.path not in keep and _run(one.path) == run:
                        self._remove(one.path)
        with suppress(KstateError):
            for upload in self._objects.uploads():
                if _run(upload.path) == run:
                    self._abort(upload)

    def sweep(self, grown: Grown) -> int:
        """Removes what dead runs have left, and manifests that nobody reads any more. Raises nothing.

        Only what has a name that a dump gives, is old by the clock of the store, and is named by no manifest.
        """
        removed = 0
        with suppress(KstateError):
            there = self._objects.below()
            manifests = sorted((one for one in there if growing.generation_of(one.path) is not None), key=_path)
            old = [one for one in manifests[:-MANIFESTS_KEPT] if one.age > MANIFEST_SECONDS]
            named = needed(grown)
            old += [
                one for one in there if one.age > UNNAMED_SECONDS and _is_a_run_s(one.path) and one.path not in named
            ]
            removed = sum(self._remove(one.path) for one in old)
        with suppress(KstateError):
            for upload in self._objects.uploads():
                if upload.age > GRACE_SECONDS and _is_a_run_s(upload.path):
                    removed += self._objects.idle_seconds(upload) > GRACE_SECONDS and self._abort(upload)
        return removed

    def _remove(self, path: str) -> bool:
        with suppress(KstateError):
            self._objects.remove(path)
            return True
        return False

    def _abort(self, upload: Listed) -> bool:
        with suppress(KstateError):
            self._objects.abort_upload(upload.path, upload.upload)
            return True
        return False


def _path(one: Listed) -> str:
    return one.path


def _run(path: str) -> str | None:
    """The run that a file of a partition is of, or a manifest that is none yet; None for what is none of ours."""
    if "/" not in path:
        return run_of(path)
    match = _FILE.fullmatch(path)
    return None if match is None else run_of(match[2])


def _is_a_run_s(path: str) -> bool:
    return _run(path) is not None

"""Where a dump is written: a folder that is mounted here, or a bucket. All else of a round is the same for both.

A store is made of what ``--out`` says, by whoever writes: the driver, and each task wherever it runs. No secret
travels: credentials of a bucket are found by the process that asks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from kstate_cli.dump_reader.growing import Grown
from kstate_cli.dump_writer import folder
from kstate_cli.dump_writer.bucket import BucketStore
from kstate_cli.dump_writer.s3_objects import is_s3, place_in_bucket
from kstate_cli.dump_writer.writing import LocalFile, Sink
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.redaction import shown_uri
from kstate_cli.texts import printable

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class DumpStore(Protocol):
    """What ``kstate dump`` needs of the place that it writes to. Paths are relative to the dump, with ``/``.

    All raise Refused for what this user may not do and for what is no dump, RunFailed where a bucket does not answer,
    OSError where a folder cannot be written to; but for those that raise nothing.
    """

    @property
    def unanswered(self) -> bool:
        """Whether a manifest was sent, and nobody knows whether it came to be: what it names must stay then."""

    def read_newest(self) -> Grown | None:
        """The manifest that counts; None in a new place. Raises Refused for a place that holds something else."""

    def check_named(self, grown: Grown) -> None:
        """Raises Refused where a file that the manifest names is not there, or plainly not what was written."""

    def make(self, run: str) -> None:
        """Makes the place where it is missing, and tries out what a commit needs. Raises Refused where that fails."""

    def opened(self, path: str) -> Sink:
        """A new file. Its name has to be one that no other file ever has."""

    def content(self, path: str) -> bytes:
        """All of a file. Raises DumpError where it is not there."""

    def present(self, paths: Iterable[str]) -> set[str]:
        """Those of them that lie there."""

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """From now on ``grown`` is what the dump is. ``keys`` are the partitions that have new files.

        Raises InUse where another dump was there first, Refused where a file is not there any more.
        """

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], named: Iterable[str]) -> None:
        """Removes what a run, all of whose tasks have ended, has written and nobody names. Raises nothing."""

    def sweep(self, grown: Grown) -> int:
        """Removes what dead runs have left, and manifests that nobody reads any more. Raises nothing."""


@dataclass(frozen=True, slots=True)
class FolderStore:
    """A folder of this host, or mounted on it: ``path`` is absolute."""

    path: str
    unanswered: bool = False
    """Never: ``link`` has made the manifest, or it has not."""

    def read_newest(self) -> Grown | None:
        """As :func:`folder.read_newest`."""
        return folder.read_newest(self.path)

    def check_named(self, grown: Grown) -> None:
        """As :func:`folder.check_named`."""
        folder.check_named(self.path, grown)

    def make(self, run: str) -> None:
        """As :func:`folder.make`."""
        folder.make(self.path, run)

    def opened(self, path: str) -> Sink:
        """Readable by its owner only."""
        return LocalFile(self._local(path))

    def content(self, path: str) -> bytes:
        """As :func:`folder.content`."""
        return folder.content(self._local(path), path)

    def present(self, paths: Iterable[str]) -> set[str]:
        """Also what is a link to nothing lies there."""
        return {path for path in paths if os.path.lexists(self._local(path))}

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """As :func:`folder.commit`."""
        folder.commit(self.path, grown, run, keys)

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], named: Iterable[str]) -> None:
        """As :func:`folder.remove_files_of`."""
        folder.remove_files_of(self.path, run, keys, named)

    def sweep(self, grown: Grown) -> int:
        """As :func:`folder.sweep`."""
        return folder.sweep(self.path, grown)

    def _local(self, path: str) -> str:
        return os.path.join(self.path, *path.split("/"))


def destination(out: str) -> str:
    """What ``--out`` names: an absolute path, or ``s3://BUCKET/PREFIX``. Raises UsageError for any other place."""
    if is_s3(out):
        return place_in_bucket(out).uri
    if _SCHEME.match(out):
        raise UsageError(
            f"{printable(shown_uri(out))} is neither a folder nor s3://BUCKET/PREFIX: nothing else can be written to",
            hint="give a path; what is there may be copied elsewhere, manifests last",
        )
    return folder.local_folder(out)


def store_of(out: str) -> DumpStore:
    """The store that a :func:`destination` is. Raises UsageError where the client of a bucket is not installed."""
    return BucketStore(place_in_bucket(out)) if is_s3(out) else FolderStore(out)

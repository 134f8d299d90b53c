"""The place where a dump is written: a folder that is mounted here, or a bucket. Everything else is the same for both.

The driver and each task create their own store from its place. No secret travels between hosts: the process that sends
a request finds the credentials of a bucket itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

from kstate_cli.diagnosis import shown_uri
from kstate_cli.dump_reader.model import Grown
from kstate_cli.dump_writer.bucket import BucketStore
from kstate_cli.dump_writer.folder import FolderStore, local_folder
from kstate_cli.dump_writer.writing import Sink
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.s3_objects import is_s3, place_in_bucket
from kstate_cli.texts import printable

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class DumpStore(Protocol):
    """The operations that ``kstate dump`` needs of its destination. Paths are relative to the dump, with ``/``.

    All raise Refused if this user lacks a right and for a place that is no dump, RunFailed if a bucket does not answer,
    OSError if a folder cannot be written to; except those that raise nothing.
    """

    @property
    def unanswered(self) -> bool:
        """Whether a manifest was sent without an answer. It may exist: so the files that it names must stay."""

    def read_newest(self) -> Grown | None:
        """Return the newest manifest; None in a new place. Raises Refused for a place with foreign files."""

    def check_named(self, grown: Grown) -> None:
        """Raise Refused if a file of the manifest is missing, or has another size."""

    def make(self, run: str) -> None:
        """Create the place if it is missing, and try the operations of a commit. Raises Refused if one fails."""

    def new_file(self, path: str) -> Sink:
        """Return a new file. No other file may ever have its name."""

    def content(self, path: str) -> bytes:
        """Return the bytes of a file. Raises DumpError if it is missing."""

    def present(self, paths: Iterable[str]) -> set[str]:
        """Return the paths that exist."""

    def commit(self, grown: Grown, run: str, keys: Iterable[TopicPartition]) -> None:
        """Write the manifest: from now on it is the dump. ``keys`` are the partitions that have new files.

        Raises InUse if another dump committed first, Refused if a file is missing.
        """

    def remove_files_of(self, run: str, keys: Iterable[TopicPartition], manifest_files: Iterable[str]) -> None:
        """Remove the files of a run, all of whose tasks have ended, that no manifest names. Raises nothing."""

    def sweep(self, grown: Grown) -> int:
        """Remove files of dead runs and old manifests; return their number. Raises nothing."""


def destination(out: str) -> str:
    """Return the destination of a dump: an absolute path, or ``s3://BUCKET/PREFIX``. Raises UsageError for others."""
    if is_s3(out):
        return place_in_bucket(out).uri
    if _SCHEME.match(out):
        raise UsageError(
            f"{printable(shown_uri(out))} is neither a folder nor s3://BUCKET/PREFIX. kstate can write a dump only "
            "to these",
            hint="pass a folder. Afterwards, you can copy the dump elsewhere, manifests last",
        )
    # What looks like a scheme is rejected above: a folder "gs:" in the working directory is not what a user means.
    return local_folder(out)


def store_of(out: str) -> DumpStore:
    """Return the store of a :func:`destination`. Raises UsageError if the client of a bucket is not installed."""
    return BucketStore(place_in_bucket(out)) if is_s3(out) else FolderStore(out)

"""The interface of dump sources: where changelog records may come from, and what a source must provide.

A source recognizes its places and opens them as a :class:`Dump`, which has the topics, the partitions and their ranges
of offsets, the digests of files, and warnings about everything that was skipped. All sources so far store Parquet: the
pieces of a :class:`Dump` are row groups, and :func:`kstate_cli.dump_reader.reader.iter_slice` reads the batches of all
of them. A further source is a class with the method of :class:`DumpSource`, and an entry in ``SOURCES``
(:mod:`kstate_cli.dump_reader.open`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol

from kstate_cli import option
from kstate_cli.host import cores_here
from kstate_cli.limits import MOST_DUMP_MANIFEST_BYTES
from kstate_cli.regular_files import read_at_most
from kstate_cli.signals import mapped, submitted

from .errors import FEWER_FILES, NOT_REACHED, DumpError, NoManifestError, printable, rot, unreadable
from .location import ListedFile, open_location, uri_text
from .manifest import Manifest
from .model import Dump

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


# More threads than processors, because each of them waits for the disk or the network.
_THREADS: Final = 16


@dataclass(frozen=True, slots=True)
class DumpPlace:
    """The location of a dump: ``root`` in a file system, and the URI of the user."""

    filesystem: FileSystem
    root: str
    uri: str

    @property
    def text(self) -> str:
        """The URI for messages, without secrets."""
        return uri_text(self.uri)


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """The statements of the user about a dump, and how to open it.

    See :func:`kstate_cli.dump_reader.open.read_dump`.
    """

    complete: bool
    committed_only: bool
    check_digests: bool = False
    full_dump: int | None = None
    in_part: bool = False


class DumpSource(Protocol):
    """A kind of place with changelog records."""

    def open(self, place: DumpPlace, options: OpenOptions) -> Dump | None:
        """Open a place; None if it is of another kind. Raises UsageError and DumpError, naming the file."""


def no_manifest(message: str, where: str) -> NoManifestError:
    """Return the refusal of a dump without a manifest, which the user has not called complete."""
    return NoManifestError(
        message,
        where=where,
        hint=(
            f"if you know that no file is missing, pass {option.DUMP_IS_COMPLETE}. If the dump was read with isolation "
            f"read_committed, also pass {option.DUMP_IS_COMMITTED}"
        ),
    )


def content_of(filesystem: FileSystem, file: ListedFile, noun: str = "manifest") -> bytes:
    """Return the bytes of a file. Raises DumpError if it is too large, or cannot be read."""
    data = b""
    try:
        # The size is checked in the listing, before a byte is read. A file that grows meanwhile is read to one byte too
        # many.
        if file.size <= MOST_DUMP_MANIFEST_BYTES:
            with filesystem.open_input_stream(file.path) as stream:
                data = read_at_most(stream, MOST_DUMP_MANIFEST_BYTES, file.size)
    except OSError as error:
        # The contents are unknown, so no hint may suggest to move the file away.
        raise DumpError(
            f"kstate cannot read the {noun}: {error}",
            where=printable(file.path),
            hint=NOT_REACHED,
        ) from None
    if (size := max(file.size, len(data))) > MOST_DUMP_MANIFEST_BYTES:
        raise DumpError(
            f"the {noun} has {size:,} bytes, but kstate reads at most {MOST_DUMP_MANIFEST_BYTES:,}",
            where=printable(file.path),
            hint=FEWER_FILES,
        )
    return data


def check_files_digests(filesystem: FileSystem, manifest: Manifest, files: Iterable[ListedFile]) -> None:
    """Compare all files with the SHA-256 of the manifest. Raises DumpError, naming the file."""
    expected = {file.path: file.sha256 for file in manifest.files}

    def check(file: ListedFile) -> None:
        digest = expected[file.relative]
        if digest is None:
            # The user wants all files to be compared. A file that cannot be compared is therefore an error.
            raise DumpError("the manifest has no digest for the file", where=printable(file.path))
        check_digest(filesystem, file.path, digest)

    with ThreadPoolExecutor(_THREADS) as pool:
        mapped(pool, check, files)


_CHUNK: Final = 1 << 20


def check_digest(filesystem: FileSystem, path: str, expected: str, ended: Callable[[], bool] = lambda: False) -> None:
    """Read a file and compare its SHA-256 with that of the manifest. Stop without an error if ``ended`` returns True.

    Raises DumpError, naming the file, if it differs or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with filesystem.open_input_stream(path) as stream:
            # Checked for each chunk, so that the end of the command need not wait for a file of gigabytes.
            while not ended() and (chunk := stream.read(_CHUNK)):
                digest.update(chunk)
    except OSError as error:
        raise unreadable(path, error) from None
    if not ended() and digest.hexdigest() != expected:
        raise other_file(path)


def other_file(path: str) -> DumpError:
    """Return the error for a file whose digest differs from that of the manifest."""
    return rot(
        path,
        "the file's SHA-256 differs from the manifest, so the file is damaged or was replaced",
    )


def manifest_digests(dump: Dump, paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each path in the manifest; paths without one are omitted."""
    root = open_location(dump.uri)[1].rstrip("/")
    expected = {f"{root}/{file.path}": file.sha256 for file in dump.manifest_files}
    return {path: digest for path in sorted(set(paths)) if (digest := expected.get(path)) is not None}


class Digests:
    """Compares files with their digests in the background, until the end of the block."""

    def __init__(self, dump: Dump) -> None:
        self._filesystem = open_location(dump.uri)[0]
        self._pool = ThreadPoolExecutor(cores_here(), thread_name_prefix="digest")
        self._ended = False
        self._waiting: list[Future[None]] = []

    def compare(self, expected: Mapping[str, str]) -> None:
        """Begin with these files: path -> digest in hex."""
        self._waiting += submitted(
            self._pool, lambda entry: check_digest(self._filesystem, *entry, lambda: self._ended), expected.items()
        )

    def __enter__(self) -> Digests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Set before the shutdown, which waits for running threads: they check it after each chunk.
        self._ended = True
        self._pool.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait for all files. Raises DumpError, naming the file, for the first one that differs from the manifest."""
        for future in self._waiting:
            future.result()

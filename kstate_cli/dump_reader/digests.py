"""Compare the SHA-256 of a dump's files with its manifest, because damage within a value is still valid Parquet.

Threads read the files while other work continues; :meth:`Digests.wait` returns the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kstate_cli.host import cores_here
from kstate_cli.signals import submitted

from .errors import DumpError, rot, unreadable
from .location import open_location
from .model import Dump

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_CHUNK: Final = 1 << 20


def check_digest(filesystem: FileSystem, path: str, expected: str, ended: Callable[[], bool] = lambda: False) -> None:
    """Read a file and compare its SHA-256 with that of the manifest; stop without an error once ``ended`` is true.

    Raises DumpError, naming the file, if it differs or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with filesystem.open_input_stream(path) as stream:
            while not ended() and (chunk := stream.read(_CHUNK)):
                digest.update(chunk)
    except OSError as error:
        raise unreadable(path, error) from None
    if not ended() and digest.hexdigest() != expected:
        raise other_file(path)


def other_file(path: str) -> DumpError:
    """Return the error for a file whose digest differs from that of the manifest."""
    return rot(
        path, "the file is damaged, or another one was put in its place: its SHA-256 differs from that of the manifest"
    )


def manifest_digests(dump: Dump, paths: Iterable[str]) -> dict[str, str]:
    """Return the digest of each path in the manifest; paths without one are omitted."""
    root = open_location(dump.uri)[1].rstrip("/")
    files = dump.manifest.files if dump.manifest is not None else ()
    expected = {f"{root}/{file.path}": file.sha256 for file in files}
    return {path: digest for path in sorted(set(paths)) if (digest := expected.get(path)) is not None}


class Digests:
    """Compare files in the background. The end of the block ends the reading."""

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
        self._ended = True
        self._pool.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait for all files. Raises DumpError, naming the file, for the first one that differs from the manifest."""
        for future in self._waiting:
            future.result()

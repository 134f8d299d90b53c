"""The SHA-256 of a dump's files against its manifest: rot within a value is still Parquet.

Reading goes on in threads beside other work; nothing is decided before :meth:`Digests.wait`.
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


def check_digest(filesystem: FileSystem, path: str, known: str, ended: Callable[[], bool] = lambda: False) -> None:
    """Reads a file and compares its SHA-256 with the manifest's; gives up, saying nothing, once it is ``ended``.

    Raises DumpError, naming the file, where it is another one or cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with filesystem.open_input_stream(path) as stream:
            while not ended() and (chunk := stream.read(_CHUNK)):
                digest.update(chunk)
    except OSError as error:
        raise unreadable(path, error) from None
    if not ended() and digest.hexdigest() != known:
        raise other_file(path)


def other_file(path: str) -> DumpError:
    """What a file is told to be whose digest is not the manifest's."""
    return rot(
        path, "the file is damaged, or another one was put in its place: its SHA-256 differs from that of the manifest"
    )


def known_digests(dump: Dump, paths: Iterable[str]) -> dict[str, str]:
    """By path, the digest that the manifest has of it; without those that it has none of."""
    root = open_location(dump.uri)[1].rstrip("/")
    files = dump.manifest.files if dump.manifest is not None else ()
    known = {f"{root}/{file.path}": file.sha256 for file in files}
    return {path: digest for path in sorted(set(paths)) if (digest := known.get(path)) is not None}


class Digests:
    """Compares files in the background. Leaving the block ends the reading."""

    def __init__(self, dump: Dump) -> None:
        self._filesystem = open_location(dump.uri)[0]
        self._pool = ThreadPoolExecutor(cores_here(), thread_name_prefix="digest")
        self._ended = False
        self._waiting: list[Future[None]] = []

    def compare(self, expected: Mapping[str, str]) -> None:
        """Begins with these files: digests, in hex, by their paths."""
        self._waiting += submitted(
            self._pool, lambda one: check_digest(self._filesystem, *one, lambda: self._ended), expected.items()
        )

    def __enter__(self) -> Digests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._pool.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Raises DumpError, naming the file, for the first one that is not the manifest's."""
        for one in self._waiting:
            one.result()

"""The SHA-256 of a dump's files against its manifest: rot within a value is still Parquet.

Reading goes on in threads beside other work; nothing is decided before :meth:`Digests.wait`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kstate_cli.capacity import cores_here
from kstate_cli.signals import submitted

from .errors import NOT_REACHED, DumpError, printable
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
        raise DumpError(
            f"the file cannot be read: {error}",
            where=printable(path),
            hint=NOT_REACHED,
        ) from None
    if not ended() and digest.hexdigest() != known:
        raise DumpError(
            "the file is not the one of the manifest: its SHA-256 differs",
            where=printable(path),
            hint="copy or dump it anew",
        )


class Digests:
    """Compares files in the background, those that the manifest has a digest of. Leaving the block ends the reading."""

    def __init__(self, dump: Dump, paths: Iterable[str]) -> None:
        filesystem, root = open_location(dump.uri)
        files = dump.manifest.files if dump.manifest is not None else ()
        known = {f"{root.rstrip('/')}/{file.path}": file.sha256 for file in files}
        self._pool = ThreadPoolExecutor(cores_here(), thread_name_prefix="digest")
        self._ended = False
        expected = [(path, digest) for path in sorted(set(paths)) if (digest := known.get(path)) is not None]
        self._waiting: list[Future[None]] = submitted(
            self._pool, lambda one: check_digest(filesystem, *one, lambda: self._ended), expected
        )

    def __enter__(self) -> Digests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._pool.shutdown(cancel_futures=True)

    @property
    def files(self) -> int:
        """So many files are compared."""
        return len(self._waiting)

    def wait(self) -> None:
        """Raises DumpError, naming the file, for the first one that is not the manifest's."""
        for one in self._waiting:
            one.result()

"""The SHA-256 of files that a task reads anyway: each block of them is read from the disk once.

A digest is that of all bytes in their order. A reader leaves some out, and reads several columns at once: what comes
too early is held for a while, and what never comes is read here.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Queue
from types import TracebackType
from typing import TYPE_CHECKING, Final

from kstate_cli.direct_io import aligned, open_direct, read_into
from kstate_cli.signals import start

from .digests import other_file
from .direct_file import BLOCK_BYTES
from .errors import unreadable

if TYPE_CHECKING:
    from hashlib import _Hash

_MOST_WAITING: Final = 8
"""Blocks that nobody has looked at: a reader waits, where it is quicker."""
_MOST_HELD: Final = 16
"""Blocks that came too early; what comes then is read once more."""


@dataclass(slots=True)
class _FileSoFar:
    """As far as it was read."""

    path: str
    known: str
    digest: _Hash = field(default_factory=hashlib.sha256)
    number: int = 0
    """The next block."""
    ended: bool = False

    def lacks(self, end: int | None) -> bool:
        """Whether there are blocks below ``end`` that were not taken; None for all of the file."""
        return not self.ended and (end is None or (self.number + 1) * BLOCK_BYTES <= end)

    def take(self, block: memoryview) -> None:
        """The next block."""
        self.digest.update(block)
        self.number += 1
        self.ended = len(block) < BLOCK_BYTES


_Heard = tuple[str, int | None, memoryview | None]
"""A file, a block of it and what is in there; or the byte up to which nothing more comes."""


class DigestsBeside:
    """Hears what a reader reads, and compares. :meth:`finish` is to be called; leaving the block ends it at once."""

    def __init__(self, expected: Sequence[tuple[str, str]]) -> None:
        """``expected``: paths of local files, and their digests in hex."""
        self._held: dict[tuple[str, int], memoryview] = {}
        self._files = {path: _FileSoFar(path, digest) for path, digest in expected}
        self._heard: Queue[_Heard | None] = Queue(_MOST_WAITING)
        self._ended = False
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="digests", daemon=True)
        if self._files:
            start(self._thread)

    def __enter__(self) -> DigestsBeside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._join()

    def offer(self, path: str, number: int, block: memoryview) -> None:
        """A block that was read; it never changes."""
        if path in self._files and not self._ended:
            self._heard.put((path, number, block))

    def past(self, path: str, end: int | None) -> None:
        """Nothing below ``end`` that was not read yet will be; None for all of the file."""
        if path in self._files and not self._ended:
            self._heard.put((path, end, None))

    def finish(self) -> None:
        """Raises DumpError, naming the file, for the first one that is another than was expected, or cannot be read."""
        for path in self._files:
            self.past(path, None)
        self._join()
        self._ended = True
        if self._error is not None:
            raise self._error
        for file in self._files.values():
            if file.digest.hexdigest() != file.known:
                raise other_file(file.path)

    def _join(self) -> None:
        if self._thread.is_alive():
            self._heard.put(None)
            self._thread.join()

    def _work(self) -> None:
        # To its end, whatever has happened: who puts something in may be waiting.
        while (heard := self._heard.get()) is not None:
            path, where, block = heard
            if self._ended or self._error is not None:
                continue
            try:
                if block is None:
                    self._catch_up(self._files[path], where)
                else:
                    assert where is not None
                    self._hear(self._files[path], where, block)
            except OSError as error:
                self._error = unreadable(path, error)
            except Exception as error:
                self._error = error

    def _catch_up(self, file: _FileSoFar, end: int | None) -> None:
        """Takes what is below ``end``, reading what nobody has offered."""
        if not file.lacks(end):
            return
        descriptor = open_direct(file.path, os.O_RDONLY)
        try:
            while file.lacks(end) and not self._ended:
                block = self._held.pop((file.path, file.number), None)
                if block is None:
                    room = aligned(BLOCK_BYTES)
                    block = room[: read_into(descriptor, room, file.number * BLOCK_BYTES)]
                file.take(block)
        finally:
            os.close(descriptor)
        self._take_held(file)

    def _hear(self, file: _FileSoFar, number: int, block: memoryview) -> None:
        if number == file.number:
            file.take(block)
            self._take_held(file)
        elif number > file.number and len(self._held) < _MOST_HELD:
            self._held[file.path, number] = block

    def _take_held(self, file: _FileSoFar) -> None:
        while (block := self._held.pop((file.path, file.number), None)) is not None:
            file.take(block)

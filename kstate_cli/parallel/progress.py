"""How far worker processes are: a file of counters that all of them map."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.signals import now_and_then

_BYTES = 8
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter in a file of them."""

    file: Path
    number: int


class Progress:
    """Counts the bytes of one job; without a counter nobody looks."""

    def __init__(self, counter: Counter | None, total: int) -> None:
        self._total = total
        self._done = 0
        self._shared: mmap.mmap | None = None
        if counter is not None:
            self._at = counter.number * _BYTES
            with open(counter.file, "r+b") as file:
                self._shared = mmap.mmap(file.fileno(), 0)

    def add(self, size: int) -> None:
        """So many more bytes."""
        # Rows take more or fewer bytes than the SSTs that they are in: never past the end.
        self._done = min(self._done + size, self._total)
        self._write()

    def finished(self) -> None:
        """The job is done, however many bytes were counted."""
        self._done = self._total
        self._write()
        if self._shared is not None:
            self._shared.close()
            self._shared = None

    def _write(self) -> None:
        if self._shared is not None:
            self._shared[self._at : self._at + _BYTES] = self._done.to_bytes(_BYTES, "little")


class Counters:
    """The counters of all jobs."""

    def __init__(self, file: Path, count: int) -> None:
        self._file = file
        # A file to map must not be empty.
        file.write_bytes(bytes(_BYTES * max(1, count)))

    def counter(self, number: int) -> Counter:
        """The counter of one job."""
        return Counter(self._file, number)

    def done(self) -> int:
        """The sum of all counters."""
        data = self._file.read_bytes()
        return sum(int.from_bytes(data[at : at + _BYTES], "little") for at in range(0, len(data), _BYTES))


@contextmanager
def counted(scratch: Path, jobs: int, at: Callable[[int], None]) -> Iterator[Counters]:
    """The counters of so many jobs, in the folder ``scratch``; ``at`` gets their sum now and then, from a thread."""
    counters = Counters(scratch / "counters", jobs)
    with now_and_then(lambda: at(counters.done()), _LOOK_SECONDS):
        yield counters


def leave_everything_in(scratch: Path) -> None:
    """From now on this worker process makes what is temporary in the folder ``scratch``, which its parent removes.

    So nothing is left of it, at whatever moment it is killed.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)

"""Own standard input, output and error, so that no file gets their descriptors and no result is lost silently.

A shell may start a command with any of the three closed (``2>&-``). The next file that is opened gets that number. If
it were ``.lock``, a message would be written into it, and closing "standard error" would drop the lock.

*Results* (standard output) that cannot be written in full end the command with :class:`OutputLost`, which is never
exit code 0. *Messages* (standard error) that cannot be written are dropped: they change neither the work nor its exit
code.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import threading
from typing import Any, TextIO

from kstate_cli.errors import OutputLost

_INPUT, _OUTPUT, _MESSAGES = 0, 1, 2
_CLOSED = {
    _INPUT: os.O_RDONLY,
    # For reading: a write fails, as for a closed descriptor.
    _OUTPUT: os.O_RDONLY,
    _MESSAGES: os.O_WRONLY,
}
"""Flags for /dev/null in place of a closed descriptor."""
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK)
_MOST_WAITING = 1 << 16
_AT_ONCE = select.PIPE_BUF
"""Bytes that a pipe, socket or terminal takes without blocking after poll reports it writable (POSIX)."""


def reserve() -> None:
    """Open closed descriptors of 0 to 2, so that no file of kstate gets their numbers."""
    for number, mode in _CLOSED.items():
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, mode)  # the lowest that is free: all below are open
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)


class _Descriptor(io.RawIOBase):
    """Keep the bytes that are written to it, and write them to the descriptor in full, each once, or raise.

    A handler of a signal may raise in the middle of a write. The bytes that were not written by then are still here,
    and none is written twice: an ``error`` of ``-o json`` follows the end of a line.

    Why not the streams of Python: a pipe that does not block makes them raise BlockingIOError, and an OSError of theirs
    looks like that of a file of the state directory. A subclass of ``io.FileIO`` that only converts the error loses
    count: CPython may run a handler after the call of ``write``, before its result is stored. In 352 of 400 runs that a
    signal ended, a pipe then had lines twice; here in none. Signals blocked around each write cost 100 µs a line with
    PYTHONUNBUFFERED, against 11 µs (200,000 lines of 99 bytes into a pipe, CPython 3.11, 2 cores).
    """

    def __init__(self, number: int, most: int) -> None:
        self._number = number
        self._most = most
        self._now: tuple[bytearray, list[int]] = bytearray(), []
        """The pending bytes, and the counts of those that were written. One assignment replaces both, because a signal
        may raise between any two."""
        self._lock = threading.RLock()
        """A progress bar writes messages from its own thread."""
        self.dropping = False
        """Whether to drop everything, because the process ends."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return 1 or 2."""
        return self._number

    def isatty(self) -> bool:
        """Return whether the descriptor is a terminal."""
        return os.isatty(self._number)

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Keep the bytes, and write them once there are ``most``. Raise as ``flush``."""
        with self._lock:
            waiting, _ = self._now
            waiting += data
            if len(waiting) >= self._most:
                self.flush()
        return len(data)

    def flush(self) -> None:
        """Write all pending bytes, or call :meth:`failed`."""
        with self._lock:
            waiting, counts = self._now
            at_once = _AT_ONCE if waiting and not _is_file(self._number) else _MOST_WAITING
            while sum(counts) < len(waiting) and not self.dropping:
                self._write(at_once)
                waiting, counts = self._now
            if not self.dropping:
                self._now = bytearray(), []

    def _write(self, at_once: int) -> None:
        # Wait here, where a signal may raise: the write itself then never blocks.
        _wait_for(self._number)
        waiting, counts = self._now
        written_bytes = sum(counts)
        counts = [written_bytes]
        self._now = waiting, counts
        try:
            # One call of C code that writes and stores the count: a handler of a signal runs before or after both.
            # CPython runs handlers between instructions of Python only, and test_standard_streams.py checks it.
            counts.extend(map(os.write, (self._number,), (waiting[written_bytes : written_bytes + at_once],)))
        except OSError as error:
            if error.errno not in _AGAIN:
                self._now = bytearray(), []
                self.failed(error)

    def failed(self, error: OSError) -> None:
        """Handle an error of a write."""
        raise NotImplementedError


class _Results(_Descriptor):
    def failed(self, error: OSError) -> None:
        raise OutputLost(error) from error


class _Messages(_Descriptor):
    def failed(self, error: OSError) -> None:
        """Drop the message. The next one is tried again: a disk may have space by then."""


def _is_file(number: int) -> bool:
    return stat.S_ISREG(os.fstat(number).st_mode)


def _wait_for(number: int) -> None:
    # poll and not select: a descriptor above 1023 would overflow the set of select.
    waiting = select.poll()
    waiting.register(number, select.POLLOUT)
    waiting.poll()


def take_over() -> None:
    """Replace ``sys.stdout`` and ``sys.stderr``, unless a caller has replaced them already."""
    # Before any file is opened: it would get the number of a closed stream.
    reserve()
    # Tests and the demo capture standard output by replacing it: theirs must stay.
    if sys.stdout is sys.__stdout__:
        unbuffered = bool(getattr(sys.stdout, "write_through", False))  # PYTHONUNBUFFERED
        sys.stdout = _text(_Results(_OUTPUT, 0 if unbuffered else _MOST_WAITING), sys.stdout)
    if sys.stderr is sys.__stderr__:
        # Unbuffered: a message that a kill loses is one that the user needs.
        sys.stderr = _text(_Messages(_MESSAGES, 0), sys.stderr)


def _text(raw: _Descriptor, before: TextIO | None) -> TextIO:
    binary: Any = raw
    return io.TextIOWrapper(
        binary,
        encoding=before.encoding if before is not None else "utf-8",
        # A character that the encoding lacks is printed as its number, instead of an error.
        errors="backslashreplace",
        # Pending bytes are kept by the descriptor alone: the wrapper would lose them at a signal, or write them twice.
        write_through=True,
        line_buffering=raw.isatty(),
    )


def as_data() -> None:
    """Make standard output UTF-8 in every locale, for formats that programs read: an escape would change the data.

    A terminal keeps its encoding.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")


def showable(text: str) -> str:
    """Return the text as standard output will print it, to measure its width."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def finish() -> None:
    """Write the remaining results. Raise OutputLost."""
    sys.stdout.flush()


def give_up() -> None:
    """Drop pending bytes when the process ends: Python would try to write them once more, and fail."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, _Descriptor):
            # Another thread, such as that of a progress bar, may be in the middle of a write.
            raw.dropping = True

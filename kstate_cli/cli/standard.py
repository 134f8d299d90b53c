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
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TextIO

from kstate_cli.errors import OutputLost

_INPUT, _OUTPUT, _MESSAGES = 0, 1, 2
_CLOSED = {
    _INPUT: os.O_RDONLY,
    # Opened for reading, so that a write fails, as for a closed descriptor.
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
        """Write at most ``at_once`` of the bytes that wait, and note how many were written."""
        # This waits until the write cannot block, since a signal may raise only here.
        _wait_for(self._number)
        waiting, counts = self._now
        written_bytes = sum(counts)
        counts = [written_bytes]
        self._now = waiting, counts
        try:
            # One call of C code both writes and stores the count. CPython runs handlers of signals only between
            # instructions of Python, so a handler never runs between the two (test_standard_streams.py checks it).
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


_ERASE: Final = "\x1b[K"
"""Erases the rest of the line on every terminal that is not dumb (ECMA-48)."""


class TransientLine:
    """The last line of a terminal, which shows what takes long until something else is printed there.

    Both standard streams may be that terminal, so each hides the line before it writes (:class:`_Screen`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Its thread draws the line, and the thread of a command or of a bar hides it."""
        self._is_shown = False
        self._last_print = 0.0

    def show(self, text: str, silence: float) -> None:
        """Draw the line, if nothing was printed for ``silence`` seconds. The text must be safe for a terminal."""
        with self._lock:
            # A bar, or lines that scroll, show already that the command works.
            if time.monotonic() - self._last_print >= silence:
                self._is_shown = True
                self._write(f"\r{text}{_ERASE}")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the line, and draw none in the block, which may print. Afterwards the silence starts again."""
        with self._lock:
            if self._is_shown:
                self._is_shown = False
                self._write(f"\r{_ERASE}")
            self._last_print = time.monotonic()
            yield

    def remove(self) -> None:
        """Remove the line, and start the silence again."""
        with self.hidden():
            pass

    def _write(self, text: str) -> None:
        # Tests, and a live bar of rich, replace the stream: theirs do not know of the line.
        stream = sys.stderr
        if isinstance(stream, _Screen):
            stream.write_line(text)
        else:
            stream.write(text)
        stream.flush()


transient_line: Final = TransientLine()
"""That of the process: it has one terminal."""


class _Screen(io.TextIOWrapper):
    """A standard stream that is a terminal. A pipe keeps the class of Python: queries write millions of rows."""

    def write(self, text: str, /) -> int:
        """Write, after the line about what takes long is removed."""
        with transient_line.hidden():
            return super().write(text)

    def write_line(self, text: str) -> None:
        """Write the line about what takes long, or its removal."""
        super().write(text)


def _text(raw: _Descriptor, before: TextIO | None) -> TextIO:
    """Return the stream of text that writes to a descriptor, in the encoding of the stream ``before`` it."""
    binary: Any = raw
    wrapper: type[io.TextIOWrapper] = io.TextIOWrapper
    if raw.isatty():
        wrapper = _Screen
    return wrapper(
        binary,
        encoding=before.encoding if before is not None else "utf-8",
        # A character that the encoding lacks is printed as its number, instead of an error.
        errors="backslashreplace",
        # The wrapper keeps no bytes back: at a signal it would lose them, or write them twice.
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

"""Standard input, output and error: descriptors that are never anything else, and nothing that gets lost in silence.

A shell may start a command with any of the three closed (``2>&-``). The next file that is opened gets that number: were
it ``.lock``, a message would be written into it, and who closes "standard error" would drop the lock. And Python's own
streams raise wherever something cannot be written: in the middle of a run, for a message.

So two rules. *Results* (standard output) that cannot be written in full end the command with :class:`OutputLost`, which
is never exit code 0. *Messages* (standard error) that cannot be written are dropped: they change neither the work nor
its exit code.
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
    # For reading: what is written there fails, as it does for a closed descriptor.
    _OUTPUT: os.O_RDONLY,
    _MESSAGES: os.O_WRONLY,
}
"""How /dev/null is opened in place of a descriptor that is closed."""
_AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK)
_MOST_WAITING = 1 << 16
_AT_ONCE = select.PIPE_BUF
"""So many bytes a pipe, a socket or a terminal takes without waiting, once poll says that it takes any."""


def reserve() -> None:
    """Opens what of the descriptors 0 to 2 is closed, so that no file of ours gets their numbers."""
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
        """What waits, and how much of its beginning is written. Changed in one step each, so that a signal, which may
        be raised between any two, leaves what is true."""
        self._lock = threading.RLock()
        """A progress that draws itself writes messages in a thread of its own."""
        self.dropping = False
        """Nothing more can be told."""

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """1 or 2."""
        return self._number

    def isatty(self) -> bool:
        """Whether somebody looks at it."""
        return os.isatty(self._number)

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Takes all of it, and writes once there are ``most`` bytes. Raises as ``flush``."""
        with self._lock:
            waiting, _ = self._now
            waiting += data
            if len(waiting) >= self._most:
                self.flush()
        return len(data)

    def flush(self) -> None:
        """Writes all that waits, or leaves it to :meth:`failed`."""
        with self._lock:
            waiting, counts = self._now
            at_once = _AT_ONCE if waiting and not _is_file(self._number) else _MOST_WAITING
            while sum(counts) < len(waiting) and not self.dropping:
                self._write(at_once)
                waiting, counts = self._now
            if not self.dropping:
                self._now = bytearray(), []

    def _write(self, at_once: int) -> None:
        _wait_for(self._number)  # what is taken at once does not wait
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
        """What becomes of data that cannot be written."""
        raise NotImplementedError


class _Results(_Descriptor):
    def failed(self, error: OSError) -> None:
        raise OutputLost(error) from error


class _Messages(_Descriptor):
    def failed(self, error: OSError) -> None:
        """It is dropped. The next message is tried again: a disk may have room by then."""


def _is_file(number: int) -> bool:
    return stat.S_ISREG(os.fstat(number).st_mode)


def _wait_for(number: int) -> None:
    waiting = select.poll()
    waiting.register(number, select.POLLOUT)
    waiting.poll()


def take_over() -> None:
    """From now on ``sys.stdout`` and ``sys.stderr`` are as this module says; what somebody has put there stays."""
    reserve()
    if sys.stdout is sys.__stdout__:
        unbuffered = bool(getattr(sys.stdout, "write_through", False))  # PYTHONUNBUFFERED
        sys.stdout = _text(_Results(_OUTPUT, 0 if unbuffered else _MOST_WAITING), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(_MESSAGES, 0), sys.stderr)


def _text(raw: _Descriptor, before: TextIO | None) -> TextIO:
    binary: Any = raw
    return io.TextIOWrapper(
        binary,
        encoding=before.encoding if before is not None else "utf-8",
        # A character that the other end has no code for is shown by its number: that is no reason to fail.
        errors="backslashreplace",
        # What waits, waits in the descriptor: what a signal has parted the wrapper would forget, or give twice.
        write_through=True,
        line_buffering=raw.isatty(),
    )


def as_data() -> None:
    """Standard output becomes UTF-8, whatever the locale: for formats that programs read, where an escape is a lie.

    A terminal keeps its encoding.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.isatty():
        sys.stdout.reconfigure(encoding="utf-8")


def showable(text: str) -> str:
    """The text as standard output will show it, so that a table is as wide as it looks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def finish() -> None:
    """Writes out what is left of the results. Raises OutputLost."""
    sys.stdout.flush()


def give_up() -> None:
    """The process ends: what could not be written until now never will, and Python must not try again."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, _Descriptor):
            raw.dropping = True

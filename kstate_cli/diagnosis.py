"""A log of what a command read, which rules decided, and how long each part took: what a bug report attaches.

``KSTATE_LOG=FILE`` appends it to a file that only this user reads, ``kstate --debug`` writes it to standard error.
Modules log by :mod:`logging` under their own names; without either, nothing listens and no line is made.

Secrets stay out: every word of a line goes through :mod:`kstate_cli.redaction`, whoever wrote it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from kstate_cli import __version__
from kstate_cli.clock import utc_text
from kstate_cli.errors import UsageError
from kstate_cli.redaction import redacted

VARIABLE: Final = "KSTATE_LOG"
"""Names the file."""
_ROOT: Final = logging.getLogger("kstate_cli")
_LINE: Final = "%(asctime)s %(process)d %(name)s: %(message)s"
_ONLY_OWNER: Final = 0o600
_BEGAN: Final = time.monotonic()


def begin(file: str, arguments: Sequence[str]) -> None:
    """Append the log of this process to a file; ``arguments`` are those of the command.

    Raises UsageError if the file cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _ONLY_OWNER)
    except OSError as error:
        raise UsageError(
            f"the log {file} cannot be written: {error.strerror}",
            hint=f"have {VARIABLE} name a file in a directory that this user may write, or unset it",
        ) from None
    _listen(os.fdopen(descriptor, "a", buffering=1, encoding="utf-8", errors="backslashreplace"), arguments)


def to_standard_error(arguments: Sequence[str]) -> None:
    """Write the log of this process to standard error."""
    _listen(sys.stderr, arguments)


def ended(code: int) -> None:
    """Log the exit code of the command, and end the log."""
    _ROOT.debug("exit code %d after %.3f s", code, time.monotonic() - _BEGAN)
    for handler in list(_ROOT.handlers):
        _ROOT.removeHandler(handler)
        if isinstance(handler, logging.StreamHandler) and handler.stream is not sys.stderr:
            handler.stream.close()
    _ROOT.setLevel(logging.NOTSET)


def failed(error: BaseException) -> None:
    """Log an error with its traceback, whatever the user is shown of it."""
    _ROOT.debug("%s", type(error).__name__, exc_info=error)


@contextmanager
def timed(log: logging.Logger, action: str) -> Iterator[None]:
    """Log how long an action takes; also if it fails, with the error."""
    began = time.monotonic()
    try:
        yield
    except BaseException as error:
        log.debug("%s: %s after %.3f s: %s", action, type(error).__name__, time.monotonic() - began, error)
        raise
    log.debug("%s: %.3f s", action, time.monotonic() - began)


class _Redacting(logging.Formatter):
    """Lines without what may be a secret, in UTC."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's
        return utc_text(int(record.created * 1000))

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).replace("\n", "\n    ")
        return " ".join(redacted(text.split(" ")))


def _listen(stream: IO[str], arguments: Sequence[str]) -> None:
    import platform  # most commands log nothing

    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting(_LINE))
    _ROOT.addHandler(handler)
    _ROOT.setLevel(logging.DEBUG)
    _ROOT.propagate = False
    _ROOT.debug("kstate %s, Python %s, %s", __version__, platform.python_version(), platform.platform())
    _ROOT.debug("arguments: %s", " ".join(redacted(arguments)))

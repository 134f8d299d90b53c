"""A log of what a command read, which rules decided, and how long each part took: what a bug report attaches.

``KSTATE_LOG=FILE`` appends it to a file that only this user reads, ``option.DEBUG`` writes it to standard error.
Modules log by :mod:`logging` under their own names; without either, nothing listens and no line is made.

Secrets stay out: every word of a line goes through :func:`redacted`, also one of a library.

URIs and arguments exist without secrets for three purposes. Messages print where something is (:func:`shown_uri`). A
journal records a URI that leads there again, with credentials from elsewhere (:func:`kept_uri`). And it records the
arguments of the command (:func:`redacted`), with a placeholder for each secret.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Final

from kstate_cli import __version__
from kstate_cli.clock import utc_text
from kstate_cli.errors import UsageError

VARIABLE: Final = "KSTATE_LOG"
"""Names the file."""
_ROOT: Final = logging.getLogger("kstate_cli")
_LINE: Final = "%(asctime)s %(process)d %(name)s: %(message)s"
_ONLY_OWNER: Final = 0o600
# The import of this module is close to the start of the process, and cheaper to read than /proc.
_BEGAN: Final = time.monotonic()


def begin(file: str, arguments: Sequence[str]) -> None:
    """Append the log of this process to a file; ``arguments`` are those of the command.

    Raises UsageError if the file cannot be written.
    """
    try:
        # O_APPEND: several processes of kstate write to one log, and no line overwrites another one.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _ONLY_OWNER)
    except OSError as error:
        raise UsageError(
            f"kstate cannot write the log {file}: {error.strerror}",
            hint=(f"set {VARIABLE} to a file in a directory where this user may write, or unset the variable"),
        ) from None
    # Line buffered: what a killed command has logged is in the file.
    _listen(os.fdopen(descriptor, "a", buffering=1, encoding="utf-8", errors="backslashreplace"), arguments)


def to_standard_error(arguments: Sequence[str]) -> None:
    """Write the log of this process to standard error."""
    _listen(sys.stderr, arguments)


def ended(code: int) -> None:
    """Log the exit code of the command, and end the log."""
    _ROOT.debug("exit code %d after %.3f s", code, time.monotonic() - _BEGAN)
    # A copy: removing a handler changes the list.
    for handler in list(_ROOT.handlers):
        _ROOT.removeHandler(handler)
        # Standard error belongs to the process: the report of an error may still follow.
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
        # Continued lines are indented, so that each record begins in the first column.
        text = super().format(record).replace("\n", "\n    ")
        return " ".join(redacted(text.split(" ")))


def _listen(stream: IO[str], arguments: Sequence[str]) -> None:
    import platform  # most commands log nothing

    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Redacting(_LINE))
    _ROOT.addHandler(handler)
    _ROOT.setLevel(logging.DEBUG)
    # Libraries configure the root logger: records would be printed twice.
    _ROOT.propagate = False
    _ROOT.debug("kstate %s, Python %s, %s", __version__, platform.python_version(), platform.platform())
    _ROOT.debug("arguments: %s", " ".join(redacted(arguments)))


PLACEHOLDER: Final = "***"
"""Stands for a secret in recorded arguments: a command with it cannot be run again as it is."""
_MARK: Final = "://"
_QUERY: Final = re.compile(r"[?#]")
_USER: Final = re.compile(r"[^/?#:]*:")
_HOST_AND_PORT: Final = re.compile(r"[^/?#:]*:\d{1,5}(?=[/?#])")
_BUCKETS: Final = frozenset({"s3", "s3a", "s3n", "gs", "gcs"})
"""Schemes with a bucket where others have a host: a bucket has no port, so that a colon there is a user's."""
_CONTAINERS: Final = frozenset({"abfs", "abfss"})
"""Schemes with a container where others have a user: ``abfss://CONTAINER@ACCOUNT…/PATH`` is a place."""
# A list of what is harmless, not of what is secret: the names of future secrets are unknown.
_HARMLESS: Final = frozenset(
    {
        "allow_bucket_creation", "allow_bucket_deletion", "anonymous", "background_writes", "blob_storage_authority",
        "blob_storage_scheme", "buffer_size", "check_directory_existence_before_creation", "default_block_size",
        "default_bucket_location", "dfs_storage_authority", "dfs_storage_scheme", "endpoint_override",
        "force_virtual_addressing", "project_id", "region", "replication", "retry_limit_seconds", "scheme",
    }
)  # fmt: skip
"""Parameters of pyarrow's URIs that are none. What is not named here may be one, whatever it is called."""
# Any option, setting or variable whose name looks like a secret; all up to the end of the argument goes.
_ARGUMENT: Final = re.compile(
    r"(?is)((?:pass(?:word|wd|phrase)|secret|token|credential|jaas|sas|private|(?:api|access|account|keystore)[-_.]?key)"
    r"[^=\s]*=).*"
)


def shown_uri(uri: str) -> str:
    """Return a URI without user, password and query, for messages; a path unchanged."""
    scheme, mark, rest = uri.partition(_MARK)
    if not mark:
        return uri
    return scheme + mark + _QUERY.split(_without_user(scheme, rest), maxsplit=1)[0]


def kept_uri(uri: str) -> str:
    """Return a URI that leads to the same place: without user and password, with harmless parameters only."""
    scheme, mark, rest = uri.partition(_MARK)
    if not mark:
        return uri
    place, question, query = _without_user(scheme, rest).partition("#")[0].partition("?")
    harmless = "&".join(part for part in query.split("&") if part.partition("=")[0] in _HARMLESS)
    if not harmless:
        return scheme + mark + place
    return scheme + mark + place + question + harmless


def leads_there(uri: str) -> bool:
    """Return whether :func:`kept_uri` leads to the same place.

    It does not if a password might reach as far as an ``@`` in the path.
    """
    scheme, mark, rest = uri.partition(_MARK)
    place = _QUERY.split(rest, maxsplit=1)[0]
    authority, slash, path = place.partition("/")
    user, _, host = authority.rpartition("@")
    return not mark or _QUERY.split(_without_user(scheme, rest), maxsplit=1)[0] == (
        _container(scheme, user) + host + slash + path
    )


def redacted(arguments: Sequence[str]) -> list[str]:
    """Return arguments without possible secrets: user and password of a URI, its query, ``…secret…=VALUE``."""
    return [_redacted(argument) for argument in arguments]


def _redacted(argument: str) -> str:
    argument = _ARGUMENT.sub(rf"\g<1>{PLACEHOLDER}", argument)
    head, mark, rest = argument.partition(_MARK)
    if not mark:
        return argument
    # An argument may hold several URIs: all between the first and the last "@" goes.
    _, at, rest = rest.rpartition("@")
    place, *query = _QUERY.split(rest, maxsplit=1)
    text = head + mark
    if at:
        text += PLACEHOLDER + at
    text += place
    if query:
        # A query may carry a signature or a key under any name, so none of it is logged.
        text += f"?{PLACEHOLDER}"
    return text


def _without_user(scheme: str, rest: str) -> str:
    """Return the part of a URI after its scheme, without ``USER:PASSWORD@``.

    A password that was not escaped may contain every separator of a URI: behind ``USER:`` all up to the last ``@``
    counts as one. A path with an ``@`` loses a part then, which reveals nothing.
    """
    before, at, after = rest.rpartition("@")
    if at and _USER.match(before) and (scheme.lower() in _BUCKETS or not _HOST_AND_PORT.match(before)):
        return _container(scheme, before) + after
    end = len(re.split(r"[/?#]", rest, maxsplit=1)[0])
    user, _, host = rest[:end].rpartition("@")
    return _container(scheme, user) + host + rest[end:]


def _container(scheme: str, user: str) -> str:
    """Return the container before the host, with its ``@``; empty if a user stands there."""
    container = user.partition(":")[0]
    # Azure's URIs name the container there: without it the place would be another one.
    if container and scheme.lower() in _CONTAINERS:
        return f"{container}@"
    return ""

"""Errors of RocksDB as one exception. Only this module reads the words of RocksDB's messages.

The exceptions of rocksdict have no type. RocksDB states in English what has happened, and in which file. Here each
message becomes a code, and all other modules use the code.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kstate_cli import host
from kstate_cli.errors import KstateError
from kstate_cli.host import CANNOT, FULL, SHORT, HostError


class RocksError(Exception):
    """RocksDB cannot open, read or write a database.

    The message has paths of the real directory, not of a private copy.

    ``rocks_message`` is RocksDB's own message, None if kstate itself has detected the fault. ``names_database`` states
    whether the message contains the path of the database.
    """

    def __init__(
        self, message: str, rocks_message: RocksMessage | None = None, *, names_database: bool = False
    ) -> None:
        super().__init__(message)
        self.rocks_message = rocks_message
        self.names_database = names_database

    @property
    def code(self) -> RocksCode:
        """Return the code of the fault."""
        if self.rocks_message is None:
            return RocksCode.CORRUPT
        return self.rocks_message.code

    @property
    def plain(self) -> str:
        """Return the message on one line, without RocksDB's repetitions."""
        return plain(str(self))


def real(error: Exception, private: str, path: str, writes_in: str) -> RocksError | HostError:
    """Return the error about the database in ``path`` for an exception about its private copy in ``private``.

    Return HostError if the host is at fault: no space in ``writes_in``, no descriptors, no threads, no memory.
    """
    if (short := host.shortage(error)) is not None:
        return short
    text = str(error)
    message = error.rocks_message if isinstance(error, RocksError) else read_message(text)
    # RocksDB writes only in the private folder. So if a disk is full, it is that of the folder for temporary files.
    if message is not None and message.code is RocksCode.HOST and message.number is not None:
        return host.short_of(message.number, writes_in)
    names_database = private in text or (isinstance(error, RocksError) and error.names_database)
    # The message must have the path that the user knows. The private folder no longer exists when the user reads it.
    text = text.replace(private, path).strip() or type(error).__name__
    return RocksError(text, message, names_database=names_database)


def cannot_be_read(error: Exception) -> bool:
    """Return whether an error means that a file cannot be read: broken hardware, or no rights."""
    if isinstance(error, RocksError):
        return error.code is RocksCode.UNREADABLE
    return isinstance(error, OSError) and host.cannot_be_read(error)


@contextlib.contextmanager
def as_rocks_error() -> Iterator[None]:
    """Raise RocksError, with RocksDB's words, for each exception of rocksdict in the block.

    Errors of kstate and of the operating system pass unchanged. A signal is not an Exception, so it passes too.
    """
    try:
        yield
    # GeneratorExit is no error: it only means that a generator is closed early.
    except (RocksError, KstateError, GeneratorExit, OSError):
        raise
    except Exception as error:
        if (short := host.shortage(error)) is not None:
            raise short from None
        message = read_message(str(error))
        cause = None
        if message.code is RocksCode.HOST and message.number is not None:
            # The errno becomes the cause of the error, so that a later handler recognizes the shortage of this host.
            cause = OSError(message.number, os.strerror(message.number))
        raise RocksError(str(error).strip() or type(error).__name__, message) from cause


_FILE: Final = re.compile(r"\b(\d{6,}\.(?:sst|blob|log)|MANIFEST-\d+|CURRENT)\b")
_SIZES: Final = re.compile(r"(?:Expected|recorded in manifest) (\d+), actual size (\d+)")
_FORMAT: Final = re.compile(r"format_version: (\d+)")
_BLAMES_MANIFEST: Final = re.compile(r"\s*The file \S+ may be corrupted\.?\s*$")
_NEWER: Final = re.compile(r"unknown|unsupported|not supported|not implemented|newer version", re.IGNORECASE)
_NO_SUCH_FILE: Final = "No such file"
_SHORTER: Final = "too short"
_INVALID_ARGUMENT: Final = "Invalid argument: "
_PREFIXES: Final = ("Corruption: ", "IO error: ")


class RocksCode(Enum):
    """The kind of a fault."""

    HOST = auto()
    """A shortage of this host: no fault of the database."""
    UNREADABLE = auto()
    """The system denies the file or cannot read it: no rights, or broken hardware."""
    MISSING = auto()
    """A file does not exist."""
    TRUNCATED = auto()
    """A file has lost its end."""
    FORMAT = auto()
    """An SST has a ``format_version`` that this RocksDB does not support."""
    TOO_NEW = auto()
    """Another feature that this RocksDB does not support."""
    REJECTED = auto()
    """RocksDB rejects the way in which kstate opens the database: its contents may be whole."""
    OTHER_FOLDERS = auto()
    """SSTs are in other folders, which only the application names. RocksDB does not report it."""
    NO_SSTS = auto()
    """No SST exists here: it was removed, or is in another folder. RocksDB does not report it."""
    CORRUPT = auto()
    """Any other fault."""


@dataclass(frozen=True, slots=True)
class RocksMessage:
    """A message of RocksDB as facts."""

    code: RocksCode
    file: str | None
    """The name of the file in the message; None if it names none."""
    number: int | None = None
    """With ``HOST`` the errno, with ``FORMAT`` the ``format_version``."""


def read_message(message: str) -> RocksMessage:
    """Return the facts in a message. It must be as RocksDB wrote it: a replaced path could contain any of the words."""
    # If RocksDB cannot open an SST, its message also blames the MANIFEST, at the end. So the first name is the right
    # one.
    names = _FILE.findall(message)
    code, number = _meaning(message)
    return RocksMessage(code, names[0] if names else None, number)


def _meaning(message: str) -> tuple[RocksCode, int | None]:
    """Return the code for a message of RocksDB, and the errno or the format version that it names."""
    # The host comes first: its shortage says nothing about the database, whatever other words the message has.
    if (number := _errno_in(message, (*SHORT, *FULL))) is not None:
        return RocksCode.HOST, number
    if _errno_in(message, CANNOT) is not None:
        return RocksCode.UNREADABLE, None
    # RocksDB rejects the request and not the contents, even if the message names files.
    if message.startswith(_INVALID_ARGUMENT):
        return RocksCode.REJECTED, None
    sizes, version = _SIZES.search(message), _FORMAT.search(message)
    if _NO_SUCH_FILE in message:
        return RocksCode.MISSING, None
    if sizes and int(sizes[2]) >= int(sizes[1]):
        # The file is as long as or longer than the MANIFEST states. So nothing is cut off, but the contents are wrong.
        return RocksCode.CORRUPT, None
    if sizes or _SHORTER in message:
        return RocksCode.TRUNCATED, None
    if version:
        return RocksCode.FORMAT, int(version[1])
    if _NEWER.search(message):
        return RocksCode.TOO_NEW, None
    return RocksCode.CORRUPT, None


def _errno_in(message: str, numbers: tuple[int, ...]) -> int | None:
    """Return which of these errors of the system a message contains, in the system's words, behind a colon."""
    for number in numbers:
        if re.search(rf"(?:: |^){re.escape(os.strerror(number))}(?: \(os error \d+\))?(?=\s|$|\.)", message):
            return number
    return None


def plain(message: str) -> str:
    """Return a message of RocksDB on one line, without its repetitions."""
    line = " ".join(_BLAMES_MANIFEST.sub("", message).split())
    # Each layer of RocksDB that passes a status on adds the same prefix.
    for prefix in _PREFIXES:
        while line.startswith(prefix):
            line = line.removeprefix(prefix)
    return line

"""What goes wrong in RocksDB, as one exception of ours."""

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
    """RocksDB cannot open, read or write a database. The message names the file as it lies in the real directory.

    ``said`` is what RocksDB meant, None where kstate itself has found the database not to be as it should;
    ``names_database`` whether the message has the path of the database in it.
    """

    def __init__(self, message: str, said: RocksMessage | None = None, *, names_database: bool = False) -> None:
        super().__init__(message)
        self.said = said
        self.names_database = names_database

    @property
    def code(self) -> RocksCode:
        """What has happened."""
        return RocksCode.CORRUPT if self.said is None else self.said.code

    @property
    def plain(self) -> str:
        """The message on one line, without what RocksDB says twice."""
        return plain(str(self))


def real(error: Exception, private: str, path: str, writes_in: str) -> RocksError | HostError:
    """What an exception stands for of a database that is read through the folder ``private`` and lies at ``path``.

    HostError where it is none of the database's: no space in ``writes_in``, no descriptors, no threads, no memory.
    """
    if (short := host.shortage(error)) is not None:
        return short
    text = str(error)
    said = error.said if isinstance(error, RocksError) else read_message(text)
    if said is not None and said.code is RocksCode.HOST and said.number is not None:
        return host.short_of(said.number, writes_in)
    named = private in text or (isinstance(error, RocksError) and error.names_database)
    return RocksError(text.replace(private, path).strip() or type(error).__name__, said, names_database=named)


def cannot_be_read(error: Exception) -> bool:
    """Whether an error says that a file cannot be read: broken hardware, or no rights."""
    if isinstance(error, RocksError):
        return error.code is RocksCode.UNREADABLE
    return isinstance(error, OSError) and host.cannot_be_read(error)


@contextlib.contextmanager
def as_rocks_error() -> Iterator[None]:
    """rocksdict raises bare Exceptions; they become RocksError with RocksDB's own words.

    What is ours already stays what it is, and so does what the operating system says. A signal is no Exception.
    """
    try:
        yield
    except (RocksError, KstateError, GeneratorExit, OSError):
        raise
    except Exception as error:
        if (short := host.shortage(error)) is not None:
            raise short from None
        said = read_message(str(error))
        # A shortage of this host stays recognizable behind whatever this error becomes.
        number = said.number if said.code is RocksCode.HOST else None
        cause = None if number is None else OSError(number, os.strerror(number))
        raise RocksError(str(error).strip() or type(error).__name__, said) from cause


_FILE: Final = re.compile(r"\b(\d{6,}\.(?:sst|blob|log)|MANIFEST-\d+|CURRENT)\b")
_SIZES: Final = re.compile(r"(?:Expected|recorded in manifest) (\d+), actual size (\d+)")
_FORMAT: Final = re.compile(r"format_version: (\d+)")
_BLAMES_MANIFEST: Final = re.compile(r"\s*The file \S+ may be corrupted\.?\s*$")
_NEWER: Final = re.compile(r"unknown|unsupported|not supported|not implemented|newer version", re.IGNORECASE)
_GONE: Final = "No such file"
_SHORTER: Final = "too short"
_INVALID_ARGUMENT: Final = "Invalid argument: "
_PREFIXES: Final = ("Corruption: ", "IO error: ")


class RocksCode(Enum):
    """What has happened."""

    HOST = auto()
    """This host is short of something: it says nothing of the database."""
    UNREADABLE = auto()
    """The system does not give the file: broken hardware, or no rights."""
    MISSING = auto()
    """A file is not there."""
    TRUNCATED = auto()
    """A file has lost its end."""
    FORMAT = auto()
    """An SST says a ``format_version`` that this RocksDB does not know."""
    TOO_NEW = auto()
    """Something else that this RocksDB does not know."""
    REFUSED = auto()
    """RocksDB does not take the way in which kstate opens the database: that says nothing of what is in it."""
    OTHER_FOLDERS = auto()
    """SSTs are in other folders, which only the application names. RocksDB does not report it."""
    NO_SSTS = auto()
    """No SST exists here: it was removed, or is in another folder. RocksDB does not report it."""
    CORRUPT = auto()
    """Whatever else is wrong."""


@dataclass(frozen=True, slots=True)
class RocksMessage:
    """A message of RocksDB, read."""

    code: RocksCode
    file: str | None
    """The name of the file that it is about, where it names one."""
    number: int | None = None
    """With ``HOST`` the errno, with ``FORMAT`` the ``format_version``."""


def read_message(message: str) -> RocksMessage:
    """What a message means. It is read as RocksDB wrote it: names of directories may hold any words at all."""
    # Where an SST cannot be opened, RocksDB blames the MANIFEST too, at the end.
    names = _FILE.findall(message)
    code, number = _meaning(message)
    return RocksMessage(code, names[0] if names else None, number)


def _meaning(message: str) -> tuple[RocksCode, int | None]:
    if (number := _said(message, (*SHORT, *FULL))) is not None:
        return RocksCode.HOST, number
    if _said(message, CANNOT) is not None:
        return RocksCode.UNREADABLE, None
    if message.startswith(_INVALID_ARGUMENT):
        return RocksCode.REFUSED, None
    sizes, version = _SIZES.search(message), _FORMAT.search(message)
    if _GONE in message:
        return RocksCode.MISSING, None
    if sizes:
        return (RocksCode.TRUNCATED if int(sizes[2]) < int(sizes[1]) else RocksCode.CORRUPT), None
    if _SHORTER in message:
        return RocksCode.TRUNCATED, None
    if version:
        return RocksCode.FORMAT, int(version[1])
    return (RocksCode.TOO_NEW if _NEWER.search(message) else RocksCode.CORRUPT), None


def _said(message: str, numbers: tuple[int, ...]) -> int | None:
    """Which of these errors of the system is told: in the system's words, behind a colon."""
    for number in numbers:
        if re.search(rf"(?:: |^){re.escape(os.strerror(number))}(?: \(os error \d+\))?(?=\s|$|\.)", message):
            return number
    return None


def plain(message: str) -> str:
    """A message of RocksDB on one line, without what it says twice."""
    line = " ".join(_BLAMES_MANIFEST.sub("", message).split())
    for prefix in _PREFIXES:
        while line.startswith(prefix):
            line = line.removeprefix(prefix)
    return line

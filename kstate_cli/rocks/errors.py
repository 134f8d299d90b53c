"""What goes wrong in RocksDB, as one exception of ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from kstate_cli import host
from kstate_cli.errors import KstateError
from kstate_cli.host import HostError
from kstate_cli.rocks.messages import RocksCode, RocksMessage, plain, read_message


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

"""What goes wrong in RocksDB, as one exception of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kstate_cli.errors import KstateError


class RocksError(Exception):
    """RocksDB cannot open, read or write a database. The message names the file as it lies in the real directory."""


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
        raise RocksError(str(error).strip() or type(error).__name__) from None

"""Errors of the system that say which file they are about."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """What fails in here is told with ``path`` where it names no file: a write only knows its descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def file_of(error: OSError) -> str | None:
    """The file that an error names; None where it names none."""
    return os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes, os.PathLike)) else None

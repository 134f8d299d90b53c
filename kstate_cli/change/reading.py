"""Within ``reading()`` a PermissionError is Refused: what may not be read is neither damaged nor lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kstate_cli.access import access_hint
from kstate_cli.errors import Refused


@contextmanager
def reading() -> Iterator[None]:
    """Within it things are only looked at. Raises Refused in place of PermissionError."""
    try:
        yield
    except PermissionError as error:
        raise Refused(f"{error.filename} cannot be read: {error.strerror}", hint=access_hint(error.filename)) from None

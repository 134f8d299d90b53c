"""What goes wrong while rows of a store are looked for and read."""

from __future__ import annotations

from pathlib import Path

from kstate_cli.errors import KstateError, UsageError
from kstate_cli.host import STORES_STAY, cannot_be_read
from kstate_cli.texts import command


class UnknownStateStoreError(UsageError):
    """No task here has a store of that name (``UnknownStateStoreException``)."""


class StoreUnreadable(KstateError):
    """A store cannot be read: damaged, open in another process, of a kind that its bytes leave open. Names the file.

    Before the first row it is a failure STORE_EXCEPTION; after it, the iterator raises it.
    """

    exit_code = 6


class SerdeError(KstateError):
    """A key cannot be written, or a key or value cannot be read, by the serde that was named for it."""

    exit_code = 4


def look_closer(app: Path, *messages: str) -> str:
    """What to do about a store that cannot be read, as a hint; ``messages`` say why, where that is known."""
    if any(map(cannot_be_read, messages)):
        return STORES_STAY
    return f"see which files are damaged: {command('verify', app)}"

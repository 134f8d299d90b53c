"""The errors of finding a store and reading its rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from kstate_cli.errors import KstateError, UsageError
from kstate_cli.host import STORES_STAY
from kstate_cli.texts import command


class UnknownStateStoreError(UsageError):
    """No task in the directory has a store with that name (``UnknownStateStoreException``)."""

    code = "unknown-store"


class StoreUnreadable(KstateError):
    """kstate cannot read a store, because it is damaged, is open in another process, or has an unknown kind.

    Before the first row, a query reports it as the failure STORE_EXCEPTION. Later the iterator of its rows raises it.
    """

    exit_code = 6
    code = "store-unreadable"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        hint_details: Sequence[str] = (),
        by_host: bool = False,
        is_damage: bool = True,
    ) -> None:
        super().__init__(message, hint=hint, hint_details=hint_details)
        self.by_host = by_host
        """True if the disk does not answer, or rights are missing: this says nothing about the store."""
        self.is_damage = is_damage and not by_host
        """False if no file is damaged. Then the hint of this error applies, and ``verify`` would find nothing."""

    def on(self, side: str) -> StoreUnreadable:
        """Return the error of one of several stores, with the name of its side first."""
        return StoreUnreadable(
            f"{side}: {self.message}",
            hint=self.hint,
            hint_details=self.hint_details,
            by_host=self.by_host,
            is_damage=self.is_damage,
        )


class SerdeError(KstateError):
    """The requested serde cannot write a key, or it cannot read a key or a value."""

    exit_code = 4
    code = "serde"


Advice = tuple[str, tuple[str, ...]]
"""A hint and the lines below it, as errors have them."""


def own_advice(error: Exception) -> Advice | None:
    """Return the hint of an error that no damage has caused; None where `verify` has to show the cause."""
    if not isinstance(error, StoreUnreadable) or error.is_damage or error.by_host or error.hint is None:
        return None
    return error.hint, error.hint_details


def joined(advices: Iterable[Advice | None], usual: Advice) -> Advice:
    """Return the advice on several errors, each once; ``usual`` counts for an error without advice of its own."""
    (hint, details), *others = dict.fromkeys(usual if advice is None else advice for advice in advices)
    return hint, (*details, *(line for other, lines in others for line in (other, *lines)))


def look_closer(app: str | os.PathLike[str], *, by_host: bool = False) -> str:
    """Return the hint for an unreadable store; ``by_host`` as in :class:`StoreUnreadable`."""
    if by_host:
        return STORES_STAY
    return f"to see which files are damaged: {command('verify', app)}"

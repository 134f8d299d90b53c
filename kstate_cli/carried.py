"""What every further command about the same directory has to be told again, since this one was told.

``--lock-is-shared`` is what a user vouches for: that the application is stopped on every host. On such a file system
the next command refuses without it, so a line that is printed to be run next has it, wherever it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LOCK_IS_SHARED: Final = "--lock-is-shared"
TAKE_IT: Final = frozenset({"clean", "migrate", "restore", "undo", "wipe"})
"""The commands that have the option."""
_HELP: Final = "--help"

_given: set[str] = set()


def forget() -> None:
    """A command begins: it was told nothing yet."""
    _given.clear()


def carry_lock_is_shared(value: object) -> None:
    """The command was given the option, or was not."""
    if value is True:
        _given.add(LOCK_IS_SHARED)


def carried(words: Sequence[object]) -> list[str]:
    """The options that the words of a command line, which begin with its name, lack."""
    if not words or words[0] not in TAKE_IT or _HELP in words:
        return []
    return sorted(_given - set(map(str, words)))

"""What every further command about the same directory has to be told again, since this one was told.

``--lock-is-shared`` is what a user vouches for: that the application is stopped on every host. On such a file system
the next command refuses without it, so a line that is printed to be run next has it, wherever it is made. What the user
says of the application's stores, ``--transactional-stores``, the next command has to know as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

LOCK_IS_SHARED: Final = "--lock-is-shared"
TRANSACTIONAL_STORES: Final = "--transactional-stores"
TAKE_IT: Final = {
    LOCK_IS_SHARED: frozenset({"clean", "migrate", "rehome", "restore", "undo", "wipe"}),
    TRANSACTIONAL_STORES: frozenset({"check", "ls", "migrate", "restore"}),
}
"""Each option, and the commands that have it."""
UNPROVEN: Final = "--unproven"
"""That it may be written for a release that nobody has run. It is asked for each time: nothing carries it on."""
_HELP: Final = "--help"

_given: set[str] = set()


def forget() -> None:
    """A command begins: it was told nothing yet."""
    _given.clear()


def carry(option: str, value: object) -> None:
    """The command was given the option, or was not."""
    if value is True:
        _given.add(option)


def carried(words: Sequence[object]) -> list[str]:
    """The options that the words of a command line, which begin with its name, lack."""
    if not words or _HELP in words:
        return []
    return sorted(one for one in _given - set(map(str, words)) if words[0] in TAKE_IT[one])

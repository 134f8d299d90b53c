"""What is wrong with a dump."""

from __future__ import annotations

from typing import Final

from kstate_cli.errors import Refused

NOT_REACHED: Final = "see whether the place of the dump can be reached, and read by this user"
"""What to do about a file that the system does not give: that says nothing of what is in it."""


NEW_DUMP: Final = "take a new dump into an empty folder"
"""What to do about a dump with files that contradict it. Taking files out of a dump loses records: no hint says so."""
WHOLE_COPY: Final = "copy the dump again from where it is whole, manifests last, or take a new one into an empty folder"


class DumpError(Refused):
    """A dump is not what it says, or not what kstate can read. Nothing was touched (exit code 4)."""

    code = "dump"
    usual_hint = "take the dump again, or name another one"


def unreadable(path: str, error: object) -> DumpError:
    """What a file is told to be that the system does not give, or pyarrow makes nothing of."""
    return DumpError(f"the file cannot be read: {error}", where=printable(path), hint=NOT_REACHED)


def printable(text: str) -> str:
    """``text`` for a message: names in a dump may hold control characters, which are escaped."""
    return text if text.isprintable() else repr(text)

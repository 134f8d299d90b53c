"""One line of a journal: write it, and read it with every check that a damaged line could fail.

Version 2: a JSON object with ``schema_version``, ``n`` (its number in the journal, from 0), ``event``, ``at`` (ISO 8601
with an offset), the event's own members, and last ``sum``: the CRC-32 of the line without it, as eight hex digits. So a
line that was changed, lost, repeated or moved is noticed. Version 1 has neither ``n`` nor ``sum``; kstate can read it.
"""

from __future__ import annotations

import json
import re
import zlib
from datetime import datetime
from typing import Any, Final

from kstate_cli.formats.json_text import parse_json

SCHEMA: Final = 2
_SUM = re.compile(rb', "sum": "([0-9a-f]{8})"\}')
_SUM_BYTES = len(b', "sum": "01234567"}')

_OF_2: Final = frozenset({"n", "sum", "token"})
"""Members that only version 2 has."""

_MEMBERS: Final[dict[str, dict[str, type]]] = {
    "created": {"command": str},
    "failed": {"why": str},
    "state": {"state": str},
    "slices": {"stores": dict},
    "resumes": {"predecessor": str},
    "spent": {"seconds": dict},
}
"""Members that an event must have, in every version. Other members and other events are not checked here."""
_MEMBERS_OF_1: Final[dict[str, dict[str, type]]] = {
    "switching": {"old_inode": int, "new_inode": int, "fingerprint": dict}
}
_MEMBERS_OF_2: Final[dict[str, dict[str, type]]] = {
    "created": {"token": str, "app": str},
    "switching": {"kept": str, "made": str},
}


class JournalError(ValueError):
    """A line is not what kstate wrote there; the message says why."""


def encode_line(row: dict[str, Any], number: int) -> bytes:
    """Return the line of an event, with its newline. ``row`` has ``event`` and ``at``.

    Raise JournalError for a line that :func:`decode_line` would refuse: nothing is written that cannot be read.
    """
    body = json.dumps({"schema_version": SCHEMA, "n": number, **row}).encode()
    line = body[:-1] + b', "sum": "%08x"}' % zlib.crc32(body)
    decode_line(line, number)
    return line + b"\n"


def decode_line(line: bytes, number: int) -> dict[str, Any]:
    """Return the event of a line without its newline. Raise JournalError."""
    try:
        row = parse_json(line)
    except ValueError:
        raise JournalError("is not JSON") from None
    if not isinstance(row, dict):
        raise JournalError("is not an object")
    version = row.get("schema_version", 1)
    if type(version) is not int or version < 1:
        raise JournalError(f"has the schema_version {version!r}")
    if version > SCHEMA:
        raise JournalError(f"has schema_version {version}: a newer kstate wrote it")
    if version == SCHEMA or _OF_2 & row.keys():
        # The member that holds the version may itself be damaged.
        _check_sum(line)
        if version != SCHEMA:
            raise JournalError(f"has schema_version {version}, and members that only version {SCHEMA} has")
        if row.get("n") != number:
            raise JournalError(f"is line {row.get('n')!r} of the journal, at the place of line {number}")
    _check_members(row, version)
    return row


def _check_sum(line: bytes) -> None:
    check_sum = _SUM.fullmatch(line[-_SUM_BYTES:])
    if check_sum is None or int(check_sum[1], 16) != zlib.crc32(line[:-_SUM_BYTES] + b"}"):
        raise JournalError("has been changed: its checksum is another")


def _check_members(row: dict[str, Any], version: int) -> None:
    event = row.get("event")
    if not isinstance(event, str):
        raise JournalError("names no event")
    try:
        at = datetime.fromisoformat(str(row.get("at")))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise JournalError(f"has the time {row.get('at')!r}")
    also = _MEMBERS_OF_1 if version == 1 else _MEMBERS_OF_2
    for name, kind in {**_MEMBERS.get(event, {}), **also.get(event, {})}.items():
        if type(row.get(name)) is not kind:
            raise JournalError(f"{event} has {name} = {row.get(name)!r}")

"""What verify finds wrong, by code, and how RocksDB's messages become one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kstate_cli.host import cannot_be_read

CORRUPT: Final = "corrupt"
"""Bytes are not what was written: a checksum, a size, an order or a count does not hold."""
TRUNCATED: Final = "truncated"
"""The end of a file is gone."""
MISSING: Final = "missing"
"""A file that another one names is not there."""
UNDECODABLE: Final = "undecodable"
"""RocksDB reads the row, but its key or value is not what the store's kind writes."""
TOO_NEW: Final = "too-new"
"""Written by a RocksDB that this one does not understand."""
UNREADABLE: Final = "unreadable"
"""The file may not be read by this user, or the system cannot read it: of what is in it nothing is known."""
NOT_UNDERSTOOD: Final = "not-understood"
"""Nothing that Streams leaves in a store, or a setting with which verify cannot judge."""
IN_USE: Final = "in-use"
"""A running application changed it faster than it could be read."""

DAMAGE: Final = frozenset({CORRUPT, TRUNCATED, MISSING, UNDECODABLE})
"""Codes that say that something is wrong; the others say that it could not be told."""

_FILE: Final = re.compile(r"\b(\d{6,}\.(?:sst|blob|log)|MANIFEST-\d+|CURRENT)\b")
_SIZES: Final = re.compile(r"(?:Expected|recorded in manifest) (\d+), actual size (\d+)")
_FORMAT: Final = re.compile(r"format_version: (\d+)")
_BLAMES_MANIFEST: Final = re.compile(r"\s*The file \S+ may be corrupted\.?\s*$")
_NEWER: Final = re.compile(r"unknown|unsupported|not supported|not implemented|newer version", re.IGNORECASE)
_PLAUSIBLE_FORMAT: Final = 100
"""RocksDB has taken 13 years to come to 7: a greater number than this is a damaged one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: its code, the file as seen from the application directory, and what is wrong with it."""

    code: str
    file: str
    what: str


def sst_format_code(number: int) -> str:
    """The code of an SST whose ``format_version`` is greater than any that is known."""
    return TOO_NEW if number < _PLAUSIBLE_FORMAT else CORRUPT


def code_of(message: str) -> str:
    """The code that a message of RocksDB stands for."""
    if cannot_be_read(message):
        return UNREADABLE
    sizes, number = _SIZES.search(message), _FORMAT.search(message)
    if "No such file" in message:
        return MISSING
    if sizes:
        return TRUNCATED if int(sizes[2]) < int(sizes[1]) else CORRUPT
    if "too short" in message:
        return TRUNCATED
    if number:
        return sst_format_code(int(number[1]))
    return TOO_NEW if _NEWER.search(message) else CORRUPT


def file_in(message: str, otherwise: str) -> str:
    """The name of the file that a message of RocksDB is about."""
    # Where an SST cannot be opened, RocksDB blames the MANIFEST too, at the end.
    names = _FILE.findall(message)
    return names[0] if names else otherwise


def plain(message: str) -> str:
    """A message of RocksDB on one line, without what it says twice."""
    text = " ".join(_BLAMES_MANIFEST.sub("", message).split())
    for prefix in ("Corruption: ", "IO error: "):
        while text.startswith(prefix):
            text = text.removeprefix(prefix)
    return text

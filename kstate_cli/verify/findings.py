"""What verify finds wrong, by code, and how RocksDB's errors become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli.rocks.errors import RocksCode, RocksError
from kstate_cli.rocks.files import is_never_changed
from kstate_cli.statedir.places import Place

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
NO_SSTS: Final = "no-ssts"
"""No SST of a column family exists here: it was removed, or the application stores it in another folder."""
IN_USE: Final = "in-use"
"""A running application changed it faster than it could be read."""

DAMAGE: Final = frozenset({CORRUPT, TRUNCATED, MISSING, UNDECODABLE})
"""Codes that say that something is wrong; the others say that it could not be told."""

ALL_CODES: Final = (CORRUPT, TRUNCATED, MISSING, UNDECODABLE, TOO_NEW, UNREADABLE, NOT_UNDERSTOOD, NO_SSTS, IN_USE)
"""Every code."""

_PLAUSIBLE_FORMAT: Final = 100
"""RocksDB has taken 13 years to come to 7: a greater number than this is a damaged one."""


_CODES: Final = {
    RocksCode.HOST: UNREADABLE,
    RocksCode.UNREADABLE: UNREADABLE,
    RocksCode.MISSING: MISSING,
    RocksCode.TRUNCATED: TRUNCATED,
    RocksCode.TOO_NEW: TOO_NEW,
    RocksCode.REFUSED: NOT_UNDERSTOOD,
    RocksCode.OTHER_FOLDERS: NOT_UNDERSTOOD,
    RocksCode.NO_SSTS: NO_SSTS,
    RocksCode.CORRUPT: CORRUPT,
}


@dataclass(frozen=True, slots=True)
class VerifyFinding:
    """One thing that is wrong: its code, where it is, and what is wrong with it."""

    code: str
    place: Place
    what: str
    among: tuple[str, ...] = ()
    """It is in one of these files of the place, and nobody can tell in which."""

    @property
    def file(self) -> str:
        """Where it is, as seen from the application directory: for people."""
        return f"{self.place.text}/{','.join(self.among)}" if self.among else self.place.text

    def in_ssts_of(self, database: Place) -> bool:
        """Whether it is about the contents of SSTs or blob files of a database."""
        names = self.among or ((self.place.name,) if self.place != database else ())
        return bool(names) and all(map(is_never_changed, names))


def sst_format_code(number: int) -> str:
    """The code of an SST whose ``format_version`` is greater than any that is known."""
    return TOO_NEW if number < _PLAUSIBLE_FORMAT else CORRUPT


def code_of(error: RocksError) -> str:
    """The code that an error of RocksDB stands for."""
    if error.said is not None and error.said.number is not None and error.code is RocksCode.FORMAT:
        return sst_format_code(error.said.number)
    return _CODES.get(error.code, CORRUPT)

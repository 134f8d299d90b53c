"""What is wrong in a directory, as data: a code and a place. What is said of it is for people, and read by no code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kstate_cli.statedir.places import Place


class ProblemCode(Enum):
    """What a problem is, for whoever has to know."""

    # What a directory entry is.
    LINK = auto()
    """A symbolic link, where Streams makes none: what lies behind it is not looked at."""
    NOT_A_DIRECTORY = auto()
    """What is named like a task or a segment, and is something else."""
    NOT_A_FILE = auto()
    """A directory that is named like a file of offsets, or anything but a file in a database."""
    SPECIAL = auto()
    """Neither a file nor a directory, folders without an end, a small file far too large: it is not read at all."""
    UNREADABLE = auto()
    """This host cannot read it, or not for this user: nothing is known of it, and nothing follows for what is in it."""
    FOREIGN = auto()
    """Streams ignores it."""
    ILLEGAL_NAME = auto()
    """No store of Streams is named like this."""
    NO_SEGMENT = auto()
    """Among segments, and none by its name."""
    # Files of offsets and Positions.
    MALFORMED_OFFSETS = auto()
    """Streams does not read it either."""
    READING_FAILED = auto()
    """The system has answered with an error that says neither that it is damaged nor that it is not to be read."""
    NEGATIVE_PARTITION = auto()
    """Streams reads it, and no topic has such a partition."""
    DROPPED_LINE = auto()
    """Streams passes over it."""
    # Databases.
    NO_CURRENT = auto()
    """RocksDB would make a new database there."""
    NO_DATABASE = auto()
    """Files, but neither CURRENT nor a MANIFEST."""
    DOES_NOT_OPEN = auto()
    """RocksDB says so."""
    NOT_A_LONG = auto()
    """An offset in the column family ``offsets`` that Streams cannot deserialize."""
    FOREIGN_OFFSETS = auto()
    """Another row of the column family ``offsets`` that Streams has not written."""
    NO_MANIFEST = auto()
    """CURRENT names one that is not there."""
    TORN_MANIFEST = auto()
    """It ends in the middle of a record: RocksDB opens what was there before."""
    NO_OPTIONS = auto()
    """RocksDB writes it last when it makes a database."""
    MALFORMED_OPTIONS = auto()
    """It is not as RocksDB writes it."""
    FOREIGN_SETTING = auto()
    """OPTIONS has one that kstate does not handle."""
    FAMILIES_DISAGREE = auto()
    """OPTIONS names other column families than the MANIFEST."""
    UNKNOWN_FAMILY = auto()
    """A column family that no store of Streams has."""
    UNDER_WAY = auto()
    """A running application is making it, or dropping it: what it is will be known once that is done."""
    SST = auto()
    """An SST that is missing, cut off, damaged or too new."""
    SST_NOT_NAMED = auto()
    """An SST that no MANIFEST names, whole or begun: rows may be missing without a word."""


_HARMLESS: Final = frozenset(
    {ProblemCode.FOREIGN, ProblemCode.DROPPED_LINE, ProblemCode.UNDER_WAY, ProblemCode.SST_NOT_NAMED}
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the directory that Streams chokes on or that kstate does not understand."""

    code: ProblemCode
    place: Place
    what: str
    """What is wrong with it, for people."""
    rule: str
    """Why that is wrong, for people."""

    @property
    def fatal(self) -> bool:
        """Fatal problems are refused before a change; the others are warnings."""
        return self.code not in _HARMLESS

    @property
    def doubt(self) -> bool:
        """Rows may be missing without a word: no reader may call its answer whole. Only of problems not fatal."""
        return self.code is ProblemCode.SST_NOT_NAMED

    @property
    def text(self) -> str:
        """Where and what, for people."""
        return f"{self.place.text}: {self.what}"

    @property
    def reasoned(self) -> str:
        """Where, what and why, for people."""
        return f"{self.text} ({self.rule})"

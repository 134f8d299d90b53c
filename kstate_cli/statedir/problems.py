"""What is wrong in a directory, as data: a code and a place. What is said of it is for people, and read by no code."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.statedir.places import Place


class ProblemCode(Enum):
    """What a problem is, for whoever has to know. JSON has its value, which stays whatever it is called here."""

    # What a directory entry is.
    LINK = "link"
    """A symbolic link, where Streams makes none: what lies behind it is not looked at."""
    NOT_A_DIRECTORY = "not-a-directory"
    """What is named like a task or a segment, and is something else."""
    NOT_A_FILE = "not-a-file"
    """A directory that is named like a file of offsets, or anything but a file in a database."""
    SPECIAL = "special"
    """Neither a file nor a directory, folders without an end, a small file far too large: it is not read at all."""
    UNREADABLE = "unreadable"
    """This host cannot read it, or not for this user: nothing is known of it, and nothing follows for what is in it."""
    FOREIGN = "foreign"
    """Streams ignores it."""
    ILLEGAL_NAME = "illegal-name"
    """No store of Streams is named like this."""
    NO_SEGMENT = "no-segment"
    """Among segments, and none by its name."""
    # Files of offsets and Positions.
    MALFORMED_OFFSETS = "malformed-offsets"
    """Streams does not read it either."""
    READING_FAILED = "reading-failed"
    """The system has answered with an error that says neither that it is damaged nor that it is not to be read."""
    NEGATIVE_PARTITION = "negative-partition"
    """Streams reads it, and no topic has such a partition."""
    DROPPED_LINE = "dropped-line"
    """Streams passes over it."""
    # The application directory.
    ONLY_KEPT = "only-kept"
    """It has nothing left of what a run of kstate keeps."""
    # Databases.
    NO_CURRENT = "no-current"
    """RocksDB would make a new database there."""
    NO_DATABASE = "no-database"
    """Files, but neither CURRENT nor a MANIFEST."""
    DOES_NOT_OPEN = "does-not-open"
    """RocksDB says so."""
    NOT_OPENED_HERE = "not-opened-here"
    """kstate's RocksDB refuses it, and another one may open it: nothing follows for what is in it."""
    NOT_A_LONG = "not-a-long"
    """An offset in the column family ``offsets`` that Streams cannot deserialize."""
    FOREIGN_OFFSETS = "foreign-offsets"
    """Another row of the column family ``offsets`` that Streams has not written."""
    NO_MANIFEST = "no-manifest"
    """CURRENT names one that is not there."""
    TORN_MANIFEST = "torn-manifest"
    """It ends in the middle of a record: RocksDB opens what was there before."""
    NO_OPTIONS = "no-options"
    """RocksDB writes it last when it makes a database."""
    MALFORMED_OPTIONS = "malformed-options"
    """It is not as RocksDB writes it."""
    FOREIGN_SETTING = "foreign-setting"
    """OPTIONS has one that kstate does not handle."""
    NO_SSTS = "no-ssts"
    """The MANIFEST names SSTs, and none is here: they were removed, or the application stores them elsewhere."""
    FAMILIES_DISAGREE = "families-disagree"
    """OPTIONS names other column families than the MANIFEST."""
    UNKNOWN_FAMILY = "unknown-family"
    """A column family that no store of Streams has."""
    UNDER_WAY = "under-way"
    """A running application is making it, or dropping it: what it is will be known once that is done."""
    SST = "sst"
    """An SST that is missing, cut off, damaged or too new."""
    BLOB = "blob"
    """A blob file that is missing, or not in its size: RocksDB opens the database, and some of its rows do not come."""
    SST_NOT_NAMED = "sst-not-named"
    """An SST that no MANIFEST names, whole or begun: rows may be missing without a word."""


_HARMLESS: Final = frozenset(
    {
        ProblemCode.FOREIGN, ProblemCode.DROPPED_LINE, ProblemCode.ONLY_KEPT, ProblemCode.UNDER_WAY,
        ProblemCode.SST_NOT_NAMED,
    }
)  # fmt: skip

_UNKNOWN: Final = frozenset(
    {
        ProblemCode.LINK, ProblemCode.UNREADABLE, ProblemCode.NOT_OPENED_HERE, ProblemCode.FOREIGN_SETTING,
        ProblemCode.NOT_A_FILE, ProblemCode.UNKNOWN_FAMILY, ProblemCode.NO_SSTS,
    }
)  # fmt: skip

NOT_THERE: Final = frozenset({ProblemCode.NO_DATABASE, ProblemCode.NO_CURRENT, ProblemCode.NO_MANIFEST})
"""A database between its first file and CURRENT, and between the first file that is deleted and the last."""
NOT_WHOLE: Final = frozenset({ProblemCode.NO_OPTIONS, ProblemCode.FAMILIES_DISAGREE, ProblemCode.SST_NOT_NAMED})
"""Between CURRENT and the OPTIONS that name the last column family; and while an SST is written, before it is named."""
HALF_MADE: Final = NOT_THERE | NOT_WHOLE


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
    def unknown(self) -> bool:
        """Only kstate does not read it: Streams may, so nothing counts as missing, and nothing is replaced."""
        return self.code in _UNKNOWN

    @property
    def passing(self) -> bool:
        """Nothing is wrong: a running application is at work. Told, but no warning."""
        return self.code is ProblemCode.UNDER_WAY

    @property
    def half_made(self) -> bool:
        """What a running application is about to end, and what stays where it is killed in that moment."""
        return self.code in HALF_MADE

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

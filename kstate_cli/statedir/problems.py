"""The problems of a directory as data: a code and a place. Their texts are for people, and no code reads them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kstate_cli.statedir.places import Place


class ProblemCode(Enum):
    """The class of a problem. JSON has its value, which never changes."""

    # Directory entries.
    LINK = "link"
    """A symbolic link, where Streams makes none: kstate does not follow it."""
    NOT_A_DIRECTORY = "not-a-directory"
    """A file with the name of a task or a segment."""
    NOT_A_FILE = "not-a-file"
    """A directory with the name of a file of offsets, or anything but a file in a database."""
    SPECIAL = "special"
    """Neither a file nor a directory, endless folders, or a small file that is far too large: it is not read at all."""
    UNREADABLE = "unreadable"
    """This host, or this user, cannot read it: its content is unknown, and nothing follows for it."""
    FOREIGN = "foreign"
    """Streams ignores it."""
    ILLEGAL_NAME = "illegal-name"
    """No store of Streams has such a name."""
    NO_SEGMENT = "no-segment"
    """Among segments, and not a segment by its name."""
    # Files of offsets and Positions.
    MALFORMED_OFFSETS = "malformed-offsets"
    """Streams does not read it either."""
    READING_FAILED = "reading-failed"
    """The system returned an error that means neither damage nor missing rights."""
    NEGATIVE_PARTITION = "negative-partition"
    """Streams reads it, and no topic has such a partition."""
    DROPPED_LINE = "dropped-line"
    """Streams skips it."""
    # The application directory.
    ONLY_KEPT = "only-kept"
    """It has no files any more, and a run of kstate has a backup of them."""
    # Databases.
    NO_CURRENT = "no-current"
    """RocksDB would create a new database there."""
    NO_DATABASE = "no-database"
    """Files, but neither CURRENT nor a MANIFEST."""
    DOES_NOT_OPEN = "does-not-open"
    """RocksDB reports so."""
    NOT_OPENED_HERE = "not-opened-here"
    """kstate's RocksDB refuses it, and another version may open it: nothing follows for its content."""
    NOT_A_LONG = "not-a-long"
    """An offset in the column family ``offsets`` that Streams cannot deserialize."""
    FOREIGN_OFFSETS = "foreign-offsets"
    """Another row of the column family ``offsets`` that Streams has not written."""
    NO_MANIFEST = "no-manifest"
    """CURRENT names a MANIFEST that does not exist."""
    TORN_MANIFEST = "torn-manifest"
    """It ends in the middle of a record: RocksDB opens the state before it."""
    NO_OPTIONS = "no-options"
    """RocksDB writes it last when it creates a database."""
    MALFORMED_OPTIONS = "malformed-options"
    """RocksDB does not write such a file."""
    FOREIGN_SETTING = "foreign-setting"
    """OPTIONS has one that kstate does not handle."""
    NO_SSTS = "no-ssts"
    """The MANIFEST names SSTs, and none exists: they were removed, or the application stores them elsewhere."""
    FAMILIES_DISAGREE = "families-disagree"
    """OPTIONS names other column families than the MANIFEST."""
    UNKNOWN_FAMILY = "unknown-family"
    """A column family that no store of Streams has."""
    TWO_LAYOUTS = "two-layouts"
    """A store lies there as one database and as segments too: which of them the application opens is not known."""
    UNDER_WAY = "under-way"
    """A running application is creating or dropping it: its state is known once that ends."""
    SST = "sst"
    """An SST that is missing, cut off, damaged or too new."""
    BLOB = "blob"
    """A blob file that is missing or has another size: RocksDB opens the database, and cannot read some of its rows."""
    SST_NOT_NAMED = "sst-not-named"
    """An SST, complete or not, that no MANIFEST names: rows may be missing silently."""


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
        ProblemCode.TWO_LAYOUTS,
    }
)  # fmt: skip

UNOPENABLE: Final = frozenset({ProblemCode.NO_DATABASE, ProblemCode.NO_CURRENT, ProblemCode.NO_MANIFEST})
"""A database that is created, before its CURRENT is written, or that is dropped, after its first file was deleted."""
INCOMPLETE: Final = frozenset({ProblemCode.NO_OPTIONS, ProblemCode.FAMILIES_DISAGREE, ProblemCode.SST_NOT_NAMED})
"""Between CURRENT and the OPTIONS with the last column family; also an SST before the MANIFEST names it."""
TRANSIENT: Final = UNOPENABLE | INCOMPLETE
"""The codes that a healthy database has while RocksDB creates or drops it, or writes an SST."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An entry or content of the directory that Streams fails on, or that kstate does not understand."""

    code: ProblemCode
    place: Place
    description: str
    """The defect, for people: it follows the place in a sentence."""
    rule: str
    """The rule that it breaks, for people."""

    @property
    def fatal(self) -> bool:
        """True if kstate refuses a change because of it; the others are warnings."""
        return self.code not in _HARMLESS

    @property
    def unknown(self) -> bool:
        """True if only kstate cannot read it: Streams may, so nothing counts as missing, and nothing is replaced."""
        return self.code in _UNKNOWN

    @property
    def passing(self) -> bool:
        """True if nothing is wrong, because a running application is at work: it is reported, without a warning."""
        return self.code is ProblemCode.UNDER_WAY

    @property
    def transient(self) -> bool:
        """True for a state that a running application ends soon, and that stays if it is killed in that moment."""
        return self.code in TRANSIENT

    @property
    def doubt(self) -> bool:
        """True if rows may be missing silently, so that no answer is complete. Never of fatal problems."""
        return self.code is ProblemCode.SST_NOT_NAMED

    @property
    def text(self) -> str:
        """Place and description, for people."""
        return f"{self.place.text}: {self.description}"

    @property
    def reasoned(self) -> str:
        """Place, description and rule, for people."""
        return f"{self.text} ({self.rule})"

"""The problems of a directory as data, a code and a place: the task, the store, the file.

Their texts are for people, and no code reads them. Only this module makes the text of a place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import Final

from kstate_cli.formats.topic_partition import is_task, is_task_or_global, is_topology
from kstate_cli.statedir.names import ROCKSDB, is_offsets_file, store_folder


class ProblemCode(Enum):
    """The class of a problem. JSON has its value, which never changes."""

    # Directory entries.
    LINK = "link"
    """An entry is a symbolic link. Kafka Streams does not create links here, and kstate does not follow them."""
    NOT_A_DIRECTORY = "not-a-directory"
    """A file has the name of a task or a segment. Only a directory should have such a name."""
    NOT_A_FILE = "not-a-file"
    """An entry is not a file, although it is in a database or has the name of an offsets file."""
    SPECIAL = "special"
    """An entry is neither a file nor a directory, is nested too deeply, or is far larger than a file of its kind can
    be. kstate does not read it."""
    UNREADABLE = "unreadable"
    """kstate cannot read an entry on this host or as this user, so the contents are unknown."""
    FOREIGN = "foreign"
    """A file does not belong to Kafka Streams. Kafka Streams ignores it."""
    ILLEGAL_NAME = "illegal-name"
    """A folder has a name that a store cannot have."""
    NO_SEGMENT = "no-segment"
    """An entry next to the segments does not have the name of a segment."""
    # Files of offsets and Positions.
    MALFORMED_OFFSETS = "malformed-offsets"
    """An offsets file is malformed, so Kafka Streams cannot read it."""
    READING_FAILED = "reading-failed"
    """The operating system returned an error. Neither damage nor missing permissions caused it."""
    NEGATIVE_PARTITION = "negative-partition"
    """A line has a negative partition. Kafka Streams accepts this."""
    DROPPED_LINE = "dropped-line"
    """A line has a negative offset, so Kafka Streams skips the line."""
    # The application directory.
    ONLY_KEPT = "only-kept"
    """The directory is empty, but a kstate run has a backup of its files."""
    # Databases.
    NO_CURRENT = "no-current"
    """A database has no CURRENT file, so RocksDB would create an empty database in the same place."""
    NO_DATABASE = "no-database"
    """A folder contains files, but neither CURRENT nor a MANIFEST."""
    DOES_NOT_OPEN = "does-not-open"
    """RocksDB cannot open the database."""
    NOT_OPENED_HERE = "not-opened-here"
    """kstate's RocksDB version cannot open the database, but a different version may be able to."""
    NOT_A_LONG = "not-a-long"
    """Kafka Streams cannot deserialize an offset in the column family ``offsets``."""
    FOREIGN_OFFSETS = "foreign-offsets"
    """The column family ``offsets`` contains a row that Kafka Streams did not write."""
    NO_MANIFEST = "no-manifest"
    """CURRENT refers to a MANIFEST that does not exist."""
    TORN_MANIFEST = "torn-manifest"
    """The MANIFEST ends in the middle of a record, so RocksDB opens an earlier state."""
    NO_OPTIONS = "no-options"
    """The database has no OPTIONS file. When RocksDB creates a database, it writes this file last."""
    MALFORMED_OPTIONS = "malformed-options"
    """The OPTIONS file has a format that RocksDB never writes."""
    FOREIGN_SETTING = "foreign-setting"
    """The OPTIONS file contains a setting that kstate does not support."""
    NO_SSTS = "no-ssts"
    """None of the SSTs listed in the MANIFEST exists. Either they were removed, or the application stores
    them elsewhere."""
    FAMILIES_DISAGREE = "families-disagree"
    """The OPTIONS file and the MANIFEST contain different column families."""
    UNKNOWN_FAMILY = "unknown-family"
    """The database has a column family that Kafka Streams does not use."""
    TWO_LAYOUTS = "two-layouts"
    """A store exists both as a single database and as segments. kstate cannot determine which of the two is in use."""
    UNDER_WAY = "under-way"
    """A running application is currently creating or dropping the database."""
    SST = "sst"
    """An SST is missing, truncated, damaged or too new."""
    BLOB = "blob"
    """A blob file is missing or has the wrong size. RocksDB can open the database, but cannot read some rows."""
    SST_NOT_NAMED = "sst-not-named"
    """An SST is not listed in the MANIFEST, so rows may be silently missing."""


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
"""The state of a database before its CURRENT is written, or after its first file was deleted."""
INCOMPLETE: Final = frozenset({ProblemCode.NO_OPTIONS, ProblemCode.FAMILIES_DISAGREE, ProblemCode.SST_NOT_NAMED})
"""The state of a database that has CURRENT, but not yet OPTIONS with its last column family.

Also that of an SST that the MANIFEST does not name yet.
"""
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
        """True if kstate cannot read it but Streams may: so nothing counts as missing, and nothing is replaced."""
        return self.code in _UNKNOWN

    @property
    def passing(self) -> bool:
        """True if nothing is wrong: a running application is at work. kstate reports it, but not as a warning."""
        return self.code is ProblemCode.UNDER_WAY

    @property
    def left_by_kill(self) -> bool:
        """True for a state that a running application soon ends.

        It becomes permanent if the application is killed then.
        """
        return self.code in TRANSIENT

    @property
    def doubt(self) -> bool:
        """True if rows may be missing silently, so that no answer about rows is complete.

        A fatal problem is never such.
        """
        return self.code is ProblemCode.SST_NOT_NAMED

    @property
    def text(self) -> str:
        """Place and description, for people."""
        return f"{self.place.text}: {self.description}"

    @property
    def reasoned(self) -> str:
        """Place, description and rule, for people."""
        return f"{self.text} ({self.rule})"


class Spelling(Enum):
    """The form of the text of a place."""

    PLAIN = auto()
    LAST_QUOTED = auto()
    """The last name as Python writes it, because Streams gives no such name."""
    QUOTED = auto()
    """All of it, for the same reason."""
    AND_BELOW = auto()
    """Anything below it."""


@dataclass(frozen=True, slots=True)
class StoreRef:
    """The folder of a store in the directory of its task: ``rocksdb/<name>``, or ``<name>`` of a segmented one."""

    name: str
    segmented: bool


@dataclass(frozen=True, slots=True)
class Place:
    """The names on the path from an application directory to an entry; empty for the directory itself.

    Code reads ``task``, ``store`` and ``name``, never the text.
    """

    names: tuple[str, ...] = ()
    spelling: Spelling = Spelling.PLAIN

    @classmethod
    def of(cls, app: Path, path: Path) -> Place:
        """Return the place of ``path``. Raise ValueError if it is not in ``app``."""
        return cls(path.relative_to(app).parts)

    def __truediv__(self, name: str) -> Place:
        """Return the place of the entry with that name in it."""
        return Place((*self.names, name))

    def spelled(self, spelling: Spelling) -> Place:
        """Return the same place with another form of text."""
        return replace(self, spelling=spelling)

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """For people: ``0_0/rocksdb/count/CURRENT``."""
        plain = "/".join(self.names) or "."
        if self.spelling is Spelling.QUOTED:
            return repr(plain)
        if self.spelling is Spelling.LAST_QUOTED:
            return "/".join((*self.names[:-1], repr(self.names[-1])))
        if self.spelling is Spelling.AND_BELOW:
            return f"{plain}/…"
        return plain

    @property
    def task(self) -> str | None:
        """The name of the task that it is or is in; None for an entry beside the tasks."""
        length = self._task_length
        if not length:
            return None
        return "/".join(self.names[:length])

    @property
    def in_task(self) -> tuple[str, ...]:
        """The names below its task; empty for a task itself, and for a place in no task."""
        length = self._task_length
        return self.names[length:] if length else ()

    @property
    def store(self) -> StoreRef | None:
        """The store whose folder, by its name, this is or is in. Such a store need not exist."""
        names = self.in_task
        if not names or is_offsets_file(names[0]):
            return None
        if names[0] != ROCKSDB:
            return StoreRef(names[0], segmented=True)
        # ``rocksdb`` itself contains all stores with one database, and is not a store.
        if len(names) == 1:
            return None
        return StoreRef(names[1], segmented=False)

    @property
    def name(self) -> str:
        """The last of the names; empty for the application directory."""
        return self.names[-1] if self.names else ""

    @property
    def hides_tasks(self) -> bool:
        """Whether a task may be hidden there: it has the name of a task, or belongs to the folder of a topology."""
        return bool(self.names) and (is_task_or_global(self.name) or is_topology(self.names[0]))

    @property
    def is_rocksdb_folder(self) -> bool:
        """Whether it is the folder ``rocksdb`` of a task, whose stores have one database each."""
        return self.in_task == (ROCKSDB,)

    def within(self, folder: Place) -> bool:
        """Return whether it is ``folder`` or in it."""
        return self.names[: len(folder.names)] == folder.names

    @property
    def _task_length(self) -> int:
        names = self.names
        if names and is_task_or_global(names[0]):
            return 1
        # A named topology adds a level: "__topology__/0_1" is one task.
        if len(names) > 1 and is_topology(names[0]) and is_task(names[1]):
            return 2
        return 0


def task_place(task: str) -> Place:
    """Return the directory of a task: ``0_1``, ``__topology__/0_1``, ``global``."""
    return Place(tuple(task.split("/")))


def store_place(task: str, store: str, *, segmented: bool) -> Place:
    """Return the folder of a store."""
    return Place((*task.split("/"), *store_folder(store, segmented=segmented).split("/")))


def both_places(task: str, store: str) -> tuple[Place, Place]:
    """Return the two possible folders of a store: as a segmented store, and as one database."""
    return store_place(task, store, segmented=True), store_place(task, store, segmented=False)

"""Problems of a directory, which Streams fails on or kstate does not understand, and notes that commands print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.formats.checkpoint import MALFORMED_FILE_MESSAGES
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_PUT_BACK = "move it out of the application directory, or restore the original entry"
_CHECK = f"to see how the next start treats it: {command('check', 'APP', '--for', 'RELEASE')}"
_VERIFY = f"to read all files: {command('verify', 'APP')}"
_REBUILD = (
    f"fill the store again from a dump: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)
_WIPE = f"or let the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}"
_DAMAGED = (_VERIFY, _REBUILD, _WIPE)
_KILLED = (
    "if the application was killed while it created or dropped the database, a migration can exclude its task: "
    + command("migrate", "APP", "--to", "RELEASE", "--unclean", "wipe")
)
_HALF_MADE = (*_DAMAGED, _KILLED)
_NOT_SET = "if it sets neither, let the next start restore the store: " + command(
    "wipe", "APP", "--task", "TASK", "--store", "STORE"
)
_OPENS = f"RocksDBStore.openDB: RocksDB has to open the directory ({see('rocksdb.md')})"

# The third text is what Streams prints: SILENT where it goes on and prints nothing, None where no message of its own
# belongs to the problem.
PROBLEMS: Final = {
    ProblemCode.LINK: Texts(
        "A symbolic link in a place where Streams creates none",
        "kstate follows no links below the application directory, because the target could belong to "
        "another application. It refuses a change.",
        SILENT,
        f"StateDirectory: tasks and stores are directories ({see('layout.md#paths')})",
        ("replace the link by the real file or folder",),
    ),
    ProblemCode.NOT_A_DIRECTORY: Texts(
        "An entry with the name of a task or a segment is not a directory",
        "Streams treats it as one, and fails when it opens it.",
        None,
        f"StateDirectory.getOrCreateDirectoryForTask ({see('layout.md#foreign-entries')})",
        (_PUT_BACK,),
    ),
    ProblemCode.NOT_A_FILE: Texts(
        "An entry that is not a file has the name of an offsets file, or is in a database",
        "kstate and Streams cannot read it as the file of its name.",
        None,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_PUT_BACK,),
    ),
    ProblemCode.SPECIAL: Texts(
        "A FIFO, a socket, a device, an endless folder tree, or a small file that is far too large",
        "kstate does not read it, because reading a FIFO would wait for ever.",
        None,
        None,
        (_PUT_BACK,),
    ),
    ProblemCode.UNREADABLE: Texts(
        "This user may not read it, or the disk does not return it",
        "kstate knows nothing about its contents: do not wipe the store for this reason.",
        None,
        None,
        # No command that changes the store: it may be healthy, and its rows would be replaced for a missing right.
        (CHECK_THE_DISK, "run the command as the user of the application"),
    ),
    ProblemCode.FOREIGN: Texts(
        "A file that Streams did not create",
        "Streams ignores it. A change carries it along, and a wipe of its task removes it.",
        SILENT,
        f"StateDirectory.taskDirIsEmpty ({see('layout.md#foreign-entries')})",
        ("do nothing, or move it out of the application directory",),
    ),
    ProblemCode.ILLEGAL_NAME: Texts(
        "A folder among the stores has a name that no store has",
        "Names of stores are letters, digits, dot, underscore and dash, 249 at most.",
        SILENT,
        f"Named.validate ({see('changelogs.md#topics')})",
        (_PUT_BACK,),
    ),
    ProblemCode.NO_SEGMENT: Texts(
        "The segments of a store have another entry among them",
        "Up to 4.2 it makes the store open silently without rows; 4.3 does not start.",
        (log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
        f"AbstractSegments.segmentIdFromSegmentName ({see('layout.md#foreign-entries')})",
        (_PUT_BACK,),
    ),
    ProblemCode.MALFORMED_OFFSETS: Texts(
        "A .checkpoint or a .position cannot be read, not even by Streams",
        "It is empty, cut off, or edited by hand.",
        MALFORMED_FILE_MESSAGES,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.READING_FAILED: Texts(
        "The operating system returned an error when kstate read the file",
        "The cause is neither damage nor missing rights.",
        None,
        None,
        (CHECK_THE_DISK,),
    ),
    ProblemCode.NEGATIVE_PARTITION: Texts(
        "A line of a file of offsets names a negative partition",
        "Streams reads the line, but no topic has such a partition: the file was edited.",
        SILENT,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.DROPPED_LINE: Texts(
        "A line of .checkpoint has a negative offset, and Streams skips it",
        "Streams treats the store as one without an offset.",
        (log.LINE_DROPPED,),
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.ONLY_KEPT: Texts(
        "The directory lost everything that a run of kstate has in its backup",
        "It was emptied after the run. The backup of the run may be the only copy, so clean keeps it.",
        None,
        None,
        (
            # Never clean: what the run keeps may be the only copy.
            f"to see the backup of each run, and how to restore it: {command('status', 'APP')}",
        ),
    ),
    ProblemCode.NO_CURRENT: Texts(
        "A database has lost its file CURRENT",
        "RocksDB treats it as a new database and creates an empty one, unless it has a write-ahead log.",
        (log.LOG_WITHOUT_CURRENT,),
        "DBImpl::Recover of RocksDB: create_if_missing",
        _HALF_MADE,
    ),
    ProblemCode.NO_DATABASE: Texts(
        "A folder of a store has files, but neither CURRENT nor a MANIFEST",
        "It is a partial copy, or does not belong to RocksDB.",
        None,
        _OPENS,
        _HALF_MADE,
    ),
    ProblemCode.DOES_NOT_OPEN: Texts(
        "RocksDB does not open the database",
        "The message comes from RocksDB, and names the file.",
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _DAMAGED,
    ),
    ProblemCode.NOT_OPENED_HERE: Texts(
        "The RocksDB of kstate cannot open the database here",
        "The RocksDB of the application may be able to open it. There is no sign of damage.",
        SILENT,
        _OPENS,
        # No restoration: the database may be healthy, and only too new for the RocksDB of kstate.
        ("leave this store unchanged", "a newer release of this tool may open it"),
    ),
    ProblemCode.NOT_A_LONG: Texts(
        "A stored offset does not have 8 bytes",
        "Streams cannot deserialize it, and 4.3 does not open the store.",
        (log.NOT_A_LONG,),
        f"AbstractColumnFamilyAccessor, LongDeserializer ({see('offsets.md#column-family')})",
        _DAMAGED,
    ),
    ProblemCode.FOREIGN_OFFSETS: Texts(
        "The column family of offsets has a row that Streams did not write",
        "Its key is not a topic and partition, or its Position is malformed.",
        None,
        f"AbstractColumnFamilyAccessor.commit ({see('offsets.md#column-family')})",
        _DAMAGED,
    ),
    ProblemCode.NO_MANIFEST: Texts(
        "CURRENT names a missing MANIFEST",
        "RocksDB does not know which files belong to the database.",
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _HALF_MADE,
    ),
    ProblemCode.TORN_MANIFEST: Texts(
        "The MANIFEST ends in the middle of a record",
        "RocksDB opens an earlier state: rows may be silently missing.",
        SILENT,
        f"VersionSet::Recover of RocksDB ({see('rocksdb.md#unreported-faults')})",
        _DAMAGED,
    ),
    ProblemCode.NO_OPTIONS: Texts(
        "A database has no OPTIONS file",
        "RocksDB writes it last when it creates a database. If the application is killed at that moment, "
        "the file is missing, and the settings of the database are unknown.",
        SILENT,
        f"RocksDB writes OPTIONS at every open ({see('rocksdb.md#options')})",
        (_CHECK, _REBUILD, _WIPE, _KILLED),
    ),
    ProblemCode.MALFORMED_OPTIONS: Texts(
        "RocksDB has not written the OPTIONS file in this form",
        "The settings of the database are unknown, so kstate does not write to it.",
        SILENT,
        f"RocksDB writes OPTIONS at every open ({see('rocksdb.md#options')})",
        _DAMAGED,
    ),
    ProblemCode.FOREIGN_SETTING: Texts(
        "The database has a setting that kstate does not handle",
        "A custom comparator or merge operator, files outside the store, an encrypted environment "
        "(rocksdb.config.setter). Without that setting, reading or writing would damage it.",
        SILENT,
        f"RocksDBConfigSetter ({see('rocksdb.md#options')})",
        # No rebuild either: kstate would create the database without the setting, and Streams could not read it.
        ("leave this store unchanged, for Streams",),
    ),
    ProblemCode.NO_SSTS: Texts(
        "No SST of the database is in its directory",
        "The application may store its SSTs in other folders: setDbPaths or setCfPaths in its rocksdb.config.setter. "
        "RocksDB records these folders in no file. If the application sets neither, the SSTs were removed.",
        (log.STORE_NOT_OPENED,),
        f"RocksDBConfigSetter ({see('rocksdb.md#options')})",
        # The question comes first: SSTs in other folders are healthy, and a wipe would lose them.
        ("if the application sets db_paths or cf_paths, leave this store unchanged", _NOT_SET),
    ),
    ProblemCode.TWO_LAYOUTS: Texts(
        "A store is in both of its possible places: rocksdb/NAME as one database, and NAME/ as segments",
        "The application opens one of them. If a store became a windowed store, or is no longer one, its "
        "old place remains. kstate cannot determine which one is in use, so it predicts nothing and "
        "refuses a change.",
        SILENT,
        f"RocksDBStore.openDB, AbstractSegments ({see('layout.md#paths')})",
        # Only the code of the application shows which place it opens, so a user has to decide.
        ("move the one that the application no longer uses out of the application directory",),
    ),
    ProblemCode.FAMILIES_DISAGREE: Texts(
        "OPTIONS names other column families than the MANIFEST",
        "One of the two is cut off, or was copied from another place.",
        SILENT,
        f"RocksDB keeps both equal ({see('rocksdb.md#options')})",
        _HALF_MADE,
    ),
    ProblemCode.UNKNOWN_FAMILY: Texts(
        "A column family that no store of Streams has",
        "Another program has written to the store, or a release that this kstate does not support.",
        (log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY),
        f"RocksDBStore.openRocksDB ({see('stores.md#column-families')})",
        ("use a newer kstate: it may support the release", _REBUILD),
    ),
    ProblemCode.UNDER_WAY: Texts(
        "A running application is creating or dropping it at this moment",
        "kstate can determine its kind after that.",
        None,
        None,
        ("run the command again",),
    ),
    ProblemCode.SST: Texts(
        "A file with rows is missing, cut off, damaged, or of an unknown format",
        "The MANIFEST names it, so RocksDB does not open the database. Up to 4.2 Streams silently skips a segment.",
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _DAMAGED,
    ),
    ProblemCode.BLOB: Texts(
        "A blob file with values is missing, or does not have the size that the MANIFEST names",
        "RocksDB opens the database, and fails when the application reads a row whose value is in that file.",
        SILENT,
        f"BlobSource::GetBlob of RocksDB ({see('rocksdb.md#options')})",
        _DAMAGED,
    ),
    ProblemCode.SST_NOT_NAMED: Texts(
        "The database has a file with rows that its MANIFEST does not name",
        "A crash leaves such files, and they are harmless. If the application did not crash, the MANIFEST "
        "has lost its end, and rows are silently missing. kstate permits a change nevertheless.",
        SILENT,
        f"VersionSet::Recover of RocksDB ({see('rocksdb.md#unreported-faults')})",
        # After a crash the file is expected: a restoration would replace a healthy store.
        (_VERIFY, f"if the application did not crash: {_REBUILD}"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """A note: parts of its sentence, in their order, and what it means."""

    parts: tuple[str, ...]
    """As the command prints them; names and numbers come between."""
    texts: Texts


_LS_SPEC = command("ls", "APP", "--spec")

# By the code under which ``kstate explain`` has them. Their commands print the parts.
NOTES: Final = {
    "no-position": Note(
        ("no changelog record carried a Position for",),
        Texts(
            "No record of the dump carried a Position: the restored stores begin with an empty one",
            "This affects only applications with bounded queries (IQv2, PositionBound): such a query fails "
            "with NOT_UP_TO_BOUND until new input arrives. Rows and offsets are complete. Kafka Streams' own "
            "restoration from a topic without Positions has the same result.",
            rule=f"StoreQueryUtils: the Position comes from the header c of changelog records ({see('changelogs.md')})",
            do=("without bounded queries, do nothing", "with bounded queries, send one record to each input partition"),
        ),
    ),
    "no-headers": Note(
        ("the dump has no record headers",),
        Texts(
            "The dump was written without record headers, so it has no Positions",
            "This affects only applications with bounded queries (IQv2, PositionBound), until new input "
            "arrives. Stores with headers cannot be restored from such a dump, and kstate refuses that.",
            do=("dump the topics with their headers: "
                + command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "DUMP"),),
        ),
    ),
    "rows-not-read": Note(
        ("kstate has not read the rows of the dump",),
        Texts(
            "The dry run has not read the rows, so the restoration may still refuse the dump",
            "kstate notices damaged bytes, and rows that do not fit their stores, only when it reads rows. The "
            "restoration would then change nothing.",
            do=("run the dry run without --no-verify-dump",),
        ),
    ),
    "topic-not-used": Note(
        ("but no store is restored from it",),
        Texts(
            "The dump has a topic that belongs to no store of this application or that you excluded",
            "It does not matter if the topic belongs to another application, or to a store that was removed.",
            do=("if the plan lacks a store, describe it in kstate.toml, and pass the file with --spec",),
        ),
    ),
    "in-memory": Note(
        ("is in memory: Streams restores it at every start",),
        Texts(
            "An in-memory store has no files: kstate restores nothing for it",
            "Every start of the application reads its changelog, before and after kstate.",
            do=("nothing",),
        ),
    ),
    "null-keys": Note(
        ("records without a key, which Streams skips too",),
        Texts(
            "The changelog has records without a key, which belong to no row",
            "Kafka Streams skips them when it restores, so the restored store is the same.",
            do=("if the topic is a changelog of Kafka Streams, find out what else writes to it",),
        ),
    ),
    "past-the-dump": Note(
        ("already past the dump",),
        Texts(
            "The store has everything that the dump has, so the restoration leaves it unchanged",
            "This is the usual state of a healthy store. If according to the note the log was cut or recreated, the "
            "store may hold the only copy of its records.",
            do=("if the log may have been recreated, compare with the broker: "
                + command("check", "APP", "--for", "RELEASE", "--bootstrap-server", "HOST:PORT"),),
        ),
    ),
    "as-of-last-flush": Note(
        ("as of", "last flush"),
        Texts(
            "The application is running: kstate shows the files of the last flush of RocksDB",
            "Rows and offsets that are still in the memory of the application are missing. This is normal.",
            do=("for the newest rows, stop the application, or query the application itself",),
        ),
    ),
    "not-logged": Note(
        ("kstate treats it as a store without logging",),
        Texts(
            "No offset is stored anywhere, so kstate treats the store as one without a changelog",
            "If the application calls withLoggingDisabled() for it, this is correct: its rows exist in this "
            "directory only. Otherwise set logged in the specification, or a restoration skips the store.",
            do=(f"if it has a changelog, set logged = true in the specification of: {_LS_SPEC}",),
        ),
    ),
    "kind-not-certain": Note(
        ("not certain from",),
        Texts(
            "The rows fit several kinds of store, or the store has no rows",
            "ls, verify and check do not need the kind. restore, query and export do, as soon as the store has rows.",
            do=(f"set kind in the specification: {_LS_SPEC}",),
        ),
    ),
    "retention-not-known": Note(
        ("the bytes do not show the history retention",),
        Texts(
            "The retention of a versioned store is in the application's code only",
            "Only restore needs it, to determine which versions are too old.",
            do=(f"set retention_ms to the historyRetention of the store, in the specification of: {_LS_SPEC}",),
        ),
    ),
    "source-not-known": Note(
        ("the bytes do not show whether it is a globalTable or from addGlobalStore",),
        Texts(
            "A global store may be filled by a globalTable, or by a processor of the application",
            "Only restore needs to know: only the rows of a globalTable are equal to the records of its topic.",
            do=(f'set source = "table" or "processor", in the specification of: {_LS_SPEC}',),
        ),
    ),
    "dump-never-verified": Note(
        ("dump verified: never",),
        Texts(
            "No command has read all files of this dump yet, so undetected damage is possible",
            "check compares offsets with the manifest, and needs no rows.",
            do=(f"read all files once, or a part each night: {command('verify-dump', 'DUMP')}",),
        ),
    ),
    "left-over": Note(
        ("left over, because no running application leaves it",),
        Texts(
            "A crash left a temporary file in a task directory",
            "Kafka Streams ignores it, and overwrites it the next time.",
            do=("nothing",),
        ),
    ),
    "segments-without-offset": Note(
        ("segments without an offset (", "while others have one"),
        Texts(
            "Some segments of the store were never flushed before the application was killed",
            "Rows may be missing from these segments. ls, query, export and diff exit with 1 for that reason.",
            rule=f"a Position or an offset holds only if every segment has reached it ({see('offsets.md')})",
            do=(f"to see how the next start treats it: {command('check', 'APP', '--for', 'RELEASE')}",),
        ),
    ),
    "unproven": Note(
        ("unproven: no test has started", "with state that was restored for it"),
        Texts(
            "No real application of this release has opened files that kstate writes for it",
            "kstate follows the rules of the previous release.",
            do=("try it on a copy first, and keep the backup until the application runs",),
        ),
    ),
}  # fmt: skip
"""Code -> note. ``tests/unit/cli/test_explained_texts.py`` finds the parts in the texts of the commands."""

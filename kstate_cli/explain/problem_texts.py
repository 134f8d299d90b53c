"""Problems of a directory, which Streams fails on or kstate does not understand, and notes that commands print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.formats.checkpoint import MALFORMED_FILE_MESSAGES
from kstate_cli.host import CHECK_THE_DISK
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_PUT_BACK = "restore the original entry or move this one out of the application directory"
_CHECK = f"to predict how the application will start: {command('check', 'APP', option.FOR, 'RELEASE')}"
_VERIFY = f"to check all files for damage: {command('verify', 'APP')}"
_REBUILD = (
    f"rebuild the store from a dump: {command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_WIPE = (
    "or let the application restore it when it starts: "
    f"{command('wipe', 'APP', option.TASK, 'TASK', option.STORE, 'STORE')}"
)
_DAMAGED = (_VERIFY, _REBUILD, _WIPE)
_KILLED = (
    "if the application was killed while creating or dropping the database, migrate without the store's task: "
    + command("migrate", "APP", option.TO, "RELEASE", option.UNCLEAN, "wipe")
)
_HALF_MADE = (*_DAMAGED, _KILLED)
_NOT_SET = "if the application sets neither, let it restore the store when it starts: " + command(
    "wipe", "APP", option.TASK, "TASK", option.STORE, "STORE"
)
_OPENS = f"RocksDBStore.openDB fails if RocksDB cannot open the directory ({see('rocksdb.md')})"

# The third text is what Streams prints: SILENT where it continues and prints nothing, None where no message of its own
# belongs to the problem.
PROBLEMS: Final = {
    ProblemCode.LINK: Texts(
        "The directory contains a symbolic link that Streams did not create",
        (
            "kstate refuses to change the directory. It does not follow links in an application directory, because "
            "their targets could belong to another application."
        ),
        SILENT,
        f"StateDirectory creates tasks and stores as directories ({see('layout.md#paths')})",
        ("replace the link with the real file or folder",),
    ),
    ProblemCode.NOT_A_DIRECTORY: Texts(
        "An entry has the name of a task or segment, but is not a directory",
        "Streams treats the entry as a directory and fails when it tries to open it.",
        None,
        f"StateDirectory.getOrCreateDirectoryForTask ({see('layout.md#foreign-entries')})",
        (_PUT_BACK,),
    ),
    ProblemCode.NOT_A_FILE: Texts(
        "An offsets file or database file is not a regular file",
        "Streams and kstate cannot read it.",
        None,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_PUT_BACK,),
    ),
    ProblemCode.SPECIAL: Texts(
        "An entry is a FIFO, a socket, a device, an endless folder tree, or a file of implausible size",
        "kstate does not read such an entry, because reading could block forever or exhaust the memory.",
        None,
        None,
        (_PUT_BACK,),
    ),
    ProblemCode.UNREADABLE: Texts(
        "This user is not allowed to read a file, or the disk reported an error",
        "The file may be intact, so do not wipe the store because of this problem.",
        None,
        None,
        # No command that changes the store: it may be healthy, and its rows would be replaced for a missing right.
        (CHECK_THE_DISK, "run the command as the application's user"),
    ),
    ProblemCode.FOREIGN: Texts(
        "The directory contains a file that Streams did not create",
        "Streams ignores the file. kstate keeps the file when it changes the directory, but removes it if you wipe "
        "its task.",
        SILENT,
        f"StateDirectory.taskDirIsEmpty ({see('layout.md#foreign-entries')})",
        ("ignore the file, or move it out of the application directory",),
    ),
    ProblemCode.ILLEGAL_NAME: Texts(
        "A folder next to the stores has a name that is not a valid store name",
        (
            "A store name has at most 249 characters: letters, digits, dots, underscores and dashes."
        ),
        SILENT,
        f"Named.validate ({see('changelogs.md#topics')})",
        (_PUT_BACK,),
    ),
    ProblemCode.NO_SEGMENT: Texts(
        "A window or session store contains an entry that is not a segment",
        "Releases up to 4.2 silently open the store without rows, and 4.3 fails to start.",
        (log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
        f"AbstractSegments.segmentIdFromSegmentName ({see('layout.md#foreign-entries')})",
        (_PUT_BACK,),
    ),
    ProblemCode.MALFORMED_OFFSETS: Texts(
        "A .checkpoint or .position file is malformed",
        "Neither Streams nor kstate can read it. The file is empty or truncated, or was edited by hand.",
        MALFORMED_FILE_MESSAGES,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.READING_FAILED: Texts(
        "The operating system reported an error while kstate was reading a file",
        "This user is allowed to read the file, and kstate has found no damage in its contents.",
        None,
        None,
        (CHECK_THE_DISK,),
    ),
    ProblemCode.NEGATIVE_PARTITION: Texts(
        "A line of an offsets file contains a negative partition",
        "Streams reads the line. Partition numbers are never negative, so the file must have been edited.",
        SILENT,
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.DROPPED_LINE: Texts(
        "A line in .checkpoint has a negative offset, so Streams skips it",
        "The store then has no offset.",
        (log.LINE_DROPPED,),
        f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})",
        (_CHECK,),
    ),
    ProblemCode.ONLY_KEPT: Texts(
        "All stores in a run's backup are missing from the directory",
        "The directory was emptied after the run. The backup may be the only copy of these stores, so `kstate "
        "clean` does not delete it.",
        None,
        None,
        (
            # Never clean: what the run keeps may be the only copy.
            f"to see each run's backup and how to restore it: {command('status', 'APP')}",
        ),
    ),
    ProblemCode.NO_CURRENT: Texts(
        "A database has no CURRENT file",
        (
            "RocksDB treats the folder as a new database. It creates an empty database there, unless the folder "
            "contains a write-ahead log."
        ),
        (log.LOG_WITHOUT_CURRENT,),
        "with create_if_missing, RocksDB's DBImpl::Recover creates a database",
        _HALF_MADE,
    ),
    ProblemCode.NO_DATABASE: Texts(
        "A store's folder has files, but neither CURRENT nor a MANIFEST",
        "The folder is an incomplete copy of a database, or RocksDB did not create it.",
        None,
        _OPENS,
        _HALF_MADE,
    ),
    ProblemCode.DOES_NOT_OPEN: Texts(
        "RocksDB cannot open the database",
        "The message contains RocksDB's error, which names the file.",
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _DAMAGED,
    ),
    ProblemCode.NOT_OPENED_HERE: Texts(
        "The RocksDB version that kstate uses cannot open the database",
        "The application's RocksDB version may be able to open it. kstate has found no damage.",
        SILENT,
        _OPENS,
        # No restoration: the database may be healthy, and only too new for the RocksDB of kstate.
        ("leave this store unchanged", "try a newer version of kstate, which may be able to open the store"),
    ),
    ProblemCode.NOT_A_LONG: Texts(
        "A stored offset is not 8 bytes long",
        "Streams cannot decode such an offset, so 4.3 fails to open the store.",
        (log.NOT_A_LONG,),
        f"AbstractColumnFamilyAccessor, LongDeserializer ({see('offsets.md#column-family')})",
        _DAMAGED,
    ),
    ProblemCode.FOREIGN_OFFSETS: Texts(
        'The column family "offsets" contains a row that Streams did not write',
        "The row's key is not a topic and partition, or the Position is malformed.",
        None,
        f"AbstractColumnFamilyAccessor.commit ({see('offsets.md#column-family')})",
        _DAMAGED,
    ),
    ProblemCode.NO_MANIFEST: Texts(
        "A database's CURRENT file names a MANIFEST that does not exist",
        "RocksDB does not know which files belong to the database.",
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _HALF_MADE,
    ),
    ProblemCode.TORN_MANIFEST: Texts(
        "A database's MANIFEST ends in the middle of a record",
        "RocksDB opens an earlier state of the database, so rows may be silently missing.",
        SILENT,
        f"VersionSet::Recover of RocksDB ({see('rocksdb.md#unreported-faults')})",
        _DAMAGED,
    ),
    ProblemCode.NO_OPTIONS: Texts(
        "A database has no OPTIONS file",
        (
            "RocksDB writes this file last when it creates a database. If the application was killed before that, "
            "the file is missing. Without it, kstate does not know the database's settings."
        ),
        SILENT,
        f"RocksDB writes OPTIONS whenever it opens a database ({see('rocksdb.md#options')})",
        (_CHECK, _REBUILD, _WIPE, _KILLED),
    ),
    ProblemCode.MALFORMED_OPTIONS: Texts(
        "A database's OPTIONS file is malformed",
        "kstate does not know the database's settings, so it does not write to this database.",
        SILENT,
        f"RocksDB writes OPTIONS whenever it opens a database ({see('rocksdb.md#options')})",
        _DAMAGED,
    ),
    ProblemCode.FOREIGN_SETTING: Texts(
        "A database has a setting that kstate does not support",
        (
            "The application's rocksdb.config.setter sets a custom comparator or merge operator, keeps files "
            "outside the store, or encrypts them. kstate does not have this setting, so it could misread or "
            "damage the database."
        ),
        SILENT,
        f"RocksDBConfigSetter ({see('rocksdb.md#options')})",
        # No rebuild either: kstate would create the database without the setting, and Streams could not read it.
        ("leave this store unchanged. Only Streams can use such a store",),
    ),
    ProblemCode.NO_SSTS: Texts(
        "A database's directory does not contain its SSTs",
        (
            "The application's rocksdb.config.setter may put the SSTs into other folders (setDbPaths, setCfPaths). "
            "RocksDB does not record these folders in a file. If the application does not use such folders, the "
            "SSTs were removed."
        ),
        (log.STORE_NOT_OPENED,),
        f"RocksDBConfigSetter ({see('rocksdb.md#options')})",
        # The question comes first: SSTs in other folders are healthy, and a wipe would lose them.
        ("if the application sets db_paths or cf_paths, leave this store unchanged", _NOT_SET),
    ),
    ProblemCode.TWO_LAYOUTS: Texts(
        "A store exists twice: as one database in rocksdb/NAME, and as segments in NAME/",
        (
            "The application uses only one of these directories. The other one is left over from before the store "
            "became a windowed store or stopped being one. kstate cannot determine which one the application uses, so "
            "it refuses to predict anything or to change the directory."
        ),
        SILENT,
        f"RocksDBStore.openDB, AbstractSegments ({see('layout.md#paths')})",
        # Only the code of the application shows which place it opens, so a user has to decide.
        ("move the obsolete one out of the application directory",),
    ),
    ProblemCode.FAMILIES_DISAGREE: Texts(
        "A database's OPTIONS file and MANIFEST list different column families",
        "One of the two files is truncated or was copied from elsewhere.",
        SILENT,
        f"RocksDB writes the same column families to both files ({see('rocksdb.md#options')})",
        _HALF_MADE,
    ),
    ProblemCode.UNKNOWN_FAMILY: Texts(
        "A database has a column family that Streams does not use",
        (
            "Either another program wrote to the store, or this version of kstate does not support the release "
            "that wrote it."
        ),
        (log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY),
        f"RocksDBStore.openRocksDB ({see('stores.md#column-families')})",
        ("use a newer version of kstate, which may support this release", _REBUILD),
    ),
    ProblemCode.UNDER_WAY: Texts(
        "The running application is currently creating or dropping a database",
        "Once that is done, kstate can determine the store's kind.",
        None,
        None,
        ("run the command again",),
    ),
    ProblemCode.SST: Texts(
        "A file with rows is missing, truncated or damaged, or has an unknown format",
        ("The MANIFEST lists the file, so RocksDB does not open the database. Up to 4.2, Streams silently skips a "
            "segment that RocksDB cannot open."),
        (log.STORE_NOT_OPENED,),
        _OPENS,
        _DAMAGED,
    ),
    ProblemCode.BLOB: Texts(
        "A blob file with values is missing, or its size differs from the MANIFEST",
        (
            "RocksDB still opens the database, but reports an error when the application reads a row whose value is in "
            "this file."
        ),
        SILENT,
        f"BlobSource::GetBlob of RocksDB ({see('rocksdb.md#options')})",
        _DAMAGED,
    ),
    ProblemCode.SST_NOT_NAMED: Texts(
        "A file in a database contains rows, but is not listed in the MANIFEST",
        (
            "A crash can leave such files behind. In that case, they are harmless. If the application did not crash, "
            "the MANIFEST is truncated, and rows are silently missing. kstate can change a directory that contains "
            "such files."
        ),
        SILENT,
        f"VersionSet::Recover of RocksDB ({see('rocksdb.md#unreported-faults')})",
        # After a crash the file is expected: a restoration would replace a healthy store.
        (_VERIFY, f"if the application did not crash, {_REBUILD}"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Note:
    """A note: parts of its sentence, in their order, and what it means."""

    parts: tuple[str, ...]
    """As the command prints them; names and numbers come between."""
    texts: Texts


_LS_SPEC = command("ls", "APP", option.SPEC)

# By the code under which ``kstate explain`` has them. Their commands print the parts.
NOTES: Final = {
    "no-position": Note(
        ("contain no Position, so",),
        Texts(
            "The dump's records have no Positions, so the restored stores start with an empty Position",
            (
                "Rows and offsets are complete. Only bounded queries (IQv2, PositionBound) are affected: they fail "
                "with NOT_UP_TO_BOUND until the application has read new input. The same happens when Kafka Streams "
                "restores a store from a topic without Positions."
            ),
            rule=f"StoreQueryUtils takes the Position from the header c of changelog records ({see('changelogs.md')})",
            do=("if the application does not use bounded queries, you do not have to do anything",
                "otherwise, send one record to each input partition"),
        ),
    ),
    "no-headers": Note(
        ("the dump has no record headers",),
        Texts(
            "The dump was written without record headers, so it has no Positions",
            (
                "Bounded queries (IQv2, PositionBound) fail until the application has read new input. kstate "
                "refuses to restore stores with record headers from such a dump."
            ),
            do=("dump the topics with their headers: "
                + command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.APP, "ID", option.OUT, "DUMP"),),
        ),
    ),
    "rows-not-read": Note(
        ("kstate has not read the rows of the dump",),
        Texts(
            "The dry run did not read the rows, so the restoration may still refuse the dump",
            (
                "To detect damaged bytes and rows that do not match their stores, kstate must read the rows. If it "
                "then refuses the dump, it changes nothing."
            ),
            do=(f"repeat the dry run without {option.NO_VERIFY_DUMP}",),
        ),
    ),
    "topic-not-used": Note(
        ("because it is not a changelog of this application",),
        Texts(
            "The dump contains a topic that does not belong to any store of this application",
            "If the topic belongs to another application or to a removed store, you do not have to do anything.",
            do=(
                f"if the plan lacks a store, describe it in kstate.toml and pass this file with {option.SPEC}",
            ),
        ),
    ),
    "in-memory": Note(
        ("because it is an in-memory store. Kafka Streams restores such stores every time it starts",),
        Texts(
            "An in-memory store has no files, so kstate does not restore it",
            "Streams reads the store's changelog whenever the application starts, with or without kstate.",
            do=("nothing",),
        ),
    ),
    "null-keys": Note(
        ("like Streams, kstate skipped",),
        Texts(
            "The changelog contains records without a key, which do not belong to any row",
            "Kafka Streams also skips these records when it restores a store, so both restore the same rows.",
            do=("find out which other program writes to this changelog",),
        ),
    ),
    "past-the-dump": Note(
        ("it is past the end of the dump",),
        Texts(
            "The store has all records from the dump, so kstate leaves it unchanged",
            (
                "This is normal if the application has run since the dump was taken. If the note mentions a "
                "truncated or recreated log, the store may be the only copy of its records."
            ),
            do=("if the log may have been recreated, compare the store with the broker: "
                + command("check", "APP", option.FOR, "RELEASE", option.BOOTSTRAP_SERVER, "HOST:PORT"),),
        ),
    ),
    "as-of-last-flush": Note(
        ("as of", "last flush"),
        Texts(
            "The application is running, so kstate reads the files as of the last RocksDB flush",
            "The output lacks rows and offsets that are still in the application's memory. This is normal.",
            do=("if you need the newest rows, stop the application, or query the application itself",),
        ),
    ),
    "not-logged": Note(
        ("so kstate treats it as a store without a changelog",),
        Texts(
            "kstate has found no offset for the store, so it assumes that the store has no changelog",
            (
                "This is correct if the application calls withLoggingDisabled() for the store. The rows then exist "
                "only in this directory. If the store does have a changelog, kstate restores it only once you set "
                "logged = true in the specification."
            ),
            do=((
                "if the store has a changelog, set logged = true in the specification that this command prints: "
                f"{_LS_SPEC}"
            ),),
        ),
    ),
    "kind-not-certain": Note(
        ("uncertain, because kstate inferred it from",),
        Texts(
            "The store's rows fit several kinds of store, or the store has no rows",
            (
                "To restore, query or export a store with rows, kstate must know the store's kind. The commands ls, "
                "verify and check do not need the kind."
            ),
            do=(f"set kind in the specification that this command prints: {_LS_SPEC}",),
        ),
    ),
    "retention-not-known": Note(
        ("the files do not show the history retention",),
        Texts(
            "Only the application's code contains the retention of a versioned store",
            "`kstate restore` needs the retention to determine which versions have expired. No other command needs it.",
            do=((
                "set retention_ms to the store's historyRetention in the specification that this command prints: "
                f"{_LS_SPEC}"
            ),),
        ),
    ),
    "source-not-known": Note(
        ("the files do not show whether it is a globalTable or comes from addGlobalStore",),
        Texts(
            "The files do not show whether a globalTable or the application's own processor fills a global store",
            (
                "Only `kstate restore` needs this information, because only a globalTable has the same rows as its "
                "topic."
            ),
            do=('set source to "table" or "processor" in the specification that this command prints: '
                + _LS_SPEC,),
        ),
    ),
    "dump-never-verified": Note(
        ("this dump has never been verified",),
        Texts(
            "No command has read every file in this dump yet, so some files may be damaged",
            "`kstate check` compares only offsets with the manifest and does not read the rows.",
            do=(f"verify all files at once, or a part of them each night: {command('verify-dump', 'DUMP')}",),
        ),
    ),
    "left-over": Note(
        ("is a leftover file. Kafka Streams ignores it",),
        Texts(
            "A crash left a temporary file in a task directory",
            "Kafka Streams ignores this file and overwrites it later.",
            do=("nothing",),
        ),
    ),
    "segments-without-offset": Note(
        ("some segments have no offset (", "but others do"),
        Texts(
            "The application was killed before RocksDB flushed some segments of the store",
            "These segments may lack rows, so the commands ls, query, export and diff exit with code 1.",
            rule=(
                "a store has reached a Position or an offset only if all its segments have reached it "
                f"({see('offsets.md')})"
            ),
            do=((f"to predict how the application will start: {command('check', 'APP', option.FOR, 'RELEASE')}"),),
        ),
    ),
    "unproven": Note(
        ("is unproven: no test has started it with state that kstate restored",),
        Texts(
            "No test has started an application of this release with files that kstate wrote",
            "kstate treats this release like the previous one.",
            do=("try the command on a copy first and keep the backup until the application is running well",),
        ),
    ),
}  # fmt: skip
"""Code -> note. ``tests/unit/cli/test_explained_texts.py`` finds the parts in the texts of the commands."""

"""Findings of ``check``: stores and files that the release does not open, or opens with other rows."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import MIGRATE, NOTHING, RESTORE, WIPE_STORE, WIPE_TASK, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.formats.checkpoint import MALFORMED_FILE_MESSAGES
from kstate_cli.texts import command

_STORE, _IS_CLOSED = log.SEGMENT_CLOSED
_CLOSED = f"{_STORE.removesuffix('.')} {_IS_CLOSED}"
_VERIFY = f"first, to see which files are damaged: {command('verify', 'APP')}"
_AGAIN = (
    f"then rebuild it from a dump: {command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_REBUILD = (
    f"or to rebuild it at once: {command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_LOOK = f"to see which stores exist: {command('ls', 'APP')}"

OFFSETS_IN_COLUMN_FAMILY: Final = FindingCode(
    "offsets-in-column-family",
    "4.3 or a later release has opened this store, and an older release cannot open it",
    level=Level.ERROR,
    more=(
        "Since 4.3, changelog offsets are in a separate column family of each RocksDB database. When 4.3 starts, it "
        "moves them there, even if startup fails or upgrade.from is set. RocksDB opens a database only with all of "
        "its column families. So releases up to 4.2 fail to start or silently open window and session stores "
        "without rows. No data is lost. A migration moves the offsets back to the files that the older release "
        "reads."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source=(
        "since KIP-1035, the column family offsets keeps releases up to 4.2 from opening a database, with or "
        "without upgrade.from ({page})"
    ),
    page="start.md#going-down",
    hint=MIGRATE,
)
SST_TOO_NEW: Final = FindingCode(
    "sst-too-new",
    "The RocksDB version of this release cannot read the format of an SST",
    level=Level.ERROR,
    more=(
        "4.0 and later releases write SSTs of format 6, but 3.9 and earlier releases read only formats up to 5. The "
        "rows are intact. A migration rewrites the SSTs in the older format."
    ),
    log=(log.STORE_NOT_OPENED, log.FORMAT_VERSION, _CLOSED),
    source="RocksDB up to 7.9.2 reads SST formats up to 5 ({page})",
    page="rocksdb.md#sst-formats",
    hint=MIGRATE,
)
HEADERS_STORE: Final = FindingCode(
    "headers-store",
    "The store has record headers, which the release does not support",
    level=Level.ERROR,
    more=(
        "4.3 opened the store with dsl.store.format=HEADERS or with a supplier of a store with headers. Older "
        "releases do not support such stores. A migration drops the headers and keeps keys, values and timestamps."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source="KIP-1271 added stores with record headers in 4.3, so releases up to 4.2 do not have them ({page})",
    page="start.md#going-down",
    hint=f"{MIGRATE} {option.DROP_HEADERS}",
)
UNKNOWN_COLUMN_FAMILY: Final = FindingCode(
    "unknown-column-family",
    "The store has a column family that Kafka Streams does not use",
    level=Level.ERROR,
    more=(
        "Either another program has written to the directory, or this version of kstate does not support the "
        "release that wrote it."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY, _CLOSED),
    source="RocksDBStore.openRocksDB opens only the column families of the kind of store ({page})",
    page="stores.md#column-families",
    hint=WIPE_STORE,
    do=("first find out which program created it, because a newer version of kstate may support it", _AGAIN),
)
UNKNOWN_KIND: Final = FindingCode(
    "unknown-kind",
    "The release does not support this kind of store",
    level=Level.WARNING,
    more=(
        "Versioned stores require 3.5, grace buffers 3.6, and on-window-close stores 3.3. An older release does not "
        "read the directory, and its topology cannot contain such a store."
    ),
    log=SILENT,
    source="a later release added this kind of store (kstate_cli/releases.py)",
    hint="start a release that supports this kind of store",
)
DOES_NOT_OPEN: Final = FindingCode(
    "does-not-open",
    "RocksDB cannot open the store or creates an empty one in its place",
    level=Level.ERROR,
    more=(
        "An SST that the MANIFEST lists is missing or truncated, CURRENT is missing, or the stored offset does not "
        "have 8 bytes. If CURRENT is missing and the directory has no write-ahead log, RocksDB silently creates an "
        "empty database. The old offset still exists, so Streams treats the empty store as complete."
    ),
    log=(log.STORE_NOT_OPENED, log.LOG_WITHOUT_CURRENT, log.NOT_A_LONG),
    source="RocksDBStore.openDB fails if RocksDB cannot open the directory",
    hint=WIPE_STORE,
    do=(_VERIFY, _AGAIN),
)
SEGMENT_DOES_NOT_OPEN: Final = FindingCode(
    "segment-does-not-open",
    "RocksDB cannot open a segment of a window or session store, and Streams opens the store without it",
    level=Level.ERROR,
    more=(
        "Releases up to 4.2 ignore the exception. They open the store without this segment and all later ones, but "
        "keep the offset of the store, so Streams does not restore the missing rows. From then on, queries and "
        "joins silently miss these rows. Startup fails only if Streams restores records into the segment."
    ),
    log=(_CLOSED,),
    source="AbstractSegments.openExisting swallows every exception up to 4.2 ({page})",
    page="start.md#going-down",
    hint=WIPE_STORE,
    do=(_VERIFY, _AGAIN),
)
SESSIONS_BEFORE_HEADERS: Final = FindingCode(
    "sessions-before-headers",
    "The release would misread on-window-close sessions that were written without headers",
    level=Level.ERROR,
    more=(
        "4.3.1 reads such rows as if headers came before the value. Startup succeeds, but the rows are wrong, and "
        "an error occurs only when the application reads one."
    ),
    log=(log.NOT_A_LONG,),
    source=(
        "RocksDBTimeOrderedSessionStoreWithHeaders of 4.3.1 prepends a zero byte to existing on-window-close "
        f'sessions (KIP-1285). Reading a number then fails with "{log.NOT_A_LONG}", and a text silently has '
        "another value"
    ),
    hint="leave dsl.store.format at DEFAULT. If you have started the store with HEADERS, wipe and restore it",
)
SST_NOT_NAMED: Final = FindingCode(
    "sst-not-named",
    "The store has a file with rows that its MANIFEST does not list",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "A crash can leave such files behind, partially written or already replaced, and RocksDB deletes them. If "
        "the application did not crash, the MANIFEST is truncated. Then RocksDB opens an older state of the store, "
        "and rows are silently missing."
    ),
    log=SILENT,
    source=(
        "VersionSet::Recover opens only the files that the MANIFEST lists. If the MANIFEST is truncated between two "
        "records, RocksDB opens an older state. After a crash, such files are harmless"
    ),
    hint=f"if the application did not crash, rebuild the store: {RESTORE} {option.REBUILD}",
    do=(_VERIFY,),
)
NOT_UNDERSTOOD: Final = FindingCode(
    "not-understood",
    "kstate does not recognize an entry of the directory, so it cannot predict startup",
    level=Level.ERROR,
    more=(
        "The entry is a link, a FIFO, a file in place of a folder, or a RocksDB database with unknown settings. "
        "kstate refuses to migrate or restore until you remove it."
    ),
    source=(
        "kstate does not follow links and predicts nothing about unknown entries. "
        "StateDirectory.getOrCreateDirectoryForTask requires that an entry with the name of a task is a directory"
    ),
    hint="restore the original entry. To see what is wrong: kstate ls APP",
)
MALFORMED_CHECKPOINT: Final = FindingCode(
    "malformed-checkpoint",
    "kstate cannot read a .checkpoint file",
    level=Level.ERROR,
    more=(
        "The file is empty or truncated, has another version, or was edited. Streams fails to start until you "
        "remove the file. 4.3 fails even if the task belongs to another instance. Without the file, the task has no "
        "offsets, so Streams wipes and restores it under exactly-once."
    ),
    log=(
        log.CHECKPOINT_NOT_LOADED,
        log.GLOBAL_CHECKPOINT_NOT_READ,
        log.CHECKPOINT_NOT_MIGRATED,
        *MALFORMED_FILE_MESSAGES,
    ),
    source="OffsetCheckpoint.read ({page})",
    page="offsets.md#checkpoint",
    hint=WIPE_TASK,
    do=(_REBUILD,),
)
MALFORMED_STORE_CHECKPOINT: Final = FindingCode(
    "malformed-store-checkpoint",
    "kstate cannot read a .checkpoint_STORE file",
    level=Level.ERROR,
    more=(
        "If a store cannot keep its offset itself, 4.3 keeps it in this file. Examples are grace buffers and custom "
        "stores. Streams fails to start until you remove the file."
    ),
    log=(log.STORE_CHECKPOINT_NOT_LOADED, *MALFORMED_FILE_MESSAGES),
    source="LegacyCheckpointingStateStore.init ({page})",
    page="start.md#first-start-of-43",
    hint=WIPE_TASK,
    do=(_REBUILD,),
)
MALFORMED_POSITION: Final = FindingCode(
    "malformed-position",
    "kstate cannot read a STORE.position file",
    level=Level.ERROR,
    more=(
        "The file records how far the store has read its input (IQv2). Damage to the file does not affect rows or "
        "offsets, but releases from 3.2 to 4.3 fail to start."
    ),
    log=(log.POSITION_NOT_READ, *MALFORMED_FILE_MESSAGES),
    source="StoreQueryUtils.readPositionFromCheckpoint ({page})",
    page="offsets.md#position-files",
    hint="remove the file. Streams then starts with an empty Position",
)
DROPPED_LINE: Final = FindingCode(
    "dropped-line",
    "A line of .checkpoint has a negative offset, and Streams skips the line",
    level=Level.WARNING,
    more="For Streams, the store then has no offset, so Streams wipes its task under exactly-once.",
    log=(log.LINE_DROPPED,),
    source="OffsetCheckpoint.read drops lines with a negative offset other than -4 ({page})",
    page="offsets.md#checkpoint",
    hint=RESTORE,
)
FOREIGN_IN_SEGMENTS: Final = FindingCode(
    "foreign-in-segments",
    "The folder of a window or session store contains an entry that is not a segment",
    level=Level.ERROR,
    more=(
        "The entry may be a backup, a folder of an editor, or a copied file. Releases up to 4.2 then open none of "
        "the segments, so the store is empty, but has the offset of a complete store. 4.3 fails to start."
    ),
    log=(log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
    source=(
        "AbstractSegments.segmentIdFromSegmentName cannot parse the name. Releases up to 4.2 then silently open an "
        "empty store, and 4.3 does not start ({page})"
    ),
    page="layout.md#foreign-entries",
    hint="move it out of the application directory",
    do=(_LOOK,),
)
FOREIGN_IN_TASK: Final = FindingCode(
    "foreign-in-task",
    "A task directory has a file that Streams did not create",
    level=Level.WARNING,
    more=(
        "Streams ignores the file itself. However, Streams does not treat a task with such a file as empty. If the "
        "task has no offsets, Streams wipes it with the file under exactly-once."
    ),
    log=SILENT,
    source=(
        "StateDirectory.taskDirIsEmpty returns false for a task with a foreign entry, so Streams wipes the task "
        "under exactly-once if it has no offset ({page})"
    ),
    page="layout.md#foreign-entries",
    hint="move it out of the application directory",
)
LOCK_FILE_IN_TASK: Final = FindingCode(
    "lock-file-in-task",
    "A task directory has a file whose name ends in .lock",
    level=Level.WARNING,
    more="Very old releases used such files to lock tasks. Streams deletes the file when it starts.",
    log=SILENT,
    source="StateDirectory.taskDirIsEmpty deletes files that end in .lock ({page})",
    page="layout.md#foreign-entries",
    hint="if you want to keep it, move it out of the application directory",
)
LEFTOVER_FILE: Final = FindingCode(
    "leftover-file",
    "A crash left a .tmp file",
    level=Level.EXPECTED,
    changes_at_close=True,
    more=(
        "Streams writes offsets to a .tmp file and then renames the file. The next commit overwrites the leftover file."
    ),
    log=SILENT,
    source="OffsetCheckpoint.write creates the file, and a crash prevents the rename ({page})",
    page="layout.md#paths",
    hint=NOTHING,
)
OLD_SEGMENT_NAME: Final = FindingCode(
    "old-segment-name",
    "A segment has a name from a very old release",
    level=Level.EXPECTED,
    more="The name contains a date or a colon. Streams renames the segment when it starts and keeps its rows.",
    log=SILENT,
    source="AbstractSegments.renameSegmentFile renames the segment at startup ({page})",
    page="layout.md#segments",
    hint=NOTHING,
)
SEGMENT_OFF_GRID: Final = FindingCode(
    "segment-off-grid",
    "The number in the name of a segment is not a multiple of the segment interval",
    level=Level.ERROR,
    more=(
        "Streams computes the name of a segment from the times of its rows. It never computes this name, so it does "
        "not open the directory, and the rows are silently missing. Either the retention or the segment interval "
        "was changed, or the directory was renamed."
    ),
    log=SILENT,
    source=(
        "AbstractSegments.segmentName computes only multiples of the segment interval, so Streams never opens a "
        "segment with another number ({page})"
    ),
    page="layout.md#segments",
    hint=f"rename the directory or wipe the store: {WIPE_STORE}",
    do=(_REBUILD,),
)
STORE_IN_TWO_SUBTOPOLOGIES: Final = FindingCode(
    "store-in-two-subtopologies",
    "Tasks of two sub-topologies contain the same store",
    level=Level.WARNING,
    more=(
        "One of the directories is a copy that has the name of a task, or a new topology has renumbered its "
        "sub-topologies. 4.3 opens every task directory and fails to start if the application has a global store."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "a store belongs to one sub-topology, unless a directory was copied or sub-topologies were renumbered ({page})"
    ),
    page="layout.md#foreign-entries",
    hint=f"to see which directory is obsolete, pass the topology: kstate check APP {option.FOR} STARTED "
    f"{option.TOPOLOGY} TOPOLOGY.txt",
    do=(_LOOK,),
)
SHARED_STORE_REGROUPED: Final = FindingCode(
    "shared-store-regrouped",
    "Several sub-topologies have copies of the same store",
    level=Level.WARNING,
    more=(
        "The suppliers of several processors return the same StoreBuilder. Some patch releases put these processors "
        "into separate sub-topologies. Each of these has a copy of the store, and all copies write to one "
        "changelog. 4.2.2 and 4.4.0 build one sub-topology with one store. Then the numbers of the tasks change, "
        "and Streams restores the stores that move. If you pass the texts of both topologies to rehome, it moves "
        "every other store. Streams restores the shared store, because none of its copies has all records."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "in some patch releases, InternalTopologyBuilder.addStateStore puts processors whose suppliers return one "
        "StoreBuilder into one sub-topology (KAFKA-20464; {page})"
    ),
    page="start.md#one-store-of-several-sub-topologies",
    hint=(
        "with each of the two releases, write the output of Topology#describe to a file, then run: kstate check APP "
        f"{option.FOR} STARTED {option.TOPOLOGY} AFTER.txt {option.FROM} BEFORE.txt"
    ),
    do=(_LOOK,),
)
FAILED_START_DELETES: Final = FindingCode(
    "failed-start-deletes",
    "Startup fails, and Streams deletes task directories",
    level=Level.WARNING,
    more=(
        "When a stream thread fails, it closes its tasks without flushing them. Under exactly-once, it also deletes "
        "their directories. Streams then restores all stores with a changelog from the beginning, and the other "
        "stores are lost. In a test, 4.2.1 deleted all tasks of a directory that 4.3 had written."
    ),
    log=SILENT,
    source=("StateManagerUtil.closeStateManager deletes a task that is not closed cleanly under exactly-once ({page})"),
    page="start.md#going-down",
    hint="fix the errors before you start the application",
)

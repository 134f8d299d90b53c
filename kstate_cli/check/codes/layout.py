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
_VERIFY = f"before that, see which files are damaged: {command('verify', 'APP')}"
_AGAIN = (
    "after that, rebuild the store from a dump: "
    f"{command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_REBUILD = (
    f"or rebuild the store now: {command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_LOOK = f"to see which stores exist: {command('ls', 'APP')}"

OFFSETS_IN_COLUMN_FAMILY: Final = FindingCode(
    "offsets-in-column-family",
    "4.3 or a later release has opened this store, so older releases cannot open it",
    level=Level.ERROR,
    more=(
        "Since 4.3, Streams keeps changelog offsets in a separate column family of each RocksDB database. 4.3 moves "
        "them there when it starts, even if startup fails or upgrade.from is set. RocksDB opens a database only with "
        "all of its column families. As a result, releases up to 4.2 either fail to start or silently open window and "
        "session stores without rows. No data is lost. A migration moves the offsets back to the files that the older "
        "release reads."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source=(
        'because of the column family "offsets" (KIP-1035), releases up to 4.2 cannot open the database, with or '
        "without upgrade.from ({page})"
    ),
    page="start.md#going-down",
    hint=MIGRATE,
)
SST_TOO_NEW: Final = FindingCode(
    "sst-too-new",
    "An SST has a format that this release's RocksDB version cannot read",
    level=Level.ERROR,
    more=(
        "Releases from 4.0 on write SSTs in format 6, but 3.9 and earlier releases can read only formats up to 5. The "
        "rows are intact. A migration rewrites the SSTs in the older format."
    ),
    log=(log.STORE_NOT_OPENED, log.FORMAT_VERSION, _CLOSED),
    source="RocksDB versions up to 7.9.2 read SST formats up to 5 ({page})",
    page="rocksdb.md#sst-formats",
    hint=MIGRATE,
)
HEADERS_STORE: Final = FindingCode(
    "headers-store",
    "The store has record headers, which this release does not support",
    level=Level.ERROR,
    more=(
        "Streams 4.3 opened the store with dsl.store.format=HEADERS or with a supplier for stores with headers. "
        "Older releases do not support such stores. A migration drops the headers and keeps keys, values and "
        "timestamps."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source="4.3 added stores with record headers (KIP-1271), so releases up to 4.2 do not have such stores ({page})",
    page="start.md#going-down",
    hint=f"{MIGRATE} {option.DROP_HEADERS}",
)
UNKNOWN_COLUMN_FAMILY: Final = FindingCode(
    "unknown-column-family",
    "The store has a column family that Kafka Streams does not use",
    level=Level.ERROR,
    more=(
        "Either another program wrote to the directory, or this version of kstate does not support the release that "
        "wrote it."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY, _CLOSED),
    source="RocksDBStore.openRocksDB opens only the column families that this kind of store has ({page})",
    page="stores.md#column-families",
    hint=WIPE_STORE,
    do=(
        "before that, find out which program created the column family. A newer version of kstate may support it",
        _AGAIN,
    ),
)
UNKNOWN_KIND: Final = FindingCode(
    "unknown-kind",
    "This release does not support this kind of store",
    level=Level.WARNING,
    more=(
        "Versioned stores require 3.5 or later, grace buffers 3.6, and on-window-close stores 3.3. With an older "
        "release, a topology cannot contain such a store, so the release ignores the directory."
    ),
    log=SILENT,
    source="a later release added this kind of store (kstate_cli/releases.py)",
    hint="start the application with a release that supports this kind of store",
)
DOES_NOT_OPEN: Final = FindingCode(
    "does-not-open",
    "RocksDB cannot open the store or creates an empty one in its place",
    level=Level.ERROR,
    more=(
        "An SST listed in the MANIFEST is missing or truncated, CURRENT is missing, or the stored offset is not 8 "
        "bytes long. If CURRENT is missing and the directory has no write-ahead log, RocksDB silently creates an "
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
        "Releases up to 4.2 ignore RocksDB's exception and open the store without this segment and all later ones. "
        "The store keeps its offset, so Streams does not restore the missing rows. From then on, queries and joins "
        "silently miss these rows. Startup fails only if Streams has to restore records into this segment."
    ),
    log=(_CLOSED,),
    source="up to 4.2, AbstractSegments.openExisting swallows every exception ({page})",
    page="start.md#going-down",
    hint=WIPE_STORE,
    do=(_VERIFY, _AGAIN),
)
SESSIONS_BEFORE_HEADERS: Final = FindingCode(
    "sessions-before-headers",
    "This release would misread on-window-close sessions that were written without headers",
    level=Level.ERROR,
    more=(
        "4.3.1 reads such rows as if each value began with headers. Startup succeeds, but the rows are wrong. An "
        "error occurs only when the application reads such a row."
    ),
    log=(log.NOT_A_LONG,),
    source=(
        "in 4.3.1, RocksDBTimeOrderedSessionStoreWithHeaders prepends a zero byte to existing on-window-close "
        f'sessions (KIP-1285). Reading a number then fails with "{log.NOT_A_LONG}", and a string silently gets '
        "a different value"
    ),
    hint="keep dsl.store.format=DEFAULT. If the application has already run with HEADERS, wipe and restore the store",
)
SST_NOT_NAMED: Final = FindingCode(
    "sst-not-named",
    "A file in the store contains rows, but is not listed in the MANIFEST",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "A crash can leave behind files that were only partially written or already replaced, and RocksDB deletes "
        "them. If the application did not crash, the MANIFEST is truncated. RocksDB then opens an older state of "
        "the store, so rows are silently missing."
    ),
    log=SILENT,
    source=(
        "VersionSet::Recover opens only the files that the MANIFEST lists. If the MANIFEST is truncated between two "
        "records, RocksDB opens an older state. After a crash, unlisted files are harmless"
    ),
    hint=f"if the application did not crash, rebuild the store: {RESTORE} {option.REBUILD}",
    do=(_VERIFY,),
)
NOT_UNDERSTOOD: Final = FindingCode(
    "not-understood",
    "The directory contains an entry that kstate does not recognize, so kstate cannot predict startup",
    level=Level.ERROR,
    more=(
        "The entry is a link, a FIFO, a file in place of a folder, or a RocksDB database with unknown settings. "
        "kstate refuses to migrate or restore the directory until you remove this entry."
    ),
    source=(
        "kstate does not follow links and makes no predictions about unknown entries. "
        "StateDirectory.getOrCreateDirectoryForTask requires an entry with a task name to be a directory"
    ),
    hint="restore the original entry. To see the problem: kstate ls APP",
)
MALFORMED_CHECKPOINT: Final = FindingCode(
    "malformed-checkpoint",
    "kstate cannot read a .checkpoint file",
    level=Level.ERROR,
    more=(
        "The file is empty or truncated, has an unknown version, or was edited. Streams fails to start until you "
        "remove the file. 4.3 fails to start even if the task belongs to another instance. Without the file, the task "
        "has no offsets. Under exactly-once, Streams then wipes and restores the task."
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
        "Some stores, such as grace buffers and custom stores, cannot store their own offset, so 4.3 keeps it in this "
        "file. Streams fails to start until you remove the file."
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
        "The file records how far the store has read its input (IQv2). Rows and offsets are not affected, but "
        "releases from 3.2 to 4.3 fail to start."
    ),
    log=(log.POSITION_NOT_READ, *MALFORMED_FILE_MESSAGES),
    source="StoreQueryUtils.readPositionFromCheckpoint ({page})",
    page="offsets.md#position-files",
    hint="remove the file. Streams then starts with an empty Position",
)
DROPPED_LINE: Final = FindingCode(
    "dropped-line",
    "A line in .checkpoint has a negative offset, so Streams skips it",
    level=Level.WARNING,
    more="The store then has no offset, so Streams wipes its task under exactly-once.",
    log=(log.LINE_DROPPED,),
    source="OffsetCheckpoint.read drops lines with a negative offset other than -4 ({page})",
    page="offsets.md#checkpoint",
    hint=RESTORE,
)
FOREIGN_IN_SEGMENTS: Final = FindingCode(
    "foreign-in-segments",
    "A window or session store contains an entry that is not a segment",
    level=Level.ERROR,
    more=(
        "The entry may be a backup, an editor's folder, or a copied file. Because of this entry, releases up to 4.2 "
        "open none of the segments, so the store is empty but keeps the offset of a complete store. 4.3 fails to "
        "start."
    ),
    log=(log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
    source=(
        "AbstractSegments.segmentIdFromSegmentName cannot parse the entry's name. Releases up to 4.2 then silently "
        "open an empty store, and 4.3 does not start ({page})"
    ),
    page="layout.md#foreign-entries",
    hint="move this entry out of the application directory",
    do=(_LOOK,),
)
FOREIGN_IN_TASK: Final = FindingCode(
    "foreign-in-task",
    "A task directory contains a file that Streams did not create",
    level=Level.WARNING,
    more=(
        "Streams ignores the file itself, but does not treat the task directory as empty. Under exactly-once, if "
        "the task has no offsets, Streams wipes the task together with this file."
    ),
    log=SILENT,
    source=(
        "StateDirectory.taskDirIsEmpty returns false for a task with a foreign entry, so Streams wipes the task "
        "under exactly-once if it has no offset ({page})"
    ),
    page="layout.md#foreign-entries",
    hint="move this entry out of the application directory",
)
LOCK_FILE_IN_TASK: Final = FindingCode(
    "lock-file-in-task",
    "A task directory contains a file whose name ends in .lock",
    level=Level.WARNING,
    more="Very old releases used such files to lock tasks. Streams deletes this file when it starts.",
    log=SILENT,
    source="StateDirectory.taskDirIsEmpty deletes files whose names end in .lock ({page})",
    page="layout.md#foreign-entries",
    hint="if you want to keep this file, move it out of the application directory",
)
LEFTOVER_FILE: Final = FindingCode(
    "leftover-file",
    "A crash left a .tmp file behind",
    level=Level.EXPECTED,
    changes_at_close=True,
    more=(
        "Streams writes offsets to a .tmp file and then renames this file. The next commit overwrites a leftover file."
    ),
    log=SILENT,
    source="OffsetCheckpoint.write creates the file, but a crash prevented it from being renamed ({page})",
    page="layout.md#paths",
    hint=NOTHING,
)
OLD_SEGMENT_NAME: Final = FindingCode(
    "old-segment-name",
    "A segment has a name from a very old release",
    level=Level.EXPECTED,
    more="The name contains a date or a colon. Streams renames the segment when it starts, and no rows are lost.",
    log=SILENT,
    source="AbstractSegments.renameSegmentFile renames the segment at startup ({page})",
    page="layout.md#segments",
    hint=NOTHING,
)
SEGMENT_OFF_GRID: Final = FindingCode(
    "segment-off-grid",
    "The number in a segment's name is not a multiple of the segment interval",
    level=Level.ERROR,
    more=(
        "Streams computes segment names from the timestamps of the rows. It never computes this name, so it does not "
        "open the segment, and the rows are silently missing. Either the retention or the segment interval was "
        "changed, or the directory was renamed."
    ),
    log=SILENT,
    source=(
        "AbstractSegments.segmentName computes only multiples of the segment interval, so Streams never opens a "
        "segment with a different number ({page})"
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
        "Either a directory was copied under another task's name, or sub-topologies were renumbered by a new "
        "topology. 4.3 opens every task directory and fails to start if the application has a global store."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "a store belongs to only one sub-topology, unless a directory was copied or sub-topologies were renumbered "
        "({page})"
    ),
    page="layout.md#foreign-entries",
    hint=f"to see which directory is obsolete, pass the topology: kstate check APP {option.FOR} STARTED "
    f"{option.TOPOLOGY} TOPOLOGY.txt",
    do=(_LOOK,),
)
SHARED_STORE_REGROUPED: Final = FindingCode(
    "shared-store-regrouped",
    "Several sub-topologies each have a copy of the same store",
    level=Level.WARNING,
    more=(
        "The suppliers of several processors return the same StoreBuilder. Some patch releases put these processors "
        "into separate sub-topologies. Each of these sub-topologies has its own copy of the store, and all copies "
        "write to one changelog. 4.2.2 and 4.4.0 build one sub-topology with one store. The task numbers then change, "
        "and Streams restores the stores that move. With the descriptions of both topologies, kstate can move all "
        "other stores. Streams restores the shared store, because none of the copies has all the records."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "if the suppliers of several processors return one StoreBuilder, InternalTopologyBuilder.addStateStore puts "
        "these processors into one sub-topology in some patch releases (KAFKA-20464; {page})"
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
        "the directories of these tasks. Streams then restores all stores with a changelog from the beginning, and the "
        "other "
        "stores are lost. In a test, 4.2.1 deleted all tasks in a directory that 4.3 had written."
    ),
    log=SILENT,
    source=(
        "under exactly-once, StateManagerUtil.closeStateManager deletes a task that was not closed cleanly ({page})"
    ),
    page="start.md#going-down",
    hint="fix the errors before you start the application",
)

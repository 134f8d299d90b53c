"""Findings of ``check``: stores and files that the release does not open, or opens with other rows."""

from __future__ import annotations

from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.check.findings import MIGRATE, NOTHING, RESTORE, WIPE_STORE, WIPE_TASK, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.formats.checkpoint import MALFORMED_FILE_MESSAGES
from kstate_cli.texts import command

_STORE, _IS_CLOSED = log.SEGMENT_CLOSED
_CLOSED = f"{_STORE.removesuffix('.')} {_IS_CLOSED}"
_VERIFY = f"to see first which files are damaged: {command('verify', 'APP')}"
_AGAIN = f"then fill it again from a dump: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
_REBUILD = f"or to rebuild it at once: {command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
_LOOK = f"to see which stores exist: {command('ls', 'APP')}"

OFFSETS_IN_COLUMN_FAMILY: Final = FindingCode(
    "offsets-in-column-family",
    "4.3 has opened the store, but you want to start an older release",
    level=Level.ERROR,
    more=(
        "From 4.3 on, changelog offsets are in a separate column family of the RocksDB. One start of 4.3 "
        "moves them there, even if the start fails, and upgrade.from does not prevent it. RocksDB opens a "
        "database only with all of its column families. So up to 4.2 the start fails, and window and "
        "session stores open silently without rows. Nothing is lost: a migration moves the offsets back to "
        "where the older release reads them."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source=(
        "KIP-1035: releases up to 4.2 open no RocksDB with the column family offsets, with or without "
        "upgrade.from ({page})"
    ),
    page="start.md#going-down",
    hint=MIGRATE,
)
SST_TOO_NEW: Final = FindingCode(
    "sst-too-new",
    "A file with rows was written in a format that the release's RocksDB does not read",
    level=Level.ERROR,
    more=(
        "4.0 and later write SSTs of format 6; 3.9 and earlier read up to 5. The rows are good: a migration rewrites "
        "them in the older format."
    ),
    log=(log.STORE_NOT_OPENED, log.FORMAT_VERSION, _CLOSED),
    source="RocksDB up to 7.9.2 reads SST format 5 ({page})",
    page="rocksdb.md#sst-formats",
    hint=MIGRATE,
)
HEADERS_STORE: Final = FindingCode(
    "headers-store",
    "The store keeps record headers, which the release does not support",
    level=Level.ERROR,
    more=(
        "4.3 opened it with dsl.store.format=HEADERS, or with a supplier with headers. An older store "
        "cannot hold headers: a migration to the older release drops them, and keeps keys, values and "
        "timestamps."
    ),
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, _CLOSED),
    source="KIP-1271: releases up to 4.2 have no stores with record headers ({page})",
    page="start.md#going-down",
    hint=f"{MIGRATE} --drop-headers",
)
UNKNOWN_COLUMN_FAMILY: Final = FindingCode(
    "unknown-column-family",
    "The store has a column family that no store of Kafka Streams has",
    level=Level.ERROR,
    more="Another program has written to the directory, or a release that this kstate does not know.",
    log=(log.STORE_NOT_OPENED, log.FAMILIES_NOT_OPENED, log.UNEXPECTED_FAMILY, _CLOSED),
    source="RocksDBStore.openRocksDB opens only the column families of its kind of store ({page})",
    page="stores.md#column-families",
    hint=WIPE_STORE,
    do=("first find out which program created it: a newer kstate may support it", _AGAIN),
)
UNKNOWN_KIND: Final = FindingCode(
    "unknown-kind",
    "The release has no stores of this kind",
    level=Level.WARNING,
    more=(
        "Versioned stores came with 3.5, grace buffers with 3.6, on-window-close stores with 3.3. The release does "
        "not read the directory, and its topology cannot have the store."
    ),
    log=SILENT,
    source="releases.py: the kind of store came with a later release",
    hint="start a release that has such stores",
)
DOES_NOT_OPEN: Final = FindingCode(
    "does-not-open",
    "RocksDB does not open the store, or creates a new one in its place",
    level=Level.ERROR,
    more=(
        "An SST that the MANIFEST names is missing or cut off, CURRENT is missing, or the stored offset does not have "
        "8 bytes. If CURRENT is missing and the directory has no write-ahead log, RocksDB silently creates a new, "
        "empty database, and an old offset makes it look complete."
    ),
    log=(log.STORE_NOT_OPENED, log.LOG_WITHOUT_CURRENT, log.NOT_A_LONG),
    source="RocksDBStore.openDB: RocksDB has to open the directory",
    hint=WIPE_STORE,
    do=(_VERIFY, _AGAIN),
)
SEGMENT_DOES_NOT_OPEN: Final = FindingCode(
    "segment-does-not-open",
    "A segment of a window or session store does not open, and Streams opens the store without it",
    level=Level.ERROR,
    more=(
        "Releases up to 4.2 swallow the exception: the store opens without this segment and without every later one, "
        "and its offset states that nothing is missing. Queries and joins miss rows from then on. The start fails "
        "only if records are restored into the segment."
    ),
    log=(_CLOSED,),
    source="AbstractSegments.openExisting swallows every exception up to 4.2 ({page})",
    page="start.md#going-down",
    hint=WIPE_STORE,
    do=(_VERIFY, _AGAIN),
)
SESSIONS_BEFORE_HEADERS: Final = FindingCode(
    "sessions-before-headers",
    "A store with headers would misread on-window-close sessions of an older store",
    level=Level.ERROR,
    more=(
        "4.3.1 opens such rows as if headers came before the value. Nothing fails at the start, because the rows are "
        "wrong: the error comes when one is read."
    ),
    log=(log.NOT_A_LONG,),
    source=(
        "RocksDBTimeOrderedSessionStoreWithHeaders of 4.3.1 prepends a zero byte to existing "
        f'on-window-close sessions (KIP-1285): reading a number fails with "{log.NOT_A_LONG}", and a '
        "text silently has another value"
    ),
    hint="leave dsl.store.format at DEFAULT. If the store was started with HEADERS once, wipe and restore it",
)
SST_NOT_NAMED: Final = FindingCode(
    "sst-not-named",
    "The store has a file with rows that its MANIFEST does not name",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "A crash leaves such files, partially written or already replaced, and RocksDB deletes them. If "
        "the application did not crash, the MANIFEST has lost its end: the store opens in an older state, "
        "and rows are silently missing."
    ),
    log=SILENT,
    source=(
        "VersionSet::Recover: RocksDB opens the files that the MANIFEST names. If the MANIFEST is cut off "
        "between two records, RocksDB opens an older state. After a crash such files are harmless"
    ),
    hint=f"if the application did not crash, rebuild the store: {RESTORE} --rebuild",
    do=(_VERIFY,),
)
NOT_UNDERSTOOD: Final = FindingCode(
    "not-understood",
    "The directory has an entry that kstate does not understand, so the prediction is unknown",
    level=Level.ERROR,
    more=(
        "A link, a FIFO, a file instead of a folder, a RocksDB with foreign settings. kstate refuses a migration or "
        "restoration until it is removed."
    ),
    source=(
        "kstate follows no links, and predicts nothing about unknown entries "
        "(StateDirectory.getOrCreateDirectoryForTask: an entry with the name of a task must be a directory)"
    ),
    hint="restore the original entry. To see what is wrong: kstate ls APP",
)
MALFORMED_CHECKPOINT: Final = FindingCode(
    "malformed-checkpoint",
    "A .checkpoint cannot be read",
    level=Level.ERROR,
    more=(
        "It is empty, cut off, of another version, or was edited. The start fails until the file is removed, in 4.3 "
        "even if another instance has the task. Without the file the task has no offsets: under exactly-once Streams "
        "wipes and restores it."
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
    "A .checkpoint_STORE cannot be read",
    level=Level.ERROR,
    more=(
        "4.3 keeps the offset there if the store does not keep it itself: a grace buffer, a custom store. "
        "The start fails until the file is removed."
    ),
    log=(log.STORE_CHECKPOINT_NOT_LOADED, *MALFORMED_FILE_MESSAGES),
    source="LegacyCheckpointingStateStore.init ({page})",
    page="start.md#first-start-of-43",
    hint=WIPE_TASK,
    do=(_REBUILD,),
)
MALFORMED_POSITION: Final = FindingCode(
    "malformed-position",
    "A STORE.position cannot be read",
    level=Level.ERROR,
    more=(
        "The file records how far the store has read its input (IQv2). It has no effect on rows and "
        "offsets, but the start fails, from 3.2 to 4.3."
    ),
    log=(log.POSITION_NOT_READ, *MALFORMED_FILE_MESSAGES),
    source="StoreQueryUtils.readPositionFromCheckpoint ({page})",
    page="offsets.md#position-files",
    hint="remove the file: Positions then begin empty",
)
DROPPED_LINE: Final = FindingCode(
    "dropped-line",
    "A line of .checkpoint has a negative offset, and Streams skips it",
    level=Level.WARNING,
    more="Streams treats the store as one without an offset: under exactly-once it wipes the task.",
    log=(log.LINE_DROPPED,),
    source="OffsetCheckpoint.read drops lines with a negative offset other than -4 ({page})",
    page="offsets.md#checkpoint",
    hint=RESTORE,
)
FOREIGN_IN_SEGMENTS: Final = FindingCode(
    "foreign-in-segments",
    "The segments of a window or session store have another entry among them",
    level=Level.ERROR,
    more=(
        "A backup, a folder of an editor, a copied file. Up to 4.2 it keeps every segment from being opened: the "
        "store is empty, and its offset states that it is complete. 4.3 does not start."
    ),
    log=(log.NO_SEGMENT_ID, log.SEGMENT_NAME_TOO_SHORT),
    source=(
        "AbstractSegments.segmentIdFromSegmentName: up to 4.2 the store opens silently empty, 4.3 does not start "
        "({page})"
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
        "Streams skips it. But the task no longer counts as empty: under exactly-once Streams wipes a task without "
        "offsets, with the file."
    ),
    log=SILENT,
    source=(
        "StateDirectory.taskDirIsEmpty: under exactly-once Streams wipes a task with a foreign entry and "
        "no offset ({page})"
    ),
    page="layout.md#foreign-entries",
    hint="move it out of the application directory",
)
LOCK_FILE_IN_TASK: Final = FindingCode(
    "lock-file-in-task",
    "A task directory has a file whose name ends in .lock",
    level=Level.WARNING,
    more="Very old releases locked tasks with such files. The next start deletes it.",
    log=SILENT,
    source="StateDirectory.taskDirIsEmpty deletes files that end in .lock ({page})",
    page="layout.md#foreign-entries",
    hint="if you want to keep it, move it out of the application directory",
)
LEFTOVER_FILE: Final = FindingCode(
    "leftover-file",
    "A .tmp file that a crash left",
    level=Level.EXPECTED,
    changes_at_close=True,
    more="Streams writes offsets to a .tmp, and renames it. The next commit overwrites the file.",
    log=SILENT,
    source="OffsetCheckpoint.write: a crash leaves it ({page})",
    page="layout.md#paths",
    hint=NOTHING,
)
OLD_SEGMENT_NAME: Final = FindingCode(
    "old-segment-name",
    "A segment has a name of a very old release",
    level=Level.EXPECTED,
    more="It has a date or a colon in it. The next start renames the segment; its rows stay.",
    log=SILENT,
    source="AbstractSegments.renameSegmentFile renames it at the start ({page})",
    page="layout.md#segments",
    hint=NOTHING,
)
SEGMENT_OFF_GRID: Final = FindingCode(
    "segment-off-grid",
    "The name of a segment is not a multiple of the segment interval",
    level=Level.ERROR,
    more=(
        "Streams computes the segment of a time, and opens the directory of that name. It never opens this "
        "one, or opens it under another name: its rows are silently missing. The retention or the segment "
        "interval was changed, or the directory was renamed."
    ),
    log=SILENT,
    source=(
        "AbstractSegments.segmentName: if a start is not a multiple of the segment interval, Streams opens "
        "the segment under another name ({page})"
    ),
    page="layout.md#segments",
    hint=f"rename it, or wipe the store: {WIPE_STORE}",
    do=(_REBUILD,),
)
STORE_IN_TWO_SUBTOPOLOGIES: Final = FindingCode(
    "store-in-two-subtopologies",
    "Tasks of two subtopologies have the same store",
    level=Level.WARNING,
    more=(
        "One of the directories is a copy with the name of a task, or a new topology has renumbered its "
        "subtopologies. 4.3 opens every task directory; with a global store it does not start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "a store belongs to one subtopology: a copy is named like a task, or subtopologies were renumbered ({page})"
    ),
    page="layout.md#foreign-entries",
    hint=(
        "pass the topology to see which directory is obsolete: kstate check APP --for STARTED --topology TOPOLOGY.txt"
    ),
    do=(_LOOK,),
)
SHARED_STORE_REGROUPED: Final = FindingCode(
    "shared-store-regrouped",
    "Several sub-topologies have a copy of one store",
    level=Level.WARNING,
    more=(
        "Up to some patch releases, processors whose suppliers return one StoreBuilder are in separate "
        "sub-topologies. Each has a copy of the store, and all copies write one changelog. 4.2.2 and 4.4.0 "
        "build one sub-topology with one store: the numbers of tasks change, and Streams restores the "
        "stores that move. With both texts, rehome moves every other store. It leaves the shared store to "
        "Streams, because no copy has the records of all."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "InternalTopologyBuilder.addStateStore: some patch releases put processors whose suppliers return one "
        "StoreBuilder into one sub-topology (KAFKA-20464; {page})"
    ),
    page="start.md#one-store-of-several-sub-topologies",
    hint=(
        "write the texts of Topology#describe of both releases into files, then run: kstate check APP "
        "--for STARTED --topology AFTER.txt --from BEFORE.txt"
    ),
    do=(_LOOK,),
)
FAILED_START_DELETES: Final = FindingCode(
    "failed-start-deletes",
    "The start fails, and deletes task directories while it ends",
    level=Level.WARNING,
    more=(
        "A stream thread that dies closes its tasks dirty, and under exactly-once that deletes their "
        "directories. Streams then restores all stores with a changelog from the beginning, and the others "
        "are lost. Real 4.2.1 deleted all tasks of a directory of 4.3."
    ),
    log=SILENT,
    source=(
        "StateManagerUtil.closeStateManager: under exactly-once Streams deletes a task that is not closed "
        "cleanly ({page})"
    ),
    page="start.md#going-down",
    hint="fix the errors before you start the application",
)

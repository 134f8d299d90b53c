"""Findings of ``check``: offsets, the places that state them, and stores that were not closed cleanly."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import (
    MIGRATE,
    NOTHING,
    RESTORE,
    RESTORE_STORE,
    WIPE_GLOBAL,
    WIPE_TASK,
    FindingCode,
    Level,
)
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_CORRUPTED = (log.CORRUPTED, log.REVIVED, log.WIPED)
_NO_OFFSETS = (log.NO_OFFSETS, *_CORRUPTED)
_OFFSETS = f"to see the offset of each store: {command('inspect-position', 'APP')}"
_UNCLEAN = (
    f"to rebuild the whole task because it may contain uncommitted rows, repeat this command with {option.WIPE_UNCLEAN}"
)
_REBUILD_GLOBAL = (
    "when Streams starts, it rebuilds global stores from the beginning of their topics. To restore them now: "
    f"{command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)

NO_OFFSETS: Final = FindingCode(
    "no-offsets",
    "A task has stores on disk, but none of them has an offset",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "The application was killed or .checkpoint was lost, so Streams does not know which records the stores "
        "contain. Under exactly-once, Streams deletes the task and restores it from the beginning. Under "
        "at-least-once, it applies all records to the existing rows, and deleted keys may remain."
    ),
    log=_NO_OFFSETS,
    source="under exactly-once, ProcessorStateManager does not accept rows without an offset ({page})",
    page="offsets.md#which-stores",
    hint=RESTORE,
    do=(_UNCLEAN,),
)
OFFSET_MISSING: Final = FindingCode(
    "offset-missing",
    "A store has no offset, but other stores in its task do",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Either a new topology added the store, or its line in .checkpoint was lost. Under exactly-once, Streams "
        "wipes the whole task because of this one store."
    ),
    log=_NO_OFFSETS,
    source=(
        "under exactly-once, ProcessorStateManager treats a task as corrupted if any logged store has no offset "
        "({page})"
    ),
    page="offsets.md#which-stores",
    hint=RESTORE,
    do=(_OFFSETS,),
)
UNKNOWN_OFFSET: Final = FindingCode(
    "unknown-offset",
    "The stored offset is -4, which marks a clean store without an offset",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Streams writes -4 for a store that has never received a record, and kstate for a store that it has wiped. "
        "What follows depends on the place. If the offset is in the store (4.3 and later), or in .checkpoint (up to "
        "4.2), Streams restores only this store. If an older release has left it in .checkpoint, 4.3 drops the line "
        "when it starts for the first time. Under exactly-once, it then wipes the task. A migration keeps these "
        "offsets."
    ),
    log=_NO_OFFSETS,
    source=(
        "Streams accepts -4 where the release keeps its offsets, and restores only this store "
        "(ProcessorStateManager). From .checkpoint, 4.3 drops it "
        "(LegacyCheckpointingStateStore.migrateLegacyOffsets). Under exactly-once, 4.3 then wipes the task ({page})"
    ),
    page="start.md#first-start-of-43",
    hint=MIGRATE,
    do=(
        f"if the release keeps its offsets where the -4 is, you can restore the store instead: {RESTORE_STORE}",
        _OFFSETS,
    ),
)
# In a dictionary, because CODES has every entry that a name of this module stands for, and the code is one.
UNKNOWN_OFFSET_BY_DROPPED: Final = {
    True: replace(
        UNKNOWN_OFFSET,
        source=(
            "LegacyCheckpointingStateStore.migrateLegacyOffsets drops the offset -4 (OffsetCheckpoint.OFFSET_UNKNOWN). "
            "Under exactly-once, Streams then wipes the task ({page})"
        ),
    ),
    False: replace(
        UNKNOWN_OFFSET,
        source=(
            "ProcessorStateManager accepts the offset -4 (OffsetCheckpoint.OFFSET_UNKNOWN), and Streams restores only "
            "this store ({page})"
        ),
        page="offsets.md#what-an-offset-means",
    ),
}
"""The code with the rule of one case: whether the release drops the offset, or accepts it where it is."""
NEVER_WRITTEN: Final = FindingCode(
    "never-written",
    "The store and its changelog are empty",
    level=Level.EXPECTED,
    states_absence=True,
    more="Streams has nothing to restore.",
    log=(log.FROM_START,),
    source="OffsetCheckpoint.OFFSET_UNKNOWN marks an empty store ({page})",
    page="offsets.md#what-an-offset-means",
    hint=NOTHING,
)
NO_SEGMENTS: Final = FindingCode(
    "no-segments",
    "A window or session store has an offset in .checkpoint, but no segment where 4.3 can keep it",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "4.3 keeps offsets in the segments. If a store has no segment, 4.3 loses its offset when it starts for the "
        "first time. Under exactly-once, 4.3 then wipes the task every time it starts. To keep the offset, a "
        "migration creates a segment without rows."
    ),
    log=_NO_OFFSETS,
    source=(
        "AbstractSegments.committedOffset reads the offset from a segment. Without a segment, 4.3 finds no offset, "
        "and under exactly-once it wipes the task every time it starts ({page})"
    ),
    page="offsets.md#no-segments",
    hint=MIGRATE,
)
NO_SEGMENTS_YET: Final = FindingCode(
    "no-segments-yet",
    "A window or session store has no segment, so 4.3 finds no offset",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Under exactly-once, Streams wipes the task every time it starts until the store has a row. Each time, it "
        "restores the task's other stores from the beginning."
    ),
    log=_NO_OFFSETS,
    source=(
        "AbstractSegments.committedOffset reads the offset from a segment, so a store without a segment has no "
        "offset. Under exactly-once, Streams wipes the store's task every time it starts ({page})"
    ),
    page="offsets.md#no-segments",
    hint="let the application write to the store. The first row creates a segment, which stores the offset",
)
STATUS_OPEN: Final = FindingCode(
    "status-open",
    "The store was not closed: its status is still open",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "The application was killed or is still running. The store may contain rows from an aborted transaction, so "
        "4.3 wipes the task under exactly-once. Under at-least-once, Streams uses the store unchanged."
    ),
    log=(*log.INVALID_STATE, log.LOCK_HELD, *_CORRUPTED),
    source=(
        "AbstractColumnFamilyAccessor.open rejects a store that was not closed cleanly, because it may contain "
        "uncommitted data ({page})"
    ),
    page="offsets.md#status",
    hint=RESTORE,
    do=(_UNCLEAN,),
)
STATUS_MISSING: Final = FindingCode(
    "status-missing",
    "The store has rows, but neither a status nor a matching offset",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Streams writes the status when it opens or closes a store. Only transactional stores (4.4, KIP-892) have "
        "no status. kstate recognizes a transactional store by its offset or Position. This store has neither, or "
        "its offset differs from the offset in a file next to the store. Streams treats a store without a status as "
        "closed, so under exactly-once, uncommitted rows may remain."
    ),
    source=(
        "AbstractColumnFamilyAccessor.open treats a missing status as closed, and only transactional stores "
        "(KIP-892) never write a status ({page})"
    ),
    page="offsets.md#transactional-stores",
    hint=(
        "if the application runs with transactional stores (enable.transactional.statestores), pass "
        f"{option.TRANSACTIONAL_STORES}. Otherwise, restore the stores: {RESTORE}"
    ),
    do=(_UNCLEAN,),
)
GLOBAL_STATUS_OPEN: Final = FindingCode(
    "global-status-open",
    "A global store was not closed: its status is still open",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "If a task's store has this status, 4.3 wipes the task and continues. For a global store, 4.3 does not "
        "handle the same exception, so every start fails until you remove the global/ folder."
    ),
    log=log.INVALID_STATE,
    source=(
        "GlobalStateManagerImpl.initialize does not handle TaskCorruptedException, so every start fails in the same "
        "way ({page}; KAFKA-21034)"
    ),
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
SENTINEL_OFFSET: Final = FindingCode(
    "sentinel-offset",
    "The stored offset is an invalid negative number",
    level=Level.ERROR,
    more="When 4.3 starts, it adds up the offsets of all tasks, and throws an exception for this offset.",
    log=log.SENTINEL,
    source=(
        "StateDirectory.updateTaskOffsets throws an exception for the offsets -2 and -3 and for offsets below -5 "
        "({page})"
    ),
    page="offsets.md#what-an-offset-means",
    hint=WIPE_TASK,
    do=(_OFFSETS,),
)
GLOBAL_UNKNOWN_OFFSET: Final = FindingCode(
    "global-unknown-offset",
    "A global store has the offset -4",
    level=Level.ERROR,
    changes_at_close=True,
    more="Streams seeks to the stored offset. Because the consumer rejects negative offsets, every start fails.",
    log=(log.SEEK_NEGATIVE,),
    source="GlobalStateManagerImpl seeks to the stored offset, even to -4 ({page})",
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
GLOBAL_UNKNOWN_TOPIC: Final = FindingCode(
    "global-unknown-topic",
    "The file global/.checkpoint lists a topic that belongs to no global store",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "A global store was removed from the topology, or its topic was renamed. Releases up to 4.2 fail to start, "
        "and 4.3 ignores the topic."
    ),
    log=(log.UNKNOWN_TOPIC,),
    source=(
        "up to 4.2, GlobalStateManagerImpl.initialize fails if there are more topics than persistent global stores "
        "({page})"
    ),
    page="offsets.md#which-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
STALE_CHECKPOINT: Final = FindingCode(
    "stale-checkpoint",
    "A .checkpoint file from an older release exists, although 4.3 keeps the offsets in the store",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "4.3 uses the offsets in this file. If an offset is too low, Streams replays records. If an offset is too "
        "high, Streams skips records, and their rows are silently missing."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "LegacyCheckpointingStateStore.migrateLegacyOffsets replaces the offsets in the column family with those in "
        ".checkpoint ({page})"
    ),
    page="start.md#checkpoint-wins",
    hint=MIGRATE,
    do=(_OFFSETS,),
)
STALE_POSITION: Final = FindingCode(
    "stale-position",
    "A STORE.position file from an older release exists, although 4.3 keeps the Position in the store",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Whenever 4.3 opens the store, it merges this file into the Position. It never deletes the file. If the "
        "file is ahead of the store, queries with a bound succeed before the store has reached the bound."
    ),
    log=SILENT,
    source="StoreQueryUtils.maybeMigrateExistingPositionFile merges the file whenever it opens the store ({page})",
    page="offsets.md#position-files",
    hint="remove the .position file",
    do=(_OFFSETS,),
)
SEGMENTS_DISAGREE: Final = FindingCode(
    "segments-disagree",
    "A store's segments have different offsets",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "The application crashed, or the directory was copied while the application was running. 4.3.0 uses the "
        "offset of the oldest segment, and 4.3.1 the offset of the newest one. Unless this offset is the lowest, "
        "Streams skips records."
    ),
    log=(log.FROM_OFFSET,),
    source="AbstractSegments.committedOffset reads the oldest segment in 4.3.0, but the newest in 4.3.1 ({page})",
    page="offsets.md#where-each-kind-keeps-it",
    hint=RESTORE,
    do=(_OFFSETS,),
)
SEGMENT_BEHIND: Final = FindingCode(
    "segment-behind",
    "Some segments lack rows that Streams will not restore",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "Each segment of a window or session store is a separate database, which keeps the offset as of its last "
        "flush. If the application was killed, one segment may have offset 199, while another was never flushed and "
        "has no offset. Streams uses one of these offsets for the whole store and restores only the records after it. "
        "To complete the store, restore it with kstate, or wipe it and start the application."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "each segment has only the records up to its last flush. AbstractSegments.committedOffset returns one "
        "segment's offset for all segments, and Streams restores nothing below this offset ({page})"
    ),
    page="offsets.md#segments-after-a-kill",
    hint=RESTORE_STORE,
    do=(
        (f"to let Streams restore it: {command('wipe', 'APP', option.TASK, 'TASK', option.STORE, 'STORE')}"),
        f"to give all segments the lowest offset: {command('migrate', 'APP', option.TO, 'RELEASE')}",
        _OFFSETS,
    ),
)
VERSIONED_REPLAYED: Final = FindingCode(
    "versioned-replayed",
    "Streams will replay changelog records over the rows of a versioned store",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "A versioned store keeps older versions in segments that Streams does not open when it starts. If a key's "
        "next record is out of order, that record becomes the earliest version, and queries no longer find the older "
        "ones. If the application was killed, the rows may be ahead of the offset, because RocksDB can flush rows "
        "before Streams commits the offset. Replaying records is harmless in a key-value store, but in a versioned "
        "store, versions are lost or end at a different time. kstate restores such a store correctly: it updates the "
        "store if it was closed, and rebuilds it if the application was killed."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "LogicalKeyValueSegments.openExisting does not reopen the logical segments, so RocksDBVersionedStore.put "
        "does not see their rows. Under at-least-once, flushed rows may also be ahead of the committed offset "
        "({page})"
    ),
    page="offsets.md#rows-ahead-of-the-offset",
    hint=RESTORE_STORE,
    do=((f"to let Streams restore it: {command('wipe', 'APP', option.TASK, 'TASK', option.STORE, 'STORE')}"),),
)
START_HANGS: Final = FindingCode(
    "start-hangs",
    "With transactional stores, the client may stay in REBALANCING forever",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "A store has the status open (1), because the application was killed while it was running without "
        "transactional stores. If the task opens this store first, Streams does not wipe the task, and retries "
        "forever. Otherwise, Streams wipes and restores the whole task. The order of the stores depends only on the "
        "topology. Without transactional stores, Streams wipes the task immediately."
    ),
    log=log.INVALID_STATE,
    source=(
        "if the first store of a task with transactional stores has the status open, "
        "TaskManager.closeDirtyAndRevive wipes nothing, so the client remains in REBALANCING ({page})"
    ),
    page="offsets.md#transactional-stores",
    hint=WIPE_TASK,
    do=(_UNCLEAN,),
)
OFFSET_WITHOUT_STORE: Final = FindingCode(
    "offset-without-store",
    "A store's directory is missing, but its offset still exists",
    level=Level.ERROR,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Streams creates an empty store, uses the offset, and restores only the records after it. All earlier "
        "records are silently missing."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "OffsetCheckpoint keeps the offset of a store whose directory was removed. Streams creates a new store and "
        "restores nothing below this offset"
    ),
    hint=RESTORE,
)
STORE_MISSING: Final = FindingCode(
    "store-missing",
    "A task lacks a store that the other tasks in its sub-topology have",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Streams restores the store from the beginning. Under exactly-once, it restores the whole task if the "
        "task's other stores have rows."
    ),
    log=_NO_OFFSETS,
    source="all tasks of a sub-topology have the same stores",
    hint=RESTORE,
)
MAYBE_UNCLEAN: Final = FindingCode(
    "maybe-unclean",
    "Some rows are newer than .checkpoint, so the task may not have been closed cleanly",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Up to 4.2, Streams also writes .checkpoint after restoring a task, and a crash does not remove this file. "
        "When Streams starts again, it treats uncommitted rows as committed. However, compaction also creates newer "
        "files, so kstate cannot be sure."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "ProcessorStateManager.checkpoint also writes .checkpoint when restoration completes, and a crash does not "
        "remove the file ({page})"
    ),
    page="start.md#clean-or-not",
    hint=(
        "if the application was closed cleanly, do nothing. Otherwise, rebuild the unclean tasks: "
        f"{RESTORE} {option.WIPE_UNCLEAN}"
    ),
)
WITHOUT_CHANGELOG: Final = FindingCode(
    "without-changelog",
    "The store has no offset, so Streams treats it as a store without a changelog",
    level=Level.EXPECTED,
    changes_at_close=True,
    states_absence=True,
    more=(
        "The application created the store with withLoggingDisabled(). Streams opens the store unchanged, but "
        "cannot restore it if its rows are lost."
    ),
    log=(log.NOT_LOGGED,),
    source="Streams does not write an offset for a store without a changelog (withLoggingDisabled)",
    hint=NOTHING,
)
LOST_WITH_ITS_TASK: Final = FindingCode(
    "lost-with-its-task",
    "The store has no changelog, and Streams will wipe its task",
    level=Level.ERROR,
    changes_at_close=True,
    states_absence=True,
    more=("Streams deletes the task's whole directory. It restores the other stores, but this store's rows are lost."),
    log=_CORRUPTED,
    source=(
        "StateManagerUtil.closeStateManager wipes a corrupted task's whole directory, and Streams cannot restore a "
        "store without a changelog (withLoggingDisabled)"
    ),
    hint=(
        "to keep the rows as Parquet, run this before you start the application: kstate export APP STORE "
        f"{option.OUT} DIR"
    ),
)

"""Findings of ``check``: offsets, the places that state them, and stores that were not closed cleanly."""

from __future__ import annotations

from typing import Final

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
from kstate_cli.texts import TRANSACTIONAL_STORES, command

_CORRUPTED = (log.CORRUPTED, log.REVIVED, log.WIPED)
_NO_OFFSETS = (log.NO_OFFSETS, *_CORRUPTED)
_OFFSETS = f"which offset each store has: {command('inspect-position', 'APP')}"
_UNCLEAN = "to rebuild the whole task, which may hold uncommitted rows: the same with --wipe-unclean"
_REBUILD_GLOBAL = (
    "the next start rebuilds the global stores from the beginning of their topics; or at once: "
    f"{command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)

NO_OFFSETS: Final = FindingCode(
    "no-offsets",
    "A task has rows, and no store of it has an offset",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "The application was killed, or .checkpoint was lost. Streams cannot know the state of the stores. Under "
        "exactly-once it deletes the task and restores it from the beginning. Under at-least-once it restores over "
        "the rows of the stores, and deleted keys may stay."
    ),
    log=_NO_OFFSETS,
    source="ProcessorStateManager: rows without any offset ({page})",
    page="offsets.md#which-stores",
    hint=RESTORE,
    do=(_UNCLEAN,),
)
OFFSET_MISSING: Final = FindingCode(
    "offset-missing",
    "One store has no offset, and others of its task have",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more="Under exactly-once that one store wipes its whole task. It came with a new topology, or its line was lost.",
    log=_NO_OFFSETS,
    source=(
        "ProcessorStateManager: one logged store without an offset wipes its whole task under exactly-once ({page})"
    ),
    page="offsets.md#which-stores",
    hint=RESTORE,
    do=(_OFFSETS,),
)
UNKNOWN_OFFSET: Final = FindingCode(
    "unknown-offset",
    "The offset is -4: clean, and without an offset",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Older releases write it for a store that has never got a record. It is good there. The first start of 4.3 "
        "drops such lines, and under exactly-once that wipes the task; a migration carries them over."
    ),
    log=_NO_OFFSETS,
    source=(
        "OffsetCheckpoint.OFFSET_UNKNOWN: -4 is no offset; LegacyCheckpointingStateStore.migrateLegacyOffsets "
        "drops it, which wipes the task under exactly-once ({page})"
    ),
    page="start.md#first-start-of-43",
    hint=MIGRATE,
    do=(_OFFSETS,),
)
NEVER_WRITTEN: Final = FindingCode(
    "never-written",
    "The store is empty, and so is its changelog",
    level=Level.EXPECTED,
    states_absence=True,
    more="There is nothing to restore.",
    log=(log.FROM_START,),
    source="OffsetCheckpoint.OFFSET_UNKNOWN: an empty store ({page})",
    page="offsets.md#what-an-offset-means",
    hint=NOTHING,
)
NO_SEGMENTS: Final = FindingCode(
    "no-segments",
    "A window or session store has an offset in .checkpoint, and no segment that 4.3 could keep it in",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "4.3 keeps offsets in the segments. Without one the offset is lost at the first start, and under exactly-once "
        "the task is wiped, at every start again. A migration makes a segment without rows that carries the offset."
    ),
    log=_NO_OFFSETS,
    source=(
        "AbstractSegments.committedOffset: without a segment an offset has no home, and 4.3 wipes the task at "
        "every start under exactly-once ({page})"
    ),
    page="offsets.md#no-segments",
    hint=MIGRATE,
)
NO_SEGMENTS_YET: Final = FindingCode(
    "no-segments-yet",
    "A window or session store has no segment, and so no offset, in 4.3",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "As long as it gets no row its task is wiped at every start under exactly-once. Each time the other stores of "
        "the task are restored from the beginning."
    ),
    log=_NO_OFFSETS,
    source=(
        "AbstractSegments.committedOffset: a window or session store without a segment has no offset in 4.3; "
        "under exactly-once its task is wiped at every start ({page})"
    ),
    page="offsets.md#no-segments",
    hint="nothing helps but rows: the first segment keeps the offset",
)
STATUS_OPEN: Final = FindingCode(
    "status-open",
    "The store was not closed: its status is open",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "The application was killed, or is still running. Under exactly-once the store may contain rows of an aborted "
        "transaction, so 4.3 wipes the task. Under at-least-once Streams uses the store unchanged."
    ),
    log=(*log.INVALID_STATE, log.LOCK_HELD, *_CORRUPTED),
    source="AbstractColumnFamilyAccessor.open: not closed cleanly, so that uncommitted data may be in it ({page})",
    page="offsets.md#status",
    hint=RESTORE,
    do=(_UNCLEAN,),
)
STATUS_MISSING: Final = FindingCode(
    "status-missing",
    "The store has rows, and states neither a status nor an offset that belongs to them",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Releases write a status when they open a store and when they close it. Only transactional stores (4.4, "
        "KIP-892) never do: an offset or a Position without a status proves such a run. If a store states nothing at "
        "all, or a file next to it states another offset, nothing proves it. A start treats a missing status as "
        "closed, so under exactly-once uncommitted rows may stay in the store."
    ),
    source=(
        "AbstractColumnFamilyAccessor.open: no status counts as closed, and only transactional stores (KIP-892) "
        "never write one ({page})"
    ),
    page="offsets.md#transactional-stores",
    hint=f"if the application runs with transactional stores, pass {TRANSACTIONAL_STORES}; else: {RESTORE}",
    do=("if the application runs with enable.transactional.statestores: pass --transactional-stores", _UNCLEAN),
)
GLOBAL_STATUS_OPEN: Final = FindingCode(
    "global-status-open",
    "A global store was not closed: its status is open",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "For a store of a task 4.3 wipes the task and continues. For a global store nothing handles the exception: "
        "every start fails in the same way, until the folder global is removed."
    ),
    log=log.INVALID_STATE,
    source=(
        "GlobalStateManagerImpl.initialize does not handle TaskCorruptedException: every start fails the same "
        "way ({page}; KAFKA-21034)"
    ),
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
SENTINEL_OFFSET: Final = FindingCode(
    "sentinel-offset",
    "The stored offset is a negative number without a meaning",
    level=Level.ERROR,
    more="4.3 sums the offsets of its tasks up at the start, and throws.",
    log=log.SENTINEL,
    source="StateDirectory.updateTaskOffsets: offsets of -2, -3 and below -5 are fatal ({page})",
    page="offsets.md#what-an-offset-means",
    hint=WIPE_TASK,
    do=(_OFFSETS,),
)
GLOBAL_UNKNOWN_OFFSET: Final = FindingCode(
    "global-unknown-offset",
    "The offset of a global store is -4",
    level=Level.ERROR,
    changes_at_close=True,
    more="Streams seeks to the stored offset, and the consumer accepts no negative offset: every start fails.",
    log=(log.SEEK_NEGATIVE,),
    source="GlobalStateManagerImpl seeks to whatever is written, -4 too ({page})",
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
GLOBAL_UNKNOWN_TOPIC: Final = FindingCode(
    "global-unknown-topic",
    "A topic in global/.checkpoint belongs to no global store of the directory",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "A global store was removed from the topology, or its topic has another name now. Up to 4.2 the start fails; "
        "4.3 ignores it."
    ),
    log=(log.UNKNOWN_TOPIC,),
    source="GlobalStateManagerImpl.initialize up to 4.2: more topics than persistent global stores ({page})",
    page="offsets.md#which-stores",
    hint=WIPE_GLOBAL,
    do=(_REBUILD_GLOBAL,),
)
STALE_CHECKPOINT: Final = FindingCode(
    "stale-checkpoint",
    "A .checkpoint of an older release exists next to offsets that 4.3 keeps in the store",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "4.3 believes the file. A lower offset costs a replay; a higher one skips records, which are then silently "
        "missing."
    ),
    log=(log.FROM_OFFSET,),
    source="LegacyCheckpointingStateStore.migrateLegacyOffsets: .checkpoint overrides the column family ({page})",
    page="start.md#checkpoint-wins",
    hint=MIGRATE,
    do=(_OFFSETS,),
)
STALE_POSITION: Final = FindingCode(
    "stale-position",
    "A STORE.position of an older release exists next to the Position that 4.3 keeps in the store",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "4.3 merges it at every open and never deletes it. One that is ahead lets queries with a bound pass too early."
    ),
    log=SILENT,
    source="StoreQueryUtils.maybeMigrateExistingPositionFile: merged at every open, for ever ({page})",
    page="offsets.md#position-files",
    hint="remove the .position file",
    do=(_OFFSETS,),
)
SEGMENTS_DISAGREE: Final = FindingCode(
    "segments-disagree",
    "The segments of a store have different offsets",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "They were not closed together: a crash, or a copy that was taken while the application was running. 4.3.0 "
        "believes the oldest segment, 4.3.1 the newest; the lowest offset skips nothing."
    ),
    log=(log.FROM_OFFSET,),
    source="AbstractSegments.committedOffset: 4.3.0 reads the oldest segment, 4.3.1 the newest ({page})",
    page="offsets.md#where-each-kind-keeps-it",
    hint=RESTORE,
    do=(_OFFSETS,),
)
SEGMENT_BEHIND: Final = FindingCode(
    "segment-behind",
    "Rows of some segments are missing, and the next start does not restore them",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "Each segment of a window or session store is a RocksDB of its own, and states the offset of its own last "
        "flush. After a kill, one segment may state offset 199 while another was never flushed and states nothing. "
        "Streams takes one of these offsets for the whole store and restores only what follows it. A store that "
        "kstate restores, or one that was wiped, is complete again."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "AbstractSegments.committedOffset: a start takes the offset of one segment for all, and restores nothing "
        "below it; each segment is only as far as its own last flush ({page})"
    ),
    page="offsets.md#segments-after-a-kill",
    hint=RESTORE_STORE,
    do=(
        f"to have the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",
        f"to give all segments the lowest offset: {command('migrate', 'APP', '--to', 'RELEASE')}",
        _OFFSETS,
    ),
)
VERSIONED_REPLAYED: Final = FindingCode(
    "versioned-replayed",
    "A versioned store has rows, and the start puts records of its changelog over them",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "After a start, Streams does not know which segments of older versions a versioned store has. The first record "
        "of a key that is out of order then becomes its earliest version, and the older ones can no longer be read. "
        "At-least-once writes the offset at a commit, and RocksDB flushes rows at any time. So rows may be ahead of "
        "the offset. A key-value store ends in the same state when it replays them. A versioned store does not: "
        "versions go missing, or a history ends at another time. A restoration by the dump "
        "of its changelog catches up a closed store correctly, and rebuilds a killed one."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "LogicalKeyValueSegments.openExisting finds no logical segment again, so RocksDBVersionedStore.put does "
        "not see what is in them; and at least once flushes rows that are ahead of the committed offset "
        "({page})"
    ),
    page="offsets.md#rows-ahead-of-the-offset",
    hint=RESTORE_STORE,
    do=(f"to have the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",),
)
START_HANGS: Final = FindingCode(
    "start-hangs",
    "With transactional stores the client may stay in REBALANCING for ever",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "A store has status 1: a run without transactional stores was killed. If it is the first store that its task "
        "opens, Streams wipes nothing, and tries again without end; else it wipes the whole task and restores it. The "
        "order of the stores is in the topology, not on disk. A start without the option wipes the task at once."
    ),
    log=log.INVALID_STATE,
    source=(
        "TaskManager.closeDirtyAndRevive: with transactional stores nothing is wiped if the first store of a task "
        "has status 1, and the client stays in REBALANCING ({page})"
    ),
    page="offsets.md#transactional-stores",
    hint=WIPE_TASK,
    do=(_UNCLEAN,),
)
OFFSET_WITHOUT_STORE: Final = FindingCode(
    "offset-without-store",
    "An offset of a store exists, and the directory of the store is missing",
    level=Level.ERROR,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Streams creates a new store, believes the offset, and restores only the records after it: all earlier ones "
        "are silently missing."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "OffsetCheckpoint: an offset outlives the directory of its store; Streams makes a new one and "
        "restores nothing below the offset"
    ),
    hint=RESTORE,
)
STORE_MISSING: Final = FindingCode(
    "store-missing",
    "A task lacks a store that other tasks of its subtopology have",
    level=Level.WARNING,
    changes_at_close=True,
    states_absence=True,
    more=(
        "Streams restores it from the beginning. Under exactly-once it restores the whole task, if other stores of "
        "the task have rows."
    ),
    log=_NO_OFFSETS,
    source="the same subtopology has the store in other tasks",
    hint=RESTORE,
)
MAYBE_UNCLEAN: Final = FindingCode(
    "maybe-unclean",
    "Rows are younger than .checkpoint: the task may not have been closed cleanly",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Up to 4.2 Streams writes the file after restoring too, so it outlives a crash. Streams then treats "
        "uncommitted rows as committed. A compaction makes files younger as well, so this is a suspicion."
    ),
    log=(log.FROM_OFFSET,),
    source=(
        "ProcessorStateManager.checkpoint: .checkpoint is written when restoration completes too, so that it "
        "outlives a crash ({page})"
    ),
    page="start.md#clean-or-not",
    hint=RESTORE,
    do=("where the application was closed cleanly: nothing", _UNCLEAN),
)
WITHOUT_CHANGELOG: Final = FindingCode(
    "without-changelog",
    "The store has no offset anywhere: it counts as a store without a changelog",
    level=Level.EXPECTED,
    changes_at_close=True,
    states_absence=True,
    more="It was built with withLoggingDisabled(). It opens unchanged, and nothing restores it.",
    log=(log.NOT_LOGGED,),
    source="no offset anywhere: it counts as a store without a changelog (withLoggingDisabled)",
    hint=NOTHING,
)
LOST_WITH_ITS_TASK: Final = FindingCode(
    "lost-with-its-task",
    "The store has no changelog, and its task is to be wiped",
    level=Level.ERROR,
    changes_at_close=True,
    states_absence=True,
    more="Streams deletes the whole directory of a task. It restores the other stores; the rows of this one are lost.",
    log=_CORRUPTED,
    source=(
        "StateManagerUtil.closeStateManager wipes the directory of a corrupted task as a whole, and a store "
        "without a changelog is restored from nothing (withLoggingDisabled)"
    ),
    hint="nothing brings its rows back after the start; before it keep them: kstate export APP STORE --out DIR",
    do=(f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",),
)

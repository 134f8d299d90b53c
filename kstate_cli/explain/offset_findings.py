"""Findings of ``check``: offsets, where they lie, and whether a store was left clean."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts
from kstate_cli.texts import command

_CORRUPTED = (log.CORRUPTED, log.REVIVED, log.WIPED)
_NO_OFFSETS = (log.NO_OFFSETS, *_CORRUPTED)
_OFFSETS = f"which offset each store has: {command('inspect-position', 'APP')}"
_UNCLEAN = "to rebuild the whole task, which may hold uncommitted rows: the same with --wipe-unclean"
_REBUILD_GLOBAL = (
    "the next start rebuilds the global stores from the beginning of their topics; or at once: "
    f"{command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)

OFFSETS: Final = {
    "no-offsets": Texts(
        "A task has rows, and no store of it has an offset",
        "The application was killed, or .checkpoint was lost. Streams cannot know what is in the stores: under "
        "exactly-once it deletes the task and restores it from the beginning; under at-least-once it restores over "
        "the rows that are there, and deleted keys may stay.",
        _NO_OFFSETS,
        do=(_UNCLEAN,),
    ),
    "offset-missing": Texts(
        "One store has no offset, and others of its task have",
        "Under exactly-once that one store wipes its whole task. It came with a new topology, or its line was lost.",
        _NO_OFFSETS,
        do=(_OFFSETS,),
    ),
    "unknown-offset": Texts(
        "The offset is -4: clean, and without an offset",
        "Older releases write it for a store that has never got a record. It is good there. The first start of 4.3 "
        "drops such lines, and under exactly-once that wipes the task; a migration carries them over.",
        _NO_OFFSETS,
        do=(_OFFSETS,),
    ),
    "never-written": Texts(
        "The store is empty, and so is its changelog",
        "There is nothing to restore.",
        (log.FROM_START,),
    ),
    "no-segments": Texts(
        "A window or session store has an offset in .checkpoint, and no segment that 4.3 could keep it in",
        "4.3 keeps offsets in the segments. Without one the offset is lost at the first start, and under exactly-once "
        "the task is wiped, at every start again. A migration makes a segment without rows that carries the offset.",
        _NO_OFFSETS,
    ),
    "no-segments-yet": Texts(
        "A window or session store has no segment, and so no offset, in 4.3",
        "As long as it gets no row its task is wiped at every start under exactly-once. Each time the other stores of "
        "the task are restored from the beginning.",
        _NO_OFFSETS,
    ),
    "status-open": Texts(
        "The store was not closed: its status is open",
        "The application was killed, or still runs. Under exactly-once there may be rows of a transaction that was "
        "aborted, so 4.3 wipes the task. Under at-least-once the store is taken as it is.",
        (*log.INVALID_STATE, log.LOCK_HELD, *_CORRUPTED),
        do=(_UNCLEAN,),
    ),
    "status-missing": Texts(
        "The store has rows, and states neither a status nor an offset that belongs to them",
        "Releases write a status when they open a store and when they close it. Only transactional stores (4.4, "
        "KIP-892) never do: an offset or a Position without a status proves such a run. If a store states nothing at "
        "all, or a file next to it states another offset, nothing proves it. A start treats a missing status as "
        "closed, so under exactly-once uncommitted rows may stay in the store.",
        do=("if the application runs with enable.transactional.statestores: pass --transactional-stores", _UNCLEAN),
    ),
    "segment-behind": Texts(
        "Rows of some segments are missing, and the next start does not restore them",
        "Each segment of a window or session store is a RocksDB of its own, and states the offset of its own last "
        "flush. After a kill, one segment may state offset 199 while another was never flushed and states nothing. "
        "Streams takes one of these offsets for the whole store and restores only what follows it. A store that "
        "kstate restores, or one that was wiped, is complete again.",
        (log.FROM_OFFSET,),
        do=(
            f"to have the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",
            f"to give all segments the lowest offset: {command('migrate', 'APP', '--to', 'RELEASE')}",
            _OFFSETS,
        ),
    ),
    "versioned-replayed": Texts(
        "A versioned store has rows, and the start puts records of its changelog over them",
        "After a start, Streams does not know which segments of older versions a versioned store has. The first record "
        "of a key that is out of order then becomes its earliest version, and the older ones can no longer be read. "
        "At-least-once writes the offset at a commit, and RocksDB flushes rows at any time. So rows may be ahead of "
        "the offset. A key-value store ends in the same state when it replays them. A versioned store does not: "
        "versions go missing, or a history ends at another time. A restoration by the dump "
        "of its changelog catches up a closed store correctly, and rebuilds a killed one.",
        (log.FROM_OFFSET,),
        do=(f"to have the next start restore it: {command('wipe', 'APP', '--task', 'TASK', '--store', 'STORE')}",),
    ),
    "start-hangs": Texts(
        "With transactional stores the client may stay in REBALANCING for ever",
        "A store has status 1: a run without transactional stores was killed. If it is the first store that its task "
        "opens, Streams wipes nothing, and tries again without end; else it wipes the whole task and restores it. The "
        "order of the stores is in the topology, not on disk. A start without the option wipes the task at once.",
        log.INVALID_STATE,
        do=(_UNCLEAN,),
    ),
    "global-status-open": Texts(
        "A global store was not closed: its status is open",
        "Of a store of a task 4.3 wipes the task and goes on. Of a global store nobody handles the exception: every "
        "start fails in the same way, until the folder global is gone.",
        log.INVALID_STATE,
        do=(_REBUILD_GLOBAL,),
    ),
    "sentinel-offset": Texts(
        "The stored offset is a negative number without a meaning",
        "4.3 sums the offsets of its tasks up at the start, and throws.",
        log.SENTINEL,
        do=(_OFFSETS,),
    ),
    "global-unknown-offset": Texts(
        "The offset of a global store is -4",
        "Streams seeks to whatever is written there, and the consumer takes no negative offset: every start fails.",
        (log.SEEK_NEGATIVE,),
        do=(_REBUILD_GLOBAL,),
    ),
    "global-unknown-topic": Texts(
        "A topic in global/.checkpoint is that of no global store here",
        "A global store was taken out of the topology, or its topic has another name now. Up to 4.2 the start fails; "
        "4.3 passes over it.",
        (log.UNKNOWN_TOPIC,),
        do=(_REBUILD_GLOBAL,),
    ),
    "stale-checkpoint": Texts(
        "A .checkpoint of an older release lies beside offsets that 4.3 keeps in the store",
        "4.3 believes the file. An offset that is lower costs a replay; one that is higher skips records, which then "
        "are missing without a word.",
        (log.FROM_OFFSET,),
        do=(_OFFSETS,),
    ),
    "stale-position": Texts(
        "A STORE.position of an older release lies beside the Position that 4.3 keeps in the store",
        "4.3 merges it at every open and never deletes it. One that is ahead lets queries with a bound pass too early.",
        SILENT,
        do=(_OFFSETS,),
    ),
    "segments-disagree": Texts(
        "The segments of a store have different offsets",
        "They were not closed together: a crash, or a copy that was taken while the application ran. 4.3.0 believes "
        "the oldest segment, 4.3.1 the newest; the lowest is the one that skips nothing.",
        (log.FROM_OFFSET,),
        do=(_OFFSETS,),
    ),
    "offset-without-store": Texts(
        "There is an offset of a store whose directory is gone",
        "Streams makes a new store, believes the offset, and restores only what follows: everything before it is "
        "missing without a word.",
        (log.FROM_OFFSET,),
    ),
    "store-missing": Texts(
        "A task lacks a store that other tasks of its subtopology have",
        "It is restored from the beginning. Under exactly-once, where other stores of the task have rows, the whole "
        "task is.",
        _NO_OFFSETS,
    ),
    "maybe-unclean": Texts(
        "Rows are younger than .checkpoint: the task may not have been closed",
        "Up to 4.2 the file is written when restoring is complete too, and outlives a crash. Streams then takes "
        "uncommitted rows for good. A compaction makes files younger as well, so this is a suspicion.",
        (log.FROM_OFFSET,),
        do=("where the application was closed cleanly: nothing", _UNCLEAN),
    ),
    "without-changelog": Texts(
        "No offset of the store is anywhere: it counts as one without a changelog",
        "It was built with withLoggingDisabled(). It opens as it is, and nothing restores it.",
        (log.NOT_LOGGED,),
    ),
    "lost-with-its-task": Texts(
        "The store has no changelog, and its task is to be wiped",
        "Streams deletes the directory of a task as a whole. The other stores are restored; the rows of this one are "
        "lost for good.",
        _CORRUPTED,
        do=(f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",),
    ),
}

"""The findings of ``kstate check``: stable codes, their levels, the rules that they follow from, and what to do.

Rules name the class of Kafka Streams, the KIP and the section of docs/internals that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kstate_cli.check.streams_log import NOT_A_LONG
from kstate_cli.texts import TRANSACTIONAL_STORES
from kstate_cli.texts import internals as see


class Level(Enum):
    """How bad it is."""

    EXPECTED = "expected"
    """How Streams works: nothing to do, and no reason for an exit code."""
    WARNING = "warning"
    """It costs a restoration, or may cost one later."""
    ERROR = "error"
    """The start fails, or rows are silently missing or wrong."""


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding."""

    name: str
    level: Level
    rule: str
    hint: str
    """A command, or what to do where no command does it. ``APP``, ``TASK``, ``STORE`` are filled in; ``RELEASE`` with
    what a command that writes needs besides, ``STARTED`` without."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in or about a directory that decides, or may decide, what a start does."""

    code: str
    level: Level
    rule: str
    hint: str
    text: str
    task: str | None = None
    store: str | None = None


_EXPECTED, _WARNING, _ERROR = Level.EXPECTED, Level.WARNING, Level.ERROR
_MIGRATE = "kstate migrate APP --to RELEASE"
RESTORE = "kstate restore APP --from-changelog DUMP --for RELEASE"
_RESTORE_STORE = f"{RESTORE} --store STORE"
_WIPE_TASK = "kstate wipe APP --task TASK"
_WIPE_GLOBAL = "kstate wipe APP --global"
_WIPE_STORE = "kstate wipe APP --task TASK --store STORE"
_REHOME = "kstate rehome APP --topology NEW"
_HOMES = see("start.md#tasks-of-another-topology")
_NOTHING = "nothing to do"
_EXPORT_FIRST = (
    "do not start the application: it would restore from a log that has lost these records; export first: "
    "kstate export APP STORE --out DIR"
)

CODES: dict[str, Code] = {
    code.name: code
    for code in (
        # Layout: what the RocksDB of the release, and the release, open.
        Code("offsets-in-column-family", _ERROR,
             "KIP-1035: releases up to 4.2 open no RocksDB with the column family offsets, upgrade.from or not "
             f"({see('start.md#going-down')})", _MIGRATE),
        Code("sst-too-new", _ERROR,
             f"RocksDB up to 7.9.2 reads SST format 5 ({see('rocksdb.md#sst-formats')})", _MIGRATE),
        Code("headers-store", _ERROR,
             f"KIP-1271: releases up to 4.2 have no stores with record headers ({see('start.md#going-down')})",
             f"{_MIGRATE} --drop-headers"),
        Code("unknown-column-family", _ERROR,
             "RocksDBStore.openRocksDB opens only the column families of its kind of store "
             f"({see('stores.md#column-families')})",
             _WIPE_STORE),
        Code("unknown-kind", _WARNING,
             "releases.py: the kind of store came with a later release", "run a release that has such stores"),
        Code("does-not-open", _ERROR,
             "RocksDBStore.openDB: RocksDB has to open the directory", _WIPE_STORE),
        Code("segment-does-not-open", _ERROR,
             f"AbstractSegments.openExisting swallows every exception up to 4.2 ({see('start.md#going-down')})",
             _WIPE_STORE),
        Code("sessions-before-headers", _ERROR,
             "RocksDBTimeOrderedSessionStoreWithHeaders of 4.3.1 puts a zero byte before on-window-close sessions of "
             f'before (KIP-1285): a number is read as "{NOT_A_LONG}", a text is another one without a word',
             "leave dsl.store.format at DEFAULT; what was started with HEADERS once has to be wiped and restored"),
        Code("sst-not-named", _WARNING,
             "VersionSet::Recover: RocksDB opens what the MANIFEST names; one that is cut off between two records "
             "opens as it once was, and after a crash such files are harmless",
             f"where the application did not crash, rebuild the store: {RESTORE} --rebuild"),
        Code("not-understood", _ERROR,
             "kstate follows no links, and foretells nothing of what it does not understand "
             "(StateDirectory.getOrCreateDirectoryForTask: what is named like a task has to be a directory)",
             "put back what belongs there; what is wrong says: kstate ls APP"),
        # Files of a task.
        Code("malformed-checkpoint", _ERROR,
             f"OffsetCheckpoint.read ({see('offsets.md#checkpoint')})", _WIPE_TASK),
        Code("malformed-store-checkpoint", _ERROR,
             f"LegacyCheckpointingStateStore.init ({see('start.md#first-start-of-43')})", _WIPE_TASK),
        Code("malformed-position", _ERROR,
             f"StoreQueryUtils.readPositionFromCheckpoint ({see('offsets.md#position-files')})",
             "remove the file: Positions begin empty"),
        Code("dropped-line", _WARNING,
             "OffsetCheckpoint.read drops lines with a negative offset other than -4 "
             f"({see('offsets.md#checkpoint')})", RESTORE),
        Code("foreign-in-segments", _ERROR,
             "AbstractSegments.segmentIdFromSegmentName: up to 4.2 the store opens silently empty, 4.3 does not start "
             f"({see('layout.md#foreign-entries')})", "move it out of the application directory"),
        Code("foreign-in-task", _WARNING,
             "StateDirectory.taskDirIsEmpty: under exactly-once a task with a foreign entry and no offset is wiped "
             f"({see('layout.md#foreign-entries')})", "move it out of the application directory"),
        Code("lock-file-in-task", _WARNING,
             f"StateDirectory.taskDirIsEmpty deletes what ends in .lock ({see('layout.md#foreign-entries')})",
             "move it out of the application directory, if it is wanted"),
        Code("leftover-file", _EXPECTED,
             f"OffsetCheckpoint.write: a crash leaves it ({see('layout.md#paths')})", _NOTHING),
        Code("old-segment-name", _EXPECTED,
             f"AbstractSegments.renameSegmentFile renames it at the start ({see('layout.md#segments')})", _NOTHING),
        Code("segment-off-grid", _ERROR,
             "AbstractSegments.segmentName: a start that is no multiple of the segment interval is opened under "
             f"another name ({see('layout.md#segments')})", f"rename it, or wipe the store: {_WIPE_STORE}"),
        Code("store-in-two-subtopologies", _WARNING,
             "a store belongs to one subtopology: a copy is named like a task, or subtopologies were renumbered "
             f"({see('layout.md#foreign-entries')})",
             "name the topology, and check says which directory is left over: kstate check APP --for STARTED "
             "--topology TOPOLOGY.txt"),
        Code("shared-store-regrouped", _WARNING,
             "InternalTopologyBuilder.addStateStore: some patch releases put processors whose suppliers return one "
             f"StoreBuilder into one sub-topology (KAFKA-20464; {see('start.md#one-store-of-several-sub-topologies')})",
             "write the texts of Topology#describe of both releases into files: kstate check APP --for STARTED "
             "--topology AFTER.txt --from BEFORE.txt"),
        Code("failed-start-deletes", _WARNING,
             "StateManagerUtil.closeStateManager: under exactly-once a task that is not closed clean is deleted "
             f"({see('start.md#going-down')})",
             "do not start the application before the errors are gone"),
        # A topology that is asked about.
        Code("left-over-task", _WARNING,
             "InternalTopologyBuilder.buildSubtopology of 4.3 builds the whole topology for a number that it has not; "
             "the instance of a global store is opened for one task only (RocksDBMetricsRecorder.init; "
             f"{_HOMES})", _REHOME),
        Code("unknown-topology", _ERROR,
             f"TopologyMetadata.lookupBuilderForTask of 4.3: UnknownTopologyException ({_HOMES})",
             "move the directory of the named topology out of the application directory"),
        Code("store-elsewhere", _WARNING,
             "StateDirectory.getOrCreateDirectoryForTask: a task is named after its sub-topology, and Streams looks "
             f"for a store there only ({_HOMES})", _REHOME),
        Code("moved-without-changelog", _ERROR,
             f"ProcessorStateManager: a store that is not logged begins empty in another task ({_HOMES})", _REHOME),
        Code("store-not-in-topology", _WARNING,
             f"the changelog stays, and so does the store, until its task is deleted ({_HOMES})", _REHOME),
        Code("copy-deleted", _WARNING,
             f"StateManagerUtil.closeStateManager deletes all that is in a corrupted task ({_HOMES})", _REHOME),
        Code("new-store", _WARNING,
             "ProcessorStateManager.initializeStoreOffsets: under exactly-once one logged store on disk without an "
             f"offset wipes its task ({_HOMES})", _REHOME),
        Code("name-of-another-operator", _ERROR,
             "InternalStreamsBuilder.newStoreName: the name carries the number of the operator, and another one that "
             f"gets the number takes rows and changelog for its own ({_HOMES})",
             "do not start the application: pin the names of before in the code, by Materialized.as"),
        Code("rehome-refused", _WARNING, "kstate: rehome refuses what it cannot do without a loss", _REHOME),
        Code("rehome-warns", _WARNING, "kstate: what rehome warns of when it does this", _REHOME),
        # Offsets.
        Code("no-offsets", _WARNING,
             f"ProcessorStateManager: rows without any offset ({see('offsets.md#which-stores')})", RESTORE),
        Code("offset-missing", _WARNING,
             "ProcessorStateManager: one logged store without an offset wipes its whole task under exactly-once "
             f"({see('offsets.md#which-stores')})", RESTORE),
        Code("unknown-offset", _WARNING,
             "OffsetCheckpoint.OFFSET_UNKNOWN: -4 is no offset; LegacyCheckpointingStateStore.migrateLegacyOffsets "
             f"drops it, which wipes the task under exactly-once ({see('start.md#first-start-of-43')})", _MIGRATE),
        Code("never-written", _EXPECTED,
             f"OffsetCheckpoint.OFFSET_UNKNOWN: an empty store ({see('offsets.md#what-an-offset-means')})", _NOTHING),
        Code("no-segments", _WARNING,
             "AbstractSegments.committedOffset: without a segment an offset has no home, and 4.3 wipes the task at "
             f"every start under exactly-once ({see('offsets.md#no-segments')})", _MIGRATE),
        Code("no-segments-yet", _WARNING,
             "AbstractSegments.committedOffset: a window or session store without a segment has no offset in 4.3; "
             f"under exactly-once its task is wiped at every start ({see('offsets.md#no-segments')})",
             "nothing helps but rows: the first segment keeps the offset"),
        Code("status-open", _WARNING,
             "AbstractColumnFamilyAccessor.open: not closed cleanly, so that uncommitted data may be in it "
             f"({see('offsets.md#status')})", RESTORE),
        Code("status-missing", _WARNING,
             "AbstractColumnFamilyAccessor.open: no status counts as closed, and only transactional stores (KIP-892) "
             f"never write one ({see('offsets.md#transactional-stores')})",
             f"if the application runs with transactional stores, pass {TRANSACTIONAL_STORES}; else: {RESTORE}"),
        Code("global-status-open", _ERROR,
             "GlobalStateManagerImpl.initialize does not handle TaskCorruptedException: every start fails the same "
             f"way ({see('start.md#global-stores')}; KAFKA-21034)", _WIPE_GLOBAL),
        Code("sentinel-offset", _ERROR,
             "StateDirectory.updateTaskOffsets: offsets of -2, -3 and below -5 are fatal "
             f"({see('offsets.md#what-an-offset-means')})",
             _WIPE_TASK),
        Code("global-unknown-offset", _ERROR,
             f"GlobalStateManagerImpl seeks to whatever is written, -4 too ({see('start.md#global-stores')})",
             _WIPE_GLOBAL),
        Code("global-unknown-topic", _ERROR,
             "GlobalStateManagerImpl.initialize up to 4.2: more topics than persistent global stores "
             f"({see('offsets.md#which-stores')})", _WIPE_GLOBAL),
        Code("stale-checkpoint", _WARNING,
             "LegacyCheckpointingStateStore.migrateLegacyOffsets: .checkpoint overrides the column family "
             f"({see('start.md#checkpoint-wins')})", _MIGRATE),
        Code("stale-position", _WARNING,
             "StoreQueryUtils.maybeMigrateExistingPositionFile: merged at every open, for ever "
             f"({see('offsets.md#position-files')})", "remove the .position file"),
        Code("segments-disagree", _WARNING,
             "AbstractSegments.committedOffset: 4.3.0 reads the oldest segment, 4.3.1 the newest "
             f"({see('offsets.md#where-each-kind-keeps-it')})", RESTORE),
        Code("segment-behind", _ERROR,
             "AbstractSegments.committedOffset: a start takes the offset of one segment for all, and restores nothing "
             f"below it; each segment is only as far as its own last flush ({see('offsets.md#segments-after-a-kill')})",
             _RESTORE_STORE),
        Code("versioned-replayed", _WARNING,
             "LogicalKeyValueSegments.openExisting finds no logical segment again, so RocksDBVersionedStore.put does "
             "not see what is in them; and at least once flushes rows that are ahead of the committed offset "
             f"({see('offsets.md#rows-ahead-of-the-offset')})", _RESTORE_STORE),
        Code("start-hangs", _ERROR,
             "TaskManager.closeDirtyAndRevive: with transactional stores nothing is wiped if the first store of a task "
             f"has status 1, and the client stays in REBALANCING ({see('offsets.md#transactional-stores')})",
             _WIPE_TASK),
        Code("offset-without-store", _ERROR,
             "OffsetCheckpoint: an offset outlives the directory of its store; Streams makes a new one and "
             "restores nothing below the offset", RESTORE),
        Code("store-missing", _WARNING,
             "the same subtopology has the store in other tasks", RESTORE),
        Code("maybe-unclean", _WARNING,
             "ProcessorStateManager.checkpoint: .checkpoint is written when restoration completes too, so that it "
             f"outlives a crash ({see('start.md#clean-or-not')})", RESTORE),
        Code("without-changelog", _EXPECTED,
             "no offset anywhere: it counts as a store without a changelog (withLoggingDisabled)", _NOTHING),
        Code("lost-with-its-task", _ERROR,
             "StateManagerUtil.closeStateManager wipes the directory of a corrupted task as a whole, and a store "
             "without a changelog is restored from nothing (withLoggingDisabled)",
             "nothing brings its rows back after the start; before it keep them: kstate export APP STORE --out DIR"),
        # The log.
        Code("below-log-start", _WARNING,
             f"StoreChangelogReader: OffsetOutOfRangeException (KIP-406; {see('changelogs.md#log-ends')})", RESTORE),
        Code("beyond-log-end", _ERROR,
             "StoreChangelogReader: OffsetOutOfRangeException; the topic was made anew or cut, and the store may be "
             f"the only copy ({see('changelogs.md#log-ends')})", _EXPORT_FIRST),
        Code("past-the-dump", _EXPECTED,
             "the application ran on since the dump was taken, or the topic was made anew: the broker knows "
             f"({see('changelogs.md#dump-or-store')})",
             "ask the broker: --bootstrap-server HOST:PORT, or --offsets FILE"),
        Code("global-out-of-range", _ERROR,
             "GlobalStateManagerImpl.restoreState: the folder global is deleted and the start fails; the next one "
             f"rebuilds it (KIP-406; {see('start.md#global-stores')})", _WIPE_GLOBAL),
        Code("topic-recreated", _ERROR,
             "KIP-516: another topic id under the same name; offsets of the old log mean nothing in the new one "
             f"({see('changelogs.md#another-log')})", _EXPORT_FIRST),
        Code("log-missing", _ERROR,
             "InternalTopicManager makes a changelog that is missing anew, and empty; a source topic that is missing "
             "ends the start (MissingSourceTopicException), and so does a changelog with other partitions: it was "
             f"deleted, or this is another cluster ({see('changelogs.md#log-ends')})", _EXPORT_FIRST),
        Code("near-log-start", _WARNING,
             "delete retention moves the log start: once past the offset the store is restored from the beginning "
             f"(KIP-406; {see('changelogs.md#log-ends')})", f"start soon, or: {RESTORE}"),
        Code("catches-up", _EXPECTED,
             "StoreChangelogReader: from the offset to the end of the log", _NOTHING),
        Code("older-than-tombstones", _WARNING,
             "delete.retention.ms: tombstones may be compacted away since the data was written, and deleted keys stay "
             f"({see('changelogs.md#forgotten-deletes')})", RESTORE),
        Code("age-unknown", _EXPECTED,
             "no SST of the store, and no run of kstate, says when its data was written: older than "
             f"delete.retention.ms, deleted keys may stay ({see('changelogs.md#forgotten-deletes')})",
             f"if it may be old: {RESTORE} --rebuild"),
        Code("grace-buffer-restored", _WARNING,
             "RocksDBTimeOrderedKeyValueBytesStore restores with keys written twice over "
             f"({see('changelogs.md#grace-buffers')})",
             RESTORE),
        Code("changelog-without-store", _EXPECTED,
             "a changelog that no directory here belongs to: a store in memory, restored whole at every start",
             _NOTHING),
        # Ages and surroundings.
        Code("cleaner-may-delete", _EXPECTED,
             "StateDirectory.cleanRemovedTasks: after state.cleanup.delay.ms tasks that are not assigned here "
             f"({see('layout.md#ages')})", _NOTHING),
        Code("older-than-max-age", _WARNING,
             f"StateDirectory.cleanOutdatedDirsOnStartup: state.cleanup.dir.max.age.ms ({see('layout.md#ages')})",
             RESTORE),
        Code("versioned-position", _EXPECTED,
             "RocksDBVersionedStore.writePosition of 4.3: the Position is lost at a restart "
             f"({see('offsets.md#where-each-kind-keeps-it')})", _NOTHING),
        Code("kept-too-long", _WARNING,
             "what kstate keeps for undo pins bytes that Streams has compacted away",
             "kstate clean APP --older-than 7d"),
        Code("unfinished-run", _WARNING,
             "a run of kstate was interrupted: the next changing command finishes it or sweeps it away",
             "run the command again; what it takes over: kstate status APP"),
        Code("only-kept", _WARNING,
             "the directory was emptied: the next start restores from the beginning what a run of kstate keeps",
             "the finding says what puts it back, where a command does; what each run keeps: kstate status APP"),
        Code("foreign-owner", _WARNING,
             f"the application has to read and write its files ({see('layout.md#owners')})",
             "chown to the owner of the application directory"),
        Code("lock-not-shared", _WARNING,
             "StateDirectory.lockStateDirectory: POSIX locks may not be seen by other hosts "
             f"({see('layout.md#locks')})", "run one instance for each directory only"),
    )
}  # fmt: skip
"""Every finding by its code."""


def finding(
    name: str, text: str, *, task: str | None = None, store: str | None = None, level: Level | None = None
) -> Finding:
    """A finding of the code ``name``; ``level`` where the case is worse or better than the usual one."""
    code = CODES[name]
    return Finding(name, level or code.level, code.rule, code.hint, text, task, store)

"""What Kafka Streams, its clients and RocksDB print, as far as a prediction or an explanation names it.

Each is a part of the real text, up to where it differs between releases; ``{}`` stands for what the case fills in. The
class that prints it comes before it. ``tests/interop/test_streams_log.py`` finds each in the jars of the releases.
"""

from __future__ import annotations

from typing import Final

# --- .checkpoint, .position -----------------------------------------------------------------------------------------

# ProcessorStateManager, up to 4.2.
CHECKPOINT_NOT_LOADED: Final = "Error loading and deleting checkpoint file when creating the state manager"
# GlobalStateManagerImpl, up to 4.2.
GLOBAL_CHECKPOINT_NOT_READ: Final = "Failed to read checkpoints for global state globalStores"
# LegacyCheckpointingStateStore, from 4.3 on.
CHECKPOINT_NOT_MIGRATED: Final = "Error migrating checkpoint file for task '{}'"
STORE_CHECKPOINT_NOT_LOADED: Final = "Error loading checkpoint file when creating StateStore '{}'"
# StoreQueryUtils.
POSITION_NOT_READ: Final = "Error reading checkpoint file"
# OffsetCheckpoint, as a warning.
LINE_DROPPED: Final = "Read offset={} from checkpoint file for {}"

# --- opening a store ------------------------------------------------------------------------------------------------

# RocksDBStore; the directory is that of the database.
STORE_NOT_OPENED: Final = "Error opening store {} at location {}"
UNEXPECTED_FAMILY: Final = "Unexpected column family '{}' found in store {}"
# RocksDB, DB::Open.
FAMILIES_NOT_OPENED: Final = "Column families not opened: {}"
FORMAT_VERSION: Final = "format_version: {}"
LOG_WITHOUT_CURRENT: Final = "While creating a new Db, wal_dir contains existing log file"
# RocksDB, at any read of a block; the second once a file that the MANIFEST names is missing.
CHECKSUM: Final = "block checksum mismatch: stored"
NOT_FOUND: Final = "While open a file for random read"
OTHER_SIZE: Final = "Sst file size mismatch: "
# LongDeserializer.
NOT_A_LONG: Final = "Size of data received by LongDeserializer is not 8"
# AbstractSegments; Java's own message begins with "Index" or "index".
NO_SEGMENT_ID: Final = "Unable to parse segment id as long from segmentName: {}"
SEGMENT_NAME_TOO_SHORT: Final = "ndex out of range: "
# RocksDBStore, in a segment of a store that was closed because of another one: two parts of one text.
SEGMENT_CLOSED: Final = ("Store {}.", "is currently closed")
# RocksDBStore, and AbstractColumnFamilyAccessor as its cause: exactly once, from 4.3 on.
INVALID_STATE: Final = (
    "State store {} didn't find a valid state, since under EOS it has the risk of getting uncommitted data in stores",
    "Invalid state during store open. Expected state to be either empty or closed",
)
# RocksDBMetricsRecorder.
ANOTHER_TASK: Final = "Metrics recorder is re-initialised with different task: previous task is {}"

# RocksDB, for a database that the same process has open already.
LOCK_HELD: Final = "lock hold by current process"

# UnknownTopologyException, of TopologyMetadata.
NO_BUILDER: Final = "Unable to locate topology builder"
UNKNOWN_TOPOLOGY: Final = "{} due to being unable to locate a Topology named {}"

# --- offsets --------------------------------------------------------------------------------------------------------

# ProcessorStateManager, and StateDirectory as its cause: from 4.3 on.
SENTINEL: Final = (
    "Error updating state directory offsets when creating the state manager",
    "Expected not to get a sentinel offset",
)
# ProcessorStateManager, at level INFO but for the last.
FROM_OFFSET: Final = "State store {} initialized from checkpoint with offset {} at changelog {}"
FROM_START: Final = (
    "State store {} did not find checkpoint offset, hence would default to the starting offset at changelog {}"
)
NOT_LOGGED: Final = "State store {} is not logged and hence would not be restored"
NO_OFFSETS: Final = (
    "State store {} did not find checkpoint offsets while stores are not empty, since under EOS it has the risk of "
    "getting uncommitted data in stores we have to treat it as a task corruption error and wipe out the local state "
    "of task {} before re-bootstrapping"
)

# --- a task is wiped ------------------------------------------------------------------------------------------------

# TaskCorruptedException.
CORRUPTED: Final = "Tasks {} are corrupted and hence need to be re-initialized"
# StreamThread.
REVIVED: Final = (
    "Detected the states of tasks {} are corrupted. Will close the task as dirty and re-create and bootstrap "
    "from scratch."
)
# StateManagerUtil, at level DEBUG.
WIPED: Final = "Wiping state stores for {} task {}"
# StateDirectory: the cleaner, and from 4.3 on the start.
OBSOLETE: Final = "Deleting obsolete state directory {} for task {} as {}ms has elapsed (cleanup delay is {}ms)."
OUTDATED: Final = (
    "Deleting outdated state directory {} as {}ms has elapsed from last update (max directory age is {}ms)."
)

# --- the log --------------------------------------------------------------------------------------------------------

# StoreChangelogReader; the first is a warning, the others are at level DEBUG or INFO.
OUT_OF_RANGE: Final = (
    "it is likely that the consumer's position has fallen out of the topic partition offset range because the topic "
    "was truncated or compacted on the broker, marking the corresponding tasks as corrupted and re-initializing it "
    "later."
)
RESTORES_FROM_OFFSET: Final = "Start restoring changelog partition {} from current offset {} to end offset {}."
RESTORES_FROM_START: Final = (
    "Start restoring changelog partition {} from the beginning offset to end offset {} since we cannot find current "
    "offset."
)
RESTORED: Final = "Finished restoring changelog {} to store {} with a total number of {} records"
# StreamThread; then the thread ends with MissingSourceTopicException.
SOURCE_MISSING: Final = "Missing source topics"
# InternalTopicManager.
OTHER_PARTITIONS: Final = "Existing internal topic {} has invalid partitions: expected: {}; actual: {}."

# --- global stores --------------------------------------------------------------------------------------------------

# GlobalStreamThread: "Bootstrapping global state failed" at the start, "Updating global state failed" a moment later.
GLOBAL_FAILED: Final = "global state failed"
# KafkaConsumer.
SEEK_NEGATIVE: Final = "seek offset must not be a negative number"
# GlobalStateManagerImpl, up to 4.2: what it throws, without the partition and the file, which it logs before.
UNKNOWN_TOPIC: Final = "Encountered a topic-partition not associated with any global state store"

# --- the directory --------------------------------------------------------------------------------------------------

# StateManagerUtil: another thread, or another instance, has the task directory.
TASK_LOCKED: Final = "Failed to lock the state directory for task {}"
# QueryableStoreProvider, for the application that asks a store.
MIGRATED: Final = "The state store, {}, may have migrated to another instance."
# StateDirectory.
LOCKED: Final = "Unable to obtain lock as state directory is already locked by another process"

# --- which releases -------------------------------------------------------------------------------------------------

UP_TO_4_2: Final = frozenset({CHECKPOINT_NOT_LOADED, GLOBAL_CHECKPOINT_NOT_READ, UNKNOWN_TOPIC})
"""Releases before 4.3 print these, and no others do."""
FROM_4_3: Final = frozenset(
    {CHECKPOINT_NOT_MIGRATED, STORE_CHECKPOINT_NOT_LOADED, UNEXPECTED_FAMILY, OUTDATED, *INVALID_STATE, SENTINEL[0]}
)
"""4.3 prints these, and no release before it does."""


def readable_sentence(sentence: str) -> str:
    """Return a sentence for people: with three dots for names and omitted text, and with its releases."""
    text = sentence.replace("{}", "…")
    # A sentence that begins in lower case, or ends with a space, is a part of a longer line of the log.
    if text[0].islower():
        text = f"…{text}"
    if text[-1] == " ":
        text = f"{text}…"
    if sentence in UP_TO_4_2:
        return f"{text} (up to 4.2)"
    if sentence in FROM_4_3:
        return f"{text} (from 4.3 on)"
    return text

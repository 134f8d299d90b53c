"""Findings of ``check``: the place of an offset in its log, and records that the log no longer has."""

from __future__ import annotations

from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.check.findings import EXPORT_FIRST, NOTHING, RESTORE, WIPE_GLOBAL, FindingCode, Level
from kstate_cli.codes import SILENT

_CORRUPTED = (log.OUT_OF_RANGE, log.CORRUPTED, log.REVIVED)
_ASK = "to compare with the current log, run the same check with --bootstrap-server HOST:PORT"

BELOW_LOG_START: Final = FindingCode(
    "below-log-start",
    "The log now begins after the offset that the store needs next",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "Retention or compaction has moved the log start past the offset. Under exactly-once Streams wipes the task "
        "and restores it from the new beginning. Under at-least-once it restores over the rows of the store. Records "
        "that the log has lost are not restored."
    ),
    log=_CORRUPTED,
    source="StoreChangelogReader: OffsetOutOfRangeException (KIP-406; {page})",
    page="changelogs.md#log-ends",
    hint=RESTORE,
)
BEYOND_LOG_END: Final = FindingCode(
    "beyond-log-end",
    "The store is ahead of the end of its log",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "The topic was deleted and recreated, or truncated by an unclean leader election. The records of "
        "the store beyond the end exist nowhere else. Streams wipes the store or continues, depending on "
        "whether new records arrive before it checks."
    ),
    log=(*_CORRUPTED, log.GLOBAL_FAILED),
    source=(
        "StoreChangelogReader: OffsetOutOfRangeException. The topic was recreated or truncated, and the "
        "store may be the only copy ({page})"
    ),
    page="changelogs.md#log-ends",
    hint=EXPORT_FIRST,
    do=(_ASK,),
)
PAST_THE_DUMP: Final = FindingCode(
    "past-the-dump",
    "The store is ahead of the dump",
    level=Level.EXPECTED,
    changes_at_close=True,
    more=(
        "Usually the application ran after the dump. The topic may also have been recreated, which a dump cannot show."
    ),
    source="the application ran after the dump, or the topic was recreated: only the broker shows which ({page})",
    page="changelogs.md#dump-or-store",
    hint="compare it with the broker: --bootstrap-server HOST:PORT, or --offsets FILE",
)
GLOBAL_OUT_OF_RANGE: Final = FindingCode(
    "global-out-of-range",
    "The offset of a global store is no longer in its topic",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "Streams deletes the folder global, and the start fails. The next start rebuilds it. The start of "
        "3.9 and earlier never returns. The consumer of global stores does not reset (policy none, and no "
        "release has KIP-406)."
    ),
    log=(log.GLOBAL_FAILED,),
    source=(
        "GlobalStateManagerImpl.restoreState: Streams deletes the folder global and the start fails, and "
        "the next start rebuilds it (KIP-406; {page})"
    ),
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
)
TOPIC_RECREATED: Final = FindingCode(
    "topic-recreated",
    "The topic was deleted and recreated: its id differs from the one that the store was built from",
    level=Level.ERROR,
    more=(
        "An offset of the old log has no meaning in the new one, even within its bounds. The store may be "
        "the only copy of its records."
    ),
    log=SILENT,
    source=(
        "KIP-516: another topic id under the same name. Offsets of the old log have no meaning in the new one ({page})"
    ),
    page="changelogs.md#another-log",
    hint=EXPORT_FIRST,
    do=(_ASK,),
)
LOG_MISSING: Final = FindingCode(
    "log-missing",
    "The broker does not have the topic, or the partition, that the store is restored from",
    level=Level.ERROR,
    more="It was deleted, or this is another cluster. Streams creates a missing changelog again, without records.",
    log=(log.SOURCE_MISSING, log.OTHER_PARTITIONS),
    source=(
        "InternalTopicManager creates a missing changelog again, empty. A missing source topic ends the "
        "start (MissingSourceTopicException), and so does a changelog with another number of partitions. "
        "Either the topic was deleted, or this is another cluster ({page})"
    ),
    page="changelogs.md#log-ends",
    hint=EXPORT_FIRST,
    do=("first check that the bootstrap server belongs to the cluster of this application",),
)
NEAR_LOG_START: Final = FindingCode(
    "near-log-start",
    "The log will soon begin after the offset that the store needs next",
    level=Level.WARNING,
    changes_at_close=True,
    more="After that, Streams restores the store from the beginning instead of from its offset.",
    log=SILENT,
    source=(
        "delete retention moves the log start. Once it has passed the offset, Streams restores the store "
        "from the beginning (KIP-406; {page})"
    ),
    page="changelogs.md#log-ends",
    hint=f"start the application soon, or: {RESTORE}",
)
CATCHES_UP: Final = FindingCode(
    "catches-up",
    "The start restores the records between the offset and the end of the log",
    level=Level.EXPECTED,
    changes_at_close=True,
    more="This is normal. The more records there are, the longer the start takes.",
    log=(log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
    source="StoreChangelogReader: from the offset to the end of the log",
    hint=NOTHING,
)
OLDER_THAN_TOMBSTONES: Final = FindingCode(
    "older-than-tombstones",
    "The store may have missed deletes that the log no longer has",
    level=Level.WARNING,
    more=(
        "A compacted topic drops a tombstone after delete.retention.ms. A store that continues from an "
        "older offset never sees it: keys that were deleted in that time remain in the store, and return "
        "in joins and queries."
    ),
    log=SILENT,
    source=(
        "delete.retention.ms: compaction may have removed tombstones since the data was written, so that "
        "deleted keys remain ({page})"
    ),
    page="changelogs.md#forgotten-deletes",
    hint=RESTORE,
)
AGE_UNKNOWN: Final = FindingCode(
    "age-unknown",
    "The age of the store's data is unknown",
    level=Level.EXPECTED,
    more="If it is older than delete.retention.ms, keys that were deleted in that time may remain in the store.",
    log=SILENT,
    source=(
        "neither an SST of the store nor a run of kstate records when its data was written. If it is older "
        "than delete.retention.ms, deleted keys may remain ({page})"
    ),
    page="changelogs.md#forgotten-deletes",
    hint=f"if the data may be that old: {RESTORE} --rebuild",
)
GRACE_BUFFER_RESTORED: Final = FindingCode(
    "grace-buffer-restored",
    "Streams corrupts the keys of a grace buffer when it restores it",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "In the buffer of a stream-table join with a grace period, the key of a row begins with the time. "
        "When Streams restores the buffer, it adds the time a second time. It never finds such a record "
        "again, and the record stays. A restoration by kstate writes the right keys."
    ),
    log=SILENT,
    source="RocksDBTimeOrderedKeyValueBytesStore restores keys with the time written twice ({page})",
    page="changelogs.md#grace-buffers",
    hint=RESTORE,
)
CHANGELOG_WITHOUT_STORE: Final = FindingCode(
    "changelog-without-store",
    "A changelog has no directory: its store is in memory",
    level=Level.EXPECTED,
    more=(
        "Streams restores all of it at every start, from the beginning. If the store should be on disk, "
        "its directory is missing."
    ),
    log=(log.RESTORES_FROM_START,),
    source="no directory here belongs to the changelog: the store is in memory, and Streams restores all of "
    "it at every start",
    hint=NOTHING,
)

"""Findings of ``check``: the place of an offset in its log, and records that the log no longer has."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import EXPORT_FIRST, NOTHING, RESTORE, WIPE_GLOBAL, FindingCode, Level
from kstate_cli.codes import SILENT

_CORRUPTED = (log.OUT_OF_RANGE, log.CORRUPTED, log.REVIVED)
_ASK = f"to compare with the current log, repeat this check with {option.BOOTSTRAP_SERVER} HOST:PORT"

BELOW_LOG_START: Final = FindingCode(
    "below-log-start",
    "The changelog no longer has the record after the store's offset",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "The log start has moved beyond the offset because of retention or compaction. Under exactly-once, Streams "
        "wipes the task and restores it from the new log start. Under at-least-once, Streams keeps the existing "
        "rows and applies all records from the new log start. Records that are no longer in the log cannot be "
        "restored."
    ),
    log=_CORRUPTED,
    source="the consumer of StoreChangelogReader throws an OffsetOutOfRangeException (KIP-406; {page})",
    page="changelogs.md#log-ends",
    hint=RESTORE,
)
BEYOND_LOG_END: Final = FindingCode(
    "beyond-log-end",
    "The store's offset is beyond the end of its changelog",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "The topic was deleted and recreated, or an unclean leader election truncated it. Records beyond the end "
        "exist only in this store. Streams either wipes the store or uses it, depending on whether new records "
        "arrive before Streams checks the offset."
    ),
    log=(*_CORRUPTED, log.GLOBAL_FAILED),
    source=(
        "the consumer of StoreChangelogReader throws an OffsetOutOfRangeException. The topic was recreated or "
        "truncated, so the store may be the only copy ({page})"
    ),
    page="changelogs.md#log-ends",
    hint=EXPORT_FIRST,
    do=(_ASK,),
)
PAST_THE_DUMP: Final = FindingCode(
    "past-the-dump",
    "The store's offset is beyond the end of the dump",
    level=Level.EXPECTED,
    changes_at_close=True,
    more=(
        "Usually, this means that the application has run since the dump was taken. The topic may also have been "
        "recreated, but a dump cannot show that."
    ),
    source=(
        "the application has run since the dump was taken, or the topic was recreated. Only the broker can show "
        "which ({page})"
    ),
    page="changelogs.md#dump-or-store",
    hint=f"to compare the offset with the broker, pass {option.BOOTSTRAP_SERVER} HOST:PORT or {option.OFFSETS} FILE",
)
GLOBAL_OUT_OF_RANGE: Final = FindingCode(
    "global-out-of-range",
    "The topic no longer has the record at a global store's offset",
    level=Level.ERROR,
    changes_at_close=True,
    more=(
        "Streams deletes the global/ folder and fails to start. The next time it starts, it rebuilds the stores. In "
        "3.9 and earlier releases, startup hangs instead. The consumer for global stores has the reset policy none, "
        "so it does not reset its offset. KIP-406 would change this, but no release implements it."
    ),
    log=(log.GLOBAL_FAILED,),
    source=(
        "if GlobalStateManagerImpl.restoreState fails, Streams deletes the global/ folder and does not start. The "
        "next start rebuilds this folder (KIP-406; {page})"
    ),
    page="start.md#global-stores",
    hint=WIPE_GLOBAL,
)
TOPIC_RECREATED: Final = FindingCode(
    "topic-recreated",
    "The topic id has changed since the store was built, so the topic was recreated",
    level=Level.ERROR,
    more=(
        "Offsets from the old log have no meaning in the new log, even if they are within its bounds. The store may "
        "be the only copy of its records."
    ),
    log=SILENT,
    source=(
        "a recreated topic has the same name but a different topic id (KIP-516). Offsets from the old log have no "
        "meaning in the new log ({page})"
    ),
    page="changelogs.md#another-log",
    hint=EXPORT_FIRST,
    do=(_ASK,),
)
LOG_MISSING: Final = FindingCode(
    "log-missing",
    "The broker does not have the store's changelog topic or partition",
    level=Level.ERROR,
    more=(
        "The topic was deleted, or the broker belongs to a different cluster. If a changelog is missing, Streams "
        "recreates it without records."
    ),
    log=(log.SOURCE_MISSING, log.OTHER_PARTITIONS),
    source=(
        "if a changelog is missing, InternalTopicManager recreates it without records. Startup fails if a source topic "
        "is missing (MissingSourceTopicException) or if a changelog has the wrong number of partitions ({page})"
    ),
    page="changelogs.md#log-ends",
    hint=EXPORT_FIRST,
    do=("before that, check that the bootstrap server belongs to this application's cluster",),
)
NEAR_LOG_START: Final = FindingCode(
    "near-log-start",
    "The changelog will soon lose the record after the store's offset",
    level=Level.WARNING,
    changes_at_close=True,
    more="Once the record is lost, Streams restores the store from the beginning instead of from its offset.",
    log=SILENT,
    source=(
        "if retention moves the log start beyond the offset, Streams restores the store from the beginning "
        "(KIP-406; {page})"
    ),
    page="changelogs.md#log-ends",
    hint=f"start the application soon, or restore the stores: {RESTORE}",
)
CATCHES_UP: Final = FindingCode(
    "catches-up",
    "Streams restores the records between the store's offset and the end of the changelog",
    level=Level.EXPECTED,
    changes_at_close=True,
    more="This is normal. The more records Streams has to restore, the longer startup takes.",
    log=(log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
    source="StoreChangelogReader restores from the offset to the end of the changelog",
    hint=NOTHING,
)
OLDER_THAN_TOMBSTONES: Final = FindingCode(
    "older-than-tombstones",
    "The store may still contain deleted keys, because the log no longer has their tombstones",
    level=Level.WARNING,
    more=(
        "Kafka removes a tombstone from a compacted topic after delete.retention.ms. If Streams restores from an "
        "older offset, it never reads this tombstone. The deleted keys remain in the store and appear again in "
        "joins and queries."
    ),
    log=SILENT,
    source=(
        "after delete.retention.ms, compaction may have removed tombstones that the store has not read, so deleted "
        "keys remain ({page})"
    ),
    page="changelogs.md#forgotten-deletes",
    hint=RESTORE,
)
AGE_UNKNOWN: Final = FindingCode(
    "age-unknown",
    "kstate does not know how old the store's data is",
    level=Level.EXPECTED,
    more=("If the data is older than delete.retention.ms, keys that have since been deleted may remain in the store."),
    log=SILENT,
    source=(
        "neither the store's SSTs nor kstate's runs show when the data was written. If the data is older than "
        "delete.retention.ms, deleted keys may remain ({page})"
    ),
    page="changelogs.md#forgotten-deletes",
    hint=f"if the data may be that old, rebuild the store: {RESTORE} {option.REBUILD}",
)
GRACE_BUFFER_RESTORED: Final = FindingCode(
    "grace-buffer-restored",
    "Streams corrupts the keys of a grace buffer when it restores the buffer",
    level=Level.WARNING,
    changes_at_close=True,
    more=(
        "A stream-table join with a grace period has a buffer whose keys begin with the time. When Streams restores "
        "this buffer, it prepends the time again. Streams can then neither find nor remove the record. If you restore "
        "the buffer with kstate, the keys are correct."
    ),
    log=SILENT,
    source="RocksDBTimeOrderedKeyValueBytesStore writes the time into each restored key twice ({page})",
    page="changelogs.md#grace-buffers",
    hint=RESTORE,
)
CHANGELOG_WITHOUT_STORE: Final = FindingCode(
    "changelog-without-store",
    "A store with a changelog has no directory, because it is in memory",
    level=Level.EXPECTED,
    more=(
        "Streams completely restores an in-memory store every time it starts. If the store should be on disk, its "
        "directory is missing."
    ),
    log=(log.RESTORES_FROM_START,),
    source=("Streams restores an in-memory store from its changelog every time it starts"),
    hint=NOTHING,
)

"""Findings of ``check``: where an offset lies in its log, and what the log has forgotten."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts

_CORRUPTED = (log.OUT_OF_RANGE, log.CORRUPTED, log.REVIVED)
_ASK = "what the broker has now: the same check with --bootstrap-server HOST:PORT"

LOGS: Final = {
    "below-log-start": Texts(
        "The log now begins after the offset that the store needs next",
        "Retention or compaction has moved the log start past the offset. Under exactly-once the task is wiped and "
        "restored from the new beginning; under at-least-once it is restored over the rows that are there. Records "
        "that the log has lost are not restored.",
        _CORRUPTED,
    ),
    "beyond-log-end": Texts(
        "The store is further than the end of its log",
        "The topic was deleted and made anew, or cut by an unclean leader election. What the store has beyond the end "
        "exists nowhere else. Streams may wipe it: chance decides, by whether new records come before it looks.",
        (*_CORRUPTED, log.GLOBAL_FAILED),
        do=(_ASK,),
    ),
    "past-the-dump": Texts(
        "The store is further than the dump",
        "As a rule the application ran on after the dump was taken. It could also be that the topic was made anew: a "
        "dump cannot tell.",
    ),
    "global-out-of-range": Texts(
        "The offset of a global store is not in its topic any more",
        "Streams deletes the folder global, and the start fails; the next one builds it anew. The start of 3.9 and "
        "earlier never returns. The consumer of global stores resets to nothing (policy none; KIP-406 is in no "
        "release).",
        (log.GLOBAL_FAILED,),
    ),
    "topic-recreated": Texts(
        "The topic has another id than when the store was made: it was deleted and made anew",
        "An offset of the old log means nothing in the new one, even where it lies within its bounds. What the store "
        "has may be the only copy.",
        SILENT,
        do=(_ASK,),
    ),
    "log-missing": Texts(
        "The broker does not have the topic, or the partition, that the store is restored from",
        "It was deleted, or this is another cluster. Streams makes a changelog anew, and empty.",
        (log.SOURCE_MISSING, log.OTHER_PARTITIONS),
        do=("look at the bootstrap server first: is it the cluster of this application?",),
    ),
    "near-log-start": Texts(
        "The log will soon begin after the offset that the store needs next",
        "Once it is, the store is restored from the beginning instead of from its offset.",
        SILENT,
    ),
    "catches-up": Texts(
        "The start restores what lies between the offset and the end of the log",
        "That is how Streams works: the more records, the longer it takes.",
        (log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
    ),
    "older-than-tombstones": Texts(
        "The store may have missed deletes that the log no longer has",
        "A compacted topic drops a tombstone after delete.retention.ms. A store that goes on from an older offset "
        "never sees it: keys that were deleted meanwhile stay in it, and come back in joins and queries.",
        SILENT,
    ),
    "age-unknown": Texts(
        "It is not known when the store's data was written",
        "If that is longer ago than delete.retention.ms, keys that were deleted meanwhile may stay in it.",
        SILENT,
    ),
    "grace-buffer-restored": Texts(
        "Streams garbles the keys of a grace buffer when it restores it",
        "Rows of the buffer of a stream-table join with a grace period have the time before the record's key. When it "
        "restores, Streams puts the time before a key that has it already: such a record is never found again, and "
        "stays. A restoration by kstate has the right keys.",
        SILENT,
    ),
    "changelog-without-store": Texts(
        "A changelog has no directory here: a store in memory",
        "It is restored whole at every start, from the beginning. Where it should lie on disk, it is missing.",
        (log.RESTORES_FROM_START,),
    ),
}

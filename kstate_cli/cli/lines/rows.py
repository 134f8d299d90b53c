"""Lines of JSON about rows: ``query`` and ``diff``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.diff import model

# Of any type: the serde decides.
Key = Annotated[Any, Meaning("Key: as its serde renders it (query), in hex (diff).")]
Value = Annotated[Any, Meaning("Value, as its serde renders it.")]
# -1 is ConsumerRecord.NO_TIMESTAMP, which Streams stores like a time.
Timestamp = Annotated[int, Meaning("ms since 1970; -1: none.")]


class RecordHeader(TypedDict):
    """A value in ``headers``."""

    key: str
    value: Any


# A list, since a record may have a header twice.
Headers = Annotated[list[RecordHeader], Meaning("Record headers.")]
WindowStart = Annotated[int, Meaning("ms since 1970.")]
# Inclusive, as session windows are; time windows print only their start.
WindowEnd = Annotated[int, Meaning("ms since 1970, inclusive.")]
ValidFrom = Annotated[int, Meaning("ms since 1970.")]
# Exclusive, as VersionedRecord has it.
ValidTo = Annotated[int, Meaning("ms since 1970, exclusive; null: the latest version.")]


class UnreadablePart(TypedDict):
    """A key or a value that its serde does not read."""

    data: Annotated[Any, Meaning('its bytes, {"base64": …}; null where only its text is known')]
    message: str


class UnreadableParts(TypedDict, total=False):
    """The values of ``unreadable``."""

    key: UnreadablePart
    value: UnreadablePart


# The row is printed all the same: leaving it out would look like a store without it.
Unreadable = Annotated[
    UnreadableParts,
    Meaning("Of a key or value that its serde does not read: bytes, and why. The member itself is null."),
]
ExecutionInfo = Annotated[list[str], Meaning("What was done to answer.")]
More = Annotated[bool, Meaning("--limit has cut the answer: there are more rows.")]
Unread = Annotated[int, Meaning("How many things could not be read.", minimum=0)]
Failures = Annotated[int, Meaning("Partitions that did not answer.", minimum=0)]


class QueryRowLine(TypedDict):
    """A row of the answer. Which members it has is a matter of the subcommand and of the store's kind."""

    type: Literal["row"]
    partition: shared.Partition | None
    key: Key
    value: Value
    timestamp: NotRequired[Timestamp]
    headers: NotRequired[Headers]
    window_start: NotRequired[WindowStart]
    window_end: NotRequired[WindowEnd]
    valid_from: NotRequired[ValidFrom]
    valid_to: NotRequired[ValidTo | None]
    unreadable: NotRequired[Unreadable]


class QueryPartitionLine(TypedDict):
    """With --explain: how a partition was asked."""

    type: Literal["partition"]
    partition: shared.Partition | None
    position: shared.Position | None
    execution_info: ExecutionInfo


class QueryFailureLine(TypedDict):
    """A partition that did not answer, or not to the end."""

    type: Literal["failure"]
    partition: shared.Partition | None
    code: shared.Code
    message: shared.Message


class QuerySummaryLine(TypedDict):
    """The end; unread counts keys and values that their serde does not read."""

    type: Literal["summary"]
    store: shared.Store
    rows: shared.Rows
    more: More
    unread: Unread
    failures: Failures


QueryLine = QueryRowLine | QueryPartitionLine | QueryFailureLine | QuerySummaryLine | shared.ErrorLine


Difference = Annotated[str, Meaning("What is different about the row.", enum=values(model.RowIn))]
BufferTime = Annotated[int, Meaning("ms since 1970: when the record of a buffer was.")]
Seq = Annotated[int, Meaning("Sequence number in the row's key.")]
Segment = Annotated[int | str, Meaning("Segment of a version, or latest.")]
Side = Annotated[str, Meaning("Side of an outer join.", enum=("left", "right"))]
ForeignKey = Annotated[str, Meaning("Foreign key, in hex.")]
# So that a program can ask raw-key for exactly this row.
Row = Annotated[str, Meaning("The whole key as RocksDB has it, in hex.", pattern=r"^([0-9a-f]{2})*$")]
A = Annotated[
    Mapping[str, Any],
    Meaning('The value in A: {"value": hex, …}, {"malformed": hex} where it is none; null where there is none.'),
]
B = Annotated[
    Mapping[str, Any],
    Meaning('The value in B: {"value": hex, …}, {"malformed": hex} where it is none; null where there is none.'),
]
OnlyIn = Annotated[str, Meaning("Which directory alone has it; null: both.", enum=("a", "b"))]
# Two, because a migration may change the kind: with timestamps, or with headers.
Kinds = Annotated[list[str], Meaning("Its kind in A and in B; empty where it is not.", minItems=2, maxItems=2)]
Verdict = Annotated[
    str,
    Meaning(
        "What the comparison gave.", enum=("equal", "different", "only in A", "only in B", "other kind", "unreadable")
    ),
]
RowsA = Annotated[int, Meaning("Rows in A.", minimum=0)]
RowsB = Annotated[int, Meaning("Rows in B.", minimum=0)]
OnlyInA = Annotated[int, Meaning("Rows that only A has.", minimum=0)]
OnlyInB = Annotated[int, Meaning("Rows that only B has.", minimum=0)]
Different = Annotated[int, Meaning("Rows that both have, and not the same.", minimum=0)]
# Also if all else is equal: what was not compared may differ.
NotCompared = Annotated[list[str], Meaning("What only one of the two layouts has, or what was to be ignored.")]


class InBoth(TypedDict):
    """A value in A and in B."""

    a: Any
    b: Any


class OffsetsInBoth(TypedDict, total=False):
    """The values of ``offsets``."""

    changelog: InBoth
    position: InBoth


Offsets = Annotated[OffsetsInBoth, Meaning("Changelog offsets and Positions in A and B, where they are not the same.")]
Other = Annotated[str, Meaning("Absolute path of B.")]
Equal = Annotated[bool, Meaning("All of both was read, and is the same.")]
# The same rows may be missing on both sides.
Doubts = Annotated[int, Meaning("Reasons why rows may be silently missing in both.", minimum=0)]
Differing = Annotated[int, Meaning("Stores and tasks that differ.", minimum=0)]
AsOfA = Annotated[str, Meaning("as_of of A.")]
AsOfB = Annotated[str, Meaning("as_of of B.")]


class DiffDifferenceLine(TypedDict):
    """A row that is not the same in both, as soon as it is found; --limit of each store."""

    type: Literal["difference"]
    task: shared.Task
    store: shared.Store
    difference: Difference
    key: Key
    window_start: NotRequired[WindowStart]
    window_end: NotRequired[WindowEnd]
    buffer_time: NotRequired[BufferTime]
    seq: NotRequired[Seq]
    segment: NotRequired[Segment]
    timestamp: NotRequired[Timestamp]
    side: NotRequired[Side]
    foreign_key: NotRequired[ForeignKey]
    row: Row
    a: A | None
    b: B | None


class DiffTaskLine(TypedDict):
    """A task that only one of them has."""

    type: Literal["task"]
    task: shared.Task
    only_in: OnlyIn


class DiffStoreLine(TypedDict):
    """A store of a task. message says why it could not be read."""

    type: Literal["store"]
    task: shared.Task
    store: shared.Store
    only_in: OnlyIn | None
    kinds: Kinds
    verdict: Verdict
    rows_a: RowsA
    rows_b: RowsB
    only_in_a: OnlyInA
    only_in_b: OnlyInB
    different: Different
    not_compared: NotCompared
    message: shared.Message | None
    offsets: Offsets


class DiffSummaryLine(TypedDict):
    """The end; messages say what of the directories could not be read."""

    type: Literal["summary"]
    other: Other
    equal: Equal
    doubts: Doubts
    stores: shared.Stores
    differing: Differing
    unread: Unread
    messages: shared.Messages
    rows_a: RowsA
    rows_b: RowsB
    only_in_a: OnlyInA
    only_in_b: OnlyInB
    different: Different
    as_of_a: AsOfA
    as_of_b: AsOfB


DiffLine = DiffDifferenceLine | DiffTaskLine | DiffStoreLine | DiffSummaryLine | shared.ErrorLine

"""Lines of JSON about rows: ``query`` and ``diff``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.diff import model

# Of any type: the serde decides.
Key = Annotated[Any, Meaning("The key, decoded by its serde (query) or in hex (diff).")]
Value = Annotated[Any, Meaning("The value, decoded by its serde.")]
# -1 is ConsumerRecord.NO_TIMESTAMP, which Streams stores like a time.
Timestamp = Annotated[int, Meaning("The timestamp in ms since 1970, or -1 if there is none.")]


class RecordHeader(TypedDict):
    """A value in ``headers``."""

    key: str
    value: Any


# A list, since a record may have a header twice.
Headers = Annotated[list[RecordHeader], Meaning("The record headers.")]
WindowStart = Annotated[int, Meaning("The time in ms since 1970.")]
# Inclusive, as session windows are; time windows print only their start.
WindowEnd = Annotated[int, Meaning("The end of the window in ms since 1970, inclusive.")]
ValidFrom = Annotated[int, Meaning("The time in ms since 1970.")]
# Exclusive, as VersionedRecord has it.
ValidTo = Annotated[
    int, Meaning("The end of the version in ms since 1970, exclusive. It is null for the latest version.")
]


class UnreadablePart(TypedDict):
    """A key or a value that its serde cannot decode."""

    data: Annotated[Any, Meaning('its bytes, {"base64": …}; null if only its text is known')]
    message: str


class UnreadableParts(TypedDict, total=False):
    """The values of ``unreadable``."""

    key: UnreadablePart
    value: UnreadablePart


# The row is printed all the same: leaving it out would look like a store without it.
Unreadable = Annotated[
    UnreadableParts,
    Meaning(
        "The bytes of a key or value that its serde cannot decode, with the reason. The member `key` or "
        "`value` is then null."
    ),
]
ExecutionInfo = Annotated[list[str], Meaning("The execution info of the query.")]
More = Annotated[bool, Meaning("Whether there are more rows than --limit allows.")]
Unread = Annotated[int, Meaning("The number of keys and values that kstate could not decode.", minimum=0)]
Failures = Annotated[int, Meaning("The number of partitions that did not answer.", minimum=0)]


class QueryRowLine(TypedDict):
    """A row of the result. Its members depend on the subcommand and on the kind of the store."""

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
    """With --explain, the Position and the execution info of a partition."""

    type: Literal["partition"]
    partition: shared.Partition | None
    position: shared.Position | None
    execution_info: ExecutionInfo


class QueryFailureLine(TypedDict):
    """A partition that did not answer, or that answered only in part."""

    type: Literal["failure"]
    partition: shared.Partition | None
    code: shared.Code
    message: shared.Message


class QuerySummaryLine(TypedDict):
    """The last line of a query. unread is the number of keys and values that their serde cannot decode."""

    type: Literal["summary"]
    store: shared.Store
    rows: shared.Rows
    more: More
    unread: Unread
    failures: Failures


QueryLine = QueryRowLine | QueryPartitionLine | QueryFailureLine | QuerySummaryLine | shared.ErrorLine


Difference = Annotated[str, Meaning("The kind of difference.", enum=values(model.RowIn))]
BufferTime = Annotated[int, Meaning("The time of the buffered record, in ms since 1970.")]
Seq = Annotated[int, Meaning("The sequence number in the key of the row.")]
Segment = Annotated[int | str, Meaning("The segment that contains the version, or latest.")]
Side = Annotated[str, Meaning("The side of an outer join.", enum=("left", "right"))]
ForeignKey = Annotated[str, Meaning("The foreign key, in hex.")]
# So that a program can ask raw-key for exactly this row.
Row = Annotated[str, Meaning("The whole key in RocksDB, in hex.", pattern=r"^([0-9a-f]{2})*$")]
A = Annotated[
    Mapping[str, Any],
    Meaning(
        'The value in A: {"value": hex, …}. It is {"malformed": hex} if kstate cannot decode the value, '
        "and null if A has no such row."
    ),
]
B = Annotated[
    Mapping[str, Any],
    Meaning(
        'The value in B: {"value": hex, …}. It is {"malformed": hex} if kstate cannot decode the value, '
        "and null if B has no such row."
    ),
]
OnlyIn = Annotated[
    str, Meaning("The only directory that contains the task or store. It is null if both contain it.", enum=("a", "b"))
]
# Two, because a migration may change the kind: with timestamps, or with headers.
Kinds = Annotated[
    list[str],
    Meaning(
        "The store's kind in A and in B. It is empty for a directory that does not contain the store.",
        minItems=2,
        maxItems=2,
    ),
]
Verdict = Annotated[
    str,
    Meaning(
        "The result of the comparison.",
        enum=("equal", "different", "only in A", "only in B", "other kind", "unreadable"),
    ),
]
RowsA = Annotated[int, Meaning("The number of rows in A.", minimum=0)]
RowsB = Annotated[int, Meaning("The number of rows in B.", minimum=0)]
OnlyInA = Annotated[int, Meaning("The number of rows that exist only in A.", minimum=0)]
OnlyInB = Annotated[int, Meaning("The number of rows that exist only in B.", minimum=0)]
Different = Annotated[int, Meaning("The number of rows with the same key but different contents.", minimum=0)]
# Also if all else is equal: what was not compared may differ.
NotCompared = Annotated[
    list[str],
    Meaning(
        "The parts of rows that kstate did not compare, either because only one layout has them or "
        "because of an option."
    ),
]


class InBoth(TypedDict):
    """A value in A and in B."""

    a: Any
    b: Any


class OffsetsInBoth(TypedDict, total=False):
    """The values of ``offsets``."""

    changelog: InBoth
    position: InBoth


Offsets = Annotated[OffsetsInBoth, Meaning("The changelog offsets and Positions in A and B, if they differ.")]
Other = Annotated[str, Meaning("The absolute path of B.")]
Equal = Annotated[bool, Meaning("Whether kstate could read everything in both directories and found no difference.")]
# The same rows may be missing on both sides.
Doubts = Annotated[
    int,
    Meaning(
        ("The number of signs in both directories that rows may be silently missing."),
        minimum=0,
    ),
]
Differing = Annotated[int, Meaning("The number of stores and tasks that differ.", minimum=0)]
AsOfA = Annotated[str, Meaning("The value of as_of for A.")]
AsOfB = Annotated[str, Meaning("The value of as_of for B.")]


class DiffDifferenceLine(TypedDict):
    """A row that differs. kstate prints it when it finds it, up to --limit rows for each store."""

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
    """A task that only one of the directories has."""

    type: Literal["task"]
    task: shared.Task
    only_in: OnlyIn


class DiffStoreLine(TypedDict):
    """A store of a task. If kstate could not read the store, message contains the reason."""

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
    """The last line of diff. messages lists the parts of the directories that kstate could not read."""

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

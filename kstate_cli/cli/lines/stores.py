"""Lines of JSON about stores: ``ls``, ``inspect-position``, ``verify`` and ``export``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.cli.lines import outlook, shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.cli.views import stores

# Some kinds have the same bytes, such as key-value and list-value.
KindCertain = Annotated[bool, Meaning("Whether the bytes leave no doubt about the kind.")]
KindFrom = Annotated[str, Meaning("What the kind was taken from.")]
# 4.3 moved offsets from .checkpoint into the store (KIP-1035).
OffsetsIn = Annotated[
    str, Meaning("Where the changelog offset is kept.", enum=("column-family", "checkpoint", "store-file", "none"))
]
Status = Annotated[str, Meaning("How the last run left the store, if the store records it (from 4.3 on).")]
# RocksDB refuses to open a table of a newer format than its own: this decides about a downgrade.
SstFormats = Annotated[list[int], Meaning("Format versions of the SSTs.")]
ColumnFamilies = Annotated[list[str], Meaning("Column families of its databases.")]
# The names of its databases are these times; all rows of a segment expire together.
Segments = Annotated[list[int], Meaning("Start of each segment in ms since 1970; null: of a store without segments.")]
# The offset that the other segments state does not hold for its rows.
SegmentsWithoutOffset = Annotated[
    list[int],
    Meaning(
        "Start of each segment that states no offset while others do, in ms since 1970: the offset of the store "
        "is unknown, and rows may be missing."
    ),
]
# Only small stores are counted, because that reads every row.
RowsExact = Annotated[bool, Meaning("Whether rows were counted; false: estimated.")]
Leftovers = Annotated[list[str], Meaning("Names in the task's directory that no running application leaves.")]
# Under exactly-once Streams wipes such a task at its next start.
Unclean = Annotated[list[str], Meaning("Why uncommitted data may be in the store.")]
NewTask = Annotated[
    str, Meaning("The task that has the store in the topology of --topology; null where it has no such store.")
]
Home = Annotated[
    str,
    Meaning(
        "What becomes of the store in the topology of --topology. copy: its new task already has one here.",
        enum=values(stores.Move),
    ),
]


class StoreLine(TypedDict):
    """What ``ls`` and ``inspect-position`` print of a store."""

    type: Literal["store"]
    task: shared.Task
    store: shared.Store
    kind: shared.Kind
    kind_certain: KindCertain
    kind_from: KindFrom
    offsets_in: OffsetsIn
    changelog: shared.Changelog | None
    position: shared.Position | None
    status: Status | None
    running: shared.Running | None
    as_of: shared.AsOf
    sst_formats: SstFormats
    opens_in: shared.OpensIn
    column_families: ColumnFamilies
    segments: Segments | None
    segments_without_offset: SegmentsWithoutOffset
    rows: shared.Rows | None
    rows_exact: RowsExact
    bytes: shared.Bytes
    leftovers: Leftovers
    unclean: Unclean


class LsStoreLine(StoreLine):
    """A store of a task, or one that only has an offset there."""

    new_task: NotRequired[NewTask | None]
    home: NotRequired[Home]


KindsOfTasks = Annotated[
    list[str], Meaning("Kinds of the store in its tasks: more than one while a topology changes.", minItems=1)
]


class LsSumLine(TypedDict):
    """With --by-store: a store, summed over all its tasks."""

    type: Literal["sum"]
    store: shared.Store
    kinds_of_tasks: KindsOfTasks
    tasks: outlook.Tasks
    rows: shared.Rows | None
    rows_exact: RowsExact
    bytes: shared.Bytes
    opens_in: shared.OpensIn


class LsLackedLine(TypedDict):
    """A store of the topology that no task here has: new, in memory, or elsewhere."""

    type: Literal["lacked"]
    new_task: NewTask
    store: shared.Store


class LsSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    stores: shared.Stores
    bytes: shared.Bytes
    running: shared.Running | None
    as_of: shared.AsOf
    host: shared.Host
    process_id: shared.ProcessId | None


LsLine = shared.ProblemLine | LsStoreLine | LsSumLine | LsLackedLine | LsSummaryLine | shared.ErrorLine


# As PositionBound of IQv2 decides, by the partition of the task only.
UpToBound = Annotated[bool, Meaning("Whether it has reached the bound of --at.")]
Behind = Annotated[int, Meaning("How many of them are not up to --at.", minimum=0)]


class InspectPositionStoreLine(StoreLine):
    """A store of a task, as kstate ls has it; rows are estimated."""

    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None
    up_to_bound: NotRequired[UpToBound]


class InspectPositionMergedLine(TypedDict):
    """With --merge: the Positions of all stores shown, merged."""

    type: Literal["merged"]
    position: shared.Position | None


class InspectPositionSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    stores: shared.Stores
    behind: Behind
    running: shared.Running | None
    as_of: shared.AsOf


InspectPositionLine = (
    shared.ProblemLine
    | InspectPositionStoreLine
    | InspectPositionMergedLine
    | InspectPositionSummaryLine
    | shared.ErrorLine
)


Databases = Annotated[int, Meaning("RocksDB databases.", minimum=0)]
# Uncompressed: equal for equal rows, whatever RocksDB makes of them.
ContentBytes = Annotated[int, Meaning("Bytes of keys and values.", minimum=0)]
# Of rows and not of files: it survives a compaction, and a migration that keeps the rows.
Digest = Annotated[str, Meaning("Digest of the rows, the same on every host.")]
Remarks = Annotated[list[str], Meaning("Remarks for people who use the value.")]
Doubtful = Annotated[list[str], Meaning("TASK/STORE whose rows may be silently missing.")]
# In the output, so that "ok" is not read as more than it says.
NotCovered = Annotated[list[str], Meaning("What is not examined.")]


class VerifyStoreLine(TypedDict):
    """A store of a task that was read."""

    type: Literal["store"]
    task: shared.Task
    store: shared.Store
    kind: shared.Kind
    kind_certain: KindCertain
    databases: Databases
    rows: shared.Rows
    content_bytes: ContentBytes
    digest: Digest | None
    running: shared.Running | None
    as_of: shared.AsOf
    remarks: Remarks
    seconds: shared.Seconds
    ok: shared.Ok


class VerifyTaskLine(TypedDict):
    """Files of a task, or (null) beside the tasks, about which there is something to say."""

    type: Literal["task"]
    task: shared.Task | None
    ok: shared.Ok


class VerifyFindingLine(TypedDict):
    """What is wrong, after the store or task that it is about."""

    type: Literal["finding"]
    task: shared.Task | None
    store: shared.Store | None
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifySummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    ok: shared.Ok
    doubtful: Doubtful
    stores: shared.Stores
    databases: Databases
    rows: shared.Rows
    content_bytes: ContentBytes
    findings: shared.Findings
    subset: shared.Subset
    left_out: shared.LeftOut
    running: shared.Running | None
    as_of: shared.AsOf
    not_covered: NotCovered
    seconds: shared.Seconds


VerifyLine = VerifyStoreLine | VerifyTaskLine | VerifyFindingLine | VerifySummaryLine | shared.ErrorLine


KeySerde = Annotated[str, Meaning("--key-serde.")]
ValueSerde = Annotated[str, Meaning("--value-serde.")]
Columns = Annotated[Mapping[str, str], Meaning("Column of the Parquet files, and its type.")]


class ExportTaskLine(TypedDict):
    """A task whose rows were written."""

    type: Literal["task"]
    task: shared.Task
    partition: shared.Partition | None
    kind: shared.Kind
    rows: shared.Rows
    position: shared.Position | None
    files: shared.Files


class ExportFileLine(TypedDict):
    """A Parquet file."""

    type: Literal["file"]
    task: shared.Task
    partition: shared.Partition | None
    path: shared.Path
    rows: shared.Rows


class ExportSummaryLine(TypedDict):
    """The end: what _manifest.json says, and the bytes of all files."""

    type: Literal["summary"]
    application: shared.Application
    store: shared.Store
    kind: shared.Kind
    as_of: shared.AsOf
    key_serde: KeySerde
    value_serde: ValueSerde
    rows: shared.Rows
    columns: Columns
    remarks: Remarks
    out: shared.Out
    engine: shared.Engine
    engine_reason: shared.EngineReason
    files: shared.Files
    bytes: shared.Bytes


ExportLine = ExportTaskLine | ExportFileLine | ExportSummaryLine | shared.ErrorLine

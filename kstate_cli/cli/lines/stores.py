"""Lines of JSON about stores: ``ls``, ``inspect-position``, ``verify`` and ``export``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.cli.lines import outlook, shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.cli.views import store_homes

# Some kinds have the same bytes, such as key-value and list-value.
KindCertain = Annotated[bool, Meaning("Whether the files determine the kind with certainty.")]
KindFrom = Annotated[str, Meaning("Source from which kstate inferred the kind.")]
# 4.3 moved offsets from .checkpoint into the store (KIP-1035).
OffsetsIn = Annotated[
    str,
    Meaning(
        "Place where Streams keeps the changelog offset.", enum=("column-family", "checkpoint", "store-file", "none")
    ),
]
Status = Annotated[str, Meaning("How the last run left the store, if the store records it (from 4.3 on).")]
# RocksDB refuses to open a table of a newer format than its own: this decides about a downgrade.
SstFormats = Annotated[list[int], Meaning("Format versions of the SSTs.")]
ColumnFamilies = Annotated[list[str], Meaning("Column families of its databases.")]
# The names of its databases are these times; all rows of a segment expire together.
Segments = Annotated[list[int], Meaning("Start of each segment in ms since 1970; null for a store without segments.")]
# The offset that the other segments state does not hold for its rows.
SegmentsWithoutOffset = Annotated[
    list[int],
    Meaning(
        "Start of each segment that has no offset while others have one, in ms since 1970. The offset of the "
        "store is then unknown, and rows may be missing."
    ),
]
# Only small stores are counted, because that reads every row.
RowsExact = Annotated[bool, Meaning("Whether kstate counted the rows; false: it estimated them.")]
Leftovers = Annotated[list[str], Meaning("Names in the task's directory that a running application does not leave.")]
# Under exactly-once Streams wipes such a task at its next start.
Unclean = Annotated[list[str], Meaning("Why the store may contain uncommitted data.")]
NewTask = Annotated[
    str, Meaning("The task of the store in the topology of --topology; null if the topology does not have it.")
]
Home = Annotated[
    str,
    Meaning(
        "What happens to the store in the topology of --topology. copy: its new task already has one here.",
        enum=values(store_homes.Move),
    ),
]


class StoreLine(TypedDict):
    """The members that ``ls`` and ``inspect-position`` print for a store."""

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
    """A store of a task, also if only its offset is there."""

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
    """A store of the topology that is not in any task here, because it is new, in memory, or on another host."""

    type: Literal["lacked"]
    new_task: NewTask
    store: shared.Store


class LsSummaryLine(TypedDict):
    """The last line of ls."""

    type: Literal["summary"]
    stores: shared.Stores
    bytes: shared.Bytes
    running: shared.Running | None
    as_of: shared.AsOf
    host: shared.Host
    process_id: shared.ProcessId | None


LsLine = shared.ProblemLine | LsStoreLine | LsSumLine | LsLackedLine | LsSummaryLine | shared.ErrorLine


# As PositionBound of IQv2 decides, by the partition of the task only.
UpToBound = Annotated[bool, Meaning("Whether the store has reached the bound of --at.")]
Behind = Annotated[int, Meaning("Number of stores below --at.", minimum=0)]


class InspectPositionStoreLine(StoreLine):
    """A store of a task, with the same members as in kstate ls. The number of rows is an estimate."""

    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None
    up_to_bound: NotRequired[UpToBound]


class InspectPositionMergedLine(TypedDict):
    """With --merge: the merged Position of all stores that are shown."""

    type: Literal["merged"]
    position: shared.Position | None


class InspectPositionSummaryLine(TypedDict):
    """The last line of inspect-position."""

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
Doubtful = Annotated[list[str], Meaning("TASK/STORE of stores whose rows may be silently missing.")]
# In the output, so that "ok" is not read as more than it says.
NotCovered = Annotated[list[str], Meaning("Parts that kstate did not check.")]


class VerifyStoreLine(TypedDict):
    """A store of a task that kstate has read."""

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
    """A task with findings about its files; null for findings outside of tasks."""

    type: Literal["task"]
    task: shared.Task | None
    ok: shared.Ok


class VerifyFindingLine(TypedDict):
    """A finding, after the line of its store or task."""

    type: Literal["finding"]
    task: shared.Task | None
    store: shared.Store | None
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifySummaryLine(TypedDict):
    """The last line of verify."""

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
    """A task whose rows kstate has written."""

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
    """The last line of export: the contents of _manifest.json, and the size of all files."""

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

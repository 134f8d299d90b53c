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
KindFrom = Annotated[str, Meaning("The source from which kstate inferred the kind.")]
# 4.3 moved offsets from .checkpoint into the store (KIP-1035).
OffsetsIn = Annotated[
    str,
    Meaning(
        "Where Kafka Streams keeps the changelog offset.", enum=("column-family", "checkpoint", "store-file", "none")
    ),
]
Status = Annotated[str, Meaning("How the last run left the store, if the store records this (4.3 and later).")]
# RocksDB refuses to open a table of a newer format than its own: this decides about a downgrade.
SstFormats = Annotated[list[int], Meaning("The format versions of the SSTs.")]
ColumnFamilies = Annotated[list[str], Meaning("The column families of the store's databases.")]
# The names of its databases are these times; all rows of a segment expire together.
Segments = Annotated[
    list[int], Meaning("The start of each segment, in ms since 1970. It is null for a store without segments.")
]
# The offset that the other segments state does not hold for its rows.
SegmentsWithoutOffset = Annotated[
    list[int],
    Meaning(
        "The start of each segment that has no offset even though others do, in ms since 1970. The offset of the "
        "store is then unknown, and rows may be missing."
    ),
]
# Only small stores are counted, because that reads every row.
RowsExact = Annotated[bool, Meaning("Whether kstate counted the rows. If false, the number is an estimate.")]
Leftovers = Annotated[
    list[str], Meaning("The names of entries in the task directory that a running application does not create.")
]
# Under exactly-once Streams wipes such a task at its next start.
Unclean = Annotated[list[str], Meaning("Why the store may contain uncommitted data.")]
NewTask = Annotated[
    str,
    Meaning(
        "The store's task in the topology that you passed with --topology. It is null if this "
        "topology does not contain the store."
    ),
]
Home = Annotated[
    str,
    Meaning(
        (
            "What happens to the store in the topology that you passed with --topology. `copy` means that "
            "the new task on this host already has such a store."
        ),
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
    """A store of a task, even if only its offset exists."""

    new_task: NotRequired[NewTask | None]
    home: NotRequired[Home]


KindsOfTasks = Annotated[
    list[str],
    Meaning("The kinds of the store in its tasks. There can be several while a topology changes.", minItems=1),
]


class LsSumLine(TypedDict):
    """With --by-store, a store, summed over all its tasks."""

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
UpToBound = Annotated[bool, Meaning("Whether the store has reached the --at bound.")]
Behind = Annotated[int, Meaning("The number of stores below the --at bound.", minimum=0)]


class InspectPositionStoreLine(StoreLine):
    """A store of a task, with the same members as in kstate ls. The number of rows is an estimate."""

    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None
    up_to_bound: NotRequired[UpToBound]


class InspectPositionMergedLine(TypedDict):
    """With --merge, the merged Position of all stores in the output."""

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


Databases = Annotated[int, Meaning("The number of RocksDB databases.", minimum=0)]
# Uncompressed: equal for equal rows, whatever RocksDB makes of them.
ContentBytes = Annotated[int, Meaning("The size of the keys and values, in bytes.", minimum=0)]
# Of rows and not of files: it survives a compaction, and a migration that keeps the rows.
Digest = Annotated[str, Meaning("The digest of the rows, which is the same on every host.")]
Remarks = Annotated[list[str], Meaning("Remarks about the result, for people.")]
Doubtful = Annotated[list[str], Meaning("The stores whose rows may be silently missing, as TASK/STORE.")]
# In the output, so that "ok" is not read as more than it says.
NotCovered = Annotated[list[str], Meaning("The parts that kstate did not check.")]


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
    """A task with findings about its files. The task is null for findings outside of tasks."""

    type: Literal["task"]
    task: shared.Task | None
    ok: shared.Ok


class VerifyFindingLine(TypedDict):
    """A finding, which follows the line of its store or task."""

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


KeySerde = Annotated[str, Meaning("The value of --key-serde.")]
ValueSerde = Annotated[str, Meaning("The value of --value-serde.")]
Columns = Annotated[Mapping[str, str], Meaning("The columns of the Parquet files and their types.")]


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
    """The last line of export, with the contents of _manifest.json and the size of all files."""

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

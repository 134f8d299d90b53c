"""Lines of JSON about changes and their runs: from ``migrate`` to ``clean``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from kstate_cli.change import standby
from kstate_cli.change.journal import RUN_STATES
from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning, values

HeadersDropped = Annotated[int, Meaning("The number of record headers that the migration dropped.", minimum=0)]
RowsConverted = Annotated[int, Meaning("The number of rows that the migration moved to an older layout.", minimum=0)]
Steps = Annotated[int, Meaning("The number of steps in the plan.", minimum=0)]
Run = Annotated[str, Meaning("The name of a run, such as 0001-migrate.")]


PlanLine = shared.StepLine | shared.WarningLine | shared.NoteLine


class PlanEnd(TypedDict):
    """The last line of every plan, as members of a summary."""

    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


class ChangeSummaryLine(TypedDict):
    """The last line of a change."""

    type: Literal["summary"]
    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


ChangeLine = shared.StepLine | shared.WarningLine | shared.NoteLine | ChangeSummaryLine | shared.ErrorLine


class MigrateSummaryLine(TypedDict):
    """The last line of a migration, with the number of stores that it changes."""

    type: Literal["summary"]
    release: shared.Release
    stores: shared.Stores
    headers_dropped: HeadersDropped
    rows_converted: RowsConverted
    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


MigrateLine = shared.StepLine | shared.WarningLine | shared.NoteLine | MigrateSummaryLine | shared.ErrorLine


# false after --purge: the backup was deleted with the stores.
Undoable = Annotated[bool, Meaning("Whether you can undo the run.")]


class WipeSummaryLine(TypedDict):
    """The last line of a wipe."""

    type: Literal["summary"]
    undoable: Undoable
    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


WipeLine = shared.StepLine | shared.WarningLine | shared.NoteLine | WipeSummaryLine | shared.ErrorLine


Moved = Annotated[int, Meaning("The number of stores that move to another task.", minimum=0)]


class RehomeSummaryLine(TypedDict):
    """The last line of rehome."""

    type: Literal["summary"]
    moved: Moved
    stores: shared.Stores
    records: shared.Records
    engine: shared.Engine | None
    engine_reason: shared.EngineReason | None
    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


RehomeLine = (
    shared.StepLine
    | shared.WarningLine
    | shared.NoteLine
    | shared.RestoredStoreLine
    | RehomeSummaryLine
    | shared.ErrorLine
)


Left = Annotated[int, Meaning("The number of stores that remain unchanged.", minimum=0)]


class RestoreLeftLine(TypedDict):
    """A store that kstate leaves unchanged, with the reason."""

    type: Literal["left"]
    task: shared.Task
    store: shared.Store
    message: shared.Message


class RestoreRoundLine(TypedDict):
    """With --follow, a completed round, after its stores. If there was nothing to do, the line has no run."""

    type: Literal["round"]
    release: shared.Release
    stores: shared.Stores
    left: Left
    records: shared.Records
    executed: shared.Executed
    run: Run | None


class RestoreBarrierLine(shared.BarrierMembers):
    """The hosts at the barrier. kstate prints this line whenever they change."""

    type: Literal["barrier"]


class RestoreSummaryLine(TypedDict):
    """The last line of a restoration."""

    type: Literal["summary"]
    release: shared.Release
    stores: shared.Stores
    left: Left
    records: shared.Records
    barrier: shared.Barrier | None
    engine: shared.Engine
    engine_reason: shared.EngineReason
    steps: Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: Run | None


RestoreLine = (
    shared.StepLine
    | shared.WarningLine
    | shared.NoteLine
    | RestoreLeftLine
    | shared.RestoredStoreLine
    | RestoreRoundLine
    | RestoreBarrierLine
    | RestoreSummaryLine
    | shared.ErrorLine
)


Phase = Annotated[str, Meaning("The state of the run.")]
Before = Annotated[str, Meaning("The state of the restoration before the change.")]
# The words of Streams, which its users know from their own dashboards.
Restoration = Annotated[str, Meaning("The state of the restoration (KIP-728, KIP-696).")]
Predecessor = Annotated[str, Meaning("The run that this run resumes.")]
# A slice is what one task of the engine sorts: the unit of resuming.
Slices = Annotated[int, Meaning("The number of complete slices.", minimum=0)]
TotalSlices = Annotated[int, Meaning("The number of slices in the store or the run.", minimum=0)]
# Kept for one version, since programs read it.
Of = Annotated[int, Meaning("The old name of total_slices.", minimum=0, deprecated=True)]
RecordsPerSecond = Annotated[int, Meaning("The number of records that kstate processes per second.", minimum=0)]
SecondsLeft = Annotated[float, Meaning("The estimated remaining time in seconds.", minimum=0)]


class RestoreProgressPlanLine(TypedDict):
    """The run starts. The line contains the number of stores and the maximum number of records."""

    type: Literal["plan"]
    stores: shared.Stores
    records: shared.Records


class RestoreProgressPhaseLine(TypedDict):
    """A phase starts."""

    type: Literal["phase"]
    phase: Phase


class RestoreProgressStateLine(TypedDict):
    """The state of the restoration has changed."""

    type: Literal["state"]
    before: Before
    restoration: Restoration


class RestoreProgressRecoveredLine(TypedDict):
    """How the run of another process ended."""

    type: Literal["recovered"]
    message: shared.Message


class RestoreProgressWarningLine(TypedDict):
    """A warning of the run."""

    type: Literal["warning"]
    message: shared.Message


class RestoreProgressResumedLine(TypedDict):
    """The slices of an interrupted run that kstate reuses."""

    type: Literal["resumed"]
    predecessor: Predecessor
    slices: Slices
    total_slices: TotalSlices
    of: Of


class RestoreProgressProgressLine(TypedDict):
    """The completed slices. kstate prints this line every ten seconds."""

    type: Literal["progress"]
    slices: Slices
    total_slices: TotalSlices
    of: Of
    records: shared.Records
    bytes: shared.Bytes
    records_per_second: RecordsPerSecond
    seconds_left: SecondsLeft


RestoreProgressLine = (
    RestoreProgressPlanLine
    | RestoreProgressPhaseLine
    | RestoreProgressStateLine
    | RestoreProgressRecoveredLine
    | RestoreProgressWarningLine
    | RestoreProgressResumedLine
    | RestoreProgressProgressLine
)


class UndoSummaryLine(TypedDict):
    """The last line of undo. run is the run that kstate undid. It is null if there was none."""

    type: Literal["summary"]
    run: Run | None
    executed: shared.Executed
    message: shared.Message


UndoLine = UndoSummaryLine | shared.ErrorLine


Command = Annotated[str, Meaning("The run's command, such as migrate --to 4.2.")]
State = Annotated[str, Meaning("The state of the run.", enum=RUN_STATES)]
# Such a run has no error of its own: repeating it is safe, and continues where it was.
CutShort = Annotated[
    bool,
    Meaning(
        "For a failed run, true if a signal ended the run or if its process died. It is false if an error "
        "ended the run or if kstate did not record the cause."
    ),
]
Signal = Annotated[str, Meaning("The signal that ended the run, such as SIGTERM.")]
Started = Annotated[str, Meaning("The start time in ISO 8601.")]
Changed = Annotated[str, Meaning("The time of the last change, in ISO 8601.")]


class RunOrigin(TypedDict, total=False):
    """The values of ``by``. An older version of kstate did not record all of them."""

    argv: Any
    user: Any
    host: Any
    version: Any
    reason: Any


By = Annotated[RunOrigin, Meaning("Where the run came from: argv, user, host, kstate's version, and reason.")]
BytesPinned = Annotated[int, Meaning("The size of the backup for undo, in bytes.", minimum=0)]
# By phase, so that two restorations can be compared where they differ.
Spent = Annotated[
    Mapping[str, float],
    Meaning(
        (
            "For a complete restoration, the duration of each phase in seconds: plan, start, slices, stop, digests, "
            "check, ingest, verify, sync, switch."
        ),
        each={"minimum": 0},
    ),
]


class StagingLeftover(TypedDict):
    """The value of ``staging``."""

    path: shared.Path
    files: shared.Files
    bytes: shared.Bytes
    message: Annotated[str | None, Meaning("why kstate does not remove it")]


Staging = Annotated[StagingLeftover, Meaning("The files that the run left in a staging area.")]


class SlicesOfStore(TypedDict):
    """A value in ``progress``."""

    task: shared.Task
    store: shared.Store
    slices: Slices
    total_slices: TotalSlices
    of: Of
    records: shared.Records


Progress = Annotated[list[SlicesOfStore], Meaning("The progress of a restoration.")]
Runs = Annotated[int, Meaning("The number of runs.", minimum=0)]
# A standby that was used must not be followed: Streams has written to it.
Standby = Annotated[
    str,
    Meaning(
        (
            "For a standby, whether an application or another program has used it since the last round, or "
            "whether kstate cannot read its record. It is null if the directory is not a standby."
        ),
        enum=values(standby.StandbyUse),
    ),
]


class StatusRunLine(TypedDict):
    """A run. message states why the run failed or is damaged."""

    type: Literal["run"]
    run: Run
    path: shared.Path
    command: Command | None
    state: State
    cut_short: CutShort
    signal: Signal | None
    restoration: Restoration | None
    predecessor: Predecessor | None
    started: Started | None
    changed: Changed | None
    message: shared.Message | None
    by: By
    bytes_pinned: BytesPinned
    spent: Spent | None
    staging: Staging | None
    progress: Progress


class StatusSummaryLine(TypedDict):
    """The last line of status."""

    type: Literal["summary"]
    runs: Runs
    bytes_pinned: BytesPinned
    standby: Standby | None


StatusLine = StatusRunLine | StatusSummaryLine | shared.ErrorLine


class CleanLeftLine(TypedDict):
    """A run that kstate does not delete although it is old enough, with the reason."""

    type: Literal["left"]
    run: Run
    message: shared.Message


class CleanRunLine(TypedDict):
    """A run that kstate has deleted, or with --dry-run would delete."""

    type: Literal["run"]
    run: Run
    bytes_pinned: BytesPinned
    executed: shared.Executed


class CleanSummaryLine(TypedDict):
    """The last line of clean, with the number of runs and the size of their backups."""

    type: Literal["summary"]
    runs: Runs
    bytes_pinned: BytesPinned
    executed: shared.Executed


CleanLine = CleanLeftLine | CleanRunLine | CleanSummaryLine | shared.ErrorLine

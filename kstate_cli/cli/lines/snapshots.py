"""Lines of JSON about snapshots."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.cli.lines import changes, dumps, outlook, shared
from kstate_cli.cli.lines.shared import Meaning

PRUNE_OUTCOMES: Final = ("kept", "expired", "deleted")
"""The states of a snapshot after ``prune-snapshots``."""
NewBytes = Annotated[
    int,
    Meaning(
        "Bytes of SSTs and blob files that the repository did not have before; for a dry run, the maximum.",
        minimum=0,
    ),
]
SharedBytes = Annotated[int, Meaning("Bytes of SSTs and blob files that other snapshots need too.", minimum=0)]
UsableUntil = Annotated[
    str,
    Meaning(
        "Time until which the log certainly has every later delete, in UTC; null if unknown. If "
        "delete_retention_ms is null, kstate assumes the default of 24 h."
    ),
]
DeleteRetentionMs = Annotated[
    int,
    Meaning(
        (
            "The lowest delete.retention.ms of the changelogs, from the broker when the snapshot was taken; null "
            "without a broker."
        ),
        minimum=0,
    ),
]
OffsetReason = Annotated[
    str | None,
    Meaning(
        "Why kstate does not know its offset, so that after a restoration Kafka Streams reads the whole log of the "
        "store; null if kstate knows it."
    ),
]
Condemned = Annotated[int, Meaning("Snapshots that have expired, and are deleted after the grace period.", minimum=0)]
WillBeDeleted = Annotated[
    bool, Meaning("Whether the snapshot has expired and will be deleted; null if kstate cannot read a list of these.")
]
AfterRun = Annotated[
    str,
    Meaning("The state of the snapshot after the run, or after a run without --dry-run.", enum=PRUNE_OUTCOMES),
]
RemovedBytes = Annotated[int, Meaning("Bytes of these SSTs and blob files.", minimum=0)]
Waiting = Annotated[
    int, Meaning("Expired snapshots and unneeded files that a run after the grace period can delete.", minimum=0)
]
WaitingBytes = Annotated[int, Meaning("Bytes of these SSTs and blob files.", minimum=0)]
Captured = Annotated[int, Meaning("Tasks that are captured: of tasks, those that are not skipped.", minimum=0)]
Skipped = Annotated[int, Meaning("Tasks that are not captured.", minimum=0)]


class SnapshotStoreLine(TypedDict):
    """A store whose files are in the snapshot; of a dry run: would be."""

    type: Literal["store"]
    task: shared.Task
    store: shared.Store
    kind: shared.Kind
    changelog: shared.Changelog
    offset_reason: OffsetReason
    files: shared.Files
    bytes: shared.Bytes
    new_bytes: NewBytes


class SnapshotSkippedLine(TypedDict):
    """A task that is not captured, and why."""

    type: Literal["skipped"]
    task: shared.Task
    message: shared.Message


class SnapshotSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    out: shared.Out
    host: shared.Host
    snapshot: shared.Snapshot | None
    tasks: outlook.Tasks
    captured: Captured
    stores: shared.Stores
    files: shared.Files
    bytes: shared.Bytes
    new_bytes: NewBytes
    skipped: Skipped
    condemned: Condemned
    removed: dumps.Removed


SnapshotLine = SnapshotStoreLine | SnapshotSkippedLine | SnapshotSummaryLine | shared.ErrorLine


class RestoreSnapshotSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    release: shared.Release
    snapshots: shared.Snapshots
    stores: shared.Stores
    left: changes.Left
    bytes: shared.Bytes
    records: shared.Records
    barrier: shared.Barrier | None
    steps: changes.Steps
    warnings: shared.Warnings
    executed: shared.Executed
    run: changes.Run | None


RestoreSnapshotLine = (
    shared.StepLine
    | shared.WarningLine
    | shared.NoteLine
    | changes.RestoreLeftLine
    | shared.RestoredStoreLine
    | changes.RestoreBarrierLine
    | RestoreSnapshotSummaryLine
    | shared.ErrorLine
)


class LsSnapshotsSnapshotLine(TypedDict):
    """A snapshot. app is null, here and below. If the snapshot cannot be read, damage is the last member."""

    type: Literal["snapshot"]
    snapshot: shared.Snapshot
    damage: dumps.Damage | None
    application: NotRequired[shared.Application]
    host: NotRequired[shared.Host]
    tasks: NotRequired[outlook.Tasks]
    stores: NotRequired[shared.Stores]
    skipped: NotRequired[Skipped]
    bytes: NotRequired[shared.Bytes]
    shared_bytes: NotRequired[SharedBytes]
    usable_until: NotRequired[UsableUntil | None]
    usable: NotRequired[shared.Usable | None]
    will_be_deleted: NotRequired[WillBeDeleted | None]
    delete_retention_ms: NotRequired[DeleteRetentionMs | None]


class LsSnapshotsStoreLine(TypedDict):
    """With --generation: a store of the snapshot."""

    type: Literal["store"]
    snapshot: shared.Snapshot
    task: shared.Task
    store: shared.Store
    kind: shared.Kind
    changelog: shared.Changelog
    bytes: shared.Bytes


class LsSnapshotsSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    path: shared.Path
    snapshots: shared.Snapshots
    ok: shared.Ok


LsSnapshotsLine = LsSnapshotsSnapshotLine | LsSnapshotsStoreLine | LsSnapshotsSummaryLine | shared.ErrorLine


class VerifySnapshotsFindingLine(TypedDict):
    """A file that is damaged, missing or unreadable; path is relative to REPO. app is null, here and below."""

    type: Literal["finding"]
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifySnapshotsSummaryLine(TypedDict):
    """The end."""

    type: Literal["summary"]
    path: shared.Path
    ok: shared.Ok
    files: shared.Files
    bytes: shared.Bytes
    findings: shared.Findings
    subset: shared.Subset
    left_out: shared.LeftOut
    seconds: shared.Seconds


VerifySnapshotsLine = VerifySnapshotsFindingLine | VerifySnapshotsSummaryLine | shared.ErrorLine


class PruneSnapshotsSnapshotLine(TypedDict):
    """A snapshot. app is null, here and below. application and host are null if kstate cannot read it."""

    type: Literal["snapshot"]
    snapshot: shared.Snapshot
    application: shared.Application | None
    host: shared.Host | None
    after_run: AfterRun


class PruneSnapshotsSummaryLine(TypedDict):
    """The end. message states why files remain; it is null if nothing prevents their deletion."""

    type: Literal["summary"]
    path: shared.Path
    executed: shared.Executed
    condemned: Condemned
    removed: dumps.Removed
    removed_bytes: RemovedBytes
    waiting: Waiting
    waiting_bytes: WaitingBytes
    message: shared.Message | None


PruneSnapshotsLine = PruneSnapshotsSnapshotLine | PruneSnapshotsSummaryLine | shared.ErrorLine

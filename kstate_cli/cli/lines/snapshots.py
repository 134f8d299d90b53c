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
        "The size of the SSTs and blob files that are new in the repository, in bytes. For a dry run, it is the "
        "maximum.",
        minimum=0,
    ),
]
SharedBytes = Annotated[
    int, Meaning("The size of the SSTs and blob files that other snapshots also need, in bytes.", minimum=0)
]
UsableUntil = Annotated[
    str,
    Meaning(
        "The time (UTC) until which the log is guaranteed to contain every delete that is newer than the "
        "snapshot's data. It is null if this is unknown. If delete_retention_ms is null, kstate assumes the default of "
        "24 h."
    ),
]
DeleteRetentionMs = Annotated[
    int,
    Meaning(
        (
            "The lowest delete.retention.ms of the changelogs, as reported by the broker when the snapshot "
            "was taken. It is null without a broker."
        ),
        minimum=0,
    ),
]
OffsetReason = Annotated[
    str | None,
    Meaning(
        "Why kstate does not know the store's offset. Kafka Streams then reads the whole log after "
        "a restoration. It is null if kstate knows the offset."
    ),
]
Condemned = Annotated[
    int, Meaning("The number of expired snapshots. kstate deletes them after the grace period.", minimum=0)
]
WillBeDeleted = Annotated[
    bool,
    Meaning(
        "Whether the snapshot has expired and will be deleted. It is null if kstate cannot read one of the lists of "
        "expired snapshots."
    ),
]
AfterRun = Annotated[
    str,
    Meaning(
        "The state of the snapshot after the run. With --dry-run, it is the state after a real run.",
        enum=PRUNE_OUTCOMES,
    ),
]
RemovedBytes = Annotated[int, Meaning("The size of these SSTs and blob files, in bytes.", minimum=0)]
Waiting = Annotated[
    int,
    Meaning(
        "The number of expired snapshots and unneeded files that a run after the grace period can delete.", minimum=0
    ),
]
WaitingBytes = Annotated[int, Meaning("The size of these SSTs and blob files, in bytes.", minimum=0)]
Captured = Annotated[int, Meaning("The number of captured tasks. It is tasks minus skipped.", minimum=0)]
Skipped = Annotated[int, Meaning("The number of tasks that kstate did not capture.", minimum=0)]


class SnapshotStoreLine(TypedDict):
    """A store whose files are in the snapshot, or would be in it without --dry-run."""

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
    """A task that kstate did not capture, with the reason."""

    type: Literal["skipped"]
    task: shared.Task
    message: shared.Message


class SnapshotSummaryLine(TypedDict):
    """The last line of the command."""

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
    """The last line of the command."""

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
    """With --generation, a store of the snapshot."""

    type: Literal["store"]
    snapshot: shared.Snapshot
    task: shared.Task
    store: shared.Store
    kind: shared.Kind
    changelog: shared.Changelog
    bytes: shared.Bytes


class LsSnapshotsSummaryLine(TypedDict):
    """The last line of the command."""

    type: Literal["summary"]
    path: shared.Path
    snapshots: shared.Snapshots
    ok: shared.Ok


LsSnapshotsLine = LsSnapshotsSnapshotLine | LsSnapshotsStoreLine | LsSnapshotsSummaryLine | shared.ErrorLine


class VerifySnapshotsFindingLine(TypedDict):
    """A damaged, missing or unreadable file. path is relative to REPO. app is null, here and below."""

    type: Literal["finding"]
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifySnapshotsSummaryLine(TypedDict):
    """The last line of the command."""

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
    """The last line of prune-snapshots.

    message states why files remain. It is null if nothing prevents their deletion.
    """

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

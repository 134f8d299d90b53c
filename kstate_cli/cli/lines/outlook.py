"""Lines of JSON about the next start, lag, and many hosts: ``check``, ``lag`` and ``fleet``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import NotRequired, TypedDict

from kstate_cli.check import findings as check_findings
from kstate_cli.check import snapshot_reader
from kstate_cli.cli.lines import dumps, seeds, shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.cli.options import shared as options

# Of the store, and not of the release: one start can wipe a task and open another.
Outcome = Annotated[str, Meaning("What happens to the store at the next start.", enum=values(check_findings.Outcome))]
# Two outcomes, where the order of threads or of a rebalance decides.
OrElse = Annotated[
    str,
    Meaning(
        (
            "The other possible outcome, if the outcome depends on timing. For the code new-store, the "
            "outcome depends on the kind of the new store."
        ),
        enum=values(check_findings.Outcome),
    ),
]
RecordsExact = Annotated[bool, Meaning("Whether the number is exact. If false, the number is an upper bound.")]
Damaged = Annotated[
    int,
    Meaning(
        (
            "The number of files in the part that were damaged or missing at that time. It is null if kstate has "
            "never read the part."
        ),
        minimum=0,
    ),
]
# It decides whether an unclean task is wiped, and no file records it.
Guarantee = Annotated[str, Meaning("The processing.guarantee of the application.", enum=values(options.Guarantee))]
StartFails = Annotated[bool, Meaning("Whether the next start will fail.")]
Errors = Annotated[int, Meaning("The number of findings with the level error.", minimum=0)]
Expected = Annotated[int, Meaning("The number of findings with the level expected.", minimum=0)]
# A lower bound of the work: stores in memory restore too, and are not on disk.
Restores = Annotated[
    int,
    Meaning(
        (
            "The number of records that the application restores before it is RUNNING, up to the log ends reported "
            "by the broker, the file or the dump. This does not include the records of in-memory stores."
        ),
        minimum=0,
    ),
]
RestoresExact = Annotated[bool, Meaning("Whether the number is exact. If false, the number is an upper bound.")]
# The least: kstate writes sorted files, and Streams puts record by record.
SecondsToRunning = Annotated[
    float,
    Meaning(
        (
            "The number of seconds needed to restore the records at this rate. It is a minimum, because Kafka "
            "Streams is slower than kstate."
        ),
        minimum=0,
    ),
]
Rate = Annotated[
    float,
    Meaning(
        (
            "The number of records per second in the last restoration of this directory. It is null if no "
            "restoration was large enough."
        ),
        minimum=0,
    ),
]
RateFrom = Annotated[str, Meaning("The run in which kstate measured the rate.")]


NotKnown = Annotated[int, Meaning("The number of findings with the level unknown.", minimum=0)]


class CheckPredictionLine(TypedDict):
    """The outcome of the next start for a store of a task.

    code is the finding that causes the outcome, and messages contains the messages of Kafka Streams.
    """

    type: Literal["prediction"]
    task: shared.Task
    store: shared.Store
    outcome: Outcome
    or_else: OrElse | None
    records: shared.Records | None
    records_exact: RecordsExact | None
    code: shared.Code | None
    path: shared.Path | None
    messages: shared.Messages
    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None


class CheckFindingLine(TypedDict):
    """A fact that affects the next start. docs/check.md lists the codes."""

    type: Literal["finding"]
    task: shared.Task | None
    store: shared.Store | None
    code: shared.Code
    level: shared.Level
    message: shared.Message
    rule: shared.Rule
    hint: shared.Hint


class CheckDumpPartLine(TypedDict):
    """With --dump, a part of the dump that kstate verify-dump has recorded."""

    type: Literal["dump-part"]
    subset: shared.Subset
    verified: shared.Verified | None
    generation: shared.Generation | None
    files: shared.Files | None
    damaged: Damaged | None


class CheckConditionLine(TypedDict):
    """With --seed-to, a condition of the seed. If it is not met or unknown, a finding with this code follows."""

    type: Literal["condition"]
    condition: seeds.Condition
    condition_state: seeds.ConditionState
    condition_reason: seeds.ConditionReason


class CheckSummaryLine(TypedDict):
    """The last line of check. With --seed-to, it contains only the numbers of findings."""

    type: Literal["summary"]
    release: shared.Release | None
    guarantee: Guarantee | None
    start_fails: StartFails | None
    errors: Errors
    warnings: shared.Warnings
    expected: Expected
    restores: Restores | None
    restores_exact: RestoresExact | None
    seconds_to_running: SecondsToRunning | None
    rate: Rate | None
    rate_from: RateFrom | None
    running: shared.Running | None
    as_of: shared.AsOf | None
    not_known: NotRequired[NotKnown]


CheckLine = (
    CheckPredictionLine
    | CheckFindingLine
    | CheckDumpPartLine
    | CheckConditionLine
    | CheckSummaryLine
    | shared.ErrorLine
)


Source = Annotated[str, Meaning("The file of the listing, or - for standard input.")]
Directory = Annotated[str, Meaning("The application directory on that host.")]
Hostname = Annotated[
    str, Meaning("The host name in the listing. It is null if an older version of kstate wrote the listing.")
]
Tasks = Annotated[int, Meaning("The number of tasks.", minimum=0)]
# What a failover to this copy would have to restore at least.
BehindFront = Annotated[
    int,
    Meaning(
        (
            "How many offsets this copy is behind the most advanced copy, as a total for all changelogs. "
            "It is null if kstate has no offset to compare."
        ),
        minimum=0,
    ),
]
# false: what is not in the lines may exist all the same.
Complete = Annotated[bool, Meaning("Whether kstate could read every listing.")]
Hosts = Annotated[list[str], Meaning("The names of the hosts.")]
# Only the group knows: on disk an active task and a standby look alike.
Active = Annotated[str, Meaning("The host to which the group has assigned the task. It is null if this is unknown.")]
# The source decides what a missing task means: of "seen" there may be more above it.
KnownFrom = Annotated[
    str,
    Meaning(
        (
            "Why the task should exist: because of the logs, the specification, or a task with a higher "
            "number. It is null if the task should not exist."
        ),
        enum=("logs", "spec", "seen"),
    ),
]
Member = Annotated[str, Meaning("The member.id in the group.")]
Client = Annotated[str, Meaning("The member's client.id.")]
Address = Annotated[str, Meaning("The member's address, as reported by the broker.")]
Instance = Annotated[str, Meaning("The group.instance.id of a static member.")]
# Source topics, because the consumer is assigned these and no tasks.
Assigned = Annotated[
    Mapping[str, list[int]],
    Meaning("The source partitions, by topic, that the member's active tasks read."),
]
Applications = Annotated[list[str], Meaning("The application.id of each application in the listings.")]
LogsKnown = Annotated[bool, Meaning("Whether kstate knows the log ends from a broker or an offsets file.")]
StandbyReplicas = Annotated[int, Meaning("The num.standby.replicas that you passed.", minimum=0)]
GroupState = Annotated[str, Meaning("The group's state, as named by Kafka. It is null if kstate did not request it.")]
GroupProtocol = Annotated[
    str, Meaning("The protocol of the group: classic, consumer or unknown. It is null if kstate did not request it.")
]
# A reason instead of an empty list, which would mean that the group has no member.
GroupWhy = Annotated[
    str,
    Meaning("Why the group's members are unknown. It is null if kstate knows the members or did not request them."),
]


class FleetHostLine(TypedDict):
    """The listing of one host. messages lists the parts that kstate could not read, with the reasons."""

    type: Literal["host"]
    host: shared.Host
    source: Source
    application: shared.Application | None
    directory: Directory | None
    hostname: Hostname | None
    process_id: shared.ProcessId | None
    running: shared.Running | None
    tasks: Tasks
    stores: shared.Stores
    bytes: shared.Bytes
    lag: shared.Lag | None
    behind_front: BehindFront | None
    complete: Complete
    messages: shared.Messages


BestCopy = Annotated[
    str,
    Meaning("The host or the repository path with the most advanced copy of the task. It is null if this is unknown."),
]


class FleetTaskLine(TypedDict):
    """A task and the hosts that have it.

    A missing task has no hosts. A snapshot repository does not count as a host.
    """

    type: Literal["task"]
    task: shared.Task
    hosts: Hosts
    active: Active | None
    known_from: KnownFrom | None
    best_copy: BestCopy | None


class FleetCopyLine(TypedDict):
    """A store of a task on one host."""

    type: Literal["copy"]
    task: shared.Task
    store: shared.Store
    host: shared.Host
    kind: shared.Kind
    bytes: shared.Bytes
    changelog: shared.Changelog | None
    lag: shared.Lag | None
    behind_front: BehindFront | None
    opens_in: shared.OpensIn


class FleetRepositoryLine(TypedDict):
    """A snapshot repository and its contents for the application.

    messages lists the snapshots that kstate cannot read.
    """

    type: Literal["repository"]
    path: shared.Path
    snapshots: shared.Snapshots
    tasks: Tasks
    stores: shared.Stores
    bytes: shared.Bytes
    messages: shared.Messages


class FleetSnapshotLine(TypedDict):
    """The copy of a store that a restoration takes from a repository.

    If the restoration refuses the copy, message contains the reason.
    """

    type: Literal["snapshot"]
    task: shared.Task
    store: shared.Store
    path: shared.Path
    snapshot: shared.Snapshot
    kind: shared.Kind
    bytes: shared.Bytes
    changelog: shared.Changelog
    lag: shared.Lag | None
    behind_front: BehindFront | None
    usable: shared.Usable
    message: shared.Message | None


class FleetMemberLine(TypedDict):
    """A member of the group."""

    type: Literal["member"]
    member: Member
    client: Client
    address: Address
    instance: Instance | None
    host: shared.Host | None
    assigned: Assigned


class FleetFindingLine(TypedDict):
    """A finding, such as a task that is missing or on several hosts."""

    type: Literal["finding"]
    task: shared.Task | None
    store: shared.Store | None
    hosts: Hosts
    code: shared.Code
    level: shared.Level
    message: shared.Message
    rule: shared.Rule
    hint: shared.Hint


class FleetSummaryLine(TypedDict):
    """The last line of fleet."""

    type: Literal["summary"]
    applications: Applications
    hosts: Hosts
    tasks: Tasks
    stores: shared.Stores
    bytes: shared.Bytes
    complete: Complete
    logs_known: LogsKnown
    standby_replicas: StandbyReplicas
    group_state: GroupState | None
    group_protocol: GroupProtocol | None
    group_why: GroupWhy | None
    errors: Errors
    warnings: shared.Warnings
    not_known: NotKnown


FleetLine = (
    FleetHostLine
    | FleetTaskLine
    | FleetCopyLine
    | FleetRepositoryLine
    | FleetSnapshotLine
    | FleetMemberLine
    | FleetFindingLine
    | FleetSummaryLine
    | shared.ErrorLine
)


Offset = Annotated[
    int,
    Meaning(
        (
            "The stored changelog offset. For a task store, it is the offset of the last applied record. "
            "For a global store, it is the offset of the next record. It is null if the store has no offset."
        ),
        minimum=0,
    ),
]
LagUnknown = Annotated[
    str,
    Meaning(
        (
            "Why the lag is unknown: the store has no offset, no source contains its log, or the offset is "
            "outside the log. It is null if the lag is known."
        ),
        enum=values(snapshot_reader.UnknownLag),
    ),
]
Unknown = Annotated[int, Meaning("The number of task stores with an unknown lag.", minimum=0)]
UnknownTasks = Annotated[
    list[str], Meaning("The tasks in which the store's lag is unknown. If there are any, the total lag is unknown too.")
]


class LagLogLine(TypedDict):
    """A store of a task and a log from which Kafka Streams restores it.

    A global store has one line for each partition.
    """

    type: Literal["log"]
    task: shared.Task
    store: shared.Store
    topic: dumps.Topic | None
    partition: shared.Partition | None
    offset: Offset | None
    log_start: dumps.LogStart | None
    log_end: dumps.LogEnd | None
    lag_unknown: LagUnknown | None
    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None


class LagStoreLine(TypedDict):
    """A store, summed over its tasks."""

    type: Literal["store"]
    store: shared.Store
    tasks: Tasks
    unknown_tasks: UnknownTasks
    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None


class LagSummaryLine(TypedDict):
    """The last line of lag."""

    type: Literal["summary"]
    stores: shared.Stores
    unknown: Unknown
    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None
    running: shared.Running | None
    as_of: shared.AsOf


LagLine = shared.ProblemLine | LagLogLine | LagStoreLine | LagSummaryLine | shared.ErrorLine

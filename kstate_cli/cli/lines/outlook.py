"""Lines of JSON about the next start, lag, and many hosts: ``check``, ``lag`` and ``fleet``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.check import findings as check_findings
from kstate_cli.check import snapshot_reader
from kstate_cli.cli.lines import dumps, shared
from kstate_cli.cli.lines.shared import Meaning, values
from kstate_cli.cli.options import shared as options

# Of the store, and not of the release: one start can wipe a task and open another.
Outcome = Annotated[str, Meaning("What happens to the store at the next start.", enum=values(check_findings.Outcome))]
# Two outcomes, where the order of threads or of a rebalance decides.
OrElse = Annotated[
    str,
    Meaning(
        ("The other possible outcome, if it depends on the timing. With the code new-store, the kind of that store."),
        enum=values(check_findings.Outcome),
    ),
]
RecordsExact = Annotated[bool, Meaning("false: this is an upper bound.")]
Damaged = Annotated[
    int,
    Meaning(
        "How many files of the part were damaged or missing at that time; null if the part was never read.", minimum=0
    ),
]
# It decides whether an unclean task is wiped, and no file records it.
Guarantee = Annotated[str, Meaning("processing.guarantee.", enum=values(options.Guarantee))]
StartFails = Annotated[bool, Meaning("Whether the next start fails.")]
Errors = Annotated[int, Meaning("Number of findings of level error.", minimum=0)]
Expected = Annotated[int, Meaning("Number of findings of level expected.", minimum=0)]
# A lower bound of the work: stores in memory restore too, and are not on disk.
Restores = Annotated[
    int,
    Meaning(
        (
            "Records that the application restores before it is RUNNING, without the records of in-memory stores, "
            "up to the log ends in the broker, the file or the dump."
        ),
        minimum=0,
    ),
]
RestoresExact = Annotated[bool, Meaning("false: this is an upper bound.")]
# The least: kstate writes sorted files, and Streams puts record by record.
SecondsToRunning = Annotated[
    float,
    Meaning(
        (
            "Number of seconds to restore the records at this rate. It is a minimum, because Streams is slower "
            "than kstate."
        ),
        minimum=0,
    ),
]
Rate = Annotated[
    float,
    Meaning(
        "Records per second in the last restoration of this directory; null if none was large enough.",
        minimum=0,
    ),
]
RateFrom = Annotated[str, Meaning("The run in which kstate measured the rate.")]


class CheckPredictionLine(TypedDict):
    """The outcome of the next start for a store of a task.

    code: the finding that causes it; messages: the messages of Streams.
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
    """With --dump: a part of the dump that kstate verify-dump has recorded."""

    type: Literal["dump-part"]
    subset: shared.Subset
    verified: shared.Verified | None
    generation: shared.Generation | None
    files: shared.Files | None
    damaged: Damaged | None


class CheckSummaryLine(TypedDict):
    """The last line of check."""

    type: Literal["summary"]
    release: shared.Release
    guarantee: Guarantee
    start_fails: StartFails
    errors: Errors
    warnings: shared.Warnings
    expected: Expected
    restores: Restores | None
    restores_exact: RestoresExact | None
    seconds_to_running: SecondsToRunning | None
    rate: Rate | None
    rate_from: RateFrom | None
    running: shared.Running | None
    as_of: shared.AsOf


CheckLine = CheckPredictionLine | CheckFindingLine | CheckDumpPartLine | CheckSummaryLine | shared.ErrorLine


Source = Annotated[str, Meaning("The file of the listing; - for standard input.")]
Directory = Annotated[str, Meaning("The application directory on that host.")]
Hostname = Annotated[str, Meaning("The host name in the listing; null for an older version of kstate.")]
Tasks = Annotated[int, Meaning("Number of tasks.", minimum=0)]
# What a failover to this copy would have to restore at least.
BehindFront = Annotated[
    int,
    Meaning(
        (
            "Number of offsets between this copy and the most advanced one, over all its changelogs. null: kstate "
            "has no offset to compare."
        ),
        minimum=0,
    ),
]
# false: what is not in the lines may exist all the same.
Complete = Annotated[bool, Meaning("Whether kstate could read every listing.")]
Hosts = Annotated[list[str], Meaning("Names of hosts.")]
# Only the group knows: on disk an active task and a standby look alike.
Active = Annotated[str, Meaning("The host to which the group has assigned the task; null if this is unknown.")]
# The source decides what a missing task means: of "seen" there may be more above it.
KnownFrom = Annotated[
    str,
    Meaning(
        (
            "Why the task should exist: according to the logs, to the specification, or to a higher task that "
            "exists. null: it should not exist."
        ),
        enum=("logs", "spec", "seen"),
    ),
]
Member = Annotated[str, Meaning("member.id in the group.")]
Client = Annotated[str, Meaning("client.id of a member.")]
Address = Annotated[str, Meaning("The address at which the broker sees a member.")]
Instance = Annotated[str, Meaning("group.instance.id of a static member.")]
# Source topics, because the consumer is assigned these and no tasks.
Assigned = Annotated[
    Mapping[str, list[int]],
    Meaning("Partitions of source topics that the active tasks of a member read, by topic."),
]
Applications = Annotated[list[str], Meaning("application.id of each application in the listings.")]
LogsKnown = Annotated[bool, Meaning("Whether kstate knows the ends of the logs, from a broker or a file of offsets.")]
StandbyReplicas = Annotated[int, Meaning("num.standby.replicas, as passed.", minimum=0)]
GroupState = Annotated[str, Meaning("State of the group in Kafka's words; null if kstate did not ask for it.")]
GroupProtocol = Annotated[
    str, Meaning("Protocol of the group: classic, consumer, unknown; null if kstate did not ask for it.")
]
# A reason instead of an empty list, which would mean that the group has no member.
GroupWhy = Annotated[
    str,
    Meaning("Why the members of the group are unknown; null if kstate knows them, or did not ask for them."),
]
NotKnown = Annotated[int, Meaning("Number of findings of level unknown.", minimum=0)]


class FleetHostLine(TypedDict):
    """The listing of one host. messages: the parts that kstate could not read, and the reasons."""

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
    Meaning("The host, or the path of the repository, with the most advanced copy of the task; null if unknown."),
]


class FleetTaskLine(TypedDict):
    """A task, and the hosts that have it. A missing task has none. A repository of snapshots is no host."""

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
    """A repository of snapshots, and what it has of the application. messages: snapshots that kstate cannot read."""

    type: Literal["repository"]
    path: shared.Path
    snapshots: shared.Snapshots
    tasks: Tasks
    stores: shared.Stores
    bytes: shared.Bytes
    messages: shared.Messages


class FleetSnapshotLine(TypedDict):
    """The copy of a store that a restoration takes from a repository. message: why the restoration refuses it."""

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
            "The stored changelog offset. For a task store, it is that of the last record that it has applied, "
            "and for a global store that of the next record. null: the store has none."
        ),
        minimum=0,
    ),
]
LagUnknown = Annotated[
    str,
    Meaning(
        (
            "Why the lag is unknown: the store has no offset, none of the sources has its log, or the offset is "
            "outside the log. null: the lag is known."
        ),
        enum=values(snapshot_reader.UnknownLag),
    ),
]
Unknown = Annotated[int, Meaning("Number of stores of a task with an unknown lag.", minimum=0)]
UnknownTasks = Annotated[
    list[str], Meaning("Number of tasks in which the lag of the store is unknown. The sum is then unknown, too.")
]


class LagLogLine(TypedDict):
    """A store of a task, and a log from which it is restored. A global store has one line for each partition."""

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

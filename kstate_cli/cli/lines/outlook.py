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
Outcome = Annotated[str, Meaning("What the next start does with the store.", enum=values(check_findings.Outcome))]
# Two outcomes, where the order of threads or of a rebalance decides.
OrElse = Annotated[
    str,
    Meaning(
        "The other possible outcome, where chance decides, or, with the code new-store, the kind of that store.",
        enum=values(check_findings.Outcome),
    ),
]
RecordsExact = Annotated[bool, Meaning("false: at most so many.")]
Damaged = Annotated[
    int, Meaning("How many of its files were damaged or missing then; null where the part was never read.", minimum=0)
]
# It decides whether an unclean task is wiped, and no file records it.
Guarantee = Annotated[str, Meaning("processing.guarantee.", enum=values(options.Guarantee))]
StartFails = Annotated[bool, Meaning("Whether the next start fails.")]
Errors = Annotated[int, Meaning("Findings of level error.", minimum=0)]
Expected = Annotated[int, Meaning("Findings of level expected.", minimum=0)]
# A lower bound of the work: stores in memory restore too, and are not on disk.
Restores = Annotated[
    int,
    Meaning(
        "Records that the next start restores before it is RUNNING, without those of in-memory stores. They count up "
        "to the log ends in the broker, the file or the dump.",
        minimum=0,
    ),
]
RestoresExact = Annotated[bool, Meaning("false: at most so many.")]
# The least: kstate writes sorted files, and Streams puts record by record.
SecondsToRunning = Annotated[
    float,
    Meaning("restores at this rate: the least that a start needs, since Streams is slower than kstate.", minimum=0),
]
Rate = Annotated[
    float,
    Meaning(
        "Records a second, as the last restoration here measured; null if none was large enough.",
        minimum=0,
    ),
]
RateFrom = Annotated[str, Meaning("The run that measured it.")]


class CheckPredictionLine(TypedDict):
    """What the next start does with a store of a task.

    code: the finding that it follows from; messages: what Streams prints.
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
    """Something that decides what the start does. docs/check.md has the codes."""

    type: Literal["finding"]
    task: shared.Task | None
    store: shared.Store | None
    code: shared.Code
    level: shared.Level
    message: shared.Message
    rule: shared.Rule
    hint: shared.Hint


class CheckDumpPartLine(TypedDict):
    """With --dump: a part of the dump by the record of kstate verify-dump; none where nothing is recorded."""

    type: Literal["dump-part"]
    subset: shared.Subset
    verified: shared.Verified | None
    generation: shared.Generation | None
    files: shared.Files | None
    damaged: Damaged | None


class CheckSummaryLine(TypedDict):
    """The end."""

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


Source = Annotated[str, Meaning("The file that it was read from, - for standard input.")]
Directory = Annotated[str, Meaning("The application directory on that host.")]
Hostname = Annotated[str, Meaning("What the host calls itself; null of an older kstate.")]
Tasks = Annotated[int, Meaning("How many tasks.", minimum=0)]
# What a failover to this copy would have to restore at least.
BehindFront = Annotated[
    int,
    Meaning(
        "Offsets between what is stored and the copy that is in front, altogether. null: there is no offset to "
        "compare.",
        minimum=0,
    ),
]
# false: what is not in the lines may exist all the same.
Complete = Annotated[bool, Meaning("Whether kstate could read every listing.")]
Hosts = Annotated[list[str], Meaning("Names of hosts.")]
# Only the group knows: on disk an active task and a standby look alike.
Active = Annotated[str, Meaning("The host that the group has given the task to; null where that is not known.")]
# The source decides what a missing task means: of "seen" there may be more above it.
KnownFrom = Annotated[
    str,
    Meaning(
        "Where it is known from that there should be such a task: the logs, the specification, or a higher one "
        "that was seen. null: there should not.",
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
    Meaning("Partitions of source topics that a member reads, by topic: those of its active tasks."),
]
Applications = Annotated[list[str], Meaning("application.id of each application that was given.")]
LogsKnown = Annotated[bool, Meaning("Whether a broker or a file of offsets has the ends of the logs.")]
StandbyReplicas = Annotated[int, Meaning("num.standby.replicas, as passed.", minimum=0)]
GroupState = Annotated[str, Meaning("State of the group, as Kafka calls it; null where it was not asked for.")]
GroupProtocol = Annotated[
    str, Meaning("Protocol of the group: classic, consumer, unknown; null where it was not asked for.")
]
# A reason instead of an empty list, which would mean that the group has no member.
GroupWhy = Annotated[
    str, Meaning("Why nothing is known of the group's members; null where they are known, or were not asked for.")
]
NotKnown = Annotated[int, Meaning("Findings of level unknown.", minimum=0)]


class FleetHostLine(TypedDict):
    """What was read of one host. messages: what could not be, and why."""

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


class FleetTaskLine(TypedDict):
    """A task, and the hosts that have it: none if the task is missing."""

    type: Literal["task"]
    task: shared.Task
    hosts: Hosts
    active: Active | None
    known_from: KnownFrom | None


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
    """Something that is missing, doubled, different, or not known."""

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
    """The end."""

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
    | FleetMemberLine
    | FleetFindingLine
    | FleetSummaryLine
    | shared.ErrorLine
)


Offset = Annotated[
    int,
    Meaning(
        "The stored changelog offset: of the last record that a task store has applied, of the next one that a global "
        "store reads. null: the store has none.",
        minimum=0,
    ),
]
LagUnknown = Annotated[
    str,
    Meaning(
        "Why the lag is unknown: the store has no offset, no source has its log, or the offset is outside of the log."
        " null: the lag is known.",
        enum=values(snapshot_reader.UnknownLag),
    ),
]
Unknown = Annotated[int, Meaning("How many stores of a task have an unknown lag.", minimum=0)]
UnknownTasks = Annotated[list[str], Meaning("Tasks in which the lag of the store is unknown: the sum is unknown then.")]


class LagLogLine(TypedDict):
    """A store of a task, and a log that it is built from; a global store has one line for each partition."""

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
    """The end."""

    type: Literal["summary"]
    stores: shared.Stores
    unknown: Unknown
    lag: shared.Lag | None
    lag_exact: shared.LagExact | None
    lag_seconds: shared.LagSeconds | None
    running: shared.Running | None
    as_of: shared.AsOf


LagLine = shared.ProblemLine | LagLogLine | LagStoreLine | LagSummaryLine | shared.ErrorLine

"""Lines of JSON about dumps, and of other commands that are about no application directory, such as ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning
from kstate_cli.maintain.rounds import FAILED, FINDINGS, NOT_DUE, NOT_THERE, PLANNED, SUCCEEDED, TIMED_OUT
from kstate_cli.specification.tables import STEPS

Topic = Annotated[str, Meaning("The name of a topic.")]
# A gap, a recreated topic or lost deletes make an increment worthless: then all is read again.
Dumped = Annotated[
    str,
    Meaning(
        (
            "Whether kstate adds only the records after the end of the dump, or writes the whole partition "
            "again in addition to the existing files."
        ),
        enum=("continued", "full"),
    ),
]
# A full dump costs hours: the reason must not be a secret.
Why = Annotated[
    str,
    Meaning(
        "Why kstate starts a new full dump of the partition. It is null if kstate adds to the existing "
        "one, or if the dump does not contain the partition yet."
    ),
]
Start = Annotated[int, Meaning("The first offset that kstate reads.", minimum=0)]
# Exclusive, as the end offset of a log is.
End = Annotated[
    int, Meaning("The offset after the last one that kstate reads. The next run continues there.", minimum=0)
]
# Records of an open transaction may still be aborted: reading stops before it.
OpenFrom = Annotated[
    int,
    Meaning(
        (
            "The offset at which an open transaction begins. The next run reads the records of this transaction. It is "
            "null if "
            "there is no open transaction."
        ),
        minimum=0,
    ),
]
HeldBack = Annotated[
    int,
    Meaning(
        (
            "The number of offsets at the log end that kstate could not read because of an open transaction. In a "
            "summary, the number covers all partitions."
        ),
        minimum=0,
    ),
]
Partitions = Annotated[int, Meaning("The total number of partitions in the topics.", minimum=0)]
Joined = Annotated[int, Meaning("The number of small files that kstate merged into larger ones.", minimum=0)]
Dropped = Annotated[int, Meaning("The number of full dumps that --keep removed from the dump.", minimum=0)]
Removed = Annotated[
    int,
    Meaning(
        "The number of files that kstate removed because no manifest needs them, including old manifests.", minimum=0
    ),
]


class DumpPartitionLine(TypedDict):
    """A partition that kstate has dumped, or with --dry-run would dump. app is null, here and below.

    With --dry-run, records is an upper bound, and bytes is an estimate from the records of the partition in the dump.
    bytes is null if the dump has none.
    """

    type: Literal["partition"]
    topic: Topic
    partition: shared.Partition
    dumped: Dumped
    why: Why | None
    start: Start
    end: End
    open_from: OpenFrom | None
    held_back: HeldBack
    records: shared.Records
    bytes: shared.Bytes | None


class DumpWarningLine(TypedDict):
    """A change of a log or a topic that kstate skips."""

    type: Literal["warning"]
    message: shared.Message


class DumpNoteLine(TypedDict):
    """Information that needs no action.

    With --follow, the notes and warnings of a round come before it.
    """

    type: Literal["note"]
    message: shared.Message


class DumpRoundLine(TypedDict):
    """With --follow, a complete round."""

    type: Literal["round"]
    out: shared.Out
    executed: shared.Executed
    generation: shared.Generation | None
    partitions: Partitions
    held_back: HeldBack
    records: shared.Records
    bytes: shared.Bytes
    files: shared.Files
    joined: Joined
    dropped: Dropped
    removed: Removed
    seconds: shared.Seconds


class DumpMembers(TypedDict):
    """The records and files of a run or a round, as members of a line."""

    out: shared.Out
    executed: shared.Executed
    generation: shared.Generation | None
    partitions: Partitions
    held_back: HeldBack
    records: shared.Records
    bytes: shared.Bytes | None
    files: shared.Files
    joined: Joined
    dropped: Dropped
    removed: Removed
    seconds: shared.Seconds


class DumpSummaryLine(DumpMembers):
    """The last line of dump, with the new generation.

    With --dry-run, there is no generation, and files and bytes are estimates or null.
    """

    type: Literal["summary"]
    engine: shared.Engine
    engine_reason: shared.EngineReason


DumpLine = DumpPartitionLine | DumpWarningLine | DumpNoteLine | DumpRoundLine | DumpSummaryLine | shared.ErrorLine


LogStart = Annotated[
    int,
    Meaning(
        "The log start that the broker last reported. It is null if the manifests do not contain it.",
        minimum=0,
    ),
]
LogEnd = Annotated[
    int,
    Meaning("The log end that the broker last reported. It is null if the manifests do not contain it.", minimum=0),
]
FullDumps = Annotated[int, Meaning("The number of full dumps of the partition.", minimum=1)]
IncrementalDumps = Annotated[int, Meaning("The number of incremental dumps added to the newest full dump.", minimum=0)]


class OffsetGap(TypedDict):
    """A value in ``gaps``."""

    start: Start
    end: End


# A restoration of older state across a gap would lose deletes.
Gaps = Annotated[list[OffsetGap], Meaning("The offset ranges between two full dumps that neither dump contains.")]
# The age of a dump is that of its last look at the broker, and not of its last record.
DumpedAt = Annotated[
    str,
    Meaning(
        "The time when kstate last read the log end from the broker, in UTC. It is null if the "
        "manifests do not contain this time."
    ),
]
# Only the first file: verify-dump lists them all.
Damage = Annotated[str, Meaning("The first missing or damaged file, with the reason. It is null if there is none.")]


class LsDumpPartitionLine(TypedDict):
    """A partition of the dump, with the offsets of its newest full dump and its incremental dumps.

    app is null, here and below.
    """

    type: Literal["partition"]
    topic: Topic
    partition: shared.Partition
    start: Start | None
    end: End | None
    log_start: LogStart | None
    log_end: LogEnd | None
    full_dumps: FullDumps
    incremental_dumps: IncrementalDumps
    gaps: Gaps
    records: shared.Records
    files: shared.Files
    bytes: shared.Bytes | None
    dumped_at: DumpedAt | None
    damage: Damage | None


class LsDumpSummaryLine(TypedDict):
    """The last line of ls-dump.

    generation is null if the dump was written in one go. verified is null if kstate has never read a file of the dump
    in full.
    """

    type: Literal["summary"]
    path: shared.Path
    ok: shared.Ok
    generation: shared.Generation | None
    partitions: Partitions
    records: shared.Records
    verified: shared.Verified | None


LsDumpLine = LsDumpPartitionLine | LsDumpSummaryLine | shared.ErrorLine


# Apart from files, so that a verification over several calls adds up.
ReadBefore = Annotated[
    int,
    Meaning(
        "The number of files in this part that an interrupted run had already read. This run did not read them again.",
        minimum=0,
    ),
]


class VerifyDumpFindingLine(TypedDict):
    """A damaged, missing or unreadable file. app is null, here and below."""

    type: Literal["finding"]
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifyDumpWarningLine(TypedDict):
    """kstate could not record this verification in the dump."""

    type: Literal["warning"]
    message: shared.Message


class VerifyDumpSummaryLine(TypedDict):
    """The last line of verify-dump."""

    type: Literal["summary"]
    path: shared.Path
    ok: shared.Ok
    files: shared.Files
    bytes: shared.Bytes
    findings: shared.Findings
    subset: shared.Subset
    read_before: ReadBefore
    left_out: shared.LeftOut
    seconds: shared.Seconds


VerifyDumpLine = VerifyDumpFindingLine | VerifyDumpWarningLine | VerifyDumpSummaryLine | shared.ErrorLine


Step = Annotated[
    str,
    Meaning("A step in [maintain].", enum=tuple(STEPS)),
]
Subject = Annotated[
    str,
    Meaning(
        "The directory that the step uses: the application directory or its standby.", enum=("directory", "standby")
    ),
]
Words = Annotated[list[str], Meaning("The words of the command, without kstate.")]
# More than the exit code: a step that is not due ends nothing.
Came = Annotated[
    str,
    Meaning(
        (
            "How the step ended. `found` means findings, `not-there` means that its directory does not "
            "exist yet, and `planned` means --dry-run."
        ),
        enum=(SUCCEEDED, FINDINGS, FAILED, TIMED_OUT, NOT_DUE, NOT_THERE, PLANNED),
    ),
]
Ended = Annotated[
    int,
    Meaning(
        (
            "The exit code of the command. It is 6 if kstate stopped the command. In a summary, it is the highest "
            "exit code."
        ),
        minimum=0,
    ),
]
Outcomes = Annotated[Mapping[str, int], Meaning("The number of commands with each outcome.", each={"minimum": 1})]


class MaintainMaintainedLine(TypedDict):
    """A command of a step. app is the directory of the command. It is null for a dump."""

    type: Literal["maintained"]
    step: Step
    subject: Subject | None
    words: Words
    came: Came
    ended: Ended | None
    seconds: shared.Seconds | None
    message: shared.Message | None


class MaintainSummaryLine(TypedDict):
    """The last line of maintain. app is null."""

    type: Literal["summary"]
    executed: shared.Executed
    ended: Ended
    outcomes: Outcomes


MaintainLine = MaintainMaintainedLine | MaintainSummaryLine | shared.ErrorLine


class StartBarrierBarrierLine(shared.BarrierMembers):
    """The hosts at the barrier. kstate prints this line whenever they change."""

    type: Literal["barrier"]


class StartBarrierSummaryLine(TypedDict):
    """The last line of start-barrier."""

    type: Literal["summary"]
    barrier: shared.Barrier
    place: shared.Place
    host: shared.Host
    awaited: shared.Awaited
    here: shared.Here
    missing: shared.Missing
    unnamed: shared.Unnamed
    gave_up: shared.GaveUp


StartBarrierLine = StartBarrierBarrierLine | StartBarrierSummaryLine | shared.ErrorLine


Group = Annotated[
    str,
    Meaning(
        "The group that the code belongs to. Codes in different groups may have the same name.",
        enum=(
            "finding",
            "outcome",
            "verify",
            "fleet",
            "seed",
            "problem",
            "run",
            "restoration",
            "status",
            "query",
            "exit",
            "error",
            "note",
        ),
    ),
]
Explanations = Annotated[int, Meaning("The number of explanations that kstate printed.", minimum=0)]


class ExplainExplanationLine(TypedDict):
    """The meaning of a code. app is null. message: the meaning; messages: the messages of Kafka Streams.

    messages is empty if Kafka Streams prints nothing, and null if it cannot print a message about the code.
    """

    type: Literal["explanation"]
    group: Group
    code: shared.Code
    level: shared.Level | None
    message: shared.Message
    rule: shared.Rule | None
    messages: shared.Messages | None
    hint: shared.Hint
    hint_details: shared.HintDetails


class ExplainSummaryLine(TypedDict):
    """The last line of explain."""

    type: Literal["summary"]
    explanations: Explanations


ExplainLine = ExplainExplanationLine | ExplainSummaryLine | shared.ErrorLine


Made = Annotated[
    bool, Meaning("Whether this run created the archive. It is false if a complete archive already existed.")
]


class WarmUpSummaryLine(TypedDict):
    """The last line of warm-up, once the archive exists.

    app is null. seconds is the duration of a complete Spark run with a job and the archive. It is null if the archive
    already existed.
    """

    type: Literal["summary"]
    path: shared.Path
    bytes: shared.Bytes
    made: Made
    seconds: shared.Seconds | None


WarmUpLine = WarmUpSummaryLine | shared.ErrorLine


class ExamplesFileLine(TypedDict):
    """A file that kstate has written. app is null, here and below."""

    type: Literal["file"]
    path: shared.Path
    bytes: shared.Bytes


class ExamplesSummaryLine(TypedDict):
    """The last line of examples, once all files exist."""

    type: Literal["summary"]
    out: shared.Out
    files: shared.Files
    bytes: shared.Bytes


ExamplesLine = ExamplesFileLine | ExamplesSummaryLine | shared.ErrorLine

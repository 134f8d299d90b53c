"""Lines of JSON about dumps: ``dump``, ``ls-dump`` and ``verify-dump``."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.cli.lines import shared
from kstate_cli.cli.lines.shared import Meaning

Topic = Annotated[str, Meaning("A topic.")]
Dumped = Annotated[
    str,
    Meaning(
        "How a partition is dumped: what is new since the dump's end, or all of it, beside what is there.",
        enum=("continued", "full"),
    ),
]
Why = Annotated[str, Meaning("Why what the dump has is not continued; null where it is, or where it has nothing.")]
Start = Annotated[int, Meaning("The first offset of what is read.", minimum=0)]
End = Annotated[int, Meaning("The offset below which it is read: the next call goes on there.", minimum=0)]
OpenFrom = Annotated[
    int, Meaning("Where a transaction begins that is open, which the next call reads; null: none is.", minimum=0)
]
HeldBack = Annotated[
    int,
    Meaning(
        "Offsets at the end of the log that an open transaction holds back; of all partitions together in a summary.",
        minimum=0,
    ),
]
Partitions = Annotated[int, Meaning("Partitions of topics.", minimum=0)]
Joined = Annotated[int, Meaning("Small files that are now parts of larger ones.", minimum=0)]
Dropped = Annotated[int, Meaning("Fulls that --keep has dropped from the dump.", minimum=0)]
Removed = Annotated[int, Meaning("Files that nobody needs any more, and old manifests, that were removed.", minimum=0)]


class DumpPartitionLine(TypedDict):
    """A partition that was dumped, or with --dry-run would be. app is null, here and below.

    With --dry-run, records is an upper bound, and bytes an estimate from what the dump has of the partition: null if it
    has nothing.
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
    """Something is not as it was, or is left out."""

    type: Literal["warning"]
    message: shared.Message


class DumpNoteLine(TypedDict):
    """Something that is as it should be, and worth knowing.

    With --follow, the notes and warnings of a round come before it.
    """

    type: Literal["note"]
    message: shared.Message


class DumpRoundLine(TypedDict):
    """With --follow: a round that is committed."""

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
    """What a call or a round has written, as members of a line."""

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
    """The end: the dump has a new generation.

    With --dry-run it has none, and files and bytes are estimates, or null.
    """

    type: Literal["summary"]
    engine: shared.Engine
    engine_reason: shared.EngineReason


DumpLine = DumpPartitionLine | DumpWarningLine | DumpNoteLine | DumpRoundLine | DumpSummaryLine | shared.ErrorLine


LogStart = Annotated[
    int,
    Meaning("The first offset of the broker's log when it was last read; null where no manifest states it.", minimum=0),
]
LogEnd = Annotated[
    int, Meaning("The end of the broker's log when it was last read; null where no manifest states it.", minimum=0)
]
FullDumps = Annotated[int, Meaning("Full dumps of the partition.", minimum=1)]
IncrementalDumps = Annotated[int, Meaning("Incremental dumps that were added to the newest full dump.", minimum=0)]


class OffsetGap(TypedDict):
    """A value in ``gaps``."""

    start: Start
    end: End


Gaps = Annotated[list[OffsetGap], Meaning("Offsets that lie between two full dumps and are in neither.")]
DumpedAt = Annotated[
    str, Meaning("When the broker was last asked for the end of the log, in UTC; null where no manifest states it.")
]
Damage = Annotated[str, Meaning("The first file that is missing or damaged, and why; null where there is none.")]


class LsDumpPartitionLine(TypedDict):
    """A partition of the dump: the offsets of its newest full dump with its increments. app is null, here and below."""

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
    """The end. generation is null if the dump was written at once.

    verified is null if a file of the dump was never read in full.
    """

    type: Literal["summary"]
    path: shared.Path
    ok: shared.Ok
    generation: shared.Generation | None
    partitions: Partitions
    records: shared.Records
    verified: shared.Verified | None


LsDumpLine = LsDumpPartitionLine | LsDumpSummaryLine | shared.ErrorLine


ReadBefore = Annotated[
    int,
    Meaning("Files of the part that an interrupted call had read whole: this call did not read them again.", minimum=0),
]


class VerifyDumpFindingLine(TypedDict):
    """A file that is damaged, missing or unreadable. app is null, here and below."""

    type: Literal["finding"]
    code: shared.Code
    level: shared.Level
    path: shared.Path
    message: shared.Message


class VerifyDumpWarningLine(TypedDict):
    """The dump has no record of this verification."""

    type: Literal["warning"]
    message: shared.Message


class VerifyDumpSummaryLine(TypedDict):
    """The end."""

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

"""Members that many lines of JSON have, and lines that several commands print.

A line is a ``TypedDict``: its docstring describes it, and ``type`` names it. Each member has one meaning in all
commands: a member ``as_of`` has its type, meaning and limits in an alias ``AsOf``, here or beside the only lines that
have it. ``kstate_cli/schemas`` and the tables in docs/json.md are generated from both (``python -m tests.json_page``).

No command imports this package when it runs: the classes are types for mypy, and their imports cost no start-up time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from kstate_cli.check import findings as check_findings
from kstate_cli.cli.json_lines import SCHEMA_VERSION
from kstate_cli.fleet import findings as fleet_findings
from kstate_cli.seed import findings as seed_findings
from kstate_cli.verify import findings as verify_findings


class Meaning:
    """The meaning of a member, and the limits of its value as keywords of JSON Schema."""

    def __init__(self, meaning: str, **limits: Any) -> None:
        self.text = meaning
        self.limits = limits


def values(*kinds: type[Enum]) -> tuple[str, ...]:
    """Return the values of enumerations, each once."""
    return tuple(dict.fromkeys(str(member.value) for kind in kinds for member in kind))


# One number for all commands: a reader checks it once, whatever it reads.
SchemaVersion = Annotated[
    int,
    Meaning(
        (
            "The version of the whole output format. It increases if a member is removed or its "
            "meaning changes, but not if a member is added."
        ),
        const=SCHEMA_VERSION,
    ),
]
# In every line, so that lines of several calls in one file still say what they are about.
App = Annotated[
    str,
    Meaning(
        "The absolute path of the application directory. For diff, it is the path of A. If kstate fails "
        "before it finds the directory, it is the path that you passed, or null."
    ),
]
# Text and not two numbers: a named topology is part of the id, and global stores have none.
Task = Annotated[str, Meaning("The task: 0_1, __topology__/0_1 for a named topology, or global.")]
Store = Annotated[str, Meaning("The name of a store.")]
# Of the changelog, which has the number of the task's partition.
Partition = Annotated[
    int,
    Meaning(
        ("The partition. It is null for a global store, and if --collate merges rows whose partition is unknown."),
        minimum=0,
    ),
]
# The pattern has no blank and no colon: kstate explain takes GROUP:CODE as one word.
Code = Annotated[
    str,
    Meaning(
        "The code, for programs. It stays the same even if the message changes.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
    ),
]
# The levels of three commands: a program that compares them needs one list.
Level = Annotated[
    str,
    Meaning(
        (
            "The severity. For check, it is expected, warning or error. For verify, it is damage or "
            "unknown. For fleet, it is error, warning or unknown. For check --seed-to, it is error or unknown."
        ),
        enum=values(
            check_findings.Level, verify_findings.VerifyLevel, fleet_findings.FleetLevel, seed_findings.SeedLevel
        ),
    ),
]
# For people: programs decide by code, since the words of a message may change in any version.
Message = Annotated[str, Meaning("The message, for people.")]
Messages = Annotated[list[str], Meaning("Several messages for people, or messages of Kafka Streams.")]
Hint = Annotated[str, Meaning("What to do next, for people. It is often a command.")]
Rule = Annotated[str, Meaning("The underlying rule: a class of Kafka Streams, a KIP, or a section of docs/internals.")]
Path = Annotated[str, Meaning("The path. A path in app is relative to app. Any other path is absolute or a URI.")]
Release = Annotated[str, Meaning("A Kafka Streams release.")]
Kind = Annotated[str, Meaning("The kind of the store, as in the output of ls.")]
# As it is stored, without conversion: the two meanings are those of ProcessorStateManager and GlobalStateManagerImpl.
Changelog = Annotated[
    Mapping[str, Mapping[int, int]],
    Meaning(
        "The stored changelog offsets, by topic and partition. For a task store, each is the offset of the last "
        "applied record. For a global store, each is the offset of the next record. It is null if kstate cannot "
        "read the offsets."
    ),
]
# Topic by topic, because a store may have several input topics.
Position = Annotated[
    Mapping[str, Mapping[int, int]],
    Meaning("The IQv2 Position, by topic and partition. It is null if kstate does not know it."),
]
# Three values: a lock of another host may be invisible, and unknown must not look like stopped.
Running = Annotated[bool, Meaning("Whether the application is running. It is null if this is unknown.")]
# A reader of two calls can tell whether the second may have seen more.
AsOf = Annotated[
    str,
    Meaning(
        ("Whether the output shows a closed directory, or the last flush of an application that may be running."),
        enum=("closed", "last-flush"),
    ),
]
# Names and no range: between two releases that open a store there may be one that does not.
OpensIn = Annotated[list[str], Meaning("The releases that can open the store.")]
# As an estimate it is RocksDB's: entries that were overwritten and not compacted count twice.
Rows = Annotated[int, Meaning("The number of rows.", minimum=0)]
Host = Annotated[
    str,
    Meaning(
        "The name of a host. For ls, it is this host. For fleet, the name comes from the file or from the argument."
    ),
]
ProcessId = Annotated[
    str,
    Meaning("The process id in kafka-streams-process-metadata. It is null if kstate does not know it."),
]
Place = Annotated[str, Meaning("The folder or object prefix of the barrier.")]
Awaited = Annotated[int, Meaning("The number of hosts that the barrier waits for, including this one.", minimum=1)]
Here = Annotated[list[str], Meaning("The hosts that are at the barrier at the same time.")]
Missing = Annotated[list[str], Meaning("The missing hosts whose names are known.")]
Unnamed = Annotated[int, Meaning("The number of missing hosts whose names are unknown.", minimum=0)]
GaveUp = Annotated[list[str], Meaning("The missing hosts that have stopped waiting.")]
Barrier = Annotated[
    str,
    Meaning(
        "Whether all hosts reached the barrier in time. It is null if there was no barrier.",
        enum=("passed", "not-all-came"),
    ),
]
Lag = Annotated[
    int,
    Meaning(
        "The number of records that the store has not read yet, up to the log end reported by the broker, the file "
        "or the dump.",
        minimum=0,
    ),
]
Bytes = Annotated[int, Meaning("The size of the files, in bytes.", minimum=0)]
Stores = Annotated[int, Meaning("The number of stores.", minimum=0)]
Records = Annotated[int, Meaning("The number of changelog records.", minimum=0)]
# Compaction leaves holes: the difference of two offsets is an upper bound.
LagExact = Annotated[
    bool, Meaning("Whether the number is exact. If false, it is an upper bound computed from the log ends.")
]
LagSeconds = Annotated[
    float,
    Meaning(
        ("The age of the first record that the store has not read yet. It is 0 if the store has read all records."),
        minimum=0,
    ),
]
Warnings = Annotated[int, Meaning("The number of warnings.", minimum=0)]
# With milliseconds at most: more digits would differ in every run without a meaning.
Seconds = Annotated[float, Meaning("The duration in seconds.", minimum=0)]
Ok = Annotated[bool, Meaning("Whether there are no findings and kstate could check everything.")]
Findings = Annotated[Mapping[str, int], Meaning("The number of findings with each code.", each={"minimum": 0})]
Subset = Annotated[str, Meaning("The part I/N of the stores, or of the files in a dump.")]
LeftOut = Annotated[int, Meaning("The number of stores (or of files in a dump) in the other parts.", minimum=0)]
Application = Annotated[str, Meaning("The application.id.")]
Out = Annotated[str, Meaning("The absolute path of the folder to which kstate wrote, or s3://BUCKET/PREFIX.")]
# Stated, since the choice is automatic and decides how long the next call takes.
Engine = Annotated[str, Meaning("The engine: spark or local. For an export, it is spark, processes or one process.")]
EngineReason = Annotated[str, Meaning("Why kstate uses this engine.")]
Files = Annotated[int, Meaning("The number of files.", minimum=0)]
# The steps of change/plan.py, by the words that the table has.
Action = Annotated[
    str,
    Meaning(
        "What the step does.",
        enum=(
            "leave out",
            "remove file",
            "write file",
            "move store",
            "edit store",
            "create carrier segment",
            "create empty store",
            "restore store",
            "build database",
        ),
    ),
]
# Apart from the exit code, which is 0 for a dry run too.
Snapshot = Annotated[str, Meaning("The name of a snapshot. It is null for a dry run.")]
Snapshots = Annotated[
    list[str], Meaning("The names of the snapshots that the stores come from, or that a repository contains.")
]
Usable = Annotated[
    bool,
    Meaning(
        "Whether the snapshot is recent enough for a restoration without a dump and without "
        "--accept-resurrected. It is null if this is unknown."
    ),
]
Executed = Annotated[
    bool, Meaning("Whether the command changed something. It is false with --dry-run, or if there was nothing to do.")
]
Deleted = Annotated[int, Meaning("The number of rows that the changelog deletes.", minimum=0)]
Expired = Annotated[int, Meaning("The number of rows that are older than their retention.", minimum=0)]
NullKeys = Annotated[
    int, Meaning("The number of records without a key. Kafka Streams also skips such records.", minimum=0)
]
HasPosition = Annotated[bool, Meaning("Whether the records in the changelog contain a Position.")]
# Counts manifests, so that a program can wait for the next one.
Generation = Annotated[
    int, Meaning("The generation of the new manifest. It is null if kstate did not write a manifest.", minimum=1)
]
Verified = Annotated[
    str,
    Meaning(
        "The time when verify-dump last read the complete part, in UTC. It is null if this never "
        "happened with this dump."
    ),
]
# In the line as well, for a reader who has only the file.
Exit = Annotated[int, Meaning("The exit code.", minimum=2)]
Where = Annotated[str, Meaning("Where the error occurred, if the message does not state this.")]
Details = Annotated[list[str], Meaning("Additional lines of the message.")]
# One command in each, ready to be run.
HintDetails = Annotated[list[str], Meaning("Additional lines of the hint, often commands that you can paste.")]


class BarrierMembers(TypedDict):
    """The hosts at a barrier, as members of a line."""

    place: Place
    host: Host
    awaited: Awaited
    here: Here
    missing: Missing
    unnamed: Unnamed
    gave_up: GaveUp


class EngineMembers(TypedDict):
    """The engine, as members of a summary."""

    engine: Engine
    engine_reason: EngineReason


class LagMembers(TypedDict):
    """The lag of a store, as members of a line; each is null if it is not known."""

    lag: Lag | None
    lag_exact: LagExact | None
    lag_seconds: LagSeconds | None


class RestoredStoreLine(TypedDict):
    """A store that was restored."""

    type: Literal["store"]
    task: Task
    store: Store
    records: Records
    rows: Rows
    deleted: Deleted
    expired: Expired
    null_keys: NullKeys
    has_position: HasPosition
    changelog: Changelog
    seconds: Seconds


class ErrorLine(TypedDict):
    """The last line, if the command exited with code 2 or more.

    The lines before it are correct, but may be incomplete.
    """

    type: Literal["error"]
    code: Code
    exit: Exit
    message: Message
    where: Where | None
    details: Details
    hint: Hint | None
    hint_details: HintDetails


class ProblemLine(TypedDict):
    """An entry in the directory that Kafka Streams cannot handle or that kstate does not recognize."""

    type: Literal["problem"]
    task: Task | None
    store: Store | None
    code: Code
    path: Path
    message: Message
    rule: Rule


class StepLine(TypedDict):
    """A step of the plan."""

    type: Literal["step"]
    action: Action
    path: Path
    message: Message


class WarningLine(TypedDict):
    """A warning about the plan."""

    type: Literal["warning"]
    message: Message


class NoteLine(TypedDict):
    """A note about the plan."""

    type: Literal["note"]
    message: Message

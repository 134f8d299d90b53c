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
        "Version of the whole output format. It rises if a member is removed or changes its meaning, and not if"
        " members are added.",
        const=SCHEMA_VERSION,
    ),
]
# In every line, so that lines of several calls in one file still say what they are about.
App = Annotated[
    str,
    Meaning(
        "Absolute path of the application directory. Of diff: A. In an error before it was found: of what was "
        "given; null where nothing was."
    ),
]
# Text and not two numbers: a named topology is part of the id, and global stores have none.
Task = Annotated[str, Meaning("A task: 0_1, __topology__/0_1 of a named topology, global.")]
Store = Annotated[str, Meaning("Name of a store.")]
# Of the changelog, which has the number of the task's partition.
Partition = Annotated[
    int,
    Meaning("Partition; null of a global store, and of rows that --collate merges where it is not known.", minimum=0),
]
# The pattern has no blank and no colon: kstate explain takes GROUP:CODE as one word.
Code = Annotated[
    str,
    Meaning("Code for programs: it stays the same if the message changes.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$"),
]
# The levels of three commands: a program that compares them needs one list.
Level = Annotated[
    str,
    Meaning(
        "How bad it is. check: expected, warning, error; verify: damage, or unknown where it could not be judged;"
        " fleet: error, warning, unknown.",
        enum=values(check_findings.Level, verify_findings.VerifyLevel, fleet_findings.FleetLevel),
    ),
]
# For people: programs decide by code, since the words of a message may change in any version.
Message = Annotated[str, Meaning("The message, for people.")]
Messages = Annotated[list[str], Meaning("Several texts, for people or of Kafka Streams.")]
Hint = Annotated[str, Meaning("What to do next, for people; often a command.")]
Rule = Annotated[str, Meaning("The rule that it follows from: class of Kafka Streams, KIP, section of docs/internals.")]
Path = Annotated[str, Meaning("Path: relative to app if it is in app, otherwise absolute, or a URI.")]
Release = Annotated[str, Meaning("A Kafka Streams release.")]
Kind = Annotated[str, Meaning("Kind of store, as ls lists it.")]
# As it is stored, without conversion: the two meanings are those of ProcessorStateManager and GlobalStateManagerImpl.
Changelog = Annotated[
    Mapping[str, Mapping[int, int]],
    Meaning(
        "Stored changelog offsets: topic, partition, offset. It is that of the last record that a task store applied,"
        " and of the next record that a global store reads. null: not readable."
    ),
]
# Topic by topic, because a store may have several input topics.
Position = Annotated[
    Mapping[str, Mapping[int, int]], Meaning("Position of IQv2: topic, partition, offset. null: not known.")
]
# Three values: a lock of another host may be invisible, and unknown must not look like stopped.
Running = Annotated[bool, Meaning("Whether the application runs; null if that is unknown.")]
# A reader of two calls can tell whether the second may have seen more.
AsOf = Annotated[
    str,
    Meaning(
        "What the state is of: a directory that is closed, or the last flush of an application that may run.",
        enum=("closed", "last-flush"),
    ),
]
# Names and no range: between two releases that open a store there may be one that does not.
OpensIn = Annotated[list[str], Meaning("Releases that open it.")]
# As an estimate it is RocksDB's: entries that were overwritten and not compacted count twice.
Rows = Annotated[int, Meaning("Rows.", minimum=0)]
Host = Annotated[str, Meaning("Name of a host. ls: its own name; fleet: the name of its file, or the passed one.")]
ProcessId = Annotated[
    str,
    Meaning(
        "What Streams calls the instance of a state directory (kafka-streams-process-metadata); null where it is "
        "not known."
    ),
]
Place = Annotated[str, Meaning("Folder or object prefix of a barrier.")]
Awaited = Annotated[int, Meaning("How many hosts are awaited, this one among them.", minimum=1)]
Here = Annotated[list[str], Meaning("Hosts that are at the barrier together.")]
Missing = Annotated[list[str], Meaning("Named hosts that are missing.")]
Unnamed = Annotated[int, Meaning("How many more hosts are awaited, without a known name.", minimum=0)]
GaveUp = Annotated[list[str], Meaning("Of those that are missing: they did not wait any longer.")]
Barrier = Annotated[
    str,
    Meaning(
        "What came of the barrier: all came, or not all did in time. null: there was none.",
        enum=("passed", "not-all-came"),
    ),
]
Lag = Annotated[
    int,
    Meaning(
        "Records of the log that the store has not applied, up to the log end in the broker, the file or the dump.",
        minimum=0,
    ),
]
Bytes = Annotated[int, Meaning("Bytes of files.", minimum=0)]
Stores = Annotated[int, Meaning("How many stores.", minimum=0)]
Records = Annotated[int, Meaning("Records of a changelog.", minimum=0)]
# Compaction leaves holes: the difference of two offsets is an upper bound.
LagExact = Annotated[bool, Meaning("false: at most so many, by the bounds of the log.")]
LagSeconds = Annotated[
    float, Meaning("How old the first record is that the store has not seen; 0 where it has seen all.", minimum=0)
]
Warnings = Annotated[int, Meaning("Warnings.", minimum=0)]
# With milliseconds at most: more digits would differ in every run without a meaning.
Seconds = Annotated[float, Meaning("How long it took.", minimum=0)]
Ok = Annotated[bool, Meaning("Nothing was found, and nothing is in doubt.")]
Findings = Annotated[Mapping[str, int], Meaning("Code of a finding, and how many there are.", each={"minimum": 0})]
Subset = Annotated[str, Meaning("Which part of the stores, or of the files of a dump: I/N.")]
LeftOut = Annotated[int, Meaning("Stores, or files of a dump, in other parts.", minimum=0)]
Application = Annotated[str, Meaning("application.id.")]
Out = Annotated[str, Meaning("Absolute path of the folder of what was written, or s3://BUCKET/PREFIX.")]
# Stated, since the choice is automatic and decides how long the next call takes.
Engine = Annotated[str, Meaning("What did the work: spark or local; of an export spark, processes or one process.")]
EngineReason = Annotated[str, Meaning("Why this engine did the work.")]
Files = Annotated[int, Meaning("How many files.", minimum=0)]
# The steps of change/plan.py, by the words that the table has.
Action = Annotated[
    str,
    Meaning(
        "What a step does.",
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
Executed = Annotated[bool, Meaning("Whether it was done; false: with --dry-run, or because there was nothing to do.")]
Deleted = Annotated[int, Meaning("Rows that the changelog has deleted.", minimum=0)]
Expired = Annotated[int, Meaning("Rows that are past their retention.", minimum=0)]
NullKeys = Annotated[int, Meaning("Records without a key, which Streams skips too.", minimum=0)]
HasPosition = Annotated[bool, Meaning("Whether the changelog carried a Position.")]
# Counts manifests, so that a program can wait for the next one.
Generation = Annotated[int, Meaning("Of the manifest that was written; null where none was.", minimum=1)]
Verified = Annotated[
    str, Meaning("When the part of the dump was last read in full by verify-dump, in UTC; null: never here.")
]
# In the line as well, for a reader who has only the file.
Exit = Annotated[int, Meaning("The exit code.", minimum=2)]
Where = Annotated[str, Meaning("The subject, if the message does not name it.")]
Details = Annotated[list[str], Meaning("More of the message, a line each.")]
# One command in each, ready to be run.
HintDetails = Annotated[list[str], Meaning("More of the hint, a line each: often commands to be pasted.")]


class BarrierMembers(TypedDict):
    """Who is at a barrier, as members of a line."""

    place: Place
    host: Host
    awaited: Awaited
    here: Here
    missing: Missing
    unnamed: Unnamed
    gave_up: GaveUp


class EngineMembers(TypedDict):
    """What has done the work, as members of a summary."""

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
    """The command ended with exit code 2 or more: the last line.

    The lines before it are correct, but may not be all.
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
    """Something in the directory that Streams chokes on, or that kstate does not understand."""

    type: Literal["problem"]
    task: Task | None
    store: Store | None
    code: Code
    path: Path
    message: Message
    rule: Rule


class StepLine(TypedDict):
    """A step of the plan, as it is carried out."""

    type: Literal["step"]
    action: Action
    path: Path
    message: Message


class WarningLine(TypedDict):
    """A warning about the plan."""

    type: Literal["warning"]
    message: Message


class NoteLine(TypedDict):
    """Something else about the plan that is worth knowing."""

    type: Literal["note"]
    message: Message

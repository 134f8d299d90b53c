"""Lines of JSON about seeded changelogs."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.cli.lines import dumps, shared
from kstate_cli.cli.lines.shared import Meaning

SourceTopic = Annotated[str, Meaning("Changelog of the source application.")]
TargetTopic = Annotated[str, Meaning("Changelog of the new application.")]
NewestOnly = Annotated[bool, Meaning("Whether only the newest record of each key is written.")]
SourcePartitions = Annotated[int, Meaning("Partitions of the changelog of the source application.", minimum=1)]
Partitioner = Annotated[str, Meaning("Rule of the partition of a key: murmur2, or MODULE:NAME.")]
KeyForm = Annotated[str, Meaning("What the keys of the changelog have beside the record's key, or MODULE:NAME.")]
Proven = Annotated[
    int, Meaning("Records of the source for which the rule gives the partition in which they are: all.", minimum=0)
]
PartitionRecords = Annotated[
    list[int], Meaning("Records of each partition of the new changelog, at most, from partition 0.")
]
PrimaryPartitions = Annotated[
    int | None,
    Meaning("Partitions of the left table of a foreign-key join, if kstate writes them into the values; else null."),
]
SourceApplication = Annotated[str, Meaning("application.id of the source application.")]
Topics = Annotated[int, Meaning("Changelogs.", minimum=0)]
Created = Annotated[int, Meaning("Topics that this run has created; others existed from an earlier run.", minimum=0)]
Written = Annotated[int, Meaning("Records that this run has written.", minimum=0)]
CopiedOffsets = Annotated[int, Meaning("Partitions of input topics whose committed offsets are copied.", minimum=0)]
RestoredStores = Annotated[
    int | None, Meaning("Stores that were restored for the new application; null without --out.", minimum=0)
]
RestoredDirectory = Annotated[
    str | None, Meaning("Directory of the new application that was restored; null without --out.")
]
Condition = Annotated[str, Meaning("Name of the condition, such as source-stopped.")]
ConditionState = Annotated[str, Meaning("Whether the condition is met.", enum=("met", "not-met", "unknown"))]
ConditionReason = Annotated[str | None, Meaning("Why it is not met or unknown; null if it is met.")]
Journal = Annotated[str, Meaning("Path of the journal.")]


class SeedConditionLine(TypedDict):
    """With --dry-run: a condition of the run."""

    type: Literal["condition"]
    condition: Condition
    condition_state: ConditionState
    condition_reason: ConditionReason


class SeedTopicLine(TypedDict):
    """A changelog. app is null, here and below."""

    type: Literal["topic"]
    source_topic: SourceTopic
    target_topic: TargetTopic
    store: shared.Store
    partitions: dumps.Partitions
    records: shared.Records
    newest_only: NewestOnly


class SeedPartitioningLine(TypedDict):
    """With --partitions: the changelog before it gets another number of partitions, by this rule."""

    type: Literal["partitioning"]
    store: shared.Store
    source_partitions: SourcePartitions
    partitions: dumps.Partitions
    partitioner: Partitioner
    key_form: KeyForm
    proven: Proven
    partition_records: PartitionRecords
    primary_partitions: PrimaryPartitions


class RestoredMembers(TypedDict):
    """The restored directory."""

    restored_stores: RestoredStores
    restored_directory: RestoredDirectory


class SeedSummaryLine(RestoredMembers):
    """The end."""

    type: Literal["summary"]
    application: shared.Application
    source_application: SourceApplication
    topics: Topics
    created: Created
    records: shared.Records
    written: Written
    copied_offsets: CopiedOffsets
    journal: Journal
    executed: shared.Executed


class SeedDeletedLine(TypedDict):
    """With --undo: a changelog that was deleted. The numbers of the summary are 0 then."""

    type: Literal["deleted"]
    target_topic: TargetTopic


SeedLine = (
    SeedConditionLine
    | SeedTopicLine
    | SeedPartitioningLine
    | dumps.DumpNoteLine
    | SeedSummaryLine
    | SeedDeletedLine
    | shared.ErrorLine
)

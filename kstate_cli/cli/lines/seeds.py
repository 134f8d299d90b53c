"""Lines of JSON about seeded changelogs."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from kstate_cli.cli.lines import dumps, shared
from kstate_cli.cli.lines.shared import Meaning

SourceTopic = Annotated[str, Meaning("The changelog of the source application.")]
TargetTopic = Annotated[str, Meaning("The changelog of the new application.")]
NewestOnly = Annotated[bool, Meaning("Whether kstate writes only the newest record for each key.")]
SourcePartitions = Annotated[int, Meaning("The number of partitions in the source application's changelog.", minimum=1)]
Partitioner = Annotated[str, Meaning("The rule that determines a key's partition: murmur2, or MODULE:NAME.")]
KeyForm = Annotated[str, Meaning("What the changelog keys contain in addition to the record key, or MODULE:NAME.")]
Proven = Annotated[
    int,
    Meaning(
        (
            "The number of source records that are in the partition determined by the rule. It always equals the "
            "total number of records."
        ),
        minimum=0,
    ),
]
PartitionRecords = Annotated[
    list[int],
    Meaning("The maximum number of records in each partition of the new changelog, starting with partition 0."),
]
PrimaryPartitions = Annotated[
    int | None,
    Meaning(
        "The number of partitions of the left table in a foreign-key join, if kstate writes this number to the "
        "values. Otherwise, it is null."
    ),
]
SourceApplication = Annotated[str, Meaning("The application.id of the source application.")]
Topics = Annotated[int, Meaning("The number of changelogs.", minimum=0)]
Created = Annotated[
    int,
    Meaning(
        "The number of topics that this run created. The other topics already existed from an earlier run.", minimum=0
    ),
]
Written = Annotated[int, Meaning("The number of records that this run wrote.", minimum=0)]
CopiedOffsets = Annotated[
    int, Meaning("The number of input partitions for which kstate copies the committed offsets.", minimum=0)
]
RestoredStores = Annotated[
    int | None,
    Meaning("The number of stores that kstate restored for the new application. It is null without --out.", minimum=0),
]
RestoredDirectory = Annotated[
    str | None, Meaning("The restored directory of the new application. It is null without --out.")
]
Condition = Annotated[str, Meaning("The name of the condition, such as source-stopped.")]
ConditionState = Annotated[str, Meaning("Whether the condition is met.", enum=("met", "not-met", "unknown"))]
ConditionReason = Annotated[
    str | None, Meaning("Why the condition is not met or unknown. It is null if the condition is met.")
]
Journal = Annotated[str, Meaning("The path of the journal.")]


class SeedConditionLine(TypedDict):
    """With --dry-run, a condition of the run."""

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
    """With --partitions, a changelog and the rule that selects the new partition of each record."""

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
    """The last line of the command."""

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
    """With --undo, a changelog that kstate deleted. The numbers in the summary are then 0."""

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

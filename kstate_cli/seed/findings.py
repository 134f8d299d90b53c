"""The conditions of a seed. The catalogue holds one entry for each: its name is the code of the finding about it.

A dry run of ``kstate seed`` and ``kstate check`` print the same conditions, and
:mod:`kstate_cli.seed.conditions` judges them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal

from kstate_cli import option
from kstate_cli.codes import Code
from kstate_cli.texts import command


class SeedLevel(str, Enum):
    """How severe a finding is."""

    ERROR = "error"
    """The condition is not met, so ``kstate seed`` refuses to run, or the seed is no longer complete."""
    UNKNOWN = "unknown"
    """kstate cannot judge the condition. The run does not depend on it, or the user confirms it."""


State = Literal["met", "not-met", "unknown"]


@dataclass(frozen=True, slots=True)
class ConditionCode(Code):
    """One condition."""

    unknown_if: str = field(default="", compare=False, kw_only=True)
    """When it is unknown, beside a cluster that does not respond and a condition before it that is not met."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the run, and its state."""

    code: ConditionCode
    state: State
    why: str | None = None
    """Why it is not met or unknown, or a remark."""
    hint: str | None = None
    """What to do about the first reason; None: what the code says."""

    @property
    def name(self) -> str:
        """Return the name of the condition."""
        return self.code.name

    @property
    def level(self) -> SeedLevel | None:
        """Return the level of the finding about it; None if it is met."""
        return {"met": None, "not-met": SeedLevel.ERROR, "unknown": SeedLevel.UNKNOWN}[self.state]

    @property
    def advice(self) -> str:
        """Return what to do if it is not met or unknown."""
        return self.hint or self.code.instruction


_DRY_RUN: Final = command(
    "seed", option.FROM, "DUMP", option.APP, "ID", option.BOOTSTRAP_SERVER, "HOST:PORT", option.DRY_RUN
)
_DUMP: Final = command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.APP, "ID", option.OUT, "DUMP")
_STOPPED: Final = "stop all instances of the source application and wait until their sessions have timed out"
_ORDER: Final = "seeding.md#the-order-of-a-run"
_OF_RULE: Final = "kstate checks this before it writes anything ({page})"
_AFTER: Final = "the journal records what the run left on the broker ({page})"

SOURCE_REACHABLE: Final = ConditionCode(
    "source-reachable",
    "The source cluster responds",
    source=_OF_RULE,
    page=_ORDER,
    hint="check the address of the source cluster and the client settings",
)
TARGET_REACHABLE: Final = ConditionCode(
    "target-reachable",
    "The target cluster responds",
    source=_OF_RULE,
    page=_ORDER,
    hint="check the address of the target cluster and the client settings",
)
NAMES_VALID: Final = ConditionCode(
    "names-valid",
    "The names of the new application and of renamed stores are valid and not yet in use",
    source=_OF_RULE,
    page=_ORDER,
    hint="pass a different name",
)
SOURCE_STOPPED: Final = ConditionCode(
    "source-stopped",
    "The source's consumer group has no members",
    more="Records that the source writes after the dump would be missing from the new application.",
    source="librdkafka lists no members of groups with group.protocol=streams ({page})",
    page="seeding.md#groups-with-groupprotocolstreams",
    hint=_STOPPED,
    do=(f"if the application uses group.protocol=streams, stop it and pass {option.SOURCE_STOPPED}",),
    unknown_if="the group uses `group.protocol=streams` or does not exist",
)
SOURCE_OFFSETS: Final = ConditionCode(
    "source-offsets",
    "The source's consumer group has committed offsets for all its input topics",
    more=(
        "A broker reports only offsets of topics that the user is allowed to describe. If an offset is missing, the "
        "new application starts reading that topic at its beginning or end."
    ),
    source=_OF_RULE,
    page=_ORDER,
    hint="compare the input topics that kstate prints with those of your topology",
    do=(
        f"to set the offsets yourself, pass {option.NO_OFFSETS}",
        "grant Describe on all input topics",
    ),
    unknown_if=(
        "the source is a dump. Compare the printed input topics with the input topics of your topology, because a "
        "broker reports offsets only for topics that the user is allowed to describe"
    ),
)
NO_OPEN_TRANSACTION: Final = ConditionCode(
    "no-open-transaction",
    "No transaction is open in the source's changelogs and internal topics",
    more="While a transaction is open, kstate does not know whether its records will be committed.",
    source=_OF_RULE,
    page=_ORDER,
    hint="wait until the broker has aborted the transaction (transaction.timeout.ms), then extend the dump",
)
SOURCE_DRAINED: Final = ConditionCode(
    "source-drained",
    "The source has read all records in its internal topics",
    more="The new application has different internal topics, so it would never read the remaining records.",
    source=_OF_RULE,
    page=_ORDER,
    hint="start the source without new input, stop it once it has read all records, and extend the dump",
)
SOURCE_COMPLETE: Final = ConditionCode(
    "source-complete",
    "The dump has every record of every changelog, or the directories have every update",
    source=_OF_RULE,
    page="seeding.md#state-directories-as-the-source",
    hint=f"after the application has stopped, extend the dump: {_DUMP}",
    do=(
        "if the source consists of state directories, pass the directories of all hosts",
        f"to write a store that may lack updates, pass {option.ACCEPT} STORE",
    ),
    unknown_if=f"you accept a store with `{option.ACCEPT}`, or only the specification contains the number of tasks",
)
SOURCE_AS_SPECIFIED: Final = ConditionCode(
    "source-as-specified",
    "The source's changelogs and input topics match the specification",
    more=(
        "A specification of a different application may contain the wrong kinds, so kstate would write too few records."
    ),
    source=_OF_RULE,
    page=_ORDER,
    hint="correct kstate.toml",
    do=(f"to write the file again: {command('ls', 'APP', option.SPEC)}",),
    unknown_if=f"you do not pass `{option.SPEC}`, or the file has no store for one of the changelogs",
)
TABLES_ON_TARGET: Final = ConditionCode(
    "tables-on-target",
    "The target has the topics for tables and global stores without a changelog",
    more="kstate writes nothing for these stores, because Kafka Streams restores them from their input topics.",
    source=_OF_RULE,
    page="seeding.md#tables-on-another-cluster",
    hint="create the topic with the same number of partitions and mirror its records",
    do=(f"if the condition is unknown, pass {option.SPEC} FILE, because only the file names these stores",),
    unknown_if=f"you do not pass `{option.SPEC}`, so kstate does not know the tables",
)
TARGET_EMPTY: Final = ConditionCode(
    "target-empty",
    "The target has no topics, records or offsets of the new application",
    more="kstate writes only to topics that it created.",
    source=_OF_RULE,
    page="seeding.md#topics-of-an-earlier-application",
    hint=f"pass a different {option.APP}, or the journal of the run that created the topics",
    unknown_if="the target has changelogs that may belong to the new application",
)
RECORDS_AND_OFFSETS: Final = ConditionCode(
    "records-and-offsets",
    "kstate can write every record, and every input offset is certain",
    source="kstate identifies each offset by the records on both sides of it ({page})",
    page="seeding.md#offsets-on-another-cluster",
    hint="fix the cause that kstate reports",
    do=(f"to pass the input offsets yourself, use {option.START_OFFSETS} FILE",),
)
TABLES_EQUAL: Final = ConditionCode(
    "tables-equal",
    "Kafka Streams would restore the same rows for tables and global stores on the target",
    source="a mirrored topic may lack records before the committed offset ({page})",
    page="seeding.md#tables-on-another-cluster",
    hint="recreate the topic on the target and mirror all its records",
    do=(f"to accept different rows of a table, pass {option.ACCEPT} STORE",),
    unknown_if=(
        f"you do not pass `{option.SPEC}`, you accept a table, or the topic of a global store differs or cannot be "
        "compared"
    ),
)
TARGET_COMPATIBLE: Final = ConditionCode(
    "target-compatible",
    "The target accepts the topics with their final settings",
    source="the broker validates each topic without creating it ({page})",
    page=_ORDER,
    hint="correct the settings of the source topic or of the target",
)
TOPICS_PRESENT: Final = ConditionCode(
    "topics-present",
    "After a run, the topics that the run created still exist",
    more="Kafka Streams would start with empty stores if a changelog is missing.",
    source=_AFTER,
    page=_ORDER,
    hint=f"seed again with a different {option.APP} and a new {option.JOURNAL}",
)
TOPICS_UNUSED: Final = ConditionCode(
    "topics-unused",
    "After a run, the end offsets of its topics are unchanged",
    more="If the new application has started, this condition is unknown, and you can no longer undo the run.",
    source=_AFTER,
    page=_ORDER,
    hint="if the new application has not started yet, find out which other program writes to these topics",
    unknown_if="an application has written to the topics",
)
OFFSETS_COMMITTED: Final = ConditionCode(
    "offsets-committed",
    "After a run, the new consumer group has the offsets that the run committed, or later ones",
    more="The broker deletes the offsets of a group without members after offsets.retention.minutes.",
    source=_AFTER,
    page=_ORDER,
    hint=f"seed again with a different {option.APP} and a new {option.JOURNAL}",
)

CONDITIONS: Final[dict[str, ConditionCode]] = {
    entry.name: entry for entry in list(vars().values()) if isinstance(entry, ConditionCode)
}
"""Every condition by its name, in the order in which kstate prints them."""

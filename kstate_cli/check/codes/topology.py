"""Findings about a new topology: stores that it looks for in another task, or not at all."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import REHOME, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_HOMES: Final = "start.md#tasks-of-another-topology"
_LOOK = f"to see each store's current and new task: {command('ls', 'APP', option.TOPOLOGY, 'NEW')}"
_DRY = f"to see which changes this makes: {command('rehome', 'APP', option.TOPOLOGY, 'NEW', option.DRY_RUN)}"
_EXPORT = (
    "to keep its rows as Parquet files, run this before you start the application: "
    f"{command('export', 'APP', 'STORE', option.OUT, 'DIR')}"
)

LEFT_OVER_TASK: Final = FindingCode(
    "left-over-task",
    "The directory has a task whose sub-topology no longer exists",
    level=Level.WARNING,
    more=(
        "Up to 4.2, the task remains until Streams' cleaner deletes it. 4.3 opens every task directory. If the "
        "topology has no sub-topology with the task's number, 4.3 builds the whole topology. If the application has a "
        "global store, 4.3 then fails to start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "in 4.3, InternalTopologyBuilder.buildSubtopology builds the whole topology for an unknown number. Streams "
        "can open a global store for only one task (RocksDBMetricsRecorder.init; {page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_DRY,),
)
UNKNOWN_TOPOLOGY: Final = FindingCode(
    "unknown-topology",
    "The directory has a task of a named topology that the application does not have",
    level=Level.ERROR,
    more=(
        "Up to 4.2, the task remains. 4.3 looks up the named topology of every task directory and fails to start if "
        "any of these topologies does not exist. A store in a different named topology has a different changelog, so "
        "kstate cannot move it."
    ),
    log=(log.UNKNOWN_TOPOLOGY, log.NO_BUILDER),
    source="in 4.3, TopologyMetadata.lookupBuilderForTask throws an UnknownTopologyException ({page})",
    page=_HOMES,
    hint="move the named topology's directory out of the application directory",
)
STORE_ELSEWHERE: Final = FindingCode(
    "store-elsewhere",
    "The topology has the store in a different task",
    level=Level.WARNING,
    more=(
        "Streams looks for a store only in the store's own task. If the store is missing there, Streams restores it "
        "from the changelog that is named after the store. The cleaner deletes the store in the old task."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "StateDirectory.getOrCreateDirectoryForTask derives a task's name from its sub-topology, and Streams looks "
        "for a store only in that task ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK, _DRY),
)
MOVED_WITHOUT_CHANGELOG: Final = FindingCode(
    "moved-without-changelog",
    "The topology has a store without a changelog in a different task",
    level=Level.ERROR,
    more=(
        "Streams silently starts with an empty store. The rows remain in the old task until the cleaner deletes "
        "the task."
    ),
    log=(log.NOT_LOGGED,),
    source=(
        "in a different task, ProcessorStateManager starts with an empty store if the store has no changelog ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=("move the store before you start the application", _EXPORT),
)
STORE_NOT_IN_TOPOLOGY: Final = FindingCode(
    "store-not-in-topology",
    "The topology no longer contains this store",
    level=Level.WARNING,
    more=("Streams no longer opens the store. It remains on disk until Streams or its cleaner deletes the task."),
    log=SILENT,
    source="Streams never deletes the changelog, and deletes the store only together with its task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_EXPORT,),
)
COPY_DELETED: Final = FindingCode(
    "copy-deleted",
    "Streams deletes a task that still contains a moved or removed store",
    level=Level.WARNING,
    more=(
        "Under exactly-once, Streams deletes the whole task, because one of its stores has no offset. This also "
        "deletes rows that another task could use. Streams must then restore these rows from the changelog."
    ),
    log=(log.CORRUPTED, log.REVIVED, log.WIPED),
    source="StateManagerUtil.closeStateManager deletes a corrupted task's whole directory ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK,),
)
NEW_STORE: Final = FindingCode(
    "new-store",
    "The topology has a store that does not exist in any task of this directory",
    level=Level.WARNING,
    more=(
        "Streams restores the store from the beginning of its changelog. A new store's changelog is empty, but an "
        "in-memory store's changelog has records. If a new store is on disk, Streams wipes and restores its task's "
        "other stores under exactly-once. An in-memory store has no such effect. The description of a topology does "
        "not show whether a store is in memory."
    ),
    log=(log.NO_OFFSETS, log.CORRUPTED),
    source=(
        "under exactly-once, ProcessorStateManager.initializeStoreOffsets treats a task as corrupted if any logged "
        "store on disk has no offset ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(f"for an exact prediction, pass {option.FROM} OLD.txt, or {option.SPEC} kstate.toml with the store's kind",),
)
NAME_OF_ANOTHER_OPERATOR: Final = FindingCode(
    "name-of-another-operator",
    "A generated store name now belongs to a different operator",
    level=Level.ERROR,
    more=(
        "The DSL puts the operator's number into the name. Streams now uses the old operator's rows and changelog "
        "for the new one. The values then have a different meaning, or the application cannot read them."
    ),
    log=SILENT,
    source=(
        "InternalStreamsBuilder.newStoreName puts the operator's number into the name. If another operator gets this "
        "number, that operator uses the same rows and changelog ({page})"
    ),
    page=_HOMES,
    hint="do not start the application. First, set the old names in the code with Materialized.as",
    do=("or wipe the store and delete its changelog",),
)
REHOME_REFUSED: Final = FindingCode(
    "rehome-refused",
    "kstate refuses to move these stores",
    level=Level.WARNING,
    more="The message states the reason, and the hint describes the first step.",
    source="kstate refuses to do anything that would lose state",
    hint=REHOME,
    do=(f"to see the complete message: {command('rehome', 'APP', option.TOPOLOGY, 'NEW', option.DRY_RUN)}",),
)
REHOME_WARNS: Final = FindingCode(
    "rehome-warns",
    "kstate can move these stores, but warns about the result",
    level=Level.WARNING,
    more=(
        "`kstate rehome` moves the stores and exits with code 1. For example, the new topology may no longer read "
        "some repartition topics, so their unread records are never processed."
    ),
    source="kstate prints a warning and continues",
    hint=REHOME,
    do=(_DRY,),
)

"""Findings about a new topology: stores that it looks for in another task, or not at all."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import REHOME, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_HOMES: Final = "start.md#tasks-of-another-topology"
_LOOK = f"to see the current and the new task of each store: {command('ls', 'APP', option.TOPOLOGY, 'NEW')}"
_DRY = f"to see the changes that it would make: {command('rehome', 'APP', option.TOPOLOGY, 'NEW', option.DRY_RUN)}"
_EXPORT = (
    "to keep its rows as Parquet, run this before you start the application: "
    f"{command('export', 'APP', 'STORE', option.OUT, 'DIR')}"
)

LEFT_OVER_TASK: Final = FindingCode(
    "left-over-task",
    "The directory has a task of a sub-topology that is not in the topology",
    level=Level.WARNING,
    more=(
        "Up to 4.2, the task remains until the cleaner deletes it. 4.3 opens every task directory. For a number "
        "that is not in the topology, it builds the whole topology. If the application has a global store, 4.3 then "
        "fails to start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "InternalTopologyBuilder.buildSubtopology of 4.3 builds the whole topology for an unknown number. Streams "
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
        "it does not exist. A store of another named topology has another changelog, so kstate cannot move it."
    ),
    log=(log.UNKNOWN_TOPOLOGY, log.NO_BUILDER),
    source="TopologyMetadata.lookupBuilderForTask of 4.3 throws an UnknownTopologyException ({page})",
    page=_HOMES,
    hint="move the directory of the named topology out of the application directory",
)
STORE_ELSEWHERE: Final = FindingCode(
    "store-elsewhere",
    "The topology has the store in another task",
    level=Level.WARNING,
    more=(
        "Streams looks for a store only in its task and restores it there from its changelog, which has the name of "
        "the store. The cleaner deletes the store in the other task."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "StateDirectory.getOrCreateDirectoryForTask derives the name of a task from its sub-topology, and Streams "
        "looks for a store only in that task ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK, _DRY),
)
MOVED_WITHOUT_CHANGELOG: Final = FindingCode(
    "moved-without-changelog",
    "The topology has a store without a changelog in another task",
    level=Level.ERROR,
    more=(
        "Streams silently starts with an empty store. The rows remain in the old task until the cleaner deletes "
        "the task."
    ),
    log=(log.NOT_LOGGED,),
    source="ProcessorStateManager starts a store without a changelog empty in another task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=("move the store before you start the application", _EXPORT),
)
STORE_NOT_IN_TOPOLOGY: Final = FindingCode(
    "store-not-in-topology",
    "The topology does not contain this store",
    level=Level.WARNING,
    more=(
        "Streams no longer opens the store. The store remains until Streams wipes its task, or the cleaner deletes "
        "the task."
    ),
    log=SILENT,
    source="Streams does not delete the changelog and deletes the store only with its task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_EXPORT,),
)
COPY_DELETED: Final = FindingCode(
    "copy-deleted",
    "Streams deletes a task with a store that the topology has in another task or no longer has",
    level=Level.WARNING,
    more=(
        "Under exactly-once, Streams deletes the whole task because one of its stores has no offset. With the task, "
        "it deletes the rows that the other task could use. Streams must then restore these rows from the changelog."
    ),
    log=(log.CORRUPTED, log.REVIVED, log.WIPED),
    source="StateManagerUtil.closeStateManager deletes the whole directory of a corrupted task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK,),
)
NEW_STORE: Final = FindingCode(
    "new-store",
    "The topology has a store that no task in this directory has",
    level=Level.WARNING,
    more=(
        "Streams restores the store from the beginning of its changelog. The changelog of a new store is empty, but "
        "the changelog of an in-memory store has records. If a new store is on disk, Streams wipes and restores all "
        "other stores of its task under exactly-once. An in-memory store has no such effect. The text of a topology "
        "does not show whether a store is in memory."
    ),
    log=(log.NO_OFFSETS, log.CORRUPTED),
    source=(
        "ProcessorStateManager.initializeStoreOffsets treats a task as corrupted under exactly-once if one logged "
        "store on disk has no offset ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(
        f"for an exact prediction, pass {option.FROM} OLD.txt or {option.SPEC} kstate.toml with the kind of the store",
    ),
)
NAME_OF_ANOTHER_OPERATOR: Final = FindingCode(
    "name-of-another-operator",
    "A name that the DSL generated now belongs to another operator",
    level=Level.ERROR,
    more=(
        "The name contains the number of the operator. Streams uses the rows and the changelog of the old operator "
        "for the new one. The values then have another meaning, or the application cannot read them."
    ),
    log=SILENT,
    source=(
        "InternalStreamsBuilder.newStoreName puts the number of the operator into the name. If another operator "
        "gets this number, it uses the same rows and changelog ({page})"
    ),
    page=_HOMES,
    hint="do not start the application. First set the old names in the code, with Materialized.as",
    do=("or wipe the store and delete its changelog",),
)
REHOME_REFUSED: Final = FindingCode(
    "rehome-refused",
    "kstate refuses to move these stores",
    level=Level.WARNING,
    more="The message states the reason, and the hint describes the first step.",
    source="kstate refuses operations that would lose state",
    hint=REHOME,
    do=(f"to see the complete message: {command('rehome', 'APP', option.TOPOLOGY, 'NEW', option.DRY_RUN)}",),
)
REHOME_WARNS: Final = FindingCode(
    "rehome-warns",
    "kstate can move these stores, but prints a warning",
    level=Level.WARNING,
    more=(
        "rehome moves the stores and ends with exit code 1. For example, the topology may no longer read some "
        "repartition topics, so that it never processes their unread records."
    ),
    source="kstate prints a warning and continues",
    hint=REHOME,
    do=(_DRY,),
)

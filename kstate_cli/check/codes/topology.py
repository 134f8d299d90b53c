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
        "Up to 4.2, the task remains until the cleaner deletes it. 4.3 opens every task directory, and builds "
        "the whole topology if it does not know the number. With a global store, 4.3 fails to start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "InternalTopologyBuilder.buildSubtopology of 4.3 builds the whole topology for an unknown number. A global "
        "store can be opened for only one task (RocksDBMetricsRecorder.init; {page})"
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
        "Up to 4.2, the task remains. 4.3 looks for the named topology of every task directory, and fails to "
        "start. A store of another named topology has another changelog, so kstate cannot move it."
    ),
    log=(log.UNKNOWN_TOPOLOGY, log.NO_BUILDER),
    source="TopologyMetadata.lookupBuilderForTask of 4.3: UnknownTopologyException ({page})",
    page=_HOMES,
    hint="move the directory of the named topology out of the application directory",
)
STORE_ELSEWHERE: Final = FindingCode(
    "store-elsewhere",
    "The topology has the store in another task",
    level=Level.WARNING,
    more=(
        "Streams looks for a store only in its task, and restores it there from its changelog, which is named "
        "after the store. The cleaner deletes the store in the other task."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "StateDirectory.getOrCreateDirectoryForTask: a task is named after its sub-topology, and Streams looks for "
        "a store only there ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK, _DRY),
)
MOVED_WITHOUT_CHANGELOG: Final = FindingCode(
    "moved-without-changelog",
    "The topology has a store without a changelog in another task",
    level=Level.ERROR,
    more=("Streams silently starts with an empty store. The rows remain in the old task until the cleaner deletes it."),
    log=(log.NOT_LOGGED,),
    source="ProcessorStateManager: a store without logging begins empty in another task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=("move the store before you start the application", _EXPORT),
)
STORE_NOT_IN_TOPOLOGY: Final = FindingCode(
    "store-not-in-topology",
    "The topology does not have this store",
    level=Level.WARNING,
    more=(
        "Streams no longer opens the store. It is deleted with its task, when Streams wipes the task or the "
        "cleaner deletes it."
    ),
    log=SILENT,
    source="the changelog remains, and the store remains until its task is deleted ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_EXPORT,),
)
COPY_DELETED: Final = FindingCode(
    "copy-deleted",
    "Streams deletes a task that contains a store which the topology has in another task, or not at all",
    level=Level.WARNING,
    more=(
        "Under exactly-once, Streams deletes the whole task because one of its stores has no offset. It also "
        "deletes the copy of the other store, which can then only be restored."
    ),
    log=(log.CORRUPTED, log.REVIVED, log.WIPED),
    source="StateManagerUtil.closeStateManager deletes the whole directory of a corrupted task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK,),
)
NEW_STORE: Final = FindingCode(
    "new-store",
    "The topology has a store that none of the tasks here has",
    level=Level.WARNING,
    more=(
        "Streams reads the store from the beginning of its changelog. The changelog of a new store is empty, "
        "but the changelog of an in-memory store has records. Under exactly-once, a new store on disk makes "
        "Streams wipe and restore all other stores of its task. An in-memory store does not. The text of a "
        "topology does not show which kind it is."
    ),
    log=(log.NO_OFFSETS, log.CORRUPTED),
    source=(
        "ProcessorStateManager.initializeStoreOffsets: under exactly-once, Streams wipes a task if one "
        "logged store on disk has no offset ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(
        f"for an exact prediction, pass {option.FROM} OLD.txt, or {option.SPEC} kstate.toml with the kind of the store",
    ),
)
NAME_OF_ANOTHER_OPERATOR: Final = FindingCode(
    "name-of-another-operator",
    "A name that the DSL generated now belongs to another operator",
    level=Level.ERROR,
    more=(
        "The name contains the number of the operator. Streams uses the rows and the changelog of the old "
        "operator for the new one, so values have another meaning, or cannot be read."
    ),
    log=SILENT,
    source=(
        "InternalStreamsBuilder.newStoreName: the name contains the number of the operator. Another "
        "operator that gets the number uses the rows and the changelog ({page})"
    ),
    page=_HOMES,
    hint="do not start the application. First set the old names in the code, with Materialized.as",
    do=("or wipe that store and delete its changelog",),
)
REHOME_REFUSED: Final = FindingCode(
    "rehome-refused",
    "kstate refuses to move these stores",
    level=Level.WARNING,
    more="The message states the reason, and the hint describes the first step.",
    source="kstate: rehome refuses operations that would lose state",
    hint=REHOME,
    do=(f"to see the message of rehome itself: {command('rehome', 'APP', option.TOPOLOGY, 'NEW', option.DRY_RUN)}",),
)
REHOME_WARNS: Final = FindingCode(
    "rehome-warns",
    "kstate can move these stores, but prints a warning",
    level=Level.WARNING,
    more=(
        "rehome continues and ends with exit code 1. For example, the topology no longer reads some "
        "repartition topics, so their unread records are never processed."
    ),
    source="rehome prints this as a warning and continues",
    hint=REHOME,
    do=(_DRY,),
)

"""Findings of ``check --topology``: stores that another topology looks for in another task, or not at all."""

from __future__ import annotations

from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.check.findings import REHOME, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_HOMES: Final = "start.md#tasks-of-another-topology"
_LOOK = f"to see the present and the future task of each store: {command('ls', 'APP', '--topology', 'NEW')}"
_DRY = f"to see the changes that it would make: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}"
_EXPORT = f"to keep its rows as Parquet, before the start: {command('export', 'APP', 'STORE', '--out', 'DIR')}"

LEFT_OVER_TASK: Final = FindingCode(
    "left-over-task",
    "The directory has a task of a sub-topology that the topology lacks",
    level=Level.WARNING,
    more=(
        "Up to 4.2 it remains until the cleaner deletes it. 4.3 opens every task directory, and builds the "
        "whole topology if the number is unknown: with a global store it does not start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "InternalTopologyBuilder.buildSubtopology of 4.3 builds the whole topology for an unknown number. "
        "A global store can be opened for one task only (RocksDBMetricsRecorder.init; {page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_DRY,),
)
UNKNOWN_TOPOLOGY: Final = FindingCode(
    "unknown-topology",
    "The directory has a task of a named topology that the application lacks",
    level=Level.ERROR,
    more=(
        "Up to 4.2 it remains. 4.3 looks for the topology of every task directory, and does not start. A "
        "store of another named topology has another changelog, so kstate cannot move it."
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
        "Streams looks for it in its task only, and restores it from its changelog, which is named after the store. "
        "The cleaner deletes the store in the other task."
    ),
    log=(log.FROM_START, log.RESTORES_FROM_START),
    source=(
        "StateDirectory.getOrCreateDirectoryForTask: a task is named after its sub-topology, and Streams looks "
        "for a store there only ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK, _DRY),
)
MOVED_WITHOUT_CHANGELOG: Final = FindingCode(
    "moved-without-changelog",
    "The topology has a store without a changelog in another task",
    level=Level.ERROR,
    more="Streams silently begins with an empty store. The rows remain in the old task until the cleaner deletes it.",
    log=(log.NOT_LOGGED,),
    source="ProcessorStateManager: a store without logging begins empty in another task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=("do not start the application before you have done this", _EXPORT),
)
STORE_NOT_IN_TOPOLOGY: Final = FindingCode(
    "store-not-in-topology",
    "The topology has no such store",
    level=Level.WARNING,
    more="Streams no longer opens it. It is deleted with its task, by a wipe or by the cleaner.",
    log=SILENT,
    source="the changelog remains, and the store remains until its task is deleted ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_EXPORT,),
)
COPY_DELETED: Final = FindingCode(
    "copy-deleted",
    "The start deletes a task with a store that the topology has in another task, or not at all",
    level=Level.WARNING,
    more=(
        "Under exactly-once a task is deleted as a whole because one of its stores has no offset. The copy of another "
        "task's store is deleted with it, and can then only be restored."
    ),
    log=(log.CORRUPTED, log.REVIVED, log.WIPED),
    source="StateManagerUtil.closeStateManager deletes the whole directory of a corrupted task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK,),
)
NEW_STORE: Final = FindingCode(
    "new-store",
    "The topology has a store that no task of the directory has",
    level=Level.WARNING,
    more=(
        "Streams reads it from the beginning of its changelog. The changelog of a new store is empty, the "
        "one of a store in memory has records. Under exactly-once, a new store on disk makes Streams wipe "
        "and restore all other stores of its task. A store in memory does not. The text of a topology does "
        "not show which it is."
    ),
    log=(log.NO_OFFSETS, log.CORRUPTED),
    source=(
        "ProcessorStateManager.initializeStoreOffsets: under exactly-once, Streams wipes a task if one "
        "logged store on disk has no offset ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=("for a certain prediction, pass --from OLD.txt, or --spec kstate.toml with the kind of the store",),
)
NAME_OF_ANOTHER_OPERATOR: Final = FindingCode(
    "name-of-another-operator",
    "A name that the DSL generated now belongs to another operator",
    level=Level.ERROR,
    more=(
        "It contains the number of the operator. Streams uses the rows and the changelog of the other "
        "operator for the new one: values of another meaning, or errors when they are read."
    ),
    log=SILENT,
    source=(
        "InternalStreamsBuilder.newStoreName: the name contains the number of the operator. Another "
        "operator that gets the number uses the rows and the changelog ({page})"
    ),
    page=_HOMES,
    hint="do not start the application. First pin the old names in the code, with Materialized.as",
    do=("or wipe that store, and delete its changelog",),
)
REHOME_REFUSED: Final = FindingCode(
    "rehome-refused",
    "Rehoming these stores fails: kstate refuses",
    level=Level.WARNING,
    more="The message contains the reason, and the hint describes the first step.",
    source="kstate: rehome refuses operations that would lose state",
    hint=REHOME,
    do=(f"to see the same from rehome itself: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}",),
)
REHOME_WARNS: Final = FindingCode(
    "rehome-warns",
    "Rehoming these stores works, with a warning",
    level=Level.WARNING,
    more=(
        "It continues, with exit code 1. For example, the topology does not read some repartition topics: "
        "their unread records are never read."
    ),
    source="kstate: rehome warns of this while it continues",
    hint=REHOME,
    do=(_DRY,),
)

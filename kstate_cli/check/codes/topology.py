"""Findings of ``check --topology``: stores that another topology looks for in another task, or not at all."""

from __future__ import annotations

from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.check.findings import REHOME, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_HOMES: Final = "start.md#tasks-of-another-topology"
_LOOK = f"which store lies where, and where it is to be: {command('ls', 'APP', '--topology', 'NEW')}"
_DRY = f"what that would do: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}"
_EXPORT = f"to keep its rows as Parquet, before the start: {command('export', 'APP', 'STORE', '--out', 'DIR')}"

LEFT_OVER_TASK: Final = FindingCode(
    "left-over-task",
    "The directory has a task of a sub-topology that the topology lacks",
    level=Level.WARNING,
    more=(
        "Up to 4.2 it stays until the cleaner deletes it. 4.3 opens every task directory, and builds the whole "
        "topology if the number is unknown: with a global store it does not start."
    ),
    log=(log.ANOTHER_TASK,),
    source=(
        "InternalTopologyBuilder.buildSubtopology of 4.3 builds the whole topology for a number that it has not; "
        "the instance of a global store is opened for one task only (RocksDBMetricsRecorder.init; "
        "{page})"
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
        "Up to 4.2 it stays. 4.3 looks for the topology of every task directory, and does not start. A store of "
        "another named topology is another store, with another changelog: nothing can be moved."
    ),
    log=(log.UNKNOWN_TOPOLOGY, log.NO_BUILDER),
    source="TopologyMetadata.lookupBuilderForTask of 4.3: UnknownTopologyException ({page})",
    page=_HOMES,
    hint="move the directory of the named topology out of the application directory",
)
STORE_ELSEWHERE: Final = FindingCode(
    "store-elsewhere",
    "A store is in another task than the topology has it in",
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
    "A store without a changelog is in another task than the topology has it in",
    level=Level.ERROR,
    more="Streams silently begins with an empty store; the rows stay in the old task until the cleaner deletes it.",
    log=(log.NOT_LOGGED,),
    source="ProcessorStateManager: a store that is not logged begins empty in another task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=("do not start the application before", _EXPORT),
)
STORE_NOT_IN_TOPOLOGY: Final = FindingCode(
    "store-not-in-topology",
    "The topology has no such store",
    level=Level.WARNING,
    more="Streams no longer opens it. It is deleted with its task, by a wipe or by the cleaner.",
    log=SILENT,
    source="the changelog stays, and so does the store, until its task is deleted ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_EXPORT,),
)
COPY_DELETED: Final = FindingCode(
    "copy-deleted",
    "A store is in a task that the start deletes, and the topology has it elsewhere, or not at all",
    level=Level.WARNING,
    more=(
        "Under exactly-once a task is deleted as a whole because one of its stores has no offset. The copy of another "
        "task's store is deleted with it, and can then only be restored."
    ),
    log=(log.CORRUPTED, log.REVIVED, log.WIPED),
    source="StateManagerUtil.closeStateManager deletes all that is in a corrupted task ({page})",
    page=_HOMES,
    hint=REHOME,
    do=(_LOOK,),
)
NEW_STORE: Final = FindingCode(
    "new-store",
    "The topology has a store that no task of the directory has",
    level=Level.WARNING,
    more=(
        "Streams reads it from the beginning of its changelog: a new one is empty, that of a store in memory has "
        "records. Under exactly-once a new store on disk has every other store of its task wiped and restored; one in "
        "memory does not. The text of a topology does not state which it is."
    ),
    log=(log.NO_OFFSETS, log.CORRUPTED),
    source=(
        "ProcessorStateManager.initializeStoreOffsets: under exactly-once one logged store on disk without an "
        "offset wipes its task ({page})"
    ),
    page=_HOMES,
    hint=REHOME,
    do=("to have it foretold for certain: --from OLD.txt, or --spec kstate.toml with the kind of the store",),
)
NAME_OF_ANOTHER_OPERATOR: Final = FindingCode(
    "name-of-another-operator",
    "A name that the DSL generated now belongs to another operator",
    level=Level.ERROR,
    more=(
        "It contains the number of the operator. Streams takes the rows and the changelog of the other operator for "
        "those of the new one: values of another meaning, or errors when they are read."
    ),
    log=SILENT,
    source=(
        "InternalStreamsBuilder.newStoreName: the name carries the number of the operator, and another one that "
        "gets the number takes rows and changelog for its own ({page})"
    ),
    page=_HOMES,
    hint="do not start the application: pin the names of before in the code, by Materialized.as",
    do=("or wipe that store, and delete its changelog",),
)
REHOME_REFUSED: Final = FindingCode(
    "rehome-refused",
    "Rehoming these stores fails: kstate refuses it",
    level=Level.WARNING,
    more="The message contains the reason, and the hint what to do first.",
    source="kstate: rehome refuses what it cannot do without a loss",
    hint=REHOME,
    do=(f"the same, from the command itself: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}",),
)
REHOME_WARNS: Final = FindingCode(
    "rehome-warns",
    "Rehoming these stores works, with a warning",
    level=Level.WARNING,
    more=(
        "It continues, with exit code 1. Repartition topics that the topology does not read are an example: records "
        "that were written to them and not read yet are never read."
    ),
    source="kstate: what rehome warns of when it does this",
    hint=REHOME,
    do=(_DRY,),
)

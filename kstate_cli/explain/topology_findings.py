"""Findings of ``check --topology``: what another topology finds in the directory, and what it does not."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts
from kstate_cli.texts import command

_LOOK = f"which store lies where, and where it is to be: {command('ls', 'APP', '--topology', 'NEW')}"
_DRY = f"what that would do: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}"
_EXPORT = f"to keep its rows as Parquet, before the start: {command('export', 'APP', 'STORE', '--out', 'DIR')}"

TOPOLOGY: Final = {
    "left-over-task": Texts(
        "A task is here of a sub-topology that the topology has not",
        "Up to 4.2 it lies there until the cleaner deletes it. 4.3 opens every task that it finds, and builds the "
        "whole topology where the number is unknown: with a global store it does not start.",
        (log.ANOTHER_TASK,),
        do=(_DRY,),
    ),
    "unknown-topology": Texts(
        "A task is here of a named topology that the application has not",
        "Up to 4.2 it lies there. 4.3 looks for the topology of every task that it finds, and does not start. A store "
        "of another named topology is another store, with another changelog: nothing can be moved.",
        (log.UNKNOWN_TOPOLOGY, log.NO_BUILDER),
    ),
    "store-elsewhere": Texts(
        "A store lies in another task than the topology has it in",
        "Streams looks for it in its task only, does not find it, and restores it from its changelog, which is named "
        "after the store. What lies elsewhere is left to the cleaner.",
        (log.FROM_START, log.RESTORES_FROM_START),
        do=(_LOOK, _DRY),
    ),
    "moved-without-changelog": Texts(
        "A store without a changelog lies in another task than the topology has it in",
        "There it begins empty, without a word; its rows stay in the old task until the cleaner deletes it.",
        (log.NOT_LOGGED,),
        do=("do not start the application before", _EXPORT),
    ),
    "store-not-in-topology": Texts(
        "The topology has no such store",
        "Nobody opens it any more. It goes when its task is wiped, or when the cleaner deletes the task.",
        SILENT,
        do=(_EXPORT,),
    ),
    "copy-deleted": Texts(
        "A store lies in a task that the start deletes, and the topology has it elsewhere, or not at all",
        "Under exactly-once a task is deleted as a whole because one store of it has no offset: the copy of another "
        "task's store goes with it, and then it can only be restored.",
        (log.CORRUPTED, log.REVIVED, log.WIPED),
        do=(_LOOK,),
    ),
    "new-store": Texts(
        "The topology has a store that no task here has",
        "It is read from the beginning of its changelog, which is new and empty, or filled where the store is in "
        "memory. Under exactly-once a new store on disk has every other store of its task wiped and restored; one in "
        "memory has not. A text of a topology does not say which it is.",
        (log.NO_OFFSETS, log.CORRUPTED),
        do=("to have it foretold for certain: --from OLD.txt, or --spec kstate.toml with the kind of the store",),
    ),
    "name-of-another-operator": Texts(
        "A name that the DSL has generated is that of another operator now",
        "It carries the number of the operator. Streams takes the rows that another operator has written, and its "
        "changelog, for those of the new one: values of another meaning, or errors when they are read.",
        SILENT,
        do=("or wipe that store, and delete its changelog",),
    ),
    "rehome-refused": Texts(
        "Rehoming these stores would be refused as things are",
        "The message says why, and the line below it what to do first.",
        do=(f"the same, from the command itself: {command('rehome', 'APP', '--topology', 'NEW', '--dry-run')}",),
    ),
    "rehome-warns": Texts(
        "Rehoming these stores would warn of something",
        "It goes on, with exit code 1. Repartition topics that the topology does not read are such a thing: what was "
        "written to them and not read yet is never read.",
        do=(_DRY,),
    ),
}

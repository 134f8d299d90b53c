"""States: of runs, of restorations, and of a store on disk."""

from __future__ import annotations

from typing import Final

from kstate_cli.change.earlier_runs import INTERRUPTED
from kstate_cli.change.journal import CREATED, DAMAGED, RunState
from kstate_cli.change.journal import INTERRUPTED as RUN_INTERRUPTED
from kstate_cli.check import streams_log as log
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.restore.running.states import RestoreState
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_UNDO = f"to take it back: {command('undo', 'APP')}"
_CLEAN = f"to free what it keeps: {command('clean', 'APP', '--older-than', '7d')}"
_TAKEN_OVER = "run the command again: the next one that changes something finishes the run, or sweeps it away"
_WAIT = "nothing: it is under way"
_AFTER_ERROR = "fix the cause, then run the command again with --after-error"
_WHY = f"why it failed: {command('status', 'APP')}"
_RUNS = f"no rule of Streams: the change engine ({see('engine.md#run-states')})"
_LIKE = f"KafkaStreams.State, as of KIP-696 ({see('restoring.md#states')})"

RUN_STATES: Final = {
    CREATED: Texts("The folder of the run is there, and nothing in it yet", rule=_RUNS, do=(_TAKEN_OVER,)),
    RunState.STAGING.value: Texts(
        "The new directory is being made beside the old one",
        "APP has not changed. Where the process is gone, status says interrupted.",
        rule=_RUNS,
        do=(_WAIT,),
    ),
    RunState.SWITCHING.value: Texts(
        "The exchange of the two directories was announced",
        "APP is wholly the old or wholly the new one; marks in the two trees say which.",
        rule=_RUNS,
        do=(_WAIT, _TAKEN_OVER),
    ),
    RunState.KEPT.value: Texts(
        "Done: APP is the new directory, and the old one is kept for undo",
        "It shares its files with the new one, and takes room as Streams compacts those away.",
        rule=_RUNS,
        do=(_UNDO, _CLEAN),
    ),
    RunState.UNDOING.value: Texts(
        "The exchange back was announced",
        "APP is wholly the one or wholly the other directory.",
        rule=_RUNS,
        do=(_WAIT, f"where its process died: {command('undo', 'APP')}"),
    ),
    RunState.UNDONE.value: Texts(
        "Taken back: APP is the old directory again",
        "What the run had made is kept until it is cleaned.",
        rule=_RUNS,
        do=(_CLEAN,),
    ),
    RunState.FAILED.value: Texts(
        "It ended before the switch: APP is what it was",
        "What was staged is gone. Where a signal ended it, or its process was gone, status says so.",
        rule=_RUNS,
        do=(_WHY, "fix that, and run the command again"),
    ),
    RunState.CLEANING.value: Texts(
        "What the run kept is being deleted",
        "There is no undo of it any more.",
        rule=_RUNS,
        do=(f"where its process died: {command('clean', 'APP')}",),
    ),
    RUN_INTERRUPTED: Texts(
        "Its process is gone, and the run did not come to its end",
        "A kill, a power failure. APP is wholly the old or wholly the new directory; sorted files of a restoration "
        "stay, and are used again.",
        rule=f"no rule of Streams: the change engine ({see('engine.md#dies-here')})",
        do=(_TAKEN_OVER,),
    ),
    DAMAGED: Texts(
        "Its journal cannot be believed, so nothing that it keeps is touched",
        "It is missing, cut, garbled, copied, or of a newer kstate. What lies in the run's folder may be somebody's "
        "only copy.",
        rule=f"no rule of Streams: the change engine ({see('engine.md#what-proves-what')})",
        do=(
            f"what is wrong with it: {command('status', 'APP')}",
            "once you have what you need of it, move the run's folder elsewhere",
        ),
    ),
}

RESTORATION_STATES: Final = {
    RestoreState.CREATED.value: Texts("The restoration was planned, and nothing has begun", rule=_LIKE, do=(_WAIT,)),
    RestoreState.REBALANCING.value: Texts("Tasks and parts of the dump are being assigned", rule=_LIKE, do=(_WAIT,)),
    RestoreState.RESTORING.value: Texts(
        "At least one store is not complete",
        "Streams has this state for tasks only: KIP-728 proposes it for the client, and is in no release.",
        (log.RESTORES_FROM_OFFSET, log.RESTORES_FROM_START, log.RESTORED),
        f"KIP-728 ({see('restoring.md#states')})",
        (f"how far it is: {command('status', 'APP')}",),
    ),
    RestoreState.RUNNING.value: Texts(
        "Every store is complete and in its place", "What is left is to close.", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.PENDING_SHUTDOWN.value: Texts(
        "It is done, or was stopped in order, and is closing", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.NOT_RUNNING.value: Texts("It has ended in order", rule=_LIKE, do=("nothing",)),
    RestoreState.PENDING_ERROR.value: Texts(
        "Something failed: Spark, databases and locks are being closed",
        "ERROR follows. Unlike a client of Streams a restoration may come here from every state, as closing can fail.",
        rule=_LIKE,
        do=(_WAIT, _WHY),
    ),
    RestoreState.ERROR.value: Texts(
        "It has failed, and that is its end",
        "The next restoration and the next wipe ask for --after-error, so that no cron job does it for ever.",
        rule=_LIKE,
        do=(_WHY, _AFTER_ERROR),
    ),
    INTERRUPTED: Texts(
        "Its process died",
        "The next restoration uses what was sorted. After three in a row it asks for --after-error.",
        rule=f"no state of Streams ({see('restoring.md#taken-up-again')})",
        do=("run the restoration again",),
    ),
}

STORE_STATUS: Final = {
    "open": Texts(
        "The store was not closed: the application runs, or was killed",
        "Under exactly-once 4.3 wipes the task at the next start, as there may be rows of an aborted transaction; of a "
        "global store every start fails.",
        log.INVALID_STATE,
        f"AbstractColumnFamilyAccessor.open ({see('offsets.md#status')})",
        (f"what the next start does: {command('check', 'APP', '--for', 'RELEASE')}",),
    ),
    "closed": Texts(
        "The store was closed cleanly",
        "Rows, offset and Position belong together.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close ({see('offsets.md#status')})",
        ("nothing",),
    ),
}

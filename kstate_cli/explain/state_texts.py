"""States of runs, restorations and stores, outcomes that ``check`` predicts, and reasons of failed queries."""

from __future__ import annotations

from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.change.earlier_runs import INTERRUPTED
from kstate_cli.change.journal import CREATED, DAMAGED, RunState
from kstate_cli.change.journal import INTERRUPTED as RUN_INTERRUPTED
from kstate_cli.check.findings import Outcome
from kstate_cli.codes import SILENT
from kstate_cli.explain.model import Texts
from kstate_cli.query.result import FailureReason
from kstate_cli.restore.running.states import RestoreState
from kstate_cli.texts import command
from kstate_cli.texts import internals as see

_UNDO = f"to roll it back: {command('undo', 'APP')}"
_CLEAN = f"to free what it keeps: {command('clean', 'APP', '--older-than', '7d')}"
_TAKEN_OVER = "run the command again: the next one that changes something finishes the run, or sweeps it away"
_WAIT = "nothing: it is under way"
_AFTER_ERROR = "fix the cause, then run the command again with --after-error"
_WHY = f"why it failed: {command('status', 'APP')}"
_RUNS = f"no rule of Streams: the change engine ({see('engine.md#run-states')})"
_LIKE = f"KafkaStreams.State, as of KIP-696 ({see('restoring.md#states')})"

# CREATED has no line of a journal yet, so it is no RunState.
RUN_STATES: Final = {
    CREATED: Texts("The folder of the run is there, and nothing in it yet", rule=_RUNS, do=(_TAKEN_OVER,)),
    RunState.STAGING.value: Texts(
        "The new directory is being made beside the old one",
        "APP has not changed. If the process has ended, status shows interrupted.",
        rule=_RUNS,
        do=(_WAIT,),
    ),
    RunState.SWITCHING.value: Texts(
        "The exchange of the two directories was announced",
        "APP is wholly the old or wholly the new one; marks in the two trees show which.",
        rule=_RUNS,
        do=(_WAIT, _TAKEN_OVER),
    ),
    RunState.KEPT.value: Texts(
        "Done: APP is the new directory, and the old one is kept for undo",
        "It shares its files with the new one, and needs disk space as Streams compacts those away.",
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
        "Rolled back: APP is the old directory again",
        "What the run had made is kept until it is cleaned.",
        rule=_RUNS,
        do=(_CLEAN,),
    ),
    RunState.FAILED.value: Texts(
        "It ended before the switch: APP is unchanged",
        "kstate deleted the staged files. If a signal ended it, or its process died, status shows that.",
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
        "Its process has ended, and the run has not",
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

# In the order in which a restoration passes through them; interrupted is none of its own, but what status infers.
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
        "The next restoration uses the sorted files. After three in a row it requires --after-error.",
        rule=f"no state of Streams ({see('restoring.md#taken-up-again')})",
        do=("run the restoration again",),
    ),
}

# In the words of ``ls``; a store of a release up to 4.2 has no status at all.
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


_FINDING = "read the finding that it follows from, and its hint"
_DUMP = (
    "to have it done before the start, from a dump: "
    f"{command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)
_CHANGELOG = f"StoreChangelogReader ({see('changelogs.md#log-ends')})"
_WIPED = f"TaskCorruptedException, StateManagerUtil.closeStateManager ({see('start.md#wiped-tasks')})"

# Only outcomes that restore have the advice to restore from a dump: it saves time there, and changes nothing for
# others.
OUTCOMES: Final = {
    Outcome.OPENS: Texts(
        "The store opens unchanged", "Nothing is restored.", (log.FROM_OFFSET,), _CHANGELOG, ("nothing",)
    ),
    Outcome.OPENS_EMPTY: Texts(
        "The store silently opens without all or some of its rows",
        "Its offset states that it is complete, so nothing is restored. This is the worst outcome: queries and joins "
        "give wrong answers, and nothing is printed.",
        (log.FROM_OFFSET,),
        f"AbstractSegments.openExisting; OffsetCheckpoint ({see('start.md#going-down')})",
        # Afterwards nothing shows which rows are missing: the offset states that the store is complete.
        ("do not start the application", _FINDING),
    ),
    Outcome.RESTORES: Texts(
        "The records between the offset and the end of the changelog are restored",
        "That is how Streams works.",
        (log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
        _CHANGELOG,
        (_DUMP,),
    ),
    Outcome.RESTORES_ALL: Texts(
        "The whole changelog is restored, over the rows that are there",
        "Keys that were deleted meanwhile may stay.",
        (log.FROM_START, log.RESTORES_FROM_START, log.RESTORED),
        _CHANGELOG,
        (_FINDING, _DUMP),
    ),
    Outcome.WIPED: Texts(
        "The directory of the task is deleted, then every store of it is restored from the beginning",
        "Streams calls a whole task corrupted, never a single store: for what is wrong with one, all of them pay.",
        (log.NO_OFFSETS, log.CORRUPTED, log.REVIVED, log.WIPED, log.RESTORES_FROM_START),
        _WIPED,
        (_FINDING, _DUMP),
    ),
    Outcome.LOST: Texts(
        "The task is wiped, and the store has no changelog: its rows are lost",
        "Nothing brings them back afterwards.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "do not start the application",
            # Before the start: afterwards there is nothing left to export.
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.MAY_BE_LOST: Texts(
        "The task is wiped, and the store may have no changelog: without one its rows are lost",
        "A store that was not closed cleanly may have no offset yet although it has a changelog.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "before the start, name a source of the topics: --bootstrap-server, --dump or --offsets",
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.FAILS: Texts(
        "The start fails, or a stream thread does: the client ends in ERROR",
        "It fails in the same way each time, until the cause is removed. check prints the exceptions, from the "
        "outermost on.",
        (log.STORE_NOT_OPENED, log.CHECKPOINT_NOT_LOADED, log.CHECKPOINT_NOT_MIGRATED, log.GLOBAL_FAILED),
        f"StateManagerUtil.registerStateStores ({see('start.md')})",
        (_FINDING,),
    ),
    Outcome.HANGS: Texts(
        "The client never leaves REBALANCING, and restores nothing",
        "With transactional stores, the first store that a task opens has status 1. Streams marks the stores opened "
        "before it as corrupted, which are none, so it wipes nothing and tries again without end. The order of the "
        "stores of a task is not on disk.",
        log.INVALID_STATE,
        f"TaskManager.closeDirtyAndRevive ({see('offsets.md#transactional-stores')})",
        (_FINDING,),
    ),
    Outcome.NOT_REACHED: Texts(
        "Another store of the task makes the start fail before this one is opened",
        "Nothing is known of what would become of it.",
        SILENT,
        "StateManagerUtil.registerStateStores: nothing follows a store that fails",
        ("look at the store that fails",),
    ),
    Outcome.UNKNOWN: Texts(
        "Unknown: the application runs, the broker lacks the log, or kstate does not read all of the task",
        "While the application runs, the files are those of its last flush, and how it closes the stores decides. What "
        "kstate does not read (a link, a database that its RocksDB refuses) never counts as missing.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close, ProcessorStateManager.checkpoint ({see('start.md#clean-or-not')})",
        ("check again once the application is stopped", "the findings name what kstate does not read"),
    ),
    Outcome.IGNORED: Texts(
        "The release has no such store, or no such task",
        "The directory stays until the cleaner deletes it.",
        SILENT,
        f"StateDirectory.cleanRemovedTasks ({see('layout.md#ages')})",
        ("move it out of the application directory, if it is wanted",),
    ),
}


_RULE = f"StoreQueryUtils, KIP-796 ({see('positions.md#who-answers-what')})"

# What to do about each is printed by ``query`` itself, which owns that text: only further advice is here.
FAILURES: Final = {
    FailureReason.UNKNOWN_QUERY_TYPE: Texts(
        "This kind of store does not answer this kind of query",
        "A window store has no range of keys, a plain store no timestamps. The message lists the queries that it "
        "answers.",
        rule=_RULE,
    ),
    FailureReason.NOT_ACTIVE: Texts(
        "A running active task was asked for, and nothing runs in a directory",
        "In Streams: the task is a standby here, or is still restoring.",
        rule="KafkaStreams.query with StateQueryRequest.requireActive",
    ),
    FailureReason.NOT_UP_TO_BOUND: Texts(
        "The store has not reached the bound",
        "Its Position, up to which input record it has come, is behind for at least one partition of the bound.",
        rule=f"StoreQueryUtils.isPermitted ({see('positions.md#bounds')})",
        do=("restore it, or let the application run further",),
    ),
    FailureReason.NOT_PRESENT: Texts(
        "No task in this directory has the partition",
        "Another instance has it. In Streams it may also have moved during the query.",
        (log.MIGRATED,),
        rule="KafkaStreams.query",
    ),
    FailureReason.DOES_NOT_EXIST: Texts(
        "The store has fewer partitions than that",
        "kstate knows it only if kstate.toml states their number. Streams declares it, and no release returns it.",
        rule=f"FailureReason ({see('positions.md#who-answers-what')})",
    ),
    FailureReason.STORE_EXCEPTION: Texts(
        "The store could not be read",
        "It is damaged, open in a running application, or of a kind that its bytes leave open. Rows that were printed "
        "before are right.",
        rule=_RULE,
        do=(
            "to read the last flush of a running application: --last-flush",
            f"which kind it is: {command('ls', 'APP')}",
        ),
    ),
}

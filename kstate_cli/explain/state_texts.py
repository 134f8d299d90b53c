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
_CLEAN = f"to free the space of its backup: {command('clean', 'APP', '--older-than', '7d')}"
_TAKEN_OVER = "run the command again: the next command that changes something finishes or removes the run"
_WAIT = "do nothing: it is under way"
_AFTER_ERROR = "fix the cause, then run the command again with --after-error"
_WHY = f"to see why it failed: {command('status', 'APP')}"
_RUNS = f"no rule of Streams: the change engine ({see('engine.md#run-states')})"
_LIKE = f"KafkaStreams.State, as of KIP-696 ({see('restoring.md#states')})"

# CREATED has no line of a journal yet, so it is no RunState.
RUN_STATES: Final = {
    CREATED: Texts("The folder of the run exists, but is still empty", rule=_RUNS, do=(_TAKEN_OVER,)),
    RunState.STAGING.value: Texts(
        "The new directory is under construction beside the old one",
        "APP has not changed. If the process has ended, status shows interrupted.",
        rule=_RUNS,
        do=(_WAIT,),
    ),
    RunState.SWITCHING.value: Texts(
        "The exchange of the two directories was announced",
        "APP is completely the old or completely the new one, as marks in the two trees show.",
        rule=_RUNS,
        do=(_WAIT, _TAKEN_OVER),
    ),
    RunState.KEPT.value: Texts(
        "Done: APP is the new directory, and the old one is the backup for undo",
        "It shares its files with the new one, and needs disk space as Streams compacts those away.",
        rule=_RUNS,
        do=(_UNDO, _CLEAN),
    ),
    RunState.UNDOING.value: Texts(
        "The exchange back was announced",
        "APP is completely the one or completely the other directory.",
        rule=_RUNS,
        do=(_WAIT, f"if its process died: {command('undo', 'APP')}"),
    ),
    RunState.UNDONE.value: Texts(
        "Rolled back: APP is the old directory again",
        "kstate keeps the result of the run until you clean it.",
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
        "The deletion of the backup of the run is under way",
        "kstate can no longer undo it.",
        rule=_RUNS,
        do=(f"if its process died: {command('clean', 'APP')}",),
    ),
    RUN_INTERRUPTED: Texts(
        "The process ended before the run was complete",
        "A kill, or a power failure. APP is completely the old or completely the new directory. The sorted "
        "files of a restoration remain, and the next one uses them.",
        rule=f"no rule of Streams: the change engine ({see('engine.md#dies-here')})",
        do=(_TAKEN_OVER,),
    ),
    DAMAGED: Texts(
        "The journal of the run is unreadable, so kstate leaves the backup alone",
        "It is missing, cut off, corrupt, a copy, or from a newer kstate. The folder of the run may hold "
        "the only copy of a directory.",
        rule=f"no rule of Streams: the change engine ({see('engine.md#what-proves-what')})",
        do=(
            f"to see what is wrong with it: {command('status', 'APP')}",
            "after you have saved what you need from it, move the folder of the run elsewhere",
        ),
    ),
}

# In the order in which a restoration passes through them; interrupted is none of its own, but what status infers.
RESTORATION_STATES: Final = {
    RestoreState.CREATED.value: Texts("The restoration is planned, but has not begun", rule=_LIKE, do=(_WAIT,)),
    RestoreState.REBALANCING.value: Texts("Tasks and parts of the dump are being assigned", rule=_LIKE, do=(_WAIT,)),
    RestoreState.RESTORING.value: Texts(
        "At least one store is not complete",
        "Streams has this state for tasks only: KIP-728 proposes it for the client, and is in no release.",
        (log.RESTORES_FROM_OFFSET, log.RESTORES_FROM_START, log.RESTORED),
        f"KIP-728 ({see('restoring.md#states')})",
        (f"to see its progress: {command('status', 'APP')}",),
    ),
    RestoreState.RUNNING.value: Texts(
        "Every store is complete and in its place", "The run only has to close.", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.PENDING_SHUTDOWN.value: Texts(
        "It is closing, because it is done or was stopped in order", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.NOT_RUNNING.value: Texts("It has ended in order", rule=_LIKE, do=("nothing",)),
    RestoreState.PENDING_ERROR.value: Texts(
        "A step failed, and kstate closes Spark, databases and locks",
        "ERROR follows. Unlike a client of Streams, a restoration may enter this state from every other "
        "state, because closing can fail.",
        rule=_LIKE,
        do=(_WAIT, _WHY),
    ),
    RestoreState.ERROR.value: Texts(
        "It has failed, which is a final state",
        "The next restoration and the next wipe require --after-error, so that a cron job does not repeat "
        "the failure for ever.",
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
        "The store was not closed: the application is running, or was killed",
        "Under exactly-once 4.3 wipes the task at the next start, because the store may have rows of an "
        "aborted transaction. For a global store every start fails.",
        log.INVALID_STATE,
        f"AbstractColumnFamilyAccessor.open ({see('offsets.md#status')})",
        (f"to see the next start: {command('check', 'APP', '--for', 'RELEASE')}",),
    ),
    "closed": Texts(
        "The store was closed cleanly",
        "Rows, offset and Position belong together.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close ({see('offsets.md#status')})",
        ("nothing",),
    ),
}


_FINDING = "read the finding that causes it, and its hint"
_DUMP = (
    "to restore from a dump before the start: "
    f"{command('restore', 'APP', '--from-changelog', 'DUMP', '--for', 'RELEASE')}"
)
_CHANGELOG = f"StoreChangelogReader ({see('changelogs.md#log-ends')})"
_WIPED = f"TaskCorruptedException, StateManagerUtil.closeStateManager ({see('start.md#wiped-tasks')})"

# Only outcomes that restore have the advice to restore from a dump: it saves time there, and changes nothing for
# others.
OUTCOMES: Final = {
    Outcome.OPENS: Texts(
        "The store opens unchanged", "Streams restores nothing.", (log.FROM_OFFSET,), _CHANGELOG, ("nothing",)
    ),
    Outcome.OPENS_EMPTY: Texts(
        "The store silently opens without all or some of its rows",
        "Its offset states that it is complete, so Streams restores nothing. This is the worst outcome: "
        "queries and joins give wrong answers, and no message is printed.",
        (log.FROM_OFFSET,),
        f"AbstractSegments.openExisting; OffsetCheckpoint ({see('start.md#going-down')})",
        # Afterwards nothing shows which rows are missing: the offset states that the store is complete.
        ("do not start the application", _FINDING),
    ),
    Outcome.RESTORES: Texts(
        "Streams restores the records between the offset and the end of the changelog",
        "This is the normal case.",
        (log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
        _CHANGELOG,
        (_DUMP,),
    ),
    Outcome.RESTORES_ALL: Texts(
        "Streams restores the whole changelog over the existing rows",
        "Keys that were deleted in that time may remain.",
        (log.FROM_START, log.RESTORES_FROM_START, log.RESTORED),
        _CHANGELOG,
        (_FINDING, _DUMP),
    ),
    Outcome.WIPED: Texts(
        "Streams deletes the directory of the task, then restores all its stores from the beginning",
        "Streams treats a whole task as corrupted, never a single store: it restores all of them because of one.",
        (log.NO_OFFSETS, log.CORRUPTED, log.REVIVED, log.WIPED, log.RESTORES_FROM_START),
        _WIPED,
        (_FINDING, _DUMP),
    ),
    Outcome.LOST: Texts(
        "Streams wipes the task, and the store has no changelog: its rows are lost",
        "No command restores them afterwards.",
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
        "Streams wipes the task, and the store may have no changelog: without one its rows are lost",
        "A store that was not closed cleanly may have no offset yet although it has a changelog.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "before the start, pass a source of the topics: --bootstrap-server, --dump or --offsets",
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', '--out', 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.FAILS: Texts(
        "The start fails, or a stream thread does: the client ends in ERROR",
        "It fails in the same way each time, until you remove the cause. check prints the exceptions, from "
        "the outermost on.",
        (log.STORE_NOT_OPENED, log.CHECKPOINT_NOT_LOADED, log.CHECKPOINT_NOT_MIGRATED, log.GLOBAL_FAILED),
        f"StateManagerUtil.registerStateStores ({see('start.md')})",
        (_FINDING,),
    ),
    Outcome.HANGS: Texts(
        "The client never leaves REBALANCING, and restores nothing",
        "With transactional stores, the first store that a task opens has status 1. Streams marks the "
        "stores opened before it as corrupted. There are none, so it wipes nothing and tries again without "
        "end. The order of the stores of a task is not on disk.",
        log.INVALID_STATE,
        f"TaskManager.closeDirtyAndRevive ({see('offsets.md#transactional-stores')})",
        (_FINDING,),
    ),
    Outcome.NOT_REACHED: Texts(
        "Another store of the task makes the start fail before this one is opened",
        "Its own outcome is unknown.",
        SILENT,
        "StateManagerUtil.registerStateStores: it opens no store after one that fails",
        ("check the store that fails",),
    ),
    Outcome.UNKNOWN: Texts(
        "Unknown: the application runs, the broker lacks the log, or kstate does not read all of the task",
        "While the application is running, the files are those of its last flush, and the outcome depends "
        "on how it closes the stores. Entries that kstate does not read (a link, a database that its "
        "RocksDB refuses) never count as missing.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close, ProcessorStateManager.checkpoint ({see('start.md#clean-or-not')})",
        ("check again after the application is stopped", "the findings name what kstate does not read"),
    ),
    Outcome.IGNORED: Texts(
        "The release has no such store, or no such task",
        "The directory remains until the cleaner deletes it.",
        SILENT,
        f"StateDirectory.cleanRemovedTasks ({see('layout.md#ages')})",
        ("if you want to keep it, move it out of the application directory",),
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
        "The query requires a running active task, but nothing runs in a directory",
        "In Streams, this means that the task is a standby here, or is still restoring.",
        rule="KafkaStreams.query with StateQueryRequest.requireActive",
    ),
    FailureReason.NOT_UP_TO_BOUND: Texts(
        "The store has not reached the bound",
        "Its Position, which records how far the store has read its input, is behind for at least one "
        "partition of the bound.",
        rule=f"StoreQueryUtils.isPermitted ({see('positions.md#bounds')})",
        do=("restore it, or let the application process more input",),
    ),
    FailureReason.NOT_PRESENT: Texts(
        "No task in this directory has the partition",
        "Another instance has it. In Streams it may also have moved during the query.",
        (log.MIGRATED,),
        rule="KafkaStreams.query",
    ),
    FailureReason.DOES_NOT_EXIST: Texts(
        "The store has fewer partitions",
        "kstate knows the number only from kstate.toml. Streams declares this reason, but no release returns it.",
        rule=f"FailureReason ({see('positions.md#who-answers-what')})",
    ),
    FailureReason.STORE_EXCEPTION: Texts(
        "The store could not be read",
        "It is damaged, open in a running application, or of an ambiguous kind. Rows that were printed "
        "before are correct.",
        rule=_RULE,
        do=(
            "to read the last flush of a running application: --last-flush",
            f"to see its kind: {command('ls', 'APP')}",
        ),
    ),
}

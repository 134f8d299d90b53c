"""States of runs, restorations and stores, outcomes that ``check`` predicts, and reasons of failed queries."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
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

_UNDO = f"to roll the run back: {command('undo', 'APP')}"
_CLEAN = f"to delete the backup and free its space: {command('clean', 'APP', option.OLDER_THAN, '7d')}"
_TAKEN_OVER = "run the command again. The next command that changes the directory completes or removes the run"
_WAIT = "wait, because the run is in progress"
_AFTER_ERROR = f"fix the cause, then run the command again with {option.AFTER_ERROR}"
_WHY = f"to see why the run failed: {command('status', 'APP')}"
_RUNS = f"kstate's change engine defines this state ({see('engine.md#run-states')})"
_LIKE = f"the state has the same meaning as in KafkaStreams.State (KIP-696; {see('restoring.md#states')})"

# CREATED has no line of a journal yet, so it is no RunState.
RUN_STATES: Final = {
    CREATED: Texts("The run's folder exists but is still empty", rule=_RUNS, do=(_TAKEN_OVER,)),
    RunState.STAGING.value: Texts(
        "kstate is building the new directory next to the old one",
        "APP is unchanged. If the process has exited, `kstate status` shows the run as interrupted.",
        rule=_RUNS,
        do=(_WAIT,),
    ),
    RunState.SWITCHING.value: Texts(
        "kstate was about to swap the old and the new directory",
        "APP is either the complete old directory or the complete new one. Marks in both trees show which one.",
        rule=_RUNS,
        do=(_WAIT, _TAKEN_OVER),
    ),
    RunState.KEPT.value: Texts(
        "The run is complete, and kstate keeps the old directory as the backup for undo",
        (
            "APP is the new directory and shares files with the backup. The backup takes up disk space as soon as "
            "Streams compacts these files."
        ),
        rule=_RUNS,
        do=(_UNDO, _CLEAN),
    ),
    RunState.UNDOING.value: Texts(
        "An undo of the run was about to swap the two directories back",
        "APP is either the complete old directory or the complete new one.",
        rule=_RUNS,
        do=(_WAIT, f"if the process has exited: {command('undo', 'APP')}"),
    ),
    RunState.UNDONE.value: Texts(
        "The run was rolled back, and APP is the old directory again",
        "kstate keeps the run's result until you delete it with `kstate clean`.",
        rule=_RUNS,
        do=(_CLEAN,),
    ),
    RunState.FAILED.value: Texts(
        "The run ended before it swapped the directories, so APP is unchanged",
        "kstate deleted the new files. `kstate status` shows why the run ended.",
        rule=_RUNS,
        do=(_WHY, "fix the cause and run the command again"),
    ),
    RunState.CLEANING.value: Texts(
        "kstate is deleting the run's backup",
        "You can no longer undo the run.",
        rule=_RUNS,
        do=(f"if the process has exited: {command('clean', 'APP')}",),
    ),
    RUN_INTERRUPTED: Texts(
        "The process ended before the run was complete",
        (
            "The process was killed, or the host lost power. APP is either the complete old directory or the complete "
            "new one. If the run was a restoration, its sorted files remain, and the next restoration uses them."
        ),
        rule=f"kstate's change engine defines this state ({see('engine.md#dies-here')})",
        do=(_TAKEN_OVER,),
    ),
    DAMAGED: Texts(
        "kstate cannot read the run's journal, so it does not delete the backup",
        (
            "The journal is missing, truncated or corrupt, is a copy, or was written by a newer version of kstate. "
            "The run's folder may be the only copy of a directory."
        ),
        rule=f"kstate's change engine defines this state ({see('engine.md#what-proves-what')})",
        do=(
            f"to see what is wrong with the journal: {command('status', 'APP')}",
            "save the files that you need, then move the run's folder elsewhere",
        ),
    ),
}

# In the order in which a restoration passes through them; interrupted is none of its own, but what status infers.
RESTORATION_STATES: Final = {
    RestoreState.CREATED.value: Texts(
        "kstate has planned the restoration, but has not started it", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.REBALANCING.value: Texts(
        "kstate is assigning tasks and parts of the dump to its workers", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.RESTORING.value: Texts(
        "At least one store is still incomplete",
        ("In Streams, only tasks have this state. KIP-728 proposes it for the client, but no release implements this."),
        (log.RESTORES_FROM_OFFSET, log.RESTORES_FROM_START, log.RESTORED),
        f"KIP-728 ({see('restoring.md#states')})",
        (f"to see the progress: {command('status', 'APP')}",),
    ),
    RestoreState.RUNNING.value: Texts(
        "Every store is complete and in place", "kstate still has to close the run.", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.PENDING_SHUTDOWN.value: Texts(
        "The restoration is closing, because it is complete or was stopped", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.NOT_RUNNING.value: Texts("The restoration has shut down cleanly", rule=_LIKE, do=("nothing",)),
    RestoreState.PENDING_ERROR.value: Texts(
        "A step failed, and kstate is closing Spark, databases and locks",
        (
            "The next state is ERROR. A restoration can enter this state from any other state, because closing "
            "can fail. A Streams client cannot."
        ),
        rule=_LIKE,
        do=(_WAIT, _WHY),
    ),
    RestoreState.ERROR.value: Texts(
        "The restoration has failed, and this state is final",
        (
            f"The next restoration or wipe requires {option.AFTER_ERROR} so that a cron job does not repeat the "
            "failure forever."
        ),
        rule=_LIKE,
        do=(_WHY, _AFTER_ERROR),
    ),
    INTERRUPTED: Texts(
        "The restoration's process ended before the restoration was complete",
        "The next restoration uses the sorted files of this one. After three interruptions in a row, it requires "
        f"{option.AFTER_ERROR}.",
        rule=f"kstate adds this state to those of KafkaStreams.State ({see('restoring.md#taken-up-again')})",
        do=("run the restoration again",),
    ),
}

# In the words of ``ls``; a store of a release up to 4.2 has no status at all.
STORE_STATUS: Final = {
    "open": Texts(
        "The store was not closed, because the application is running or was killed",
        (
            "Under exactly-once, 4.3 wipes the task when it starts, because the store may contain rows from an "
            "aborted transaction. If a global store has this status, every start fails."
        ),
        log.INVALID_STATE,
        f"AbstractColumnFamilyAccessor.open ({see('offsets.md#status')})",
        ((f"to predict how the application will start: {command('check', 'APP', option.FOR, 'RELEASE')}"),),
    ),
    "closed": Texts(
        "The store was closed cleanly",
        "The store's rows, offset and Position match.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close ({see('offsets.md#status')})",
        ("nothing",),
    ),
}


_FINDING = "read the finding that causes this outcome, and follow its hint"
_DUMP = (
    "to restore from a dump before you start the application: "
    f"{command('restore', 'APP', option.FROM_CHANGELOG, 'DUMP', option.FOR, 'RELEASE')}"
)
_CHANGELOG = f"StoreChangelogReader ({see('changelogs.md#log-ends')})"
_WIPED = f"TaskCorruptedException, StateManagerUtil.closeStateManager ({see('start.md#wiped-tasks')})"

# Only outcomes that restore have the advice to restore from a dump: it saves time there, and changes nothing for
# others.
OUTCOMES: Final = {
    Outcome.OPENS: Texts(
        "Streams opens the store unchanged", "It restores nothing.", (log.FROM_OFFSET,), _CHANGELOG, ("nothing",)
    ),
    Outcome.OPENS_EMPTY: Texts(
        "Streams silently opens the store without some or all of its rows",
        (
            "The store has the offset of a complete store, so Streams restores nothing. This is the worst outcome, "
            "because queries and joins return wrong results, and Streams logs nothing."
        ),
        (log.FROM_OFFSET,),
        f"AbstractSegments.openExisting; OffsetCheckpoint ({see('start.md#going-down')})",
        # Afterwards nothing shows which rows are missing: the offset states that the store is complete.
        ("do not start the application", _FINDING),
    ),
    Outcome.RESTORES: Texts(
        "Streams restores the records between the store's offset and the end of the changelog",
        "This is the normal case.",
        (log.FROM_OFFSET, log.RESTORES_FROM_OFFSET, log.RESTORED),
        _CHANGELOG,
        (_DUMP,),
    ),
    Outcome.RESTORES_ALL: Texts(
        "Streams restores the whole changelog over the existing rows",
        "Keys that have since been deleted may remain.",
        (log.FROM_START, log.RESTORES_FROM_START, log.RESTORED),
        _CHANGELOG,
        (_FINDING, _DUMP),
    ),
    Outcome.WIPED: Texts(
        "Streams deletes the task's directory and then restores all of the task's stores from the beginning",
        "If one store is corrupted, Streams treats the whole task as corrupted.",
        (log.NO_OFFSETS, log.CORRUPTED, log.REVIVED, log.WIPED, log.RESTORES_FROM_START),
        _WIPED,
        (_FINDING, _DUMP),
    ),
    Outcome.LOST: Texts(
        "Streams wipes the task. The store's rows are lost, because the store has no changelog",
        "Lost rows cannot be restored.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "do not start the application",
            # Before the start: afterwards there is nothing left to export.
            f"to keep its rows as Parquet files: {command('export', 'APP', 'STORE', option.OUT, 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.MAY_BE_LOST: Texts(
        "Streams wipes the task. If the store has no changelog, its rows are lost",
        "A store that was not closed cleanly may have a changelog but no offset yet.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            (
                f"before you start the application, run check with {option.BOOTSTRAP_SERVER}, {option.DUMP} or "
                f"{option.OFFSETS} to see which stores have a changelog"
            ),
            f"to keep its rows as Parquet files: {command('export', 'APP', 'STORE', option.OUT, 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.FAILS: Texts(
        "Startup or a stream thread fails, and the client ends in ERROR",
        (
            "Every start fails until you remove the cause. `kstate check` prints the exceptions, beginning with the "
            "outermost."
        ),
        (log.STORE_NOT_OPENED, log.CHECKPOINT_NOT_LOADED, log.CHECKPOINT_NOT_MIGRATED, log.GLOBAL_FAILED),
        f"StateManagerUtil.registerStateStores ({see('start.md')})",
        (_FINDING,),
    ),
    Outcome.HANGS: Texts(
        "The client stays in REBALANCING and restores nothing",
        (
            "The application uses transactional stores, and the first store that a task opens has the status open "
            "(1). Streams marks as corrupted only the stores that it opened before this one. In this case, it has "
            "opened none, so it wipes nothing and retries forever. The directory does not show in which order Streams "
            "opens the stores."
        ),
        log.INVALID_STATE,
        f"TaskManager.closeDirtyAndRevive ({see('offsets.md#transactional-stores')})",
        (_FINDING,),
    ),
    Outcome.NOT_REACHED: Texts(
        "Startup fails on another store in the task before Streams opens this one",
        "Therefore, kstate does not know what would happen to this store.",
        SILENT,
        "StateManagerUtil.registerStateStores opens no more stores after one has failed",
        ("look up the finding for the failing store",),
    ),
    Outcome.UNKNOWN: Texts(
        ("kstate cannot predict the outcome"),
        (
            "The application is running, the broker does not have the log, or kstate cannot read the whole task. "
            "While the application is running, its files show the state as of the last flush, and the outcome "
            "depends on how it closes its stores. kstate makes no prediction from entries that it cannot read, such "
            "as a link or a database that its RocksDB version cannot open."
        ),
        SILENT,
        f"AbstractColumnFamilyAccessor.close, ProcessorStateManager.checkpoint ({see('start.md#clean-or-not')})",
        (
            "stop the application, then run `kstate check` again",
            "read the findings. They name the entries that kstate could not read",
        ),
    ),
    Outcome.IGNORED: Texts(
        "The release does not use this store or task",
        "Its directory remains on disk until Streams' cleaner deletes it.",
        SILENT,
        f"StateDirectory.cleanRemovedTasks ({see('layout.md#ages')})",
        ("if you want to keep this directory, move it out of the application directory",),
    ),
}


_RULE = f"StoreQueryUtils, KIP-796 ({see('positions.md#who-answers-what')})"

# What to do about each is printed by ``query`` itself, which owns that text: only further advice is here.
FAILURES: Final = {
    FailureReason.UNKNOWN_QUERY_TYPE: Texts(
        "This kind of store does not support this kind of query",
        (
            "For example, a window store does not support key ranges, and a plain store has no timestamps. The "
            "message lists the queries that the store supports."
        ),
        rule=_RULE,
    ),
    FailureReason.NOT_ACTIVE: Texts(
        "The query requires a running active task, but the application is stopped",
        "Streams returns this reason if the task is a standby on this instance, or is still restoring.",
        rule="KafkaStreams.query with StateQueryRequest.requireActive",
    ),
    FailureReason.NOT_UP_TO_BOUND: Texts(
        "The store is behind the bound",
        (
            "The store's Position shows how far it has read its input. For at least one partition, the Position is "
            "below the bound."
        ),
        rule=f"StoreQueryUtils.isPermitted ({see('positions.md#bounds')})",
        do=("restore the store or let the application process more input",),
    ),
    FailureReason.NOT_PRESENT: Texts(
        "This directory has no task for the partition",
        "Another instance has the task. In Streams, the task may also have moved during the query.",
        (log.MIGRATED,),
        rule="KafkaStreams.query",
    ),
    FailureReason.DOES_NOT_EXIST: Texts(
        "The store has fewer partitions than the query requested",
        (
            "kstate takes the number of partitions only from kstate.toml. Streams defines this reason, but no release "
            "returns it."
        ),
        rule=f"FailureReason ({see('positions.md#who-answers-what')})",
    ),
    FailureReason.STORE_EXCEPTION: Texts(
        "kstate could not read the store",
        (
            "The store is damaged, a running application has it open, or its kind is ambiguous. The rows that "
            "kstate has printed are still correct."
        ),
        rule=_RULE,
        do=(
            f"to read the last flush of a running application, pass {option.LAST_FLUSH}",
            f"to see the store's kind: {command('ls', 'APP')}",
        ),
    ),
}

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

_UNDO = f"to roll it back: {command('undo', 'APP')}"
_CLEAN = f"to free the space of its backup: {command('clean', 'APP', option.OLDER_THAN, '7d')}"
_TAKEN_OVER = "run the command again. The next command that changes the directory completes or removes the run"
_WAIT = "do nothing, because the run is in progress"
_AFTER_ERROR = f"fix the cause, then run the command again with {option.AFTER_ERROR}"
_WHY = f"to see why it failed: {command('status', 'APP')}"
_RUNS = f"no rule of Streams: the change engine ({see('engine.md#run-states')})"
_LIKE = f"KafkaStreams.State, as of KIP-696 ({see('restoring.md#states')})"

# CREATED has no line of a journal yet, so it is no RunState.
RUN_STATES: Final = {
    CREATED: Texts("The folder of the run exists, but is still empty", rule=_RUNS, do=(_TAKEN_OVER,)),
    RunState.STAGING.value: Texts(
        "kstate is building the new directory next to the old one",
        "APP has not changed. If the process has ended, status shows interrupted.",
        rule=_RUNS,
        do=(_WAIT,),
    ),
    RunState.SWITCHING.value: Texts(
        "kstate was about to exchange the two directories",
        "APP is completely the old or completely the new one. Marks in both trees show which.",
        rule=_RUNS,
        do=(_WAIT, _TAKEN_OVER),
    ),
    RunState.KEPT.value: Texts(
        "The run is complete: APP is the new directory, and the old one is the backup for undo",
        ("The backup shares its files with the new directory. It uses disk space when Streams compacts these files."),
        rule=_RUNS,
        do=(_UNDO, _CLEAN),
    ),
    RunState.UNDOING.value: Texts(
        "kstate was about to exchange the two directories back",
        "APP is completely one of the two directories.",
        rule=_RUNS,
        do=(_WAIT, f"if its process died: {command('undo', 'APP')}"),
    ),
    RunState.UNDONE.value: Texts(
        "The run was rolled back: APP is the old directory again",
        "kstate keeps the result of the run until you delete it with `clean`.",
        rule=_RUNS,
        do=(_CLEAN,),
    ),
    RunState.FAILED.value: Texts(
        "The run ended before it exchanged the directories, so APP is unchanged",
        "kstate deleted the new files. status shows whether a signal ended the run, or its process died.",
        rule=_RUNS,
        do=(_WHY, "fix the cause, and run the command again"),
    ),
    RunState.CLEANING.value: Texts(
        "kstate is deleting the backup of the run",
        "kstate can no longer undo it.",
        rule=_RUNS,
        do=(f"if its process died: {command('clean', 'APP')}",),
    ),
    RUN_INTERRUPTED: Texts(
        "The process ended before the run was complete",
        (
            "The cause was a kill or a power failure. APP is completely the old or completely the new directory. "
            "The sorted files of a restoration remain, and the next restoration uses them."
        ),
        rule=f"no rule of Streams: the change engine ({see('engine.md#dies-here')})",
        do=(_TAKEN_OVER,),
    ),
    DAMAGED: Texts(
        "kstate cannot read the journal of the run, so it does not delete the backup",
        (
            "The journal is missing, truncated, corrupt, a copy, or from a newer version of kstate. The folder of "
            "the run may be the only copy of a directory."
        ),
        rule=f"no rule of Streams: the change engine ({see('engine.md#what-proves-what')})",
        do=(
            f"to see what is wrong with it: {command('status', 'APP')}",
            "save the files that you need, then move the folder of the run to another place",
        ),
    ),
}

# In the order in which a restoration passes through them; interrupted is none of its own, but what status infers.
RESTORATION_STATES: Final = {
    RestoreState.CREATED.value: Texts("The restoration is planned, but has not started", rule=_LIKE, do=(_WAIT,)),
    RestoreState.REBALANCING.value: Texts("kstate is assigning tasks and parts of the dump", rule=_LIKE, do=(_WAIT,)),
    RestoreState.RESTORING.value: Texts(
        "At least one store is not complete",
        ("Streams has this state only for tasks. KIP-728 proposes it for the client, but no release contains it."),
        (log.RESTORES_FROM_OFFSET, log.RESTORES_FROM_START, log.RESTORED),
        f"KIP-728 ({see('restoring.md#states')})",
        (f"to see its progress: {command('status', 'APP')}",),
    ),
    RestoreState.RUNNING.value: Texts(
        "Every store is complete and in its place", "Only the run itself is not closed yet.", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.PENDING_SHUTDOWN.value: Texts(
        "The restoration is closing, because it is complete or was stopped", rule=_LIKE, do=(_WAIT,)
    ),
    RestoreState.NOT_RUNNING.value: Texts("The restoration has shut down cleanly", rule=_LIKE, do=("nothing",)),
    RestoreState.PENDING_ERROR.value: Texts(
        "A step failed, and kstate is closing Spark, databases and locks",
        (
            "The next state is ERROR. A restoration can enter this state from every other state, because closing "
            "can fail. A client of Streams cannot."
        ),
        rule=_LIKE,
        do=(_WAIT, _WHY),
    ),
    RestoreState.ERROR.value: Texts(
        "The restoration has failed, and this state is final",
        (
            f"The next restoration and the next wipe require {option.AFTER_ERROR}, so that a cron job does not repeat "
            "the failure forever."
        ),
        rule=_LIKE,
        do=(_WHY, _AFTER_ERROR),
    ),
    INTERRUPTED: Texts(
        "The process of the restoration died",
        "The next restoration uses the sorted files. After three interruptions in a row, it requires "
        f"{option.AFTER_ERROR}.",
        rule=f"no state of Streams ({see('restoring.md#taken-up-again')})",
        do=("run the restoration again",),
    ),
}

# In the words of ``ls``; a store of a release up to 4.2 has no status at all.
STORE_STATUS: Final = {
    "open": Texts(
        "The store was not closed, because the application is running or was killed",
        (
            "Under exactly-once, 4.3 wipes the task when it starts, because the store may contain rows of an "
            "aborted transaction. For a global store, every start fails."
        ),
        log.INVALID_STATE,
        f"AbstractColumnFamilyAccessor.open ({see('offsets.md#status')})",
        ((f"to predict what happens when the application starts: {command('check', 'APP', option.FOR, 'RELEASE')}"),),
    ),
    "closed": Texts(
        "The store was closed cleanly",
        "Rows, offset and Position belong together.",
        SILENT,
        f"AbstractColumnFamilyAccessor.close ({see('offsets.md#status')})",
        ("nothing",),
    ),
}


_FINDING = "read the finding that causes this, and its hint"
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
            "According to its offset the store is complete, so Streams restores nothing. This is the worst "
            "outcome, because queries and joins give wrong results, and Streams prints no message."
        ),
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
        "Keys that were deleted in the meantime may remain.",
        (log.FROM_START, log.RESTORES_FROM_START, log.RESTORED),
        _CHANGELOG,
        (_FINDING, _DUMP),
    ),
    Outcome.WIPED: Texts(
        "Streams deletes the directory of the task, then restores all its stores from the beginning",
        "Streams treats a task as corrupted as a whole, so it restores all stores because of one.",
        (log.NO_OFFSETS, log.CORRUPTED, log.REVIVED, log.WIPED, log.RESTORES_FROM_START),
        _WIPED,
        (_FINDING, _DUMP),
    ),
    Outcome.LOST: Texts(
        "Streams wipes the task, and the rows of the store are lost, because it has no changelog",
        "You cannot restore them afterwards.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            "do not start the application",
            # Before the start: afterwards there is nothing left to export.
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', option.OUT, 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.MAY_BE_LOST: Texts(
        "Streams wipes the task, and the rows of the store are lost if it has no changelog",
        "A store that was not closed cleanly may have no offset yet, even if it has a changelog.",
        (log.CORRUPTED, log.REVIVED, log.WIPED, log.NOT_LOGGED),
        _WIPED,
        (
            (
                f"before you start the application, pass a source of the topics: {option.BOOTSTRAP_SERVER}, "
                f"{option.DUMP} or {option.OFFSETS}"
            ),
            f"to keep its rows as Parquet: {command('export', 'APP', 'STORE', option.OUT, 'DIR')}",
            _FINDING,
        ),
    ),
    Outcome.FAILS: Texts(
        "Startup or a stream thread fails, and the client ends in ERROR",
        (
            "It fails at every start until you remove the cause. check prints the exceptions, beginning with the "
            "outermost."
        ),
        (log.STORE_NOT_OPENED, log.CHECKPOINT_NOT_LOADED, log.CHECKPOINT_NOT_MIGRATED, log.GLOBAL_FAILED),
        f"StateManagerUtil.registerStateStores ({see('start.md')})",
        (_FINDING,),
    ),
    Outcome.HANGS: Texts(
        "The client stays in REBALANCING, and restores nothing",
        (
            "With transactional stores, the first store that a task opens has status 1. Streams marks the stores "
            "that it opened before as corrupted. There are none, so it wipes nothing and retries forever. The "
            "order of the stores of a task is not on disk."
        ),
        log.INVALID_STATE,
        f"TaskManager.closeDirtyAndRevive ({see('offsets.md#transactional-stores')})",
        (_FINDING,),
    ),
    Outcome.NOT_REACHED: Texts(
        "Startup fails at another store of the task, before Streams opens this one",
        "So the outcome of this store is unknown.",
        SILENT,
        "StateManagerUtil.registerStateStores: it opens no store after one that fails",
        ("check the store that fails",),
    ),
    Outcome.UNKNOWN: Texts(
        ("Unknown: the application is running, the broker lacks the log, or kstate cannot read all of the task"),
        (
            "While the application is running, its files are those of the last flush, and the outcome depends on "
            "how it closes the stores. Entries that kstate does not read, such as a link or a database that its "
            "RocksDB cannot open, never count as missing."
        ),
        SILENT,
        f"AbstractColumnFamilyAccessor.close, ProcessorStateManager.checkpoint ({see('start.md#clean-or-not')})",
        (
            "check again after you have stopped the application",
            "read the findings, which name the entries that kstate does not read",
        ),
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
        "This kind of store does not support this kind of query",
        (
            "For example, a window store has no range of keys, and a plain store has no timestamps. The message "
            "lists the queries that the store supports."
        ),
        rule=_RULE,
    ),
    FailureReason.NOT_ACTIVE: Texts(
        "The query requires a running active task, but the application is stopped",
        "In Streams, this means that the task is a standby here, or is still restoring.",
        rule="KafkaStreams.query with StateQueryRequest.requireActive",
    ),
    FailureReason.NOT_UP_TO_BOUND: Texts(
        "The store is behind the bound",
        (
            "Its Position, which records how far the store has read its input, is lower than the bound for at "
            "least one partition."
        ),
        rule=f"StoreQueryUtils.isPermitted ({see('positions.md#bounds')})",
        do=("restore it, or let the application process more input",),
    ),
    FailureReason.NOT_PRESENT: Texts(
        "None of the tasks in this directory has the partition",
        "Another instance has the task. In Streams, it may also have moved during the query.",
        (log.MIGRATED,),
        rule="KafkaStreams.query",
    ),
    FailureReason.DOES_NOT_EXIST: Texts(
        "The store has fewer partitions",
        (
            "kstate knows the number of partitions only from kstate.toml. Streams declares this reason, but no "
            "release returns it."
        ),
        rule=f"FailureReason ({see('positions.md#who-answers-what')})",
    ),
    FailureReason.STORE_EXCEPTION: Texts(
        "kstate could not read the store",
        (
            "The store is damaged, open in a running application, or of an ambiguous kind. The rows that kstate "
            "has printed are correct."
        ),
        rule=_RULE,
        do=(
            f"to read the last flush of a running application: {option.LAST_FLUSH}",
            f"to see its kind: {command('ls', 'APP')}",
        ),
    ),
}

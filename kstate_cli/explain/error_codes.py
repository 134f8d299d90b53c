"""Exit codes, and codes of errors: ``code`` of the line ``error`` with ``-o json``, refusals of ``rehome`` included."""

from __future__ import annotations

import signal
from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.dump_reader.errors import DumpError, DumpRot
from kstate_cli.errors import (
    DATABASE_CODE,
    DEFECT_CODE,
    EXIT_OK,
    EXIT_WARNINGS,
    SYSTEM_CODE,
    ConditionNotMet,
    Interrupted,
    InUse,
    KstateError,
    OutputLost,
    Refused,
    RunFailed,
    RunHalfway,
    UsageError,
)
from kstate_cli.explain.model import Texts
from kstate_cli.host import STORES_STAY, HostError
from kstate_cli.query.queries import QueryFailedError
from kstate_cli.rehome.model import WhyRefused
from kstate_cli.rows.errors import SerdeError, StoreUnreadable, UnknownStateStoreError, look_closer
from kstate_cli.streams_log import OTHER_PARTITIONS
from kstate_cli.texts import command

_STATUS = f"to see what the run did: {command('status', 'APP')}"
_MESSAGE = "the message contains what failed, where, and what to do next"

# By the attribute of the class: a code and its text cannot part.
ERRORS: Final = {
    UsageError.code: Texts("The command line is invalid (exit 2)", "Nothing was changed.", do=(_MESSAGE,)),
    UnknownStateStoreError.code: Texts(
        "No task here has a store of that name (exit 2)",
        "Streams reports the same with UnknownStateStoreException.",
        do=(f"to list the stores: {command('ls', 'APP')}",),
    ),
    ConditionNotMet.code: Texts(
        "A check has a negative result (exit 3)", "The findings are printed before the error.", do=(_MESSAGE,)
    ),
    QueryFailedError.code: Texts(
        "A partition did not answer the query (exit 3)",
        "Rows of the other partitions were printed. Each failure has a reason, such as NOT_UP_TO_BOUND.",
        do=("check the reason of each failure",),
    ),
    Refused.code: Texts(
        "Refused: the state is unknown, or the operation is unsafe (exit 4)",
        "Nothing was changed.",
        do=(_MESSAGE,),
    ),
    DumpError.code: Texts(
        "A dump contradicts its manifest, or cannot be read (exit 4)",
        "Files are missing, a column has another type, or its manifest contradicts its records.",
        do=(str(DumpError.usual_hint),),
    ),
    DumpRot.code: Texts(
        "A file of a dump is damaged: bytes have changed since it was written (exit 4)",
        "Its SHA-256 differs from the manifest, or kstate cannot decode a page of it. Nothing was changed.",
        do=(
            "copy the file again from another copy of the dump",
            "or read the topics again into a new full dump, while the broker has their records: "
            + command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "NEW"),
            f"to see which other files are damaged: {command('verify-dump', 'DUMP')}",
        ),
    ),
    SerdeError.code: Texts(
        "The serde cannot read the bytes, or would not write this key (exit 4)",
        "Readable rows were printed.",
        do=("pass another serde: --key-serde, --value-serde",),
    ),
    InUse.code: Texts(
        "Another process holds the directory (exit 5)",
        "The application or another command of kstate is running. If the process is known, the message names it.",
        (log.LOCKED, log.TASK_LOCKED),
        do=("stop the application, or pass --wait SECONDS",),
    ),
    RunFailed.code: Texts(
        "A run failed before its switch (exit 6)", "The application directory is unchanged.", do=(_MESSAGE, _STATUS)
    ),
    HostError.code: Texts(
        "This host lacks descriptors, threads, memory or disk space (exit 6)",
        "This does not mean that the stores are damaged: do not wipe any of them because of it.",
        do=("raise the limit that the message names, or free the resource, then run the command again", STORES_STAY),
    ),
    # These three stand for exceptions of Python and of libraries, which are no classes of kstate.
    SYSTEM_CODE: Texts(
        "The operating system returned an error (exit 6)",
        "Examples: a missing file, a disk that does not answer, missing rights.",
        do=(_MESSAGE,),
    ),
    DATABASE_CODE: Texts("RocksDB returned an error (exit 6)", do=(look_closer("APP"),)),
    StoreUnreadable.code: Texts(
        "A store cannot be read (exit 6)",
        "It is damaged, open in a running application, or of an ambiguous kind.",
        do=(look_closer("APP"), "to read the last flush of a running application: --last-flush"),
    ),
    OutputLost.code: Texts(
        "Not all results could be written (exit 6)",
        "The printed output is incomplete.",
        do=("free disk space for the output, then run the command again",),
    ),
    KstateError.code: Texts("A failure without a specific code (exit 6)", do=(_MESSAGE,)),
    DEFECT_CODE: Texts(
        "A defect of kstate (exit 6)",
        "kstate ended with an unexpected error. A change is complete or has no effect even then.",
        do=("report it: run the command again with KSTATE_LOG=FILE, and attach the file", _STATUS),
    ),
    RunHalfway.code: Texts(
        "A run failed after its switch (exit 7)",
        "APP is completely the new directory, but the end of the run is missing.",
        do=("run the command again", f"or roll it back: {command('undo', 'APP')}", _STATUS),
    ),
    Interrupted.code: Texts(
        "A signal ended the command (exit 128 plus the number of the signal)",
        "kstate removes all staged files that it has not switched to.",
        do=("run the command again", _STATUS),
    ),
}


# The same advice for several refusals: only the old text distinguishes their cases.
_OLD: Final = "pass the text of the topology that ran here last too: --from OLD.txt"

REHOME: Final = {
    WhyRefused.OTHER_APPLICATION: Texts(
        "None of the stores here, or few of them, are in the new topology (exit 4)",
        "The text belongs to another application, or nearly all stores were renamed.",
        do=("pass the text of this application", _OLD),
    ),
    WhyRefused.OLD_DOES_NOT_FIT: Texts(
        "The old topology has stores in other tasks than the directory (exit 4)",
        "With topology.optimization the numbers depend on the properties passed to build.",
        do=("pass the text of the topology that ran here last, from build(props)",),
    ),
    WhyRefused.GLOBAL: Texts(
        "A store is global only in the topology or only in the directory (exit 4)",
        "A global store has no partitions, and Streams restores it from its whole topic: its rows do "
        "not fit a store of a task.",
        do=("wipe that store: Streams recreates it",),
    ),
    WhyRefused.TWO_COPIES: Texts(
        "Two tasks of one partition have the same store (exit 4)",
        "The new topology was started here once, and created stores in addition to the old ones.",
        do=(_OLD,),
    ),
    WhyRefused.HALF_A_TASK: Texts(
        "Sub-topologies that are merged are on different hosts (exit 4)",
        "Each host would have half a task, and under exactly-once Streams wipes a task that lacks the "
        "offset of a store.",
        do=(
            "complete it from a dump, in the same run and on every host: --from-changelog DUMP --for RELEASE",
            "or move the directories of one partition to one host, while the application is stopped on both hosts",
        ),
    ),
    WhyRefused.GENERATED: Texts(
        "A name that the DSL generated contains the number of the operator (exit 4)",
        "Another number means another store and another changelog, and the same name may belong to another "
        "operator. Such a store moves only if both texts have the same sources and processors for it.",
        do=(_OLD, "or pin the old name in the code, with Materialized.as"),
    ),
    WhyRefused.NUMBER_TAKEN: Texts(
        "The directory has tasks of the new number of a sub-topology (exit 4)",
        "Numbers alone do not distinguish a merge from the replacement of a removed sub-topology.",
        do=("map those tasks with another --map, or pass texts: --topology, --from",),
    ),
    WhyRefused.KIND_UNKNOWN: Texts(
        "A store is new, and its kind is unknown (exit 4)",
        "From 4.3 on, an offset states that an empty store is read from the beginning. Without it, "
        "exactly-once Streams wipes the task. Its place, and whether it exists at all, depend on the kind.",
        do=("specify the kind in kstate.toml: --spec", _OLD, "or, with at-least-once: --guarantee at_least_once"),
    ),
    # Both ways lose something: the restoration its time, the other guarantee its safety. The user chooses.
    WhyRefused.UNCLEAN: Texts(
        "Stores that are to move had an unclean shutdown (exit 4)",
        "Under exactly-once they may contain uncommitted rows.",
        do=(
            "pass --wipe-unclean to remove these stores, so that only they are restored",
            "or --guarantee at_least_once",
        ),
    ),
    WhyRefused.FOREIGN: Texts(
        "A task that loses stores contains a file that Streams did not create (exit 4)",
        "kstate cannot determine the task of this file.",
        do=("move it out of the application directory",),
    ),
    WhyRefused.MEMBERS: Texts(
        "The group of the application has members (exit 4)",
        "An instance is running, or was stopped less than session.timeout.ms ago: Streams does not leave its group.",
        do=("stop all instances", "and wait until the sessions of stopped instances end: --wait 60"),
    ),
    WhyRefused.UNREAD: Texts(
        "The new topology does not read some topics that have unread records (exit 4)",
        "Renaming a repartition topic creates another topic: no instance ever reads the rest of the old one.",
        do=(
            "start the old topology, let it process all its input, and stop it",
            "if these records may be lost, omit --bootstrap-server",
        ),
    ),
    WhyRefused.PARTITIONS: Texts(
        "The changelogs have other numbers of partitions than their future sub-topologies have tasks (exit 4)",
        "Streams creates a task for each partition of the largest source topic, and ends at the start if "
        "an existing changelog has another number. If a table is restored from its source topic, the "
        "application never begins to run.",
        log=(OTHER_PARTITIONS,),
        do=("keep these sub-topologies apart", "or repartition one of their inputs"),
    ),
    WhyRefused.OTHER_CLUSTER: Texts(
        "The broker has none of the changelogs of the directory (exit 4)",
        "It is another cluster, or this user may not describe those topics.",
        do=("pass the cluster of this application, and a user who may describe its topics",),
    ),
}


_STATUS = f"to see what the run did: {command('status', 'APP')}"
# True for every ended command: the journal shows the next one what to finish or delete.
_AGAIN = "run the command again: it continues the interrupted run, or deletes its files"
_SIGNALLED = (
    "At the first signal kstate ends the command in order. Before the switch it deletes the staged "
    "files, and APP is unchanged. After the switch the message reports the state."
)


def _of_signal(number: signal.Signals) -> str:
    return str(128 + number)


# By the exit code of the class, or of the signal, in ascending order.
EXITS: Final = {
    str(EXIT_OK): Texts(
        "Done, or there was nothing to do",
        "For check, diff, verify, and inspect-position with a bound: the result is positive.",
        do=("nothing",),
    ),
    str(EXIT_WARNINGS): Texts(
        "Done, with warnings",
        "The work is complete, but with something to know: stores that were skipped, headers that were "
        "dropped, an unclean shutdown. For a command that reads: rows may be silently missing.",
        do=("read the warnings. If you know them, pass --warnings-ok to exit with 0",),
    ),
    str(UsageError.exit_code): Texts(
        "The command line is invalid",
        "An option, a file or a store does not exist, or the directory does not belong to an application. "
        "Nothing was changed.",
        do=("the message names the mistake, and --help of the command lists every option",),
    ),
    str(ConditionNotMet.exit_code): Texts(
        "A check has a negative result",
        "The command is complete. check reports a finding, diff a difference, verify damage, ls an entry "
        "that Streams did not leave, or a store has not reached the bound. Nothing was changed.",
        do=("check the findings: each has a code, which this command explains",),
    ),
    str(Refused.exit_code): Texts(
        "Refused: the state is unknown, or the operation is unsafe",
        "Unknown state is never changed, and kstate does not guess. Nothing was changed. For a command that reads: "
        "kstate could not judge some of the state, and the output lists it.",
        do=("the message names the obstacle, and how to remove it",),
    ),
    str(InUse.exit_code): Texts(
        "Another process holds the directory",
        "The application or another command of kstate is running. A client of Streams holds the lock of "
        "APP/.lock from its constructor to its close. If you start one while kstate changes the directory, "
        "it prints the messages below.",
        (log.LOCKED, log.TASK_LOCKED),
        do=("stop the application, or pass --wait SECONDS",),
    ),
    str(RunFailed.exit_code): Texts(
        "Failed, and the application directory is unchanged",
        "A disk that is full or broken, a store that cannot be read, an error of Spark, or a result that could not be "
        "written.",
        do=("fix the cause that the message names, then run the command again", _STATUS),
    ),
    str(RunHalfway.exit_code): Texts(
        "Failed midway: the application directory was changed, but a later step failed",
        "APP is completely the new directory. The end is missing: a sync, a journal line, the summary. For "
        "clean: part of the backup is deleted.",
        do=(
            _AGAIN,
            f"or, except after clean, roll it back: {command('undo', 'APP')}",
            _STATUS,
        ),
    ),
    _of_signal(signal.SIGHUP): Texts("Ended by signal 1 (SIGHUP): the terminal was closed", _SIGNALLED, do=(_AGAIN,)),
    _of_signal(signal.SIGINT): Texts("Ended by signal 2 (SIGINT): Ctrl-C", _SIGNALLED, do=(_AGAIN,)),
    # No handler runs at SIGKILL: the shell or the container reports the code, and not kstate.
    "137": Texts(
        "Ended by signal 9 (SIGKILL): killed, often because memory was short",
        "kstate could not end in order. The directory is nevertheless completely the old or completely the new one.",
        do=("give the container more memory, or pass fewer --workers", _AGAIN, _STATUS),
    ),
    _of_signal(signal.SIGPIPE): Texts(
        "The reader of the output has ended, as with | head",
        "The printed output is correct, but incomplete.",
        do=("if that was intended, do nothing",),
    ),
    _of_signal(signal.SIGTERM): Texts("Ended by signal 15 (SIGTERM): it was stopped", _SIGNALLED, do=(_AGAIN,)),
}

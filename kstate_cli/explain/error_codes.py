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

_STATUS = f"what the run did: {command('status', 'APP')}"
_MESSAGE = "the message contains what failed, where, and what to do next"

# By the attribute of the class: a code and its text cannot part.
ERRORS: Final = {
    UsageError.code: Texts("The command line makes no sense (exit 2)", "Nothing was touched.", do=(_MESSAGE,)),
    UnknownStateStoreError.code: Texts(
        "No task here has a store of that name (exit 2)",
        "Streams reports the same, with UnknownStateStoreException.",
        do=(f"which stores there are: {command('ls', 'APP')}",),
    ),
    ConditionNotMet.code: Texts(
        "A question was answered with no (exit 3)", "The findings stand before the error.", do=(_MESSAGE,)
    ),
    QueryFailedError.code: Texts(
        "A partition did not answer the query (exit 3)",
        "Rows of the other partitions were printed. Each failure has a reason, such as NOT_UP_TO_BOUND.",
        do=("look at the reason of each failure",),
    ),
    Refused.code: Texts("Not understood, or not safe (exit 4)", "Nothing was touched.", do=(_MESSAGE,)),
    DumpError.code: Texts(
        "A dump contradicts its manifest, or cannot be read (exit 4)",
        "Files are missing, a column has another type, or its manifest and its records do not agree.",
        do=(str(DumpError.usual_hint),),
    ),
    DumpRot.code: Texts(
        "A file of a dump is damaged: bytes have changed since it was written (exit 4)",
        "Its SHA-256 is not that of the manifest, or a page of it cannot be decoded. Nothing was touched.",
        do=(
            "copy the file again from another copy of the dump",
            "or read the topics again, while the broker has their records, into a new full dump: "
            + command("dump", "--bootstrap-server", "HOST:PORT", "--app", "ID", "--out", "NEW"),
            f"which other files are damaged: {command('verify-dump', 'DUMP')}",
        ),
    ),
    SerdeError.code: Texts(
        "Bytes are not what the serde reads, or a key is not what it writes (exit 4)",
        "Rows that could be read were printed.",
        do=("name another serde: --key-serde, --value-serde",),
    ),
    InUse.code: Texts(
        "Another process holds the directory (exit 5)",
        "The application runs, or another command of kstate. The message names the process where that can be known.",
        (log.LOCKED, log.TASK_LOCKED),
        do=("stop the application, or give the command --wait SECONDS",),
    ),
    RunFailed.code: Texts(
        "A run failed before its switch (exit 6)", "The application directory is unchanged.", do=(_MESSAGE, _STATUS)
    ),
    HostError.code: Texts(
        "This host is short of descriptors, threads, memory or disk space (exit 6)",
        "This means nothing for the stores: do not wipe anything because of it.",
        do=("raise the limit that the message names, or free the space, and run the command again", STORES_STAY),
    ),
    # These three stand for exceptions of Python and of libraries, which are no classes of kstate.
    SYSTEM_CODE: Texts(
        "The system has answered with an error (exit 6)",
        "A missing file, a disk that does not answer, missing rights.",
        do=(_MESSAGE,),
    ),
    DATABASE_CODE: Texts("RocksDB has answered with an error (exit 6)", do=(look_closer("APP"),)),
    StoreUnreadable.code: Texts(
        "A store cannot be read (exit 6)",
        "It is damaged, open in a running application, or of a kind that its bytes leave open.",
        do=(look_closer("APP"), "to read the last flush of a running application: --last-flush"),
    ),
    OutputLost.code: Texts(
        "Results could not be written in full (exit 6)",
        "What was printed is not all.",
        do=("free disk space for the output, and run the command again",),
    ),
    KstateError.code: Texts("Something failed for which there is no other code (exit 6)", do=(_MESSAGE,)),
    DEFECT_CODE: Texts(
        "A defect of kstate (exit 6)",
        "It ended with an unexpected error. A change is all or nothing then too.",
        do=("report it: run the command again with KSTATE_LOG=FILE, and attach the file", _STATUS),
    ),
    RunHalfway.code: Texts(
        "A run failed after its switch (exit 7)",
        "APP is wholly the new directory; the end of the run is missing.",
        do=("run the command again", f"or roll it back: {command('undo', 'APP')}", _STATUS),
    ),
    Interrupted.code: Texts(
        "A signal ended the command (exit 128 and the signal's number)",
        "What had not been switched is swept away.",
        do=("run the command again", _STATUS),
    ),
}


# The same advice for several refusals: only the old text distinguishes their cases.
_OLD: Final = "name the text of the topology that ran here last too: --from OLD.txt"

REHOME: Final = {
    WhyRefused.OTHER_APPLICATION: Texts(
        "None of the stores here, or few of them, are in the new topology (exit 4)",
        "The text is that of another application, or nearly everything was renamed.",
        do=("name the text of this application", _OLD),
    ),
    WhyRefused.OLD_DOES_NOT_FIT: Texts(
        "Stores are in other tasks than the old topology has them in (exit 4)",
        "With topology.optimization the numbers depend on the properties that are given to build.",
        do=("name the text of the topology that ran here last, of build(props)",),
    ),
    WhyRefused.GLOBAL: Texts(
        "A store is global in the topology and not in the directory, or the other way round (exit 4)",
        "A global store has its topic for a changelog, and no partitions: its rows are others.",
        do=("wipe that store: Streams recreates it",),
    ),
    WhyRefused.TWO_COPIES: Texts(
        "Two tasks of one partition have the same store (exit 4)",
        "The new topology was started here once, and made stores of its own beside those of before.",
        do=(_OLD,),
    ),
    WhyRefused.HALF_A_TASK: Texts(
        "Sub-topologies that are merged are on different hosts (exit 4)",
        "Each host would get half a task, and under exactly-once Streams wipes what lacks the offset of a store.",
        do=(
            "complete it from a dump, in the same run and on every host: --from-changelog DUMP --for RELEASE",
            "or bring the directories of one partition together on one host, with the application stopped on both",
        ),
    ),
    WhyRefused.GENERATED: Texts(
        "A name that the DSL has generated carries the operator's number (exit 4)",
        "Another number is another store and another changelog, and the same name may be another operator. Such a "
        "store moves only where both texts have the same sources and processors for it.",
        do=(_OLD, "or pin the name of before in the code, by Materialized.as"),
    ),
    WhyRefused.NUMBER_TAKEN: Texts(
        "The directory has tasks of the new number of a sub-topology (exit 4)",
        "Numbers alone do not distinguish a merge from the replacement of a removed sub-topology.",
        do=("map those by another --map, or pass texts: --topology, --from",),
    ),
    WhyRefused.KIND_UNKNOWN: Texts(
        "A store is new, and nothing tells its kind (exit 4)",
        "From 4.3 on an empty store states that it is read from the beginning. Without one, exactly-once Streams wipes "
        "the task. Its place, and whether it exists at all, depend on the kind.",
        do=("state the kind in a kstate.toml: --spec", _OLD, "or, with at-least-once: --guarantee at_least_once"),
    ),
    # Both ways lose something: the restoration its time, the other guarantee its safety. The user chooses.
    WhyRefused.UNCLEAN: Texts(
        "Stores that are to move were not left clean (exit 4)",
        "Under exactly-once they may contain uncommitted rows.",
        do=("leave them out, and they alone are restored: --wipe-unclean", "or --guarantee at_least_once"),
    ),
    WhyRefused.FOREIGN: Texts(
        "A task that stores go from holds what is not Streams' (exit 4)",
        "kstate does not know the task that it belongs to.",
        do=("move it out of the application directory",),
    ),
    WhyRefused.MEMBERS: Texts(
        "The group of the application has members (exit 4)",
        "An instance runs, or was stopped less than session.timeout.ms ago: Streams does not leave its group.",
        do=("stop all instances", "and wait for the sessions of those that are: --wait 60"),
    ),
    WhyRefused.UNREAD: Texts(
        "The new topology does not read topics that have records which were not read yet (exit 4)",
        "A repartition topic of another name is another topic: no instance ever reads the rest of the old one.",
        do=(
            "start the old topology, let it come to the end of its input, and stop it",
            "where these records may be lost, leave out --bootstrap-server",
        ),
    ),
    WhyRefused.PARTITIONS: Texts(
        "Partitions of changelogs do not go with the tasks that their sub-topology will have (exit 4)",
        "Streams makes a task for each partition of the largest source topic, and ends at the start where a changelog "
        "that is there has another number. A table that is restored from its source topic keeps the application from "
        "running for ever.",
        log=(OTHER_PARTITIONS,),
        do=("keep these sub-topologies apart", "or repartition one of their inputs"),
    ),
    WhyRefused.OTHER_CLUSTER: Texts(
        "The broker has none of the changelogs of the directory (exit 4)",
        "It is another cluster, or this user may not describe those topics.",
        do=("name the cluster of this application, and a user who may describe its topics",),
    ),
}


_STATUS = f"what the run did: {command('status', 'APP')}"
# True for every ended command: the journal shows the next one what to finish or delete.
_AGAIN = "run the command again: it continues the interrupted run, or deletes its files"
_SIGNALLED = (
    "A first signal ends a command in order. Before the switch kstate deletes the staged files, and APP is unchanged. "
    "After the switch the message reports the state."
)


def _of_signal(number: signal.Signals) -> str:
    return str(128 + number)


# By the exit code of the class, or of the signal, in ascending order.
EXITS: Final = {
    str(EXIT_OK): Texts(
        "Done, or there was nothing to do",
        "Of a command that asks (check, diff, verify, inspect-position with a bound): the answer is yes.",
        do=("nothing",),
    ),
    str(EXIT_WARNINGS): Texts(
        "Done, with warnings",
        "The work is complete. Something about it should be known: stores that were left, headers that were dropped, "
        "an unclean shutdown. For a command that reads: rows may be silently missing.",
        do=("read the warnings; --warnings-ok makes it 0 where they are known",),
    ),
    str(UsageError.exit_code): Texts(
        "The command line makes no sense",
        "An option, a file or a store that does not exist, or a directory that is no application's. Nothing was "
        "touched.",
        do=("the message contains the mistake; every option is in --help of the command",),
    ),
    str(ConditionNotMet.exit_code): Texts(
        "A question was answered with no",
        "The command came to its end. check has found something, diff a difference, verify damage; ls, what is not as "
        "Streams leaves it; or a store is not up to the bound. Nothing was touched.",
        do=("look at the findings: each has a code, which this command explains",),
    ),
    str(Refused.exit_code): Texts(
        "Refused: not understood, or not safe",
        "What kstate does not know it neither changes nor guesses. Nothing was touched. Of a command that reads: "
        "kstate could not judge some of it, and the output lists it.",
        do=("the message names what is in the way, and what to do about it",),
    ),
    str(InUse.exit_code): Texts(
        "Another process holds the directory",
        "The application runs, or another command of kstate. A client of Streams holds the lock of APP/.lock from its "
        "constructor to its close; one that is started while kstate changes the directory says what stands below.",
        (log.LOCKED, log.TASK_LOCKED),
        do=("stop the application, or give the command --wait SECONDS",),
    ),
    str(RunFailed.exit_code): Texts(
        "Failed, and the application directory is unchanged",
        "A disk that is full or broken, a store that cannot be read, an error of Spark, or a result that could not be "
        "written.",
        do=("fix what the message names, and run the command again", _STATUS),
    ),
    str(RunHalfway.exit_code): Texts(
        "Failed midway: the application directory was changed, and something after that failed",
        "APP is wholly the new directory. What is missing is the end: a sync, a journal line, the summary. Of clean: "
        "part of the backup is deleted.",
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
        "Ended by signal 9 (SIGKILL): killed, often for want of memory",
        "Nothing could be done in order. The directory is wholly the old or wholly the new one all the same.",
        do=("give the container more memory, or the command fewer --workers", _AGAIN, _STATUS),
    ),
    _of_signal(signal.SIGPIPE): Texts(
        "The reader of the output has ended, as with | head",
        "What was printed is right, and not all.",
        do=("nothing, where that was meant",),
    ),
    _of_signal(signal.SIGTERM): Texts("Ended by signal 15 (SIGTERM): it was stopped", _SIGNALLED, do=(_AGAIN,)),
}

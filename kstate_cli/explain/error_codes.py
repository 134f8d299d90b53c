"""Exit codes, and codes of errors: ``code`` of the line ``error`` with ``-o json``, refusals of ``rehome`` included."""

from __future__ import annotations

import signal
from typing import Final

from kstate_cli import option
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
_MESSAGE = "read the message, which states what failed, where, and what to do next"

# By the attribute of the class: a code and its text cannot part.
ERRORS: Final = {
    UsageError.code: Texts("The command line is invalid (exit 2)", "kstate changed nothing.", do=(_MESSAGE,)),
    UnknownStateStoreError.code: Texts(
        "No task in this directory has a store with that name (exit 2)",
        "Streams throws an UnknownStateStoreException in this case.",
        do=(f"to list the stores: {command('ls', 'APP')}",),
    ),
    ConditionNotMet.code: Texts(
        "The command succeeded, but its result is negative (exit 3)",
        "kstate printed the findings before the error.",
        do=(_MESSAGE,),
    ),
    QueryFailedError.code: Texts(
        "A partition did not answer the query (exit 3)",
        "kstate printed the other partitions' rows. For each failure, it printed a reason, such as NOT_UP_TO_BOUND.",
        do=(f"read the explanation of each reason: {command('explain', 'NOT_UP_TO_BOUND')}",),
    ),
    Refused.code: Texts(
        "kstate refused to run, because it would be unsafe or because the state is unknown (exit 4)",
        "kstate changed nothing.",
        do=(_MESSAGE,),
    ),
    DumpError.code: Texts(
        "The dump contradicts its manifest, or kstate cannot read the dump (exit 4)",
        "For example, files are missing, a column has the wrong type, or the manifest does not match the records.",
        do=(str(DumpError.usual_hint),),
    ),
    DumpRot.code: Texts(
        "A file in the dump is damaged: its bytes have changed since it was written (exit 4)",
        "The file's SHA-256 differs from the manifest, or kstate cannot decode a page of the file. kstate changed "
        "nothing.",
        do=(
            "copy this file from another copy of the dump",
            "or create a new full dump, while the broker still has the records: "
            + command("dump", option.BOOTSTRAP_SERVER, "HOST:PORT", option.APP, "ID", option.OUT, "NEW"),
            f"to see which other files are damaged: {command('verify-dump', 'DUMP')}",
        ),
    ),
    SerdeError.code: Texts(
        "The serde cannot decode the bytes, or cannot encode this key (exit 4)",
        "kstate printed the rows that it could decode.",
        do=(f"pass another serde with {option.KEY_SERDE} or {option.VALUE_SERDE}",),
    ),
    InUse.code: Texts(
        "Another process is using the directory (exit 5)",
        "The application or another kstate command is running. The message names the process if kstate can "
        "determine it.",
        (log.LOCKED, log.TASK_LOCKED),
        do=(f"stop the application or pass {option.WAIT} SECONDS",),
    ),
    RunFailed.code: Texts(
        "A run failed before it swapped the directories (exit 6)",
        "The application directory is unchanged.",
        do=(_MESSAGE, _STATUS),
    ),
    HostError.code: Texts(
        "This host ran out of file descriptors, threads, memory or disk space (exit 6)",
        "The stores are probably intact, so do not wipe them because of this error.",
        do=("raise the limit named in the message, or free the resource. Then run the command again", STORES_STAY),
    ),
    # These three stand for exceptions of Python and of libraries, which are no classes of kstate.
    SYSTEM_CODE: Texts(
        "The operating system reported an error (exit 6)",
        (
            "For example, a file does not exist, the disk does not respond, or this user does not have a required "
            "permission."
        ),
        do=(_MESSAGE,),
    ),
    DATABASE_CODE: Texts("RocksDB reported an error (exit 6)", do=(look_closer("APP"),)),
    StoreUnreadable.code: Texts(
        "kstate cannot read a store (exit 6)",
        "The store is damaged, a running application has it open, or its kind is ambiguous.",
        do=(look_closer("APP"), f"to read the last flush of a running application, pass {option.LAST_FLUSH}"),
    ),
    OutputLost.code: Texts(
        "kstate could not write all results (exit 6)",
        "The output is incomplete.",
        do=("free disk space for the output, then run the command again",),
    ),
    KstateError.code: Texts("The command failed for a reason without a specific code (exit 6)", do=(_MESSAGE,)),
    DEFECT_CODE: Texts(
        "kstate has a bug (exit 6)",
        "kstate failed with an unexpected error. Even in this case, a change is applied completely or not at all.",
        do=("run the command again with KSTATE_LOG=FILE, then report the bug and attach this file", _STATUS),
    ),
    RunHalfway.code: Texts(
        "A run failed after it swapped the directories (exit 7)",
        "APP is the complete new directory, but the run did not complete its last steps.",
        do=("run the command again", f"or roll the run back: {command('undo', 'APP')}", _STATUS),
    ),
    Interrupted.code: Texts(
        "A signal terminated the command (exit 128 plus the number of the signal)",
        "kstate removed all new files that were not yet part of APP.",
        do=("run the command again", _STATUS),
    ),
}


# The same advice for several refusals: only the old text distinguishes their cases.
_OLD: Final = f"also pass the description of the topology that last ran here: {option.FROM} OLD.txt"

REHOME: Final = {
    WhyRefused.OTHER_APPLICATION: Texts(
        "The new topology has few or none of the stores in this directory (exit 4)",
        "The description belongs to another application, or nearly all stores were renamed.",
        do=("pass the topology description of this application", _OLD),
    ),
    WhyRefused.OLD_DOES_NOT_FIT: Texts(
        "The old topology and the directory have the stores in different tasks (exit 4)",
        "With topology.optimization, the task numbers depend on the properties that you pass to StreamsBuilder.build.",
        do=("pass the description of the topology that last ran here, as StreamsBuilder.build(props) returned it",),
    ),
    WhyRefused.GLOBAL: Texts(
        "A store is global in the topology but not in the directory, or vice versa (exit 4)",
        (
            "A global store is not partitioned, and Streams restores it from its whole topic. Therefore, kstate "
            "cannot move rows between a global store and a task's store."
        ),
        do=("wipe the store so that Streams recreates it",),
    ),
    WhyRefused.TWO_COPIES: Texts(
        "Two tasks with the same partition number each have a copy of the store (exit 4)",
        "You have already started the new topology, and it has created additional copies of the stores.",
        do=(_OLD,),
    ),
    WhyRefused.HALF_A_TASK: Texts(
        "The tasks of merged sub-topologies are on different hosts (exit 4)",
        (
            "After the move, each host would have only a part of the task. Under exactly-once, Streams wipes a task "
            "if a store's offset is missing."
        ),
        do=(
            (
                "on every host, restore the missing part of the task from a dump in the same run: pass "
                f"{option.FROM_CHANGELOG} DUMP {option.FOR} RELEASE"
            ),
            "or stop the application on both hosts, then move all directories of one partition to one host",
        ),
    ),
    WhyRefused.GENERATED: Texts(
        "A generated store name contains its operator's number (exit 4)",
        (
            "After a topology change, the operator may have a different number. Its store then has a different name "
            "and a different changelog, and the old name may belong to another operator. kstate moves such a store "
            "only if it has the same sources and processors in both descriptions."
        ),
        do=(_OLD, "or set the old name in the code with Materialized.as"),
    ),
    WhyRefused.NUMBER_TAKEN: Texts(
        "The directory already has tasks with a sub-topology's new number (exit 4)",
        ("The numbers alone do not show whether sub-topologies were merged or one replaced another."),
        do=(
            (
                f"map these tasks with a different {option.MAP}, or pass both topology descriptions with "
                f"{option.TOPOLOGY} and {option.FROM}"
            ),
        ),
    ),
    WhyRefused.KIND_UNKNOWN: Texts(
        "A store is new, and its kind is unknown (exit 4)",
        (
            'From 4.3 on, an empty store needs an offset that means "from the beginning". Without this offset, '
            "Streams wipes the task under exactly-once. Where this offset is stored depends on the kind of store."
        ),
        do=(
            f"specify the kind in kstate.toml and pass it with {option.SPEC}",
            _OLD,
            f"or pass {option.GUARANTEE} at_least_once if the application runs with at-least-once",
        ),
    ),
    # Both ways lose something: the restoration its time, the other guarantee its safety. The user chooses.
    WhyRefused.UNCLEAN: Texts(
        "The stores that kstate would move were not closed cleanly (exit 4)",
        "Under exactly-once, these stores may contain uncommitted rows.",
        do=(
            f"pass {option.WIPE_UNCLEAN} to remove only these stores so that Streams restores them",
            f"or pass {option.GUARANTEE} at_least_once if the application runs with at-least-once",
        ),
    ),
    WhyRefused.FOREIGN: Texts(
        "A task whose stores kstate would move contains a file that Streams did not create (exit 4)",
        "kstate does not know which task this file should belong to.",
        do=("move this file out of the application directory",),
    ),
    WhyRefused.MEMBERS: Texts(
        "The application's consumer group has members (exit 4)",
        (
            "An instance is still running, or it stopped less than session.timeout.ms ago. By default, a stopped "
            "instance stays in its group until its session times out."
        ),
        do=("stop all instances", f"then wait until their sessions have timed out: {option.WAIT} 60"),
    ),
    WhyRefused.UNREAD: Texts(
        "The new topology does not read some topics that have unread records (exit 4)",
        (
            "For example, if a repartition topic is renamed, Streams creates a new topic, and the remaining records "
            "of the old one are never read."
        ),
        do=(
            "start the application with the old topology, let it process all its input, and stop it",
            f"if you do not need these records, omit {option.BOOTSTRAP_SERVER}",
        ),
    ),
    WhyRefused.PARTITIONS: Texts(
        ("A changelog has a different number of partitions than its new sub-topology has tasks (exit 4)"),
        (
            "Streams creates one task for each partition of the largest source topic. It fails to start if an existing "
            "changelog has a different number of partitions. If Streams restores a table from its source "
            "topic, the application never reaches RUNNING."
        ),
        log=(OTHER_PARTITIONS,),
        do=("keep these sub-topologies separate", "or repartition one of their inputs"),
    ),
    WhyRefused.OTHER_CLUSTER: Texts(
        "The broker has none of this directory's changelogs (exit 4)",
        "Either the broker belongs to a different cluster, or this user is not allowed to describe these topics.",
        do=("connect to this application's cluster as a user that is allowed to describe its topics",),
    ),
}


_STATUS = f"to see what the run did: {command('status', 'APP')}"
# True for every ended command: the journal shows the next one what to finish or delete.
_AGAIN = "run the command again. kstate then continues the interrupted run or deletes its files"
_SIGNALLED = (
    "After the first signal, kstate shuts down cleanly. If it has not swapped the directories yet, it deletes the "
    "new files, and APP is unchanged. Otherwise, the message reports the state of the run."
)


def _of_signal(number: signal.Signals) -> str:
    return str(128 + number)


# By the exit code of the class, or of the signal, in ascending order.
EXITS: Final = {
    str(EXIT_OK): Texts(
        "The command succeeded, or there was nothing to do",
        "For check, diff, verify, and inspect-position with a bound, this also means that the result is positive.",
        do=("nothing",),
    ),
    str(EXIT_WARNINGS): Texts(
        "The command succeeded, but printed warnings",
        (
            "The work is complete, but you should read the warnings. For example, kstate skipped stores, dropped "
            "headers, or found an unclean shutdown. The output of a read-only command may lack rows. For check, the "
            "outcome of a store or a condition is unknown, for example because the application is running."
        ),
        do=(
            f"read the warnings. If you accept them, pass {option.WARNINGS_OK} to make the command exit with code 0",
            f"stop the application, then run the check again: {command('check', 'APP', option.FOR, 'RELEASE')}",
        ),
    ),
    str(UsageError.exit_code): Texts(
        "The command line is invalid",
        (
            "An option, a file or a store does not exist, or the directory does not belong to an application. "
            "kstate changed nothing."
        ),
        do=(f"read the message, which names the mistake. To see the command's options, pass {option.HELP}",),
    ),
    str(ConditionNotMet.exit_code): Texts(
        "The command succeeded, but its result is negative",
        (
            "For example, check reported a finding, diff found a difference, verify found damage, ls found a "
            "foreign entry, or a store is below the bound. kstate changed nothing."
        ),
        do=(f"to see what a finding means: {command('explain', 'CODE')}",),
    ),
    str(Refused.exit_code): Texts(
        "kstate refused to run, because it would be unsafe or because the state is unknown",
        (
            "kstate changed nothing. It never changes a directory whose state it does not know, and it does not "
            "guess. A read-only command lists the parts that it could not judge."
        ),
        do=("read the message, which names the obstacle and states how to remove it",),
    ),
    str(InUse.exit_code): Texts(
        "Another process is using the directory",
        (
            "The application or another kstate command is running. A Streams client holds the lock on APP/.lock "
            "from its creation until it is closed. If you start a client while kstate changes the directory, the "
            "client logs the messages below."
        ),
        (log.LOCKED, log.TASK_LOCKED),
        do=(f"stop the application or pass {option.WAIT} SECONDS",),
    ),
    str(RunFailed.exit_code): Texts(
        "The command failed, and the application directory is unchanged",
        (
            "For example, the disk is full or broken, kstate could not read a store or write a result, or Spark "
            "reported an error."
        ),
        do=("fix the cause named in the message, then run the command again", _STATUS),
    ),
    str(RunHalfway.exit_code): Texts(
        "The command changed the application directory, but failed in a later step",
        (
            "APP is the complete new directory. Only one of the last steps failed, such as a sync, a journal line or "
            "the summary. If the command was `kstate clean`, it deleted only part of the backup."
        ),
        do=(
            _AGAIN,
            f"or roll the run back, unless the command was `kstate clean`: {command('undo', 'APP')}",
            _STATUS,
        ),
    ),
    _of_signal(signal.SIGHUP): Texts(
        "Signal 1 (SIGHUP) terminated the command because the terminal was closed", _SIGNALLED, do=(_AGAIN,)
    ),
    _of_signal(signal.SIGINT): Texts(
        "Signal 2 (SIGINT) terminated the command because you pressed Ctrl-C", _SIGNALLED, do=(_AGAIN,)
    ),
    # No handler runs at SIGKILL: the shell or the container reports the code, and not kstate.
    "137": Texts(
        "Signal 9 (SIGKILL) terminated the command, often because the host ran out of memory",
        (
            "kstate could not shut down cleanly. Nevertheless, the directory is either the complete old one or the "
            "complete new one."
        ),
        do=(f"give the container more memory, or pass fewer {option.WORKERS}", _AGAIN, _STATUS),
    ),
    _of_signal(signal.SIGPIPE): Texts(
        "The program that read the output, such as head in a pipe, has exited",
        "The output is correct but incomplete.",
        do=("if this is what you intended, you do not have to do anything",),
    ),
    _of_signal(signal.SIGTERM): Texts("Signal 15 (SIGTERM) terminated the command", _SIGNALLED, do=(_AGAIN,)),
}

"""Exit codes."""

from __future__ import annotations

import signal
from typing import Final

from kstate_cli import streams_log as log
from kstate_cli.errors import (
    EXIT_OK,
    EXIT_WARNINGS,
    ConditionNotMet,
    InUse,
    Refused,
    RunFailed,
    RunHalfway,
    UsageError,
)
from kstate_cli.explain.model import Texts
from kstate_cli.texts import command

_STATUS = f"what the run did: {command('status', 'APP')}"
_AGAIN = "run the command again: it continues the interrupted run, or deletes its files"
_SIGNALLED = (
    "A first signal ends a command in order. Before the switch kstate deletes the staged files, and APP is unchanged. "
    "After the switch the message reports the state."
)


def _of_signal(number: signal.Signals) -> str:
    return str(128 + number)


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

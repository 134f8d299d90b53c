"""Findings of ``check``: ages, owners, locks, and what kstate itself keeps."""

from __future__ import annotations

from typing import Final

from kstate_cli.check import streams_log as log
from kstate_cli.explain.model import SILENT, Texts
from kstate_cli.texts import command

_STATUS = f"what each run keeps: {command('status', 'APP')}"

SURROUNDINGS: Final = {
    "cleaner-may-delete": Texts(
        "A task is older than ten minutes: where it is not assigned to this instance, the cleaner deletes it",
        "The cleaner looks at the age of the task's directory alone (state.cleanup.delay.ms). A task that is assigned "
        "here is locked, and stays.",
        (log.OBSOLETE,),
        do=("to be sure, raise state.cleanup.delay.ms until every instance runs again",),
    ),
    "failed-start-deletes": Texts(
        "The start fails, and deletes the directories of tasks while it ends",
        "A stream thread that dies closes its tasks dirty, and under exactly-once that deletes their directories. "
        "Everything with a changelog is restored from the beginning then, and the rest is lost. Real 4.2.1 deleted all "
        "tasks of a directory of 4.3.",
        SILENT,
    ),
    "older-than-max-age": Texts(
        "A task is older than state.cleanup.dir.max.age.ms: the start deletes it before it opens anything",
        "4.3 never makes the directory of a task younger while it runs, so a long run ends in this. It is off unless "
        "the application sets it.",
        (log.OUTDATED,),
        do=("or leave state.cleanup.dir.max.age.ms out for this start",),
    ),
    "versioned-position": Texts(
        "4.3 loses the Position of a versioned store at every restart",
        "Rows and offsets stay. Queries with a bound find the store behind until it has seen new records.",
        SILENT,
    ),
    "kept-too-long": Texts(
        "A run of kstate still keeps what it has replaced",
        "The old directory shares its files with the new one; what Streams compacts away meanwhile stays on disk for "
        "it.",
        do=(_STATUS,),
    ),
    "unfinished-run": Texts(
        "A run of kstate did not come to its end, or is not understood",
        "A signal, a kill, a power failure. The directory is wholly the old or wholly the new one.",
        do=(_STATUS,),
    ),
    "only-kept": Texts(
        "The directory was emptied, and a run of kstate has what was in it",
        "Everything was wiped, or somebody has deleted the tasks. The next start restores from the beginning.",
        (log.RESTORES_FROM_START,),
        do=(_STATUS,),
    ),
    "foreign-owner": Texts(
        "Files belong to another user than the application directory",
        "Often somebody has copied or restored them as root. The application cannot open or rename what it may not "
        "write.",
    ),
    "lock-not-shared": Texts(
        "The directory lies on a network file system, where other hosts may not see its lock",
        "Two instances in one directory destroy it. kstate cannot see there whether the application runs elsewhere.",
        (log.LOCKED,),
        do=("changes ask for --lock-is-shared there: with it you vouch that the application runs nowhere",),
    ),
}

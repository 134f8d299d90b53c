"""Findings of ``check``: ages, owners, locks, and runs of kstate."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import NOTHING, RESTORE, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_STATUS = f"to see each run's backup: {command('status', 'APP')}"

CLEANER_MAY_DELETE: Final = FindingCode(
    "cleaner-may-delete",
    "A task is older than ten minutes. Streams' cleaner deletes it unless it is assigned to this instance",
    level=Level.EXPECTED,
    more=(
        "The cleaner checks only the age of the task directory (state.cleanup.delay.ms). It does not delete tasks "
        "that are assigned to this instance, because Streams locks them."
    ),
    log=(log.OBSOLETE,),
    source=(
        "after state.cleanup.delay.ms, StateDirectory.cleanRemovedTasks deletes tasks that are not assigned to "
        "this instance ({page})"
    ),
    page="layout.md#ages",
    hint=NOTHING,
    do=("to keep the task, raise state.cleanup.delay.ms until every instance is running again",),
)
OLDER_THAN_MAX_AGE: Final = FindingCode(
    "older-than-max-age",
    "A task is older than state.cleanup.dir.max.age.ms, so Streams deletes it before opening any store",
    level=Level.WARNING,
    more=(
        "While 4.3 is running, it does not update the modification times of task directories. If the application has "
        "run for a long time, Streams therefore deletes its tasks the next time it starts. By default, this setting "
        "is off."
    ),
    log=(log.OUTDATED,),
    source=(
        "StateDirectory.cleanOutdatedDirsOnStartup deletes tasks that are older than "
        "state.cleanup.dir.max.age.ms ({page})"
    ),
    page="layout.md#ages",
    hint=RESTORE,
    do=("or unset state.cleanup.dir.max.age.ms before you start the application",),
)
VERSIONED_POSITION: Final = FindingCode(
    "versioned-position",
    "4.3 loses the Position of a versioned store at every restart",
    level=Level.EXPECTED,
    more="The rows and offsets are kept, but queries with a bound fail until the store has read new records.",
    log=SILENT,
    source="in 4.3, RocksDBVersionedStore.writePosition does not persist the Position ({page})",
    page="offsets.md#where-each-kind-keeps-it",
    hint=NOTHING,
)
KEPT_TOO_LONG: Final = FindingCode(
    "kept-too-long",
    "kstate has kept a run's backup for a long time",
    level=Level.WARNING,
    more=(
        "The backup and the new directory share files. When Streams compacts these files, the old files remain on "
        "disk because the backup still needs them."
    ),
    source="a backup keeps files on disk that Streams has already compacted",
    hint=f"kstate clean APP {option.OLDER_THAN} 7d",
    do=(_STATUS,),
)
UNFINISHED_RUN: Final = FindingCode(
    "unfinished-run",
    "A run of kstate was interrupted, or kstate cannot read the journal",
    level=Level.WARNING,
    more=(
        "A run can be interrupted by a signal, a killed process or a power failure. The directory is either the "
        "complete old one or the complete new one."
    ),
    source="the next command that changes the directory completes or removes an interrupted run",
    hint="run the interrupted command again. To see the run: kstate status APP",
)
ONLY_KEPT: Final = FindingCode(
    "only-kept",
    "The directory is empty, but a backup made by kstate contains its stores",
    level=Level.WARNING,
    more=(
        "All stores were wiped, or the task directories were deleted. Streams will restore everything from the "
        "beginning."
    ),
    log=(log.RESTORES_FROM_START,),
    source=(
        "Streams restores an empty directory's stores from the beginning, although kstate has a backup of these stores"
    ),
    hint=(
        "if the finding contains a command that restores the backup, run that command. To see all backups: kstate "
        "status APP"
    ),
)
FOREIGN_OWNER: Final = FindingCode(
    "foreign-owner",
    "Some files do not belong to the application directory's owner",
    level=Level.WARNING,
    more=(
        "This usually happens when root copied or restored the files. Without write permission, the application "
        "cannot open or rename them."
    ),
    source="the application must be able to read and write its files ({page})",
    page="layout.md#owners",
    hint="change the owner of these files to the application directory's owner (chown)",
)
LOCK_NOT_SHARED: Final = FindingCode(
    "lock-not-shared",
    "The directory is on a network file system, where other hosts may not see its lock",
    level=Level.WARNING,
    more=(
        "If two instances use the same directory, they destroy its contents. kstate cannot see whether the application "
        "is "
        "running on another host."
    ),
    log=(log.LOCKED,),
    source="StateDirectory.lockStateDirectory uses POSIX locks, which other hosts may not see ({page})",
    page="layout.md#locks",
    hint="run only one instance per directory",
    do=((f"once all instances are stopped, pass {option.LOCK_IS_SHARED} to commands that change the directory"),),
)

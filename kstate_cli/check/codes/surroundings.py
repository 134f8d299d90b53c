"""Findings of ``check``: ages, owners, locks, and runs of kstate."""

from __future__ import annotations

from typing import Final

from kstate_cli import option
from kstate_cli import streams_log as log
from kstate_cli.check.findings import NOTHING, RESTORE, FindingCode, Level
from kstate_cli.codes import SILENT
from kstate_cli.texts import command

_STATUS = f"to see the backup of each run: {command('status', 'APP')}"

CLEANER_MAY_DELETE: Final = FindingCode(
    "cleaner-may-delete",
    "A task is older than ten minutes, and the cleaner deletes it if it is not assigned to this instance",
    level=Level.EXPECTED,
    more=(
        "The cleaner of Streams checks only the age of the task directory (state.cleanup.delay.ms). A task "
        "that is assigned to this instance is locked, so the cleaner does not delete it."
    ),
    log=(log.OBSOLETE,),
    source="StateDirectory.cleanRemovedTasks: after state.cleanup.delay.ms tasks that are not assigned here ({page})",
    page="layout.md#ages",
    hint=NOTHING,
    do=("to keep the task, raise state.cleanup.delay.ms until every instance is running again",),
)
OLDER_THAN_MAX_AGE: Final = FindingCode(
    "older-than-max-age",
    "A task is older than state.cleanup.dir.max.age.ms, so Streams deletes it before it opens any store",
    level=Level.WARNING,
    more=(
        "4.3 never updates the age of a task directory while it is running, so it deletes tasks after a long "
        "run. By default, this setting is off."
    ),
    log=(log.OUTDATED,),
    source="StateDirectory.cleanOutdatedDirsOnStartup: state.cleanup.dir.max.age.ms ({page})",
    page="layout.md#ages",
    hint=RESTORE,
    do=("or do not set state.cleanup.dir.max.age.ms for this start",),
)
VERSIONED_POSITION: Final = FindingCode(
    "versioned-position",
    "4.3 loses the Position of a versioned store whenever it restarts",
    level=Level.EXPECTED,
    more="Rows and offsets remain. Queries with a bound treat the store as behind until it has read new records.",
    log=SILENT,
    source="RocksDBVersionedStore.writePosition of 4.3: the Position is lost at a restart ({page})",
    page="offsets.md#where-each-kind-keeps-it",
    hint=NOTHING,
)
KEPT_TOO_LONG: Final = FindingCode(
    "kept-too-long",
    "The backup of a run of kstate is old",
    level=Level.WARNING,
    more=(
        "The backup and the new directory share files. When Streams compacts such files, the backup keeps them on disk."
    ),
    source="the backup of a run keeps files on disk that Streams has compacted",
    hint=f"kstate clean APP {option.OLDER_THAN} 7d",
    do=(_STATUS,),
)
UNFINISHED_RUN: Final = FindingCode(
    "unfinished-run",
    "A run of kstate was interrupted, or kstate cannot read its journal",
    level=Level.WARNING,
    more=(
        "The cause was a signal, a kill, or a power failure. The directory is either completely the old one "
        "or completely the new one."
    ),
    source="a run of kstate was interrupted. The next command that changes the directory completes or removes it",
    hint="run the command again. To see which run it continues: kstate status APP",
    do=(_STATUS,),
)
ONLY_KEPT: Final = FindingCode(
    "only-kept",
    "The directory is empty, but the backup of a run of kstate has its stores",
    level=Level.WARNING,
    more="All stores were wiped, or the tasks were deleted. Streams will restore everything from the beginning.",
    log=(log.RESTORES_FROM_START,),
    source=(
        "the directory is empty, so Streams restores everything from the beginning, although a run of kstate "
        "has a backup"
    ),
    hint="if a command restores the backup, the finding names it. To see the backup of each run: kstate status APP",
    do=(_STATUS,),
)
FOREIGN_OWNER: Final = FindingCode(
    "foreign-owner",
    "The owner of some files differs from the owner of the application directory",
    level=Level.WARNING,
    more=(
        "Often root has copied or restored them. Without write permission, the application cannot open or "
        "rename a file."
    ),
    source="the application must be able to read and write its files ({page})",
    page="layout.md#owners",
    hint="change their owner (chown) to the owner of the application directory",
)
LOCK_NOT_SHARED: Final = FindingCode(
    "lock-not-shared",
    "The directory is on a network file system, where other hosts may not see its lock",
    level=Level.WARNING,
    more=(
        "Two instances that use one directory destroy it. kstate cannot see whether the application is "
        "running on another host."
    ),
    log=(log.LOCKED,),
    source="StateDirectory.lockStateDirectory: POSIX locks may not be seen by other hosts ({page})",
    page="layout.md#locks",
    hint="run only one instance for each directory",
    do=(
        (
            f"pass {option.LOCK_IS_SHARED} to commands that change the directory, to confirm that all instances are "
            "stopped"
        ),
    ),
)

"""``kstate undo``: restore the backup of the newest run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import App, LockIsShared, OutputFormat, Quiet, Reason, Wait
from kstate_cli.cli.output import Format, output_of, waiting

if TYPE_CHECKING:
    from kstate_cli.cli.lines.changes import UndoLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "undo": (
        Example("Undo the newest change", "undo /data/app"),
        Example("Undo even if the application has run since the change", "undo /data/app --discard-newer"),
    ),
}


def undo(
    app: App,
    discard_newer: Annotated[
        bool,
        typer.Option(
            option.DISCARD_NEWER,
            help=(
                "Undo even if the application has run since the change. kstate moves the application's new files aside."
            ),
        ),
    ] = False,
    times_lost: Annotated[
        bool,
        typer.Option(
            option.TIMES_LOST,
            help=(
                "Undo even if the backup's file times were lost. kstate then verifies every block's checksum "
                "before it restores the backup."
            ),
        ),
    ] = False,
    reason: Reason = None,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """Undo the newest change by restoring the directory from its backup.

    If there is nothing to undo, the exit code is 0.
    """
    from kstate_cli.change.commit import RecoveryOutcome, recover
    from kstate_cli.change.folder import read_runs
    from kstate_cli.change.lockfile import application_lock, check_location
    from kstate_cli.change.undo import UndoOptions
    from kstate_cli.change.undo import undo as undo_run
    from kstate_cli.statedir.find import find_application_or_runs

    path = find_application_or_runs(app)
    results: Output[UndoLine] = output_of(output, path, quiet=quiet)

    def end(run: str | None, message: str) -> int:
        # People have read the message on standard error, so their part of the result is empty.
        results.lines([{"type": "summary", "run": run, "executed": run is not None, "message": message}])
        return 0

    with waiting("reading runs", quiet=quiet):
        runs = read_runs(path)
    # Without a run there is nothing to lock, and no .kstate is created.
    if not runs:
        results.say("nothing to undo")
        return end(None, "nothing to undo")
    # A mount point cannot be exchanged, and a lock of another host cannot be seen.
    check_location(path, lock_is_shared=lock_is_shared)
    with waiting("waiting for the lock", quiet=quiet) as activity, application_lock(path, wait):
        activity.call("completing or removing interrupted runs")
        # An interrupted run is finished or removed first: the newest run is certain only then.
        recovered = recover(path, results.say)
        back = [
            recovery
            for recovery in recovered
            if recovery.outcome in (RecoveryOutcome.SWEPT, RecoveryOutcome.UNDO_FINISHED)
        ]
        if back:
            # What was to be taken back never switched, or is back already: an earlier run is not what was meant.
            return end(back[-1].run, back[-1].text)
        # The backup is compared with its list, and with --times-lost every block of it is read.
        activity.call("checking the backup")
        run, message = undo_run(path, UndoOptions(discard_newer, times_lost, lock_is_shared), reason=reason)
    results.say(message)
    if run is None:
        return end(None, message)
    return end(run.name, message)

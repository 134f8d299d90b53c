"""``kstate clean``: delete the backups that runs keep for undo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kstate_cli import option
from kstate_cli.cli.ending import warnings_code
from kstate_cli.cli.help_examples import Example
from kstate_cli.cli.options.shared import App, LockIsShared, OutputFormat, Quiet, Wait, age
from kstate_cli.cli.output import Format, output_of, say, waiting
from kstate_cli.errors import EXIT_OK, RunFailed
from kstate_cli.texts import first_lines, plural, size_text

if TYPE_CHECKING:
    from kstate_cli.change.clean import Choice
    from kstate_cli.change.journal import Run
    from kstate_cli.cli.lines.changes import CleanLine
    from kstate_cli.cli.output import Output

HELP_EXAMPLES: Final = {
    "clean": (
        Example("Print what kstate would delete", "clean /data/app --dry-run"),
        Example("DELETES backups that are at least a week old", "clean /data/app --older-than 7d"),
    ),
}

_MAX_LISTED = 5


def clean(
    app: App,
    older_than: Annotated[
        str,
        typer.Option(
            option.OLDER_THAN,
            metavar="AGE",
            help="Delete only runs that ended at least AGE ago, such as 7d or 12h.",
            show_default=False,
        ),
    ] = "0s",
    run: Annotated[
        list[str] | None,
        typer.Option(option.RUN, metavar="RUN", help="Delete only this run, such as 0001-migrate. Can be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(option.DRY_RUN, help="Show what kstate would delete, but change nothing.")
    ] = False,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    output: OutputFormat = Format.table,
    quiet: Quiet = False,
) -> int:
    """DELETES the backups that kstate keeps for undo. Afterwards, you cannot undo the corresponding runs.

    You can run this command while the application is running, because kstate does not touch the application's files.
    kstate keeps interrupted runs. The next command on this directory finishes them. If a run was interrupted before it
    replaced the directory, you can delete that run with --run.
    """
    from kstate_cli.change.clean import CleanRequest, choose, clean_runs
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.change.folder import read_runs, remove_drafts, remove_empty_folders, runs_folder
    from kstate_cli.change.lockfile import check_location, kstate_lock
    from kstate_cli.restore.staging_area import remove_from_area
    from kstate_cli.statedir.find import find_application_or_runs
    from kstate_cli.statedir.names import LOCK

    path = find_application_or_runs(app)
    report = _CleanReport(output_of(output, path, quiet=quiet))
    request = CleanRequest(path, age(option.OLDER_THAN, older_than), frozenset(run or ()))
    # Without a lock file no process holds the lock, and kstate does not create the file only to look at runs.
    is_unlocked = not os.path.lexists(path / LOCK)
    with waiting("reading runs and their backups", quiet=quiet) as activity:
        # A dry run, or one with nothing to do, needs no lock.
        runs = read_runs(path)
        if dry_run or not runs or (is_unlocked and not choose(request).runs):
            choice = choose(request, locked=is_unlocked)
            report.choice(choice)
            for candidate in choice.runs:
                report.run(candidate.name, pinned_bytes(candidate), deleted=False)
            # A command that was interrupted before its run began may have left the draft of its plan.
            if not dry_run and not runs and runs_folder(path).parent.is_dir():
                with kstate_lock(path, wait):
                    remove_drafts(path)
                    remove_empty_folders(path)
            report.end()
            return EXIT_OK
        stays: list[str] = []

        def elsewhere(run: Run) -> bool:
            """Remove what a run left in its staging area; return whether anything was there."""
            try:
                return remove_from_area(run) is not None
            except RunFailed as error:
                # The user did not name this run with --run, so it stays until its staging area can be reached.
                if run.name not in request.names:
                    raise
                # The user named the run, and no other command could ever delete it. So it is deleted, with a warning:
                # what is left in the area only the user can remove.
                stays.append(run.name)
                say(
                    f"warning: {error.headline}. kstate is deleting run {run.name}, which has the only record of "
                    "this folder. Inspect the folder and delete it yourself"
                )
                return False

        # clean exchanges no directories, so a mount point is no obstacle.
        check_location(path, lock_is_shared=lock_is_shared, exchanges=False)
        activity.call("waiting for the lock")
        with kstate_lock(path, wait):
            # Only under the lock is it certain that a run that has not ended was interrupted.
            activity.call("deleting backups")
            choice = choose(request)
            report.choice(choice)
            for name, freed in clean_runs(request, choice, elsewhere):
                report.run(name, freed, deleted=True)
            remove_drafts(path)
            remove_empty_folders(path)
    report.end()
    return warnings_code(stays)


class _CleanReport:
    """Print each run that is deleted as soon as it is, and count them."""

    def __init__(self, results: Output[CleanLine]) -> None:
        self._results = results
        self._runs = self._bytes = 0
        self._deleted = False

    def choice(self, choice: Choice) -> None:
        """Print the runs that stay, and why."""
        for folder in choice.retained:
            self._results.say(folder.text)
            self._results.lines([{"type": "left", "run": folder.run, "message": folder.why}])
        for line in first_lines([folder.text for folder in choice.young], _MAX_LISTED):
            self._results.remark(line)
        if not choice.runs:
            self._results.say("nothing to clean")

    def run(self, name: str, size: int, *, deleted: bool) -> None:
        """Print a run that is deleted, or would be."""
        text = f"kstate would delete run {name} and free {size_text(size)}"
        if deleted:
            text = f"kstate deleted run {name} and freed {size_text(size)}"
        self._results.say(text)
        self._runs, self._bytes, self._deleted = self._runs + 1, self._bytes + size, self._deleted or deleted
        self._results.lines([{"type": "run", "run": name, "bytes_pinned": size, "executed": deleted}])

    def end(self) -> None:
        """Print the end of the list."""
        if self._runs > 1:
            freed = f"{size_text(self._bytes)} would be freed"
            if self._deleted:
                freed = f"{size_text(self._bytes)} freed"
            self._results.say(f"{plural(self._runs, 'run')}: {freed}")
        self._results.lines(
            [{"type": "summary", "runs": self._runs, "bytes_pinned": self._bytes, "executed": self._deleted}]
        )

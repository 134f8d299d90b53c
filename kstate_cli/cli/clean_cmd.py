"""``kstate clean``: deletes what runs have kept for undo."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from kstate_cli.cli.options import App, LockIsShared, Quiet, Wait, age

if TYPE_CHECKING:
    from kstate_cli.change.clean import Choice
    from kstate_cli.change.journal import Run


def clean(
    app: App,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only runs that ended so long ago: 7d, 12h.")
    ] = "0s",
    run: Annotated[
        list[str] | None,
        typer.Option(
            "--run", metavar="RUN", help="Only this run, such as 0001-migrate, whatever it keeps; repeatable."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    quiet: Quiet = False,
) -> int:
    """Delete the directories that runs have kept. Afterwards they cannot be undone.

    The application may be running: nothing of its directory is touched. A run that was interrupted is left to the
    command that needs the directory next, unless it is named with --run.
    """
    from kstate_cli.change.clean import CleanRequest, choose, clean_runs
    from kstate_cli.change.folder import read_runs, remove_empty_folders, runs_folder
    from kstate_cli.change.location_checks import check_location
    from kstate_cli.change.lockfile import kstate_lock
    from kstate_cli.cli.output import say
    from kstate_cli.errors import EXIT_OK, EXIT_WARNINGS, RunFailed
    from kstate_cli.restore.staging_area import remove_from_area
    from kstate_cli.statedir.find import find_runs_of
    from kstate_cli.statedir.names import LOCK

    path = find_runs_of(app)
    request = CleanRequest(path, age("--older-than", older_than), frozenset(run or ()))
    # Where there is no lock nobody holds it, and it is not made for nothing.
    locked = not os.path.lexists(path / LOCK)
    runs = read_runs(path)
    if dry_run or not runs or (locked and not choose(request).runs):
        _tell(choose(request, locked=locked), quiet=quiet)
        if not dry_run and not runs and runs_folder(path).parent.is_dir():
            with kstate_lock(path, wait):
                remove_empty_folders(path)
        return 0
    stays: list[str] = []

    def elsewhere(run: Run) -> bool:
        try:
            return remove_from_area(run) is not None
        except RunFailed as error:
            if run.name not in request.names:
                raise
            # Whoever names a run knows what it is about; nothing else could ever delete it.
            stays.append(run.name)
            say(
                f"warning: {error.headline}: look at it and remove it yourself: "
                f"once run {run.name} is deleted, nothing tells of it"
            )
            return False

    check_location(path, lock_is_shared=lock_is_shared, exchanges=False)
    with kstate_lock(path, wait):
        # Only under the lock a run that has not ended is one that was interrupted.
        choice = choose(request)
        for line in choice.left:
            say(line, quiet=quiet)
        if not choice.runs:
            say("nothing to clean", quiet=quiet)
        for name, freed in clean_runs(request, choice, elsewhere):
            say(f"run {name}: deleted, {freed:,} bytes freed", quiet=quiet)
        remove_empty_folders(path)
    return EXIT_WARNINGS if stays else EXIT_OK


def _tell(choice: Choice, *, quiet: bool) -> None:
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.cli.output import say

    for line in choice.left:
        say(line, quiet=quiet)
    for run in choice.runs:
        say(f"run {run.name}: {pinned_bytes(run):,} bytes would be freed", quiet=quiet)
    if not choice.runs:
        say("nothing to clean", quiet=quiet)

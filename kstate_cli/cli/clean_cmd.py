"""``kstate clean``: deletes what runs have kept for undo."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated

import typer

from kstate_cli.cli.options import App, LockIsShared, Quiet, Wait, age


def clean(
    app: App,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only runs that ended so long ago: 7d, 12h.")
    ] = "0s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    wait: Wait = 0.0,
    lock_is_shared: LockIsShared = False,
    quiet: Quiet = False,
) -> int:
    """Delete the directories that runs have kept. Afterwards they cannot be undone.

    The application may be running: nothing of its directory is touched.
    """
    from kstate_cli.change.engine import pinned_bytes
    from kstate_cli.change.journal import RunState, read_runs, remove_empty_folders, runs_folder
    from kstate_cli.change.lockfile import kstate_lock
    from kstate_cli.change.place import check_place
    from kstate_cli.change.recover import recover, remove_run
    from kstate_cli.cli.output import say
    from kstate_cli.errors import Refused
    from kstate_cli.statedir.find import find_runs_of
    from kstate_cli.texts import command

    limit = datetime.now(timezone.utc) - age("--older-than", older_than)
    path = find_runs_of(app)
    old = [r for r in read_runs(path) if not r.events or datetime.fromisoformat(r.events[-1]["at"]) <= limit]
    if not old:
        if runs_folder(path).parent.exists() and not dry_run:
            with kstate_lock(path, wait):
                remove_empty_folders(path)
        say("nothing to clean", quiet=quiet)
        return 0
    only_copy = [run.name for run in old if run.state is RunState.KEPT] if not path.exists() else []
    if only_copy:
        raise Refused(
            f"{path} is lost, and run {only_copy[-1]} keeps the only copy of it",
            hint=f"to put it back: {command('undo', path)}",
        )
    if dry_run:
        for run in old:
            say(f"run {run.name}: {pinned_bytes(run):,} bytes would be freed", quiet=quiet)
        return 0
    check_place(path, lock_is_shared=lock_is_shared)
    with kstate_lock(path, wait):
        for line in recover(path):
            say(line, quiet=quiet)
        names = {run.name for run in old}
        for run in read_runs(path):
            if run.name in names:
                freed = pinned_bytes(run)
                remove_run(run)
                say(f"run {run.name}: deleted, {freed:,} bytes freed", quiet=quiet)
        remove_empty_folders(path)
    return 0

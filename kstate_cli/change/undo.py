"""``undo``: exchange the directories back, once the tree of a run is proved to be its backup.

The backup is compared with its list of files before anything is changed. Then its times are restored, APP loses its
marks (:mod:`~kstate_cli.change.marks`), and the backup gets the mark of undoing, durably.
:func:`~kstate_cli.change.commit.commit` then announces, exchanges and records.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kstate_cli import option
from kstate_cli.change.commit import BACKWARD, commit
from kstate_cli.change.fingerprint import (
    KEPT_LIST,
    MADE_LIST,
    Listing,
    differences,
    differences_from,
    every_file,
    only_times,
    other_times,
    set_times,
    start_files,
)
from kstate_cli.change.folder import invoker, read_runs, require_understood
from kstate_cli.change.journal import Run, RunState, write_on_full_disk
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, put_mark, remove_mark, remove_marks, token_of
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.regular_files import access_hint
from kstate_cli.releases import unproven_too
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.signals import signals_held
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command, plural, some

_MOST_NAMES = 3


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """What the user allows for an undo."""

    discard_newer: bool = False
    """Undo even if APP has changed since the run: the changed directory is put aside."""
    times_lost: bool = False
    """Undo even if files have other times than at the switch, provided that every block of the backup can be read."""
    lock_is_shared: bool = False
    """The user vouches that the application is stopped on every host."""

    def command(self, app: Path) -> str:
        """Return the command line with these options.

        A hint prints it, so it must allow what the user has allowed already.
        """
        flags = {
            option.DISCARD_NEWER: self.discard_newer,
            option.TIMES_LOST: self.times_lost,
            option.LOCK_IS_SHARED: self.lock_is_shared,
        }
        return command("undo", app, *(flag for flag, is_set in flags.items() if is_set))


def undo(app: Path, options: UndoOptions, *, reason: str | None = None) -> tuple[Run | None, str]:
    """Roll back the newest run that has a backup. Return the run and a message; no run if none has a backup.

    Raise Refused if the backup differs from the directory before the run, or if APP has changed since the run, unless
    ``options`` allow that. Files whose times were lost get them back. ``reason`` is recorded in the journal.
    """
    backups = [run for run in require_understood(read_runs(app)) if run.state is RunState.KEPT]
    if not backups:
        return None, "nothing to undo"
    # Only the newest run can be undone: the backup of an older one would not fit the runs that came after it.
    run = backups[-1]
    times = _prove_kept(app, run, options)
    name = run.events[0]["command"]
    lost = not os.path.lexists(app)
    if not lost and not options.discard_newer:
        _refuse_newer(app, run, options)
    details: dict[str, Any] = {**invoker(), "reason": reason}
    with signals_held():
        try:
            # The times are restored first, because they are part of the directory that is about to become APP.
            set_times(run.tree, times)
            # The mark is durable before ``undoing`` is written, so after a kill the mark shows whether the exchange
            # happened.
            _mark(app, run, lost=lost)
            # If APP is missing, the backup is renamed to APP instead of exchanged with it.
            commit(app, run, BACKWARD, announced=details, recorded={}, lost=lost)
        except Refused:
            _cancel(run)
            raise
        except OSError as error:
            _cancel(run)
            raise _failed(app, options, error) from error
    if lost:
        return run, f"undid run {run.name} ({name}) and restored {app}, which was missing"
    return run, f"undid run {run.name} ({name})"


def _prove_kept(app: Path, run: Run, options: UndoOptions) -> Listing:
    """Raise Refused unless the tree of ``run`` is, file by file, the directory before the run.

    Return the files whose times must be restored; empty if none, or if an older kstate has recorded no list.
    """
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise Refused(
            f"run {run.name} has no backup of the earlier directory: {run.tree} is not a directory",
            hint=f"another program has removed or replaced the backup. Check {run.path}",
            hint_details=[f"to abandon this run, run {command('clean', app, option.RUN, run.name)}"],
        )
    # Before an exchange kstate removes all marks from APP (list_trees). So a tree with this mark has never been APP.
    if token_of(run.tree, STAGED) is not None:
        raise Refused(
            f"{run.tree} has a staging mark, so it was never the directory {app}",
            hint=f"check {run.path}, then move it elsewhere",
        )
    list_digest = run.last("switching").get("kept")
    if not isinstance(list_digest, str):
        _prove_readable(app, run)
        return {}
    try:
        return _prove_listed(app, run, options, list_digest)
    except OSError as error:
        raise Refused(
            f"kstate cannot read {error.filename or run.tree}: {error.strerror}",
            hint=access_hint(error.filename or run.tree),
        ) from None


def _prove_listed(app: Path, run: Run, options: UndoOptions, list_digest: str) -> Listing:
    """Compare the backup with its list, whose digest is ``list_digest``. Return the files whose times must be restored.

    Raise Refused if it differs, or if only times differ and ``options`` do not allow that. Raise OSError.
    """
    now = every_file(run.tree)
    changed = differences_from(run.path / KEPT_LIST, list_digest, now)
    if not changed:
        return {}
    times = other_times(run.path / KEPT_LIST, list_digest, now)
    if times is None:
        raise Refused(
            f"the backup of run {run.name} has changed: {some(changed, _MOST_NAMES)}",
            where=str(run.tree),
            hint=f"{app} is unchanged, because undo would replace it with a damaged directory. You have two options:",
            hint_details=[
                f"restore the missing files in {run.tree}",
                f"or abandon this run: {command('clean', app, option.RUN, run.name)}",
            ],
        )
    if not options.times_lost:
        raise _only_times(app, run, options, changed)
    # Only times differ. The list has the size and digest of each small file, but no digest of an SST, so all blocks of
    # the SSTs are read, which checks their checksums.
    unreadable = first_unreadable(run.tree)
    if unreadable is not None:
        raise _cannot_be_put_back(app, run, unreadable)
    return times


def _only_times(app: Path, run: Run, options: UndoOptions, changed: list[str]) -> Refused:
    """Return the refusal for a backup whose files have other times, but the same names and sizes."""
    have = "has" if len(changed) == 1 else "have"
    return Refused(
        (
            f"the backup of run {run.name} has changed. {plural(len(changed), 'file')} {have} the same name and size, "
            f"but a different time: {some(changed, _MOST_NAMES)}"
        ),
        where=str(run.tree),
        hint=(
            "the cause may be a copy that lost the file times (cp -r, GNU tar without --format=posix, rsync without "
            "-t). You have these options:"
        ),
        hint_details=[
            "if the original still exists, copy it again and keep the times (cp -a, rsync -a)",
            "check every block against its checksum, and then restore the backup with its original times: "
            + replace(options, times_lost=True).command(app),
        ],
    )


def _cannot_be_put_back(app: Path, run: Run, why: str) -> Refused:
    return Refused(
        f"kstate cannot restore the backup of run {run.name}: {why}",
        where=str(run.tree),
        hint=f"check {run.tree}. {app} is unchanged",
        hint_details=[f"or abandon this run: {command('clean', app, option.RUN, run.name)}"],
    )


def _prove_readable(app: Path, run: Run) -> None:
    """Raise Refused if the tree has a fatal problem.

    For a run of an older kstate, which has no list to compare with.
    """
    wrong = first_problem(run.tree)
    if wrong is not None:
        raise _cannot_be_put_back(app, run, wrong)


def _refuse_newer(app: Path, run: Run, options: UndoOptions) -> None:
    """Raise Refused if APP has changed since the run: the undo would replace newer state.

    Runs of an older kstate have the facts of the start files in their journal instead of a list.
    """
    details = run.last("switching")
    now = start_files(app)
    if isinstance(details.get("made"), str):
        changed = differences_from(run.path / MADE_LIST, details["made"], now)
        times = bool(changed) and other_times(run.path / MADE_LIST, details["made"], now) is not None
    else:
        before: Listing = {path: facts[1:] for path, facts in details["fingerprint"].items()}
        changed = differences(before, now)
        times = only_times(before, now)
    # RocksDB starts another MANIFEST each time it opens a database for writing. So if only times differ, no database
    # was opened, and ``times_lost`` may allow the undo.
    if changed and not (times and options.times_lost):
        ways = _ways_on(app, run, options)
        if times:
            ways.insert(0, f"if a copy lost the file times: {replace(options, times_lost=True).command(app)}")
        text = f"{app} has changed since run {run.name}: "
        if times:
            text = f"{app} has changed since run {run.name}. Only file times differ, not sizes: "
        raise Refused(
            text + some(changed, _MOST_NAMES),
            hint="choose:",
            hint_details=ways,
        )


def _ways_on(app: Path, run: Run, options: UndoOptions) -> list[str]:
    """Return what the user can do with a changed APP, one sentence for each way."""
    aside = f"to move the changed directory aside: {replace(options, discard_newer=True).command(app)}"
    created = run.events[0]
    # Every release accepts an empty directory, so there is nothing to migrate back.
    if created.get("source") == created.get("target") or not holds_tasks(app):
        return [aside]
    source = str(created.get("source", "RELEASE"))
    back = command("migrate", app, option.TO, source, *unproven_too(source))
    return [f"to keep these changes: {back}", aside]


def _mark(app: Path, run: Run, *, lost: bool) -> None:
    """Prepare both trees for the exchange back: give the backup the mark of undoing, and remove all marks from APP.

    APP is put aside by the undo, and must not look like a staged tree afterwards. Raise OSError.
    """
    if not lost:
        remove_marks(app)
        share_lock(app, run.tree)
    # An interrupted undo may have left its mark, which proves nothing about this undo.
    if not (run.tree / UNDOING).is_dir() or (run.tree / UNDOING).is_symlink():
        remove_mark(run.tree, UNDOING)
    # A run of an older kstate has no token, so it gets no mark. If a kill interrupts its undo, recovery refuses it.
    token = run.token
    if token is not None:
        put_mark(run.tree, UNDOING, token)


def _cancel(run: Run) -> None:
    """Record that the announced undo did not happen, and remove its mark. If that fails, the next command does it."""
    with contextlib.suppress(OSError):
        if run.state is RunState.UNDOING:
            write_on_full_disk(run, "undo-cancelled")
        remove_mark(run.tree, UNDOING)


def _failed(app: Path, options: UndoOptions, error: OSError) -> RunFailed:
    where = f" ({error.filename})" if error.filename else ""
    return RunFailed(
        f"undo failed: {error.strerror}{where}",
        where=str(app),
        hint=f"{app} is unchanged. Fix the cause, then run {options.command(app)}",
    )


def first_problem(tree: Path) -> str | None:
    """Return the first fatal problem of a directory; None if there is none. Raise OSError."""
    problems = (problem for problem in read_application(tree).all_problems() if problem.fatal)
    return next((problem.text for problem in problems), None)


def first_unreadable(tree: Path) -> str | None:
    """Return the first fatal problem or unreadable block of a directory; None if there is none. Raise OSError."""
    wrong = first_problem(tree)
    if wrong is not None:
        return wrong
    for folder, _, names in os.walk(tree):
        if "CURRENT" in names and is_database(Path(folder)):
            try:
                _read(Path(folder))
            except RocksError as error:
                return f"{os.path.relpath(folder, tree)}: {error}"
    return None


def _read(database: Path) -> None:
    with Shadow(database) as shadow:
        for family in shadow.column_families:
            # Iterating reads each block, and RocksDB compares its checksum. The rows are not needed.
            for _ in shadow.scan(family):
                pass

"""``undo``: the exchange the other way, once the tree is proved to be the backup of the run.

The backup is compared with its list before anything is changed. Then its times are restored, APP loses its marks, the
backup gets the mark of undoing, durably, and :mod:`commit` announces, exchanges and records.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
from kstate_cli.texts import LOCK_IS_SHARED, command, some

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
        """Return the command line with these options: a printed command allows everything that was allowed before."""
        flags = {
            "--discard-newer": self.discard_newer,
            "--times-lost": self.times_lost,
            LOCK_IS_SHARED: self.lock_is_shared,
        }
        return command("undo", app, *(flag for flag, is_set in flags.items() if is_set))


def undo(app: Path, options: UndoOptions, *, reason: str | None = None) -> tuple[Run | None, str]:
    """Roll back the newest run that has a backup. Return the run and a message.

    Raise Refused if the backup is not the directory of the switch, or if APP has changed since, unless ``options``
    allow that. Files get their lost times back.
    """
    backups = [run for run in require_understood(read_runs(app)) if run.state is RunState.KEPT]
    if not backups:
        return None, "nothing to undo"
    # Only the newest: an older backup plus the changes of later runs would be no directory that ever
    # existed.
    run = backups[-1]
    times = _prove_kept(app, run, options)
    name = run.events[0]["command"]
    lost = not os.path.lexists(app)
    if not lost and not options.discard_newer:
        _refuse_newer(app, run, options)
    details: dict[str, Any] = {**invoker(), "reason": reason}
    with signals_held():
        try:
            # Before the mark: the times of the old files are part of the directory that comes back.
            set_times(run.tree, times)
            # The mark is durable before ``undoing`` is written, so the mark alone decides after a kill.
            _mark(app, run, lost=lost)
            # If APP is lost, the backup only needs a rename.
            commit(app, run, BACKWARD, announced=details, recorded={}, lost=lost)
        except Refused:
            _cancel(run)
            raise
        except OSError as error:
            _cancel(run)
            raise _failed(app, options, error) from error
    if lost:
        return run, f"run {run.name} ({name}) is undone: {app} was missing, and exists again"
    return run, f"run {run.name} ({name}) is undone"


def _prove_kept(app: Path, run: Run, options: UndoOptions) -> Listing:
    """Raise Refused unless the tree is, file by file, the directory before the run.

    Return the files whose times are to be set.
    """
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise Refused(
            f"run {run.name} has no backup of the earlier directory: {run.tree} is not a directory",
            hint=f"check {run.path}, because another program has removed or replaced the backup",
            hint_details=[f"to abandon the run, run {command('clean', app, '--run', run.name)}"],
        )
    # A backup has lost its marks before the exchange (list_trees): one with the mark was never APP.
    if token_of(run.tree, STAGED) is not None:
        raise Refused(
            f"{run.tree} has a staging mark, so it was never {app}",
            hint=f"check {run.path}, then move it to another place",
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
    """Compare the backup with its list. Return the files whose times are to be set. Raise Refused, OSError."""
    now = every_file(run.tree)
    changed = differences_from(run.path / KEPT_LIST, list_digest, now)
    if not changed:
        return {}
    times = other_times(run.path / KEPT_LIST, list_digest, now)
    if times is None:
        raise Refused(
            f"the backup of run {run.name} has changed: {some(changed, _MOST_NAMES)}",
            where=str(run.tree),
            hint=f"{app} is unchanged, because undo would replace it with a damaged directory. Choose one:",
            hint_details=[
                f"restore the missing files in {run.tree}",
                f"or abandon the run: {command('clean', app, '--run', run.name)}",
            ],
        )
    if not options.times_lost:
        raise _only_times(app, run, options, changed)
    # Sizes and digests of small files are equal; SSTs have no digest in the list, so their blocks are
    # read.
    unreadable = first_unreadable(run.tree)
    if unreadable is not None:
        raise _cannot_be_put_back(app, run, unreadable)
    return times


def _only_times(app: Path, run: Run, options: UndoOptions, changed: list[str]) -> Refused:
    return Refused(
        (
            f"the backup of run {run.name} has changed: {len(changed)} files have the same names and sizes, but "
            f"other times: {some(changed, _MOST_NAMES)}"
        ),
        where=str(run.tree),
        hint=(
            "a copy without times has this effect (cp -r, GNU tar without --format=posix, rsync without -t). "
            "Choose one:"
        ),
        hint_details=[
            "if the original still exists, copy it again with its times (cp -a, rsync -a)",
            "to check every block against its checksum, then restore the backup with its original times: "
            + replace(options, times_lost=True).command(app),
        ],
    )


def _cannot_be_put_back(app: Path, run: Run, why: str) -> Refused:
    return Refused(
        f"kstate cannot restore the backup of run {run.name}: {why}",
        where=str(run.tree),
        hint=f"check {run.tree}. {app} is unchanged",
        hint_details=[f"or abandon the run: {command('clean', app, '--run', run.name)}"],
    )


def _prove_readable(app: Path, run: Run) -> None:
    """Raise Refused unless the tree is understood: an older kstate kept no list to compare it with."""
    wrong = first_problem(run.tree)
    if wrong is not None:
        raise _cannot_be_put_back(app, run, wrong)


def _refuse_newer(app: Path, run: Run, options: UndoOptions) -> None:
    details = run.last("switching")
    now = start_files(app)
    if isinstance(details.get("made"), str):
        changed = differences_from(run.path / MADE_LIST, details["made"], now)
        times = bool(changed) and other_times(run.path / MADE_LIST, details["made"], now) is not None
    else:
        before: Listing = {path: facts[1:] for path, facts in details["fingerprint"].items()}
        changed = differences(before, now)
        times = only_times(before, now)
    # RocksDB starts another MANIFEST at each open for writing. So with the same names no database was opened.
    if changed and not (times and options.times_lost):
        ways = _ways_on(app, run, options)
        if times:
            ways.insert(0, f"if a copy lost the times: {replace(options, times_lost=True).command(app)}")
        only = ""
        if times:
            only = "only the times of files differ, but not their sizes: "
        raise Refused(
            f"{app} has changed since run {run.name}: {only}{some(changed, _MOST_NAMES)}",
            hint="choose:",
            hint_details=ways,
        )


def _ways_on(app: Path, run: Run, options: UndoOptions) -> list[str]:
    aside = f"to move the changed directory aside: {replace(options, discard_newer=True).command(app)}"
    created = run.events[0]
    # Every release accepts an empty directory: migrating it back would restore nothing.
    if created.get("source") == created.get("target") or not holds_tasks(app):
        return [aside]
    source = str(created.get("source", "RELEASE"))
    back = command("migrate", app, "--to", source, *unproven_too(source))
    return [f"to keep the changes since then: {back}", aside]


def _mark(app: Path, run: Run, *, lost: bool) -> None:
    """Mark the backup that goes back. APP loses its marks: a directory that is put aside must not look staged.

    Raise OSError.
    """
    if not lost:
        remove_marks(app)
        share_lock(app, run.tree)
    # A mark from an interrupted undo says nothing about this one.
    if not (run.tree / UNDOING).is_dir() or (run.tree / UNDOING).is_symlink():
        remove_mark(run.tree, UNDOING)
    # A run of an older kstate has no token, so its undo has no mark: recovery refuses it after a kill.
    token = run.token
    if token is not None:
        put_mark(run.tree, UNDOING, token)


def _cancel(run: Run) -> None:
    """Cancel the announcement. If that fails too, the next command does it."""
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
    """Return the first fatal problem or unreadable block of a directory; None if all of it is whole. Raise OSError."""
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
            # Each block is read and its checksum compared; rows are not decoded.
            for _ in shadow.scan(family):
                pass

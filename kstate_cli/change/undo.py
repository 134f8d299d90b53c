"""``undo``: the same exchange, the other way, once what is put back is proved to be what was kept."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kstate_cli.access import access_hint
from kstate_cli.change.commit import BACK, commit
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
    started_files,
)
from kstate_cli.change.folder import invoker, read_runs, understood
from kstate_cli.change.journal import Run, RunState, written_on_full_disk
from kstate_cli.change.lockfile import share_lock
from kstate_cli.change.marks import STAGED, UNDOING, put_mark, remove_mark, remove_marks, token_of
from kstate_cli.errors import Refused, RunFailed
from kstate_cli.releases import unproven_too
from kstate_cli.rocks.errors import RocksError
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.signals import signals_held
from kstate_cli.statedir.database import is_database
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import LOCK_IS_SHARED, command, some

_NAMED = 3


@dataclass(frozen=True, slots=True)
class UndoOptions:
    """How a run is to be taken back."""

    discard_newer: bool = False
    """Also where APP has changed since: what it has become is put aside."""
    times_lost: bool = False
    """Also where files have other times than they had, if all that was kept can be read whole."""
    lock_is_shared: bool = False
    """Whoever asks has made sure that the application is stopped on every host."""

    def command(self, app: Path) -> str:
        """The command that asks for it: one that is printed to be run next allows all that was allowed before."""
        flags = {
            "--discard-newer": self.discard_newer,
            "--times-lost": self.times_lost,
            LOCK_IS_SHARED: self.lock_is_shared,
        }
        return command("undo", app, *(flag for flag, given in flags.items() if given))


def undo(app: Path, options: UndoOptions, *, reason: str | None = None) -> tuple[Run | None, str]:
    """Takes back the newest run that is kept. Returns the run and a message.

    Raises Refused where the kept directory is not what it was at the switch, and once Streams (or anybody) has changed
    APP since, unless ``options`` allow that. Files whose times were lost get their times back.
    """
    kept = [run for run in understood(read_runs(app)) if run.state is RunState.KEPT]
    if not kept:
        return None, "nothing to undo"
    run = kept[-1]
    times = _prove_kept(app, run, options)
    name = run.events[0]["command"]
    lost = not os.path.lexists(app)
    if not lost and not options.discard_newer:
        _refuse_newer(app, run, options)
    details: dict[str, Any] = {**invoker(), "reason": reason}
    with signals_held():
        try:
            set_times(run.tree, times)
            _mark(app, run, lost=lost)
            # Where the application directory is lost, what was kept only has to be renamed.
            commit(app, run, BACK, announced=details, recorded={}, lost=lost)
        except Refused:
            _cancel(run)
            raise
        except OSError as error:
            _cancel(run)
            raise _failed(app, options, error) from error
    if lost:
        return run, f"run {run.name} ({name}) is undone: {app} was lost, and is there again"
    return run, f"run {run.name} ({name}) is undone"


def _prove_kept(app: Path, run: Run, options: UndoOptions) -> Listing:
    """Raises Refused unless the kept tree is, file by file, the directory that the run found.

    Returns the files whose times are to be set.
    """
    if run.tree.is_symlink() or not run.tree.is_dir():
        raise Refused(
            f"run {run.name} has not kept the directory that it found: {run.tree} is no directory",
            hint=f"something else has removed or replaced it; look at {run.path}",
            hint_details=[f"to give the run up: {command('clean', app, '--run', run.name)}"],
        )
    if token_of(run.tree, STAGED) is not None:
        raise Refused(
            f"{run.tree} is marked as staged: it never was {app}", hint=f"look at {run.path}; move it elsewhere"
        )
    wanted = run.last("switching").get("kept")
    if not isinstance(wanted, str):
        _prove_readable(app, run)
        return {}
    try:
        now = every_file(run.tree)
        changed = differences_from(run.path / KEPT_LIST, wanted, now)
        times = other_times(run.path / KEPT_LIST, wanted, now) if changed else {}
        if changed and times is not None:
            if not options.times_lost:
                raise _only_times(app, run, options, changed)
            unreadable = what_is_unreadable(run.tree)
            if unreadable is not None:
                raise _cannot_be_put_back(app, run, unreadable)
            return times
    except OSError as error:
        raise Refused(
            f"{error.filename or run.tree} cannot be read: {error.strerror}",
            hint=access_hint(error.filename or run.tree),
        ) from None
    if changed:
        raise Refused(
            f"what run {run.name} has kept is not what it was: {some(changed, _NAMED)}",
            where=str(run.tree),
            hint=f"{app} stays as it is: undo would put a damaged directory in its place",
            hint_details=[
                f"put back what is missing in {run.tree}",
                f"or give it up: {command('clean', app, '--run', run.name)}",
            ],
        )
    return {}


def _only_times(app: Path, run: Run, options: UndoOptions, changed: list[str]) -> Refused:
    return Refused(
        f"what run {run.name} has kept is not what it was: only times differ, of {len(changed)} files that have the "
        f"names and sizes they had: {some(changed, _NAMED)}",
        where=str(run.tree),
        hint="a copy without times does that (cp -r, GNU tar without --format=posix, rsync without -t); choose:",
        hint_details=[
            "copy it once more with its times (cp -a, rsync -a), if the original is still there",
            "to have every block of it read against its checksum, then put it back with the times that it had: "
            + replace(options, times_lost=True).command(app),
        ],
    )


def _cannot_be_put_back(app: Path, run: Run, why: str) -> Refused:
    return Refused(
        f"what run {run.name} has kept cannot be put back: {why}",
        where=str(run.tree),
        hint=f"{app} stays as it is; look at {run.tree}",
        hint_details=[f"or give it up: {command('clean', app, '--run', run.name)}"],
    )


def _prove_readable(app: Path, run: Run) -> None:
    """An older kstate kept no list of files: at least everything in the tree must be understood. Raises Refused."""
    wrong = what_is_not_understood(run.tree)
    if wrong is not None:
        raise _cannot_be_put_back(app, run, wrong)


def _refuse_newer(app: Path, run: Run, options: UndoOptions) -> None:
    details = run.last("switching")
    now = started_files(app)
    if isinstance(details.get("made"), str):
        changed = differences_from(run.path / MADE_LIST, details["made"], now)
        times = bool(changed) and other_times(run.path / MADE_LIST, details["made"], now) is not None
    else:
        before: Listing = {path: facts[1:] for path, facts in details["fingerprint"].items()}
        changed = differences(before, now)
        times = only_times(before, now)
    # RocksDB begins another MANIFEST whenever it opens a database for writing: the same names say that nobody has.
    if changed and not (times and options.times_lost):
        ways = _ways_on(app, run, options)
        if times:
            ways.insert(0, f"if it was copied without its times: {replace(options, times_lost=True).command(app)}")
        only = "only the times of files, not their sizes: " if times else ""
        raise Refused(
            f"{app} has changed since run {run.name}: {only}{some(changed, _NAMED)}", hint="choose:", hint_details=ways
        )


def _ways_on(app: Path, run: Run, options: UndoOptions) -> list[str]:
    aside = f"to put it aside: {replace(options, discard_newer=True).command(app)}"
    created = run.events[0]
    # An empty directory is where every release wants it: migrating it brings nothing back.
    if created.get("source") == created.get("target") or not holds_tasks(app):
        return [aside]
    source = str(created.get("source", "RELEASE"))
    back = command("migrate", app, "--to", source, *unproven_too(source))
    return [f"to keep what was done since: {back}", aside]


def _mark(app: Path, run: Run, *, lost: bool) -> None:
    """Marks what goes back. What is put aside must not look as if it had only been staged. Raises OSError."""
    if not lost:
        remove_marks(app)
        share_lock(app, run.tree)
    # One that an interrupted undo has left, or somebody: it says nothing of this one.
    if not (run.tree / UNDOING).is_dir() or (run.tree / UNDOING).is_symlink():
        remove_mark(run.tree, UNDOING)
    token = run.token
    if token is not None:
        put_mark(run.tree, UNDOING, token)


def _cancel(run: Run) -> None:
    """Takes the announcement back; where that fails too, the next command does it."""
    with contextlib.suppress(OSError):
        if run.state is RunState.UNDOING:
            written_on_full_disk(run, "undo-cancelled")
        remove_mark(run.tree, UNDOING)


def _failed(app: Path, options: UndoOptions, error: OSError) -> RunFailed:
    where = f" ({error.filename})" if error.filename else ""
    return RunFailed(
        f"undo failed: {error.strerror}{where}",
        where=str(app),
        hint=f"{app} is as it was; fix the cause, then: {options.command(app)}",
    )


def what_is_not_understood(tree: Path) -> str | None:
    """The first thing in a directory that cannot be understood; None where all of it can. Raises OSError."""
    wrong = (one for one in read_application(tree).all_problems() if one.fatal)
    return next((one.text for one in wrong), None)


def what_is_unreadable(tree: Path) -> str | None:
    """The first thing in a directory that cannot be understood or read; None where all of it can. Raises OSError."""
    wrong = what_is_not_understood(tree)
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
            for _ in shadow.scan(family):
                pass

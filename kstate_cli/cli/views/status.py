"""Print the runs of an application for people: how each ended, its backup, and what to do next."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from kstate_cli.change.commit import RecoveryOutcome
from kstate_cli.change.journal import CREATED, DAMAGED, INTERRUPTED, RunState
from kstate_cli.change.lost import LostCopy, OnlyCopy
from kstate_cli.change.standby import StandbyUse
from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import print_line, print_prose, safe, say, screen_width, table
from kstate_cli.clock import duration_text
from kstate_cli.diagnosis import PLACEHOLDER
from kstate_cli.texts import command, size_text

if TYPE_CHECKING:
    from kstate_cli.cli.lines.changes import StatusRunLine

_KEPT, _UNDONE, _FAILED = RunState.KEPT.value, RunState.UNDONE.value, RunState.FAILED.value
_ENDS = {_KEPT: "done", _UNDONE: "undone", RunState.CLEANING.value: "being cleaned", DAMAGED: "damaged"}
_STANDBY = {
    StandbyUse.unused: "this directory is a standby, and no application has used it since its last update",
    StandbyUse.used: "this directory was a standby. An application has used it, so kstate has stopped updating it",
    StandbyUse.unreadable: "this directory is a standby, but kstate cannot read the file that records its state",
}
_NEWEST = 10
"""Runs on a terminal: a screen shows those of the last night."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Backups that exist nowhere else: kstate never suggests to delete them."""

    lost: tuple[LostCopy, ...] = ()
    """Backups of stores that the directory no longer has."""
    only: OnlyCopy | None = None
    """Backup of a directory that does not exist any more."""


@dataclass(frozen=True, slots=True)
class DirectoryUse:
    """Who uses the application directory."""

    is_locked: bool | None
    """None: kstate cannot find out."""
    pid: int | None
    """The process that holds the lock; None: unknown."""
    standby: StandbyUse | None
    """The use of the directory as a standby; None if it was never one."""
    outcomes: Mapping[str, RecoveryOutcome | None] = field(default_factory=dict)
    """How the next command will settle each interrupted run, by its name; None if nothing proves it."""


def show_runs(
    app: Path,
    rows: Sequence[StatusRunLine],
    seconds: Mapping[str, float | None],
    copies: Copies,
    *,
    use: DirectoryUse,
    quiet: bool = False,
) -> None:
    """Print the runs, oldest first, and unless ``quiet`` what to do next.

    ``seconds`` has the duration of each run by its name; None if it has neither switched nor failed. ``copies`` are
    the backups that kstate must not suggest to delete. ``bytes_pinned`` is the size of a backup, below ``keeps`` in the
    table.
    """
    if not rows:
        _show_standby(use.standby)
        say(
            "no kstate run is recorded for this directory. Either kstate has not changed it, or `kstate clean` has "
            "deleted the runs",
            quiet=quiet,
        )
        return
    backup_bytes = sum(row["bytes_pinned"] for row in rows)
    # The space comes first, because most people look here when a disk is full.
    print_line(safe(f"{app}: {_in_use(use.is_locked, use.pid)}; its runs use {size_text(backup_bytes)}"), "bold")
    _show_standby(use.standby)
    print_line("")
    newest = rows
    if screen_width() is not None:
        newest = rows[-_NEWEST:]
    table(
        None,
        ("run", Column("command", fold=Fold.WORDS), "ended", "began", Column("took", right=True, spare=1),
         Column("keeps", right=True)),
        [
            (row["run"], row["command"] or "-", _end(row), _time(row["started"]), _took(seconds[row["run"]]),
             size_text(row["bytes_pinned"]))
            for row in newest
        ],
        quiet=quiet,
    )  # fmt: skip
    if len(newest) < len(rows):
        older = len(rows) - len(newest)
        hidden, pronoun = ("1 older run is", "it") if older == 1 else (f"{older:,} older runs are", "them")
        print_prose(f"{hidden} not shown. To see {pronoun}, use a pipe or -o json")
    _show_staging(rows)
    _show_progress(rows)
    if quiet:
        _show_lost_copies(copies)
        return
    # All runs count here, not only those in the table: the only copy may be in an old one.
    lines = list(_next(app, rows, copies, use.outcomes, is_locked=use.is_locked))
    if lines:
        print_line("")
    for text, line in lines:
        print_prose(text, hanging="  ")
        if line is not None:
            print_line(safe(f"    {line}"))


def _show_lost_copies(copies: Copies) -> None:
    """Print the backups that exist nowhere else: a problem, which ``quiet`` does not hide."""
    if copies.only is not None:
        print_prose(copies.only.text, hanging="  ")
    for copy in copies.lost:
        print_prose(f"{copy.run.name}: {copy.text}", hanging="  ")


def _show_standby(standby: StandbyUse | None) -> None:
    """Print whether the directory is a standby, if it ever was one."""
    if standby is not None:
        print_prose(_STANDBY[standby], hanging="  ")


def _in_use(is_locked: bool | None, pid: int | None) -> str:
    """Return whether a process uses the directory, for the heading; see :class:`DirectoryUse`."""
    if is_locked is None:
        return "kstate does not know whether it is in use"
    if not is_locked:
        return "not in use"
    if pid:
        return f"in use by process {pid}"
    # A process of another user, or on another host that shares the directory.
    return "in use"


def _word(row: StatusRunLine) -> str:
    """Return the state of a run as the table shows it, and as `kstate explain` knows it."""
    return INTERRUPTED if row["cut_short"] else row["state"]


def _end(row: StatusRunLine) -> str:
    """Return how a run has ended, or that it has not."""
    state = row["state"]
    if row["cut_short"]:
        if row["signal"]:
            return f"interrupted by {row['signal']}"
        return "interrupted"
    if state in (_FAILED, INTERRUPTED):
        return str(state)
    if state in _ENDS:
        return _ENDS[state]
    return f"in progress: {row['restoration'] or state}"


def _time(at: str | None) -> str:
    """Return a time to the minute, in UTC; "-" for a run whose journal has no time."""
    if at is None:
        return "-"
    # UTC, since the hosts of an application may be in several time zones.
    return datetime.fromisoformat(at).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%MZ")


def _took(seconds: float | None) -> str:
    """Return a duration; "-" for a run that has neither switched nor failed."""
    if seconds is None:
        return "-"
    return duration_text(seconds)


_Step = tuple[str, str | None]
"""A sentence, and the command that does it; None if no single command does."""
_RERUN = "To continue, run its command again"
_INTERRUPTIONS: Mapping[RecoveryOutcome | None, str] = {
    None: (
        "this run's process has exited. The directory is either entirely in its old state or entirely in its new state"
    ),
    RecoveryOutcome.SWEPT: (
        "this run's process exited before it swapped the directories. The directory is entirely in its old state"
    ),
    RecoveryOutcome.FINISHED: (
        "this run's process exited after it swapped the directories. The directory is entirely in its new state"
    ),
    RecoveryOutcome.UNDO_CANCELLED: (
        "the undo of this run was interrupted before it swapped the directories. The directory is entirely in its "
        "state after the run"
    ),
    RecoveryOutcome.UNDO_FINISHED: (
        "the undo of this run was interrupted after it swapped the directories. The directory is entirely in its "
        "state before the run"
    ),
}
"""What is certain about the directory of an interrupted run, by how the next command will settle it."""


def _rerun_of(app: Path, row: StatusRunLine) -> str | None:
    """Return the command of a run as it can be pasted; None if its journal lacks an argument, or it is ambiguous.

    The path of the application directory becomes absolute: in another working directory, ``kstate restore app`` would
    create a new directory.
    """
    words = row["by"].get("argv") or []
    if not isinstance(words, list) or any(not isinstance(word, str) or PLACEHOLDER in word for word in words):
        return None
    # Normalized, since app and ./app/ are one path.
    paths = [word if word.startswith("-") else os.path.normpath(word) for word in words]
    # The journal does not record the working directory: the argument is the word with which the directory's path ends.
    candidates = [at for at, path in enumerate(paths) if at and _ends_with(app, path)]
    # A store, a dump or a staging folder may have the same name; if a word is an absolute path, it is the directory.
    candidates = [at for at in candidates if paths[at].startswith("/")] or candidates
    if len(candidates) != 1:
        return None
    words = list(words)
    words[candidates[0]] = os.fspath(app)
    return command(*words)


def _ends_with(app: Path, path: str) -> bool:
    """Return whether an argument may name APP: its absolute path or that of its parent, or the end of its path."""
    if path.startswith("/"):
        return Path(path) in (app, app.parent)
    parts = Path(path).parts
    return bool(parts) and ".." not in parts and app.parts[-len(parts) :] == parts


def _next(
    app: Path,
    rows: Sequence[StatusRunLine],
    copies: Copies,
    outcomes: Mapping[str, RecoveryOutcome | None],
    *,
    is_locked: bool | None,
) -> Iterator[_Step]:
    """Yield what to do next, most urgent first: lost copies, unfinished runs, the last run, then free space."""
    if copies.only is not None:
        # The directory itself is gone: only the backup matters until it is restored.
        yield f"{copies.only.text}. To restore the backup:", copies.only.back
        return
    yield from _of_lost_copies(copies)
    for row in rows:
        yield from _of_unfinished(app, row, outcomes, is_locked=is_locked)
    yield from _of_last_run(app, rows[-1])
    yield from _of_backups(app, rows, {copy.run.name for copy in copies.lost})
    words = dict.fromkeys(_word(row) for row in rows[-_NEWEST:] if row["state"] not in (_KEPT, _UNDONE))
    for word in words:
        yield f"to see what {word} means:", command("explain", word)


def _of_lost_copies(copies: Copies) -> Iterator[_Step]:
    """Yield how to restore or delete each backup of a store that the directory no longer has."""
    for copy in copies.lost:
        yield f"{copy.run.name}: {copy.text}", None
        if copy.back is not None:
            yield "to restore this backup:", copy.back
        yield "to delete this backup permanently:", copy.delete


def _rerun(app: Path, row: StatusRunLine) -> _Step:
    """Return the step that continues a run: its command, or only the name of the command if an argument is unknown."""
    again = _rerun_of(app, row)
    if again is None and row["command"]:
        return f"{_RERUN} ({row['command']})", None
    return _RERUN, again


def _of_unfinished(
    app: Path, row: StatusRunLine, outcomes: Mapping[str, RecoveryOutcome | None], *, is_locked: bool | None
) -> Iterator[_Step]:
    """Yield what to do about a run that has not ended."""
    name, state = row["run"], row["state"]
    if state == DAMAGED:
        yield (
            (
                f"{name}: {row['message']}. kstate does not change this run. Inspect {row['path']}, then move it "
                "elsewhere"
            ),
            None,
        )
    elif state in (INTERRUPTED, CREATED):
        # An interrupted run is finished or removed as a whole, because the switch is one rename.
        outcome = outcomes.get(name)
        step, again = _rerun(app, row)
        if outcome is RecoveryOutcome.UNDO_CANCELLED:
            step, again = "To undo the run:", command("undo", app)
        elif outcome is RecoveryOutcome.UNDO_FINISHED:
            # Another undo might roll back the run before this one.
            step, again = "The next command that changes the directory completes the undo", None
        yield f"{name}: {_INTERRUPTIONS[outcome]}. {step}", again
    elif state == RunState.CLEANING.value and not is_locked:
        yield f"kstate has deleted only part of {name}. To continue:", command("clean", app, "--run", name)


def _of_last_run(app: Path, last: StatusRunLine) -> Iterator[_Step]:
    """Yield how to repeat the last run if a signal or an error ended it."""
    if last["cut_short"]:
        step, again = _rerun(app, last)
        yield f"{last['run']} left the directory unchanged. {step}", again
    elif last["state"] == _FAILED:
        yield f"{last['run']}: {last['message']}", None
        more, again = "", _rerun_of(app, last)
        if last["restoration"] == "ERROR":
            more = " with --after-error"
            if again is not None:
                again += " --after-error"
        yield f"this run left the directory unchanged. Fix the cause, then run its command again{more}", again


def _of_backups(app: Path, rows: Sequence[StatusRunLine], lost_runs: Collection[str]) -> Iterator[_Step]:
    """Yield how to undo, and how to free space. Backups that are the only copy of a store are excluded."""
    undoable = next((row for row in reversed(rows) if row["state"] == _KEPT), None)
    if undoable is not None and undoable["run"] not in lost_runs:
        yield f"to undo {undoable['run']} ({undoable['command']}):", command("undo", app)
    deletable = [row for row in rows if row["state"] in (_KEPT, _UNDONE, _FAILED) and row["run"] not in lost_runs]
    if deletable:
        freed = size_text(sum(row["bytes_pinned"] for row in deletable))
        after = ""
        if undoable is not None:
            after = " (you can then no longer undo any run)"
        yield f"to free {freed}{after}:", command("clean", app)


def _show_staging(rows: Sequence[StatusRunLine]) -> None:
    staging = [(row["run"], row["staging"]) for row in rows if row["staging"]]
    if not staging:
        return
    print_line("")
    table(
        "staging areas, which `kstate clean` deletes together with their runs",
        ("run", "place", Column("files", right=True), Column("bytes", right=True), Column("stays", fold=Fold.WORDS)),
        [(run, area["path"], area["files"], size_text(area["bytes"]), area["message"] or "-") for run, area in staging],
    )


def _show_progress(rows: Sequence[StatusRunLine]) -> None:
    stores = [(row["run"], store) for row in rows for store in row["progress"]]
    if not stores:
        return
    print_line("")
    table(
        "restoring",
        ("run", "store", Column("done", right=True), Column("records", right=True)),
        [
            (
                run,
                f"{store['task']}/{store['store']}",
                f"{100 * store['slices'] // max(1, store['of'])} %",
                f"{store['records']:,}",
            )
            for run, store in stores
        ],
    )

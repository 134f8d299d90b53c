"""Print a plan, the same for ``--dry-run`` and before a run, the progress of the run, and its result.

Progress is a bar on a terminal, and a plain line now and then elsewhere. That of a single command is in the view of
that command, with what it imports: every change imports this module.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from kstate_cli import option
from kstate_cli.cli import standard
from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import (
    Activity,
    message_lines,
    print_line,
    print_prose,
    progress_bar,
    safe,
    say,
    screen_width,
    table,
    waiting,
)
from kstate_cli.clock import Pace, PaceMeter, duration_text, pace_text
from kstate_cli.signals import start
from kstate_cli.statedir.names import LOCK
from kstate_cli.texts import command, plural, size_text

if TYPE_CHECKING:
    from pathlib import Path

    from rich.progress import Progress, TaskID

    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan, Step
    from kstate_cli.cli.lines.changes import PlanEnd, PlanLine
    from kstate_cli.cli.lines.shared import EngineMembers
    from kstate_cli.cli.output import Output
    from kstate_cli.spark.engine import EngineChoice


_Summary = TypeVar("_Summary")


@dataclass(frozen=True, slots=True)
class PlanView:
    """How to print a plan."""

    results: Output[PlanLine]
    dry_run: bool
    workers: int
    is_undoable: bool = True
    """The replaced directories stay as a backup for undo."""
    verbose: bool = False
    """Print each step before a run too, and one by one on a terminal; a dry run always prints them."""
    copied: bool = False
    """SSTs are copied instead of linked."""
    engine: EngineChoice | None = None
    """The engine that reads the dump; None for a plan that reads none."""
    consequence: str = ""
    """A sentence about the next start after the change; empty if it does nothing special."""


def show_plan(plan: Plan, view: PlanView) -> None:
    """Print the plan as a summary, for a dry run step by step too, or as JSON lines; warnings go to standard error.

    For a dry run the plan is the result; before a run it is a message, which ``quiet`` hides. It is flushed before the
    first change: raise OutputLost if that fails.
    """
    view.results.show(_lines(plan), lambda: _show_steps(plan, view))
    standard.finish()


def _lines(plan: Plan) -> Iterator[PlanLine]:
    for step in plan.steps:
        yield {"type": "step", "action": step.action, "path": step.path, "message": step.describe()}
    for text in plan.warnings:
        yield {"type": "warning", "message": text}
    for text in plan.notes:
        yield {"type": "note", "message": text}


def _show_steps(plan: Plan, view: PlanView) -> None:
    """Print a summary of the steps; in a dry run or with ``verbose``, each step before it.

    The summary comes last, because a terminal scrolls the first lines of a long plan away.
    """
    # The steps are listed only in a dry run, whose purpose is to show them, or on request: a long run has hundreds.
    if plan.steps and (view.dry_run or (view.verbose and not view.results.quiet)):
        rows = _step_rows(plan.steps)
        if screen_width() is not None and not view.verbose:
            rows = _short_rows(plan.steps)
        table(None, ("step", "path", Column("what", fold=Fold.WORDS)), rows)
        print_line("")
        # Flushed, because the messages go to the other stream, which may be the same terminal.
        sys.stdout.flush()
    for text in plan.notes:
        view.results.say(f"note: {text}")
    for text in plan.warnings:
        say(f"warning: {text}")
    if plan.steps and (view.dry_run or not view.results.quiet):
        print_line(safe(f"{plan.command}: {plan.app}"), "bold")
        for line in _summed_up(plan, view):
            if line.startswith(" "):
                # A command, which stays in one piece.
                print_line(safe(f"  {line}"))
            else:
                print_prose(line, indent="  ")


_STEP_NAMES: Final = {
    "leave out": "remove",
    "edit store": "edit database",
    "create carrier segment": "create segment",
}
"""The names of steps on a terminal, where they differ from those in JSON, which stay stable."""
_UNKNOWN_OFFSET: Final = re.compile(r"(?<==)-4\b")


def _step_rows(steps: Iterable[Step]) -> list[tuple[str, str, str]]:
    """Return a row for each step."""
    return [(_step_name(step), step.path, _step_text(step)) for step in steps]


def _short_rows(steps: Iterable[Step]) -> list[tuple[str, str, str]]:
    """Return the rows for a terminal: one for all segments of a store that change alike, with short texts."""
    rows: list[tuple[str, str, str]] = []
    for (name, place, text), group in groupby(steps, _likeness):
        alike = list(group)
        path = alike[0].path
        if len(alike) > 1:
            path = f"{place} ({plural(len(alike), 'segment')})"
        rows.append((name, path, text))
    return rows


def _likeness(step: Step) -> tuple[str, str, str]:
    """Return the name, the place and the short text of a step; the place of a segment is its store."""
    from kstate_cli.change.plan import EditDatabase

    place = step.path
    if isinstance(step, EditDatabase) and step.before.segment_start is not None:
        place = place.rpartition("/")[0]
    text = getattr(step, "short_text", "") or _step_text(step)
    return _step_name(step), place, text


def _step_name(step: Step) -> str:
    return _STEP_NAMES.get(step.action, step.action)


def _step_text(step: Step) -> str:
    """Return the description of a step for people."""
    text = getattr(step, "screen_text", "") or step.describe()
    return _UNKNOWN_OFFSET.sub("-4 (unknown)", text)


def _summed_up(plan: Plan, view: PlanView) -> Iterator[str]:
    """Return the number of steps, disk space and time, and the place of the backup."""
    from kstate_cli.change.folder import runs_folder
    from kstate_cli.change.lockfile import required_space, reserve_of

    # This function also refuses a run for lack of space, so the number printed is the one that is checked.
    space = required_space(plan, view.workers, copy_ssts=view.copied)
    # Steps are counted by kind, because a plan may have hundreds.
    counts = Counter(_STEP_NAMES.get(step.action, step.action) for step in plan.steps)
    actions = f": {', '.join(f'{count} x {action}' for action, count in counts.most_common())}"
    if len(counts) == 1:
        actions = f" ({next(iter(counts))})"
    yield f"{_extent(plan)}; {plural(len(plan.steps), 'step')}{actions}"
    if plan.opens_in:
        from kstate_cli.cli.views.stores import span

        yield f"after the change, all stores open in {span(plan.opens_in)}"
    reserve = size_text(reserve_of(plan, view.workers))
    yield f"data to write: {size_text(plan.rewritten_bytes)}"
    yield f"free space needed: {size_text(space)}, including a reserve of {reserve} for open databases"
    if view.engine is not None:
        yield f"engine: {engine_text(view.engine)}"
    yield _time(plan, view)
    if view.is_undoable and _has_content(plan.app):
        keeps = "kstate keeps a backup of the current directory"
        if view.dry_run:
            keeps = "kstate will keep a backup of the current directory"
        yield f"{keeps} in {runs_folder(plan.app)}. To delete the backup later:"
        yield f"  {command('clean', plan.app)}"
    elif not view.is_undoable:
        yield "kstate keeps no backup of the removed stores"
    if view.consequence:
        yield view.consequence


def _has_content(app: Path) -> bool:
    """Return whether there is anything to keep: a run on a lost directory has created it, with the lock file alone."""
    try:
        return bool(set(os.listdir(app)) - {LOCK})
    except FileNotFoundError:
        return False


def _extent(plan: Plan) -> str:
    """Return the stores and tasks of the steps."""
    extent = plural(len(plan.tasks), "task")
    if plan.stores:
        extent = f"{plural(plan.stores, 'store')} in {extent}"
    return extent


def _time(plan: Plan, view: PlanView) -> str:
    """Return about how long the plan takes, by an earlier run if there is one."""
    from kstate_cli.change.earlier_runs import expected
    from kstate_cli.change.folder import read_runs

    # Only plans of restorations have an engine.
    is_spark = view.engine is not None and view.engine.is_spark
    # The forecast is by earlier runs of this kind on this host, since another host has other disks.
    forecast = expected(plan, view.workers, read_runs(plan.app))
    amount = "less than 10 s"
    if not forecast.is_short:
        amount = f"about {duration_text(forecast.rounded)}"
    # If a like run is known, its time includes the start of Spark.
    start, reckoned = "", f"based on run {forecast.like}"
    if forecast.like is None:
        reckoned = "kstate has no earlier run to compare with"
        if is_spark:
            start = ", plus about 10 s to start Spark"
    return f"estimated time: {amount}{start} ({reckoned})"


def engine_text(choice: EngineChoice) -> str:
    """Return the engine and the reason for it, as a line of a plan shows them."""
    engine = "local processes"
    if choice.is_spark:
        engine = "Spark"
    reason = choice.reason
    if choice.is_requested:
        reason = f"you passed {option.ENGINE}"
    return f"{engine} ({reason})"


def engine_members(choice: EngineChoice) -> EngineMembers:
    """Return the members of a summary that state the engine."""
    return {"engine": choice.engine.value, "engine_reason": choice.reason}


def show_end(
    plan: Plan,
    result: RunResult | None,
    results: Output[_Summary],
    *,
    summary: Callable[[PlanEnd], _Summary],
    nothing: str,
    sentences: Callable[[RunResult], Iterable[str]],
) -> None:
    """Print the result of a plan: the line that ``summary`` makes of its end, or messages for people.

    ``nothing`` is the text for a plan without steps; ``sentences`` returns the messages for a run; ``result`` is None
    without a run.
    """
    run = None
    if result is not None:
        run = result.run
    end: PlanEnd = {
        "steps": len(plan.steps),
        "warnings": len(plan.warnings),
        "executed": result is not None,
        "run": run,
    }
    # The line for programs comes first; the rest is for people.
    results.lines([summary(end)])
    if plan.empty:
        results.remark(f"nothing to do: {nothing}")
    elif result is None:
        planned = f"{plural(len(plan.steps), 'step')} planned"
        if plan.warnings:
            planned += f", {plural(len(plan.warnings), 'warning')}"
        results.remark(f"dry run: {planned}. kstate has changed nothing. To make the change, omit {option.DRY_RUN}")
    else:
        for sentence in sentences(result):
            results.remark(sentence)


def exit_code(plan: Plan, *, warnings_ok: bool, warned: bool = False) -> int:
    """Return 1 if the plan has warnings, also one without a step, or the run has ``warned``; 0 with ``warnings_ok``."""
    return int(not warnings_ok and (warned or bool(plan.warnings)))


OFTEN_SECONDS: Final = 10.0
SELDOM_SECONDS: Final = 60.0
_OFTEN_UNTIL: Final = 120.0
"""Seconds between plain lines: first ``OFTEN_SECONDS``, and ``SELDOM_SECONDS`` after ``_OFTEN_UNTIL``."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work, and how people read its amounts."""

    amount: Callable[[int, int], str]
    """Text for an amount and the total."""
    rate: Callable[[float], str]
    """Text for an amount per second."""


def count_unit(noun: str, *, about: bool = False) -> Unit:
    """Return a unit of things: ``1,000 of about 2,000 rows``."""
    of = "of"
    if about:
        of = "of about"
    return Unit(
        lambda count, total: f"{count:,} {of} {total:,} {noun}",
        lambda rate: f"{rate:,.{0 if rate >= 10 else 1}f} {noun}",
    )


BYTES: Final = Unit(
    lambda count, total: f"{size_text(count)} of {size_text(total)}", lambda rate: size_text(max(1, round(rate)))
)


class NowAndThen:
    """The times at which a plain line is due, by a monotonic clock."""

    def __init__(self, began: float) -> None:
        self._began = self._last_printed = began

    def is_due(self, now: float) -> bool:
        """Return whether a line is due now, and schedule the next one."""
        seconds = SELDOM_SECONDS
        if now - self._began < _OFTEN_UNTIL:
            # A person who has just started it still looks; a log of hours must stay readable.
            seconds = OFTEN_SECONDS
        due = now - self._last_printed >= seconds
        if due:
            self._last_printed = now
        return due


class Meter:
    """Show amount, rate and time left of long work. ``stop`` removes the bar.

    Before and after the bar a terminal shows the current phase once it takes long: from ``prepare`` to ``close``.
    """

    def __init__(self, text: str, *, quiet: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._text, self._quiet, self._now = text, quiet, now
        self._unit = BYTES
        self._pace: PaceMeter | None = None
        # Replaced when the work begins: before that no line is due.
        self._lines = NowAndThen(0.0)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._phases = ExitStack()
        self._activity: Activity | None = None

    def prepare(self, text: str) -> None:
        """Show ``text`` until the bar begins, if that takes long. The caller must ``close`` the meter."""
        self._activity = self._phases.enter_context(waiting(text, quiet=self._quiet))

    def close(self) -> None:
        """Stop, and show no phase any more."""
        self.stop()
        self._phases.close()

    def phase(self, text: str) -> None:
        """Name the current phase; an empty text: nothing is under way."""
        if self._activity is not None:
            self._activity.call(text)

    @property
    def on_a_terminal(self) -> bool:
        """Return whether a bar shows it."""
        return not self._quiet and sys.stderr.isatty()

    @property
    def has_begun(self) -> bool:
        """Return whether ``begin`` was called."""
        return self._pace is not None

    def begin(self, total: int, unit: Unit, *, already: int = 0, began: float | None = None) -> None:
        """Start with ``total``, of which ``already`` was done before ``began``, by the same clock."""
        self._unit = unit
        if began is None:
            began = self._now()
        self._lines = NowAndThen(began)
        self._pace = PaceMeter(total, began, already=already)
        if not self.on_a_terminal:
            return
        from rich.progress import TextColumn

        self._bar = progress_bar("{task.description}", TextColumn("{task.fields[shown]}"))
        start(self._bar)
        amount = unit.amount(already, total)
        self._task = self._bar.add_task(self._text, total=max(1, total), completed=already, shown=amount)

    def at(self, count: int) -> Pace | None:
        """Update the amount that is done; return None before ``begin``."""
        if self._pace is None:
            return None
        now = self._now()
        pace = self._pace.at(count, now)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=pace.count, shown=self._status_text(pace), description=self._text)
        elif not self._quiet and self._lines.is_due(now):
            say(f"kstate: {self._text}: {self._status_text(pace)}")
        return pace

    def call(self, text: str) -> None:
        """Rename the current work."""
        self._text = text
        self.phase(text)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=text)

    def say(self, text: str, *, always: bool = False) -> None:
        """Print a message, above the bar if there is one; with ``always`` even if quiet."""
        if self._bar is not None:
            # ``rich`` would fold a command in the middle: the lines are folded before it gets them.
            for line in message_lines(text):
                self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            say(text, quiet=self._quiet and not always)

    def stop(self) -> None:
        """Stop, and remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = self._pace = None

    def _status_text(self, pace: Pace) -> str:
        rate = None
        if pace.per_second is not None:
            rate = self._unit.rate(pace.per_second)
        return pace_text(pace, self._unit.amount(pace.count, pace.total), rate)


class ByteProgress:
    """Progress of work whose bytes several threads report part by part. A context manager."""

    def __init__(self, text: str, *, quiet: bool) -> None:
        self._meter = Meter(text, quiet=quiet)
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> ByteProgress:
        # Its caller lists files before their sizes are known.
        self._meter.prepare("reading the list of files")
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def begin(self, total: int) -> None:
        """Start with the bytes of all parts."""
        self._meter.begin(total, BYTES)

    def add(self, size: int) -> None:
        """Count the bytes of a part."""
        with self._lock:
            self._count += size
            self._meter.at(self._count)


class RunProgress:
    """Progress of a run: phases, and the bytes that it rewrites, or its databases if it rewrites none."""

    _NAMES: ClassVar = {
        "read": "reading",
        "stage": "staging",
        "store": "rewriting",
        "verify": "verifying",
        "switch": "switching",
        "purge": "deleting",
    }

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._amount = self._bytes = self._databases = 0
        self._meter = Meter("staging", quiet=quiet)

    def __enter__(self) -> RunProgress:
        self._meter.prepare("preparing")
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.close()

    def expect(self, plan: Plan) -> None:
        """Take the plan of the run."""
        self._bytes, self._databases = plan.rewritten_bytes, plan.databases

    def __call__(self, phase: str, path: str, size: int) -> None:
        """Take the phase, its place, and the bytes since the last call, from the engine."""
        # A phase of fsyncs counts as part of the phase before it.
        if phase == "sync":
            return
        if phase != self._phase:
            # Phases follow each other, and each is named once.
            self._phase = phase
            name = self._NAMES.get(phase, phase)
            self._meter.call(name)
            if not self._meter.on_a_terminal:
                say(f"kstate: {name}", quiet=self._quiet)
            if phase == "stage" and self._databases:
                if self._bytes:
                    self._meter.begin(self._bytes, BYTES)
                else:
                    self._meter.begin(self._databases, count_unit("databases"))
        # In this phase there is one call for each database, with the bytes that were written.
        if phase == "store":
            self._amount += size if self._bytes else 1
            self._meter.at(self._amount)

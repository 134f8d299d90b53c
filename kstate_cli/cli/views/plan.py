"""Print a plan, the same for ``--dry-run`` and before a run, and the result of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kstate_cli.cli import standard
from kstate_cli.cli.columns import Column, Fold
from kstate_cli.cli.output import print_line, safe, say, table
from kstate_cli.clock import duration_text
from kstate_cli.texts import command, plural, size_text

if TYPE_CHECKING:
    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan
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
    """Print each step before a run too; a dry run always does."""
    copied: bool = False
    """SSTs are copied instead of linked."""
    engine: EngineChoice | None = None
    """The engine that reads the dump; None for a plan that reads none."""


def show_plan(plan: Plan, how: PlanView) -> None:
    """Print the plan as a summary, for a dry run step by step too, or as JSON lines; warnings go to standard error.

    For a dry run the plan is the result; before a run it is a message, which ``quiet`` hides. It is flushed before the
    first change: raise OutputLost if that fails.
    """
    how.results.show(_lines(plan), lambda: _show_steps(plan, how))
    standard.finish()


def _lines(plan: Plan) -> Iterator[PlanLine]:
    for step in plan.steps:
        yield {"type": "step", "action": step.action, "path": step.path, "message": step.describe()}
    for text in plan.warnings:
        yield {"type": "warning", "message": text}
    for text in plan.notes:
        yield {"type": "note", "message": text}


def _show_steps(plan: Plan, how: PlanView) -> None:

    if plan.steps and (how.dry_run or not how.results.quiet):
        print_line(safe(f"{plan.command}: {plan.app}"), "bold")
        for line in _summed_up(plan, how):
            print_line(safe(f"  {line}"))
        # A run of hours has hundreds of steps, and its summary would scroll away: a dry run is for reading them.
        if how.dry_run or how.verbose:
            print_line("")
            table(
                None,
                ("step", "path", Column("what", fold=Fold.WORDS)),
                [(step.action, step.path, step.describe()) for step in plan.steps],
            )
    for text in plan.warnings:
        say(f"warning: {text}")
    for text in plan.notes:
        how.results.say(f"note: {text}")


def _summed_up(plan: Plan, how: PlanView) -> Iterator[str]:
    """Return the number of steps, disk space and time, and the place of the backup."""
    from kstate_cli.change.folder import runs_folder
    from kstate_cli.change.lockfile import required_space

    room = required_space(plan, how.workers, copy_ssts=how.copied)
    counts = Counter(step.action for step in plan.steps)
    actions = ", ".join(f"{count} x {action}" for action, count in counts.most_common())
    yield f"{_extent(plan)}; {plural(len(plan.steps), 'step')}: {actions}"
    yield f"data rewritten: {size_text(plan.rewritten_bytes)}; space needed: {size_text(room)}"
    if how.engine is not None:
        yield f"engine: {engine_text(how.engine)}"
    yield _time(plan, how)
    if how.is_undoable and plan.app.exists():
        yield f"the current directory stays in {runs_folder(plan.app)}, until:"
        yield f"  {command('clean', plan.app)}"
    elif not how.is_undoable:
        yield "there is no backup of the removed stores"


def _extent(plan: Plan) -> str:
    """Return the stores and tasks of the steps; a task that is moved as a whole counts as a task."""
    from kstate_cli.statedir.problems import Place

    places = [Place(tuple(step.path.split("/"))) for step in plan.steps if step.action != "write file"]
    stores = {(place.task, place.store.name) for place in places if place.task is not None and place.store is not None}
    tasks = {place.task for step in plan.steps if (place := Place(tuple(step.path.split("/")))).task is not None}
    extent = plural(len(tasks), "task")
    if stores:
        extent = f"{plural(len(stores), 'store')} in {extent}"
    return extent


def _time(plan: Plan, how: PlanView) -> str:
    from kstate_cli.change.earlier_runs import expected
    from kstate_cli.change.folder import read_runs

    is_spark = how.engine is not None and how.engine.is_spark
    forecast = expected(plan, how.workers, read_runs(plan.app))
    amount = "less than 10 s"
    if not forecast.is_short:
        amount = f"about {duration_text(forecast.rounded)}"
    # The time of an earlier run includes the start of its Spark.
    start, reckoned = "", f"as run {forecast.like} went"
    if forecast.like is None:
        reckoned = "no earlier run to compare with"
        if is_spark:
            start = ", and Spark's start of about 10 s"
    return f"estimated time: {amount}{start} ({reckoned})"


def engine_text(choice: EngineChoice) -> str:
    """Return the engine and the reason for it, as a line of a plan shows them."""
    engine = "local processes"
    if choice.is_spark:
        engine = "Spark"
    return f"{engine} ({choice.reason})"


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
    results.lines([summary(end)])
    if plan.empty:
        results.remark(f"nothing to do: {nothing}")
    elif result is None:
        results.remark("dry run: nothing was changed")
    else:
        for sentence in sentences(result):
            results.remark(sentence)


def exit_code(plan: Plan, *, warnings_ok: bool, warned: bool = False) -> int:
    """Return 1 if the plan has warnings, also one without a step, or the run has ``warned``; 0 with ``warnings_ok``."""
    return int(not warnings_ok and (warned or bool(plan.warnings)))

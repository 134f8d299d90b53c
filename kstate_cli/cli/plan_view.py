"""How a plan is shown, the same by ``--dry-run`` and before a run, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kstate_cli.cli import standard
from kstate_cli.cli.json_lines import JsonLines
from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.change.engine import RunResult
    from kstate_cli.change.plan import Plan


def show_plan(plan: Plan, output: Format) -> None:
    """The plan as a table or as JSON lines; warnings and notes on standard error for people.

    Written out before anything is done: raises OutputLost where that cannot be.
    """
    _show_steps(plan, output)
    standard.finish()


def _show_steps(plan: Plan, output: Format) -> None:
    from kstate_cli.cli.columns import Column, Fold
    from kstate_cli.cli.output import say, table

    if output is Format.json:
        lines = JsonLines(plan.app)
        for step in plan.steps:
            lines.line("step", {"action": step.action, "path": step.path, "message": step.describe()})
        for kind, texts in (("warning", plan.warnings), ("note", plan.notes)):
            for text in texts:
                lines.line(kind, {"message": text})
        return
    if plan.steps:
        table(
            f"{plan.command}: {plan.app}",
            ("step", "path", Column("what", fold=Fold.WORDS)),
            [(step.action, step.path, step.describe()) for step in plan.steps],
        )
    for text in plan.warnings:
        say(f"warning: {text}")
    for text in plan.notes:
        say(f"note: {text}")


def show_end(
    plan: Plan,
    result: RunResult | None,
    output: Format,
    *,
    members: Mapping[str, Any],
    nothing: str,
    done: Callable[[RunResult], Iterable[str]],
    quiet: bool,
) -> None:
    """What became of a plan: the JSON line ``summary``, with ``members`` of the command's own, or messages for people.

    ``nothing`` says why there was nothing to do, ``done`` what a run did; ``result`` is None where none was.
    """
    from kstate_cli.cli.output import say

    if output is Format.json:
        JsonLines(plan.app).summary(
            {
                **members,
                "steps": len(plan.steps),
                "warnings": len(plan.warnings),
                "executed": result is not None,
                "run": result.run if result else None,
            }
        )
    elif plan.empty:
        say(f"nothing to do: {nothing}", quiet=quiet)
    elif result is None:
        say("dry run: nothing was changed", quiet=quiet)
    else:
        for line in done(result):
            say(line, quiet=quiet)


def exit_code(plan: Plan, *, warnings_ok: bool, warned: bool = False) -> int:
    """1 where a plan with something to do has warnings, or the run has ``warned``, and nobody said that it is fine."""
    return int(not warnings_ok and (warned or bool(plan.warnings and not plan.empty)))

"""How a plan is shown, the same by ``--dry-run`` and before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstate_cli.cli.output import Format

if TYPE_CHECKING:
    from kstate_cli.change.plan import Plan


def show_plan(plan: Plan, output: Format) -> None:
    """The plan as a table or as JSON lines; warnings and notes on standard error for people."""
    from kstate_cli.cli.output import print_json, say, table

    if output is Format.json:
        for step in plan.steps:
            print_json(
                {"schema_version": 1, "type": "step", "action": step.action, "path": step.path, "what": step.describe()}
            )
        for kind, texts in (("warning", plan.warnings), ("note", plan.notes)):
            for text in texts:
                print_json({"schema_version": 1, "type": kind, "text": text})
        return
    if plan.steps:
        table(
            f"{plan.command}: {plan.app}",
            ("step", "path", "what"),
            [(step.action, step.path, step.describe()) for step in plan.steps],
        )
    for text in plan.warnings:
        say(f"warning: {text}")
    for text in plan.notes:
        say(f"note: {text}")

"""``kstate check``: reads a directory and says what the next start of a release does with it."""

from __future__ import annotations

from dataclasses import dataclass

from kstate_cli.change.ages import read_ages
from kstate_cli.check.context import Asked, Context
from kstate_cli.check.files import copied_tasks
from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.global_stores import predict_global
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.problems import note_problems
from kstate_cli.check.running import while_running
from kstate_cli.check.surroundings import look_around
from kstate_cli.check.tasks import predict_copy, predict_task
from kstate_cli.errors import Refused
from kstate_cli.host import STORES_STAY
from kstate_cli.migrate.owners import usual_changelog
from kstate_cli.migrate.resolve import resolve
from kstate_cli.statedir.model import Application
from kstate_cli.statedir.problems import ProblemCode
from kstate_cli.texts import first_lines

_ORDER = {level: number for number, level in enumerate((Level.ERROR, Level.WARNING, Level.EXPECTED))}


@dataclass(frozen=True, slots=True)
class Report:
    """All that a check says."""

    predictions: tuple[Prediction, ...]
    findings: tuple[Finding, ...]

    @property
    def fails(self) -> bool:
        """True when the next start ends in an error."""
        return any(one.outcome is Outcome.FAILS for one in self.predictions)

    @property
    def clean(self) -> bool:
        """True when every finding is an expected one."""
        return all(one.level is Level.EXPECTED for one in self.findings)


def check(app: Application, asked: Asked) -> Report:
    """What the next start of ``asked.release`` does with each store of ``app``, and why. Changes nothing.

    Raises Refused where the directory holds what kstate does not open, or what kstate wrote down of its own runs cannot
    be understood.
    """
    if special := [one for one in app.all_problems() if one.code is ProblemCode.SPECIAL]:
        raise Refused(
            "what a start makes of this directory cannot be foretold",
            where=str(app.path),
            details=first_lines([one.reasoned for one in special]),
            hint="move what is named out of the application directory",
        )
    if unreadable := [one for one in app.all_problems() if one.code is ProblemCode.UNREADABLE]:
        raise Refused(
            "what a start makes of this directory cannot be foretold: not all of it can be read",
            where=str(app.path),
            details=first_lines([one.text for one in unreadable]),
            hint=STORES_STAY,
        )
    resolved = {one.task.name: one for one in resolve(app)}
    ctx = Context(app, asked, resolved, ages=read_ages(app.path))
    copies = copied_tasks(ctx)
    predictions: list[Prediction] = []
    for task in app.tasks:
        if task.is_global:
            predictions += predict_global(ctx, task)
        else:
            predictions += predict_copy(ctx, task) if task.name in copies else predict_task(ctx, task)
    look_around(ctx)
    note_problems(ctx)
    found = ctx.findings
    if app.running:
        predictions, found = while_running(predictions, found)
    findings = sorted(found, key=lambda one: _ORDER[one.level])
    return Report(tuple(predictions), tuple(findings))


def topics_of(app: Application) -> set[str]:
    """Every topic that a store here may be restored from: those that offsets name, and the usual changelogs."""
    found = set()
    for resolved in resolve(app):
        task = resolved.task
        found |= {tp.topic for one in resolved.stores for tp in one.offsets}
        found |= {tp.topic for lines in resolved.absent.values() for tp in lines}
        if not task.is_global:
            found |= {usual_changelog(app.app_id, task, store.name).topic for store in task.stores}
    return found

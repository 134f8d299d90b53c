"""Limits of a check: tasks that kstate reads in part, a running application, and problems that no rule judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kstate_cli.check.codes.layout import DOES_NOT_OPEN, NOT_UNDERSTOOD, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY
from kstate_cli.check.findings import Finding, Level, Outcome, Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.statedir.model import Application, Task
from kstate_cli.statedir.names import is_offsets_file
from kstate_cli.statedir.places import Place, StoreRef
from kstate_cli.statedir.problems import Problem

_CERTAIN: Final = frozenset({Outcome.FAILS, Outcome.NOT_REACHED, Outcome.IGNORED})
"""Outcomes that follow from the part that kstate read."""


def without_unknown(
    app: Application, predictions: Iterable[Prediction], findings: Iterable[Finding]
) -> tuple[list[Prediction], list[Finding]]:
    """Return the predictions, those of such tasks as unknown, and the findings without those of absence.

    A store that only kstate cannot open, or that is a link, has a prediction too.
    """
    places = [problem.place for problem in app.all_problems() if problem.unknown and problem.place.task is not None]
    tasks = {place.task for place in places}
    changed = [
        _not_understood(prediction.task, prediction.store)
        if prediction.task in tasks and prediction.outcome not in _CERTAIN
        else prediction
        for prediction in predictions
    ]
    predicted = {(prediction.task, prediction.store) for prediction in changed}
    changed += [_not_understood(*store) for store in _stores_at(places) if store not in predicted]
    return changed, [finding for finding in findings if finding.task not in tasks or not finding.code.states_absence]


def _stores_at(places: Iterable[Place]) -> list[tuple[str, str]]:
    """Return task and name of the stores at these places, each once: several problems may be about one store."""
    stores = [(place.task, place.store.name) for place in places if place.task is not None and place.store is not None]
    return list(dict.fromkeys(stores))


def _not_understood(task: str, store: str) -> Prediction:
    return Prediction(task, store, Outcome.UNKNOWN, code=NOT_UNDERSTOOD)


_LATER: Final = "nothing while it runs: check again once it is closed"


def while_running(predictions: list[Prediction], findings: list[Finding]) -> tuple[list[Prediction], list[Finding]]:
    """Return both as far as a running application lets kstate know: such findings expected, such outcomes unknown."""
    expected_findings = [
        replace(finding, level=Level.EXPECTED, hint=_LATER) if finding.code.changes_at_close else finding
        for finding in findings
    ]
    later_predictions = [
        _unknown(prediction) if prediction.code is not None and prediction.code.changes_at_close else prediction
        for prediction in predictions
    ]
    # A store is not reached because another store of its task fails. Without that failure nothing is known of it.
    failing = {prediction.task for prediction in later_predictions if prediction.outcome is Outcome.FAILS}
    return [
        _unknown(prediction)
        if prediction.outcome is Outcome.NOT_REACHED and prediction.task not in failing
        else prediction
        for prediction in later_predictions
    ], expected_findings


def _unknown(prediction: Prediction) -> Prediction:
    return Prediction(prediction.task, prediction.store, Outcome.UNKNOWN, code=prediction.code)


_OPENING: Final = frozenset({DOES_NOT_OPEN, SEGMENT_DOES_NOT_OPEN, UNKNOWN_COLUMN_FAMILY})
"""Findings of rules that judge the problems of databases."""


def not_understood(snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield a finding for each problem that no rule has judged; ``findings`` are those of all rules."""
    yield from _problem_findings(snapshot, snapshot.app.problems)
    for task in snapshot.app.tasks:
        is_judged = any(finding.level is not Level.EXPECTED and finding.task == task.name for finding in findings)
        problems = [problem for problem in task.problems if not (is_judged and _has_rule(task, problem))]
        yield from _problem_findings(snapshot, problems, task)
        for store in task.stores:
            codes = {finding.code for finding in findings if (finding.task, finding.store) == (task.name, store.name)}
            if not codes & _OPENING:
                of_store = [problem for database in store.databases for problem in database.problems]
                yield from _problem_findings(snapshot, of_store, task, store.name)


def _problem_findings(
    snapshot: Snapshot, problems: Iterable[Problem], task: Task | None = None, store: str | None = None
) -> Iterator[Finding]:
    for problem in problems:
        if problem.fatal:
            yield snapshot.finding(NOT_UNDERSTOOD, problem.text, task, store)


def _has_rule(task: Task, problem: Problem) -> bool:
    """Return True for offset files and entries among segments, which ``check.files`` judges."""
    place = problem.place
    segmented = {StoreRef(store.name, segmented=True) for store in task.stores if store.segmented}
    return is_offsets_file(place.name) or (place.store in segmented and len(place.in_task) > 1)

"""Tasks of which kstate does not read everything: what it skipped is not missing, and no prediction follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kstate_cli.check.codes.layout import NOT_UNDERSTOOD
from kstate_cli.check.findings import Finding
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.statedir.model import Application

_CERTAIN: Final = frozenset({Outcome.FAILS, Outcome.NOT_REACHED, Outcome.IGNORED})
"""Outcomes that follow from what was read."""


def without_unknown(
    app: Application, predictions: Iterable[Prediction], findings: Iterable[Finding]
) -> tuple[list[Prediction], list[Finding]]:
    """Return the predictions, those of such tasks as unknown, and the findings without those of absence.

    A store that only kstate cannot open, or that is a link, has a prediction too.
    """
    problems = [one for one in app.all_problems() if one.unknown and one.place.task is not None]
    tasks = {one.place.task for one in problems}
    changed = [
        Prediction(one.task, one.store, Outcome.UNKNOWN, code=NOT_UNDERSTOOD)
        if one.task in tasks and one.outcome not in _CERTAIN
        else one
        for one in predictions
    ]
    predicted = {(one.task, one.store) for one in changed}
    for problem in problems:
        task, store = problem.place.task, problem.place.store
        if task is not None and store is not None and (task, store.name) not in predicted:
            predicted.add((task, store.name))
            changed.append(Prediction(task, store.name, Outcome.UNKNOWN, code=NOT_UNDERSTOOD))
    return changed, [one for one in findings if one.task not in tasks or not one.code.states_absence]

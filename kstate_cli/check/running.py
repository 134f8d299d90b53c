"""Beside a running application: what the next start does depends on how this one is closed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kstate_cli.check.findings import Finding, Level
from kstate_cli.check.outcome import Outcome, Prediction

_LATER: Final = "nothing while it runs: check again once it is closed"


def while_running(predictions: list[Prediction], findings: list[Finding]) -> tuple[list[Prediction], list[Finding]]:
    """Return both as far as a running application lets kstate know: such findings expected, such outcomes unknown."""
    known_findings = [
        replace(finding, level=Level.EXPECTED, hint=_LATER) if finding.code.changes_at_close else finding
        for finding in findings
    ]
    known_predictions = [
        _unknown(prediction) if prediction.code is not None and prediction.code.changes_at_close else prediction
        for prediction in predictions
    ]
    # A store is not reached because another store of its task fails. Without that failure nothing is known of it.
    failing = {prediction.task for prediction in known_predictions if prediction.outcome is Outcome.FAILS}
    return [
        _unknown(prediction)
        if prediction.outcome is Outcome.NOT_REACHED and prediction.task not in failing
        else prediction
        for prediction in known_predictions
    ], known_findings


def _unknown(prediction: Prediction) -> Prediction:
    return Prediction(prediction.task, prediction.store, Outcome.UNKNOWN, code=prediction.code)

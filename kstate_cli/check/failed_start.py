"""What a start that fails deletes: a stream thread that dies closes its tasks dirty (``StateManagerUtil``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kstate_cli.check.codes.layout import FAILED_START_DELETES
from kstate_cli.check.findings import Finding
from kstate_cli.check.outcome import Outcome, Prediction
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.formats.task_id import GLOBAL
from kstate_cli.texts import some

_NAMED: Final = 5


def deleted_by_failure(snapshot: Snapshot, predictions: Sequence[Prediction]) -> Iterator[Finding]:
    """Yield a warning if a start that fails may delete task directories.

    ``StateManagerUtil.closeStateManager`` deletes the directory of a task that is not closed clean under exactly-once,
    unless its stores are transactional. A global store that fails ends the start before there is a task.
    """
    failing = [prediction for prediction in predictions if prediction.outcome is Outcome.FAILS]
    if not snapshot.asked.exactly_once or snapshot.asked.starts_transactional or not failing:
        return
    if any(prediction.task == GLOBAL for prediction in failing):
        return
    tasks = [task.name for task in snapshot.app.tasks if not task.is_global]
    places = some(sorted({prediction.task for prediction in failing}), _NAMED)
    text = f"the start fails in {places}, and may delete {len(tasks)} task directories"
    without = sorted(
        {
            state.store.name
            for resolved in snapshot.resolved.values()
            for state in resolved.stores
            if not resolved.task.is_global and not state.offsets and not state.store.empty
        }
    )
    if without:
        text += f"; rows of {some(without, _NAMED)} are lost then, unless they have a changelog"
    yield snapshot.finding(FAILED_START_DELETES, text)

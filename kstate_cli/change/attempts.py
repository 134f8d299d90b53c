"""What earlier runs ended in: after a failure a cron job must not wipe or restore in a loop.

Restorations write their state (KIP-696, KIP-728) to the journal; wipes and migrations have none. A restoration that
ended in ERROR, or three in a row whose process died, stand in the way of the next restoration or wipe until somebody
says ``--after-error``, or a restoration ends well.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kstate_cli.change.folder import read_runs, understood
from kstate_cli.change.journal import Run, RunState
from kstate_cli.errors import Refused
from kstate_cli.texts import command

STATE_EVENT = "state"
INTERRUPTED: Final = "INTERRUPTED"
"""Of a restoration whose process died: no state that it writes itself."""
_ERROR = "ERROR"
_NOT_RUNNING = "NOT_RUNNING"
_ENDED = frozenset({_ERROR, _NOT_RUNNING})
_SWITCHED = frozenset({RunState.KEPT, RunState.UNDOING, RunState.UNDONE, RunState.CLEANING})
_INTERRUPTED_AT_MOST = 3


def state_of(run: Run) -> str | None:
    """The state that a restoration wrote last; None for other runs.

    Where its process died before its switch: ``INTERRUPTED``. After it nothing was left to restore: ``NOT_RUNNING``,
    whatever it had still written.
    """
    state = run.last(STATE_EVENT).get("state")
    if state is None:
        return None
    # Who lives to see a run fail writes its last state; a run that was swept by another command has none.
    if state not in _ENDED and run.state is RunState.FAILED:
        return INTERRUPTED
    if state not in _ENDED and run.state in _SWITCHED:
        return _NOT_RUNNING
    return str(state)


def refuse_after_error(app: Path, *, after_error: bool) -> None:
    """Refuses where the last restoration ended in ERROR, or three in a row were interrupted. Raises Refused."""
    if after_error:
        return
    runs = [run for run in understood(read_runs(app)) if state_of(run) is not None]
    if not runs:
        return
    last = runs[-1]
    hint = "fix the cause, then run the command again with --after-error"
    more = [f"what the runs did: {command('status', app)}"]
    if state_of(last) == _ERROR:
        raise Refused(
            f"run {last.name} ended in ERROR: {last.last('failed').get('why', 'no reason recorded')}",
            hint=hint,
            hint_details=more,
        )
    if _interrupted(runs) >= _INTERRUPTED_AT_MOST:
        raise Refused(
            f"the last {_INTERRUPTED_AT_MOST} runs were interrupted, {last.name} the last of them",
            hint=hint,
            hint_details=more,
        )


def _interrupted(runs: Sequence[Run]) -> int:
    count = 0
    for run in reversed(runs):
        if state_of(run) != INTERRUPTED:
            break
        count += 1
    return count

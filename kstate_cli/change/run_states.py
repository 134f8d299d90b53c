"""The states of a run as people and programs are told of them: those of the journal, and three that it cannot say."""

from __future__ import annotations

from typing import Any, Final

from kstate_cli.change.journal import Run, RunState

CREATED: Final = "created"
"""The folder of the run is there, and nothing in it yet."""
INTERRUPTED: Final = "interrupted"
"""Its process is gone, and nobody has brought it to its end yet."""
DAMAGED: Final = "damaged"
"""Its journal cannot be believed."""
UNFINISHED: Final = (None, RunState.STAGING, RunState.SWITCHING, RunState.UNDOING)
"""Runs that the next command which needs the directory takes over. With CLEANING ``clean`` alone goes on."""
RUN_STATES: Final = (CREATED, *(state.value for state in RunState), INTERRUPTED, DAMAGED)
"""All of them: whoever lists states lists these."""


def state_shown(run: Run, *, held: bool | None) -> str:
    """One of ``RUN_STATES``. ``held``: whether a process has the lock; None where nobody can tell."""
    if run.damage is not None:
        return DAMAGED
    if run.state in UNFINISHED and held is False:
        return INTERRUPTED
    return run.state.value if run.state else CREATED


def cut_short(signal_name: str | None = None) -> dict[str, Any]:
    """What the line ``failed`` has besides of a run that did not fail by itself; None: its process was gone."""
    return {"cut_short": True, "signal": signal_name}


def was_cut_short(run: Run) -> bool:
    """Whether a signal, or the end of its process, ended a run that is FAILED. An older kstate did not say."""
    return run.state is RunState.FAILED and run.last("failed").get("cut_short") is True


def signal_of(run: Run) -> str | None:
    """The signal that ended a run, such as ``SIGTERM``; None for other ends, and where the journal does not tell."""
    name = run.last("failed").get("signal")
    return name if was_cut_short(run) and isinstance(name, str) else None

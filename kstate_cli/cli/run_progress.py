"""Progress of a run of the change engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kstate_cli.cli.meter import BYTES, Meter, counted
from kstate_cli.cli.output import say

if TYPE_CHECKING:
    from kstate_cli.change.plan import Plan


class RunProgress:
    """Phases of a run; the bytes that it writes anew, or its databases where it writes none."""

    _NAMES: ClassVar = {
        "read": "reading",
        "stage": "staging",
        "store": "rewriting",
        "verify": "verifying",
        "switch": "switching",
    }

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._phase = ""
        self._done = self._bytes = self._databases = 0
        self._meter = Meter("staging", quiet=quiet)

    def __enter__(self) -> RunProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._meter.stop()

    def expect(self, plan: Plan) -> None:
        """What the run will do, once that is known."""
        self._bytes, self._databases = plan.rewritten_bytes, plan.databases

    def __call__(self, phase: str, path: str, size: int) -> None:
        """Called by the engine: the phase, where, and bytes done since the last call."""
        if phase == "sync":
            return  # part of what is said before it
        if phase != self._phase:
            self._phase = phase
            name = self._NAMES.get(phase, phase)
            self._meter.call(name)
            if not self._meter.on_a_terminal:
                say(f"kstate: {name}", quiet=self._quiet)
            if phase == "stage" and self._databases:
                self._meter.begin(*((self._bytes, BYTES) if self._bytes else (self._databases, counted("databases"))))
        if phase == "store":
            self._done += size if self._bytes else 1
            self._meter.at(self._done)

"""The result of a command: its exit status, its output, and the lines of its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests import json_lines


@dataclass(frozen=True)
class CommandResult:
    """The exit status and output of a command."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the lines of standard output, which must be JSON Lines and nothing else, without the last."""
        return json_lines.results(self.out)

    @property
    def summary(self) -> dict[str, Any]:
        """Return the line of type ``summary``."""
        return json_lines.summary(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """Return the line of type ``error``."""
        return json_lines.error(self.out)

    @property
    def report(self) -> str:
        """Return the status and the output, for the message of a failed assertion."""
        return f"exit status {self.status}\n{self.out[-6000:]}\n{self.err[-3000:]}"

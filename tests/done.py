"""How a command ended, and what its lines say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests import json_lines


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Its standard output, which must be JSON Lines and nothing else: all but how it ended."""
        return json_lines.results(self.out)

    @property
    def summary(self) -> dict[str, Any]:
        """The line of that type."""
        return json_lines.summary(self.out)

    @property
    def error(self) -> dict[str, Any]:
        """The line of that type."""
        return json_lines.error(self.out)

    @property
    def report(self) -> str:
        """All of it, for the message of a failed assertion."""
        return f"exit status {self.status}\n{self.out[-6000:]}\n{self.err[-3000:]}"

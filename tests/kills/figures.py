"""The record of kills, and its figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record; none where it does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


@dataclass(frozen=True)
class Figures:
    """What a record shows."""

    kills: Counter[str]
    """Guarantee -> kills."""
    compared: int
    predicted: int
    """Stores of which a start by Streams lost rows, as ``check`` predicted."""
    unpredicted: int
    lost_by_kstate: int

    @classmethod
    def of(cls, lines: Iterable[dict[str, Any]]) -> Figures:
        """Return the figures of these lines."""
        lines = list(lines)
        unpredicted = sum(len(line["unpredicted"]) for line in lines)
        return cls(
            Counter(line["kind"] for line in lines),
            sum(line["compared"] for line in lines),
            sum(len(line["lost_by_streams"]) for line in lines) - unpredicted,
            unpredicted,
            sum(len(line["lost_by_kstate"]) for line in lines),
        )

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.kills.items()))
        return (
            f"{self.kills.total()} kills ({kinds}), {self.compared} stores compared, losses by Streams: {self.predicted} "
            f"predicted, {self.unpredicted} not predicted, losses by kstate: {self.lost_by_kstate}"
        )

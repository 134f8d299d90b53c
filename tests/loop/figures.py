"""The record of rounds, and its figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_record(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a record; none where it does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def totals(lines: Iterable[dict[str, Any]]) -> dict[str, Counter[str]]:
    """Return the sums of all counts, by kind and name."""
    sums: dict[str, Counter[str]] = {"wrong": Counter()}
    for line in lines:
        sums["wrong"]["rounds"] += len(line["wrong"])
        for kind, counts in line.items():
            if isinstance(counts, dict):
                sums.setdefault(kind, Counter()).update(counts)
    return sums


def figures(lines: Iterable[dict[str, Any]]) -> str:
    """Return the figures of these lines, for people."""
    sums = totals(lines)
    return "\n".join(
        f"{kind}: " + ", ".join(f"{name} {number:,}" for name, number in count.most_common())
        for kind, count in sums.items()
    )

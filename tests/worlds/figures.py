"""The record of worlds, and its figures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.jsonl")


def read_record(path: Path = RECORD) -> list[dict[str, Any]]:
    """Return the lines of a record; none where it does not exist."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def figures(lines: Iterable[dict[str, Any]]) -> str:
    """Return what a record shows, as a few lines of text."""
    lines = list(lines)
    steps = Counter(step.partition(":")[0] for line in lines for step in line["steps"])
    plain = Counter({name: count for name, count in steps.items() if not name.endswith("!")})
    killed = Counter({name[:-1]: count for name, count in steps.items() if name.endswith("!")})
    names = sorted({*plain, *killed})
    releases = Counter(f"{line['release']} {line['guarantee']}" for line in lines)
    compared = sum(line["compared"] for line in lines)
    minutes = sum(line["seconds"] for line in lines) / 60
    wrong = sum(line["verdict"] != "right" for line in lines)
    first = f"{len(lines)} worlds, {compared} stores compared, {minutes:.0f} minutes, {wrong} wrong"
    second = ", ".join(f"{name} {count}" for name, count in sorted(releases.items()))
    third = ", ".join(f"{name} {plain[name]}" + f" ({killed[name]} killed)" * bool(killed[name]) for name in names)
    return f"{first}\n{second}\n{third}"

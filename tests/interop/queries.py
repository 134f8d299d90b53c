"""Interactive queries (IQv2) to a running application: files of questions, files of answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Kind = Literal[
    "key", "range", "timestamped-key", "timestamped-range", "window-key", "window-range-key", "window-range-time",
    "versioned-key", "multi-versioned-key",
    "headers-key", "headers-range", "headers-window-key", "headers-window-range-key", "headers-window-range-time",
]  # fmt: skip
Order = Literal["any", "ascending", "descending"]
Answer = dict[str, Any]
"""
Of one partition: partition (-1 for a global store), success, reason, message, position, result, and execution_info if wanted.

A point query's result is None or a row, an iterator's a list of rows: key, value, timestamp, start, end, valid_to, as far as
they apply, bytes in base64. Instead there may be exception and message (without partition if the query itself was refused), or
unsupported where the release has no such query.
"""


@dataclass(frozen=True)
class Query:
    """One question; times are milliseconds, keys as they lie in the store."""

    store: str
    kind: Kind
    key: bytes | None = None
    lower: bytes | None = None
    upper: bytes | None = None
    start: int | None = None
    end: int | None = None
    as_of: int | None = None
    order: Order = "any"
    bound: Mapping[str, Mapping[int, int]] | None = None
    partitions: tuple[int, ...] | None = None
    require_active: bool = False
    execution_info: bool = False

    def line(self, number: int) -> dict[str, Any]:
        """As a line of the file."""
        return {
            "id": number,
            "store": self.store,
            "query": self.kind,
            "key": _text(self.key),
            "lower": _text(self.lower),
            "upper": _text(self.upper),
            "from": self.start,
            "to": self.end,
            "as_of": self.as_of,
            "order": self.order,
            "bound": self.bound,
            "partitions": self.partitions,
            "require_active": self.require_active,
            "execution_info": self.execution_info,
        }


def write(path: Path, queries: Iterable[Query]) -> Path:
    """Write the file of questions, which are numbered from 0; returns its path."""
    lines = (json.dumps(query.line(number)) + "\n" for number, query in enumerate(queries))
    path.write_text("".join(lines), encoding="utf-8")
    return path


def read(path: Path) -> dict[int, list[Answer]]:
    """The answers to each question, by its number; partitions ascending."""
    answers: dict[int, list[Answer]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            answer = json.loads(line)
            answers.setdefault(answer.pop("id"), []).append(answer)
    return answers


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()

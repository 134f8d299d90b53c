"""
What differs between two runs of the same kstate on the same directory, and is not compared. Nothing else is.

- Where the test's folder is: the state directory becomes `STATE`, the folder beside it `BESIDE`.
- How long it took: `seconds`, what a restoration says of its pace, the nanoseconds of `query --explain`. What a
  restoration says of its progress before the end, and any run of its bytes now and then, depends on the clock alone: it
  is left out.
- What this host is called: `host`.
- The size of Parquet files (`bytes` of an export), which is pyarrow's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_MEMBERS = {"seconds": 0, "seconds_left": 0, "records_per_second": 0, "host": "HOST"}
_OF_EXPORT = {"bytes": 0}
_PACE = re.compile(r"\bin \d+ns\b")
_PROGRESS = re.compile(r"kstate: (?:[a-z ]+: )?[\d,.]+ [KMGTP]?i?B of [\d,.]+ [KMGTP]?i?B(?: \(\d+ %\).*)?")
"""What a command prints every ten seconds: on a busy machine any command may."""


class Normal:
    """Takes out of a command's words what only this run has. `places` are folders and what they are called."""

    def __init__(self, places: Mapping[Path, str]) -> None:
        self._places = sorted(((str(path), name) for path, name in places.items()), key=lambda entry: -len(entry[0]))

    def text(self, text: str) -> str:
        """A line of standard error, or of an output that is not JSON."""
        for path, name in self._places:
            text = text.replace(path, name)
        return _PACE.sub("in 0ns", text)

    def messages(self, lines: Iterable[str]) -> Iterator[Any]:
        """Lines of standard error: text, or what the JSON in them says."""
        for line in lines:
            if _PROGRESS.fullmatch(line):
                continue
            row = self.row(json.loads(line)) if line.startswith("{") else self.text(line)
            if not (isinstance(row, dict) and row["type"] == "progress" and row["slices"] < row["of"]):
                yield row

    def row(self, row: Any) -> Any:
        """A line of JSON."""
        exported = isinstance(row, dict) and row.get("type") == "summary" and "columns" in row
        return self._value(row, {**_MEMBERS, **(_OF_EXPORT if exported else {})})

    def _value(self, value: Any, members: Mapping[str, Any]) -> Any:
        if isinstance(value, dict):
            return {
                self.text(name): members[name] if name in members and entry is not None else self._value(entry, members)
                for name, entry in value.items()
            }
        if isinstance(value, list):
            return [self._value(entry, members) for entry in value]
        return self.text(value) if isinstance(value, str) else value

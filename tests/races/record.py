"""The record of races: a line for each, so that an interrupted search continues with those that it lacks."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

RECORD = Path(__file__).with_name("races.jsonl")


@dataclasses.dataclass(frozen=True)
class Race:
    """Two participants on one directory. The seed decides how much later the second one begins."""

    kind: str
    """``pair``: two commands; ``streams``: a command and a start of Kafka Streams."""
    first: str
    second: str
    seed: int

    @property
    def key(self) -> str:
        """What the record knows this race by."""
        return f"{self.kind} {self.first}, {self.second} {self.seed}"

    def draw(self) -> random.Random:
        """The generator of all that this race draws."""
        return random.Random(self.key)


@dataclasses.dataclass(frozen=True)
class Row(Race):
    """What became of a race."""

    delay_ms: int = 0
    statuses: tuple[int, int] = (0, 0)
    directory: str = ""
    """Which participants have changed it, in order; ``unchanged`` if none has."""
    wrong: str = ""
    seconds: float = 0.0


def rows(path: Path = RECORD) -> dict[str, Row]:
    """The races that have run, by their key."""
    if not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    results = (Row(**{**line, "statuses": tuple(line["statuses"])}) for line in lines)
    return {row.key: row for row in results}


def add(row: Row, path: Path = RECORD) -> None:
    """Append a line, and print what was wrong."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(dataclasses.asdict(row)) + "\n")
    if row.wrong:
        print(f"{row.key}: {row.wrong}", flush=True)

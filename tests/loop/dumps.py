"""What a dump is a dump of, by its newest manifest and the model of the logs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .histories import Histories, History, Partition, Rows


@dataclass
class DumpOfLoop:
    """A dump, and the logs that the newest manifest was read from."""

    path: Path
    generation: int = 0
    ends: dict[Partition, tuple[History, int]] = field(default_factory=dict)
    """Partition -> the log that it was read from, and the offset below which the dump has it."""
    _facts: dict[Partition, Any] = field(default_factory=dict)
    """Partition -> its newest full in the manifest."""
    needs_full: bool = False
    """The documented advice after a retention that was changed and changed back."""

    def look(self, histories: Histories) -> bool:
        """Read the newest manifest; return whether it is a new one. It is of the logs that exist now."""
        manifests = sorted(self.path.glob("_manifest-*.json")) if self.path.exists() else []
        content: dict[str, Any] = json.loads(manifests[-1].read_text()) if manifests else {"generation": 0, "fulls": []}
        if content["generation"] == self.generation:
            return False
        self.generation = content["generation"]
        newest = {
            (full["topic"], full["partition"]): full
            for full in sorted(content["fulls"], key=lambda full: int(full["began"]))
        }
        for key, full in newest.items():
            # What a call has not read again is still of the log of then.
            if full != self._facts.get(key):
                history = histories.by_id[_plain(full["topic_id"], histories), full["partition"]]
                self.ends[key] = history, full["ranges"][-1]["end"]
        self._facts = newest
        return True

    def rows(self) -> dict[Partition, Rows]:
        """Return what a restoration from the dump has to give, by partition."""
        return {key: history.rows(end) for key, (history, end) in self.ends.items()}

    def copy(self, to: Path) -> DumpOfLoop:
        """Return a copy of the dump in another folder."""
        shutil.rmtree(to, ignore_errors=True)
        if self.path.exists():
            shutil.copytree(self.path, to)
        return DumpOfLoop(to, self.generation, dict(self.ends), dict(self._facts), self.needs_full)

    def back_from(self, copy: DumpOfLoop) -> None:
        """Put an older copy in its place."""
        shutil.rmtree(self.path, ignore_errors=True)
        if copy.path.exists():
            shutil.copytree(copy.path, self.path)
        self.generation, self.ends, self._facts = copy.generation, dict(copy.ends), dict(copy._facts)
        self.needs_full = self.needs_full or copy.needs_full


def _plain(topic_id: str, histories: Histories) -> str:
    """Return the id as the model has it; Kafka's clients write ids in different alphabets."""
    same = [facts for facts, _ in histories.by_id if _bare(facts) == _bare(topic_id)]
    assert same, f"a topic id that no topic has had: {topic_id}"
    return same[0]


def _bare(topic_id: str) -> str:
    return topic_id.rstrip("=").replace("+", "-").replace("/", "_")

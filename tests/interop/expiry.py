"""
Where a release begins to restore a window or session store: what ``StoreChangelogReader`` does with the log, by its bytecode.

Releases of the new way look for the time of the last record, and begin at the first record that is not older than that time
less the retention. Which releases, and how they find the last record, is in ``kstate_cli/patch_releases.py``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kstate_cli.broker.client import ask_broker
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.patch_releases import BACKWARD_PROBE, BOUNDED_RESTORE
from kstate_cli.releases import release

from .harness import Harness

RETENTION_MS = 20 * 60_000
"""The retention of every window and session store of the harness (Naming.RETENTION)."""
PROBED = (128, 512, 2048)
"""Before the log end so many offsets are searched for the last record (StoreChangelogReader.PROBE_WINDOWS)."""
PATIENT = {"poll.ms": "3000"}
"""Time for the search: if a poll returns nothing within ``poll.ms``, 100 ms by default, everything is read."""
FAR_BEHIND = 8 * PROBED[-1]
"""So many offsets before the log end, or more, a store with an offset skips what has expired (PROBE_MIN_OFFSET_GAP)."""


@dataclass(frozen=True)
class Changelog:
    """One partition of a changelog that was never cleaned: an offset without a record is that of a transaction marker."""

    records: dict[int, int]
    """Offset -> timestamp in ms."""
    start: int
    end: int
    windowed: bool
    """It belongs to a window or session store: Streams lets its records be deleted by age."""

    def counted(self, first: int) -> int:
        """How many records there are from an offset on."""
        return sum(offset >= first for offset in self.records)

    def first_reads(self, version: str, following: int | None) -> set[int]:
        """
        Return the offsets at which a release may begin to restore: there are two where a race decides.

        4.4.0 polls once for the last records of all logs of a task, and reads a log whole if the poll returned others only.
        4.2.2 polls until it has all of them, or a time is over that PATIENT extends. `following`: the next offset of the
        store; None where it has none.
        """
        row = release(version)
        probes = row.is_new(BACKWARD_PROBE) is True
        floor = following or 0
        if not self.windowed or row.is_new(BOUNDED_RESTORE) is not True:
            return {floor}
        if following is not None and not (probes and self.end - following >= FAR_BEHIND):
            return {floor}
        latest = self._probed_time() if probes else self.records.get(self.end - 1)
        if latest is None:
            return {floor}
        first = max(floor, self._first_since(latest - RETENTION_MS))
        return {first} if probes else {first, floor}

    def expiry(self, first: int) -> int:
        """Return the time before which a restoration that begins at an offset skips records."""
        return max((self.records[offset] for offset in self.records if offset < first), default=0)

    def _first_since(self, time: int) -> int:
        """Return the offset that a broker gives for a time: markers have the time of its clock, and are never older."""
        offsets = range(self.start, self.end)
        return next((offset for offset in offsets if self.records.get(offset, time) >= time), self.start)

    def _probed_time(self) -> int | None:
        """The highest timestamp of the last offsets, of the fewest that have a record."""
        for back in PROBED:
            if times := [timestamp for offset, timestamp in self.records.items() if offset >= self.end - back]:
                return max(times)
        return None


def read_changelogs(
    harness: Harness, version: str, topics: list[str], folder: Path
) -> dict[tuple[str, int], Changelog]:
    """Read topics as they are now; ``folder`` is made for the lines."""
    folder.mkdir()
    files = [folder / f"{topic}.jsonl" for topic in topics]
    reply = harness.command(version, do="dump-changelog", topics=topics, files=[str(file) for file in files])
    assert reply.rc == 0, reply.report()
    facts = ask_broker(harness.bootstrap, {}, group=None, topics=topics)
    logs = {}
    for topic, file in zip(topics, files, strict=True):
        *lines, summary = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        for name, partition in summary["partitions"].items():
            records = {row["offset"]: row["timestamp"] for row in lines if row["partition"] == int(name)}
            policy = facts[TopicPartition(topic, int(name))].policy or ""
            windowed = topic.endswith("-changelog") and "delete" in policy
            logs[topic, int(name)] = Changelog(records, partition["begin"], partition["end"], windowed)
    return logs

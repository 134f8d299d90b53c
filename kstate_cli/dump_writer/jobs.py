"""What one task, of Spark or of a process here, is told, and what it tells: plain data that travels between hosts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kstate_cli.clock import BootTime
from kstate_cli.dump_reader.growing import GrownFile, LastRecord, TailRecord
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.parallel.progress import Counter

_LEAST_SECONDS: Final = 2.0
"""So long the first ranges of a call are read: a call that is ended soon has read something whole by then."""


@dataclass(frozen=True, slots=True)
class RangeJob:
    """Offsets of one partition that are to be read, each record into one file."""

    key: TopicPartition
    start: int
    end: int
    """Below this."""
    out: str
    """The dump, as ``DumpRequest.out``: a folder that this host and the driver both see, or a bucket."""
    generation: int
    run: str
    """What the names of all files of one run have in common, and no other run's have."""
    bootstrap: str = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    """Of the Kafka client: they may hold passwords."""
    awaited: frozenset[str] = frozenset()
    """Digests of keys that are looked for (:mod:`kstate_cli.dump_writer.identity`)."""
    bytes_per_second: int | None = None
    counters: tuple[Counter, Counter] | None = None
    """Records and bytes, where they can be counted on this host."""
    counted: tuple[int, int] = (0, 0)
    """Records and bytes that earlier jobs with the same counters have read."""
    seconds: float | None = None
    """After so long the reading ends, at a record; None: at ``end`` only."""

    @property
    def shown(self) -> str:
        """How messages call it."""
        return f"offsets {self.start} to {self.end - 1} of {self.key}"


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What an attempt made of a range. Only attempts that their engine has accepted are ever looked at."""

    file: GrownFile | None
    """None where the range has no records."""
    last: LastRecord | None
    records: int
    size: int
    """Bytes of keys, values and headers, as they came."""
    ended: BootTime
    """After its last record was read, by the host that read it."""
    another: str | None = None
    """Why this is another log than before: nothing was read then."""
    gone: bool = False
    """The log began above ``start`` by then: nothing was read."""
    tail: tuple[TailRecord, ...] = ()
    """Its last records."""
    seen: frozenset[str] = frozenset()
    """Those of the awaited keys that it has."""
    end: int | None = None
    """Below this it was read, if its time was over before ``end`` of the job was reached."""
    ended_ms: int = 0
    """The same in the time of the dump, as whoever has asked for it finds it."""


class RangeQueue:
    """Jobs that wait for a reader. A job whose time was over waits again, first of all, behind what was read.

    A job may take as long as the call has taken by then. So a call that is ended at any moment has read ranges whole
    for about half of its time, and all jobs but the first ones are read in one piece.
    """

    def __init__(self, jobs: Iterable[RangeJob]) -> None:
        self._waiting = deque(jobs)
        self._began = time.monotonic()

    def take(self) -> RangeJob | None:
        """Return the next job, with the time that it may take; None if none waits."""
        if not self._waiting:
            return None
        seconds = max(_LEAST_SECONDS, time.monotonic() - self._began)
        return replace(self._waiting.popleft(), seconds=seconds)

    def ended(self, job: RangeJob, result: RangeResult) -> RangeJob:
        """Return the job as far as it was read; what is left of it waits again."""
        if result.end is None:
            return job
        records, size = job.counted
        counted = records + result.records, size + result.size
        self._waiting.appendleft(replace(job, start=result.end, counted=counted))
        return replace(job, end=result.end)

"""What one task, of Spark or of a process here, is told, and what it tells: plain data that travels between hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.clock import BootTime
from kstate_cli.dump.growing import GrownFile, LastRecord, TailRecord
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.parallel.progress import Counter


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
    """Digests of keys that are looked for (:mod:`kstate_cli.capture.identity`)."""
    bytes_per_second: int | None = None
    counters: tuple[Counter, Counter] | None = None
    """Records and bytes, where they can be counted on this host."""

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
    ended_ms: int = 0
    """The same in the time of the dump, as whoever has asked for it finds it."""

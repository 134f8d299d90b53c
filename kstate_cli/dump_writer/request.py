"""A request for a dump, the outcome of a round, and the watcher that a caller may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kstate_cli.dump_reader.growing import Grown
from kstate_cli.dump_writer.plan import PartitionPlan
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.spark.choice import EngineChoice
from kstate_cli.spark.context import SparkSettings


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The topics to dump, the broker and the destination."""

    bootstrap: str
    settings: Mapping[str, str] = field(repr=False)
    """Settings of the Kafka client, which may contain passwords."""
    out: str
    """As :func:`kstate_cli.dump_writer.stores.destination` returns it."""
    app: str | None
    """The application whose changelogs are selected by their names."""
    topics: Mapping[str, str]
    """Further topics -> the option or file that names them."""
    engine: EngineChoice
    spark: SparkSettings
    workers: int
    bytes_per_second: int | None = None
    full: bool = False
    keep: int | None = None
    """The number of full dumps of each partition that stay; None: all."""
    dry_run: bool = False
    group: str | None = None
    """The application.id whose committed offsets are recorded; None: ``app``."""


class DumpWatcher:
    """Callbacks for progress; each may be overridden."""

    def planned(self, plans: Sequence[PartitionPlan], grown: Grown | None) -> None:
        """Called with the plans of a round before it reads."""

    def began(self, records: int) -> None:
        """Called before at most so many records are read."""

    def at(self, records: int, size: int) -> None:
        """Called with the records and bytes read so far, from another thread."""

    def warning(self, text: str) -> None:
        """Called with each warning."""


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The outcome of a round."""

    plans: tuple[PartitionPlan, ...]
    """One for each partition; the last one of a partition that was planned again."""
    generation: int | None
    """None if no manifest was written: nothing was new, or it was a dry run."""
    records: int = 0
    size: int | None = 0
    """Bytes of the new files. For a dry run an estimate from the files of the dump; None if there are none yet."""
    files: int = 0
    seconds: float = 0.0
    joined: int = 0
    """The number of small files that became parts of larger ones."""
    dropped: int = 0
    """The number of full dumps that are no longer part of the dump."""
    removed: int = 0
    """The number of removed files: of dead runs, and such as were joined or dropped long ago."""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Facts that are no warnings. Every kind of output prints only these two kinds of text."""
    by_partition: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Records and bytes of the files of each partition that has any; estimates for a dry run."""

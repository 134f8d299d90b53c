"""Open a dump, and describe its partitions. The first source that recognizes a place opens it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kstate_cli.diagnosis import timed
from kstate_cli.formats.topic_partition import TopicPartition

from .growing_source import GrowingDump, dump_of_generation, newest_manifest
from .location import open_location
from .model import Dump, Full, PartitionDump
from .parquet_source import ParquetFolder
from .sources import DumpPlace, DumpSource, OpenOptions
from .table_sources import DeltaTable, IcebergTable

_LOG: Final = logging.getLogger(__name__)
# The source that is recognized most easily comes first: by a manifest, a folder, a file name. The last one must list
# the whole folder.
SOURCES: Final[tuple[DumpSource, ...]] = (GrowingDump(), DeltaTable(), IcebergTable(), ParquetFolder())
"""The sources in the order in which they are tried. The last one accepts every place."""


def read_dump(
    uri: str,
    *,
    complete: bool,
    committed_only: bool,
    check_digests: bool = False,
    full_dump: int | None = None,
    in_part: bool = False,
) -> Dump:
    """Open the dump at ``uri`` (a local path, or a URI of ``pyarrow.fs``), mostly from its footers.

    A dump without a manifest is refused unless ``complete``, with which the user states that no file is missing.
    ``committed_only``: the user states that it has no uncommitted record; it sets :attr:`Dump.isolation` if no manifest
    does. ``check_digests`` reads all files and compares the SHA-256 of the manifest. ``full_dump``: use the full dumps
    that were the newest in this generation. ``in_part``: not every partition is needed, so damaged ones are recorded in
    :attr:`Dump.damaged`, and not refused.

    Raises UsageError if nothing exists at ``uri``, and DumpError (exit code 4), naming the file, for any other fault.
    """
    place = DumpPlace(*open_location(uri), uri)
    options = OpenOptions(complete, committed_only, check_digests, full_dump, in_part)
    with timed(_LOG, f"read dump {place.text}"):
        # A generator, so that a source is only tried if no source before it has recognized the place.
        dump = next(filter(None, (source.open(place, options) for source in SOURCES)), None)
    assert dump is not None, "the last source takes every place"
    return dump


OffsetRange = tuple[int, int]
"""The first offset, and the offset after the last one."""


@dataclass(frozen=True, slots=True)
class DumpedPartition:
    """One partition of a dump. Offsets are those of the newest full dump with its increments; ends are exclusive."""

    key: TopicPartition
    start: int | None
    """The offset at which the newest full dump begins; None without records and without a manifest."""
    end: int | None
    log_start: int | None
    """The bounds of the broker's log when it was last read; None if no manifest states them."""
    log_end: int | None
    fulls: int
    increments: int
    """The number of readings that were added to the newest full dump."""
    gaps: tuple[OffsetRange, ...]
    """Offsets of the log between the first and the last record of the dump that no full dump covers."""
    records: int
    """The number of records in all full dumps."""
    files: int
    bytes: int | None
    """The size of all files; None if no manifest states it."""
    as_of_ms: int | None
    """The time at which the broker was last asked for the end of the log; None if no manifest states it."""
    damage: str | None
    """The first file that is missing, has another size or cannot be read, and why; None if there is none."""


@dataclass(frozen=True, slots=True)
class DumpOverview:
    """All partitions of a dump."""

    partitions: tuple[DumpedPartition, ...]
    generation: int | None
    """The generation of the manifest; None for a dump that was written at once."""


def read_overview(uri: str) -> DumpOverview:
    """Return the overview of a dump from its manifest or from the footers of its files. No file is read in full.

    Raises UsageError if nothing exists at ``uri``, DumpError if it is not a dump.
    """
    place = DumpPlace(*open_location(uri), uri)
    grown = newest_manifest(place.filesystem, place.root, place.text)
    if grown is None:
        dump = read_dump(uri, complete=True, committed_only=False, in_part=True)
        return DumpOverview(tuple(_written_at_once(dump, partition) for partition in dump.partitions.values()), None)
    fulls: dict[TopicPartition, list[Full]] = {}
    for full in sorted(grown.fulls, key=lambda full: full.began):
        fulls.setdefault(full.key, []).append(full)
    dump = dump_of_generation(grown, place, OpenOptions(complete=True, committed_only=False, in_part=True))
    newest = grown.newest()
    partitions = tuple(
        _grown(key, newest.get(key, fulls[key][-1]), fulls[key], dump.damaged.get(key)) for key in sorted(fulls)
    )
    return DumpOverview(partitions, grown.generation)


def _grown(key: TopicPartition, newest: Full, fulls: Sequence[Full], damage: str | None) -> DumpedPartition:
    """Return the overview of one partition of a growing dump."""
    files = {file.path: file for full in fulls for file in full.files}
    return DumpedPartition(
        key,
        newest.start,
        newest.end,
        newest.log_start,
        newest.log_end,
        len(fulls),
        len(newest.ranges) - 1,
        # Only full dumps of the same topic count: those of an earlier topic with this name have other records.
        gaps_between((full.start, full.end) for full in fulls if full.topic_id == newest.topic_id),
        sum(full.rows for full in fulls),
        len(files),
        sum(file.size for file in files.values()),
        newest.as_of_ms,
        damage,
    )


def _written_at_once(dump: Dump, partition: PartitionDump) -> DumpedPartition:
    """Return the overview of one partition of a dump that was written at once."""
    place = partition.topic, partition.partition
    sizes = [file.size for file in dump.manifest_files if (file.topic, file.partition) == place]
    end, start = partition.log_end, partition.start
    if end is None and partition.reading is None and partition.last is not None:
        # Without a manifest only the records show how far the dump reaches.
        end = partition.last + 1
    if start is None:
        start = partition.first
    as_of_ms = None
    if partition.reading is not None:
        as_of_ms = partition.reading.started_ms
    return DumpedPartition(
        partition.key,
        start,
        end,
        partition.log_start,
        partition.log_end,
        1,
        0,
        (),
        partition.rows,
        len(sizes) or len({piece.path for piece in partition.pieces}),
        sum(sizes) if sizes else None,
        as_of_ms,
        dump.damaged.get(partition.key),
    )


def gaps_between(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Return the offsets between these ranges that none of them covers."""
    # The ranges of several full dumps may overlap. They are united first, so that a gap in one range that another range
    # covers does not count.
    covered: list[OffsetRange] = []
    for start, end in sorted(ranges):
        if covered and start <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(end, covered[-1][1]))
        else:
            covered.append((start, end))
    return tuple((before[1], after[0]) for before, after in pairwise(covered))

"""Many small files become few larger ones, and many small ranges too: a dump of a round each minute stays readable.

Not a row is changed or dropped. What was joined stays where it is until nobody can be reading it any more.
"""

from __future__ import annotations

import hashlib
import io
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kstate_cli.dump_reader.digests import other_file
from kstate_cli.dump_reader.errors import DumpError, printable
from kstate_cli.dump_reader.growing import Full, Grown, GrownFile
from kstate_cli.dump_reader.model import Round
from kstate_cli.dump_writer.keeping import path_of
from kstate_cli.dump_writer.stores import DumpStore
from kstate_cli.dump_writer.writing import RangeFile, schema
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import RETENTION_MS

TOGETHER: Final = 16
"""So many small files at the end of a partition are joined."""
_CAPS: Final = (1 << 20, 16 << 20, 128 << 20)
"""What is small, in bytes: a record is written anew at most once for each of these."""
_BATCH_ROWS: Final = 20_000
_SPANS: Final = 16
"""Ranges are joined while all of them together took less than this part of ``delete.retention.ms``."""


_MOST_RANGES: Final = 256
"""So many ranges a partition has at most: those of the last sixteen times of ``delete.retention.ms``, or more."""


def merged(ranges: Sequence[Round], retention_ms: int | None, most_ranges: int = _MOST_RANGES) -> tuple[Round, ...]:
    """Return the same ranges, fewer of them. What they state of when offsets were read is never too good.

    The first one stays as it is: it states how long a full took. Of more than ``most_ranges`` the oldest become one.
    """
    most = (RETENTION_MS if retention_ms is None else retention_ms) // _SPANS
    joined = [*ranges[:1]]
    for one in ranges[1:]:
        before = joined[-1]
        # Clocks are set back now and then: what is said of both holds for each.
        since, until = min(before.continues_ms, one.continues_ms), max(before.ended_ms, one.ended_ms)
        if len(joined) > 1 and until - since <= most:
            joined[-1] = Round(before.start, one.end, since, until)
        else:
            joined.append(one)
    if len(joined) > most_ranges:
        first, *others = joined
        oldest = others[: len(joined) - most_ranges + 1]
        joined = [first, _chained(oldest), *others[len(oldest) :]]
    return tuple(joined)


def _chained(ranges: Sequence[Round]) -> Round:
    """Return readings as one: by its end all offsets were read, and no reading came later after what it continues."""
    ended = max(one.ended_ms for one in ranges)
    return Round(ranges[0].start, ranges[-1].end, ended - max(one.ended_ms - one.continues_ms for one in ranges), ended)


def packed(store: DumpStore, full: Full, generation: int, run: str) -> tuple[Full, tuple[str, ...]]:
    """The full with its last small files as one, and the paths of those.

    Raises DumpError where a file is not what the manifest says, OSError where one cannot be read or written.
    """
    first = _first_to_join(full.files)
    if first is None:
        return full, ()
    parts = full.files[first:]
    new = _joined(store, full.key, parts, generation, run)
    return replace(full, files=(*full.files[:first], new)), tuple(file.path for file in parts)


def _first_to_join(files: Sequence[GrownFile]) -> int | None:
    for cap in _CAPS:
        first = len(files)
        while first and files[first - 1].size < cap:
            first -= 1
        if len(files) - first >= TOGETHER:
            return first
    return None


def _joined(store: DumpStore, key: TopicPartition, parts: Sequence[GrownFile], generation: int, run: str) -> GrownFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = schema()
    start, end = parts[0].groups[0].first, parts[-1].groups[-1].last + 1
    relative = path_of(key, start, end, generation, run, secrets.token_hex(4))
    with RangeFile(relative, wanted, opened=store.opened) as file:
        for part in parts:
            try:
                with pq.ParquetFile(io.BytesIO(_content(store, part))) as parquet:
                    for batch in parquet.iter_batches(_BATCH_ROWS, use_threads=False):
                        file.add(pa.RecordBatch.from_arrays(batch.columns, schema=wanted))
            except pa.ArrowException as error:
                raise DumpError(f"the file cannot be read as Parquet: {error}", where=printable(part.path)) from None
        new = file.finish(relative)
    if new is None or new.rows != sum(part.rows for part in parts):
        raise DumpError("its files do not hold the rows that the manifest says", where=str(key))
    return new


def _content(store: DumpStore, part: GrownFile) -> bytes:
    content = store.content(part.path)
    if hashlib.sha256(content).hexdigest() != part.sha256:
        raise other_file(part.path)
    return content


def kept(grown: Grown, fulls: int) -> tuple[Grown, tuple[Full, ...]]:
    """Of each partition the newest ``fulls``, with their increments; and those that go.

    The last one that has a record stays in addition if all of those are empty: nothing else may have its rows.
    """
    newest: dict[TopicPartition, list[Full]] = {}
    for one in sorted(grown.fulls, key=lambda full: -full.began):
        newest.setdefault(one.key, []).append(one)
    staying = {(one.key, one.began) for of_one in newest.values() for one in of_one[:fulls]}
    for key, of_one in newest.items():
        filled = grown.last_with_rows(key)
        if filled is not None and not any(one.rows for one in of_one[:fulls]):
            staying.add((key, filled.began))
    gone = tuple(one for one in grown.fulls if (one.key, one.began) not in staying)
    return replace(grown, fulls=tuple(one for one in grown.fulls if (one.key, one.began) in staying)), gone

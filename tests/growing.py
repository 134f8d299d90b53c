"""A dump that grows, made without a broker: round after round, by the very parts of ``kstate dump`` that write one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from kstate_cli.clock import now_ms
from kstate_cli.dump_reader.model import Forgotten, Full, Grown, Round
from kstate_cli.dump_writer.packing import pack
from kstate_cli.dump_writer.stores import destination, store_of
from kstate_cli.dump_writer.writing import RangeFile, path_of, schema
from kstate_cli.formats.topic_partition import TopicPartition

Record: TypeAlias = tuple[bytes, bytes | None, int]
"""Key, value, timestamp in ms."""
DAY_MS = 24 * 3600 * 1000


class GrowingDump:
    """Each call of ``add`` is what one round of ``kstate dump --out`` would have written, to a folder or a bucket."""

    def __init__(self, out: Path | str, *, pack: bool = False) -> None:
        self.path = Path(out)
        """Of one in a folder."""
        self.uri = destination(str(out))
        self._store = store_of(self.uri)
        self._pack = pack
        self._newest: dict[TopicPartition, Full] = {}
        self._older: list[Full] = []
        self._forgotten: list[Forgotten] = []
        self.generation = 0

    def add(self, records: Mapping[TopicPartition, Sequence[Record]]) -> int:
        """One more round with these records behind those that are there; its generation."""
        self.generation += 1
        run = secrets.token_hex(6)
        self._store.make(run)
        for key, rows in records.items():
            self._newest[key] = self._full(key, rows, run)
        grown = Grown(
            self.generation, "read_committed", (*self._older, *self._newest.values()), {}, tuple(self._forgotten)
        )
        self._store.commit(grown, run, list(records))
        return self.generation

    def begin_full(self, key: TopicPartition, start: int, topic_id: str = "t", *, keep: bool = False) -> None:
        """The next round of this partition is a new full, whose log begins at ``start``: before it is a gap.

        ``topic_id``: of a topic that was recreated. ``keep``: the full before stays in the dump.
        """
        if keep:
            self._older.append(self._newest[key])
        now = now_ms()
        self._newest[key] = Full(
            key, self.generation + 1, start, start, now, (Round(start, start, now, now),), (), topic_id, "compact",
            DAY_MS, 1,
        )  # fmt: skip

    def _full(self, key: TopicPartition, rows: Sequence[Record], run: str) -> Full:
        before = self._newest.get(key)
        start, now = 0 if before is None else before.end, now_ms()
        end = start + len(rows)
        path = path_of(key, start, end, self.generation, run, secrets.token_hex(4))
        with RangeFile(path, schema(), new_file=self._store.new_file) as file:
            if rows:
                file.add(_batch(key, start, rows))
            finish = file.finish(path)
        files = (*(() if before is None else before.files), *([] if finish is None else [finish]))
        read = Round(start, end, now if before is None else before.as_of_ms, now)
        ranges = (read,) if before is None or before.end == before.start else (*before.ranges, read)
        began = self.generation if before is None else before.began
        log_start = 0 if before is None else before.log_start
        topic_id = "t" if before is None else before.topic_id
        full = Full(key, began, log_start, end, now, ranges, files, topic_id, "compact", DAY_MS, 1)
        if self._pack:
            full, missing = pack(self._store, full, self.generation, run)
            self._forgotten += [Forgotten(entry, now) for entry in missing]
        return full


def _batch(key: TopicPartition, start: int, rows: Sequence[Record]) -> pa.RecordBatch:
    target = schema()
    columns = [
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array([key.topic] * len(rows), pa.string()),
        pa.array([key.partition] * len(rows), pa.int32()),
        pa.array(range(start, start + len(rows)), pa.int64()),
        pa.array([row[2] for row in rows], pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
        pa.array([0] * len(rows), pa.int32()),
        pa.nulls(len(rows), target.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)

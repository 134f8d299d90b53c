"""Records of a Kafka client as Arrow, in the schema of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Final = -1
_NOT_AVAILABLE: Final = 0
"""librdkafka's 0 not available, 1 create time, 2 log append time are one above Spark's (``TimestampType.id``)."""
_HEADERS: Final = methodcaller("headers")
_KEY, _VALUE, _OFFSET = methodcaller("key"), methodcaller("value"), methodcaller("offset")


def schema() -> pa.Schema:
    """The columns, in the order in which Spark has them. Milliseconds, as Kafka has them: none is too large."""
    import pyarrow as pa

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("ms", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", headers),
        ]
    )


def batch_of(key: TopicPartition, messages: Sequence[Any], wanted: pa.Schema) -> pa.RecordBatch:
    """Messages of one partition, at least one, none of them an error."""
    import pyarrow as pa
    import pyarrow.compute

    rows = len(messages)
    kinds, times = [_NOT_AVAILABLE] * rows, [_NONE] * rows
    for at, one in enumerate(messages):
        kinds[at], times[at] = one.timestamp()
    kind = pa.array(kinds, pa.int32())
    known = pa.compute.not_equal(kind, _NOT_AVAILABLE)
    time = pa.compute.if_else(known, pa.array(times, pa.int64()), _NONE)
    headers = list(map(_HEADERS, messages))
    header_type = wanted.field("headers").type
    columns = [
        pa.array(list(map(_KEY, messages)), pa.binary()),
        pa.array(list(map(_VALUE, messages)), pa.binary()),
        pa.repeat(pa.scalar(key.topic, pa.string()), rows),
        pa.repeat(pa.scalar(key.partition, pa.int32()), rows),
        pa.array(list(map(_OFFSET, messages)), pa.int64()),
        time.cast(pa.timestamp("ms", tz="UTC")),
        pa.compute.subtract(kind, 1),
        pa.array(headers, header_type) if any(headers) else pa.nulls(rows, header_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)

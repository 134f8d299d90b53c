"""Records of a Kafka client as Arrow, in the schema of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kstate_cli.formats.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Final = -1
_TYPES: Final = (-1, 0, 1)
"""librdkafka's not available, create time, log append time -> Spark's (``TimestampType.id``)."""


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
    """Messages of one partition, none of them an error."""
    import pyarrow as pa

    rows = len(messages)
    times = [one.timestamp() for one in messages]
    headers = [one.headers() for one in messages]
    header_type = wanted.field("headers").type
    columns = [
        pa.array([one.key() for one in messages], pa.binary()),
        pa.array([one.value() for one in messages], pa.binary()),
        pa.repeat(pa.scalar(key.topic, pa.string()), rows),
        pa.repeat(pa.scalar(key.partition, pa.int32()), rows),
        pa.array([one.offset() for one in messages], pa.int64()),
        pa.array([at if kind else _NONE for kind, at in times], pa.int64()).cast(pa.timestamp("ms", tz="UTC")),
        pa.array([_TYPES[kind] for kind, _ in times], pa.int32()),
        pa.array(headers, header_type) if any(headers) else pa.nulls(rows, header_type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)

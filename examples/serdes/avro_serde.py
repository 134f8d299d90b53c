"""Avro in Confluent's wire format, for ``kstate query``: a zero byte, the schema's id (4 bytes), the record.

::

    AVRO_SCHEMA=order.avsc PYTHONPATH=examples/serdes kstate query range APP STORE --value-serde avro_serde:value

The schema comes from a file, not from a registry: bytes are read with it, so it must be the writer's, or one that
differs as Avro allows where ``AVRO_WRITER_SCHEMA`` names the writer's. The id is not looked up; ``AVRO_SCHEMA_ID``
holds values to one id, and is the id of keys that are asked for.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import fastavro

from kstate_cli.query import Serde

HEADER = 5


def value() -> Serde:
    """The serde of the schema in the file that ``AVRO_SCHEMA`` names."""
    reader = fastavro.parse_schema(json.loads(Path(os.environ["AVRO_SCHEMA"]).read_text(encoding="utf-8")))
    writer_file = os.environ.get("AVRO_WRITER_SCHEMA")
    writer = fastavro.parse_schema(json.loads(Path(writer_file).read_text(encoding="utf-8"))) if writer_file else reader
    wanted = os.environ.get("AVRO_SCHEMA_ID")

    def deserialize(data: bytes) -> Any:
        if len(data) < HEADER or data[0] != 0:
            raise ValueError("no Avro of Confluent's serializer: it begins with a zero byte and a schema id")
        schema_id = int.from_bytes(data[1:HEADER], "big")
        if wanted is not None and schema_id != int(wanted):
            raise ValueError(f"written with schema {schema_id}, not with {wanted}")
        stream = io.BytesIO(data[HEADER:])
        found = fastavro.schemaless_reader(stream, writer, reader)
        if stream.read(1):
            raise ValueError(f"bytes are left behind the record: schema {schema_id} is another one")
        return found

    def serialize(record: Any) -> bytes:
        if wanted is None:
            raise ValueError("AVRO_SCHEMA_ID says with which schema id the key was written")
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, writer, record)
        return b"\0" + int(wanted).to_bytes(4, "big") + stream.getvalue()

    # A key on the command line is JSON: {"customer": 7}. Times, decimals and bytes are rendered as kstate does.
    return Serde("avro", serialize, deserialize, parse=json.loads)

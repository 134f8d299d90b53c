"""Avro in Confluent's wire format, for ``kstate query``: a zero byte, the schema's id (4 bytes), the record.

::

    AVRO_SCHEMA=order.avsc PYTHONPATH=examples/serdes kstate query range APP STORE --value-serde avro_serde:value

The schema comes from a file, not from a registry: bytes are read with it, so it must be the writer's, or one that
differs as Avro allows if ``AVRO_WRITER_SCHEMA`` names the writer's. The id is not looked up. ``AVRO_SCHEMA_ID``
requires one id of all values, and is the id of requested keys.
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
    """Return the serde of the schema in the file ``AVRO_SCHEMA``."""
    reader = fastavro.parse_schema(json.loads(Path(os.environ["AVRO_SCHEMA"]).read_text(encoding="utf-8")))
    writer = reader
    writer_file = os.environ.get("AVRO_WRITER_SCHEMA")
    if writer_file:
        # Avro resolves the differences of two schemas field by field, and needs both for it.
        writer = fastavro.parse_schema(json.loads(Path(writer_file).read_text(encoding="utf-8")))
    expected_id = os.environ.get("AVRO_SCHEMA_ID")

    def deserialize(data: bytes) -> Any:
        if len(data) < HEADER or data[0] != 0:
            raise ValueError("no Avro of Confluent's serializer: it begins with a zero byte and a schema id")
        schema_id = int.from_bytes(data[1:HEADER], "big")
        if expected_id is not None and schema_id != int(expected_id):
            raise ValueError(f"written with schema {schema_id}, not with {expected_id}")
        stream = io.BytesIO(data[HEADER:])
        record = fastavro.schemaless_reader(stream, writer, reader)
        # Avro has no length: another schema may read a part of the bytes, and return a wrong record.
        if stream.read(1):
            raise ValueError(f"bytes are left behind the record: schema {schema_id} is another one")
        return record

    def serialize(record: Any) -> bytes:
        if expected_id is None:
            raise ValueError("AVRO_SCHEMA_ID says with which schema id the key was written")
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, writer, record)
        return b"\0" + int(expected_id).to_bytes(4, "big") + stream.getvalue()

    # A key on the command line is JSON: {"customer": 7}. Times, decimals and bytes are rendered as kstate does.
    return Serde("avro", serialize, deserialize, parse=json.loads)

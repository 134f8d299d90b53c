"""Protobuf in Confluent's wire format, for ``kstate query``: a zero byte, the schema's id, indexes, the message.

::

    protoc --include_imports --descriptor_set_out=shop.desc shop.proto
    PROTOBUF_DESCRIPTORS=shop.desc PROTOBUF_MESSAGE=shop.Order PYTHONPATH=examples/serdes \\
        kstate query range APP STORE --value-serde protobuf_serde:value

``PROTOBUF_PLAIN=1`` is for messages without that header. With generated code, return ``serde_of(order_pb2.Order)``
from a function of your own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, Parse

from kstate_cli.query import Serde


def value() -> Serde:
    """Return the serde of the message ``PROTOBUF_MESSAGE`` in the descriptor set ``PROTOBUF_DESCRIPTORS``."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(os.environ["PROTOBUF_DESCRIPTORS"]).read_bytes())
    # In the order of the set: protoc writes imports before the files that need them.
    for file in files.file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(os.environ["PROTOBUF_MESSAGE"]))
    return serde_of(message, plain=os.environ.get("PROTOBUF_PLAIN") == "1")


def serde_of(message: Any, *, plain: bool = False) -> Serde:
    """Return the serde of a message class; ``plain``: nothing comes before the message."""

    def deserialize(data: bytes) -> Any:
        if not plain:
            data = data[_header(data) :]
        # FromString keeps what the class lacks as unknown fields, so a wrong class often reads without an error.
        return message.FromString(data)

    def serialize(key: Any) -> bytes:
        if not plain:
            raise ValueError("the schema id that a key was written with is not known; look for it with range")
        # Deterministic: the bytes of the key must be those that the application wrote.
        data: bytes = key.SerializeToString(deterministic=True)
        return data

    return Serde(
        "protobuf",
        serialize,
        deserialize,
        parse=lambda text: Parse(text, message()),
        # The JSON of protobuf: 64-bit integers are strings in it.
        render=lambda record: MessageToDict(record, preserving_proto_field_name=True),
    )


def _header(data: bytes) -> int:
    """Return the length of the header: ``00 ‖ id:i32 ‖ indexes``; the index ``00`` is the first message of a file."""
    if len(data) < 6 or data[0] != 0:
        raise ValueError("no Protobuf of Confluent's serializer: it begins with a zero byte and a schema id")
    count, at = _zigzag(data, 5)
    for _ in range(count):
        _, at = _zigzag(data, at)
    return at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the message indexes are cut off")
        number |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            # The sign is the lowest bit, so that small negative numbers are short.
            return (number >> 1) ^ -(number & 1), at
        shift += 7

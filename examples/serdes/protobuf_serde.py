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
    """The serde of the message ``PROTOBUF_MESSAGE`` in the descriptor set ``PROTOBUF_DESCRIPTORS``."""
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(os.environ["PROTOBUF_DESCRIPTORS"]).read_bytes())
    for one in files.file:
        pool.Add(one)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(os.environ["PROTOBUF_MESSAGE"]))
    return serde_of(message, plain=os.environ.get("PROTOBUF_PLAIN") == "1")


def serde_of(message: Any, *, plain: bool = False) -> Serde:
    """The serde of a message class; ``plain`` where nothing stands before the message."""

    def deserialize(data: bytes) -> Any:
        # FromString takes what it does not know for unknown fields; a wrong class often still reads.
        return message.FromString(data if plain else data[_header(data) :])

    def serialize(found: Any) -> bytes:
        if not plain:
            raise ValueError("the schema id that a key was written with is not known; look for it with range")
        written: bytes = found.SerializeToString(deterministic=True)
        return written

    return Serde(
        "protobuf",
        serialize,
        deserialize,
        parse=lambda text: Parse(text, message()),
        # The JSON of protobuf: 64-bit integers are strings in it.
        render=lambda found: MessageToDict(found, preserving_proto_field_name=True),
    )


def _header(data: bytes) -> int:
    """The length of what stands before the message: ``00 ‖ id:i32 ‖ indexes``; ``00`` is a file's first message."""
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
            return (number >> 1) ^ -(number & 1), at
        shift += 7

"""What is told of a broker's logs: one spelling of a topic's id, whoever told it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from kstate_cli.broker.facts import read_facts
from kstate_cli.dump.manifest import parse
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id


@pytest.mark.parametrize("bits", [(-1, -1), (-5, -77), (0, 1), (0x0123456789ABCDEF, -2)])
def test_an_id_has_one_spelling(bits: tuple[int, int], tmp_path: Path) -> None:
    """Kafka's client in Java prints base64 for URLs, librdkafka the other one."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    told = str(confluent_kafka.Uuid(*bits))
    raw = b"".join(one.to_bytes(8, "big", signed=True) for one in bits)
    java = urlsafe_b64encode(raw).decode().rstrip("=")
    assert canonical_topic_id(told) == canonical_topic_id(java) == java
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"t": {"0": {"start": 0, "end": 1, "id": told}}}), encoding="utf-8")
    assert read_facts(file)[TopicPartition("t", 0)].topic_id == java
    one = {"topic": "t", "partition": 0, "rows": 0, "topic_id": told}
    manifest = {"format": 1, "isolation": "read_committed", "partitions": [one]}
    assert parse(json.dumps(manifest).encode()).partitions[0].topic_id == java

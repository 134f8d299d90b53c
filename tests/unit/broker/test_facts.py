"""What is told of a broker's logs: one spelling of a topic's id, whoever told it."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from kstate_cli.broker.facts import read_facts
from kstate_cli.dump_reader.manifest import parse
from kstate_cli.errors import UsageError
from kstate_cli.formats.topic_partition import TopicPartition, canonical_topic_id


@pytest.mark.parametrize("bits", [(-1, -1), (-5, -77), (0, 1), (0x0123456789ABCDEF, -2)])
def test_topic_ids_have_a_single_spelling(bits: tuple[int, int], tmp_path: Path) -> None:
    """Kafka's client in Java prints base64 for URLs, librdkafka the other one."""
    import confluent_kafka

    topic_id = str(confluent_kafka.Uuid(*bits))
    raw = b"".join(bit.to_bytes(8, "big", signed=True) for bit in bits)
    java = urlsafe_b64encode(raw).decode().rstrip("=")
    assert canonical_topic_id(topic_id) == canonical_topic_id(java) == java
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"t": {"0": {"start": 0, "end": 1, "id": topic_id}}}), encoding="utf-8")
    assert read_facts(file)[TopicPartition("t", 0)].topic_id == java
    row = {"topic": "t", "partition": 0, "rows": 0, "topic_id": topic_id}
    manifest = {"format": 1, "isolation": "read_committed", "partitions": [row]}
    assert parse(json.dumps(manifest).encode()).partitions[0].topic_id == java


def test_reads_every_member_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    facts = {
        "start": 3,
        "end": 9,
        "committed": 7,
        "policy": "compact,delete",
        "delete_retention_ms": 5,
        "leader_epoch": 2,
        "retention_ms": 8,
        "min_compaction_lag_ms": 4,
    }
    file.write_text(json.dumps({"t": {"0": facts, "11": {"start": 0, "end": 0}}, "empty": {}}), encoding="utf-8")
    results = read_facts(file)
    assert list(results) == [TopicPartition("t", 0), TopicPartition("t", 11)]
    first, other = results.values()
    assert (
        first.start,
        first.end,
        first.committed,
        first.compacted,
        first.delete_retention_ms,
        first.leader_epoch,
    ) == (
        3,
        9,
        7,
        True,
        5,
        2,
    )
    assert (first.retention_ms, first.min_compaction_lag_ms) == (8, 4)
    assert (other.start, other.end, other.topic_id, other.compacted) == (0, 0, None, None)


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "7", '{"t": 5}', '{"t": {"x": {}}}', '{"t": {"-1": {"start": 0, "end": 1}}}', '{"t": {"0": []}}',
        '{"t": {"0": {"start": 0}}}', '{"t": {"0": {"start": 2, "end": 1}}}', '{"t": {"0": {"start": -1, "end": 1}}}',
        '{"t": {"0": {"start": 0, "end": true}}}', '{"t": {"0": {"start": 0, "end": 1.5}}}',
        '{"t": {"0": {"start": 0, "end": 9223372036854775808}}}', '{"../t": {"0": {"start": 0, "end": 1}}}',
        '{"t": {"0": {"start": 0, "end": 1, "committed": "7"}}}', '{"t": {"0": {"start": 0, "end": 1}}',
    ],
)  # fmt: skip
def test_refuses_malformed_files(content: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="as log offsets") as refusal:
        read_facts(file)
    assert str(file) in str(refusal.value) and '"start"' in str(refusal.value.hint)

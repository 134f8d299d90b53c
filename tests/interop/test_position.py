"""
Position and PositionBound beside real Kafka Streams: the same operations on the same random positions, and each other's bytes.

Java writes topics and partitions in hash order, so that bytes are the same only for one topic with one partition.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.offsets import Position, PositionBound, is_permitted

from .harness import Harness

pytestmark = pytest.mark.interop

CASES = 600
TOPICS = ["events", "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition", "a", "", " ", ".", "0", 't{}"\\\n\t\0',
          "größe", "日本語", "\U0001f600", "\ufeffbom", "\u0301", "x" * 249, "ä" * 200]  # fmt: skip
OFFSETS = [0, 1, -1, 41, 42, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), -2]
PARTITIONS = [0, 1, 2, 3, 7, 128, 65_536, 2**31 - 1]

Offsets = dict[str, dict[int, int]]


def as_json(position: Position) -> dict[str, dict[str, int]]:
    """As Java writes it."""
    return {topic: {str(p): offset for p, offset in offsets.items()} for topic, offsets in position.as_map().items()}


def expected_answers(position: Position, other: Position, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """What kstate says to each operation."""
    return {
        "with-component": as_json(position.with_component(topic, partition, offset)),
        "merge": as_json(position.merge(other)),
        "topics": sorted(position.topics, key=lambda name: name.encode("utf-16-be")),  # Java's order
        "partition-positions": {str(p): reached for p, reached in position.partition_positions(topic).items()},
        "bound": {
            "unbounded": PositionBound.at(other).is_unbounded,
            "position": as_json(PositionBound.at(other).position),
        },
        "is-permitted": is_permitted(position, PositionBound.at(other), partition),
        "deserialize": as_json(position),  # of the bytes that kstate writes
    }


def offsets(rng: random.Random, like: Offsets | None = None) -> Offsets:
    """A random position; half of the components of `like` come again, most with an offset that is near."""
    results: Offsets = {}
    for topic in rng.sample(TOPICS, rng.choice([0, 1, 1, 2, 3, 8])):
        count = rng.choice([1, 1, 2, 4, 60])
        numbers = {*rng.sample(PARTITIONS, min(count, len(PARTITIONS))), *rng.choices(range(1000), k=max(0, count - 8))}
        results[topic] = {number: rng.choice([*OFFSETS, rng.randrange(-(2**63), 2**63)]) for number in numbers}
    for topic, partitions in (like or {}).items():
        for partition, offset in partitions.items():
            if rng.random() < 0.5:
                near = min(max(offset + rng.choice([-1, 0, 0, 1]), -(2**63)), 2**63 - 1)
                results.setdefault(topic, {})[partition] = near
    return results


def component(rng: random.Random, position: Position) -> tuple[str, int, int]:
    """Mostly one that the position has."""
    if position.is_empty or rng.random() < 0.3:
        return rng.choice(TOPICS), rng.choice(PARTITIONS), rng.choice(OFFSETS)
    topic = rng.choice(position.topics)
    facts = position.partition_positions(topic)
    partition = rng.choice(sorted(facts))
    return topic, partition, rng.choice([*OFFSETS, facts[partition]])


def answers(harness: Harness, release: str, folder: Path, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the release says to each operation."""
    requests, messages = folder / "operations.jsonl", folder / "results.jsonl"
    requests.write_text(
        "".join(json.dumps({"id": i, **operation}) + "\n" for i, operation in enumerate(operations)), encoding="utf-8"
    )
    reply = harness.jvm(release).call({"do": "position", "operations": str(requests), "results": str(messages)})
    assert reply.rc == 0, reply.report()
    documents = [json.loads(line) for line in messages.read_bytes().decode("utf-8").split("\n")[:-1]]
    assert [entry["id"] for entry in documents] == list(range(len(operations)))
    return documents


@pytest.mark.parametrize("release", ["3.9.2", "4.3.1"])
def test_the_same_operations_give_the_same(harness: Harness, tmp_path: Path, release: str) -> None:
    rng = random.Random(11)
    operations: list[dict[str, Any]] = []
    target: list[Any] = []
    for _ in range(CASES):
        position = Position.from_map(offsets(rng))
        other = Position.from_map(offsets(rng, position.as_map()))
        topic, partition, offset = component(rng, position)
        members = {"position": as_json(position), "other": as_json(other), "bound": as_json(other),
                   "topic": topic, "partition": partition, "offset": offset,
                   "bytes": base64.b64encode(position.to_bytes()).decode()}  # fmt: skip
        for name, result in expected_answers(position, other, topic, partition, offset).items():
            operations.append({"op": name, **members})
            target.append(result)
    rows = answers(harness, release, tmp_path, operations)
    for operation, result, entry in zip(operations, target, rows, strict=True):
        assert entry.get("result") == result, (operation, entry)
    verdicts = [
        element["result"]
        for operation, element in zip(operations, rows, strict=True)
        if operation["op"] == "is-permitted"
    ]
    assert {True, False} == set(verdicts)
    # No bound at all is another way to say it.
    unbounded = answers(harness, release, tmp_path, [
        {"op": "bound", "bound": None}, {"op": "is-permitted", "position": {}, "bound": None, "partition": 0}])  # fmt: skip
    assert unbounded[0]["result"] == {"unbounded": PositionBound.unbounded().is_unbounded, "position": {}}
    assert unbounded[1]["result"] == is_permitted(Position.empty(), PositionBound.unbounded(), 0)


@pytest.mark.parametrize("release", ["3.9.2", "4.3.1"])
def test_each_reads_the_bytes_of_the_other(harness: Harness, tmp_path: Path, release: str) -> None:
    rng = random.Random(12)
    positions = [Position.from_map(offsets(rng)) for _ in range(CASES)]
    positions += [Position.from_map({topic: {partition: offset}}) for topic in TOPICS for partition in (0, 2**31 - 1)
                  for offset in (0, 2**63 - 1, -(2**63))]  # fmt: skip
    rows = answers(
        harness, release, tmp_path, [{"op": "serialize", "position": as_json(position)} for position in positions]
    )
    exact = 0
    for position, answer in zip(positions, rows, strict=True):
        raw = base64.b64decode(answer["result"])
        assert Position.from_bytes(raw) == position
        assert len(raw) == len(position.to_bytes())
        if len(position.topics) <= 1 and all(len(partitions) == 1 for partitions in position.as_map().values()):
            assert raw == position.to_bytes()
            exact += 1
    assert exact > len(TOPICS)


@pytest.mark.parametrize("release", ["3.9.2", "4.3.1"])
def test_bytes_that_end_too_early_or_are_of_another_version(harness: Harness, tmp_path: Path, release: str) -> None:
    whole = Position.from_map({"größe": {0: 1, 7: -1}}).to_bytes().rstrip(b"\0")
    damaged = [b"", *(whole[:end] for end in range(1, len(whole))), b"\x01" + whole[1:], b"\xff" + whole[1:]]
    operations = [{"op": "deserialize", "bytes": base64.b64encode(raw).decode()} for raw in damaged]
    for raw, answer in zip(damaged, answers(harness, release, tmp_path, operations), strict=True):
        with pytest.raises(MalformedBytesError) as refusal:
            Position.from_bytes(raw)
        assert "exception" in answer, (raw, answer)
        # 4.3 counts what is left before it reads a topic's name.
        within_name = release == "4.3.1" and 9 <= len(raw) < 9 + len("größe".encode())
        text = "SerializationException" if within_name else refusal.value.streams_exception
        assert answer["exception"] == text, (raw, answer)

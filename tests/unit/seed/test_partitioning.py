"""Another number of partitions, on dumps without a broker: proof, new places, order, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_reader.model import PartitionDump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, WindowKey
from kstate_cli.formats.partitions import partition_of
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.formats.values import SubscriptionWrapper
from kstate_cli.seed.partitioning import (
    KEY_PARTS,
    KeyForm,
    Partitioner,
    Partitioning,
    PartitionRule,
    PrimaryPartitions,
    key_form_of,
    partitioner_of,
    repartitioned,
)
from kstate_cli.seed.records import DumpedRecords, Record, partition_in, select_records

TOPIC = "app-store-changelog"
Row = tuple[bytes | None, bytes | None, int]


def by_last_byte(key: bytes, count: int) -> int:
    """A partitioner of a user."""
    return key[-1] % count


def beyond(_key: bytes, count: int) -> int:
    return count


def failing(_key: bytes, _count: int) -> int:
    raise SystemExit(0)


def before_dash(key: bytes) -> bytes:
    """A key function of a user."""
    return key.partition(b"-")[0]


def text_of(_key: bytes) -> str:
    return "text"


def changelog_key(kind: str, key: bytes, number: int) -> bytes:
    """A changelog key as Kafka Streams writes it."""
    by_kind = {
        "key-value": key,
        "versioned": key,
        "window": WindowKey(key, number, number % 3).to_bytes(),
        "session": SessionKey(key, number, number + 5).to_bytes(),
        "time-windowed": WindowKey(key, number).to_bytes()[:-4],
        "list-value": JoinSideKey(number, number % 2 == 0, key).to_bytes(),
        "foreign-key-subscription": CombinedKey(key, b"p%d" % number).to_bytes(),
        "grace-buffer": WindowKey(key, number, 1).to_time_first(),
    }
    assert by_kind.keys() == KEY_PARTS.keys()
    return by_kind[kind]


def sources_of(folder: Path, partitions: Sequence[Sequence[Row]], *, newest_only: bool = False) -> list[DumpedRecords]:
    """Partitions of a topic, from a dump of Parquet files."""
    folder.mkdir()
    for number, rows in enumerate(partitions):
        if not rows:
            continue
        table = pa.table(
            {
                "topic": [TOPIC] * len(rows),
                "partition": pa.array([number] * len(rows), pa.int32()),
                # Compaction leaves gaps.
                "offset": pa.array([3 * place for place in range(len(rows))], pa.int64()),
                "key": pa.array([key for key, _, _ in rows], pa.binary()),
                "value": pa.array([value for _, value, _ in rows], pa.binary()),
                "timestamp": pa.array([time for _, _, time in rows], pa.timestamp("ms", "UTC")),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
    dump = read_dump(str(folder), complete=True, committed_only=True)
    keys = [TopicPartition(TOPIC, number) for number in range(len(partitions))]
    return [select_records(dump, partition_in(dump, key), newest_only=newest_only) for key in keys]


def records_by_target(targets: Sequence[Any]) -> list[list[Record]]:
    return [[record for batch in target.batches() for record in batch] for target in targets]


def rule_of(kind: str, partitioner: Partitioner | None = None) -> PartitionRule:
    return PartitionRule(partitioner or Partitioner(), key_form_of(kind))


def spread(kind: str, count: int, records: int) -> list[list[Row]]:
    """Records of a store in the partitions of their keys, with tombstones, records out of order, and one keyless."""
    chance = random.Random(f"{kind}-{count}")
    partitions: list[list[Row]] = [[] for _ in range(count)]
    for number in range(1, records):
        key = b"key-%d" % chance.randrange(40)
        value = None if number % 7 == 0 else b"v%d" % number
        row = (changelog_key(kind, key, number), value, 1_000 * number - chance.randrange(5_000))
        partitions[partition_of(key, count)].append(row)
    partitions[0].append((None, b"keyless", 5))
    return partitions


@pytest.mark.parametrize("kind", sorted(KEY_PARTS))
@pytest.mark.parametrize(("old", "new"), [(2, 3), (2, 5), (6, 2), (1, 4), (4, 1)])
def test_every_record_gets_the_partition_of_its_key(tmp_path: Path, kind: str, old: int, new: int) -> None:
    partitions = spread(kind, old, 300)
    partitioning = Partitioning("store", old, new, rule_of(kind))
    proven, targets = repartitioned(partitioning, sources_of(tmp_path / "dump", partitions))
    assert proven.proven == (299 if old > 1 else 0)
    assert sum(target.without_key for target in targets) == 1
    contents = records_by_target(targets)
    assert [len(content) for content in contents] == [target.records for target in targets]
    # An oracle that knows the base keys without any format: they were made above.
    everything = {
        (key, value, time): number for number, rows in enumerate(partitions) for key, value, time in rows if key
    }
    for target, content in enumerate(contents):
        for record in content:
            source = everything.pop((record.key, record.value, record.timestamp))
            base = next(b"key-%d" % n for n in range(39, -1, -1) if b"key-%d" % n in record.key)
            assert partition_of(base, old) == source
            assert partition_of(base, new) == target
    assert not everything


def test_partitions_are_merged_by_running_stream_time_and_keep_their_order(tmp_path: Path) -> None:
    """A late record stays behind the record that it is late for, and no partition runs ahead of another."""
    partitions = spread("versioned", 3, 500)
    sources = sources_of(tmp_path / "dump", partitions)
    (content,) = records_by_target(repartitioned(Partitioning("store", 3, 1, rule_of("versioned")), sources)[1])
    expected = []
    for number, rows in enumerate(partitions):
        reached = -1
        for place, (key, value, time) in enumerate(rows):
            reached = max(reached, time)
            if key is not None:
                expected.append((reached, number, place, key, value, time))
    assert [tuple(record[:3]) for record in content] == [row[3:] for row in sorted(expected)]


def test_only_the_newest_record_of_a_key_moves_and_no_tombstone(tmp_path: Path) -> None:
    partitions = spread("key-value", 2, 300)
    sources = sources_of(tmp_path / "dump", partitions, newest_only=True)
    proven, targets = repartitioned(Partitioning("store", 2, 3, rule_of("key-value")), sources)
    # All records prove the rule, those that are not written too.
    assert proven.proven == 299
    newest = {key: value for rows in partitions for key, value, _ in rows if key is not None}
    written = {record.key: record.value for content in records_by_target(targets) for record in content}
    assert written == {key: value for key, value in newest.items() if value is not None}
    assert sum(target.records for target in targets) == len(newest)


def test_a_partition_without_records(tmp_path: Path) -> None:
    rows: list[Row] = [(b"k%d" % n, b"v", 1) for n in range(60) if partition_of(b"k%d" % n, 2) == 0]
    _, targets = repartitioned(
        Partitioning("store", 2, 7, rule_of("key-value")), sources_of(tmp_path / "dump", [rows, []])
    )
    assert sum(map(len, records_by_target(targets))) == len(rows)
    empty = [PartitionDump(TOPIC, number, (), None, None, 0, None, None) for number in range(2)]
    (first, _) = targets[0].sources
    assert isinstance(first, DumpedRecords)
    nothing = [DumpedRecords(first.dump, own, None, 0, 0, 0) for own in empty]
    proven, targets = repartitioned(Partitioning("store", 2, 3, rule_of("key-value")), nothing)
    assert (proven.proven, records_by_target(targets)) == (0, [[], [], []])


def test_a_key_elsewhere_is_refused_with_numbers_and_an_example(tmp_path: Path) -> None:
    partitions = spread("key-value", 2, 300)
    stray = b"stray"
    # A tombstone counts: it would delete in another partition.
    partitions[1 - partition_of(stray, 2)].append((stray, None, 9))
    with pytest.raises(Refused) as caught:
        repartitioned(
            Partitioning("store", 2, 3, rule_of("key-value")),
            sources_of(tmp_path / "dump", partitions, newest_only=True),
        )
    assert "kstate cannot divide the store store into 3 partitions: 1 of its 300 records are not" in str(caught.value)
    assert f"the record with key stray is in partition {1 - partition_of(stray, 2)}, not in" in str(caught.value)
    assert "--partitioner store=MODULE:NAME" in str(caught.value.hint)


@pytest.mark.parametrize("kind", sorted(KEY_PARTS))
def test_the_hint_names_the_form_that_the_records_prove(tmp_path: Path, kind: str) -> None:
    sources = sources_of(tmp_path / "dump", spread(kind, 3, 200))
    other = "session" if kind in ("key-value", "versioned") else "key-value"
    with pytest.raises(Refused) as caught:
        repartitioned(Partitioning("store", 3, 4, rule_of(other)), sources)
    named = str(caught.value.hint).rpartition("=")[2]
    assert KEY_PARTS[named] == KEY_PARTS[kind]
    # The hint, tried.
    proven, _ = repartitioned(Partitioning("store", 3, 4, rule_of(named)), sources)
    assert proven.proven == 199


def test_a_users_partitioner_and_key_are_proven_the_same_way(tmp_path: Path) -> None:
    names = [b"%d-%d" % (number % 37, number) for number in range(400)]
    partitions: list[list[Row]] = [[], []]
    for number, name in enumerate(names):
        partitions[by_last_byte(before_dash(name), 2)].append((name, b"v", number))
    sources = sources_of(tmp_path / "dump", partitions)
    module = __name__
    custom = PartitionRule(partitioner_of(f"{module}:by_last_byte"), key_form_of(f"{module}:before_dash"))
    proven, targets = repartitioned(Partitioning("store", 2, 3, custom), sources)
    assert (proven.proven, custom.partitioner.name) == (400, f"{module}:by_last_byte")
    for target, content in enumerate(records_by_target(targets)):
        assert {by_last_byte(before_dash(record.key), 3) for record in content} == {target}
    for rule in (rule_of("key-value"), PartitionRule(custom.partitioner, key_form_of("key-value"))):
        with pytest.raises(Refused):
            repartitioned(Partitioning("store", 2, 3, rule), sources)


@pytest.mark.parametrize(
    ("partitioner", "key", "message"),
    [
        ("beyond", "key-value", "it returns 2 instead of a number from 0 to 1"),
        ("failing", "key-value", "SystemExit"),
        ("murmur2", "text_of", "it returns a str instead of bytes"),
    ],
)
def test_a_users_function_that_fails(tmp_path: Path, partitioner: str, key: str, message: str) -> None:
    module = __name__
    rule = PartitionRule(
        partitioner_of(partitioner if partitioner == "murmur2" else f"{module}:{partitioner}"),
        key_form_of(key if key in KEY_PARTS else f"{module}:{key}"),
    )
    with pytest.raises(UsageError, match=message):
        repartitioned(Partitioning("store", 2, 3, rule), sources_of(tmp_path / "dump", spread("key-value", 2, 20)))


@pytest.mark.parametrize("text", ["no_such_module:f", "os:no_such_function", "os:sep", "murmur3"])
def test_a_function_that_cannot_be_imported(text: str) -> None:
    for import_function in (partitioner_of, key_form_of):
        with pytest.raises(UsageError) as caught:
            import_function(text)
        assert caught.value.hint


def subscriptions(old: int, left: int, *, version: int = 1) -> list[list[Row]]:
    """A subscription store with ``old`` partitions, of a left table with ``left`` partitions."""
    partitions: list[list[Row]] = [[] for _ in range(old)]
    for number in range(200):
        foreign, primary = b"f%d" % (number % 13), b"p%d" % number
        partition = partition_of(primary, left) if version else None
        value = SubscriptionWrapper(version, 2, bytes(16), primary, partition).to_bytes()
        key = CombinedKey(foreign, primary).to_bytes()
        partitions[partition_of(foreign, old)].append((key, None if number % 9 == 0 else value, number))
    return partitions


@pytest.mark.parametrize(("right", "left"), [((2, 3), (2, 3)), ((2, 2), (2, 5)), ((4, 2), (3, 6))])
def test_subscriptions_get_the_new_partition_of_the_left_table(
    tmp_path: Path, right: tuple[int, int], left: tuple[int, int]
) -> None:
    sources = sources_of(tmp_path / "dump", subscriptions(right[0], left[0]))
    primary = PrimaryPartitions(*left, Partitioner())
    partitioning = Partitioning("store", *right, rule_of("foreign-key-subscription"), primary)
    for target, content in enumerate(records_by_target(repartitioned(partitioning, sources)[1])):
        for record in content:
            combined = CombinedKey.from_bytes(record.key)
            assert partition_of(combined.foreign_key, right[1]) == target
            if record.value is not None:
                wrapper = SubscriptionWrapper.from_bytes(record.value)
                assert wrapper.partition == partition_of(combined.primary_key, left[1])
                assert (wrapper.hash, wrapper.primary_key) == (bytes(16), combined.primary_key)


def test_subscriptions_of_old_releases_have_no_partition(tmp_path: Path) -> None:
    partitions = subscriptions(2, 2, version=0)
    primary = PrimaryPartitions(2, 3, Partitioner())
    partitioning = Partitioning("store", 2, 3, rule_of("foreign-key-subscription"), primary)
    targets = repartitioned(partitioning, sources_of(tmp_path / "dump", partitions))[1]
    values = {(record.key, record.value) for content in records_by_target(targets) for record in content}
    assert values == {(key, value) for rows in partitions for key, value, _ in rows}


def test_subscriptions_of_another_rule_are_refused(tmp_path: Path) -> None:
    sources = sources_of(tmp_path / "dump", subscriptions(2, 5))
    for count in (2, 5):
        primary = PrimaryPartitions(count, 3, Partitioner())
        partitioning = Partitioning("store", 2, 3, rule_of("foreign-key-subscription"), primary)
        if count == 5:
            assert repartitioned(partitioning, sources)[0].proven == 200
            continue
        with pytest.raises(Refused, match="of the left table, but murmur2 selects"):
            repartitioned(partitioning, sources)


def test_a_run_continues_only_with_the_same_rule(tmp_path: Path) -> None:
    sources = sources_of(tmp_path / "dump", spread("key-value", 1, 50))
    identities = []
    for count, rule in (
        (2, rule_of("key-value")),
        (3, rule_of("key-value")),
        (2, PartitionRule(Partitioner(), KeyForm("other"))),
    ):
        targets = repartitioned(Partitioning("store", 1, count, rule), sources)[1]
        identities.append([target.identity for target in targets])
        assert identities[-1] == [target.identity for target in targets]
    assert identities[0] != identities[1]
    assert identities[0] != identities[2]

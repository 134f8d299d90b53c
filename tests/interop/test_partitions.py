"""Keys of changelogs: the partition that kstate gives each is that of Kafka Streams' own partitioners, without a broker."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from kstate_cli.formats.partitions import partition_of, partitions_of
from kstate_cli.seed.partitioning import KEY_PARTS

from .jvm import Jvm
from .support import ALL

pytestmark = pytest.mark.interop

KEYS = 100_000


@pytest.mark.sample(1)
@pytest.mark.parametrize(("release", "count"), [("4.3.1", 3), ("4.2.1", 5), ("4.4.0", 2), ("4.3.1", 1_000)])
def test_the_partition_of_a_key_is_that_of_kafka_streams(tmp_path: Path, release: str, count: int) -> None:
    kinds = sorted(KEY_PARTS)
    keys = KEYS if ALL or count == 3 else KEYS // 10
    file = tmp_path / "keys"
    with Jvm(release, tmp_path / "log") as jvm:
        reply = jvm.call({"do": "partitions", "into": str(file), "kinds": kinds, "keys": keys, "count": count})
    assert reply.rc == 0, reply.report()
    by_kind: dict[str, list[tuple[bytes, int]]] = {kind: [] for kind in kinds}
    with file.open(encoding="ascii") as lines:
        for line in lines:
            kind, key, partition = line.split()
            by_kind[kind].append((bytes.fromhex(key), int(partition)))
    for kind, pairs in by_kind.items():
        assert len(pairs) == keys
        logged = pa.array([key for key, _ in pairs], pa.binary())
        assert partitions_of(logged, KEY_PARTS[kind], count).tolist() == [partition for _, partition in pairs], kind
    for whole, expected in by_kind["key-value"][:1_000]:
        assert partition_of(whole, count) == expected

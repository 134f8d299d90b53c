"""The partition of a key, and committed metadata. ``tests/interop/test_partitions.py`` compares both with Kafka."""

from __future__ import annotations

import base64
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import MAX_I32, MAX_I64, MIN_I64, MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.partitions import (
    NO_PARTITION,
    WHOLE_KEY,
    KeyPart,
    PartitionMetadata,
    murmur2,
    partition_of,
    partitions_of,
)

TIMES = st.integers(0, MAX_I64)
COUNTS = st.integers(1, MAX_I32)
KEYS = st.lists(st.binary(max_size=40), max_size=30)


def array(keys: list[bytes]) -> pa.BinaryArray:
    """Keys behind others, as a slice of a column is."""
    return pa.array([b"before", *keys], pa.binary())[1:]


def test_hashes_of_kafkas_own_test() -> None:
    # UtilsTest.testMurmur2 has them as signed numbers.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    hashes |= {
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    }
    assert {key: murmur2(key) for key in hashes} == {key: number % (1 << 32) for key, number in hashes.items()}


@given(KEYS, COUNTS)
def test_an_array_has_the_partitions_of_its_keys(keys: list[bytes], count: int) -> None:
    assert partitions_of(array(keys), KeyPart(), count).tolist() == [partition_of(key, count) for key in keys]


@given(KEYS, TIMES, st.integers(0, MAX_I32), COUNTS)
def test_additions_of_a_kind_to_a_key_do_not_count(keys: list[bytes], time: int, seq: int, count: int) -> None:
    expected = [partition_of(key, count) for key in keys]
    logged = {
        KeySchema.KEY: keys,
        KeySchema.VERSIONED: keys,
        KeySchema.WINDOW: [WindowKey(key, time, seq).to_bytes() for key in keys],
        KeySchema.TIME_ORDERED_WINDOW: [WindowKey(key, time, seq).to_bytes() for key in keys],
        KeySchema.SESSION: [SessionKey(key, time // 2, time).to_bytes() for key in keys],
        KeySchema.TIME_ORDERED_SESSION: [SessionKey(key, time // 2, time).to_bytes() for key in keys],
        KeySchema.JOIN_SIDE: [JoinSideKey(time, seq % 2 == 0, key).to_bytes() for key in keys],
        KeySchema.COMBINED: [CombinedKey(key, key[::-1]).to_bytes() for key in keys],
        KeySchema.BUFFER: [WindowKey(key, time, seq).to_time_first() for key in keys],
    }
    # Every schema with a known key, so that a new one is compared too.
    assert logged.keys() == set(KeySchema) - {KeySchema.AMBIGUOUS}
    for schema, own in logged.items():
        assert partitions_of(array(own), schema.logged_key, count).tolist() == expected


@pytest.mark.parametrize("schema", [KeySchema.WINDOW, KeySchema.SESSION, KeySchema.JOIN_SIDE, KeySchema.BUFFER])
def test_a_key_that_is_too_short_has_no_partition(schema: KeySchema) -> None:
    size = schema.logged_key.head + schema.logged_key.tail
    keys = array([b"x" * (size - 1), b"x" * size])
    assert partitions_of(keys, schema.logged_key, 1).tolist() == [NO_PARTITION, 0]


@pytest.mark.parametrize("key", [b"", b"\0\0\0", b"\0\0\0\x02k", b"\xff\xff\xff\xffk"])
def test_a_foreign_key_beyond_the_end_has_no_partition(key: bytes) -> None:
    keys = array([key, CombinedKey(b"f", b"p").to_bytes()])
    assert partitions_of(keys, KeySchema.COMBINED.logged_key, 1).tolist() == [NO_PARTITION, 0]


@given(st.integers(MIN_I64, MAX_I64), st.dictionaries(st.text(max_size=10), TIMES, max_size=4))
def test_metadata_is_read_as_it_was_written(time: int, processors: dict[str, int]) -> None:
    try:
        for name in processors:
            name.encode()
    except UnicodeEncodeError:
        return
    metadata = PartitionMetadata(time, processors)
    assert PartitionMetadata.decode(metadata.encode()) == metadata


def test_metadata_of_older_releases_and_none() -> None:
    assert PartitionMetadata.decode(b"") == PartitionMetadata()
    assert PartitionMetadata.decode(base64.b64encode(b"\x01" + bytes(7) + b"\x09")) == PartitionMetadata(9)


def test_a_name_that_is_not_utf_8_stays_the_same() -> None:
    content = b"\x02" + bytes(8) + b"\0\0\0\x01" + b"\0\0\0\x02\xff\xfe" + bytes(8)
    assert PartitionMetadata.decode(base64.b64encode(content)).encode() == base64.b64encode(content)


@pytest.mark.parametrize("content", [b"\x03" + bytes(8), b"\x02" + bytes(7), b"\x02" + bytes(8) + b"\0\0\0\x01", b""])
def test_other_metadata_is_malformed(content: bytes) -> None:
    metadata = base64.b64encode(content) or b"?"
    with pytest.raises(MalformedBytesError):
        PartitionMetadata.decode(metadata)


@pytest.mark.parametrize("part", [WHOLE_KEY, KeyPart(tail=12), KeyPart(head=9, tail=4), KeyPart(counted=True)])
def test_a_key_has_its_part_if_it_has_a_partition(part: KeyPart) -> None:
    """The part of one key and the partitions of many agree, also for keys that are too short."""
    rng = random.Random(7)
    keys = [rng.randbytes(length) for length in range(40)]
    keys += [rng.randrange(-2, 9).to_bytes(4, "big", signed=True) + rng.randbytes(length) for length in range(12)]
    expected = [NO_PARTITION if (base := part.of(key)) is None else partition_of(base, 5) for key in keys]
    assert partitions_of(pa.array(keys, pa.binary()), part, 5).tolist() == expected

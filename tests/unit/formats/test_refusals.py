"""Rows, footers and options that must be refused, and kinds that must not be called certain."""

from __future__ import annotations

import struct

import pytest

from kstate_cli.formats import metadata_files, sst
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.kind_inference import Row, infer_kind
from kstate_cli.formats.values import BufferValue, SubscriptionWrapper, decode_list
from kstate_cli.formats.versioned import SegmentValue, Version

START = 1704067200000
OPTIONS = '[Version]\nrocksdb_version=10.1.3\n[DBOptions]\n{}\n[CFOptions "default"]\n{}\n'


def segment(following: int, minimum: int, *versions: tuple[int, int], values: bytes = b"") -> bytes:
    entries = b"".join(struct.pack(">qi", *version) for version in versions)
    return struct.pack(">qq", following, minimum) + entries + values


@pytest.mark.parametrize(
    "data",
    [
        segment(40, 10),
        segment(40, 10, (30, 0)),
        segment(40, 10, (30, 0), (5, 0)),
        segment(40, 10, (10, -2)),
        segment(40, 10, (10, 2), values=b"a"),
        segment(40, 10, (10, 1), values=b"ab"),
        segment(5, 10, (10, 0)),
        segment(40, 10, (30, 0), (30, 0), (10, 0)),
        segment(10, 10, (10, 0)),
        segment(40, 10, (40, -1), (10, -1)),
    ],
)
def test_segment_values(data: bytes) -> None:
    with pytest.raises(MalformedBytesError):
        SegmentValue.from_bytes(data)


@pytest.mark.parametrize(
    "versions", [(), (Version(50, b""),), (Version(10, b""), Version(20, b"")), (Version(40, b""),)]
)
def test_segment_values_are_not_written(versions: tuple[Version, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        SegmentValue(40, versions).to_bytes()


@pytest.mark.parametrize(
    "wrapper",
    [
        SubscriptionWrapper(2, 0, None, b"", 0),
        SubscriptionWrapper(0, 0, None, b"", 0),
        SubscriptionWrapper(1, 0, None, b"", None),
        SubscriptionWrapper(1, 4, None, b"", 0),
        SubscriptionWrapper(1, 0, b"short", b"", 0),
    ],
)
def test_subscriptions_are_not_written(wrapper: SubscriptionWrapper) -> None:
    with pytest.raises(ValueError, match=r"."):
        wrapper.to_bytes()


@pytest.mark.parametrize(
    "data", ["00", "01ffffffff", "0100000001", "010000000100000000", "01000000010000000102", "010000000000"]
)
def test_lists(data: str) -> None:
    with pytest.raises(MalformedBytesError):
        decode_list(bytes.fromhex(data))


def test_buffered_records() -> None:
    value = BufferValue(1, 2, "t", 0, (), b"same", b"same", None)
    assert b"\xff\xff\xff\xfe" in value.to_bytes()
    assert BufferValue.from_bytes(value.to_bytes() + bytes(8)).trailing == bytes(8)
    with pytest.raises(MalformedBytesError):
        BufferValue.from_bytes(value.to_bytes() + b"x")
    with pytest.raises(ValueError, match="trailing"):
        BufferValue(1, 2, "t", 0, (), None, None, None, b"x").to_bytes()


def test_streams_garbles_a_logged_buffer_key() -> None:
    # Restoring a grace buffer, Streams takes the logged base key for a plain window key and converts it once more.
    logged = bytes.fromhex("00" + "00000000000003e8" + "6b30" + "00000001")
    garbled = WindowKey.from_bytes(logged).to_time_first()
    assert garbled.hex() == "00" + "0000000003e86b30" + "000000" + "00000001"


def test_keys_too_short_for_their_times() -> None:
    with pytest.raises(MalformedBytesError):
        WindowKey.from_bytes(bytes(11))
    with pytest.raises(MalformedBytesError):
        SessionKey.from_bytes(bytes(15))


@pytest.mark.parametrize("data", [b"", b"\x01" + bytes(12), b"\x00" + bytes(11)])
def test_time_first_keys(data: bytes) -> None:
    with pytest.raises(MalformedBytesError):
        WindowKey.from_time_first(data)


def test_other_keys() -> None:
    for data in (bytes(7), struct.pack(">q", -2)):
        with pytest.raises(MalformedBytesError):
            VersionedKey.from_bytes(data)
    with pytest.raises(MalformedBytesError):
        JoinSideKey.from_bytes(bytes(8) + b"\x02")
    for data in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02a"):
        with pytest.raises(MalformedBytesError):
            CombinedKey.from_bytes(data)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        ("57fb808b247547db", "LevelDB"),
        ("0000000000000000", "not a block-based SST"),
        ("00000000f7cff485b741e288", "version 0"),
    ],
)
def test_footers(tail: str, text: str) -> None:
    with pytest.raises(MalformedBytesError, match=text):
        sst.footer(bytes.fromhex(tail).rjust(sst.FOOTER_LENGTH, b"\x01"))
    with pytest.raises(MalformedBytesError, match="checksum type 9"):
        sst.footer(b"\x09" + bytes(40) + bytes.fromhex("06000000f7cff485b741e288"))


@pytest.mark.parametrize(
    ("db", "family", "count"),
    [
        ("env=DefaultEnv", "merge_operator=nullptr", 0),
        ("env={id=PosixEnv;x=y}", "", 0),
        ("env=EncryptedEnv", "", 1),
        ("wal_dir=", "table_factory=BlockBasedTable", 0),
        ("wal_dir=/state/db", "", 0),
        ("wal_dir=/state/db/wal", "", 1),
        ("wal_dir=/wal", "table_factory=PlainTable", 2),
        ("a=b\\#c # comment", "cf_paths={}", 0),
    ],
)
def test_settings(db: str, family: str, count: int) -> None:
    stored = metadata_files.parse(OPTIONS.format(db, family).encode())
    assert len(metadata_files.foreign_settings(stored, "/state/db")) == count


def test_escaped_number_signs() -> None:
    assert metadata_files.parse(OPTIONS.format("a=b\\#c # comment", "").encode()).db == {"a": "b#c"}


def test_subscriptions_with_unequal_primary_keys_are_not_certain() -> None:
    wrapped = bytes(8) + SubscriptionWrapper(1, 2, None, b"other", 0).to_bytes()
    samples: dict[str, list[Row]] = {"keyValueWithTimestamp": [(CombinedKey(b"fk", b"pk").to_bytes(), wrapped)]}
    kind = infer_kind(frozenset({"default", "keyValueWithTimestamp"}), None, samples, "s")
    assert (kind.name, kind.certain) == ("foreign-key-subscription", False)


def test_rows_of_two_schemas_are_not_certain() -> None:
    # The last sixteen bytes are an end and a start, the last twelve a start and a sequence number, all in 0..1 hours.
    row = (b"k" + struct.pack(">qq", 0, 0), b"v")
    kind = infer_kind(frozenset({"default"}), [0, 3600000], {"default": [row]}, "s", 0)
    assert (kind.name, kind.certain) == ("windowed", False)
    assert "window and session" in kind.inferred_from


def test_a_start_bounds_its_segment_by_the_divisor_of_all() -> None:
    # 10 minutes divides both starts, so that a time one hour later is not in the first segment.
    late = (WindowKey(b"key1", START + 3600000).to_bytes(), b"v")
    kind = infer_kind(frozenset({"default"}), [START, START + 600000 * 7], {"default": [late]}, "s")
    assert kind.name == "windowed"
    assert infer_kind(frozenset({"default"}), [START], {"default": [late]}, "s").name == "window"


def test_a_versioned_store_of_tombstones_only() -> None:
    row = (VersionedKey(7, b"k").to_bytes(), SegmentValue(START, (Version(START, None),)).to_bytes())
    kind = infer_kind(frozenset({"default"}), None, {"default": [row]}, "s")
    assert (kind.name, kind.certain) == ("versioned", True)

"""MANIFEST files, written here as RocksDB's ``log::Writer`` and ``VersionEdit::EncodeTo`` write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.metadata_files import families_with_tables, live_tables, may_have_paths, torn, whole_records
from tests.unit.formats.varints import varint

BLOCK, HEADER = 32768, 7
TYPES = {(True, False): 1, (True, True): 2, (False, True): 3, (False, False): 4}
"""Full, first, middle and last: by whether a piece begins a record, and whether more of it follows."""
RECYCLABLE = 4
"""Added to each type in a log that is used again, whose headers have the number of the log in 4 more bytes."""


class Log:
    """The bytes of a log, and where its pieces and records end."""

    def __init__(self, records: Iterable[bytes], recyclable: int = 0) -> None:
        self.data = b""
        self.piece_ends: list[int] = []
        self.ends: list[int] = []
        for record in records:
            self._write(record, recyclable)
            self.ends.append(len(self.data))

    def _write(self, record: bytes, recyclable: int) -> None:
        header, begin = HEADER + recyclable, True
        while begin or record:
            left = BLOCK - len(self.data) % BLOCK
            if left < header:
                self.data += bytes(left)
                left = BLOCK
            piece, record = record[: left - header], record[left - header :]
            kind = TYPES[begin, bool(record)]
            number = b"NNNN"[:recyclable]
            self.data += b"CRC4" + len(piece).to_bytes(2, "little") + bytes([kind + recyclable]) + number + piece
            self.piece_ends.append(len(self.data))
            begin = False


# Records that leave each number of bytes from none to more than a header before the end of a block, and longer ones.
LENGTHS = st.one_of(
    st.integers(0, 40),
    st.integers(BLOCK - 3 * HEADER, BLOCK + HEADER),
    st.integers(2 * BLOCK - 3 * HEADER, 2 * BLOCK + 2 * HEADER),
)


@given(st.lists(LENGTHS, min_size=1, max_size=5))
def test_cuts_of_a_log(lengths: list[int]) -> None:
    log = Log(b"\x02" * length for length in lengths)
    data = log.data
    assert torn(data) is None
    assert whole_records(data) == data
    # RocksDB reserves space, which is zero, behind the last record.
    for reserved in (1, HEADER - 1, HEADER, 100):
        assert torn(data + bytes(reserved)) is None
        assert whole_records(data + bytes(reserved)) == data
    for end in log.piece_ends:
        for cut in {end - 8, end - 7, end - 6, end - 1, end, end + 1, end + 5, end + 6, end + 7} - {len(data)}:
            if not 0 < cut < len(data):
                continue
            whole = max((end for end in log.ends if end <= cut), default=0)
            assert whole_records(data[:cut]) == data[:whole]
            # The padding of a block belongs to no record.
            padding = not any(data[whole:cut]) and BLOCK - whole % BLOCK < HEADER
            assert (torn(data[:cut]) is None) == (cut in log.ends or padding), cut


@pytest.mark.parametrize("recyclable", [0, RECYCLABLE])
def test_the_rest_of_a_cut(recyclable: int) -> None:
    log = Log([b"\x02\x05", b"\x02" * (BLOCK + 50)], recyclable)
    assert torn(b"") == "the file is empty"
    assert torn(log.data) is None
    assert torn(log.data[: log.piece_ends[1]]) == "the file ends within a record"
    assert torn(log.data[:-3]) == "the file ends 3 bytes before the end of its last record"
    assert whole_records(log.data[:-3]) == log.data[: log.ends[0]]


def text(value: bytes) -> bytes:
    return varint(len(value)) + value


def family(number: int, name: str | None = None) -> bytes:
    return varint(200) + varint(number) + (b"" if name is None else varint(201) + text(name.encode()))


def table(number: int, path: bytes | None = None, level: int = 300) -> bytes:
    out = varint(103) + varint(level) + varint(number) + varint(70_000) + text(b"first") + text(b"last")
    out += varint(1) + varint(1 << 63) + varint(5) + text(b"\x09")  # sequence numbers, and the time of creation
    if path is not None:
        out += varint(65) + text(path)
    return out + varint(1)


def deleted_file(number: int, level: int = 300) -> bytes:
    return varint(6) + varint(level) + varint(number)


COMPARATOR = varint(1) + text(b"leveldb.BytewiseComparator")
NUMBERS = b"".join(varint(tag) + varint(1 << 35) for tag in (2, 3, 4, 9, 10, 203, 300))
CURSOR = varint(5) + varint(2) + text(b"key")
BLOBS = (
    varint(400) + varint(300) + varint(301) + varint(302) + text(b"crc32c") + text(b"1234") + varint(7) + text(b"x") + b"\0"
    + varint(401) + varint(300) + varint(301) + varint(302) + varint(7) + text(b"x") + b"\0"
)  # fmt: skip
IGNORABLE = varint(1 << 13 | 5) + text(b"later release")
OTHERS = COMPARATOR + NUMBERS + CURSOR + BLOBS + IGNORABLE
DROPPED = varint(202)


@pytest.mark.parametrize(
    ("edits", "tables", "families"),
    [
        ([], {}, {}),
        ([OTHERS], {0: {}}, {}),
        ([OTHERS + table(200) + OTHERS], {0: {200: 0}}, {0: "default"}),
        ([table(200, b"\x02")], {0: {200: 2}}, {0: "default"}),
        # A removal of a file that another edit adds, and a move to another level within one edit.
        ([table(8), table(9), deleted_file(8)], {0: {9: 0}}, {0: "default"}),
        ([table(8, level=0), deleted_file(8, 0) + table(8, b"\x01", 6)], {0: {8: 1}}, {0: "default"}),
        ([deleted_file(8)], {0: {}}, {}),
        # Families, one of them without files, one dropped and another that gets its number again.
        ([family(1, "one"), family(300, "größe"), family(300) + table(5)], {1: {}, 300: {5: 0}}, {300: "größe"}),
        ([family(1, "one") + table(5), family(1) + DROPPED], {}, {1: "one"}),
        ([family(1, "one") + table(5), family(1) + DROPPED, family(1, "new")], {1: {}}, {1: "new"}),
        ([family(7) + table(5)], {7: {5: 0}}, {7: ""}),
    ],
    ids=str,
)  # fmt: skip
def test_edits(edits: list[bytes], tables: Mapping[int, Mapping[int, int]], families: Mapping[int, str]) -> None:
    log = Log(edits)
    assert live_tables(log.data) == tables
    assert families_with_tables(log.data) == families
    assert may_have_paths(log.data) == any(path for of_family in tables.values() for path in of_family.values())
    # Another record behind them that is incomplete changes nothing.
    incomplete = Log([*edits, table(77)]).data[:-1]
    assert live_tables(incomplete) == tables


def test_a_record_of_several_blocks() -> None:
    names = {number: f"family {number}" for number in range(1, 6000)}
    first = b"".join(family(number, name) + table(number) for number, name in names.items())
    # Each edit changes one family, the last that it names: this one exists to be long.
    log = Log([table(1), first + family(0), table(2)])
    assert len(log.piece_ends) > 6
    assert live_tables(log.data) == {0: dict.fromkeys(range(1, 6000), 0)}
    for recyclable in (0, RECYCLABLE):
        assert live_tables(Log([table(1), table(2)], recyclable).data) == {0: {1: 0, 2: 0}}


@pytest.mark.parametrize(
    "edit",
    [
        varint(11),
        varint(103) + varint(0) + varint(5),
        table(5, b"\x01\x01"),
        table(5, b""),
        family(1) + varint(201) + varint(4) + b"abc",
        COMPARATOR[:-1],
        CURSOR[:-1],
        BLOBS[:-1],
        IGNORABLE[:-1],
        varint(2),
        varint(2) + b"\x80" * 10 + b"\x01",
        varint(5) + b"\x80",
    ],
    ids=repr,
)
def test_unclear_edits_are_refused(edit: bytes) -> None:
    data = Log([table(1), edit]).data
    for function in (live_tables, families_with_tables):
        with pytest.raises(MalformedBytesError, match="MANIFEST"):
            function(data)


def test_most_bits_of_a_number() -> None:
    assert live_tables(Log([table((1 << 64) - 1)]).data) == {0: {(1 << 64) - 1: 0}}

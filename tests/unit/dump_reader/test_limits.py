"""Hostile dumps: a few bytes that claim, or expand to, gigabytes are refused or read in parts, and never decompressed as a whole."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest

from kstate_cli.dump_reader import batches, limits, location, reader, sources
from kstate_cli.dump_reader.batches import iter_tables, open_parquet
from kstate_cli.dump_reader.errors import DumpError, unreadable
from kstate_cli.dump_reader.location import ListedFile
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_reader.slices import slices
from kstate_cli.dump_reader.verification import files_of_dump, verify_files
from kstate_cli.errors import KstateError
from kstate_cli.formats import parquet_footer
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import check_footer, parse_page_header
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.host import HostError
from tests.crafted_parquet import (
    HEADERS,
    TOPIC,
    Crafted,
    data_page,
    large_dictionary,
    large_values,
    levels,
    many_headers,
    parquet_bytes,
    records,
    set_field,
)
from tests.growing import GrowingDump

KEY = TopicPartition(TOPIC, 0)
LOCAL = pyarrow.fs.LocalFileSystem()
MIB = 1 << 20
NAMES = ("key", "value", "headers", "topic")


def dump_of(folder: Path, data: bytes) -> str:
    (folder / "p.parquet").write_bytes(data)
    return str(folder)


def whole_slice(place: str) -> Slice:
    (partition,) = read_dump(place, complete=True, committed_only=True).partitions.values()
    (part,), shuffled = slices(partition, after=None, until=None, max_bytes=1 << 30)
    assert not shuffled
    return part


def refusal(place: str) -> str:
    with pytest.raises(DumpError) as caught:
        read_dump(place, complete=True, committed_only=True)
    assert caught.value.where is not None
    assert caught.value.where.startswith(place)
    return caught.value.message


# --- footers ----------------------------------------------------------------------------------------------------------


def test_a_footer_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "p.parquet").open("wb") as file:
        file.write(b"PAR1")
        file.seek(2 << 30)  # the file system stores no zeros
        file.write((2 << 30).to_bytes(4, "little") + b"PAR1")
    assert "the footer of the file has 2.0 GiB, but kstate reads at most 64.0 MiB" in refusal(str(tmp_path))


def _add_leaves(crafted: Crafted, count: int) -> None:
    set_field(crafted.schema[0], 5, crafted.schema[0][5][1] + count)
    crafted.schema.extend([{1: (5, 1), 3: (5, 0), 4: (8, b"a")}] * count)
    crafted.groups.clear()


def _nest(crafted: Crafted, count: int) -> None:
    set_field(crafted.schema[0], 5, crafted.schema[0][5][1] + 1)
    crafted.schema.extend([{3: (5, 0), 4: (8, b"g"), 5: (5, 1)}] * count)
    crafted.schema.append({1: (5, 1), 3: (5, 0), 4: (8, b"a")})
    crafted.groups.clear()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: _add_leaves(file, limits.MOST_COLUMNS), "columns, but kstate reads at most 10,000"),
        (lambda file: _nest(file, 100_000), "its schema has more than 100 levels"),
    ],
    ids=["columns", "levels"],
)
def test_schemas_without_an_end(change: Callable[[Crafted], None], text: str, tmp_path: Path) -> None:
    crafted = Crafted(records())
    change(crafted)
    assert text in refusal(dump_of(tmp_path, crafted.render()))


def test_column_chunks_and_elements_of_lists_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    data = parquet_bytes(records(), row_group_size=10)
    footer = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    check_footer(footer)
    monkeypatch.setattr(parquet_footer, "MOST_CHUNKS", 89)
    with pytest.raises(MalformedBytesError, match="it has 90 column chunks"):
        check_footer(footer)
    monkeypatch.setattr(parquet_footer, "MOST_ELEMENTS", 80)
    with pytest.raises(MalformedBytesError, match="more elements than kstate reads"):
        check_footer(footer)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: set_field(file.groups[0], 3, -5), "row group 0 has -5 rows"),
        (
            lambda file: set_field(file.groups[0], 3, 1 << 31),
            "row group 0 has 2,147,483,648 rows, but kstate reads at most",
        ),
        (lambda file: set_field(file.chunk("key"), 9, -100), "column key of row group 0 is outside of the file"),
        (lambda file: set_field(file.chunk("key"), 7, -100), "column key of row group 0 is outside of the file"),
        (lambda file: set_field(file.chunk("value"), 7, 1 << 60), "column value of row group 0 is outside of the file"),
        (lambda file: file.groups.extend(file.groups * 5), "or shares bytes with another column"),
        (
            lambda file: set_field(file.chunk("key"), 6, 1 << 62),
            "4,096.0 PiB uncompressed, but kstate reads at most 1.0 TiB",
        ),
    ],
    ids=["negative rows", "rows", "start", "negative size", "size", "shared", "uncompressed"],
)
def test_row_groups_that_cannot_exist(change: Callable[[Crafted], None], text: str, tmp_path: Path) -> None:
    crafted = Crafted(records())
    change(crafted)
    assert text in refusal(dump_of(tmp_path, crafted.render()))


# --- pages ------------------------------------------------------------------------------------------------------------


def findings(place: str) -> list[str]:
    return [finding.message for finding in verify_files(place, files_of_dump(place).files)]


def test_pages_that_are_larger_than_the_footer_states(tmp_path: Path) -> None:
    """2 GiB, of which none is decompressed: the headers of the pages have the sizes."""
    place = dump_of(tmp_path, large_values(200 * MIB, 11, stated=1_000).render())
    (message,) = findings(place)
    assert "column value of row group 0 has 2.1 GiB uncompressed, but the footer of the file states 1000 B" in message
    part = whole_slice(place)
    with pytest.raises(DumpError, match="but the footer of the file states"):
        reader.read_slice(part, ("key", "value"), LOCAL)


def _in_batches(path: Path, columns: tuple[str, ...], rows: int = 8_192) -> list[pa.Table]:
    with open_parquet(LOCAL, str(path)) as parquet:
        groups = range(parquet.metadata.num_row_groups)
        return list(iter_tables(parquet, groups, columns, rows))


def test_large_values_come_in_tables_of_a_single_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_LIMIT", 4 * MIB)
    dump_of(tmp_path, large_values(3 * MIB, 20, stated=60 * MIB).render())
    tables = _in_batches(tmp_path / "p.parquet", ("key", "value"))
    assert [table.num_rows for table in tables] == [1] * 20
    assert _in_batches(tmp_path / "p.parquet", ("key",))[0].num_rows == 20


@pytest.mark.parametrize("column", ["key", "value", "topic"])
def test_a_dictionary_that_repeats_a_large_value(column: str, tmp_path: Path) -> None:
    """20 GiB for pyarrow; more than a gigabyte is never in memory."""
    dump_of(tmp_path, large_dictionary(column, 20 * MIB, 1_000).render())
    before = pa.total_allocated_bytes()
    rows = 0
    with open_parquet(LOCAL, str(tmp_path / "p.parquet")) as parquet:
        for table in iter_tables(parquet, [0], [column, "offset"], 8_192):
            assert pa.total_allocated_bytes() - before < 1 << 30
            rows += table.num_rows
            if rows > 30:
                break
    assert rows > 30


def test_a_topic_of_megabytes(tmp_path: Path) -> None:
    """Without statistics its rows are read."""
    place = dump_of(tmp_path, large_dictionary("topic", 20 * MIB, 1_000).render())
    assert refusal(place) == "a text of more than 249 characters in row group 0 is not the name of a topic"


def test_records_with_hundreds_of_millions_of_headers(tmp_path: Path) -> None:
    data = many_headers(300_000_000).render()
    assert len(data) < 10_000
    (message,) = findings(dump_of(tmp_path, data))
    assert "the records of row group 0 have 300,000,001 headers, but kstate reads at most 134,217,728" in message


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (data_page(100, [levels(1, 100)], size=-7), "no sizes, or negative ones"),
        (data_page(100, [levels(1, 100)], size=(1 << 31) - 1), "uncompressed, but the footer of the file states"),
    ],
    ids=["negative", "claims"],
)
def test_pages_with_wrong_sizes(
    page: tuple[dict[int, tuple[int, object]], bytes], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even pyarrow reads them; but so few bytes cannot expand to much, so their pages are not read before."""
    crafted = Crafted(records())
    crafted.put_pages("value", [page], uncompressed=100)
    place = dump_of(tmp_path, crafted.render())
    (message,) = findings(place)
    assert "kstate cannot decode a page of the file, which is damaged" in message
    monkeypatch.setattr(batches, "_RATIOS", {})
    (message,) = findings(place)
    assert text in message


def test_pages_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dump_of(tmp_path, large_values(10, 20, stated=1_000).render())
    assert not findings(place)
    monkeypatch.setattr(batches, "_RATIOS", {})
    assert not findings(place)
    monkeypatch.setattr(batches, "MOST_PAGES", 19)
    (message,) = findings(place)
    assert "column value of row group 0 has more than 19 pages" in message


def test_a_page_header_is_refused_at_every_byte() -> None:
    """With statistics it is longer than what is read at first."""
    header = bytes.fromhex("1500 15c801 1564 2c 1514 1500 1506 1506 1c") + b"\x18\xc8\x01" + b"m" * 200 + b"\0\0\0"
    page = parse_page_header(header + b"more")
    assert (page.kind, page.uncompressed, page.compressed, page.values, page.length) == (0, 100, 50, 10, len(header))
    for length in range(len(header)):
        with pytest.raises(MalformedBytesError):
            parse_page_header(header[:length])


def test_headers_of_pages_with_statistics(tmp_path: Path) -> None:
    """Page statistics of kilobytes, which some writers store."""
    crafted = Crafted(records(3))
    header, body = data_page(3, [levels(1, 3), *[b"\1\0\0\0v"] * 3])
    header[5][1][5] = 12, {1: (8, b"m" * 5_000)}
    crafted.put_pages("value", [(header, body)], uncompressed=100)
    dump_of(tmp_path, crafted.render())
    (table,) = _in_batches(tmp_path / "p.parquet", ("value",))
    assert table.column("value").to_pylist() == [b"v"] * 3


@pytest.mark.parametrize("dictionary_bytes", [200, 500, 20_000])
@pytest.mark.parametrize("limit", [1, 100, 3_000, 100_000, 256 * MIB])
def test_rows_do_not_depend_on_the_limit(
    limit: int, dictionary_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nulls, empty lists, and dictionaries that were full in the middle of a column."""
    monkeypatch.setattr(batches, "BATCH_LIMIT", limit)
    draw = random.Random(1)
    numbers = range(600)
    table = records(
        600,
        key=pa.array([b"u%d" % number * (number % 50) for number in numbers], pa.binary()),
        value=pa.array([b"x" * (number % 7 * 100) if number % 5 else None for number in numbers], pa.binary()),
        headers=pa.array(
            [
                None
                if number % 11 == 0
                else [
                    {"key": f"a{number % 3}", "value": None if entry == 2 else b"v%d" % (number % 5) * 30}
                    for entry in range(draw.randrange(4))
                ]
                for number in numbers
            ],
            HEADERS,
        ),
    )
    data = parquet_bytes(
        table, use_dictionary=True, row_group_size=250, dictionary_pagesize_limit=dictionary_bytes, data_page_size=3_000
    )
    dump_of(tmp_path, data)
    for columns in (NAMES, *((name,) for name in NAMES)):
        tables = _in_batches(tmp_path / "p.parquet", columns)
        assert pa.concat_tables(tables).equals(table.select(columns))
        assert all(part.num_rows == 1 or part.nbytes < limit * len(columns) + 10_000 for part in tables)


def test_files_that_expand_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dump_of(tmp_path, large_dictionary("value", 10_000, 1_000).render())
    assert not findings(place)
    monkeypatch.setattr(batches, "MOST_EXPANDED_BYTES", MIB)
    monkeypatch.setattr(batches, "MOST_EXPANSION", 10)
    (message,) = findings(place)
    assert "of the file expand to more than 1.0 MiB, which is the most that kstate reads" in message


@pytest.mark.parametrize("shuffled", [False, True])
def test_records_that_must_be_in_memory_together(
    shuffled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows out of order, whose dictionary makes them larger than the footer states."""
    table = records(2_000, value=pa.array([b"x" * 100_000] * 2_000, pa.binary()))
    table = table.take([*range(1_000, 2_000), *range(1_000)]) if shuffled else table
    part = whole_slice(dump_of(tmp_path, parquet_bytes(table, use_dictionary=True)))
    assert part.bytes < 10 * MIB
    assert reader.read_slice(part, ("value",), LOCAL).num_rows == 2_000
    monkeypatch.setattr(reader, "memory_here", lambda: 128 * MIB)
    with pytest.raises(DumpError, match=r"take more than 64\.0 MiB, half of the memory of this host"):
        reader.read_slice(part, ("value",), LOCAL)


def test_a_shortage_of_memory_is_no_damage() -> None:
    assert isinstance(unreadable_error(pa.ArrowMemoryError("malloc of size 2147483648 failed")), HostError)


def unreadable_error(error: Exception) -> KstateError:
    try:
        return unreadable("p.parquet", error)
    except KstateError as raised:
        return raised


def test_files_of_growing_dumps_are_checked_too(tmp_path: Path) -> None:
    """Their manifest has the facts of the footers, so the files are first opened when they are read."""
    dump = GrowingDump(tmp_path / "dump")
    dump.add({KEY: [(b"k", b"v", 1_700_000_000_000)]})
    (path,) = dump.path.rglob("*.parquet")
    part = whole_slice(str(dump.path))
    crafted = Crafted(records(1))
    set_field(crafted.chunk("key"), 1, 1)
    path.write_bytes(crafted.render())
    with pytest.raises(DumpError, match="a column has the physical type 1, but the schema has 6"):
        reader.read_slice(part, ("key",), LOCAL)


# --- manifests, logs of tables, folders ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_manifest.json", "_manifest-0000000001.json"])
def test_manifests_with_millions_of_values(name: str, tmp_path: Path) -> None:
    place = dump_of(tmp_path, parquet_bytes(records()))
    (tmp_path / name).write_bytes(b'{"format":1,"x":[' + b"[]," * (limits.MOST_MANIFEST_VALUES // 2) + b"[]]}")
    assert "the manifest has about 20,000,004 values, but kstate reads at most 20,000,000" in refusal(place)


def test_manifests_of_gigabytes_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dump_of(tmp_path, parquet_bytes(records()))
    with (tmp_path / "_manifest.json").open("wb") as file:
        file.truncate(4 << 30)
    assert "the manifest has 4,294,967,296 bytes, but kstate reads at most 268,435,456" in refusal(place)
    # It grows after its size was read.
    path = tmp_path / "commit"
    path.write_bytes(b" " * 2_000)
    monkeypatch.setattr(sources, "MOST_MANIFEST_BYTES", 1_000)
    with pytest.raises(DumpError, match="the commit has 1,001 bytes, but kstate reads at most 1,000"):
        sources.content_of(LOCAL, ListedFile(str(path), "commit", 10), "commit")


def test_a_number_with_thousands_of_digits(tmp_path: Path) -> None:
    place = dump_of(tmp_path, parquet_bytes(records()))
    (tmp_path / "_manifest.json").write_bytes(b'{"format":' + b"1" * 5_000 + b"}")
    message = refusal(place)
    assert message == "kstate cannot read the manifest: a number of the JSON text has too many digits"


def test_folders_with_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = dump_of(tmp_path, parquet_bytes(records()))
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(location, "MOST_FILES", 2)
    read_dump(place, complete=True, committed_only=True)
    (tmp_path / "folder" / "a").touch()
    assert refusal(place) == "the dump has more than 2 files and folders, which is the most that kstate reads"

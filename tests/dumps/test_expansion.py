"""Pages and dictionaries that expand to far more than the footer states are refused before they are decompressed."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from kstate_cli.dump_reader import pages, reader
from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.parquet_file import open_parquet
from kstate_cli.dump_reader.verification import files_of_dump, verify_files
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.parquet_footer import parse_page_header
from kstate_cli.limits import GIB, MIB

from .crafted import Crafted, data_page, dictionary_page, indices, levels, zeros
from .support import open_dump, rows
from .test_missing_rows import read_at_once, read_in_batches, whole

ROOT = Path(__file__).resolve().parents[2]
LOCAL = fs.LocalFileSystem()
_READER = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[1]), int(sys.argv[1])))
from tests.dumps.test_missing_rows import read_at_once, read_in_batches, whole
from tests.dumps.support import open_dump
from kstate_cli.dump_reader.slices import repartition
from kstate_cli.dump_reader.parquet_file import open_parquet
from kstate_cli.dump_reader.verification import files_of_dump, verify_files
from kstate_cli.errors import KstateError
from pathlib import Path
def sort_with_spark(dump):
    repartition(None, dump, dump.partitions, "/nonexistent")
answers = []
for place in sys.argv[2:]:
    for read in (lambda d: read_at_once(whole(d)), lambda d: read_in_batches(whole(d)), sort_with_spark):
        try:
            read(open_dump(Path(place)))
            answers.append([None, None, None, None])
        except KstateError as error:
            answers.append([error.message, error.exit_code, error.where, error.hint])
    (finding,) = verify_files(place, files_of_dump(place).files)
    answers.append([finding.message, 4, place, None])
print(json.dumps(answers))
"""


def crafted(count: int, **columns: pa.Array) -> Crafted:
    table = rows(count=count)
    for name, array in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, array)
    return Crafted.of_table(table)


def large_values(codec: str, number: int) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        file = crafted(20)
        page = data_page(1, [levels(1, 1), *zeros(200 * MIB)], codec=codec)
        file.put_pages("value", [page] * 20, stated=1_000, codec=number)
        path.write_bytes(file.render())

    return write


def large_page(path: Path) -> None:
    """A page that claims 2 GiB; its bytes are a few."""
    file = crafted(1)
    header, body = data_page(1, [levels(1, 1), *zeros(10)])
    header[2] = 5, (1 << 31) - 1
    file.put_pages("value", [(header, body)], stated=1_000)
    path.write_bytes(file.render())


def large_dictionary(column: str) -> Callable[[Path], None]:
    """Return a file in which a value of some MiB is once, and 20 GiB of which are in its rows."""

    def write(path: Path) -> None:
        file = crafted(10_000)
        file.put_pages(
            column,
            [
                dictionary_page(1, zeros(2 * MIB)),
                data_page(10_000, [levels(1, 10_000), indices(10_000)], dictionary=True),
            ],
            stated=2 * MIB,
        )
        path.write_bytes(file.render())

    return write


BOMBS: dict[str, tuple[Callable[[Path], None], str]] = {
    "gzip": (large_values("gzip", 2), "column value of row group 0 expands to at least"),
    "zstd": (large_values("zstd", 6), "column value of row group 0 expands to at least"),
    "claims": (large_page, "column value of row group 0 expands to at least 2.0 GiB"),
    "dictionary of values": (large_dictionary("value"), "column value of row group 0 expands to at least 19.5 GiB"),
    "dictionary of keys": (large_dictionary("key"), "column key of row group 0 expands to at least 19.5 GiB"),
}


def test_every_bomb_is_refused_within_the_memory_of_a_reader(tmp_path: Path) -> None:
    """The readers of both engines, Spark's shuffle and verify-dump refuse alike."""
    places = []
    for number, (write, _) in enumerate(BOMBS.values()):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder / "a.parquet")
        assert (folder / "a.parquet").stat().st_size < 8 * MIB
        places.append(str(folder))
    ended = subprocess.run(
        [sys.executable, "-c", _READER, str(2 * GIB), *places],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)),
    )
    assert ended.returncode == 0, ended.stderr
    answers: list[list[Any]] = json.loads(ended.stdout)
    for number, (name, (_, expected)) in enumerate(BOMBS.items()):
        for message, exit_code, where, hint in answers[4 * number : 4 * number + 4]:
            assert message is not None, name
            assert expected in message and "but the file's footer states" in message, (name, message)
            assert exit_code == 4 and where.startswith(places[number]), name
            assert hint is None or not name.startswith("dictionary") or "without dictionary encoding" in hint, name


def test_snappy_needs_no_headers_of_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes expand so little that no page can exceed the limit."""
    monkeypatch.setattr(pages, "_page_facts", lambda *_: pytest.fail("a header was read"))
    for codec in ("snappy", "none"):
        pq.write_table(rows(count=100), tmp_path / "a.parquet", compression=codec, use_dictionary=False)
        assert read_at_once(whole(open_dump(tmp_path))).num_rows == 100


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("read", [read_at_once, read_in_batches])
@pytest.mark.parametrize("dictionary_bytes", [200, 5_000, 1 << 20])
def test_real_dictionaries_are_read(
    tmp_path: Path, dictionary_bytes: int, read: Callable[[Any], pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nulls, lists, and dictionaries that were full in the middle of a column, with a limit that reads all of them."""
    count = 600
    table = rows(count=count)
    changed = {
        "key": pa.array([b"u%d" % number * (number % 50) for number in range(count)], pa.binary()),
        "value": pa.array([b"x" * (number % 7 * 100) if number % 5 else None for number in range(count)], pa.binary()),
        "headers": pa.array(
            [
                None
                if number % 11 == 0
                else [{"key": f"a{number % 3}", "value": b"v%d" % (number % 5) * 30}] * (number % 4)
                for number in range(count)
            ],
            HEADERS,
        ),
    }
    for name, array in changed.items():
        at = table.schema.get_field_index(name)
        table = table.append_column(name, array) if at < 0 else table.set_column(at, name, array)
    pq.write_table(
        table,
        tmp_path / "a.parquet",
        row_group_size=250,
        dictionary_pagesize_limit=dictionary_bytes,
        data_page_size=3_000,
    )
    monkeypatch.setattr(pages, "_SMALL_BYTES", 0)
    assert read(whole(open_dump(tmp_path))).num_rows == count
    assert not verify_files(str(tmp_path), files_of_dump(str(tmp_path)).files)
    # The bytes that are compared are those of the values, or more.
    for column in ("key", "value"):
        with open_parquet(LOCAL, str(tmp_path / "a.parquet")) as parquet:
            expansion = pages.Expansion(LOCAL)
            expansion.require(parquet, str(tmp_path / "a.parquet"), [0, 1, 2], [column], 1)
            values = table.column(column).to_pylist()
            assert expansion._decoded >= sum(len(value or b"") for value in values)


def test_rows_that_repeat_values_are_refused_above_the_limit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows(count=2_000)
    table = table.set_column(table.schema.get_field_index("value"), "value", pa.array([b"x" * 100_000] * 2_000))
    pq.write_table(table, tmp_path / "a.parquet")
    monkeypatch.setattr(pages, "LEAST_EXPANDED_BYTES", 250 * MIB)
    part = whole(open_dump(tmp_path))
    assert reader.read_slice(part, ("value",), LOCAL).num_rows == 2_000
    monkeypatch.setattr(pages, "LEAST_EXPANDED_BYTES", 150 * MIB)
    with pytest.raises(DumpError, match="expands to at least 190") as caught:
        reader.read_slice(part, ("value",), LOCAL)
    assert caught.value.hint is not None and "parquet.enable.dictionary=false" in caught.value.hint


def test_row_groups_that_are_read_together_are_not_blamed_singly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = rows(count=2_000)
    table = table.set_column(table.schema.get_field_index("value"), "value", pa.array([b"x" * 100_000] * 2_000))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    monkeypatch.setattr(pages, "LEAST_EXPANDED_BYTES", 120 * MIB)
    with pytest.raises(DumpError, match="3 row groups that kstate reads together expand to at least 14"):
        reader.read_slice(whole(open_dump(tmp_path)), ("value",), LOCAL)


def test_a_refused_row_group_is_refused_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller may repeat a read with the same open files."""
    pq.write_table(rows(count=100), tmp_path / "a.parquet", compression="gzip")
    monkeypatch.setattr(pages, "LEAST_EXPANDED_BYTES", 1)
    expansion = pages.Expansion(LOCAL)
    with open_parquet(LOCAL, str(tmp_path / "a.parquet")) as parquet:
        for _ in range(2):
            with pytest.raises(DumpError, match="expands to at least"):
                expansion.require(parquet, str(tmp_path / "a.parquet"), [0], ["value"], 1)


def test_page_headers_that_are_cut_off() -> None:
    """With statistics a header is longer than what is read at first."""
    header = bytes.fromhex("1500 15c801 1564 2c 1514 1500 1506 1506 1c") + b"\x18\xc8\x01" + b"m" * 200 + b"\0\0\0"
    page = parse_page_header(header + b"more")
    assert (page.kind, page.uncompressed, page.compressed, page.values, page.length) == (0, 100, 50, 10, len(header))
    for length in range(len(header)):
        with pytest.raises(MalformedBytesError, match="header of a page"):
            parse_page_header(header[:length])


def test_page_headers_with_fields_of_another_type() -> None:
    for page in ("1500 15c801 1564 25 02 00", "1500 15c801 1564 2f 00", "1501 15c801 1564 00", "9c" * 40):
        with pytest.raises(MalformedBytesError, match="header of a page"):
            parse_page_header(bytes.fromhex(page))


def test_page_headers_with_statistics(tmp_path: Path) -> None:
    """Some writers store statistics of kilobytes."""
    file = crafted(3)
    header, body = data_page(3, [levels(1, 3), *[b"\1\0\0\0v"] * 3])
    header[5][1][5] = 12, {1: (8, b"m" * 5_000)}
    file.put_pages("value", [(header, body)])
    (tmp_path / "a.parquet").write_bytes(file.render())
    part = whole(open_dump(tmp_path))
    assert reader.read_slice(part, ("value",), LOCAL).column("value").to_pylist() == [b"v"] * 3

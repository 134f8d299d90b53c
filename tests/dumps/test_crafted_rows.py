"""Files whose pages, row groups and footers contradict each other: no command returns the rows of other records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Slice
from kstate_cli.dump_reader.verification import files_of_dump, verify_files

from .crafted import Crafted, data_page, levels, set_field, values
from .support import A, B, open_dump, rows
from .test_missing_rows import read_at_once, read_in_batches, whole

ROWS, GROUP = 60, 20
NUMBERS = range(ROWS)
COLUMNS: dict[str, Sequence[Any]] = {
    "key": [b"k%d" % number for number in NUMBERS],
    "value": [b"v%d" % number for number in NUMBERS],
    "offset": [*NUMBERS],
}
TABLE = rows(count=ROWS)
for name, some in COLUMNS.items():
    at = TABLE.schema.get_field_index(name)
    TABLE = TABLE.set_column(at, TABLE.schema.field(at), pa.array(some, TABLE.schema.field(at).type))


def crafted() -> Crafted:
    return Crafted.of_table(TABLE, row_group_size=GROUP)


def pages(column: str, first: int, counts: Sequence[int]) -> list[Any]:
    """Pages with so many values from a row on; behind the last one come values that no record has."""
    some = [*COLUMNS[column], *(number if column == "offset" else b"another" for number in range(ROWS, 2 * ROWS))]
    result = []
    for count in counts:
        result.append(data_page(count, [levels(1, count), values(some[first : first + count])]))
        first += count
    return result


@pytest.mark.parametrize("read", [read_at_once, read_in_batches])
@pytest.mark.parametrize("column", COLUMNS)
def test_pages_with_other_numbers_of_values_than_the_row_group(
    tmp_path: Path, column: str, read: Callable[[Slice], pa.Table]
) -> None:
    """Too many values in one row group moved those of the next one to other records."""
    path = tmp_path / "a.parquet"
    complete = 0
    for first, second in product([(GROUP,), (9, 9), (9, 11), (9, 13), (9, 9, 9)], repeat=2):
        file = crafted()
        file.put_pages(column, pages(column, 0, first))
        file.put_pages(column, pages(column, GROUP, second), group=1)
        path.write_bytes(file.render())
        try:
            table = read(whole(open_dump(tmp_path)))
        except DumpError as error:
            assert error.where == str(path)
            continue
        complete += 1
        assert {name: table.column(name).to_pylist() for name in COLUMNS} == COLUMNS, (first, second)
    # Values behind the last row are no rows, so those pages can be read.
    assert complete == 16


def first_group_shorter(file: Crafted) -> None:
    """All rows are counted, but in other row groups."""
    set_field(file.groups[0], 3, GROUP - 1)
    set_field(file.groups[1], 3, GROUP + 1)


def last_group_empty(file: Crafted) -> None:
    """Empty row groups are skipped."""
    set_field(file.groups[2], 3, 0)
    set_field(file.footer, 3, ROWS - GROUP)


def group_missing(file: Crafted) -> None:
    """The rows of the file count it."""
    file.groups.pop()


def negative_rows(file: Crafted) -> None:
    set_field(file.groups[0], 3, -GROUP)


def fewer_values(file: Crafted) -> None:
    set_field(file.chunk("value"), 5, GROUP - 1)


def lists_of_fewer_rows(file: Crafted) -> None:
    """Each list has a value at least."""
    for name in ("key", "value"):
        set_field(file.chunk(f"headers.list.element.{name}"), 5, GROUP - 1)


def lists_of_other_lengths(file: Crafted) -> None:
    """The key and the value of a header have the same levels."""
    set_field(file.chunk("headers.list.element.key"), 5, 2 * GROUP)


def another_file(file: Crafted) -> None:
    """pyarrow reads this file instead."""
    file.chunks()[1][1] = 8, b"b.parquet"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (first_group_shorter, "19 rows, but one of its columns has 20 values"),
        (last_group_empty, "0 rows, but one of its columns has 20 values"),
        (group_missing, "60 rows, but its row groups have 40"),
        (negative_rows, "negative"),
        (fewer_values, "20 rows, but one of its columns has 19 values"),
        (lists_of_fewer_rows, "20 rows, but one of its columns has 19 values"),
        (lists_of_other_lengths, "20 rows, but one of its columns has"),
        (another_file, "in another file"),
    ],
)
def test_contradictory_footers(tmp_path: Path, change: Callable[[Crafted], None], reason: str) -> None:
    file = crafted()
    (tmp_path / "a.parquet").write_bytes(file.render())
    assert open_dump(tmp_path).partitions
    change(file)
    (tmp_path / "a.parquet").write_bytes(file.render())
    with pytest.raises(DumpError, match=reason) as caught:
        open_dump(tmp_path)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("column", "highest", "lowest", "wrong"),
    [
        ("topic", A.encode(), A.encode(), B),
        ("partition", bytes(4), bytes(4), 1),
        ("offset", (19).to_bytes(8, "little"), (1).to_bytes(8, "little"), None),
        ("offset", (18).to_bytes(8, "little"), bytes(8), None),
    ],
)
def test_verification_compares_rows_with_their_statistics(
    tmp_path: Path, column: str, highest: bytes, lowest: bytes, wrong: Any
) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(with_statistics(column, highest, lowest, wrong))
    dump = files_of_dump(str(tmp_path))
    (finding,) = verify_files(dump.uri, dump.files)
    assert f"the statistics of row group 0 are wrong: it has rows whose {column} is not in" in finding.message
    path.write_bytes(crafted().render())
    assert not verify_files(dump.uri, dump.files)


def with_statistics(column: str, highest: bytes, lowest: bytes, wrong: Any, **options: Any) -> bytes:
    """A file whose statistics of a column have these bounds; ``wrong``: the value of one of its rows."""
    table = TABLE
    if wrong is not None:
        at = TABLE.schema.get_field_index(column)
        cells = TABLE.column(column).to_pylist()
        cells[7] = wrong
        table = TABLE.set_column(at, TABLE.schema.field(at), pa.array(cells, TABLE.schema.field(at).type))
    file = Crafted.of_table(table, row_group_size=GROUP, **options)
    statistics = file.chunk(column)[12][1]
    for number, value in ((1, highest), (2, lowest), (5, highest), (6, lowest)):
        if number in statistics:
            set_field(statistics, number, value)
    return file.render()


@pytest.mark.parametrize("read", [read_at_once, read_in_batches])
@pytest.mark.parametrize("dictionary", [True, False, ["topic"]])
@pytest.mark.parametrize(("column", "bound", "wrong"), [("topic", A.encode(), B), ("partition", bytes(4), 1)])
def test_a_restoration_compares_the_place_of_rows_with_their_statistics(
    tmp_path: Path, column: str, bound: bytes, wrong: Any, dictionary: Any, read: Callable[[Slice], pa.Table]
) -> None:
    """A record of another partition would become a row of the store."""
    path = tmp_path / "a.parquet"
    path.write_bytes(with_statistics(column, bound, bound, wrong, use_dictionary=dictionary))
    with pytest.raises(DumpError, match=f"it has rows whose {column} is not") as caught:
        read(whole(open_dump(tmp_path)))
    assert caught.value.where == str(path)
    path.write_bytes(with_statistics(column, bound, bound, None, use_dictionary=dictionary))
    assert read(whole(open_dump(tmp_path))).num_rows == ROWS


def test_verification_counts_headers(tmp_path: Path) -> None:
    """If the keys of headers end within a row, its last headers are missing, and no row is."""
    file, path = crafted(), tmp_path / "a.parquet"
    # The pages have one header less than the footer.
    for name in ("key", "value"):
        chunk = file.chunk(f"headers.list.element.{name}")
        set_field(chunk, 5, chunk[5][1] + 1)
    path.write_bytes(file.render())
    dump = files_of_dump(str(tmp_path))
    (finding,) = verify_files(dump.uri, dump.files)
    assert "header values in row group 0" in finding.message

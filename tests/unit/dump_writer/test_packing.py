"""Small files and ranges that become fewer: what they hold and say stays."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.dump_reader.errors import DumpError
from kstate_cli.dump_reader.model import Full, Grown, GrownFile, Round, RowGroup
from kstate_cli.dump_writer.folder import FolderStore
from kstate_cli.dump_writer.packing import TOGETHER, drop_old_fulls, merge_ranges, pack
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import DeleteCoverage, delete_coverage
from tests.dumps.test_growing import KEY, write_file

RUN = "0123456789ab"


def full_of(folder: Path, files: int) -> Full:
    parts = tuple(write_file(folder, f"f{number:03d}", range(number * 5, number * 5 + 5)) for number in range(files))
    return Full(KEY, 1, 0, files * 5, 1000, (Round(0, files * 5, 900, 1000),), parts)


def rows(folder: Path, full: Full) -> list[object]:
    return [row for file in full.files for row in pq.ParquetFile(folder / file.path).read().to_pylist()]


def test_not_a_row_is_changed(tmp_path: Path) -> None:
    few = full_of(tmp_path, TOGETHER - 1)
    assert pack(FolderStore(str(tmp_path)), few, 2, RUN) == (few, ())
    full = full_of(tmp_path / "more", TOGETHER)
    before = rows(tmp_path / "more", full)
    smaller, old_paths = pack(FolderStore(str(tmp_path / "more")), full, 2, RUN)
    assert len(smaller.files) == 1 and rows(tmp_path / "more", smaller) == before
    assert old_paths == tuple(file.path for file in full.files)
    assert all((tmp_path / "more" / path).exists() for path in old_paths), (
        "whoever reads by the old manifest needs them"
    )


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_refuses_to_pack_damaged_files(tmp_path: Path, damage: str) -> None:
    full = full_of(tmp_path, TOGETHER)
    path = tmp_path / full.files[3].path
    if damage == "gone":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        path.write_bytes(content)
    files = sorted(tmp_path.rglob("*.parquet"))
    with pytest.raises(DumpError):
        pack(FolderStore(str(tmp_path)), full, 2, RUN)
    assert sorted(tmp_path.rglob("*.parquet")) == files


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400), st.integers(0, 60)), min_size=1),
    st.integers(0, 5_000),
    st.integers(2, 12),
)
def test_ranges_that_are_joined_promise_no_more(
    steps: list[tuple[int, int, int]], retention: int, most_ranges: int
) -> None:
    """No gap that was there is hidden, no offset was read sooner, and what was sound before is sound."""
    ranges, at, request_ms = [], 0, 0
    for records, later, took in steps:
        ranges.append(Round(at, at + records, request_ms, request_ms + later + took))
        at, request_ms = at + records, request_ms + later
    few = merge_ranges(ranges, retention, most_ranges)
    assert len(few) <= most_ranges
    assert (few[0], few[0].start, few[-1].end) == (ranges[0], ranges[0].start, ranges[-1].end)
    assert all(former.end == other.start for former, other in pairwise(few))

    def read_by(rounds: tuple[Round, ...] | list[Round], offset: int) -> int:
        return next(span.ended_ms for span in rounds if offset < span.end)

    assert all(read_by(few, offset) >= read_by(ranges, offset) for offset in range(at))

    def sound(rounds: tuple[Round, ...] | list[Round]) -> bool:
        return all(
            delete_coverage(span.continues_ms, span.ended_ms, retention) is DeleteCoverage.YES for span in rounds
        )

    assert sound(few) is sound(ranges)


def test_ranges_do_not_grow_with_rounds() -> None:
    """A round each ten minutes for a month, of a topic whose deletes live an hour."""
    ranges: tuple[Round, ...] = ()
    rounds = 30 * 24 * 6
    for number in range(rounds):
        at = number * 600_000
        ranges = merge_ranges((*ranges, Round(number, number + 1, at, at + 600_000)), 3_600_000)
        assert len(ranges) <= 256
    assert (ranges[0].start, ranges[-1].end) == (0, rounds)
    assert all(delete_coverage(span.continues_ms, span.ended_ms, 3_600_000) is DeleteCoverage.YES for span in ranges)


def test_the_last_full_that_has_a_record_stays() -> None:
    """An empty changelog, be it recreated or read at the wrong moment, does not drop the only rows that there are."""
    ranges = (Round(0, 9, 0, 0),)
    file = GrownFile("f", 9, "0" * 64, (RowGroup(0, 8, 9, 1, 1),))
    older, filled = (Full(KEY, began, 0, 9, 0, ranges, (replace(file, path=f"f{began}"),)) for began in (1, 3))
    empty = [Full(KEY, began, 0, 9, 0, ranges, ()) for began in (5, 7, 9)]
    grown, old_fulls = drop_old_fulls(Grown(9, "read_committed", (older, filled, *empty)), 2)
    assert grown.fulls == (filled, empty[1], empty[2])
    assert old_fulls == (older, empty[0])
    new = replace(older, began=11)
    grown, old_fulls = drop_old_fulls(replace(grown, fulls=(*grown.fulls, new)), 2)
    assert grown.fulls == (empty[2], new) and filled in old_fulls


def test_the_newest_fulls_stay() -> None:
    other = TopicPartition("t", 1)
    ranges = (Round(0, 0, 0, 0),)
    full_dumps = tuple(
        Full(key, began, 0, 0, 0, ranges, ()) for key, began in ((KEY, 1), (KEY, 4), (other, 1), (KEY, 9))
    )
    grown, old_fulls = drop_old_fulls(Grown(9, "read_committed", full_dumps), 2)
    assert {(full.key, full.began) for full in grown.fulls} == {(KEY, 4), (KEY, 9), (other, 1)}
    assert [(full.key, full.began) for full in old_fulls] == [(KEY, 1)]
    assert replace(grown, fulls=full_dumps) == Grown(9, "read_committed", full_dumps)

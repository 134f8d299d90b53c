"""The same records through any mix of writers are the same dump as through one."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from kstate_cli.dump_reader.footers import Passage
from kstate_cli.dump_reader.reader import digest_at
from kstate_cli.dump_reader.slices import slices
from kstate_cli.formats.topic_partition import TopicPartition
from tests import sampling

from .encodings import BINARY, HEADERS, STRING, TIMES, WRITERS, ZONES, Writer, records
from .support import A, B, all_tables, content, open_dump

COLUMNS = ("key", "value", "timestamp", "offset", "headers")
TABLES = (records(A, 0), records(A, 1, 40), records(B, 0, 60))


def write_files(folder: Path, writers: Sequence[Writer], per_file: int, repeated: int) -> Path:
    """Write each partition in files of ``per_file`` rows, by one writer after another; ``repeated`` rows come twice."""
    turn = itertools.cycle(writers)
    for table in TABLES:
        for number, begin in enumerate(range(0, len(table), per_file)):
            part = table.slice(max(0, begin - repeated), per_file + min(begin, repeated))
            name = f"{part.column('topic')[0]}-{part.column('partition')[0]}-{number:03d}.parquet"
            next(turn).write(part, folder, name)
    return folder


def read(folder: Path, max_bytes: int = 1 << 30, columns: tuple[str, ...] = COLUMNS) -> dict[TopicPartition, list[Any]]:
    """Return every row; no headers are written as an empty list or as null."""
    results = content(open_dump(folder), max_bytes, columns)
    return {key: [tuple([] if value is None and name == "headers" else value for name, value in zip(columns, row, strict=True)) for row in rows] for key, rows in results.items()}  # fmt: skip


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[TopicPartition, list[Any]]:
    return read(write_files(tmp_path_factory.mktemp("plain"), [Writer()], 1000, 0))


@settings(max_examples=60 if sampling.ALL else 12, deadline=None)
@given(
    writers=st.lists(WRITERS, min_size=2, max_size=5),
    per_file=st.sampled_from([17, 25, 70]),
    repeated=st.sampled_from([0, 0, 3]),
)
def test_any_mix_of_writers(
    tmp_path_factory: pytest.TempPathFactory,
    plain: dict[TopicPartition, list[Any]],
    writers: list[Writer],
    per_file: int,
    repeated: int,
) -> None:
    folder = tmp_path_factory.mktemp("mix")
    try:
        write_files(folder, writers, per_file, repeated)
        assert read(folder) == plain
        assert read(folder, 400 if not repeated else 1 << 30) == plain
        dump = open_dump(folder)
        assert dump.has_headers and not dump.headerless
        for key, rows in plain.items():
            partition = dump.partitions[key]
            (part,), again = slices(partition, after=None, until=None, max_bytes=1 << 30)
            assert not again
            tables = all_tables(part, ("offset", "timestamp", "key"), 13, 1_000, Passage())
            values = [tuple(row.values()) for table in tables for row in table.to_pylist()]
            assert values == [(row[3], row[2], row[0]) for row in rows]
            record = digest_at(fs.LocalFileSystem(), partition, rows[-1][3])
            assert record is not None or len(partition.pieces) > 4
    finally:
        shutil.rmtree(folder)


def every_writer() -> list[Writer]:
    """Return a writer for each encoding of each column, and nothing else that is unusual."""
    return [
        *(Writer(key=kind, value=kind) for kind in BINARY),
        *(Writer(topic=kind) for kind in STRING),
        Writer(partition="int64"),
        Writer(partition="dictionary", offset="dictionary"),
        *(Writer(time=unit, zone=zone) for unit in TIMES for zone in ZONES),
        *(Writer(headers=kind, no_headers=none) for kind in HEADERS for none in ("null", "empty")),
        Writer(timestamp_type=False),
        Writer(hive=True),
        Writer(nullable=False),
        Writer(statistics=False),
    ]


@pytest.mark.parametrize("writer", every_writer(), ids=str)
def test_each_encoding_alone_and_beside_the_usual_encoding(
    plain: dict[TopicPartition, list[Any]], writer: Writer, tmp_path: Path
) -> None:
    assert read(write_files(tmp_path / "alone", [writer], 50, 0)) == plain
    # Two files for each partition: of each order of the two writers one mix.
    for number, mix in enumerate(([Writer(), writer], [writer, Writer()])):
        assert read(write_files(tmp_path / str(number), mix, 60, 2)) == plain


def test_digests_of_records_do_not_depend_on_the_writer(tmp_path: Path) -> None:
    key = TopicPartition(A, 0)
    digests = set()
    for number, writer in enumerate(every_writer()):
        folder = tmp_path / str(number)
        writer.write(TABLES[0], folder, "a.parquet")
        digests.add(digest_at(fs.LocalFileSystem(), open_dump(folder).partitions[key], 57))
    assert len(digests) == 1 and None not in digests


def test_headers_that_some_files_lack_are_unknown_of_that_topic(
    plain: dict[TopicPartition, list[Any]], tmp_path: Path
) -> None:
    """As a dump whose option includeHeaders was set later: other columns are read, and other topics have theirs."""
    table = TABLES[0]
    Writer(headers=None).write(table.slice(0, 60), tmp_path, "a.parquet")
    Writer().write(table.slice(50), tmp_path, "b.parquet")
    Writer().write(TABLES[2], tmp_path, "c.parquet")
    dump = open_dump(tmp_path)
    assert not dump.headers_of(A) and dump.headers_of(B)
    four = COLUMNS[:4]
    assert read(tmp_path, columns=four)[TopicPartition(A, 0)] == [row[:4] for row in plain[TopicPartition(A, 0)]]

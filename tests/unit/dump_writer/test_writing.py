"""A file of one range: what it takes while it is written, and what is left of one that was not finished."""

from __future__ import annotations

import gc
import hashlib
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump_writer.writing import RangeFile, schema
from tests.dumps.test_growing import write_file


def test_a_file_that_was_not_finished_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "topic=t" / "partition=0" / "f.parquet"
    batch = pa.RecordBatch.from_pylist([{"key": b"k", "value": None, "topic": "t", "partition": 0, "offset": 5,
                                         "timestamp": 0, "timestampType": 0, "headers": None}], schema=schema())  # fmt: skip
    with pytest.raises(KeyError), RangeFile(str(path), schema(), group_bytes=1) as file:
        file.add(batch)
        assert path.exists()
        raise KeyError
    assert not path.exists()
    descriptor = os.open(tmp_path / "another", os.O_RDWR | os.O_CREAT)  # with the number that is free now
    del file
    gc.collect()
    assert os.pread(descriptor, 1, 0) == b"", "a footer that comes late is written to whatever has the number by then"
    os.close(descriptor)
    with RangeFile(str(path), schema()) as file:
        assert file.finish("f") is None
    assert not path.exists(), "no records, no file"


def test_only_its_owner_reads_it_and_the_digest_is_of_its_bytes(tmp_path: Path) -> None:
    grown_file = write_file(tmp_path / "dump", "one", range(9))
    path = tmp_path / "dump" / grown_file.path
    assert grown_file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() and grown_file.size == path.stat().st_size
    assert [stat.S_IMODE(part.stat().st_mode) for part in (path, path.parent, path.parent.parent)] == [
        0o600,
        0o700,
        0o700,
    ]
    table = pq.ParquetFile(path)
    assert {table.metadata.row_group(0).column(index).compression for index in range(table.metadata.num_columns)} == {
        "ZSTD"
    }
    assert [(group.first, group.last, group.rows) for group in grown_file.groups] == [(0, 3, 4), (4, 7, 4), (8, 8, 1)]

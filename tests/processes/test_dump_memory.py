"""What a dump takes while it is written does not grow with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kstate_cli.dump_writer.writing import GROUP_BYTES
from tests.object_store import ObjectStore

_MIB = 1 << 20
_WRITES = """
import os, sys
import pyarrow as pa
from kstate_cli.dump_writer.writing import schema
from kstate_cli.dump_writer.stores import destination, store_of
from kstate_cli.dump_writer.writing import RangeFile
from tests.memory import peak_bytes
path, group, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with RangeFile("topic=t/partition=0/file", schema(), group, new_file=store_of(destination(path)).new_file) as file:
    for number in range(count):
        value = number.to_bytes(4, "big") * (1 << 18) if path[:2] != "s3" else os.urandom(1 << 20)
        rows = {"key": [b"k"], "value": [value], "topic": ["t"], "partition": [0], "offset": [number],
                "timestamp": pa.array([0], pa.timestamp("ms", tz="UTC")), "timestampType": [0], "headers": [None]}
        file.add(pa.RecordBatch.from_pydict(rows, schema=schema()))
    written = file.finish("x")
print(len(written.groups), peak_bytes())
"""


def peak(path: Path | str, group: int, count: int) -> tuple[int, int]:
    """Row groups, and the most memory of a process that writes so many MiB."""
    command = [sys.executable, "-c", _WRITES, str(path), str(group), str(count)]
    process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    groups, most = map(int, process.stdout.split())
    return groups, most


def test_memory_is_bounded_by_the_row_group(tmp_path: Path) -> None:
    groups, most = peak(tmp_path / "a" / "bounded", GROUP_BYTES, 800)
    assert groups == 7
    assert most < 550 * _MIB
    _, all_at_once = peak(tmp_path / "a" / "unbounded", 1 << 40, 800)
    assert all_at_once > 800 * _MIB, "what would show if it were not"


@pytest.mark.in_full("tests/processes/test_dump_memory.py::test_memory_is_bounded_by_the_row_group")
def test_and_by_the_part_that_is_sent_to_a_bucket(objects: ObjectStore) -> None:
    groups, most = peak(objects.uri("dump"), GROUP_BYTES, 400)
    assert groups == 4 and len([request for request in objects.requests() if "partNumber" in request]) > 0
    assert most < 550 * _MIB

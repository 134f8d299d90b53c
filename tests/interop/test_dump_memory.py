"""What a task of a dump holds in memory: a row group and its encoding, however many records there are and however large."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from kstate_cli.dump_writer.task import RangeJob, read_range
from kstate_cli.dump_writer.writing import GROUP_BYTES
from kstate_cli.formats.topic_partition import TopicPartition
from tests.memory import peak_bytes

from .harness import Harness
from .test_dump_moves import Topic

pytestmark = pytest.mark.interop

MOST = 4 * GROUP_BYTES + (192 << 20)
"""A row group, its pages before and after compression, what the allocator keeps; Python, Arrow, the client's queue."""


def peak_of(job: RangeJob) -> tuple[int, int]:
    """Records, and the most memory that this process ever had."""
    result = read_range(job)
    return result.records, peak_bytes()


def peak(harness: Harness, topic: Topic, folder: Path, end: int) -> int:
    job = RangeJob(TopicPartition(topic.name, 0), 0, end, str(folder), 1, "0" * 12, harness.bootstrap, {})
    folder.mkdir()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        records, bytes_ = pool.apply(peak_of, (job,))
    assert records == end
    return int(bytes_)


@pytest.mark.in_full("tests/processes/test_dump_memory.py::test_memory_is_bounded_by_the_row_group")
def test_large_records(harness: Harness, tmp_path: Path) -> None:
    """Twenty thousand of them at once would be 10 GB."""
    topic = Topic(harness.bootstrap)
    topic.produce(800, value=b"v" * 500_000)
    assert 3 * GROUP_BYTES < peak(harness, topic, tmp_path / "out", 800) < MOST


@pytest.mark.in_full("tests/processes/test_dump_memory.py::test_memory_is_bounded_by_the_row_group")
def test_memory_does_not_grow_with_the_records_read(harness: Harness, tmp_path: Path) -> None:
    topic, records = Topic(harness.bootstrap), 1_600_000
    topic.produce(records, value=b"v" * 200)
    half, whole = (peak(harness, topic, tmp_path / str(part), records // part) for part in (2, 1))
    assert half > 100 << 20, "it is measured"
    assert whole < min(MOST, half + GROUP_BYTES // 2), (half >> 20, whole >> 20)

"""A dump whose time is over before its first full is read: each call keeps what it has read, and the next one continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.dump_reader.open import read_dump
from kstate_cli.dump_writer.task import RangeJob, RangeQueue, read_range
from kstate_cli.formats.topic_partition import TopicPartition

from .dumping import dump, dumped, newest
from .harness import Harness
from .support import ROOT
from .test_dump_moves import Topic

pytestmark = pytest.mark.interop

_SECONDS = 300
PARTITIONS, RECORDS = 5, 1500
RATE = ("--engine", "local", "--workers", "1", "--max-rate", "80k")
"""So slow that a call is ended by its signal and not by its work."""


def _interrupt(harness: Harness, out: Path, topic: str, *options: str) -> tuple[int, str]:
    """A call that gets SIGTERM once it has begun the second new file; its exit code and its messages."""
    words = ["dump", "--bootstrap-server", harness.bootstrap, "--out", str(out), "--topic", topic, *RATE, *options]
    before = len([*out.rglob("*.parquet")])
    with subprocess.Popen(
        [sys.executable, "-m", "kstate_cli", *words], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:  # fmt: skip
        deadline = time.monotonic() + _SECONDS
        while process.poll() is None and len([*out.rglob("*.parquet")]) < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        content = process.stderr.read()
        return process.wait(_SECONDS), content


@pytest.mark.rotating(4, "long dumps")
def test_each_call_continues(harness: Harness, tmp_path: Path) -> None:
    topic = Topic(harness.bootstrap, partitions=PARTITIONS, cleanup_policy="compact")
    for partition in range(PARTITIONS):
        topic.produce(RECORDS, partition=partition, keys=RECORDS)
    out = tmp_path / "dump"
    ends: list[int] = []
    for _ in range(PARTITIONS):
        code, messages = _interrupt(harness, out, topic.name)
        if code == 0:
            break
        assert code == 128 + signal.SIGTERM and "the next run continues" in messages, messages
        facts = newest(out).newest()
        ends.append(sum(full.rows for full in facts.values()))
        # What a reader is told is true: where the log ends, and up to where the dump is.
        read_dump(str(out), complete=False, committed_only=False, check_digests=True)
        assert all(full.end <= full.log_end for full in facts.values())
    assert len(ends) >= 2 and ends == sorted(set(ends)), "each call has kept more than the one before"
    dump(harness, out, "--topic", topic.name, "--workers", "1")
    assert {key: [row[0] for row in rows] for key, rows in dumped(out).items()} == {
        TopicPartition(topic.name, partition): [record[0] for record in topic.records(partition)]
        for partition in range(PARTITIONS)
    }
    assert {full.began for full in newest(out).fulls} <= set(range(1, PARTITIONS + 2))
    assert len(newest(out).fulls) == PARTITIONS, "no partition was read twice"


@pytest.mark.rotating(4, "long dumps")
def test_time_limit_shorter_than_a_range(harness: Harness, tmp_path: Path) -> None:
    """One partition, one range: each call keeps what it has read by then, and a bounded number of calls reads all."""
    topic = Topic(harness.bootstrap, cleanup_policy="compact")
    topic.produce(6 * RECORDS, keys=6 * RECORDS)
    out, ends = tmp_path / "dump", []
    for _ in range(20):
        code, messages = _interrupt(harness, out, topic.name)
        if code == 0:
            break
        assert code == 128 + signal.SIGTERM, messages
        ends.append(max(full.end for full in newest(out).fulls))
    assert code == 0 and len(ends) >= 2 and ends == sorted(set(ends)), ends
    assert [row[0] for row in dumped(out)[TopicPartition(topic.name, 0)]] == [record[0] for record in topic.records()]
    assert len(newest(out).fulls) == 1


def test_a_range_is_left_where_its_time_is_over(harness: Harness, tmp_path: Path) -> None:
    """What is left of it waits first of all, and together the parts have every record once."""
    topic = Topic(harness.bootstrap)
    topic.produce(45_000)
    key, out = TopicPartition(topic.name, 0), tmp_path / "dump"
    job = RangeJob(key, 0, 45_000, str(out), 1, "0" * 12, harness.bootstrap, {})
    queue, bounds = RangeQueue([job, replace(job, start=44_000)]), []
    while (next_job := queue.take()) is not None:
        result = read_range(replace(next_job, seconds=0.0))
        ended = queue.ended(next_job, result)
        assert result.file is not None and result.records == result.file.rows
        bounds.append((ended.start, ended.end, result.records))
    assert len(bounds) > 2 and bounds[-1] == (44_000, 45_000, 1_000), "the second job came last"
    assert [start for start, _, _ in bounds[1:-1]] == [end for _, end, _ in bounds[:-2]] and bounds[-2][1] == 45_000
    assert all(records == end - start for start, end, records in bounds)

"""A dump whose time is over before its first full is read: each call keeps what it has read, and the next one continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kstate_cli.dump.open import read_dump
from kstate_cli.formats.topic_partition import TopicPartition

from .dumping import dump, dumped, newest
from .harness import Harness
from .support import ROOT
from .test_dump_moves import Topic

pytestmark = pytest.mark.interop

_SECONDS = 120
PARTITIONS, RECORDS = 5, 1500
RATE = ("--engine", "local", "--workers", "1", "--max-rate", "80k")
"""So slow that a call is ended by its signal and not by its work."""


def _interrupted(harness: Harness, out: Path, topic: str, *options: str) -> tuple[int, str]:
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
        told = process.stderr.read()
        return process.wait(_SECONDS), told


def test_each_call_continues(harness: Harness, tmp_path: Path) -> None:
    topic = Topic(harness.bootstrap, partitions=PARTITIONS, cleanup_policy="compact")
    for partition in range(PARTITIONS):
        topic.produce(RECORDS, partition=partition, keys=RECORDS)
    out = tmp_path / "dump"
    ends: list[int] = []
    for _ in range(PARTITIONS):
        code, told = _interrupted(harness, out, topic.name)
        if code == 0:
            break
        assert code == 128 + signal.SIGTERM and "the next call continues" in told, told
        known = newest(out).newest()
        ends.append(sum(full.rows for full in known.values()))
        # What a reader is told is true: where the log ends, and up to where the dump is.
        read_dump(str(out), complete=False, committed_only=False, check_digests=True)
        assert all(full.end <= full.log_end for full in known.values())
    assert len(ends) >= 2 and ends == sorted(set(ends)), "each call has kept more than the one before"
    dump(harness, out, "--topic", topic.name, "--workers", "1")
    assert {key: [row[0] for row in rows] for key, rows in dumped(out).items()} == {
        TopicPartition(topic.name, partition): [record[0] for record in topic.records(partition)]
        for partition in range(PARTITIONS)
    }
    assert {full.began for full in newest(out).fulls} <= set(range(1, PARTITIONS + 2))
    assert len(newest(out).fulls) == PARTITIONS, "no partition was read twice"

"""``--engine local``: the same tasks without Spark, in the process of the command."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.dump.model import Slice
from kstate_cli.errors import RunFailed
from kstate_cli.restore.engines import InThisProcess
from kstate_cli.restore.jobs import SliceJob

from . import support

LOCAL = ("--engine", "local")


def test_a_file_that_is_damaged(dump: Path, tmp_path: Path) -> None:
    mine = tmp_path / "dump"
    shutil.copytree(dump, mine)
    file = min(mine.rglob("*.parquet"))
    with open(file, "r+b") as opened:
        opened.seek(file.stat().st_size // 3)
        opened.write(b"\xff" * 4096)
    app = tmp_path / support.APP
    result = support.restore(app, mine, *LOCAL, "--skip-digests")
    assert (result.status, file.name in result.stderr) == (4, True), result.stderr
    assert not app.exists()
    assert support.left_behind(app) == []


def test_whatever_fails_is_told_with_its_slice() -> None:
    piece = Slice("a-topic", 0, 0, (), 0, 1, 2, 100, True)
    job = SliceJob(0, "0_0", "a-store", "no-such-kind", "4.3", piece, "/nowhere", "/dev/null/staging", 1 << 20)
    with pytest.raises(OSError, match="/dev/null/staging"):
        InThisProcess().run([job], lambda: None)
    with pytest.raises(RunFailed, match=r"0_0/a-store \(offsets 0 to 1 of a-topic\) cannot be made: ValueError"):
        InThisProcess().run([replace(job, staging="s3://nowhere")], lambda: None)


def test_rows_out_of_order_take_spark(dump: Path, tmp_path: Path) -> None:
    """Each file has rows from all over the partitions, and they are more than fit into memory at once."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(dump.rglob("*.parquet"))])
    mine = tmp_path / "dump"
    mine.mkdir()
    for number in range(8):
        pq.write_table(rows.take(np.arange(number, len(rows), 8)), mine / f"p{number}.parquet")
    app = tmp_path / support.APP
    vouched = ("--dump-is-complete", "--dump-is-committed")
    result = support.restore(app, mine, *LOCAL, *vouched, "--memory", "200M")
    assert (result.status, "takes Spark" in result.stderr) == (4, True), result.stderr
    assert not app.exists()
    assert not (tmp_path / ".kstate").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--engine", "flink"), "neither spark nor local"),
        ((*LOCAL, "--master", "local[1,4]"), "--master is about Spark"),
        ((*LOCAL, "--conf", "a=b"), "--conf is about Spark"),
    ],
)
def test_what_contradicts_itself(dump: Path, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = support.restore(tmp_path / support.APP, dump, *options)
    assert (result.status, said in result.stderr) == (2, True), result.stderr

"""``--engine local``: the same tasks without Spark, in the process of the command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstate_cli.change.folder import read_runs
from kstate_cli.dump_reader.model import Slice
from kstate_cli.errors import RunFailed
from kstate_cli.restore.jobs import SliceJob
from kstate_cli.restore.running.engines import OnThisHost
from kstate_cli.restore.running.states import INGEST, PHASES, PLAN, SLICES
from kstate_cli.restore.sorting.memory import SMALL_BYTES
from tests.bench.make_dump import make_dump
from tests.dumps.test_expansion import large_dictionary

from . import support

pytestmark = pytest.mark.rotating(6)

LOCAL = ("--engine", "local")


def test_a_file_that_is_damaged(dump: Path, tmp_path: Path) -> None:
    mine = tmp_path / "dump"
    shutil.copytree(dump, mine)
    file = min(mine.rglob("*.parquet"))
    with open(file, "r+b") as handle:
        handle.seek(file.stat().st_size // 3)
        handle.write(b"\xff" * 4096)
    app = tmp_path / support.APP
    result = support.restore(app, mine, *LOCAL, "--skip-digests")
    assert (result.status, file.name in result.stderr) == (4, True), result.stderr
    assert not app.exists()
    assert support.remaining_files(app) == []


@pytest.mark.parametrize("options", [LOCAL, (*LOCAL, "--dry-run"), ("--engine", "spark")], ids=" ".join)
def test_engines_refuse_a_dictionary_that_expands_to_gigabytes(options: tuple[str, ...], tmp_path: Path) -> None:
    mine = tmp_path / "dump"
    mine.mkdir()
    large_dictionary("value")(mine / "a.parquet")
    (tmp_path / "kstate.toml").write_text(
        'format = 1\napplication = "app"\n[stores.a]\nkind = "timestamped-key-value"\n'
        'changelog = "app-a-changelog"\nsubtopology = 0\n'
    )
    app = tmp_path / "state" / "app"
    app.parent.mkdir()
    result = support.restore(app, mine, *options, "--dump-is-complete", "--dump-is-committed")
    assert result.status == 4, result.stderr
    for text in ("a.parquet", "expands to at least 19.5 GiB", "kstate reads at most 1.0 GiB", "without dictionary"):
        assert text in result.stderr
    assert not app.exists() and support.remaining_files(app) == []


def test_every_failure_names_its_slice() -> None:
    piece = Slice("a-topic", 0, 0, (), 0, 1, 2, 100, True)
    job = SliceJob(0, "0_0", "a-store", "no-such-kind", "4.3", piece, "/nowhere", "/dev/null/staging", 1 << 20)
    with pytest.raises(OSError, match="/dev/null/staging"):
        OnThisHost().run([job], lambda: None)
    with pytest.raises(
        RunFailed,
        match=r"cannot write the sorted files of 0_0/a-store \(offsets 0 to 1 of a-topic\): ValueError",
    ):
        OnThisHost().run([replace(job, staging="s3://nowhere")], lambda: None)


@pytest.mark.in_full("tests/restore/test_repartition.py::test_shuffled")
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
    assert (result.status, "only Spark can sort them" in result.stderr) == (4, True), result.stderr
    assert not app.exists()
    assert not (tmp_path / ".kstate").exists()
    sorted_by_spark = support.good(support.restore(app, mine, "--engine", "auto", *vouched, "--memory", "200M"))
    assert [(row["engine"], row["engine_reason"]) for row in sorted_by_spark.of("summary")] == [
        ("local", "no Spark master is configured")
    ]
    whole = tmp_path / "whole" / support.APP
    whole.parent.mkdir()
    support.good(support.restore(whole, dump, *LOCAL))
    assert support.digest(app) == support.digest(whole)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("options", "engine"),
    [
        ((), ("local", "no Spark master is configured")),
        (("--master", "local[1,4]"), ("spark", "a Spark master is configured: local[1,4]")),
        (("--conf", "spark.a=b"), ("spark", "a Spark setting is configured: spark.a")),
        (LOCAL, ("local", "--engine requests it")),
        (("--engine", "spark"), ("spark", "--engine requests it")),
    ],
)
def test_the_plan_and_the_summary_state_the_engine(
    dump: Path, tmp_path: Path, options: tuple[str, ...], engine: tuple[str, str]
) -> None:
    options = options if "--engine" in options else ("--engine", "auto", *options)
    plan = support.restore(tmp_path / support.APP, dump, "--dry-run", *options)
    assert [(row["engine"], row["engine_reason"]) for row in plan.of("summary")] == [engine]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--engine", "flink"), "does not exist"),
        ((*LOCAL, "--master", "local[1,4]"), "--master configures Spark, but --engine local does not use Spark"),
        ((*LOCAL, "--conf", "a=b"), "--conf configures Spark, but --engine local does not use Spark"),
    ],
)
def test_refuses_contradicting_options(dump: Path, tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    result = support.restore(tmp_path / support.APP, dump, *options)
    assert (result.status, text in result.stderr) == (2, True), result.stderr


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More than one process works on."""
    folder = tmp_path_factory.mktemp("large") / "dump"
    make_dump(folder, support.TOPIC, records=800_000, keys=80_000, value_bytes=100, partitions=2)
    assert sum(file.stat().st_size for file in folder.rglob("*.parquet")) > SMALL_BYTES
    return folder


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that it has started, by the kernel's list."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(part) for part in children.read_text("ascii").split()]


def at_work(process: subprocess.Popen[str], app: Path) -> list[int]:
    """Its workers, once a slice is being made."""
    while process.poll() is None:
        if list((app.parent / ".kstate").rglob("*.sst*")) and len(workers_of(process)) == 2:
            return workers_of(process)
        time.sleep(0.005)
    raise AssertionError(support.await_end(process))


def lost(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_several_processes_give_the_result_of_a_single_process(large: Path, tmp_path: Path) -> None:
    apps = [tmp_path / folder / support.APP for folder in ("one", "two", "little")]
    for app, options in zip(apps, (("--workers", "1"), ("--workers", "2"), ("--memory", "220M")), strict=True):
        app.parent.mkdir()
        process = support.start(app, large, *LOCAL, *options)
        if options[-1] == "2":
            at_work(process, app)
        support.good(support.await_end(process))
        assert support.remaining_files(app) == []
    assert len({str(support.digest(app)) for app in apps}) == 1


@pytest.mark.rotating(3, "killed workers")
def test_a_process_that_is_killed(large: Path, tmp_path: Path) -> None:
    """Nothing is changed and nothing is left but what is sorted; the next call, with fewer workers, goes on from there."""
    app = tmp_path / support.APP
    process = support.start(app, large, *LOCAL, "--workers", "2")
    first, second = at_work(process, app)
    os.kill(first, signal.SIGKILL)
    failed = support.await_end(process)
    assert failed.status == 6 and "a worker process exited" in failed.stderr, failed.stderr
    assert "pass fewer --workers" in failed.stderr
    assert not app.exists() and lost(second)
    support.good(support.restore(app, large, *LOCAL, "--after-error", "--workers", "1"))
    assert len(support.digest(app)) == 2
    assert support.remaining_files(app) == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_processes_end_with_it(large: Path, tmp_path: Path, number: signal.Signals) -> None:
    app = tmp_path / support.APP
    process = support.start(app, large, *LOCAL, "--workers", "2")
    pids = at_work(process, app)
    process.send_signal(number)
    process.communicate()
    assert process.returncode in (128 + number, -number)
    deadline = time.monotonic() + 300
    while not all(map(lost, pids)):
        assert time.monotonic() < deadline, "a worker lives on"
        time.sleep(0.05)
    assert not list(app.rglob("CURRENT"))
    support.good(support.restore(app, large, *LOCAL))
    assert support.remaining_files(app) == []


def test_where_its_seconds_went_is_kept(dump: Path, tmp_path: Path) -> None:
    """They add up to what the command took, but for its start and its report."""
    app = tmp_path / support.APP
    began = time.monotonic()
    support.good(support.restore(app, dump, *LOCAL))
    took = time.monotonic() - began
    (run,) = support.status(app)
    assert tuple(run["spent"]) == PHASES
    assert 0 < sum(run["spent"].values()) < took
    (journal,) = read_runs(app)
    assert journal.seconds is not None
    assert sum(run["spent"].values()) >= journal.seconds
    # In a file system in memory, a sync or a rename can take less than the millisecond to which phases are rounded.
    assert min(run["spent"][phase] for phase in (PLAN, SLICES, INGEST)) > 0

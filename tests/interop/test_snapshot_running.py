"""
Snapshots of real applications under load, at random moments, while RocksDB flushes, compacts and drops segments all the time.

Each snapshot is restored. Its rows with the rest of the log are compared with the whole log, without kstate. One in ten is
started with the real release after a kill -9 of the application: it restores exactly the records behind the offset.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from .background import LONG_SESSIONS, Background, load
from .harness import App, Harness, Run
from .snapshots import (
    BATCH,
    CASES,
    SHORT_SESSIONS,
    SMALL,
    TOPOLOGY,
    Case,
    Figures,
    Logs,
    Snapshot,
    Starts,
    Taking,
    compare_each,
    remove_half_created,
    start_each,
    take,
)
from .support import ALL, application, good

pytestmark = [pytest.mark.interop, pytest.mark.rotating(4)]

SNAPSHOTS = int(os.environ.get("KSTATE_SNAPSHOTS", "0"))
"""Snapshots of each case; 0: as many as CI takes."""


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.release}-{case.guarantee}")
def test_each_snapshot_with_the_rest_of_the_log_is_the_whole_log(harness: Harness, tmp_path: Path, case: Case) -> None:
    app = App(application("parts", case.guarantee).name, TOPOLOGY, case.guarantee)
    state, repository = tmp_path / "state", tmp_path / "repository"
    figures, count = Figures(), SNAPSHOTS or case.snapshots
    harness.produce(case.release, app, BATCH)
    conf = {**SMALL, **LONG_SESSIONS, **case.conf}
    with Background(harness, case.release, app, state, Run(conf=conf, read=False)) as running:
        with load(harness, case.release, app, BATCH.next()):
            snapshots = take(state / app.name, repository, case, figures, Taking(count, bootstrap=harness.bootstrap))
            assert running.alive
        os.kill(running.pid, signal.SIGKILL)
    assert len(snapshots) == count, figures

    logs = Logs.read(harness, app, tmp_path / "logs")
    offsets = compare_each(logs, repository, snapshots, figures, tmp_path)
    chosen = random.Random(1).sample(list(zip(snapshots, offsets, strict=True)), max(1, count // 10))
    start_each(Starts(harness, case, app, tmp_path), repository, chosen)
    print(f"{case.release} {case.guarantee}: {figures}")
    harness.delete(case.release, app)


@pytest.mark.timeout(3600)
def test_exactly_once_captures_no_uncommitted_row(harness: Harness, tmp_path: Path) -> None:
    """
    Transactions are open at each moment, a thread that fails aborts some, and a kill aborts the last one of a round.

    With small buffers the first flush leaves status 1, and nothing is captured. With the default ones nothing is flushed.
    """
    case = Case("4.3.1", "eos", 6, {"commit.interval.ms": "1500", **SHORT_SESSIONS})
    app = App(application("parts", case.guarantee).name, f"{TOPOLOGY.partition(',')[0]}+failing,source-table", "eos")
    state, repository = tmp_path / "state", tmp_path / "repository"
    figures, batch = Figures(), BATCH
    snapshots: list[Snapshot] = []
    # Each of four ways, or usually the first one that is killed, and the one that is closed with the default buffers.
    ways = range(4 * max(1, (SNAPSHOTS or case.snapshots) // 6)) if SNAPSHOTS or ALL else (2, 1)
    for number in ways:
        small, kills = number % 2 == 0, number % 4 >= 2
        harness.produce(case.release, app, batch)
        batch = batch.next()
        conf = {**(SMALL if small else {}), **case.conf}
        run = Run(conf=conf, read=False, options={"replace-thread": True})
        with Background(harness, case.release, app, state, run) as running:
            with load(harness, case.release, app, batch):
                snapshots += take(state / app.name, repository, case, figures, Taking(3, 3))
            batch = batch.next().next()
            if kills:
                os.kill(running.pid, signal.SIGKILL)
            else:
                good(running.finish())
        remove_half_created(state / app.name)
    harness.produce(case.release, app, batch)
    good(harness.run(case.release, app, state, Run(conf=case.conf, read=False, options={"replace-thread": True})))
    # It runs, and has flushed nothing since it opened its stores: the directory is as the last run has closed it.
    with Background(harness, case.release, app, state, Run(conf=case.conf, read=False)) as running:
        snapshots += take(state / app.name, repository, case, figures, Taking(1, 1))
        good(running.finish())
    compare_each(Logs.read(harness, app, tmp_path / "logs"), repository, snapshots, figures, tmp_path)
    print(f"{case.release} {case.guarantee} without transactional stores: {figures}")
    assert figures.snapshots and figures.skipped, figures
    harness.delete(case.release, app)

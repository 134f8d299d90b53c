"""Rows that a start never restores, because one segment's offset counts for all of them."""

from __future__ import annotations

import dataclasses

import pytest

from kstate_cli.check.codes.offsets import SEGMENT_BEHIND
from kstate_cli.check.findings import Level, Outcome
from kstate_cli.check.tasks import judge_task
from kstate_cli.statedir.model import Task
from tests.unit.model import changelog, database, record, store, task

from .builders import log, snapshot

KEY = changelog("w")
START, MINUTES = 1_704_067_200_000, 600_000


def killed_task(*offsets: int | None, status: int | None = None) -> Task:
    """A window store of which each segment is at its own offset; None was never flushed."""
    segments = [
        database(
            "w",
            offsets=record(offset, "w", status=None if offset is None else status),
            rows=0 if offset is None else 3,
            start=START + number * MINUTES,
        )
        for number, offset in enumerate(offsets)
    ]
    return task(store("w", *segments, kind="timestamped-window", segmented=True))


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("to", ["4.3", "4.4"])
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("offsets", [(None, 199), (199, None), (50, 199), (None, 199, None)])
def test_the_loss_is_predicted(
    offsets: tuple[int | None, ...], exactly_once: bool, to: str, transactional: bool
) -> None:
    """By name of the store and the time range, for every start that takes the offset: the task is not wiped first."""
    view = snapshot(
        killed_task(*offsets),
        to=to,
        exactly_once=exactly_once,
        logs=[log(KEY, 0, 379)],
        counts={(KEY, 200): 179, (KEY, 0): 379},
        options={"transactional": transactional},
    )
    judged = judge_task(view, view.app.tasks[0])
    (finding,) = [finding for finding in judged.findings if finding.code == SEGMENT_BEHIND]
    assert finding.level is Level.ERROR and (finding.task, finding.store) == ("0_0", "w")
    for number, offset in enumerate(offsets):
        minute = f"2024-01-01 00:{number * 10:02}:00 UTC to "
        assert (minute in finding.text) is (offset != 199)
    assert "--store w" in finding.hint and "DUMP" in finding.hint
    (prediction,) = judged.predictions
    assert (prediction.outcome, prediction.code) == (Outcome.OPENS_EMPTY, SEGMENT_BEHIND)
    assert prediction.records is not None and prediction.records.count == 179


@pytest.mark.parametrize("offsets", [(199, 199), (199, 50), (-4, -4), (None, -4), (None, None), (199,)])
def test_a_start_from_the_lowest_offset_loses_nothing(offsets: tuple[int | None, ...]) -> None:
    """The newest segment that states an offset decides, and -4 has all of the changelog restored."""
    view = snapshot(killed_task(*offsets), exactly_once=False)
    judged = judge_task(view, view.app.tasks[0])
    assert SEGMENT_BEHIND not in {finding.code for finding in judged.findings}


def test_a_task_that_is_wiped_loses_nothing() -> None:
    view = snapshot(killed_task(None, 199, status=1), exactly_once=True)
    judged = judge_task(view, view.app.tasks[0])
    assert [prediction.outcome for prediction in judged.predictions] == [Outcome.WIPED]
    assert SEGMENT_BEHIND not in {finding.code for finding in judged.findings}


def test_a_segment_that_came_after_the_close_loses_nothing() -> None:
    (store,) = killed_task(199, None, status=0).stores
    closed, new = store.databases
    young = (dataclasses.replace(closed, wal_number=21), dataclasses.replace(new, wal_number=4))
    view = snapshot(task(dataclasses.replace(store, databases=young)))
    judged = judge_task(view, view.app.tasks[0])
    assert [prediction.outcome for prediction in judged.predictions] == [Outcome.OPENS]

"""What the next start does with transactional stores (KIP-892), whatever run was the last."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.check.codes.logs import CATCHES_UP
from kstate_cli.check.codes.offsets import START_HANGS, STATUS_OPEN, VERSIONED_REPLAYED, WITHOUT_CHANGELOG
from kstate_cli.check.findings import Level, Outcome, Prediction, Records
from kstate_cli.check.rule import TaskCheckDraft
from kstate_cli.check.tasks import judge_task
from kstate_cli.offsets.ages import Age
from kstate_cli.statedir.model import Task
from tests.unit.model import OPEN, changelog, database, record, store, task

from .builders import NOW_MS, log, snapshot

COUNT = changelog("count")


def judge(subject: Task, *, option: bool = True, to: str = "4.4", **more: object) -> TaskCheckDraft:
    view = snapshot(subject, to=to, options={"transactional": option}, **more)  # type: ignore[arg-type]
    return judge_task(view, view.app.tasks[0])


def outcomes(draft: TaskCheckDraft) -> dict[str, tuple[Outcome, Outcome | None]]:
    return {prediction.store: (prediction.outcome, prediction.or_else) for prediction in draft.predictions}


def test_a_store_without_an_offset_does_not_wipe_its_task() -> None:
    never_flushed = store("count", database(offsets=record(None, status=None), rows=0))
    backup = store("other", database("other", offsets=record(9, "other", status=None)))
    unlogged = store("cache", database("cache", offsets=record(None, status=None, position=4)))
    subject = task(never_flushed, backup, unlogged)
    logs = [log(COUNT, 0, 7), log(changelog("other"), 0, 10)]
    counts = {(COUNT, 0): 7, (changelog("other"), 10): 0, (changelog("other"), 0): 10}
    assert outcomes(judge(subject, logs=logs, counts=counts)) == {
        "count": (Outcome.RESTORES_ALL, None),
        "other": (Outcome.OPENS, None),
        "cache": (Outcome.OPENS, None),
    }
    for option, to in ((False, "4.4"), (True, "4.3")):
        assert outcomes(judge(subject, option=option, to=to, logs=logs, counts=counts)) == {
            "count": (Outcome.WIPED, None),
            "other": (Outcome.WIPED, None),
            "cache": (Outcome.LOST, None),
        }


@pytest.mark.parametrize("alone", [False, True])
def test_a_status_of_1(alone: bool) -> None:
    """The client never leaves REBALANCING if the store is the first of its task; the order is not on disk."""
    handle = store("count", database(offsets=record(5, status=OPEN)))
    others = () if alone else (store("other", database("other", offsets=record(9, "other", status=None))),)
    draft = judge(task(handle, *others))
    assert {START_HANGS, STATUS_OPEN} <= {finding.code for finding in draft.findings}
    expected = (Outcome.HANGS, None) if alone else (Outcome.WIPED, Outcome.HANGS)
    assert set(outcomes(draft).values()) == {expected}
    (finding,) = [finding for finding in draft.findings if finding.code == START_HANGS]
    assert finding.hint == "kstate wipe /state/shop --task 0_0"
    for option, to in ((False, "4.4"), (True, "4.3")):
        assert set(outcomes(judge(task(handle, *others), option=option, to=to)).values()) == {(Outcome.WIPED, None)}


@pytest.mark.parametrize(
    ("first", "second", "fails"), [(0, OPEN, True), (None, OPEN, True), (OPEN, OPEN, False), (OPEN, None, False)]
)
def test_open_segment_after_another_segment(first: int | None, second: int | None, fails: bool) -> None:
    """The start opens segments in order, throws at the open one, and keeps those before it open: its own second try fails."""
    segments = [
        database("w", offsets=record(5, "w", status=first), start=0),
        database("w", offsets=record(None, status=second), start=60_000),
    ]
    draft = judge(task(store("w", *segments, kind="window", segmented=True)), option=False)
    assert outcomes(draft) == {"w": (Outcome.WIPED, Outcome.FAILS if fails else None)}
    (prediction,) = draft.predictions
    assert prediction.file == ("0_0/w" if fails else None)


@pytest.mark.parametrize(("to", "exact"), [("4.3", True), ("4.4", False)])
def test_counts_of_windows_without_an_offset_are_upper_bounds(to: str, exact: bool) -> None:
    key = changelog("w")
    windows = store("w", database("w", offsets=record(-4, "w"), start=0), kind="timestamped-window", segmented=True)
    ages = {("0_0", name): Age(f"0_0/{name}", {}, NOW_MS) for name in ("w", "count")}
    logs, counts = [log(key, 0, 236)], {(key, 0): 236}
    view = snapshot(task(windows), to=to, exactly_once=False, logs=logs, counts=counts, ages=ages)
    (prediction,) = judge_task(view, view.app.tasks[0]).predictions
    assert prediction.records is not None and (prediction.records.count, prediction.records.exact) == (236, exact)
    table = store("count", database(offsets=record(-4)))
    logs, counts = [log(COUNT, 0, 236)], {(COUNT, 0): 236}
    view = snapshot(task(table), to=to, exactly_once=False, logs=logs, counts=counts, ages=ages)
    (prediction,) = judge_task(view, view.app.tasks[0]).predictions
    assert prediction.records is not None and prediction.records.exact


@pytest.mark.parametrize(("to", "segmented", "exact"), [
    ("4.2.2", True, False), ("4.4.0", True, False), ("4.3.1", True, True), ("4.2.2", False, True), ("4.2.2", None, False),
])  # fmt: skip
def test_counts_of_missing_stores_are_upper_bounds(to: str, segmented: bool | None, exact: bool) -> None:
    """A task that lacks a store shows nothing of its kind: the other tasks do, or no task does."""
    key, count = changelog("gone"), store("count", database())
    tasks = [task(count, lines={key: 5, COUNT: 5})]
    if segmented is not None:
        start = 0 if segmented else None
        other = store("gone", database("gone", start=start), segmented=segmented, kind="session", task="0_1")
        tasks.append(task(other, name="0_1", lines={replace(key, partition=1): 5}))
    for exactly_once in (False, True):
        view = snapshot(*tasks, to=to, exactly_once=exactly_once, logs=[log(key, 9, 236)], counts={(key, 9): 99})
        predictions = {prediction.store: prediction for prediction in judge_task(view, view.app.tasks[0]).predictions}
        assert predictions["gone"].records == Records(99, exact=exact)


@pytest.mark.parametrize(("to", "gap", "exact"), [
    ("4.2.2", 16_384, False), ("4.2.2", 16_383, True), ("4.2", 16_384, False), ("4.2.1", 16_384, True),
    ("4.4.0", 16_384, True),
])  # fmt: skip
def test_counts_of_windows_far_behind_are_upper_bounds(to: str, gap: int, exact: bool) -> None:
    """4.2.2 skips what has expired even where a window or session store has an offset; a table never skips anything."""
    for kind, segmented, exact_count in (("session", True, exact), ("key-value", False, True)):
        start = 0 if segmented else None
        behind = store("w", database("w", start=start), kind=kind, segmented=segmented)
        key = changelog("w")
        ages = {("0_0", "w"): Age("0_0/w", {}, NOW_MS)}
        logs, counts = [log(key, 0, 6 + gap)], {(key, 6): gap, (key, 0): 6 + gap}
        view = snapshot(task(behind, lines={key: 5}), to=to, exactly_once=False, logs=logs, counts=counts, ages=ages)
        (prediction,) = judge_task(view, view.app.tasks[0]).predictions
        assert prediction.records is not None and (prediction.records.count, prediction.records.exact) == (
            gap,
            exact_count,
        )


@pytest.mark.parametrize(("status", "level"), [(0, Level.WARNING), (None, Level.WARNING), (OPEN, Level.ERROR)])
def test_a_versioned_store_that_catches_up(status: int | None, level: Level) -> None:
    """A start puts records over rows whose segments it does not know; a killed one has rows ahead of its offset too."""
    ages = {("0_0", "count"): Age("0_0/count", {}, NOW_MS)}
    for kind, end in (("versioned", 9), ("versioned", 6), ("key-value", 9)):
        versions = store("count", database(offsets=record(5, status=status)), kind=kind)
        logs, counts = [log(COUNT, 0, end)], {(COUNT, 6): end - 6, (COUNT, 0): end}
        view = snapshot(task(versions), exactly_once=False, logs=logs, counts=counts, ages=ages)
        draft = judge_task(view, view.app.tasks[0])
        levels = [finding.level for finding in draft.findings if finding.code == VERSIONED_REPLAYED]
        assert levels == ([level] if kind == "versioned" and end == 9 else [])
        codes = {prediction.code for prediction in draft.predictions}
        assert codes == {None if end == 6 else VERSIONED_REPLAYED if kind == "versioned" else CATCHES_UP}


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("with_logs", [False, True])
def test_a_store_left_before_its_first_commit_may_have_a_changelog(with_logs: bool, rows: int) -> None:
    """A table whose changelog is its source topic has no changelog of the usual name either."""
    silent = store("table", database("table", offsets=record(None, status=None), rows=rows))
    logs = [log(changelog("another"), 0, 3)] if with_logs else []
    counts = {(changelog("another"), 0): 3} if with_logs else {}
    for exactly_once, option in ((False, False), (True, True)):
        view = snapshot(
            task(silent),
            to="4.4",
            exactly_once=exactly_once,
            logs=logs,
            counts=counts,
            options={"transactional": option},
        )
        (prediction,) = judge_task(view, view.app.tasks[0]).predictions
        if rows and option:
            # The user vouches for a transactional run: its rows would have come with an offset.
            assert prediction == Prediction("0_0", "table", Outcome.OPENS, prediction.records, WITHOUT_CHANGELOG)
            continue
        assert (prediction.outcome, prediction.or_else, prediction.records) == (
            Outcome.RESTORES_ALL,
            Outcome.OPENS,
            None,
        )

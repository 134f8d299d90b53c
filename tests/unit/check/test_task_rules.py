"""Each rule about a task, and about the folder of the global stores: a case in which it says something, one in which not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.check.codes.layout import (
    DOES_NOT_OPEN,
    FOREIGN_IN_TASK,
    LEFTOVER_FILE,
    LOCK_FILE_IN_TASK,
    MALFORMED_CHECKPOINT,
    SEGMENT_OFF_GRID,
    SST_TOO_NEW,
    STORE_IN_TWO_SUBTOPOLOGIES,
    UNKNOWN_KIND,
)
from kstate_cli.check.codes.logs import (
    AGE_UNKNOWN,
    BELOW_LOG_START,
    BEYOND_LOG_END,
    CATCHES_UP,
    GLOBAL_OUT_OF_RANGE,
    GRACE_BUFFER_RESTORED,
    LOG_MISSING,
    NEAR_LOG_START,
    OLDER_THAN_TOMBSTONES,
    TOPIC_RECREATED,
)
from kstate_cli.check.codes.offsets import (
    GLOBAL_UNKNOWN_OFFSET,
    GLOBAL_UNKNOWN_TOPIC,
    MAYBE_UNCLEAN,
    NO_OFFSETS,
    NO_SEGMENTS,
    NO_SEGMENTS_YET,
    OFFSET_MISSING,
    OFFSET_WITHOUT_STORE,
    SEGMENTS_DISAGREE,
    SENTINEL_OFFSET,
    STALE_CHECKPOINT,
    STALE_POSITION,
    STATUS_MISSING,
    STATUS_OPEN,
    STORE_MISSING,
    UNKNOWN_OFFSET,
    WITHOUT_CHANGELOG,
)
from kstate_cli.check.codes.surroundings import OLDER_THAN_MAX_AGE
from kstate_cli.check.codes.topology import COPY_DELETED, STORE_ELSEWHERE, STORE_NOT_IN_TOPOLOGY
from kstate_cli.check.findings import FindingCode, Outcome, Prediction, Records
from kstate_cli.check.rule import Obstacle, TaskCheckDraft
from kstate_cli.check.snapshot import AbsentStore, Homes, Snapshot
from kstate_cli.check.tasks import GLOBAL_RULES, TASK_RULES, judge_copy, judge_global, judge_task
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.ages import Age
from kstate_cli.statedir.model import Task
from tests.unit.model import APP, OPEN, changelog, checkpoint, database, record, store, task

from .builders import NOW_MS, OLD, log, of_task, snapshot

COUNT, OTHER = changelog("count"), changelog("other")
TOPIC = TopicPartition("table", 0)
GARBLED = MalformedBytesError("three fields", "IOException", streams_message="Malformed line in offset checkpoint file")
OBSTACLE = Obstacle(DOES_NOT_OPEN, "it does not open", "0_0/rocksdb/count", ())


def healthy(**more: Any) -> Snapshot:
    """Of 4.2, with an offset in the middle of its log."""
    facts = {"logs": [log(COUNT, 0, 100)], "counts": {(COUNT, 51): 49, (COUNT, 0): 100}}
    return snapshot(task(store("count", database()), lines={COUNT: 50}), to=OLD, **(facts | more))


def unreadable() -> Snapshot:
    entry = task(store("count", database()), lines={COUNT: 50})
    file = replace(checkpoint(APP / "0_0/.checkpoint", {}), content=None, error=GARBLED)
    return snapshot(replace(entry, checkpoint=file), to=OLD)


def two_tasks(**more: Any) -> Snapshot:
    first = task(store("count", database()), store("other", database("other")), lines={COUNT: 1, OTHER: 1})
    lines = {changelog("count", 1): 1}
    return snapshot(
        first, task(store("count", database(), task="0_1"), name="0_1", lines=lines), **({"to": OLD} | more)
    )


def opened_draft(view: Snapshot, number: int = 0, **facts: Any) -> TaskCheckDraft:
    """A task all of whose stores have opened."""
    stores = {store.name: store for store in view.app.tasks[number].stores}
    return of_task(view, number, **({"stores": stores} | facts))


def family(**more: Any) -> Snapshot:
    """Of 4.3."""
    return snapshot(task(store("count", database(offsets=record(50, **more)))))


def states_nothing(*, transactional: bool, lines: dict[TopicPartition, int] | None = None) -> Snapshot:
    silent = task(store("count", database(offsets=record(None, status=None))), lines=lines)
    return snapshot(silent, options={"transactional": transactional})


def garbling() -> Snapshot:
    buffer = store("buf", database("buf", start=0), kind="grace-buffer", segmented=True, offset=5)
    return snapshot(task(buffer))


def restore_all(view: Snapshot, name: str) -> TaskCheckDraft:
    prediction = Prediction("0_0", name, Outcome.RESTORES_ALL, Records(9, exact=True))
    return opened_draft(view, predictions=(prediction,))


def old_data() -> Snapshot:
    age = Age("0_0/count", {}, NOW_MS - 86_400_000 * 9)
    return healthy(ages={("0_0", "count"): age})


def moved_store(home: str | None, *, lacked: bool = False) -> Snapshot:
    """A store that lies in 0_0, where the topology does not look for it."""
    waiting = {"1_0": {"count": AbsentStore("0_0")}} if lacked else {}
    return healthy(homes=Homes(missing=waiting, elsewhere={"0_0": {"count": home}}))


Case = tuple[Callable[[], tuple[Snapshot, TaskCheckDraft]], list[FindingCode], dict[str, Any]]
"""What is known before, the codes of the findings, and what is known then."""


def before(
    make: Callable[[], Snapshot], number: int = 0, **facts: Any
) -> Callable[[], tuple[Snapshot, TaskCheckDraft]]:
    def view_and_draft() -> tuple[Snapshot, TaskCheckDraft]:
        view = make()
        return view, opened_draft(view, number, **facts)

    return view_and_draft


CASES: dict[str, list[Case]] = {
    "_foreign": [
        (before(lambda: healthy(files={"0_0": ["x.lock", "notes.txt"]})), [FOREIGN_IN_TASK, LOCK_FILE_IN_TASK], {}),
        (
            lambda: (
                view := snapshot(task(leftovers=(".checkpoint.tmp",)), files={"0_0": [".checkpoint.tmp"]}),
                of_task(view),
            ),
            [LEFTOVER_FILE],
            {},
        ),
        (before(healthy), [], {}),
    ],
    "_too_old": [
        (
            before(lambda: snapshot(task(store("count", database()), lines={COUNT: 5}), options={"max_age": timedelta(1)})),
            [OLDER_THAN_MAX_AGE],
            {"predictions": [("count", "task-wiped", OLDER_THAN_MAX_AGE)], "ended": True},
        ),
        (before(lambda: healthy(options={"max_age": timedelta(1)})), [], {}),
        (before(family), [], {}),
    ],
    "_stores": [
        (
            lambda: (
                view := snapshot(
                    task(store("ver", database("ver"), kind="versioned"), store("count", database(sst_format=6))), to="3.4"
                ),
                of_task(view),
            ),
            [UNKNOWN_KIND, SST_TOO_NEW],
            {"ignored": ("ver",), "fails": ["count"]},
        ),
        (lambda: (view := healthy(), of_task(view)), [], {}),
    ],
    "_absent_stores": [
        (before(two_tasks, 1), [], {"absent": ("other",)}),
        (
            before(lambda: snapshot(task(store("count", database()), lines={COUNT: 1, OTHER: 1}), to=OLD)),
            [OFFSET_WITHOUT_STORE],
            {"absent": ("other",), "empty": {"other": OFFSET_WITHOUT_STORE}},
        ),
        (
            before(lambda: snapshot(task(store("count", database(offsets=record(1))), lines={OTHER: 1}))),
            [OFFSET_WITHOUT_STORE],
            {},
        ),
        (before(healthy), [], {}),
    ],
    "read_checkpoint": [
        (before(unreadable), [MALFORMED_CHECKPOINT], {"unreadable": MALFORMED_CHECKPOINT}),
        (before(healthy), [], {}),
    ],
    "compare": [
        (
            before(lambda: snapshot(task(store("count", database(offsets=record(50))), lines={COUNT: 60}))),
            [STALE_CHECKPOINT],
            {},
        ),
        (
            before(lambda: snapshot(task(store("count", database(offsets=record(50, position=9)), position=4)))),
            [STALE_POSITION],
            {},
        ),
        (
            before(
                lambda: snapshot(
                    task(
                        store(
                            "win",
                            *(database("win", start=n, offsets=record(n, "win")) for n in (60_000, 120_000)),
                            kind="windowed",
                            segmented=True,
                        )
                    )
                )
            ),
            [SEGMENTS_DISAGREE],
            {},
        ),
        (before(family), [], {}),
        (before(healthy), [], {}),
    ],
    "_not_reached": [
        (
            before(two_tasks, fails={"count": OBSTACLE}),
            [],
            {
                "fails": ["count"],
                "predictions": [("count", "start-fails", DOES_NOT_OPEN), ("other", "not-reached", None)],
                "ended": True,
            },
        ),
        (before(healthy), [], {}),
    ],
    "_status": [
        (before(lambda: family(status=OPEN)), [STATUS_OPEN], {"code": STATUS_OPEN}),
        (
            before(
                lambda: snapshot(task(store("count", database(offsets=record(5, status=OPEN)))), exactly_once=False)
            ),
            [STATUS_OPEN],
            {},
        ),
        (before(lambda: family(status=None)), [], {}),
        (before(lambda: states_nothing(transactional=False)), [STATUS_MISSING], {}),
        (before(lambda: states_nothing(transactional=True)), [], {}),
        (before(lambda: states_nothing(transactional=True, lines={COUNT: 50})), [STATUS_MISSING], {}),
        (before(family), [], {}),
    ],
    "_unreadable": [
        (before(healthy, unreadable=OBSTACLE, absent=("other",)), [], {"unreadable": OBSTACLE.code, "fails": ["count", "other"], "absent": ("other",)}),
        (before(healthy, unreadable=OBSTACLE, code=STATUS_OPEN), [], {"unreadable": OBSTACLE.code, "code": STATUS_OPEN}),
        (before(healthy), [], {}),
    ],
    "_sentinels": [
        (
            before(lambda: snapshot(task(store("count", database(offsets=record(-3)))))),
            [SENTINEL_OFFSET],
            {"fails": ["count"]},
        ),
        (before(lambda: snapshot(task(store("count", database(offsets=record(-1)))))), [], {}),
        (before(healthy), [], {}),
    ],
    "_missing": [
        (before(lambda: snapshot(task(store("count", database())), to=OLD)), [NO_OFFSETS], {"code": NO_OFFSETS}),
        (
            before(
                lambda: snapshot(
                    task(store("count", database()), store("other", database("other")), lines={COUNT: 5}),
                    to=OLD,
                    logs=[log(OTHER, 0, 9)],
                )
            ),
            [OFFSET_MISSING],
            {"code": OFFSET_MISSING},
        ),
        (
            before(lambda: snapshot(task(store("count", database(offsets=record(None))), lines={COUNT: OFFSET_UNKNOWN}))),
            [UNKNOWN_OFFSET],
            {"code": UNKNOWN_OFFSET},
        ),
        (
            before(lambda: snapshot(task(store("win", kind="windowed", segmented=True), lines={changelog("win"): 5}))),
            [NO_SEGMENTS],
            {"code": NO_SEGMENTS},
        ),
        (
            before(lambda: snapshot(task(store("win", kind="windowed", segmented=True)))),
            [NO_SEGMENTS_YET],
            {"code": NO_SEGMENTS_YET},
        ),
        (before(two_tasks, 1, absent=("other",)), [STORE_MISSING], {"code": STORE_MISSING, "absent": ("other",)}),
        (before(lambda: snapshot(task(store("count", database())), to=OLD, exactly_once=False)), [], {}),
        (before(healthy), [], {}),
    ],
    "predicted": [
        (before(healthy), [CATCHES_UP], {"predictions": [("count", "restores", CATCHES_UP)]}),
        (
            before(lambda: healthy(logs=[log(COUNT, 60, 100)], counts={(COUNT, 60): 40})),
            [BELOW_LOG_START],
            {"predictions": [("count", "task-wiped", BELOW_LOG_START)]},
        ),
        (
            before(lambda: healthy(logs=[log(COUNT, 0, 20)], counts={(COUNT, 0): 20})),
            [BEYOND_LOG_END],
            {"predictions": [("count", "task-wiped", BEYOND_LOG_END)]},
        ),
        (
            before(lambda: healthy(logs=[log(COUNT, 50, 1000)], counts={(COUNT, 51): 949, (COUNT, 50): 950})),
            [NEAR_LOG_START, CATCHES_UP],
            {"predictions": [("count", "restores", CATCHES_UP)]},
        ),
        (
            before(lambda: healthy(logs=[], counts={}, missing=[COUNT])),
            [LOG_MISSING],
            {"predictions": [("count", "unknown", LOG_MISSING)]},
        ),
        (
            before(lambda: healthy(ids={COUNT: ("a", "b")}, counts={(COUNT, 51): 0, (COUNT, 0): 100})),
            [TOPIC_RECREATED],
            {"predictions": [("count", "opens", None)]},
        ),
        (
            before(lambda: snapshot(task(store("count", database())), to=OLD, exactly_once=False)),
            [WITHOUT_CHANGELOG],
            {"predictions": [("count", "opens", WITHOUT_CHANGELOG)]},
        ),
        (
            before(healthy, code=STATUS_OPEN),
            [],
            {"code": STATUS_OPEN, "predictions": [("count", "task-wiped", STATUS_OPEN)]},
        ),
        (
            before(healthy, empty={"count": SEGMENT_OFF_GRID}),
            [],
            {
                "empty": {"count": SEGMENT_OFF_GRID},
                "predictions": [("count", "opens-without-rows", SEGMENT_OFF_GRID)],
            },
        ),
        (
            before(lambda: healthy(logs=[], counts={}), ignored=("ver",)),
            [],
            {"ignored": ("ver",), "predictions": [("count", "opens", None), ("ver", "ignored", UNKNOWN_KIND)]},
        ),
    ],
    "_after": [
        (lambda: (view := garbling(), restore_all(view, "buf")), [GRACE_BUFFER_RESTORED], {"predictions": [("buf", "restores-all", None)]}),
        (lambda: (view := old_data(), restore_all(view, "count")), [OLDER_THAN_TOMBSTONES], {"predictions": [("count", "restores-all", None)]}),
        (
            lambda: (
                view := healthy(ages={("0_0", "count"): Age("0_0/count", {}, None)}),
                restore_all(view, "count"),
            ),
            [AGE_UNKNOWN],
            {"predictions": [("count", "restores-all", None)]},
        ),
        (before(healthy), [], {}),
    ],
    "_unclean": [
        (
            before(lambda: snapshot(task(store("count", database(newest=9)), lines={COUNT: 5}, mtime=4), to=OLD)),
            [MAYBE_UNCLEAN],
            {},
        ),
        (before(healthy), [], {}),
    ],
    "_elsewhere": [
        (
            lambda: (view := moved_store(None), of_task(view)),
            [STORE_NOT_IN_TOPOLOGY],
            {"predictions": [("count", "ignored", STORE_NOT_IN_TOPOLOGY)]},
        ),
        (
            lambda: (view := moved_store("1_0", lacked=True), of_task(view)),
            [],
            {"predictions": [("count", "ignored", STORE_ELSEWHERE)]},
        ),
        (
            lambda: (view := moved_store("1_0"), of_task(view)),
            [STORE_ELSEWHERE],
            {"predictions": [("count", "ignored", STORE_ELSEWHERE)]},
        ),
        (
            lambda: (
                view := moved_store("1_0", lacked=True),
                of_task(view, predictions=(Prediction("0_0", "other", Outcome.WIPED),)),
            ),
            [COPY_DELETED],
            {"predictions": [("other", "task-wiped", None), ("count", "ignored", COPY_DELETED)]},
        ),
        (before(healthy), [], {}),
    ],
}  # fmt: skip
RULES = {rule.judge.__name__: rule for rule in (*TASK_RULES, *GLOBAL_RULES)}


@pytest.mark.parametrize(("name", "case"), [(name, entry) for name, all_of in CASES.items() for entry in all_of])
def test_a_rule(name: str, case: Case) -> None:
    view, facts = case[0]()
    copy = replace(facts)
    after = RULES[name].judge(view, facts)
    assert [finding.code for finding in after.findings] == case[1]
    facts_after = _facts(after)
    assert facts_after == case[2]
    assert facts == copy


def _facts(draft: TaskCheckDraft) -> dict[str, Any]:
    results: dict[str, Any] = {
        "fails": list(draft.fails),
        "empty": dict(draft.empty),
        "ignored": draft.ignored,
        "closed": draft.closed,
        "absent": draft.absent,
        "unreadable": draft.unreadable.code if draft.unreadable is not None else None,
        "code": draft.code,
        "predictions": [
            (prediction.store, prediction.outcome.value, prediction.code) for prediction in draft.predictions
        ],
        "ended": draft.ended,
    }
    return {name: value for name, value in results.items() if value}


def test_every_rule_has_a_case_and_a_source() -> None:
    assert [rule.judge.__name__ for rule in TASK_RULES] == list(CASES)
    assert all(rule.source for rule in RULES.values())


def test_the_first_thing_that_goes_wrong_decides() -> None:
    """A database that does not open comes before a checkpoint that cannot be read, and that before any offset."""
    view = unreadable()
    draft = judge_task(view, view.app.tasks[0])
    assert [(prediction.store, prediction.outcome, prediction.code) for prediction in draft.predictions] == [
        ("count", Outcome.FAILS, MALFORMED_CHECKPOINT)
    ]
    worse = snapshot(*_with_sst_format(view.app.tasks[0], 6), to="3.9")
    draft = judge_task(worse, worse.app.tasks[0])
    assert [(prediction.outcome, prediction.code) for prediction in draft.predictions] == [(Outcome.FAILS, SST_TOO_NEW)]
    assert [finding.code for finding in draft.findings] == [SST_TOO_NEW, MALFORMED_CHECKPOINT]


def _with_sst_format(task: Task, number: int) -> list[Task]:
    return [replace(task, stores=(store("count", database(sst_format=number)),))]


@pytest.mark.parametrize(("to", "transactional", "number"), [("4.3", False, 1), ("4.3", True, 0), ("4.2", False, 0)])
def test_a_global_store_without_a_status(to: str, transactional: bool, number: int) -> None:
    offsets = record(None, "table", status=None)
    entry = task(store("table", database("table", offsets=offsets), task="global"), name="global")
    view = snapshot(entry, to=to, options={"transactional": transactional})
    codes = [finding.code for finding in judge_global(view, view.app.tasks[0]).findings]
    assert codes.count(STATUS_MISSING) == number


def test_hint_for_an_unproven_release_has_the_option() -> None:
    for to, more in (("4.3", ""), ("4.5", " --unproven")):
        view = snapshot(task(store("count", database(offsets=record(50, status=OPEN)))), to=to)
        (match_,) = [finding for finding in judge_task(view, view.app.tasks[0]).findings if finding.code == STATUS_OPEN]
        assert match_.hint.endswith(f"--for {to}{more}")


@pytest.mark.parametrize(
    ("to", "with_global", "outcome"),
    [("4.2", True, Outcome.IGNORED), ("4.3", False, Outcome.IGNORED), ("4.3", True, Outcome.FAILS)],
)
def test_a_copy_of_a_task(to: str, with_global: bool, outcome: Outcome) -> None:
    stores = (store("table", database("table"), task="global"),) if with_global else ()
    view = snapshot(task(store("count", database())), task(*stores, name="global"), to=to)
    (prediction,) = judge_copy(view, view.app.tasks[0]).predictions
    assert (prediction.outcome, prediction.code) == (outcome, STORE_IN_TWO_SUBTOPOLOGIES)


@pytest.mark.parametrize(
    ("members", "codes", "outcome"),
    [
        ({"offset": 50, "log": (0, 100), "counts": {(TOPIC, 50): 50}}, [CATCHES_UP, AGE_UNKNOWN], Outcome.RESTORES),
        ({"offset": 100, "log": (0, 100), "counts": {(TOPIC, 100): 0}}, [], Outcome.OPENS),
        ({"offset": 50, "log": (60, 100)}, [GLOBAL_OUT_OF_RANGE], Outcome.FAILS),
        ({"offset": 50, "log": (0, 10)}, [BEYOND_LOG_END], Outcome.FAILS),
        ({"offset": OFFSET_UNKNOWN}, [GLOBAL_UNKNOWN_OFFSET], Outcome.FAILS),
        ({"offset": 50}, [], Outcome.OPENS),
        ({}, [OFFSET_MISSING], Outcome.RESTORES_ALL),
        ({"offset": 50, "lacking": [TOPIC]}, [LOG_MISSING], Outcome.UNKNOWN),
        ({"offset": 50, "more": {TopicPartition("absent", 0): 1}}, [GLOBAL_UNKNOWN_TOPIC], Outcome.FAILS),
    ],
)
def test_global_stores(members: dict[str, Any], codes: list[FindingCode], outcome: Outcome) -> None:
    lines = ({TOPIC: members["offset"]} if "offset" in members else {}) | members.get("more", {})
    entry = task(store("table", database("table"), task="global"), name="global", lines=lines or None)
    facts = {
        "logs": [log(TOPIC, *members["log"])] if "log" in members else (),
        "counts": members.get("counts"),
        "missing": members.get("lacking", ()),
        "ages": {("global", "table"): Age("global/table", {}, None)},
    }
    view = snapshot(entry, to=OLD, **facts)
    draft = judge_global(view, view.app.tasks[0])
    assert [finding.code for finding in draft.findings] == codes
    assert [prediction.outcome for prediction in draft.predictions] == [outcome]


def test_a_global_store_without_a_database_that_opens() -> None:
    bad = store("table", database("table", sst_format=6), task="global")
    view = snapshot(task(bad, name="global", lines={TOPIC: 5}), to="3.9")
    draft = judge_global(view, view.app.tasks[0])
    assert [(prediction.outcome, prediction.code) for prediction in draft.predictions] == [(Outcome.FAILS, SST_TOO_NEW)]
    assert Path(draft.predictions[0].file or "").name == "table"

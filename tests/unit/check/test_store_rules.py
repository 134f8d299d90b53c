"""Each rule about one store: a case in which it says something, and one in which it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.check.codes.layout import (
    DOES_NOT_OPEN,
    FOREIGN_IN_SEGMENTS,
    MALFORMED_POSITION,
    OFFSETS_IN_COLUMN_FAMILY,
    OLD_SEGMENT_NAME,
    SEGMENT_OFF_GRID,
    SESSIONS_BEFORE_HEADERS,
    SST_NOT_NAMED,
    SST_TOO_NEW,
    UNKNOWN_COLUMN_FAMILY,
    UNKNOWN_KIND,
)
from kstate_cli.check.codes.offsets import GLOBAL_STATUS_OPEN, OFFSET_WITHOUT_STORE
from kstate_cli.check.findings import FindingCode
from kstate_cli.check.rule import Obstacle, StoreCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.stores import GLOBAL_STORE_RULES, STORE_RULES
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.statedir.problems import Problem, ProblemCode, store_place
from tests.unit.model import CLOSED, OPEN, changelog, checkpoint, database, record, store, task

from .builders import NEW, OLD, of_store, snapshot

COUNT = store_place("0_0", "count", segmented=False)
GARBLED = MalformedBytesError("three fields", "IOException", streams_message="Malformed line in offset checkpoint file")
MINUTES = 60_000


def problem(code: ProblemCode, file: str = "") -> Problem:
    return Problem(code, COUNT / file if file else COUNT, "is wrong", "a rule")


def good(**more: Any) -> Snapshot:
    return snapshot(task(store("count", database()), lines={changelog("count"): 7}), **more)


def with_problem(code: ProblemCode, file: str = "", **more: Any) -> Snapshot:
    return snapshot(task(store("count", database(problems=(problem(code, file),)))), **more)


def broken_position() -> Snapshot:
    path = Path("/state/shop/0_0/count.position")
    file = replace(checkpoint(path, {}), content=None, error=GARBLED)
    return snapshot(task(replace(store("count", database()), position_file=file)))


def windows(
    *names: str, to: str = NEW, starts: tuple[int, ...] = (10 * MINUTES, 20 * MINUTES), **more: Any
) -> Snapshot:
    entry = store("win", *(database("win", start=start, **more) for start in starts), kind="windowed", segmented=True)
    return snapshot(task(entry), to=to, segments={entry.path: names})


def sessions(**options: Any) -> Snapshot:
    entry = store("late", database("late"), kind="time-ordered-session")
    return snapshot(task(entry), options=options)


Case = tuple[Callable[[], Snapshot], list[FindingCode], dict[str, Any]]
"""The snapshot, the codes of the findings, and what is known of the store then."""
NOTHING: dict[str, Any] = {}
CASES: dict[str, list[Case]] = {
    "_kind": [
        (
            lambda: snapshot(task(store("ver", database(), kind="versioned")), to="3.4"),
            [UNKNOWN_KIND],
            {"ended": True},
        ),
        (good, [], NOTHING),
    ],
    "_files": [
        (broken_position, [MALFORMED_POSITION], {"fatal": MALFORMED_POSITION}),
        (good, [], NOTHING),
    ],
    "_segments": [
        (lambda: windows("odd"), [FOREIGN_IN_SEGMENTS], {"fatal": FOREIGN_IN_SEGMENTS}),
        (lambda: windows("odd", to=OLD), [FOREIGN_IN_SEGMENTS], {"empty": FOREIGN_IN_SEGMENTS}),
        (lambda: windows("odd", to=OLD, rows=0), [FOREIGN_IN_SEGMENTS], NOTHING),
        (lambda: windows("win:600000"), [OLD_SEGMENT_NAME], NOTHING),
        (lambda: windows("win-2020", "win.600000"), [], NOTHING),
    ],
    "_databases": [
        (lambda: with_problem(ProblemCode.SST, "000009.sst"), [DOES_NOT_OPEN], {"fatal": DOES_NOT_OPEN}),
        (lambda: with_problem(ProblemCode.NOT_A_LONG), [DOES_NOT_OPEN], {"fatal": DOES_NOT_OPEN}),
        (lambda: with_problem(ProblemCode.UNKNOWN_FAMILY), [], NOTHING),
        (
            lambda: with_problem(
                ProblemCode.NO_CURRENT, write_ahead={Path("/state/shop/0_0/rocksdb/count"): ("7.log",)}
            ),
            [DOES_NOT_OPEN],
            {"fatal": DOES_NOT_OPEN},
        ),
        (
            lambda: with_problem(ProblemCode.NO_CURRENT, write_ahead={Path("/state/shop/0_0/rocksdb/count"): ()}),
            [],
            {"recreated": True},
        ),
        (
            lambda: snapshot(task(store("count", database(offsets=record(7)))), to=OLD),
            [OFFSETS_IN_COLUMN_FAMILY],
            {"fatal": OFFSETS_IN_COLUMN_FAMILY},
        ),
        (lambda: windows(to="3.9", sst_format=6), [SST_TOO_NEW], {"empty": SST_TOO_NEW, "closed": True}),
        (
            lambda: snapshot(task(store("count", database(families=("default", "odd"))))),
            [UNKNOWN_COLUMN_FAMILY],
            {"fatal": UNKNOWN_COLUMN_FAMILY},
        ),
        (good, [], NOTHING),
    ],
    "_sessions": [
        (lambda: sessions(headers_format=True), [SESSIONS_BEFORE_HEADERS], NOTHING),
        (sessions, [SESSIONS_BEFORE_HEADERS], NOTHING),
        (good, [], NOTHING),
    ],
    "_doubts": [
        (lambda: with_problem(ProblemCode.SST_NOT_NAMED), [SST_NOT_NAMED], NOTHING),
        (good, [], NOTHING),
    ],
    "_no_database": [
        (
            lambda: snapshot(task(store("count"), lines={changelog("count"): 7})),
            [OFFSET_WITHOUT_STORE],
            {"empty": OFFSET_WITHOUT_STORE},
        ),
        (lambda: snapshot(task(store("count"))), [], NOTHING),
        (good, [], NOTHING),
    ],
    "_misplaced_segments": [
        (
            lambda: windows(starts=(10 * MINUTES, 20 * MINUTES, 30 * MINUTES + 7)),
            [SEGMENT_OFF_GRID],
            {"empty": SEGMENT_OFF_GRID},
        ),
        (windows, [], NOTHING),
    ],
}
GLOBAL_CASES: dict[str, list[Case]] = {
    "_global_databases": [
        (lambda: windows(to="3.9", sst_format=6), [SST_TOO_NEW], {"fatal": SST_TOO_NEW}),
        (good, [], NOTHING),
    ],
    "_global_status": [
        (
            lambda: snapshot(task(store("count", database(offsets=record(7, status=OPEN))))),
            [GLOBAL_STATUS_OPEN],
            {"fatal": GLOBAL_STATUS_OPEN},
        ),
        (lambda: snapshot(task(store("count", database(offsets=record(7, status=CLOSED))))), [], NOTHING),
        (
            lambda: snapshot(task(store("count", database(offsets=record(7, status=OPEN)))), exactly_once=False),
            [],
            NOTHING,
        ),
    ],
}
RULES = {rule.judge.__name__: rule for rule in (*STORE_RULES, *GLOBAL_STORE_RULES)}


@pytest.mark.parametrize(
    ("name", "case"), [(name, entry) for name, all_of in (CASES | GLOBAL_CASES).items() for entry in all_of]
)
def test_a_rule(name: str, case: Case) -> None:
    view = case[0]()
    before = of_store(view)
    after = RULES[name].judge(view, before)
    assert [finding.code for finding in after.findings] == case[1]
    assert _facts(after) == case[2]
    assert before == of_store(view)


def _facts(draft: StoreCheckDraft) -> dict[str, Any]:
    results = {
        "fatal": draft.fatal.code if draft.fatal is not None else None,
        "empty": draft.empty,
        "closed": draft.closed,
        "recreated": draft.recreated,
        "ended": draft.ended,
    }
    return {name: value for name, value in results.items() if value}


def test_recreated_store_is_the_last_finding() -> None:
    view = good()
    verdict = RULES["_recreated"].judge(view, of_store(view, recreated=True))
    assert ([finding.code for finding in verdict.findings], verdict.empty) == ([DOES_NOT_OPEN], DOES_NOT_OPEN)
    assert RULES["_recreated"].judge(view, of_store(view)) == of_store(view)


def test_the_first_obstacle_and_the_first_reason_count() -> None:
    view = windows("odd", to="3.9", sst_format=6)
    first = Obstacle(MALFORMED_POSITION, "", "", ())
    assert RULES["_segments"].judge(windows("odd"), of_store(windows("odd"), fatal=first)).fatal is first
    assert RULES["_databases"].judge(view, of_store(view, empty=FOREIGN_IN_SEGMENTS)).empty == FOREIGN_IN_SEGMENTS


def test_every_rule_has_a_case_and_a_source() -> None:
    assert {rule.judge.__name__ for rule in STORE_RULES} == {*CASES, "_recreated"}
    assert {rule.judge.__name__ for rule in GLOBAL_STORE_RULES} <= {*CASES, *GLOBAL_CASES}
    assert all(rule.source for rule in RULES.values())

"""Each rule about one store: a case in which it says something, and one in which it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.check.rule import Obstacle, StoreCheckDraft
from kstate_cli.check.snapshot import Snapshot
from kstate_cli.check.stores import GLOBAL_STORE_RULES, STORE_RULES
from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.statedir.places import store_place
from kstate_cli.statedir.problems import Problem, ProblemCode
from tests.unit.model import CLOSED, OPEN, changelog, checkpoint, database, record, store, task

from .made import NEW, OLD, of_store, snapshot

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
    one = store("win", *(database("win", start=start, **more) for start in starts), kind="windowed", segmented=True)
    return snapshot(task(one), to=to, segments={one.path: names})


def sessions(**asked: Any) -> Snapshot:
    one = store("late", database("late"), kind="time-ordered-session")
    return snapshot(task(one), asked=asked)


Case = tuple[Callable[[], Snapshot], list[str], dict[str, Any]]
"""The snapshot, the codes of the findings, and what is known of the store then."""
NOTHING: dict[str, Any] = {}
CASES: dict[str, list[Case]] = {
    "_kind": [
        (
            lambda: snapshot(task(store("ver", database(), kind="versioned")), to="3.4"),
            ["unknown-kind"],
            {"ended": True},
        ),
        (good, [], NOTHING),
    ],
    "_files": [
        (broken_position, ["malformed-position"], {"fatal": "malformed-position"}),
        (good, [], NOTHING),
    ],
    "_segments": [
        (lambda: windows("odd"), ["foreign-in-segments"], {"fatal": "foreign-in-segments"}),
        (lambda: windows("odd", to=OLD), ["foreign-in-segments"], {"empty": "foreign-in-segments"}),
        (lambda: windows("odd", to=OLD, rows=0), ["foreign-in-segments"], NOTHING),
        (lambda: windows("win:600000"), ["old-segment-name"], NOTHING),
        (lambda: windows("win-2020", "win.600000"), [], NOTHING),
    ],
    "_databases": [
        (lambda: with_problem(ProblemCode.SST, "000009.sst"), ["does-not-open"], {"fatal": "does-not-open"}),
        (lambda: with_problem(ProblemCode.NOT_A_LONG), ["does-not-open"], {"fatal": "does-not-open"}),
        (lambda: with_problem(ProblemCode.UNKNOWN_FAMILY), [], NOTHING),
        (
            lambda: with_problem(
                ProblemCode.NO_CURRENT, write_ahead={Path("/state/shop/0_0/rocksdb/count"): ("7.log",)}
            ),
            ["does-not-open"],
            {"fatal": "does-not-open"},
        ),
        (
            lambda: with_problem(ProblemCode.NO_CURRENT, write_ahead={Path("/state/shop/0_0/rocksdb/count"): ()}),
            [],
            {"recreated": True},
        ),
        (
            lambda: snapshot(task(store("count", database(offsets=record(7)))), to=OLD),
            ["offsets-in-column-family"],
            {"fatal": "offsets-in-column-family"},
        ),
        (lambda: windows(to="3.9", sst_format=6), ["sst-too-new"], {"empty": "sst-too-new", "closed": True}),
        (
            lambda: snapshot(task(store("count", database(families=("default", "odd"))))),
            ["unknown-column-family"],
            {"fatal": "unknown-column-family"},
        ),
        (good, [], NOTHING),
    ],
    "_sessions": [
        (lambda: sessions(headers_format=True), ["sessions-before-headers"], NOTHING),
        (sessions, ["sessions-before-headers"], NOTHING),
        (good, [], NOTHING),
    ],
    "_doubts": [
        (lambda: with_problem(ProblemCode.SST_NOT_NAMED), ["sst-not-named"], NOTHING),
        (good, [], NOTHING),
    ],
    "_no_database": [
        (
            lambda: snapshot(task(store("count"), lines={changelog("count"): 7})),
            ["offset-without-store"],
            {"empty": "offset-without-store"},
        ),
        (lambda: snapshot(task(store("count"))), [], NOTHING),
        (good, [], NOTHING),
    ],
    "_misplaced_segments": [
        (
            lambda: windows(starts=(10 * MINUTES, 20 * MINUTES, 30 * MINUTES + 7)),
            ["segment-off-grid"],
            {"empty": "segment-off-grid"},
        ),
        (windows, [], NOTHING),
    ],
}
GLOBAL_CASES: dict[str, list[Case]] = {
    "_global_databases": [
        (lambda: windows(to="3.9", sst_format=6), ["sst-too-new"], {"fatal": "sst-too-new"}),
        (good, [], NOTHING),
    ],
    "_global_status": [
        (
            lambda: snapshot(task(store("count", database(offsets=record(7, status=OPEN))))),
            ["global-status-open"],
            {"fatal": "global-status-open"},
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
    ("name", "case"), [(name, one) for name, all_of in (CASES | GLOBAL_CASES).items() for one in all_of]
)
def test_a_rule(name: str, case: Case) -> None:
    seen = case[0]()
    before = of_store(seen)
    after = RULES[name].judge(seen, before)
    assert [one.code for one in after.findings] == case[1]
    assert _known(after) == case[2]
    assert before == of_store(seen)


def _known(draft: StoreCheckDraft) -> dict[str, Any]:
    found = {
        "fatal": draft.fatal.code if draft.fatal is not None else None,
        "empty": draft.empty,
        "closed": draft.closed,
        "recreated": draft.recreated,
        "ended": draft.ended,
    }
    return {name: value for name, value in found.items() if value}


def test_what_is_made_anew_is_told_at_the_end() -> None:
    seen = good()
    told = RULES["_recreated"].judge(seen, of_store(seen, recreated=True))
    assert ([one.code for one in told.findings], told.empty) == (["does-not-open"], "does-not-open")
    assert RULES["_recreated"].judge(seen, of_store(seen)) == of_store(seen)


def test_the_first_obstacle_and_the_first_reason_count() -> None:
    seen = windows("odd", to="3.9", sst_format=6)
    first = Obstacle("malformed-position", "", "", ())
    assert RULES["_segments"].judge(windows("odd"), of_store(windows("odd"), fatal=first)).fatal is first
    assert RULES["_databases"].judge(seen, of_store(seen, empty="foreign-in-segments")).empty == "foreign-in-segments"


def test_every_rule_has_a_case_and_a_source() -> None:
    assert {rule.judge.__name__ for rule in STORE_RULES} == {*CASES, "_recreated"}
    assert {rule.judge.__name__ for rule in GLOBAL_STORE_RULES} <= {*CASES, *GLOBAL_CASES}
    assert all(rule.source for rule in RULES.values())

"""Rules about a directory as a whole, what no rule has looked at, and copies of tasks; and that rules are functions."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import pkgutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kstate_cli.check
from kstate_cli.check.codes.layout import (
    FAILED_START_DELETES,
    MALFORMED_CHECKPOINT,
    NOT_UNDERSTOOD,
    SHARED_STORE_REGROUPED,
    STORE_IN_TWO_SUBTOPOLOGIES,
)
from kstate_cli.check.codes.logs import CHANGELOG_WITHOUT_STORE
from kstate_cli.check.codes.surroundings import (
    CLEANER_MAY_DELETE,
    FOREIGN_OWNER,
    KEPT_TOO_LONG,
    LOCK_NOT_SHARED,
    ONLY_KEPT,
    UNFINISHED_RUN,
    VERSIONED_POSITION,
)
from kstate_cli.check.files import Doubles, stores_in_two
from kstate_cli.check.findings import FindingCode, Outcome
from kstate_cli.check.predict import judge, not_understood
from kstate_cli.check.snapshot import KstateRun, Snapshot, Surroundings
from kstate_cli.check.surroundings import AROUND_RULES
from kstate_cli.statedir.locks import Mount
from kstate_cli.statedir.model import Task
from kstate_cli.statedir.problems import Place, Problem, ProblemCode, task_place
from tests import syntax
from tests.unit.model import application, changelog, database, record, store, task

from .builders import NOW_MS, OLD, log, snapshot

HERE = "check/"
READERS = {"check/snapshot_reader.py", "check/logs.py", "check/predict.py"}
"""Who takes the snapshot, and the sources of logs; ``check`` itself takes one and judges it. A lag is no rule."""
IMPORTS = frozenset(
    {"kstate_cli.clock", "kstate_cli.regular_files", "time", "shutil", "subprocess", "io", "glob", "tempfile"}
)
CALLS = frozenset(
    {"open", "listdir", "scandir", "walk", "stat", "lstat", "exists", "is_file", "is_dir", "is_symlink", "iterdir"}
    | {"glob", "rglob", "read_text", "read_bytes", "resolve", "lexists", "now", "now_ms"}
)


def task_of_topology(topology: str) -> Task:
    """A task of a named topology, whose store is ``count``."""
    return task(store("count", database()), name=f"__{topology}__/0_0")


def healthy(mtime_ns: int = NOW_MS * 1_000_000) -> Task:
    return replace(task(store("count", database()), lines={changelog("count"): 5}), mtime_ns=mtime_ns)


def around(**facts: Any) -> Snapshot:
    return snapshot(healthy(), to=OLD, around=Surroundings(**facts))


CASES = {
    "_ages": [(snapshot(healthy(mtime_ns=0)), [CLEANER_MAY_DELETE]), (snapshot(healthy()), [])],
    "_versioned": [
        (snapshot(task(store("ver", database("ver"), kind="versioned"))), [VERSIONED_POSITION]),
        (snapshot(task(store("ver", database("ver"), kind="versioned")), to=OLD), []),
        (snapshot(healthy()), []),
    ],
    "_owners": [(around(owner=5, others=("0_0/x",)), [FOREIGN_OWNER]), (around(owner=5), [])],
    "_mount": [
        (around(mount=Mount(Path("/state"), "nfs4")), [LOCK_NOT_SHARED]),
        (around(mount=Mount(Path("/state"), "ext4")), []),
    ],
    "_runs": [
        (around(runs=(KstateRun("0001-migrate", damage="it is empty"),)), [UNFINISHED_RUN]),
        (around(runs=(KstateRun("0001-migrate", interrupted=True),)), [UNFINISHED_RUN]),
        (around(runs=(KstateRun("0001-migrate", kept_bytes=9, kept_since="2023-01-01"),)), [KEPT_TOO_LONG]),
        (around(runs=(KstateRun("0001-migrate", lost="/a does not contain any tasks"),)), [ONLY_KEPT]),
        (around(runs=(KstateRun("0001-migrate"),)), []),
    ],
    "_in_memory": [
        (snapshot(healthy(), logs=[log(changelog("memory"), 0, 5)]), [CHANGELOG_WITHOUT_STORE]),
        (snapshot(healthy(), logs=[log(changelog("count"), 0, 5)]), []),
        (snapshot(task_of_topology("orders"), logs=[log(changelog("orders-count"), 0, 5)]), []),
        (snapshot(task_of_topology("orders"), logs=[log(changelog("orders-memory"), 0, 5)]), [CHANGELOG_WITHOUT_STORE]),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_a_rule(name: str) -> None:
    (rule,) = [rule for rule in AROUND_RULES if rule.judge.__name__ == name]
    for view, codes in CASES[name]:
        assert [entry.code for entry in rule.judge(view)] == codes


def test_every_rule_has_a_case_and_a_source() -> None:
    assert [rule.judge.__name__ for rule in AROUND_RULES] == list(CASES)
    assert all(rule.source for rule in AROUND_RULES)


def test_stores_in_two_subtopologies() -> None:
    view = snapshot(healthy(), task(store("count", database(), task="3_0"), name="3_0"))
    doubles = stores_in_two(view)
    assert doubles.copies == {"3_0"} and [finding.code for finding in doubles.findings] == [STORE_IN_TWO_SUBTOPOLOGIES]
    assert not doubles.shared
    assert stores_in_two(snapshot(healthy())) == Doubles()


def test_stores_of_a_shared_builder() -> None:
    """Each sub-topology has a store of its own beside the shared one: no copy, and no directory to move away."""
    tasks = [task(store("count", database(), task="0_0"), store("shared", database(), task="0_0"), name="0_0")]
    tasks += [task(store("second", database(), task="1_0"), store("shared", database(), task="1_0"), name="1_0")]
    for release, text in (
        ("4.2.1", "4.2.1 also keeps these processors in separate"),
        ("4.2.2", "into one sub-topology"),
        ("4.2", "the patch release of"),
    ):
        doubles = stores_in_two(snapshot(*tasks, to=release))
        assert not doubles.copies and doubles.shared == {"": 0}
        (finding,) = doubles.findings
        assert finding.code == SHARED_STORE_REGROUPED and text in finding.text and "up to 4.2.1" in finding.text
        assert "move" not in finding.hint and f"--for {release}" in finding.hint


@pytest.mark.parametrize(
    ("place", "code", "findings", "codes"),
    [
        (Place(("1_0",)), ProblemCode.LINK, [], [NOT_UNDERSTOOD]),
        (task_place("0_0") / "x", ProblemCode.FOREIGN, [], []),
        (task_place("0_0") / ".checkpoint", ProblemCode.MALFORMED_OFFSETS, [], [NOT_UNDERSTOOD]),
        (task_place("0_0") / ".checkpoint", ProblemCode.MALFORMED_OFFSETS, [MALFORMED_CHECKPOINT], []),
        (task_place("0_0") / "x", ProblemCode.LINK, [MALFORMED_CHECKPOINT], [NOT_UNDERSTOOD]),
    ],
)
def test_problems_that_no_rule_judges(
    place: Place, code: ProblemCode, findings: list[FindingCode], codes: list[FindingCode]
) -> None:
    problem = Problem(code, place, "is odd", "a rule")
    subject = healthy()
    if place.task == "0_0":
        app = application(replace(subject, problems=(problem,)))
    else:
        app = replace(application(subject), problems=(problem,))
    view = snapshot(app=app, to=OLD)
    facts = [view.finding(name, "", subject) for name in findings]
    assert [finding.code for finding in not_understood(view, facts)] == codes


def test_a_report_follows_from_the_snapshot_alone() -> None:
    """The directory of this one has never been there."""
    view = snapshot(healthy(), to=OLD, logs=[log(changelog("count"), 0, 6)], counts={(changelog("count"), 6): 0})
    report = judge(view)
    assert [(prediction.store, prediction.outcome) for prediction in report.predictions] == [("count", Outcome.OPENS)]
    assert report.findings == () and judge(view) == report


def test_rules_read_no_disk_and_no_clock() -> None:
    codes_of_place = [
        f"{module}:{ast.unparse(node)}"
        for module, tree in syntax.modules()
        if module.startswith(HERE) and module not in READERS
        for node in syntax.nodes(tree)
        if _reads(node)
    ]
    assert not codes_of_place, codes_of_place


def _reads(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{name.name}" for name in node.names} | {str(node.module)}
        return bool(names & IMPORTS) or str(node.module).startswith("kstate_cli.check.snapshot_reader")
    if isinstance(node, ast.Import):
        return any(name.name in IMPORTS for name in node.names)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        return called in CALLS
    return False


def test_nothing_that_a_rule_is_given_can_be_written_into() -> None:
    for module in pkgutil.iter_modules(kstate_cli.check.__path__, "kstate_cli.check."):
        for var in vars(importlib.import_module(module.name)).values():
            if isinstance(var, type) and var.__module__ == module.name and dataclasses.is_dataclass(var):
                assert var.__dataclass_params__.frozen, var  # type: ignore[attr-defined]


@pytest.mark.parametrize("to", ["3.9", "4.2"])
@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("with_global", [True, False])
def test_tasks_deleted_by_a_failed_start(to: str, exactly_once: bool, with_global: bool) -> None:
    """Exactly-once, and no global store that ends the start before there is a task."""
    unlogged = store("nolog", database("nolog", offsets=record(None)), task="0_1")
    tasks = [task(store("count", database(offsets=record(5)))), task(unlogged, name="0_1")]
    if with_global:
        table = store("table", database("table", offsets=record(5, "table")), task="global")
        tasks.append(task(table, name="global"))
    report = judge(snapshot(*tasks, to=to, exactly_once=exactly_once))
    assert report.fails
    texts = [finding.text for finding in report.findings if finding.code == FAILED_START_DELETES]
    assert bool(texts) is (exactly_once and not with_global)
    assert all("the directories of 2 tasks" in text and "rows of nolog" in text for text in texts)


def test_a_start_that_does_not_fail_deletes_nothing() -> None:
    report = judge(snapshot(healthy(), to="4.2"))
    assert not report.fails and FAILED_START_DELETES not in {finding.code for finding in report.findings}

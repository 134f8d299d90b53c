"""Places: what they are is asked of their names, and their text is made in one module."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kstate_cli.statedir.problems import (
    Place,
    Problem,
    ProblemCode,
    Spelling,
    StoreRef,
    both_places,
    store_place,
    task_place,
)
from tests import syntax


@pytest.mark.parametrize(
    ("names", "task", "store"),
    [
        ((), None, None),
        (("x",), None, None),
        (("0_0",), "0_0", None),
        (("0_0", "rocksdb"), "0_0", None),
        (("0_0", "rocksdb", "count"), "0_0", StoreRef("count", segmented=False)),
        (("0_0", "rocksdb", "count", "CURRENT"), "0_0", StoreRef("count", segmented=False)),
        (("0_0", "win"), "0_0", StoreRef("win", segmented=True)),
        (("0_0", "win", "win.0", "CURRENT"), "0_0", StoreRef("win", segmented=True)),
        (("0_0", ".checkpoint"), "0_0", None),
        (("0_0", "count.position"), "0_0", None),
        (("__a__",), None, None),
        (("__a__", "x"), None, None),
        (("__a__", "0_0"), "__a__/0_0", None),
        (("__a__", "0_0", "win"), "__a__/0_0", StoreRef("win", segmented=True)),
        (("global", "rocksdb", "t"), "global", StoreRef("t", segmented=False)),
    ],
)
def test_task_and_store_of_a_place(names: tuple[str, ...], task: str | None, store: StoreRef | None) -> None:
    place = Place(names)
    assert (place.task, place.store, place.text) == (task, store, "/".join(names) or ".")
    assert place.hides_tasks == (bool(names) and (names[-1] in ("0_0", "global") or names[0] == "__a__"))


def test_names_that_only_look_alike() -> None:
    folder = store_place("0_0", "count", segmented=False)
    assert (folder / "000012.sst").within(folder) and folder.within(folder)
    assert not store_place("0_0", "counter", segmented=False).within(folder)
    assert not task_place("0_01").within(task_place("0_0"))
    assert both_places("__a__/0_0", "s") == (Place(("__a__", "0_0", "s")), Place(("__a__", "0_0", "rocksdb", "s")))
    assert Place.of(Path("/state/app"), Path("/state/app/0_0/win")) == task_place("0_0") / "win"


def test_how_names_are_written_that_streams_never_gives() -> None:
    odd = task_place("0_0") / "rocksdb" / "we ird\n"
    assert odd.spelled(Spelling.LAST_QUOTED).text == "0_0/rocksdb/'we ird\\n'"
    assert (task_place("0_0") / "we\n").spelled(Spelling.QUOTED).text == "'0_0/we\\n'"
    assert odd.spelled(Spelling.LAST_QUOTED).names[-1] == "we ird\n"
    assert task_place("0_0").spelled(Spelling.AND_BELOW).text == "0_0/…"


@pytest.mark.parametrize("code", ProblemCode)
def test_doubtful_problems_are_not_fatal(code: ProblemCode) -> None:
    problem = Problem(code, task_place("0_0"), "is odd", "a rule")
    assert not (problem.doubt and problem.fatal)
    assert (problem.text, problem.reasoned) == ("0_0: is odd", "0_0: is odd (a rule)")


def test_every_problem_code_is_used() -> None:
    """No code is left over, and none stands for whatever has no other."""
    codes = {
        node.attr
        for _, tree in syntax.modules()
        for node in syntax.nodes(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ProblemCode"
    }
    assert codes == {code.name for code in ProblemCode} and "OTHER" not in codes

"""Which cases of a test that has many run usually.

``@pytest.mark.sample(4)`` on a parametrized test: four of its cases, the first, the last and what lies evenly between
them, so that each end of a list that is in order (releases, sizes) has one. ``KSTATE_SAMPLES=all`` (``scripts/test.sh
all`` sets it) runs every case, and so does whoever asks for ``all`` of anything else (``KSTATE_JOURNALS``, ``…_FAULTS``),
proves a release, or writes what is compared; a case that is named alone is run.

``@pytest.mark.in_full("tests/x/test_y.py::test_z")`` on a test that takes long: it runs only where every case does. Usually
the test that it names holds the same truth in less time. Named alone (``FILE::TEST``), it is run.

``@pytest.mark.rotating(3)`` on a test: a third of its cases, at least one. On a module (``pytestmark``): a third of its tests.
On several tests with a name, ``rotating(3, "hints")``: a third of these. The sources select which third: each commit runs
others, and a commit always the same. The run prints its selection, and ``KSTATE_ROTATION`` repeats it on other sources.
``KSTATE_ROTATION=none`` runs all of them.
Only a run of whole folders selects: all tests of a file that is named (``pytest FILE``) run. ``rotated`` selects among what
a single test or a fixture does.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")

IN_FULL = "in_full"
ROTATING = "rotating"
ROTATION = "KSTATE_ROTATION"
"""The environment variable that selects which rotating tests run."""
NONE = "none"
"""Its value that selects all of them."""
_ROOT = Path(__file__).resolve().parents[1]

ALL = (
    "all" in (value for name, value in os.environ.items() if name.startswith("KSTATE_"))
    or "KSTATE_INTEROP_RELEASE" in os.environ
    or os.environ.get("KSTATE_FREEZE") == "write"
)


def evenly(cases: Sequence[T], number: int) -> list[T]:
    """``number`` of the cases, in their order: the ends, and what lies evenly between them."""
    if number >= len(cases):
        return list(cases)
    if number == 1:
        return [cases[0]]
    return [cases[at * (len(cases) - 1) // (number - 1)] for at in range(number)]


_of_the_run: list[str] = []


def take_over(rotation: str) -> None:
    """Select the rotating tests as the process does that has started this one."""
    os.environ.pop(ROTATION, None)
    _of_the_run[:] = [rotation]


def rotation() -> str:
    """Return what selects the rotating tests: the digest of the sources, unless the environment states another."""
    if not _of_the_run:
        # Out of the environment: the commands that tests run must not see it.
        _of_the_run.append(os.environ.pop(ROTATION, "") or _digest())
    return _of_the_run[0]


def _digest() -> str:
    digest = hashlib.sha256()
    for folder in ("kstate_cli", "tests"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def selected(cases: Sequence[T], number: int, group: str, rotation: str) -> list[T]:
    """Return every ``number``-th of the cases of a group, at least one. Each group begins at a different case."""
    if rotation == NONE:
        return list(cases)
    number = min(number, len(cases))
    begin = int.from_bytes(hashlib.sha256(f"{rotation} {group}".encode()).digest()[:8], "big") % number
    return list(cases[begin::number])


def rotated(cases: Sequence[T], number: int, group: str) -> list[T]:
    """Return the cases of one test that this commit runs: every ``number``-th, or all where every case is run."""
    return list(cases) if ALL else selected(cases, number, group, rotation())


def _rotated_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the rotating tests that this commit does not run."""
    groups: dict[tuple[str, int], list[pytest.Item]] = {}
    for item in items:
        marker = item.get_closest_marker(ROTATING)
        if marker is None:
            continue
        number, *name = marker.args
        own = marker in item.own_markers
        place = str(item.path.relative_to(item.config.rootpath))
        group = name[0] if name else item.nodeid.partition("[")[0] if own else place
        groups.setdefault((group, number), []).append(item)
    return {item for cases in groups.values() for item in cases} - {
        item for (group, number), cases in groups.items() for item in selected(cases, number, group, rotation())
    }


def deselect_most(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the cases that do not run out of ``items``, and has pytest count them as deselected."""
    if ALL:
        return
    by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") is not None:
            by_test.setdefault(item.nodeid.partition("[")[0], []).append(item)
    names = any("::" in argument for argument in config.args)
    left_out = set() if names else {item for item in items if item.get_closest_marker(IN_FULL) is not None}
    left_out |= {case_ for cases in by_test.values() for case_ in cases} - {
        item for cases in by_test.values() for item in evenly(cases, _number(cases[0]))
    }
    if not any(".py" in argument for argument in config.args):
        left_out |= _rotated_out([item for item in items if item not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _number(item: pytest.Item) -> int:
    marker = item.get_closest_marker("sample")
    assert marker is not None
    (number,) = marker.args
    assert isinstance(number, int)
    return number

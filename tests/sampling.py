"""Which cases of a test that has many run usually.

``@pytest.mark.sample(4)`` on a parametrized test: four of its cases, the first, the last and what lies evenly between
them, so that each end of a list that is in order (releases, sizes) has one. ``KSTATE_SAMPLES=all`` (``scripts/test.sh
all`` sets it) runs every case, and so does whoever asks for ``all`` of anything else (``KSTATE_JOURNALS``, ``…_FAULTS``),
proves a release, or writes what is compared; a case that is named alone is run.

``@pytest.mark.in_full("tests/x/test_y.py::test_z")`` on a test that takes long: it runs only where every case does. Usually
the test that it names holds the same truth in less time. Named alone (``FILE::TEST``), it is run.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

IN_FULL = "in_full"

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
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _number(item: pytest.Item) -> int:
    marker = item.get_closest_marker("sample")
    assert marker is not None
    (number,) = marker.args
    assert isinstance(number, int)
    return number

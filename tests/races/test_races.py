"""A few races of ``python -m tests.races``, and what its record states. However far each participant comes, one waits or is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.forked import Kstate
from tests.interop.harness import Harness

from . import pairs, starts
from .record import Race, rows

PAIRS = [
    Race("pair", "migrate", "undo", 1),
    Race("pair", "migrate", "migrate", 2),
    Race("pair", "wipe", "clean", 3),
    Race("pair", "undo", "snapshot", 4),
    Race("pair", "migrate", "check", 5),
]
STARTS = [Race("streams", "migrate", starts.STREAMS, 1), Race("streams", "wipe", starts.STREAMS, 2)]
NEEDS_JAVA = pytest.mark.skipif(shutil.which("javac") is None, reason="no Java 17: the real releases cannot be started")


@pytest.fixture(scope="module")
def kstates() -> Iterator[tuple[Kstate, Kstate]]:
    with Kstate() as here, Kstate() as there:
        yield here, there


def test_two_commands_at_once(kstates: tuple[Kstate, Kstate], tmp_path: Path) -> None:
    course = pairs.Course(tmp_path, *kstates)
    wrong = [row for row in map(course.run, PAIRS) if row.wrong]
    assert not wrong


@pytest.mark.interop
@NEEDS_JAVA
def test_streams_starts_during_a_command(kstates: tuple[Kstate, Kstate], tmp_path: Path) -> None:
    with Harness() as harness:
        lab = starts.Lab(tmp_path, kstates[0], harness)
        wrong = [row for row in map(lab.run, STARTS) if row.wrong]
    assert not wrong


def test_the_record_contains_no_damage() -> None:
    record = rows().values()
    assert not [row for row in record if row.wrong]
    assert {row.first for row in record if row.kind == "streams"} == set(starts.COMMANDS)
    assert {(row.first, row.second) for row in record if row.kind == "pair"} >= {
        (first, second) for first in pairs.CHANGING for second in (*pairs.CHANGING, *pairs.READING)
    }

"""A few of the signals of ``signals.py`` in every run of the tests; ``KSTATE_SIGNALS=all``: each at each moment."""

from __future__ import annotations

import os

import pytest

from tests.sampling import rotated

from .signals import MOMENTS, WAYS, Moment, Signals, Way, prepare

ALL = os.environ.get("KSTATE_SIGNALS") == "all"
SAMPLE = {
    "its JVM runs": "TERM to all",
    "a slice is finished": "KILL",
    "its workers have ended": "INT",
}
"""Moment -> way: one while Spark starts, one amid slices, one while it stops."""


@pytest.fixture(scope="module")
def signals(tmp_path_factory: pytest.TempPathFactory) -> Signals:
    return prepare(tmp_path_factory.mktemp("signals"))


def strikes() -> list[tuple[str, list[tuple[Moment, Way]]]]:
    """What is struck one after the other in one directory, before the same command runs undisturbed."""
    if ALL:
        return [(moment.name, [(moment, way) for way in WAYS]) for moment in MOMENTS]
    moments, ways = {moment.name: moment for moment in MOMENTS}, {way.name: way for way in WAYS}
    return [
        (
            "sample",
            [(moments[moment], ways[way]) for moment, way in rotated([*SAMPLE.items()], 3, "signals of a restoration")],
        )
    ]


@pytest.mark.rotating(4, "long restorations")
@pytest.mark.parametrize("rows", [pytest.param(choice, id=name) for name, choice in strikes()])
def test_a_signal(signals: Signals, rows: list[tuple[Moment, Way]]) -> None:
    """Always 128+N, NOT_RUNNING, the old directory or the new one, nothing of Spark; and the same command goes on."""
    signals.fresh()
    wrong = [f"{moment.name}, {way.name}: {entry}" for moment, way in rows for entry in signals.strike(moment, way)]
    wrong += signals.again()
    assert not wrong, "\n\n".join(wrong)


def test_every_phase_is_struck_in_every_way() -> None:
    assert len(MOMENTS) * len(WAYS) == 60
    assert {moment.phase for moment in MOMENTS} == {
        "before the run", "Spark starts", "slices", "Spark stops", "taking in", "switch"
    }  # fmt: skip
    assert SAMPLE.keys() <= {moment.name for moment in MOMENTS}

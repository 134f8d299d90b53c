"""The sentence that ``check`` begins with has every outcome, in numbers that agree with their words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kstate_cli.check.codes import CODES
from kstate_cli.check.findings import Outcome, Prediction, Records
from kstate_cli.cli.views.check import _COMMAND, _group_outcome, _part_of, verdict
from kstate_cli.texts import filled

STORES = [Prediction("0_0", f"s{number}", Outcome.OPENS) for number in range(44)]


def test_verdict_is_a_single_sentence() -> None:
    wiped = [Prediction("0_1", name, Outcome.WIPED) for name in "ab"]
    assert verdict([*wiped, *STORES]) == "44 stores open, task 0_1 is wiped and restores everything"
    assert verdict([Prediction("0_0", "a", Outcome.FAILS), *STORES[:1]]) == "startup fails at 0_0/a, 1 store opens"
    lost = Prediction("0_2", "n", Outcome.LOST)
    assert verdict([*STORES, lost]) == "1 store loses its rows, 44 stores open"
    chance = Prediction("0_2", "n", Outcome.OPENS, or_else=Outcome.WIPED)
    assert (
        verdict([chance]) == "1 store opens or its task is wiped, so it restores everything (depending on the timing)"
    )
    unknown = Prediction("0_2", "n", Outcome.WIPED, or_else=Outcome.OPENS, by_chance=False)
    assert (
        verdict([unknown])
        == "task 0_2 is wiped and restores everything or opens unchanged (the findings state why this is unknown)"
    )
    assert verdict([]) == "the directory has no stores"


def test_how_far_behind_it_is_altogether() -> None:
    """Where it is known of every store; at most so many where of one of them it is no more."""

    def behind(*records: Records | None) -> str:
        return verdict(
            Prediction("0_0", f"s{number}", Outcome.RESTORES, record) for number, record in enumerate(records)
        )

    text = "2 stores restore the records after their offsets"
    assert behind(Records(40, True), Records(1_200, True)) == f"{text} (1,240 records)"
    assert behind(Records(40, True), Records(2, False)) == f"{text} (at most 42 records)"
    assert behind(Records(40, True), None) == text
    assert behind(Records(1, True)) == "1 store restores the records after its offset (1 record)"
    assert "record" not in verdict([Prediction("0_0", "a", Outcome.OPENS, Records(0, True))])


@pytest.mark.parametrize("outcome", list(Outcome))
@pytest.mark.parametrize("or_else", [None, *Outcome])
def test_every_outcome_has_words(outcome: Outcome, or_else: Outcome | None) -> None:
    for count in (1, 2):
        text = verdict([Prediction("0_0", f"s{number}", outcome, or_else=or_else) for number in range(count)])
        assert text and "{" not in text and ("timing" in text) == (or_else is not None)


_SINGULAR = re.compile(r"\b(it|its|is|opens|restores|stays)\b")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome not in (Outcome.HANGS, Outcome.FAILS)])
def test_an_outcome_of_several_stores_is_in_the_plural(outcome: Outcome) -> None:
    """A group of stores with the same outcome, and both outcomes of one that is not certain."""
    for tasks in (1, 2):
        group = [Prediction(f"0_{number % tasks}", f"s{number}", outcome, or_else=outcome) for number in range(4)]
        text = _group_outcome(group).removesuffix(" (depending on the timing)")
        assert not _SINGULAR.search(text.replace("their task is", "")), text
        if outcome is not Outcome.WIPED or tasks == 2:
            _, _, other = verdict(group).partition(" or ")
            assert not _SINGULAR.search(other.replace("their task is", "").partition(" (")[0]), other


@pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.name)
def test_command_of_a_hint_is_recognized_for_any_directory(code: Any) -> None:
    hint = filled(code.hint, {"APP": "/a: kstate ls b", "TASK": "0_1", "STORE": "x"})
    match = _COMMAND.fullmatch(hint)
    assert (match is None) == ("kstate " not in code.hint)
    assert match is None or match[2] == filled(code.hint[code.hint.index("kstate ") :], {"APP": "/a: kstate ls b", "TASK": "0_1", "STORE": "x"})  # fmt: skip


@pytest.mark.parametrize(
    ("message", "output"),
    [
        ("entries but found only ", "…entries but found only…"),
        ("Fatal user code error", "Fatal user code error"),
        ("Invalid version: ", "Invalid version:…"),
    ],
)
def test_part_of_a_message_is_marked(message: str, output: str) -> None:
    assert _part_of(message) == output

"""What kstate writes down of the age of data: it is found again, only for the data that it is about, or it is refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kstate_cli.dump_reader.model import ClockMark
from kstate_cli.errors import Refused
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.ages import Age, LogMark, SstAge, add_ages, ages_path, read_ages, resolve_age

KEY = TopicPartition("a-s-changelog", 0)
AT = {KEY: 7}
BOUND = Age("0_0/s", AT, 1_000, {KEY: LogMark("id", 3, 7, "d")}, run="0001-restore")
MARK = ClockMark("boot", 5, 1_000, 900, None, "scale")
EXACT = Age("0_0/s", AT, 1_000, {KEY: LogMark("id", 3, 7, "d", 20_000)}, "the-files", "0001-restore", MARK)
OTHER_FILES, THOSE_FILES = "others", "the-files"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app").mkdir()
    return tmp_path / "app"


def test_written_ages_are_read_back(app: Path) -> None:
    assert read_ages(app) == ()
    nothing = Age("__t__/0_1/w", {}, None)
    add_ages(app, [BOUND, nothing])
    add_ages(app, [EXACT, BOUND])
    assert sorted(map(repr, read_ages(app))) == sorted(map(repr, [BOUND, EXACT, nothing]))
    assert os.listdir(ages_path(app).parent) == ["ages.json"]


def test_temporary_file_of_a_dead_process_is_replaced(app: Path) -> None:
    add_ages(app, [BOUND])
    ages_path(app).with_name("ages.json.tmp").write_text("half")
    assert read_ages(app) == (BOUND,)
    add_ages(app, [EXACT])
    assert os.listdir(ages_path(app).parent) == ["ages.json"]


def of(at_ms: int | None, identity: str = OTHER_FILES, *, ages: tuple[Age, ...], offsets: Any = None) -> int | None:
    return resolve_age(ages, "0_0/s", AT if offsets is None else offsets, SstAge(at_ms, identity)).as_of_ms


def test_an_entry_counts_for_the_very_data_only() -> None:
    assert of(5_000, ages=()) == 5_000
    assert of(None, ages=()) is None
    # A bound makes older, never younger, and only at its offsets.
    assert of(5_000, ages=(BOUND,)) == 1_000
    assert of(500, ages=(BOUND,)) == 500
    assert of(None, ages=(BOUND,)) == 1_000
    assert of(5_000, ages=(BOUND,), offsets={KEY: 8}) == 5_000
    # What is said of the very files goes first: a store that was caught up has old files and young data.
    assert of(500, THOSE_FILES, ages=(BOUND, EXACT)) == 1_000
    assert of(500, OTHER_FILES, ages=(BOUND, EXACT)) == 500
    assert of(500, THOSE_FILES, ages=(BOUND, EXACT), offsets={KEY: 8}) == 500
    # Made without knowing how old it is: no date of a file says more.
    unknown = Age("0_0/s", AT, None)
    assert of(5_000, ages=(BOUND, unknown)) is None
    assert of(5_000, ages=(Age("0_1/s", AT, 3),)) == 5_000


def test_ages_of_two_clocks_are_of_none() -> None:
    """The least of two times is one of the two, and neither clock measures the other one."""
    ages = [replace(BOUND, clock=MARK), replace(BOUND, as_of_ms=900, clock=replace(MARK, scale="another"))]
    for order in (ages, ages[::-1]):
        age = resolve_age(order, "0_0/s", AT, SstAge(None, OTHER_FILES))
        assert age.as_of_ms == 900 and age.clock is not None and age.clock.scale == ""
    age = resolve_age([ages[0], BOUND], "0_0/s", AT, SstAge(None, OTHER_FILES))
    assert age.clock == MARK


BROKEN: list[Any] = [
    b"", b"{", b"[]", b"null", b"7", b"{}", b"\xff", b"[" * 100_000,
    {"schema_version": 1}, {"schema_version": 0, "stores": {}}, {"schema_version": True, "stores": {}},
    {"schema_version": 1, "stores": []}, {"schema_version": 1, "stores": {"s": 7}},
    {"schema_version": 1, "stores": {"s": [7]}}, {"schema_version": 1, "stores": {"s": [{}]}},
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=lambda entry: repr(entry)[:40])
def test_a_damaged_file_is_refused(app: Path, content: Any) -> None:
    add_ages(app, [BOUND])
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    ages_path(app).write_bytes(data)
    for use in (lambda: read_ages(app), lambda: add_ages(app, [EXACT])):
        with pytest.raises(Refused, match="cannot read") as caught:
            use()
        assert str(ages_path(app)) in caught.value.message
    assert ages_path(app).read_bytes() == data


def test_every_member_that_is_gone_or_mistyped_is_refused(app: Path) -> None:
    add_ages(app, [EXACT])
    whole = json.loads(ages_path(app).read_text())
    for name in whole["stores"]["0_0/s"][0]:
        for value in ({}, [], [[1]], [["t", 0]], "x", 1.5, True, -(1 << 70), ...):
            content = json.loads(json.dumps(whole))
            entry = content["stores"]["0_0/s"][0]
            if value is ... and name == "clock":
                continue  # it is of a dump that does not grow, or was written before clocks were
            if value is ...:
                del entry[name]
            elif (value == "x" and name in ("run", "identity")) or (value == [] and name in ("offsets", "logs")):
                continue
            else:
                entry[name] = value
            ages_path(app).write_text(json.dumps(content))
            with pytest.raises(Refused, match="cannot read"):
                read_ages(app)


def test_refuses_ages_of_a_newer_kstate(app: Path) -> None:
    add_ages(app, [BOUND])
    ages_path(app).write_text(json.dumps({"schema_version": 2, "anything": []}))
    with pytest.raises(Refused, match="newer version of kstate"):
        read_ages(app)


def test_a_link_is_not_followed(app: Path, tmp_path: Path) -> None:
    add_ages(app, [BOUND])
    ages_path(app).rename(tmp_path / "elsewhere")
    ages_path(app).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot read"):
        read_ages(app)


def test_the_newest_entries_stay(app: Path) -> None:
    add_ages(app, [Age("0_0/s", {KEY: number}, number) for number in range(200)])
    ages = read_ages(app)
    assert [age.as_of_ms for age in ages] == list(range(200 - len(ages), 200))
    assert 32 <= len(ages) < 200

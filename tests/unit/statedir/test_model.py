"""What a store and an application say of themselves, from directories that are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.statedir.problems import Place, Problem, ProblemCode, store_place, task_place
from tests.unit.model import OPEN, application, database, record, store, task

COUNT = store_place("0_0", "count", segmented=False)
DOUBT = Problem(ProblemCode.SST_NOT_NAMED, COUNT, "an SST that no MANIFEST names", "a rule")


@pytest.mark.parametrize(
    ("statuses", "message"),
    [([], None), ([None], None), ([0], "closed"), ([0, None], "closed"), ([0, OPEN], "open"), ([None, 7], "open")],
)
def test_a_store_is_open_where_any_database_is(statuses: list[int | None], message: str | None) -> None:
    state = store(
        "win", *(database("win", start=n, offsets=record(1, status=status)) for n, status in enumerate(statuses))
    )
    assert state.status == message


def test_the_position_is_the_highest_of_all_places() -> None:
    state = store("win", *(database("win", start=n, offsets=record(1, position=n)) for n in (4, 9, 2)), position=7)
    assert state.position.as_map() == {"events": {0: 9}}
    assert store("count", database(), position=7).position.as_map() == {"events": {0: 7}}
    assert store("count", database()).position.is_empty


def test_unreadable_position_is_unknown() -> None:
    state = store("count", database(), position=7)
    assert state.position_file is not None and state.position_is_readable and not state.remarks
    broken = replace(
        state, position_file=replace(state.position_file, content=None, error=MalformedBytesError("is garbled"))
    )
    assert not broken.position_is_readable and broken.position.is_empty
    assert broken.remarks == ("0_0/count.position: is garbled, so kstate does not know the store's Position",)


def test_rows_in_doubt_are_reported_unless_the_application_runs() -> None:
    doubtful = store("count", database(problems=(DOUBT,)))
    app = application(task(doubtful))
    assert doubtful.in_doubt and app.doubtful == {COUNT}
    assert app.as_of == "closed" and replace(app, running=None).as_of == "last-flush"
    assert not replace(app, running=True).doubtful
    assert not store("count", database(problems=(replace(DOUBT, code=ProblemCode.UNDER_WAY),))).in_doubt


def test_problems_of_every_level() -> None:
    own = Problem(ProblemCode.LINK, Place(("a link",)), "", "")
    of_task = Problem(ProblemCode.FOREIGN, task_place("0_0") / "x", "", "")
    app = replace(application(task(store("count", database(problems=(DOUBT,))), problems=(of_task,))), problems=(own,))
    assert app.all_problems() == (own, of_task, DOUBT)


@pytest.mark.parametrize(
    ("name", "kind", "starts", "is_reported"),
    [
        ("x", "grace-buffer", [0], True),
        ("join-Buffer", "windowed", [0], True),
        ("join-Buffer", "windowed", [0, 60], False),
        ("join-Buffer", "windowed", [60], False),
        ("join", "windowed", [0], False),
    ],
)
def test_the_buffer_of_a_stream_table_join(name: str, kind: str, starts: list[int], is_reported: bool) -> None:
    state = store(name, *(database(name, start=start) for start in starts), kind=kind, segmented=True)
    assert state.is_grace_buffer == is_reported

"""What transactional stores (KIP-892) leave is clean where the user says that the application runs with them."""

from __future__ import annotations

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.resolve import resolve_with
from kstate_cli.offsets.unclean import has_offset_if_logged
from kstate_cli.releases import RELEASES, written_by
from kstate_cli.statedir.model import Store
from tests.unit.model import application, changelog, database, record, store, task

NONE = database(offsets=record(5, status=None))


def reasons(one: Store, *, transactional: bool, lines: dict[TopicPartition, int] | None = None) -> list[str]:
    (resolved,) = resolve_with(application(task(one, lines=lines)), {}, transactional=transactional)
    return [f"{reason.what}{' (no status)' if reason.no_status else ''}" for reason in resolved.unclean]


def test_no_status_is_clean_where_the_user_says_so() -> None:
    assert reasons(store("count", NONE), transactional=False) == ["it has rows but no status (no status)"]
    assert reasons(store("count", NONE), transactional=True) == []
    empty = database(offsets=record(None, status=None), rows=0)
    assert reasons(store("count", empty), transactional=False) == []


@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_overrides_a_status_of_1(transactional: bool) -> None:
    opened = database(offsets=record(5, status=1))
    assert reasons(store("count", opened), transactional=transactional) == ["its status is open"]
    segments = [
        database("w", offsets=record(5, "w", status=status), start=at) for at, status in enumerate((None, 1, 0))
    ]
    told = reasons(store("w", *segments, kind="timestamped-window", segmented=True), transactional=transactional)
    assert "its status is open" in told
    assert ("it has rows but no status (no status)" in told) is not transactional


@pytest.mark.parametrize("transactional", [False, True])
def test_an_offset_of_a_file_blesses_nothing(transactional: bool) -> None:
    """Neither .checkpoint, even where it says the same, nor .checkpoint_<store>."""
    (told,) = reasons(store("count", NONE), transactional=transactional, lines={changelog("count"): 5})
    assert told.endswith("(no status)") and (".checkpoint was not" in told) is transactional
    buffer = database("j-Buffer", offsets=record(5, "j-Buffer", status=None), start=0)
    one = store("j-Buffer", buffer, kind="grace-buffer", segmented=True, offset=5)
    (told,) = reasons(one, transactional=transactional)
    assert told.endswith("(no status)") and (".checkpoint_j-Buffer was not" in told) is transactional


@pytest.mark.parametrize("offset", [-4, None])
def test_nor_does_an_offset_that_nobody_knows(offset: int | None) -> None:
    """-4 with rows is unclean as ever; segments with rows and no offset beside others that have one are it too."""
    if offset is not None:
        one = store("count", database(offsets=record(offset, status=None)))
    else:
        segments = (database("w", offsets=record(at, "w", status=None), start=at or 9) for at in (5, None))
        one = store("w", *segments, kind="timestamped-window", segmented=True)
    assert reasons(one, transactional=True) == ["its offset is unknown (-4) although it has rows"]


@pytest.mark.parametrize(("version", "clean"), [("10.1.3", True), ("10.10.1", True), ("9.8.4", True), ("7.9.2", False)])
def test_only_of_what_such_a_release_may_have_left(version: str, clean: bool) -> None:
    """9.8.4 is kstate's own: nothing tells then which release comes next."""
    one = store("count", database(offsets=record(5, status=None), version=version))
    assert (reasons(one, transactional=True) == []) is clean
    left = written_by(version, frozenset({"default", "offsets"}))
    assert clean is any(one.transactional for one in left)
    assert {one.name for one in left} <= {one.name for one in RELEASES}


def test_whether_a_store_without_an_offset_can_have_a_changelog() -> None:
    """Closed, or rows that came with their offset: no offset means no changelog then."""
    unlogged = store("count", database(offsets=record(None, status=None)))
    assert not has_offset_if_logged(unlogged, transactional=False)
    assert has_offset_if_logged(unlogged, transactional=True)
    never_committed = store("count", database(offsets=record(None, status=None), rows=0))
    assert not has_offset_if_logged(never_committed, transactional=True)
    assert has_offset_if_logged(store("count", database(offsets=record(None))), transactional=False)
    for transactional in (False, True):
        opened = store("count", database(offsets=record(None, status=1)))
        assert not has_offset_if_logged(opened, transactional=transactional)

"""How the last run left a store: the bytes decide, the user only about databases that state nothing (KIP-892)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kstate_cli.formats.offsets import OffsetsRecord, Position
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.last_run import Ending, ending, has_offset_if_logged, left_committed
from kstate_cli.offsets.resolve import may_be_ahead, resolve_with
from kstate_cli.releases import RELEASES, written_by
from kstate_cli.statedir.model import Store
from tests.unit.model import OPEN, application, changelog, database, record, store, task

COMMITTED = database(offsets=record(5, status=None))
SILENT = database(offsets=record(None, status=None))
NO_STATUS = "the store has rows but no status (no status)"


def reasons(store: Store, *, transactional: bool, lines: Mapping[TopicPartition, int] | None = None) -> list[str]:
    (resolved,) = resolve_with(application(task(store, lines=lines)), {}, transactional=transactional)
    return [f"{reason.text}{' (no status)' if reason.no_status else ''}" for reason in resolved.unclean]


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (record(5, status=0), Ending.CLOSED),
        (record(5, status=1), Ending.OPEN),
        (record(5, status=None), Ending.COMMITTED),
        (record(None, status=None, position=7), Ending.COMMITTED),
        (OffsetsRecord({}, Position.empty(), None), Ending.COMMITTED),
    ],
)
def test_the_bytes_prove_how_a_run_ended(rows: OffsetsRecord, expected: Ending, transactional: bool) -> None:
    assert ending(database(offsets=rows), transactional=transactional) is expected


def test_the_user_decides_about_a_database_that_states_nothing() -> None:
    assert reasons(store("count", SILENT), transactional=False) == [NO_STATUS]
    assert reasons(store("count", SILENT), transactional=True) == []
    empty = database(offsets=record(None, status=None), rows=0)
    assert ending(empty, transactional=True) is Ending.SILENT
    assert reasons(store("count", empty), transactional=False) == []
    assert ending(database(), transactional=True) is None


@pytest.mark.parametrize("transactional", [False, True])
def test_nothing_overrides_a_status_of_1(transactional: bool) -> None:
    running = database(offsets=record(5, status=1))
    assert reasons(store("count", running), transactional=transactional) == ["the store's status is open"]
    segments = [
        database("w", offsets=record(5, "w", status=status), start=at) for at, status in enumerate((None, 1, 0))
    ]
    mixed = store("w", *segments, kind="timestamped-window", segmented=True)
    assert reasons(mixed, transactional=transactional) == ["the store's status is open"]
    assert not left_committed(mixed, transactional=transactional)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("line", [4, 5, 6])
def test_a_file_with_another_offset_was_not_committed_with_the_rows(transactional: bool, line: int) -> None:
    """``upgrade.from`` writes the same offset into .checkpoint, and closing a grace buffer into its own file."""
    reported = reasons(store("count", COMMITTED), transactional=transactional, lines={changelog("count"): line})
    assert reported == ([] if line == 5 else [_not_committed(".checkpoint")])
    buffer = database("j-Buffer", offsets=record(5, "j-Buffer", status=None), start=0)
    grace = store("j-Buffer", buffer, kind="grace-buffer", segmented=True, offset=line)
    assert reasons(grace, transactional=transactional) == (
        [] if line == 5 else [_not_committed(".checkpoint_j-Buffer")]
    )


def test_a_file_does_not_speak_for_a_database_that_states_nothing() -> None:
    lines = {changelog("count"): 5}
    assert reasons(store("count", SILENT), transactional=False, lines=lines) == [NO_STATUS]
    assert reasons(store("count", SILENT), transactional=True, lines=lines) == [_not_committed(".checkpoint")]


def test_a_grace_buffer_of_a_killed_transactional_run_is_committed() -> None:
    """Its file is deleted at the start, and its segment has rows and offset of one batch."""
    buffer = database("j-Buffer", offsets=record(5, "j-Buffer", status=None), start=0)
    assert reasons(store("j-Buffer", buffer, kind="grace-buffer", segmented=True), transactional=False) == []
    closed = database("j-Buffer", offsets=record(5, "j-Buffer", status=0), start=0)
    without_file = store("j-Buffer", closed, kind="grace-buffer", segmented=True)
    assert reasons(without_file, transactional=False) == ["the store has rows but no .checkpoint_j-Buffer"]


def test_rows_without_an_offset_are_committed_ones_where_a_transactional_run_wrote_them() -> None:
    assert reasons(store("count", database(offsets=record(-4, status=None))), transactional=False) == []
    closed = store("count", database(offsets=record(-4, status=0)))
    assert reasons(closed, transactional=False) == ["the store has rows, but its offset is unknown (-4)"]


@pytest.mark.parametrize(("version", "clean"), [("10.1.3", True), ("10.10.1", True), ("9.8.4", True), ("7.9.2", False)])
def test_only_a_release_with_transactional_stores_leaves_no_status(version: str, clean: bool) -> None:
    """9.8.4 is kstate's own: no release ships it, so the layout alone decides."""
    subject = store("count", database(offsets=record(5, status=None), version=version))
    assert (reasons(subject, transactional=False) == []) is clean
    writers = written_by(version, frozenset({"default", "offsets"}))
    assert clean is any(release.transactional for release in writers)
    assert {release.name for release in writers} <= {release.name for release in RELEASES}


def test_whether_a_store_without_an_offset_can_have_a_changelog() -> None:
    """A Position without an offset says that there is none; so does a clean close without an offset."""
    unlogged = store("count", database(offsets=record(None, status=None, position=3)))
    assert has_offset_if_logged(unlogged)
    # 4.4 keeps the Position of a corrupted store whose offset it deletes, and such a store has status 1.
    assert not has_offset_if_logged(store("count", database(offsets=record(None, status=OPEN, position=3))))
    assert not has_offset_if_logged(store("count", SILENT))
    assert has_offset_if_logged(store("count", SILENT), transactional=True)
    never_committed = store("count", database(offsets=record(None, status=None), rows=0))
    assert not has_offset_if_logged(never_committed, transactional=True)
    assert has_offset_if_logged(store("count", database(offsets=record(None))))
    for transactional in (False, True):
        running = store("count", database(offsets=record(None, status=1)))
        assert not has_offset_if_logged(running, transactional=transactional)


@pytest.mark.parametrize(("status", "ahead"), [(0, False), (1, True), (None, False)])
def test_a_killed_versioned_store_may_be_ahead(status: int | None, ahead: bool) -> None:
    for kind in ("versioned", "key-value"):
        subject = store("count", database(offsets=record(5, status=status)), kind=kind)
        (resolved,) = resolve_with(application(task(subject)), {})
        assert may_be_ahead(subject, resolved) is (ahead and kind == "versioned")
    empty = store("count", database(offsets=record(5, status=1), rows=0), kind="versioned")
    (resolved,) = resolve_with(application(task(empty)), {})
    assert not may_be_ahead(empty, resolved)


def _not_committed(file: str) -> str:
    return f"the store has rows but no status, and its offset in {file} was not committed together with the rows (no status)"

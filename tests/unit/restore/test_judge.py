"""Which offset is valid, at every edge of the log; rules 1 and 2 of the design's judgements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.restore.judge import Action, Allowed, Log, judge

KEY = TopicPartition("t", 0)
START, END = 100, 200
FULL = Log(KEY, START, END, START, END - 1)


def decide(
    offset: int | None, log: Log = FULL, *, is_global: bool = False, rows: bool = True, **allowed: object
) -> Action:
    return judge(log, offset, is_global=is_global, has_rows=rows, allowed=Allowed(**allowed)).action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("offset", "action"),
    [
        (START - 2, Action.REBUILD),  # the next record, start - 1, is gone
        (START - 1, Action.CATCH_UP),
        (END - 2, Action.CATCH_UP),
        (END - 1, Action.LEAVE),
        (END, Action.LEAVE),  # beyond the log as the dump knew it: the dump may be older than the store
    ],
)
def test_edges_of_a_task_store(offset: int, action: Action) -> None:
    assert decide(offset) is action


@pytest.mark.parametrize(
    ("offset", "action"),
    [
        (START - 1, Action.REBUILD),
        (START, Action.CATCH_UP),
        (END - 1, Action.CATCH_UP),
        (END, Action.LEAVE),
        (END + 1, Action.LEAVE),
    ],
)
def test_edges_of_a_global_store(offset: int, action: Action) -> None:
    assert decide(offset, is_global=True) is action


def test_only_beyond_the_log_end_is_doubtful() -> None:
    def doubtful(offset: int) -> bool:
        return judge(FULL, offset, is_global=False, has_rows=True, allowed=Allowed()).doubtful

    assert not doubtful(END - 1)
    assert doubtful(END)


@pytest.mark.parametrize("offset", [START - 2, START - 1, END - 1])
def test_an_offset_below_the_start_is_invalid_and_no_other(offset: int) -> None:
    verdict = judge(FULL, offset, is_global=False, has_rows=True, allowed=Allowed())
    assert verdict.invalid is (offset == START - 2)


@pytest.mark.parametrize("offset", [START - 2, START - 1, END - 1, None, -4])
def test_only_an_invalid_offset_is_refused_where_that_is_asked_for(offset: int | None) -> None:
    asked = decide(offset, wipe_invalid=False)
    assert asked is (Action.REFUSE if offset == START - 2 else decide(offset))


def test_beyond_the_end_that_the_broker_has_now_the_topic_is_another() -> None:
    now = replace(FULL, live=True)
    assert decide(END - 1, now) is Action.LEAVE
    assert decide(END, now) is Action.REBUILD
    assert decide(END, now, wipe_invalid=False) is Action.REFUSE
    assert decide(END, now, is_global=True) is Action.LEAVE
    assert decide(END + 1, now, is_global=True) is Action.REBUILD


def test_an_empty_log() -> None:
    empty = Log(KEY, END, END, None, None)
    assert decide(END - 1, empty) is Action.LEAVE
    assert decide(START, empty) is Action.REFUSE
    assert decide(START, empty, rows=False) is Action.REBUILD
    assert decide(START, empty, allow_empty=True) is Action.REBUILD
    assert decide(None, empty, rows=False) is Action.REBUILD
    assert decide(None, empty) is Action.REFUSE


@pytest.mark.parametrize("offset", [None, -4])
def test_an_unknown_offset_is_rebuilt_and_not_called_invalid(offset: int | None) -> None:
    verdict = judge(FULL, offset, is_global=False, has_rows=True, allowed=Allowed())
    assert (verdict.action, verdict.invalid) == (Action.REBUILD, False)


def test_an_incremental_dump_catches_up_and_is_no_base() -> None:
    later = Log(KEY, START, END, 150, END - 1)
    assert decide(149, later) is Action.CATCH_UP
    assert decide(None, later) is Action.REFUSE
    assert decide(START - 2, later) is Action.REFUSE
    assert decide(None, later, complete=True) is Action.REBUILD
    # Between the store and the dump's first record the log may have had more, unless compaction took it.
    assert decide(120, later) is Action.REFUSE
    assert decide(120, later, complete=True) is Action.CATCH_UP


def test_a_compacted_log_begins_where_reading_began() -> None:
    compacted = Log(KEY, START, END, 150, END - 1, begin=START)
    assert decide(None, compacted) is Action.REBUILD
    assert decide(120, compacted) is Action.CATCH_UP
    assert decide(START - 2, compacted) is Action.REBUILD


def test_where_reading_began_no_flag_overrules() -> None:
    later = Log(KEY, START, END, 150, END - 1, begin=150)
    assert decide(None, later) is Action.REFUSE
    assert decide(None, later, complete=True) is Action.REFUSE
    assert decide(120, later, complete=True) is Action.REFUSE
    assert decide(149, later) is Action.CATCH_UP
    unknown_start = Log(KEY, None, END, 500, 600, begin=500)
    assert decide(None, unknown_start, complete=True) is Action.REFUSE


def test_an_unknown_log_start_is_no_leave_to_begin_anywhere() -> None:
    bare = Log(KEY, None, None, 500, 600)
    assert decide(None, bare) is Action.REFUSE
    assert decide(None, bare, complete=True) is Action.REBUILD


def test_without_a_manifest() -> None:
    bare = Log(KEY, None, None, 0, 99)
    assert decide(None, bare) is Action.REBUILD
    assert decide(50, bare) is Action.CATCH_UP
    assert decide(99, bare) is Action.LEAVE
    assert decide(20, Log(KEY, None, None, 50, 99)) is Action.REFUSE


def test_rebuild_on_request() -> None:
    assert decide(END - 1, rebuild="asked for") is Action.REBUILD


def test_an_empty_store_of_an_empty_changelog_is_left_alone() -> None:
    """Streams leaves -4 in a store that was never written: restoring it once more would never come to an end."""
    nothing = Log(KEY, 0, 0, None, None)
    assert decide(-4, nothing, rows=False) is Action.LEAVE
    assert decide(-4, nothing, rows=False, rebuild="asked for") is Action.REBUILD
    assert decide(None, nothing, rows=False) is Action.REBUILD  # it has to get one
    assert decide(-4, nothing, rows=True) is Action.REFUSE
    assert decide(-4, FULL, rows=False) is Action.REBUILD

"""Which offset is valid, at every edge of the log; the rules of docs/internals/restoring.md#judging."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.manifest import Reading
from kstate_cli.dump_reader.model import PartitionDump, Round
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log, log_of
from kstate_cli.restore.planning.judge import Action, Permissions, Verdict, judge

KEY = TopicPartition("t", 0)
START, END = 100, 200
FULL = Log(KEY, START, END, START, END - 1)


def decide(
    offset: int | None, log: Log = FULL, *, is_global: bool = False, rows: bool = True, **permissions: object
) -> Action:
    return judge(log, offset, is_global=is_global, has_rows=rows, permissions=Permissions(**permissions)).action  # type: ignore[arg-type]


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
        return judge(FULL, offset, is_global=False, has_rows=True, permissions=Permissions()).doubtful

    assert not doubtful(END - 1)
    assert doubtful(END)


@pytest.mark.parametrize("offset", [START - 2, START - 1, END - 1])
def test_an_offset_below_the_start_is_invalid_and_no_other(offset: int) -> None:
    verdict = judge(FULL, offset, is_global=False, has_rows=True, permissions=Permissions())
    assert verdict.invalid is (offset == START - 2)


@pytest.mark.parametrize("offset", [START - 2, START - 1, END - 1, None, -4])
def test_refuses_only_invalid_offsets_with_the_option(offset: int | None) -> None:
    decision = decide(offset, wipe_invalid=False)
    assert decision is (Action.REFUSE if offset == START - 2 else decide(offset))


def test_beyond_the_end_that_the_broker_has_now_records_are_gone() -> None:
    """The log was cut, or the topic made anew: the store may be the only copy, and only a human replaces it."""
    now = replace(FULL, live=True)
    assert decide(END - 1, now) is Action.LEAVE
    for offset, is_global in ((END, False), (END + 1, True), (END + 1000, False)):
        verdicts = judge(now, offset, is_global=is_global, has_rows=True, permissions=Permissions())
        assert verdicts.action is Action.REFUSE
        assert "Do not start the application" in verdicts.why
        assert verdicts.only_copy  # the plan says what to export
        # What is wrong with a store or its task is no leave to replace it; nor is any other flag.
        for permission in (
            Permissions(
                rebuild="its task was not closed cleanly", allow_empty=True, complete=True, accept_resurrected=True
            ),
            Permissions(wipe_invalid=False),
        ):
            assert (
                judge(now, offset, is_global=is_global, has_rows=True, permissions=permission).action is Action.REFUSE
            )
        requested_verdict = judge(
            now, offset, is_global=is_global, has_rows=True, permissions=Permissions("asked for", by_user=True)
        )
        assert (requested_verdict.action, requested_verdict.only_copy) == (Action.REBUILD, True)
    assert decide(END, now, is_global=True) is Action.LEAVE


def test_replaced_store_is_precious_only_beyond_the_log() -> None:
    for offset in (START - 2, START - 1, END - 1, END, None, -4):
        verdict = judge(
            FULL, offset, is_global=False, has_rows=True, permissions=Permissions("asked for", by_user=True)
        )
        assert (verdict.action, verdict.only_copy) == (Action.REBUILD, offset == END)


HOUR = 3_600_000
READ = Reading(1_000 * HOUR, 1_001 * HOUR)
AGED = replace(FULL, reading=READ, retention_ms=24 * HOUR)


def test_after_a_time_that_nobody_knows_nothing_is_caught_up() -> None:
    """Whatever the times say: a store whose data is of before is rebuilt, one of the same dump is caught up."""
    log = replace(AGED, unknown_before_ms=READ.started_ms)
    before, after = READ.started_ms - 1, READ.started_ms
    for as_of, action in ((before, Action.REBUILD), (after, Action.CATCH_UP)):
        verdict = judge(log, START + 9, is_global=False, has_rows=True, permissions=Permissions(), as_of_ms=as_of)
        assert verdict.action is action
    verdict = judge(
        log,
        START + 9,
        is_global=False,
        has_rows=True,
        permissions=Permissions(accept_resurrected=True),
        as_of_ms=before,
    )
    assert verdict.action is Action.CATCH_UP and "kstate does not know how long the period was" in verdict.why
    backup = judge(
        replace(log, forgets=False),
        START + 9,
        is_global=False,
        has_rows=True,
        permissions=Permissions(),
        as_of_ms=before,
    )
    assert backup.action is Action.REBUILD, "a log that is no longer compacted was, when the store was made"
    assert judge(log, START + 9, is_global=False, has_rows=False, permissions=Permissions(), as_of_ms=before).why


@pytest.mark.parametrize("last", [START + 4, None])
def test_a_store_past_the_last_record_may_have_missed_deletes(last: int | None) -> None:
    """The log has forgotten them, and the dump has no record from the store's offset on, only a later end."""
    log = replace(AGED, last=last, first=None if last is None else START, read_end=START + 20)

    def judged(log: Log, as_of: int | None, offset: int = START + 9) -> Verdict:
        vouched = Permissions(allow_empty=True)
        return judge(log, offset, is_global=False, has_rows=True, permissions=vouched, as_of_ms=as_of)

    soon, late = READ.ended_ms, READ.ended_ms - 30 * HOUR
    assert (judged(log, soon).action, judged(log, soon).doubtful) == (Action.LEAVE, False)
    assert judged(log, late).action is Action.REBUILD
    assert judged(replace(log, unknown_before_ms=soon + 1), soon).action is Action.REBUILD
    unknown = judged(log, None)
    assert unknown.action is Action.LEAVE and unknown.doubtful and "--rebuild" in unknown.why
    # Nothing is missing at the end of the log: its last offset is never cleaned, so it is a marker.
    assert judged(log, late, START + 18).action is Action.LEAVE
    assert judged(log, late, START + 19).action is Action.LEAVE
    assert judged(replace(log, held_back=True), late, START + 18).action is Action.REBUILD
    assert judged(replace(log, forgets=False), late).action is Action.LEAVE
    assert judged(replace(log, read_end=None), late).action is Action.LEAVE


def judge_older(hours: float | None, log: Log = AGED, *, rows: bool = True, **permissions: object) -> Verdict:
    """A store in the middle of the log whose data is so much older than the end of the reading."""
    as_of = None if hours is None else READ.ended_ms - int(hours * HOUR)
    vouched = Permissions(**permissions)  # type: ignore[arg-type]
    return judge(log, START + 9, is_global=False, has_rows=rows, permissions=vouched, as_of_ms=as_of)


@pytest.mark.parametrize(
    ("hours", "action"),
    [(-5, Action.CATCH_UP), (0, Action.CATCH_UP), (22.9, Action.CATCH_UP), (23, Action.CATCH_UP),
     (23.1, Action.REBUILD), (24, Action.REBUILD), (1000, Action.REBUILD)],
)  # fmt: skip
def test_catches_up_only_within_the_retention_of_tombstones(hours: float, action: Action) -> None:
    """The margin is a tenth, and at most an hour."""
    verdict = judge_older(hours)
    assert (verdict.action, verdict.unsure, verdict.invalid) == (action, False, False)
    if action is Action.REBUILD:
        assert "tombstones from that period may be missing" in verdict.why


def test_where_age_does_not_matter() -> None:
    assert judge_older(1000, rows=False).action is Action.CATCH_UP
    assert judge_older(1000, replace(AGED, forgets=False)).action is Action.CATCH_UP
    assert judge_older(1000, replace(AGED, retention_ms=2000 * HOUR)).action is Action.CATCH_UP


def test_old_data_that_the_dump_cannot_rebuild() -> None:
    later = replace(AGED, begin=START + 5)
    verdict = judge_older(30, later)
    assert verdict.action is Action.REFUSE
    assert "--accept-resurrected" in verdict.why
    assert judge_older(30, later, accept_resurrected=True).action is Action.CATCH_UP
    assert judge_older(20, later).action is Action.CATCH_UP


@pytest.mark.parametrize(("hours", "log"), [(None, AGED), (1, replace(AGED, reading=None))])
def test_unknown_age_is_reported_as_unsure(hours: float | None, log: Log) -> None:
    verdict = judge_older(hours, log)
    assert (verdict.action, verdict.unsure) == (Action.CATCH_UP, True)


def test_a_reading_that_takes_too_long_is_no_base() -> None:
    slow = replace(AGED, reading=Reading(READ.started_ms, READ.started_ms + 25 * HOUR))
    assert decide(None, slow) is Action.REFUSE
    assert decide(END, slow, rebuild="asked for", by_user=True) is Action.REFUSE
    assert decide(None, slow, accept_resurrected=True) is Action.REBUILD
    assert decide(None, replace(slow, forgets=False)) is Action.REBUILD


@pytest.mark.parametrize(
    ("committed", "until", "last", "action"),
    [
        (END, END - 1, END - 1, Action.CATCH_UP),
        (150, 149, 149, Action.CATCH_UP),
        (111, 110, 110, Action.LEAVE),  # what lies behind it was read by nobody yet
        (START, START - 1, None, Action.LEAVE),
    ],
)
def test_source_topic_counts_up_to_the_committed_offset(
    committed: int, until: int, last: int | None, action: Action
) -> None:
    log = log_of(PartitionDump("t", 0, (), START, END - 1, 1, START, END), committed)
    assert (log.until, log.last) == (until, last)
    assert decide(110, log) is action


def test_retention_of_tombstones_is_the_shorter_of_broker_and_manifest() -> None:
    """The shorter time, and compacted where one of them says so: either would have forgotten."""
    dump = PartitionDump("t", 0, (), START, END - 1, 1, START, END)

    def log(facts: LogFacts | None = None, **members: object) -> tuple[int, bool]:
        reading = Reading(1, 2, **members) if members else None  # type: ignore[arg-type]
        verdict = log_of(replace(dump, reading=reading), None, facts)
        return verdict.retention_ms, verdict.forgets

    assert log() == (24 * HOUR, True)
    assert log(delete_retention_ms=5) == (5, True)
    assert log(LogFacts(0, 9, delete_retention_ms=7), delete_retention_ms=5) == (5, True)
    assert log(LogFacts(0, 9, delete_retention_ms=3), delete_retention_ms=5) == (3, True)
    assert log(LogFacts(0, 9, policy="delete")) == (24 * HOUR, False)
    assert log(LogFacts(0, 9, policy="delete"), cleanup_policy="compact") == (24 * HOUR, True)
    assert log(LogFacts(0, 9, policy="compact,delete")) == (24 * HOUR, True)


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
    verdict = judge(FULL, offset, is_global=False, has_rows=True, permissions=Permissions())
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


HOUR = 3_600_000
ROUNDS = (Round(100, 150, 0, HOUR), Round(150, 180, 10 * HOUR, 12 * HOUR), Round(180, 200, 30 * HOUR, 31 * HOUR))
GREW = replace(
    FULL,
    begin=START,
    rounds=ROUNDS,
    reading=Reading(30 * HOUR, 31 * HOUR, "compact", 24 * HOUR),
    retention_ms=24 * HOUR,
)


@pytest.mark.parametrize(
    ("offset", "as_of", "action"),
    [
        (120, 0, Action.CATCH_UP),  # that range was read an hour later, whatever was read since
        (160, 0, Action.CATCH_UP),
        (185, 0, Action.REBUILD),
        (185, 10 * HOUR, Action.CATCH_UP),
    ],
)
def test_of_a_dump_that_grows_the_range_counts(offset: int, as_of: int, action: Action) -> None:
    verdict = judge(GREW, offset, is_global=False, has_rows=True, permissions=Permissions(), as_of_ms=as_of)
    assert verdict.action is action, verdict.why


def test_a_dump_that_has_missed_deletes_itself() -> None:
    """Its own readings lie too far apart: it is no base, and continues only what is behind the place."""
    late = replace(
        GREW, rounds=(*ROUNDS[:1], Round(150, 180, 10 * HOUR, 40 * HOUR), Round(180, 200, 40 * HOUR, 41 * HOUR))
    )

    def verdict_of(offset: int | None, **permissions: object) -> Verdict:
        vouched = Permissions(**permissions)  # type: ignore[arg-type]
        return judge(late, offset, is_global=False, has_rows=True, permissions=vouched, as_of_ms=39 * HOUR)

    assert verdict_of(None).action is Action.REFUSE and "Tombstones from that period" in verdict_of(None).why
    assert verdict_of(None, accept_resurrected=True).action is Action.REBUILD
    assert (
        verdict_of(120).action is Action.REFUSE
        and "tombstones may be missing from the dump itself" in verdict_of(120).why
    )
    assert verdict_of(160).action is Action.CATCH_UP
    assert verdict_of(185).action is Action.CATCH_UP
    not_forgetting = replace(late, forgets=False)
    assert (
        judge(not_forgetting, None, is_global=False, has_rows=True, permissions=Permissions()).action is Action.REBUILD
    )
    assert (
        judge(not_forgetting, 120, is_global=False, has_rows=True, permissions=Permissions(), as_of_ms=0).action
        is Action.CATCH_UP
    )

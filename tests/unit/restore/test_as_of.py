"""What is known of a log since a store was made from it: by the clock of its dump, and the retention of then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kstate_cli.dump_reader.model import ClockMark, Dump
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs import Log
from kstate_cli.offsets.ages import Age, LogMark
from kstate_cli.restore.planning.as_of import comparable, log_since
from kstate_cli.restore.planning.judge import Action, Permissions, judge

KEY = TopicPartition("t", 0)
SECOND = 1_000
STORE = ClockMark("host", 10 * SECOND, 100 * SECOND, 100 * SECOND, None, "a")


@pytest.mark.parametrize(
    ("dump", "same"),
    [
        (STORE, True),
        (replace(STORE, boot_ms=70 * SECOND, time_ms=160 * SECOND), True),
        (replace(STORE, boot_ms=70 * SECOND, time_ms=205 * SECOND), True),
        (replace(STORE, boot_ms=0, time_ms=45 * SECOND), True),
        (replace(STORE, boot="other", boot_ms=70 * SECOND, time_ms=115 * SECOND), True),
        # It was put back from a backup, and goes on from there: less has passed than on the host.
        (replace(STORE, boot_ms=70 * SECOND, time_ms=115 * SECOND), False),
        (replace(STORE, scale="b"), False),
        (replace(STORE, scale=""), False),
        (None, True),
    ],
)
def test_which_clocks_can_be_compared(dump: ClockMark | None, same: bool) -> None:
    assert comparable(STORE, dump) is same
    assert comparable(None, dump)
    assert not comparable(replace(STORE, scale=""), replace(STORE, scale=""))


def test_a_store_of_another_dump_is_rebuilt() -> None:
    """The host was 45 s ahead when the other dump was made: by the times alone 15 s have passed, and not 60."""
    log = Log(KEY, 0, 30, 0, 29, begin=0, retention_ms=20 * SECOND)
    before = Age("0_0/s", {KEY: 9}, 145 * SECOND, clock=STORE)
    for scale, action in (("a", Action.CATCH_UP), ("b", Action.REBUILD)):
        dump = Dump("d", {}, None, clock=replace(STORE, boot_ms=70 * SECOND, time_ms=160 * SECOND, scale=scale))
        facts = log_since(log, dump, before)
        verdict = judge(
            facts, 9, is_global=False, has_rows=True, permissions=Permissions(), as_of_ms=before.as_of_ms
        )  # fmt: skip
        assert verdict.action is action, verdict


def test_tombstones_lived_for_the_shorter_time() -> None:
    """Of then and of now; and a log that was compacted then has forgotten deletes, whatever its policy is now."""
    dump = Dump("d", {}, None)
    log = Log(KEY, 0, 30, 0, 29, retention_ms=600 * SECOND, forgets=False)
    for retention, expected in ((20 * SECOND, (20 * SECOND, True)), (None, (600 * SECOND, False))):
        before = Age("0_0/s", {KEY: 9}, 1, {KEY: LogMark("id", delete_retention_ms=retention)})
        facts = log_since(log, dump, before)
        assert (facts.retention_ms, facts.forgets) == expected
    assert log_since(log, dump, Age("0_0/s", {KEY: 9}, 1)) == log

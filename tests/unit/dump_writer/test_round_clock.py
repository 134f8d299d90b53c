"""The time of a dump: however clocks are set, between two readings never less has passed than has in truth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.clock import BootTime
from kstate_cli.dump_reader.growing import name_of, parse, render
from kstate_cli.dump_reader.model import Full, Grown, Round
from kstate_cli.dump_writer.plan import RoundClock, plan_round, unknown_before
from kstate_cli.formats.topic_partition import TopicPartition

KEY = TopicPartition("t", 0)
START = 1_700_000_000_000
SECOND = 1000


@dataclass
class HostClocks:
    """What a host shows at a true time: its own start, a time of day that may be wrong, and what the kernel says of it."""

    true_ms: int = START
    boot: str = "a"
    wrong_ms: int = 0
    error_ms: int | None = None

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clock, "boot_time", lambda: BootTime(self.boot, self.true_ms - START + len(self.boot)))
        monkeypatch.setattr(
            clock, "now", lambda: datetime.fromtimestamp((self.true_ms + self.wrong_ms) / 1000, timezone.utc)
        )
        monkeypatch.setattr(clock, "max_error_ms", lambda: self.error_ms)


def full(at: int, retention: int = 20 * SECOND) -> Full:
    return Full(KEY, 1, 0, 9, at, (Round(0, 9, at, at),), (), "id", "compact", retention, 1)


def commit(round_clock: RoundClock) -> Grown:
    """The manifest of a round, as the next call reads it."""
    grown = Grown(1, "read_committed", (full(round_clock.now_ms()),), clock=round_clock.mark())
    return parse(render(grown), name_of(1), "")


CALLS = st.tuples(
    st.integers(0, 100 * SECOND), st.sampled_from("ab"), st.integers(-(10**9), 10**9), st.sampled_from([None, 0, 500])
)


@given(st.lists(CALLS, min_size=2, max_size=6))
def test_clock_never_runs_behind_the_elapsed_time(calls: list[tuple[int, str, int, int | None]]) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        host = HostClocks()
        host.patch(monkeypatch)
        grown, before_ms, before_true = None, 0, 0
        for later, boot, wrong, error in calls:
            host.true_ms += later
            # What the kernel calls synchronized is at most so wrong as it says.
            host.boot, host.error_ms = boot, error
            host.wrong_ms = wrong if error is None else max(-error, min(error, wrong))
            round_clock = RoundClock(grown)
            now = round_clock.now_ms()
            assert now > before_ms or grown is None or round_clock.why_unknown is None
            assert now >= before_ms, "the time of a dump never goes back"
            if grown is not None and round_clock.why_unknown is None:
                assert now - before_ms >= host.true_ms - before_true - 1
            grown, before_ms, before_true = commit(round_clock), now, host.true_ms
            before_ms = grown.clock.time_ms if grown.clock is not None else now


def test_host_whose_clock_was_ahead_during_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """45 s ahead, with tombstones that live 20 s: a minute later the wall clock says that 15 s have passed."""
    host = HostClocks(wrong_ms=45 * SECOND)
    host.patch(monkeypatch)
    grown = commit(RoundClock(None))
    host.true_ms, host.wrong_ms = START + 60 * SECOND, 0
    round_clock = RoundClock(grown)
    facts = {KEY: LogFacts(0, 20, "id", None, "compact", 20 * SECOND, 1)}
    (plan,) = plan_round(grown, facts, round_clock.now_ms(), full=False, unknown_time=round_clock.why_unknown)
    assert plan.continues is None and "tombstones may be missing, because kstate last read the log 60 seconds ago" in (
        plan.why or ""
    )
    host.true_ms = START + 5 * SECOND
    soon = RoundClock(grown)
    (plan,) = plan_round(grown, facts, soon.now_ms(), full=False, unknown_time=soon.why_unknown)
    assert plan.continues is not None, "5 s are 5 s, whatever the time of day says"


@pytest.mark.parametrize(("first", "second", "continued"), [(None, None, False), (5, None, False), (5, 5, True)])
def test_another_host(monkeypatch: pytest.MonkeyPatch, first: int | None, second: int | None, continued: bool) -> None:
    """Or the same one, restarted: it continues only if both clocks were synchronized. A log that forgets nothing does."""
    host = HostClocks(error_ms=first)
    host.patch(monkeypatch)
    grown = commit(RoundClock(None))
    host.true_ms, host.boot, host.error_ms = START + 5 * SECOND, "b", second
    round_clock = RoundClock(grown)
    facts = LogFacts(0, 20, "id", None, "compact", 20 * SECOND, 1)
    (plan,) = plan_round(grown, {KEY: facts}, round_clock.now_ms(), full=False, unknown_time=round_clock.why_unknown)
    assert (plan.continues is not None) is continued
    assert (
        continued
        or "kstate does not know how much time has passed since it last read the log (the previous run was on another host"
        in (plan.why or "")
    )
    not_compacted = replace(grown, fulls=(replace(grown.fulls[0], cleanup_policy="delete"),))
    never = {KEY: replace(facts, policy="delete")}
    (plan,) = plan_round(not_compacted, never, round_clock.now_ms(), full=False, unknown_time=round_clock.why_unknown)
    assert plan.continues is not None


def test_a_manifest_without_a_clock() -> None:
    """Of a version that recorded the time of day only."""
    grown = Grown(1, "read_committed", (full(START),))
    assert "an older version of kstate wrote the manifest without the time" in (RoundClock(grown).why_unknown or "")
    assert RoundClock(None).why_unknown is None
    ahead = Grown(1, "read_committed", (full(clock.now_ms() + 10**9),))
    assert RoundClock(ahead).now_ms() > ahead.fulls[0].as_of_ms


def test_every_dump_has_a_scale_of_its_own() -> None:
    first = commit(RoundClock(None))
    assert first.clock is not None and first.clock.scale
    again = commit(RoundClock(first))
    assert again.clock is not None and again.clock.scale == first.clock.scale
    other = commit(RoundClock(None))
    assert other.clock is not None and other.clock.scale != first.clock.scale


def test_the_real_clocks() -> None:
    first, error = clock.boot_time(), clock.max_error_ms()
    second = clock.boot_time()
    assert first.boot == second.boot and first.ms <= second.ms
    assert error is None or error >= 0


FORGETS = LogFacts(0, 20, "id", None, "compact", 20 * SECOND, 1)


@pytest.mark.parametrize(
    ("facts", "unknown_time", "has_begun"),
    [
        (FORGETS, False, False),
        (FORGETS, True, True),
        (replace(FORGETS, delete_retention_ms=10 * SECOND), False, False),
        (replace(FORGETS, delete_retention_ms=600 * SECOND), False, True),
        (replace(FORGETS, delete_retention_ms=None), False, True),
        (replace(FORGETS, policy="delete"), False, True),
        (replace(FORGETS, policy=None), False, False),
    ],
)
def test_new_full_dump_remembers_the_shortest_retention(facts: LogFacts, unknown_time: bool, has_begun: bool) -> None:
    """Of a store from an older full, the shortest retention since then counts; each full after it remembers as much."""
    before = full(START)
    later = START + 60 * SECOND
    at = unknown_before(before, facts, later, unknown_time=unknown_time)
    assert at == (later if has_begun else None)
    longer = replace(before, delete_retention_ms=facts.delete_retention_ms, unknown_before_ms=at)
    assert unknown_before(longer, replace(facts, policy="compact"), later + 1, unknown_time=False) == at
    assert unknown_before(None, facts, later, unknown_time=unknown_time) is None
    never = replace(before, cleanup_policy="delete")
    assert unknown_before(never, replace(facts, policy="delete"), later, unknown_time=unknown_time) is None

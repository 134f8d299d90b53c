"""Settings of changelogs beside the bytes: what follows from them, what contradicts, and that nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.broker.facts import LogFacts
from kstate_cli.dump_reader.manifest import Reading
from kstate_cli.dump_reader.model import Dump, PartitionDump
from kstate_cli.errors import UsageError
from kstate_cli.formats.binary import MAX_I64
from kstate_cli.formats.keys import VersionedKey, WindowKey
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.formats.versioned import SegmentValue, Version
from kstate_cli.specification.combine import draft_of_directory
from kstate_cli.specification.draft import StoreDraft
from kstate_cli.specification.infer import infer
from kstate_cli.specification.intervals import default_segment_interval
from kstate_cli.specification.toml_file import to_toml
from kstate_cli.specification.topic_settings import (
    DAY_MS,
    TopicReport,
    TopicSettings,
    report_of_broker,
    report_of_dump,
    retention_settings,
)
from kstate_cli.specification.topology import TopologyText, parse_topology
from kstate_cli.statedir.model import Application, Database

from .small import application, database, store, task

MINUTE = 60_000
WIN = "app-win-changelog"
LINES = {f"{WIN}-0": 4, "app-plain-changelog-0": 3}


def segments(*starts: int, at: int) -> list[Database]:
    """Segments that begin there, each with a row so long after its start."""
    return [database([(WindowKey(b"k", start + at).to_bytes(), b"v")], start=start) for start in starts]


def windowed_application(*databases: Database) -> Application:
    return application(task("0_0", store("win", *databases, kind="window"), store("plain"), lines=LINES))


HALF = 10 * MINUTE
SURE = windowed_application(*segments(2 * HALF, 3 * HALF, 4 * HALF, at=9 * MINUTE))
"""Segments of ten minutes, and no others."""


def evidence_of(by: str = "the broker", **topics: TopicSettings) -> TopicReport:
    names = {f"app-{name.replace('_', '-')}-changelog": settings for name, settings in topics.items()}
    return TopicReport(by, names, live=by == "the broker")


def settings_of(retention_ms: int | None, partitions: int = 1) -> TopicSettings:
    return TopicSettings(partitions, frozenset(), retention_ms)


def draft_of(
    app: Application, *sources: TopicReport, topology: TopologyText | None = None, of: str = "win"
) -> StoreDraft:
    draft, _ = draft_of_directory(app, topology, sources)
    store = draft.store(of)
    assert store is not None
    return store.filled("app")


def questions_of(draft: StoreDraft) -> dict[str, tuple[object, ...]]:
    return {missing.field: missing.question.answers for missing in draft.missing()}


# --- retentions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [0, 1])
def test_fitting_retention_is_exact_to_the_millisecond(more: int) -> None:
    draft = draft_of(SURE, evidence_of(win=settings_of(2 * HALF + more + DAY_MS)))
    assert (draft.retention_ms, draft.segment_interval_ms, questions_of(draft)) == (2 * HALF + more, HALF, {})
    assert draft.inferred["retention_ms"] == (
        f"retention.ms = {2 * HALF + more + DAY_MS} of its changelog in the broker, minus the {DAY_MS} ms "
        "that Streams adds. The segments in this directory confirm this value"
    )


@pytest.mark.parametrize(
    "setting", [1, DAY_MS - 1, DAY_MS, DAY_MS + 1, DAY_MS + HALF, 2 * DAY_MS + 2 * HALF, 7 * DAY_MS, MAX_I64 - 1]
)
def test_retention_that_contradicts_the_segments_is_an_open_question(setting: int) -> None:
    """The likeliest answer is that of the bytes; a setting is no answer that the bytes rule out."""
    draft = draft_of(SURE, evidence_of(win=settings_of(setting)))
    assert draft.retention_ms is None and questions_of(draft) == {"retention_ms": (2 * HALF,)}
    assert str(setting) in draft.questions["retention_ms"].why
    # Whoever answers gets the segments that are there.
    assert draft.segment_interval_ms == HALF


@pytest.mark.parametrize("setting", [None, MAX_I64])
def test_a_setting_that_says_nothing_changes_nothing(setting: int | None) -> None:
    """None: the topic has what the broker gives to all. The greatest number: the addition did not fit."""
    assert draft_of(SURE, evidence_of(win=settings_of(setting))).retention_ms == 2 * HALF


def test_differing_sources_are_an_open_question() -> None:
    draft = draft_of(
        SURE,
        evidence_of(win=settings_of(2 * HALF + DAY_MS)),
        evidence_of("the dump", win=settings_of(2 * HALF + 1 + DAY_MS)),
    )
    assert questions_of(draft) == {"retention_ms": (2 * HALF, 2 * HALF + 1)}
    assert (
        draft_of(
            SURE, evidence_of(win=settings_of(9 + DAY_MS)), evidence_of("the dump", win=settings_of(DAY_MS))
        ).retention_ms
        is None
    )


def test_where_the_bytes_leave_the_interval_open_the_setting_is_only_likely() -> None:
    """Several intervals fit one segment: an operator's setting may be any of them, and a wrong one opens empty."""
    app = windowed_application(*segments(24 * 60 * MINUTE, at=MINUTE))
    draft = draft_of(app, evidence_of(win=settings_of(2 * HALF + DAY_MS)))
    assert draft.retention_ms is None and questions_of(draft)["retention_ms"] == (2 * HALF,)
    assert "only the changelog shows the retention" in draft.questions["retention_ms"].why


def test_a_minute_is_the_shortest_segment() -> None:
    """Retentions of up to two minutes have the same segments: the changelog alone says which it is, which is not enough."""
    app = windowed_application(*segments(MINUTE, 2 * MINUTE, at=MINUTE - 1))
    assert "retention_ms" in questions_of(draft_of(app))
    assert questions_of(draft_of(app, evidence_of(win=settings_of(90_000 + DAY_MS)))) == {"retention_ms": (90_000,)}


def test_a_store_without_a_log_of_its_own_has_no_settings() -> None:
    draft = draft_of(SURE, evidence_of(win=settings_of(2 * HALF + DAY_MS)), of="plain")
    assert (draft.retention_ms, questions_of(draft)) == (None, {})


@given(
    retention=st.integers(2 * MINUTE, 400 * MINUTE),
    first=st.integers(1, 1 << 20),
    number=st.integers(1, 4),
    place=st.floats(0, 1),
    edited=st.one_of(st.none(), st.integers(1, 2 * DAY_MS), st.integers(DAY_MS, DAY_MS + 500 * MINUTE)),
)
def test_never_less_than_the_bytes_show_and_never_other_segments(
    retention: int, first: int, number: int, place: float, edited: int | None
) -> None:
    """Segments as Streams leaves them for a retention, and a topic whose setting somebody may have changed."""
    interval = default_segment_interval("window", retention)
    assert interval is not None
    starts = [(first + entry) * interval for entry in range(min(number, retention // interval + 2))]
    app = windowed_application(*segments(*starts, at=int(place * (interval - 1))))
    setting = retention + DAY_MS if edited is None else edited
    draft = draft_of(app, evidence_of(win=settings_of(setting)))
    if draft.retention_ms is None:
        assert "retention_ms" in questions_of(draft)
        return
    assert draft.segment_interval_ms == interval
    # Two neighbouring numbers have the same segments; the lower one is what the bytes alone would say.
    assert draft.retention_ms >= min(retention, 2 * interval)
    assert draft.retention_ms >= starts[-1] - starts[0] - interval + 1
    if edited is None:
        assert draft.retention_ms == retention


HOUR = 60 * MINUTE


def versioned_application(history: int, *segments_of: int) -> Application:
    """A store with a version in each of these segments, of the interval that Streams chooses."""
    interval = default_segment_interval("versioned", history)
    assert interval is not None
    rows = []
    for segment in segments_of:
        key = VersionedKey(segment, b"k").to_bytes()
        ends = segment * interval + interval // 2
        rows.append((key, SegmentValue(ends, (Version(ends - 1, b"v"),)).to_bytes()))
    return application(task("0_0", store("win", database(rows), kind="versioned"), lines={f"{WIN}-0": 4}))


@pytest.mark.parametrize("history", [50_000, 4 * MINUTE, 30 * MINUTE, 48 * HOUR, 30 * 24 * HOUR])
def test_a_history_is_that_of_the_setting_where_segments_confirm_it(history: int) -> None:
    """Where they do not, it is taken if they may have an interval of their own, and that is said; else it is asked."""
    first = 1_700_000_000_000 // (default_segment_interval("versioned", history) or 1)
    app = versioned_application(history, first, first + 1)

    def by(value: int) -> tuple[int | None, int, bool]:
        settings = TopicSettings(1, min_compaction_lag_ms=value + DAY_MS)
        draft, notes = draft_of_directory(app, None, (evidence_of(win=settings),))
        store = draft.store("win")
        assert store is not None
        return store.retention_ms, len(notes), "retention_ms" in questions_of(store.filled("app"))

    interval = default_segment_interval("versioned", history) or 0
    assert by(history) == (history, 0, False)
    pinned = infer(app).evidence["win"].interval.exact is not None
    for other in (history + 12 * interval, interval):
        # Rows of long segments leave some room; another interval than that of the history is then not known.
        assert by(other) == ((other, 1, False) if pinned else (None, 0, True))
    for less in (interval - 1, 1, 0, -DAY_MS):
        assert by(less) == (None, 0, True)


# --- partitions, logging, stores in memory ----------------------------------------------------------------------------


def test_partitions_are_the_topic_s_unless_more_are_here() -> None:
    assert draft_of(SURE, evidence_of(plain=TopicSettings(7)), of="plain").partitions == 7
    app = application(
        *(task(f"0_{number}", store("plain"), lines={f"app-plain-changelog-{number}": 1}) for number in range(3))
    )
    assert questions_of(draft_of(app, evidence_of(plain=TopicSettings(2)), of="plain")) == {"partitions": (3, 2)}
    differ = (evidence_of(plain=TopicSettings(4)), evidence_of("the dump", plain=TopicSettings(5)))
    assert questions_of(draft_of(app, *differ, of="plain")) == {"partitions": (5, 4, 3)}


CONTENT = frozenset({0, 1})
UNLOGGED = application(task("0_0", store("plain"), store("nolog", built_from="x"), lines={"app-plain-changelog-0": 3}))


def test_a_store_without_an_offset_and_without_a_topic_has_none() -> None:
    draft, notes = draft_of_directory(UNLOGGED, None, (evidence_of(plain=TopicSettings(1)),))
    store = draft.store("nolog")
    assert store is not None and store.logged is False and not notes
    assert store.inferred["logged"].endswith(", and the broker has no app-nolog-changelog")
    # A dump has what it was told to have, and a user who sees no topic at all knows nothing.
    for source in (evidence_of("the dump", plain=TopicSettings(1)), evidence_of()):
        assert len(draft_of_directory(UNLOGGED, None, (source,))[1]) == 1


def test_store_with_a_topic_and_without_an_offset_is_an_open_question() -> None:
    draft = draft_of(UNLOGGED, evidence_of(nolog=TopicSettings(1)), of="nolog")
    assert questions_of(draft) == {"logged": (True, False)}
    unclean = application(task("0_0", store("plain", database())))
    assert questions_of(draft_of(unclean, of="plain")) == {"logged": (True, False)}
    facts = draft_of(unclean, evidence_of(plain=TopicSettings(2)), of="plain")
    assert (facts.changelog, facts.partitions, questions_of(facts)) == ("app-plain-changelog", 2, {})


def test_a_topic_that_may_be_another_s_says_nothing() -> None:
    two = application(task("0_0", store("a", built_from="x"), store("b", built_from="x"), lines={"x-0": 3}))
    before = draft_of(two, of="a")
    assert "changelog" in questions_of(before)
    assert questions_of(draft_of(two, evidence_of(a=TopicSettings(9, CONTENT)), of="a")) == questions_of(before)


TOPOLOGY = parse_topology(
    """Topologies:
   Sub-topology: 0
    Source: s (topics: [in])
      --> p
    Processor: p (stores: [plain, win, memory])
      --> none
      <-- s
   Sub-topology: 1
    Source: s2 (topics: [in2])
      --> p2
    Processor: p2 (stores: [elsewhere])
      --> none
      <-- s2
"""
)


def test_store_with_a_topic_and_no_directory_is_in_memory() -> None:
    draft = draft_of(SURE, evidence_of(memory=TopicSettings(2, CONTENT)), topology=TOPOLOGY, of="memory")
    assert (draft.kind, draft.changelog, draft.partitions, questions_of(draft)) == (
        "in-memory",
        "app-memory-changelog",
        2,
        {},
    )
    assert draft.inferred["kind"].endswith("but the broker has a changelog with records of the store")


@pytest.mark.parametrize("case", ["no topic", "new in the topology", "elsewhere", "a task lacks another store"])
def test_any_other_store_without_a_directory_is_an_open_question(case: str) -> None:
    app, name, source = (
        SURE,
        "memory",
        evidence_of(memory=TopicSettings(2, CONTENT), elsewhere=TopicSettings(2, CONTENT)),
    )
    if case == "no topic":
        source = evidence_of(win=settings_of(None))
    if case == "new in the topology":
        # Other instances have run it, with other tasks.
        source = evidence_of(memory=TopicSettings(2, frozenset({1})))
    if case == "elsewhere":
        name = "elsewhere"
    if case == "a task lacks another store":
        app = application(*SURE.tasks, task("0_1", store("plain"), lines={"app-plain-changelog-1": 1}))
    assert questions_of(draft_of(app, source, topology=TOPOLOGY, of=name)) == {"kind": ("in-memory",)}


# --- where it is said -------------------------------------------------------------------------------------------------


def test_a_broker_and_a_dump_say_the_same() -> None:
    keys = [TopicPartition(WIN, number) for number in range(3)]
    by_broker = report_of_broker({key: LogFacts(0, 9, retention_ms=5, min_compaction_lag_ms=6) for key in keys})
    assert dict(by_broker.topics) == {WIN: TopicSettings(3, frozenset({0, 1, 2}), 5, 6)} and by_broker.live

    def partition(key: TopicPartition, reading: Reading | None) -> PartitionDump:
        return PartitionDump(key.topic, key.partition, (), None, None, 0, 0, 9, reading=reading)

    readings = [Reading(1, 2, retention_ms=4), Reading(3, 4, retention_ms=5, min_compaction_lag_ms=6), None]
    partitions = {key: partition(key, reading) for key, reading in zip(keys, readings, strict=True)}
    dump = Dump("/dump", partitions, None, {}, "read_committed", has_headers=True)
    # A dump need not have all partitions: what it lacks in between it may lack behind them.
    some = {key: partition for key, partition in partitions.items() if key.partition != 1}
    assert report_of_dump(Dump("/dump", some, None, {}, None, has_headers=True)).topics[WIN].partitions is None
    assert draft_of(SURE, evidence_of(plain=TopicSettings(None)), of="plain").partitions == 1
    # The reading that ended last counts.
    assert dict(report_of_dump(dump).topics) == dict(by_broker.topics) and not report_of_dump(dump).live


HOSTILE = ("../../etc/passwd", "a\nkind = 'x'", "\x1b[31m", "app-win-changelog\n", "☃", "a" * 250, "", '"]')


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_others_reach_no_file(name: str) -> None:
    """Topics are looked up by names that are known: what else a broker has changes nothing, and is not printed."""
    plain = to_toml(draft_of_directory(SURE, None, (evidence_of(win=settings_of(None)),))[0])
    hostile = TopicReport(
        "the broker", {WIN: settings_of(None), name: settings_of(5), f"app-{name}-changelog": settings_of(7)}, live=True
    )
    keys = [TopicPartition(topic, 0) for topic in hostile.topics]
    assert {*report_of_broker({key: LogFacts(0, 9) for key in keys}).topics} <= {WIN, "app--changelog"}
    assert to_toml(draft_of_directory(SURE, None, (hostile,))[0]) == plain


@pytest.mark.parametrize("name", [entry for entry in HOSTILE if entry])
def test_a_topology_with_such_a_name_is_refused_or_printed_plainly(name: str, tmp_path: Path) -> None:
    text = f"Topologies:\n   Sub-topology: 0\n    Processor: p (stores: [{name}])\n"
    try:
        topology = parse_topology(text)
    except UsageError as error:
        assert "\x1b" not in repr(str(error)) and "line" in error.message
        return
    assert name not in topology.stores


@pytest.mark.parametrize(
    ("kind", "setting", "values"),
    [
        ("window", "retention.ms", {"the broker": 5, "the dump": 7}),
        ("versioned", "min.compaction.lag.ms", {"the broker": 6}),
    ],
)
def test_the_setting_that_a_retention_becomes(kind: str, setting: str, values: dict[str, int]) -> None:
    statements = [("the broker", TopicSettings(1, retention_ms=5, min_compaction_lag_ms=6))]
    statements += [("the dump", TopicSettings(1, retention_ms=7))]
    assert retention_settings(kind, statements) == (setting, values)

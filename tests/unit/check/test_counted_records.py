"""Records and times that `check` counts in a dump, or in the end of a log, beside a list of the records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kstate_cli.broker.facts import LogFacts
from kstate_cli.broker.tails import Tail
from kstate_cli.check.logs import DumpLogs, FactLogs
from kstate_cli.dump_reader.model import Dump
from kstate_cli.dump_reader.open import read_dump
from kstate_cli.formats.topic_partition import TopicPartition
from tests.dumps.support import A, rows
from tests.interop.to_parquet import Layout, Log, write_dump

KEY, SOURCE = TopicPartition(A, 0), TopicPartition("orders", 0)
START, STEP, COUNT = 6, 3, 90
OFFSETS = [START + STEP * number for number in range(COUNT)]
END = OFFSETS[-1] + 3
FIRSTS = (0, 6, 7, 59, 60, 63, 65, 66, 126, 272, 273, 274, END, 400)


def dump_of(
    folder: Path, layout: Layout | None = None, topic: str = A, committed: Mapping[TopicPartition, int] | None = None
) -> Dump:
    table = rows(topic, 0, COUNT, start=START, step=STEP)
    write_dump(folder, table, {TopicPartition(topic, 0): Log(START, END)}, committed or {}, layout or Layout())
    return read_dump(str(folder), complete=False, committed_only=False)


@pytest.mark.parametrize(
    "layout",
    [Layout(), Layout(rows_per_file=20), Layout(rows_per_group=7), Layout(hive=True, rows_per_file=13)],
    ids=str,
)
def test_every_record_of_a_dump_counts_once(tmp_path: Path, layout: Layout) -> None:
    logs = DumpLogs(dump_of(tmp_path / "d", layout), times=True)
    for first in FIRSTS:
        later = [offset for offset in OFFSETS if offset >= first]
        for transactional in (False, True):
            records = logs.records(KEY, first, transactional=transactional)
            assert records is not None
            assert (records.count, records.exact) == (len(later), True)
        # Record `number` has the time `number` - 5 ms, and a negative time is none.
        time = (later[0] - START) // STEP - 5 if later else -1
        assert logs.time_of(KEY, first) == (time if time >= 0 else None)


def test_a_source_topic_counts_to_the_committed_offset(tmp_path: Path) -> None:
    for committed in (7, 60, 66, 67, END):
        dump = dump_of(tmp_path / f"{committed}", Layout(rows_per_file=20), "orders", {SOURCE: committed})
        for first in FIRSTS:
            records = DumpLogs(dump).records(SOURCE, first, transactional=False)
            assert records is not None
            assert records.count == sum(first <= offset < committed for offset in OFFSETS), (committed, first)


def test_facts_that_make_a_number_an_upper_bound(tmp_path: Path) -> None:
    dump = dump_of(tmp_path / "d")
    partition = dump.partitions[KEY]

    def records(dump: Dump, first: int, *, transactional: bool = False) -> tuple[int, bool] | None:
        records = DumpLogs(dump).records(KEY, first, transactional=transactional)
        return None if records is None else (records.count, records.exact)

    assert records(dump, 60) == (72, True)
    # A dump that holds uncommitted records, of an application that reads only committed ones.
    uncommitted = replace(dump, isolation="read_uncommitted")
    assert records(uncommitted, 60, transactional=True) == (END - 60 - 1, False)
    assert records(uncommitted, 60) == (72, True)
    for changed, exact in (
        (replace(partition, start=None), False),
        (replace(partition, start=61), False),
        (replace(partition, start=60), True),
        (replace(partition, start=5), True),
    ):
        other = replace(dump, partitions={KEY: changed})
        assert records(other, 60) == ((72, True) if exact else (END - 60, False)), changed.start
        assert (DumpLogs(other, times=True).time_of(KEY, 60) is None) != exact
    # The log begins later than the offset: then the dump has all that the log has.
    later = replace(dump, partitions={KEY: replace(partition, log_start=61, start=61)})
    assert records(later, 0) == (90, True)
    for changed in (replace(partition, log_start=None), replace(partition, log_end=None)):
        assert records(replace(dump, partitions={KEY: changed}), 60) is None
    assert DumpLogs(dump).records(SOURCE, 0, transactional=False) is None
    assert DumpLogs(dump).time_of(KEY, 60) is None, "times are read on request"
    assert DumpLogs(dump, times=True).time_of(SOURCE, 60) is None


def test_records_that_are_in_a_dump_twice_are_not_counted(tmp_path: Path) -> None:
    logs = DumpLogs(dump_of(tmp_path / "d", Layout(duplicates=5, rows_per_file=20)), times=True)
    records = logs.records(KEY, 60, transactional=False)
    assert records is not None
    assert (records.count, records.exact) == (END - 60, False)
    assert logs.time_of(KEY, 60) == 13


def test_facts_of_a_partition() -> None:
    logs = FactLogs({KEY: LogFacts(5, 40, topic_id="id")}, frozenset({A, "gone"}))
    assert (logs.topic_id(KEY), logs.topic_id(SOURCE)) == ("id", None)
    assert [logs.lacks(TopicPartition(topic, 0)) for topic in (A, "gone", "orders")] == [False, True, False]
    assert [*logs.partitions()] == [KEY]
    assert logs.time_of(KEY, 7) is None
    logs.prepare({KEY: {7}}, transactional=False)


def test_ends_of_logs_are_read_once() -> None:
    requests: list[Mapping[TopicPartition, tuple[set[int], int]]] = []

    def read(
        first_offsets: Mapping[TopicPartition, tuple[set[int], int]], /, *, committed: bool
    ) -> Mapping[TopicPartition, Tail]:
        assert committed
        requests.append(first_offsets)
        return {key: Tail((20, 22, 39), min(firsts), (1, None, 3)) for key, (firsts, _) in first_offsets.items()}

    facts = {KEY: LogFacts(5, 40), SOURCE: LogFacts(5, 40, committed=30), TopicPartition("empty", 0): LogFacts(0, 0)}
    logs = FactLogs(facts, read=read)
    firsts = {KEY: {20, 50}, SOURCE: {21, 25}, TopicPartition("empty", 0): {0}, TopicPartition("other", 0): {0}}
    logs.prepare(firsts, transactional=True)
    assert requests == [{KEY: ({20, 50}, 40), SOURCE: ({21, 25}, 30)}]
    for again, request in (
        ({KEY: {20}}, None),
        ({KEY: {39, 20, 99}}, None),
        ({KEY: {40, 99}}, None),  # nothing is behind the end
        ({KEY: {19, 30}}, {KEY: ({19, 30}, 40)}),
    ):
        requests.clear()
        logs.prepare(again, transactional=True)
        assert requests == ([] if request is None else [request])
    for key, first, count in ((KEY, 19, 3), (KEY, 21, 2), (KEY, 40, 0), (SOURCE, 21, 1)):
        records = logs.records(key, first, transactional=True)
        assert records is not None
        assert (records.count, records.exact) == (count, True)
    bound = logs.records(KEY, 18, transactional=True)
    assert bound is not None
    assert (bound.count, bound.exact) == (40 - 18 - 1, False)
    assert (logs.time_of(KEY, 20), logs.time_of(KEY, 21), logs.time_of(KEY, 23)) == (1, None, 3)

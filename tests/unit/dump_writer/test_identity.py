"""Whether a log is the one that was read before: a model of compacted logs, and of others that share a part with them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.dump_reader.model import TailRecord
from kstate_cli.dump_writer.identity import TAIL, Identity, LogSample, compare, unexplained

Row = tuple[str, str | None]


@dataclass
class ModelLog:
    """A compacted log: ``(offset, key, value)``, and the offset of the next record."""

    records: list[tuple[int, str, str | None]] = field(default_factory=list)
    end: int = 0

    def append(self, key: str, value: str | None) -> None:
        self.records.append((self.end, key, value))
        self.end += 1

    def compact(self, chance: random.Random) -> None:
        """Remove records whose key has a later one: any of them."""
        latest = {key: offset for offset, key, _ in self.records}
        self.records = [row for row in self.records if latest[row[1]] == row[0] or chance.random() < 0.3]

    def copy(self) -> ModelLog:
        return ModelLog(list(self.records), self.end)

    def tail(self, first: int = 0, end: int = 1 << 40) -> list[TailRecord]:
        return [
            TailRecord(offset, f"{offset}-{key}-{value}", key, None, value is None)
            for offset, key, value in self.records
            if first <= offset < end
        ]

    def table(self) -> dict[str, str]:
        rows: dict[str, str] = {}
        for _, key, value in self.records:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return rows


def outcome(dumped: ModelLog, log: ModelLog) -> Identity:
    """As a round of dump finds it, that reads all that is new."""
    records = dumped.tail()
    tail = tuple(records[-TAIL:])
    complete = len(tail) == len(records)
    sample = LogSample(tail, complete, 0, dumped.end, compacted=True)
    first = 0 if complete else tail[0].offset
    compared = compare(sample, log.tail(first, dumped.end), 0)
    if unexplained(compared, (record.key for record in log.tail(dumped.end))) is not None:
        return Identity.NOT_COMPARABLE
    return compared.identity


@given(st.integers(0, 10**9), st.integers(1, 40), st.integers(0, 60), st.integers(0, 60))
def test_compaction_never_makes_another_log(seed: int, keys: int, before: int, after: int) -> None:
    """However it is compacted; and without deletes it is not comparable only if nothing of its tail is left."""
    chance = random.Random(seed)
    log = ModelLog()
    for _ in range(before):
        log.append(f"k{chance.randrange(keys)}", str(chance.random()))
    dumped = log.copy()
    for _ in range(after):
        log.append(f"k{chance.randrange(keys)}", str(chance.random()))
    log.compact(chance)
    identity = outcome(dumped, log)
    tail = log.tail(0, dumped.end)
    assert identity is Identity.SAME or (
        identity is Identity.NOT_COMPARABLE
        and not {record_.offset for record_ in tail} & {record_.offset for record_ in dumped.tail()[-TAIL:]}
    )


@given(st.integers(0, 10**9), st.integers(1, 40), st.integers(1, 60), st.integers(0, 60), st.integers(0, 60))
def test_a_log_that_is_called_the_same_gives_the_same_rows(
    seed: int, keys: int, before: int, kept_records: int, after: int
) -> None:
    """A disk that was restored from an older copy: what is continued has the rows that the log has, or is not continued."""
    chance = random.Random(seed)
    log = ModelLog()
    for _ in range(min(kept_records, before)):
        log.append(f"k{chance.randrange(keys)}", str(chance.random()))
    restored = log.copy()
    for _ in range(before - log.end):
        log.append(f"k{chance.randrange(keys)}", str(chance.random()) if chance.random() < 0.9 else None)
    dumped = log
    while restored.end < dumped.end + after:
        restored.append(f"k{chance.randrange(keys)}", str(chance.random()) if chance.random() < 0.9 else None)
    restored.compact(chance)
    if outcome(dumped, restored) is Identity.SAME:
        continued = ModelLog([*dumped.records, *(row for row in restored.records if row[0] >= dumped.end)])
        assert continued.table() == restored.table()


def record(offset: int, digest: str = "a", key: str = "k", epoch: int | None = 1) -> TailRecord:
    return TailRecord(offset, digest, key, epoch)


SAMPLE = LogSample((record(10), record(12, key="l")), complete=False, start=0, end=14, compacted=True)


@pytest.mark.parametrize(
    ("present", "log_start", "compacted", "identity", "awaited"),
    [
        ([record(10), record(12, key="l")], 0, True, Identity.SAME, set()),
        ([record(12, key="l")], 0, True, Identity.SAME, set()),
        ([record(10)], 0, True, Identity.SAME, {"l"}),
        ([], 0, True, Identity.NOT_COMPARABLE, set()),
        ([record(11)], 0, True, Identity.ANOTHER, set()),
        ([record(13), record(12, key="l")], 0, True, Identity.ANOTHER, set()),
        ([record(10, "b")], 0, True, Identity.ANOTHER, set()),
        ([record(10, epoch=2)], 0, True, Identity.ANOTHER, set()),
        ([record(10, epoch=None)], 0, True, Identity.SAME, {"l"}),
        ([record(10)], 0, False, Identity.ANOTHER, set()),
        ([record(12, key="l")], 11, False, Identity.SAME, set()),
        ([], 14, False, Identity.NOT_COMPARABLE, set()),
    ],
)
def test_each_way_to_compare(
    present: list[TailRecord], log_start: int, compacted: bool, identity: Identity, awaited: set[str]
) -> None:
    sample = LogSample(SAMPLE.tail, SAMPLE.complete, SAMPLE.start, SAMPLE.end, compacted)
    compared = compare(sample, present, log_start)
    assert (compared.identity, set(compared.awaited)) == (identity, awaited)
    assert (compared.why is None) == (identity is Identity.SAME), "every other result is reported with its reason"
    assert unexplained(compared, awaited) is None
    assert (unexplained(compared, ()) is None) == (not awaited)


def test_a_full_without_a_record_is_compared_as_a_whole() -> None:
    empty = LogSample((), complete=True, start=0, end=14, compacted=True)
    assert compare(empty, [], 0).identity is Identity.SAME
    assert compare(empty, [record(3)], 0).identity is Identity.ANOTHER

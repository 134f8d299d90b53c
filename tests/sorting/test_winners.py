"""The last record of each key, against a dictionary that is filled in order."""

from __future__ import annotations

import copy
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.formats.binary import binary_of
from kstate_cli.restore.sorting.winners import LastOfEachKey, numbered

any_keys = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"", b"a", b"b"]))
digits = st.integers(0, 300).map(lambda number: b"key-%08d" % number)
eight = st.binary(min_size=8, max_size=8)
long = st.binary(min_size=2, max_size=2).map(lambda some: b"0123456789" + some * 4)
keys = st.one_of(*(st.lists(st.none() | key_, max_size=80) for key_ in (any_keys, digits, eight, long, digits | long)))


@pytest.mark.parametrize("records", [1, 5_000_000], ids=["one bucket", "eight buckets"])
@pytest.mark.parametrize("memory", [0, 1_500, 1 << 30], ids=["settled each time", "now and then", "once"])
@given(some_keys=keys, cut=st.integers(1, 30))
def test_the_last_record_of_each_key(records: int, memory: int, some_keys: list[bytes | None], cut: int) -> None:
    last = LastOfEachKey(records, memory)
    for first in range(0, len(some_keys), cut):
        # A part of a larger array, as a reader hands them on.
        batch = pa.array([b"before", *some_keys[first : first + cut], b"after"], pa.binary())
        last.add(*numbered(batch.slice(1, len(batch) - 2), first))
    winners = last.finish()

    expected = {key: at for at, key in enumerate(some_keys) if key is not None}
    names = winners.keys.to_pylist()
    assert names == sorted(expected)
    assert dict(zip(names, winners.record.tolist(), strict=True)) == expected
    assert last.full == (memory < 1_500 or last._used >= memory)


@pytest.mark.parametrize("in_parts", [False, True])
@given(
    some_keys=keys, batch=st.integers(1, 30), cuts=st.lists(st.floats(0.1, 0.9), max_size=3), rows=st.integers(1, 50)
)
def test_the_lowest_keys_and_where_the_others_begin(
    in_parts: bool, some_keys: list[bytes | None], batch: int, cuts: list[float], rows: int
) -> None:
    """What is told part by part is what is told as a whole; what was cut away is not taken again."""
    last = LastOfEachKey(5, 1 << 20, in_parts=in_parts)
    bound, parts_to_cut = None, iter(cuts)
    for first in range(0, len(some_keys), batch):
        last.add(*numbered(pa.array(some_keys[first : first + batch], pa.binary()), first, b"", bound))
        part = next(parts_to_cut, None)
        if part is not None:
            bound = last.cut(part) or bound
    parts = [*last.parts(rows)] if in_parts else [last.finish()]
    names = [key for part in parts for key in part.keys.to_pylist()]
    records = [record for part in parts for record in part.record.tolist()]
    expected = {key: at for at, key in enumerate(some_keys) if key is not None and (bound is None or key < bound)}
    assert names == sorted(expected)
    assert dict(zip(names, records, strict=True)) == expected
    assert not in_parts or all(len(part.keys) == rows for part in parts[:-1])


@pytest.mark.parametrize("memory", [300, 3_000, 30_000])
@given(data=st.data())
def test_keys_that_become_others_never_take_more_than_there_is(memory: int, data: st.DataObject) -> None:
    """Of more bits, then of more than a number has, then of another length: what does not fit is cut away."""
    kinds = data.draw(st.lists(st.sampled_from([digits, eight, long, any_keys]), min_size=1, max_size=4))
    some_keys = [key for kind in kinds for key in data.draw(st.lists(kind, max_size=200))]
    last = LastOfEachKey(5, memory, in_parts=True)
    for first in range(0, len(some_keys), 20):
        last.add(*numbered(pa.array(some_keys[first : first + 20], pa.binary()), first, b"", last.bound))
        while last.full and last.cut(0.9) is not None:
            pass  # the lowest may be longer than the others
        assert not last.full or last._keys.size()[0] == 1
    expected = {
        key: at for at, key in enumerate(some_keys) if key is not None and (last.bound is None or key < last.bound)
    }
    parts = [*last.parts(7)]
    names = [key for part in parts for key in part.keys.to_pylist()]
    assert names == sorted(expected)
    assert dict(zip(names, [at for part in parts for at in part.record.tolist()], strict=True)) == expected


OLD_ROWS = 800_000


@pytest.mark.parametrize(
    ("later", "most"),
    [
        pytest.param(b"B" + bytes(99), 3, id="another bit"),
        pytest.param(b"B" * 100, 3, id="more bits than a number has beside its record"),
        pytest.param(b"k", 5, id="another length"),
    ],
)
def test_memory_while_keys_are_renumbered(later: bytes, most: int) -> None:
    """In the bytes that what is known takes as numbers: never all keys at once, of a hundred bytes each."""
    table = np.full((OLD_ROWS, 100), 65, dtype=np.uint8)
    table[:, -8:] = np.arange(OLD_ROWS, dtype=">u8")[:, None].view(np.uint8).reshape(-1, 8)
    old_bytes = OLD_ROWS * 16
    last = LastOfEachKey(OLD_ROWS, int(old_bytes * 1.2), in_parts=True)
    for first in range(0, OLD_ROWS, 8_192):
        last.add(*numbered(binary_of(table[first : first + 8_192]), first))
    assert not last.full
    pool = pa.default_memory_pool()
    before = pool.bytes_allocated()
    tracemalloc.start()
    try:
        last.add(pa.array([later], pa.binary()), np.array([OLD_ROWS]))
        kept_bytes, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    blocks = 3 * (8 << 20)  # keys that become numbers again, and what is made on the way
    assert peak < most * old_bytes + blocks, (kept_bytes, peak)
    assert pool.bytes_allocated() - before < most * old_bytes + blocks


@pytest.mark.parametrize("longer", [0, 9, 300])
def test_keys_take_a_quarter_more_than_their_memory_at_the_most(longer: int) -> None:
    """As numbers that wait: before they are known nobody can say how many of them are new."""
    memory, batch = 1 << 20, 512
    last = LastOfEachKey(1 << 20, memory, in_parts=True)
    most, first = 0, 0
    while not last.full:
        names = [b"key-%08d" % number + b"x" * longer for number in range(first, first + batch)]
        last.add(*numbered(pa.array(names, pa.binary()), first))
        first += batch
        # What a slice would hold that ended here.
        ended = copy.deepcopy(last)
        ended._settle()
        most = max(most, ended._used)
    assert memory <= most <= memory * 1.25 + batch * (longer + 100)


def test_winners_in_parts_take_less_memory() -> None:
    """As a whole it has no room; part by part it has."""
    last = LastOfEachKey(1, 1 << 20, in_parts=True)
    for first in range(0, 40_000, 500):
        last.add(
            *numbered(pa.array([b"key-%08d" % number for number in range(first, first + 500)], pa.binary()), first)
        )
    assert not last.full and not last.whole
    assert sum(len(part.keys) for part in last.parts(4_096)) == 40_000


@given(some_keys=keys, lowest=any_keys | digits, bound=any_keys | digits)
def test_ranges_of_keys(some_keys: list[bytes | None], lowest: bytes | None, bound: bytes | None) -> None:
    some, numbers = numbered(pa.array(some_keys, pa.binary()), 7, lowest or b"", bound)
    expected = [
        (key, at)
        for at, key in enumerate(some_keys, 7)
        if key is not None and key >= (lowest or b"") and (bound is None or key < bound)
    ]
    assert list(zip(some.to_pylist(), numbers.tolist(), strict=True)) == expected


@given(numbers=st.permutations([1, 2, 3, 70_000, 1 << 40]), records=st.sampled_from([1, 9]))
def test_numbers_of_any_order(numbers: list[int], records: int) -> None:
    """As what is known already is added anew, sorted by key."""
    last = LastOfEachKey(records, 1 << 20)
    pairs = [(b"key-%02d" % at, number) for at, number in enumerate(numbers)]
    last.add(pa.array([key for key, _ in pairs], pa.binary()), np.array([number for _, number in pairs]))
    last.add(pa.array([b"key-01"], pa.binary()), np.array([1 << 41]))
    winners = last.finish()
    assert dict(zip(winners.keys.to_pylist(), winners.record.tolist(), strict=True)) == {
        **dict(pairs), b"key-01": 1 << 41
    }  # fmt: skip


def test_is_full_once_its_keys_take_its_memory() -> None:
    last = LastOfEachKey(1, 1 << 20)
    count = 0
    while not last.full:
        last.add(
            *numbered(pa.array([b"key-%08d" % number for number in range(count, count + 500)], pa.binary()), count)
        )
        count += 500
    assert 10_000 < count < 30_000
    same_keys = numbered(pa.array([b"key-%08d" % number for number in range(count)], pa.binary()), count)
    for _ in range(100):
        last.add(*same_keys)
    assert len(last.finish().keys) == count

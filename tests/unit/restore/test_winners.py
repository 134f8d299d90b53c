"""The last record of each key, against a dictionary that is filled in order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.restore.winners import LastOfEachKey

keys = st.lists(st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"", b"a", b"b"])), max_size=80)


@pytest.mark.parametrize("records", [1, 5_000_000], ids=["one bucket", "eight buckets"])
@pytest.mark.parametrize("memory", [0, 1_500, 1 << 30], ids=["settled each time", "now and then", "once"])
@given(found=keys, cut=st.integers(1, 30))
def test_the_last_record_of_each_key(records: int, memory: int, found: list[bytes | None], cut: int) -> None:
    last = LastOfEachKey(records, memory, with_codes=True)
    for first in range(0, len(found), cut):
        # A part of a larger array, as a reader hands them on.
        batch = pa.array([b"before", *found[first : first + cut], b"after"], pa.binary())
        last.add(batch.slice(1, len(batch) - 2))
    winners = last.finish()

    assert (last.records, last.null_keys) == (len(found), found.count(None))
    expected = {key: at for at, key in enumerate(found) if key is not None}
    names = winners.keys.to_pylist()
    assert dict(zip(names, winners.record.tolist(), strict=True)) == expected
    assert winners.codes is not None
    assert [names[code] if code >= 0 else None for code in winners.codes.tolist()] == found

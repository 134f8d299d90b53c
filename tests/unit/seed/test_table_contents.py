"""The comparison of tables on two clusters: each log is read once, and a temporary file limits the memory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest

from kstate_cli.seed import table_contents
from kstate_cli.seed.table_contents import RecordDigest, count_differences

KEYS = 200


def records(seed: int, count: int) -> Iterator[RecordDigest]:
    """Yield records of a few keys, some of them deletes."""
    chance = random.Random(seed)
    for _ in range(count):
        key = chance.randrange(KEYS).to_bytes(8, "big") * 2
        yield RecordDigest(key, chance.randbytes(1) * 16, chance.random() < 0.2)


def expected(first: list[RecordDigest], second: list[RecordDigest], *, history: bool) -> dict[str, int]:
    """Count the differences key by key."""
    contents = []
    for log in (first, second):
        rows: dict[bytes, tuple[bytes, ...]] = {}
        for key, record, deletes in log:
            before = rows.get(key, ()) if history else ()
            rows[key] = (*before, record)
            if deletes and not history:
                del rows[key]
        contents.append(rows)
    ours, theirs = contents
    return {
        "missing": len(ours.keys() - theirs.keys()),
        "additional": len(theirs.keys() - ours.keys()),
        "different": sum(ours[key] != theirs[key] for key in ours.keys() & theirs.keys()),
    }


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("waiting_bytes", [1, 1 << 20])
@pytest.mark.parametrize("shares", [1, 2, 13])
def test_shares_of_the_keys_have_all_differences(
    monkeypatch: pytest.MonkeyPatch, history: bool, waiting_bytes: int, shares: int
) -> None:
    monkeypatch.setattr(table_contents, "_WAITING_BYTES", waiting_bytes)
    for count, other in ((300, 300), (300, 0), (0, 0), (900, 250)):
        ours, theirs = [*records(1, count)], [*records(2, other)]
        # Iterators, which nothing can read a second time.
        counts = count_differences(iter(ours), iter(theirs), shares, history=history)
        assert {"missing": 0, "additional": 0, "different": 0} | counts == expected(ours, theirs, history=history)
        assert not count_differences(iter(ours), iter(ours), shares, history=history).total()


def test_shares_need_no_file_each() -> None:
    """However many shares there are."""
    before = len(os.listdir("/proc/self/fd"))
    most = []

    def counted_files() -> Iterator[RecordDigest]:
        for record in records(1, 100):
            most.append(len(os.listdir("/proc/self/fd")))
            yield record

    count_differences(counted_files(), counted_files(), 1_000, history=True)
    assert max(most) <= before + 2

"""How much of the ends of logs is read, and what that tells. A broker is read in tests/interop/test_spec_evidence.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstate_cli.broker.tails import Tail, short_tails
from kstate_cli.formats.topic_partition import TopicPartition

KEYS = [TopicPartition("t", number) for number in range(40)]
MOST, ALTOGETHER = 50_000, 500_000


@given(st.lists(st.tuples(st.sets(st.integers(-10, 1 << 40), max_size=3), st.integers(0, 1 << 40)), max_size=40))
def test_little_is_read_and_the_shortest_first(logs: list[tuple[set[int], int]]) -> None:
    expectation = dict(zip(KEYS, logs, strict=False))
    choice = short_tails(expectation)
    spans = {key: end - first for key, (first, end) in choice.items()}
    assert all(0 < span <= MOST for span in spans.values()) and sum(spans.values()) <= ALTOGETHER
    assert all(first >= 0 for first, _ in choice.values()), "what lies below is no offset, and no consumer takes it"
    assert all(choice[key][0] in expectation[key][0] and choice[key][1] == expectation[key][1] for key in choice)
    for key, (firsts, end) in expectation.items():
        near = [end - first for first in firsts if first >= 0 and 0 < end - first <= MOST]
        if near and key not in choice:
            assert sum(spans.values()) + max(near) > ALTOGETHER
        # What is asked about and near enough is all in what is read.
        if near and key in choice:
            assert spans[key] == max(near)


def test_tail_counts_records_from_its_first_offset() -> None:
    """Offsets 5, 7 and 8 are records; 6 is a marker, or was compacted away, and so may be what follows."""
    tail = Tail((5, 7, 8), 5, (50, None, 80))
    assert [tail.records(first, 12) for first in (4, 5, 6, 7, 8, 9, 12)] == [None, 3, 2, 2, 1, 0, 0]
    # A source topic is restored up to the group's offset.
    assert tail.records(5, 8) == 2
    assert [tail.time_of_first(first) for first in (4, 5, 6, 8, 9)] == [None, 50, None, 80, None]

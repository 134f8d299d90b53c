"""The digest of a log, and the batches of records that it is computed from."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from kstate_cli.formats.binary import MAX_I64
from kstate_cli.seed.records import Record, RecordBatch, batch_of
from kstate_cli.seed.writing import LogDigest

# Few different bytes, so that contents of neighbours could be confused.
CONTENT = st.binary(max_size=3) | st.sampled_from([b"\x00" * 4, b"s", b"x" * 300])
HEADER = st.tuples(st.sampled_from(["", "a", "b", "trace", "ü"]), st.none() | CONTENT)
RECORD = st.builds(Record, CONTENT, st.none() | CONTENT, st.integers(-1, MAX_I64), st.lists(HEADER, max_size=3))
RECORDS = st.lists(RECORD, max_size=12)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def digest_of(*batches: list[Record]) -> str:
    digest = LogDigest()
    for batch in batches:
        digest.add(RecordBatch.of(batch))
    assert digest.records == sum(map(len, batches))
    return digest.value


@given(RECORDS, st.integers(0, 12))
def test_the_division_into_batches_does_not_matter(records: list[Record], place: int) -> None:
    assert digest_of(records[:place], records[place:]) == digest_of(records)
    assert digest_of(*([record] for record in records)) == digest_of(records)


@given(RECORDS, RECORDS)
def test_only_equal_records_have_equal_digests(left: list[Record], right: list[Record]) -> None:
    assert (digest_of(left) == digest_of(right)) == (left == right)


@given(RECORDS, st.data())
def test_every_member_of_every_record_counts(records: list[Record], data: st.DataObject) -> None:
    """Of neighbours too: a byte that moves from one content to the next one changes the digest."""
    assume(len(records) > 1)
    place = data.draw(st.integers(0, len(records) - 2))
    before, after = records[place], records[place + 1]
    moved = [
        (before._replace(key=before.key + after.key), after._replace(key=b"")),
        (before._replace(value=(before.value or b"") + (after.value or b"")), after._replace(value=None)),
        (before._replace(headers=before.headers + after.headers), after._replace(headers=[])),
        (before._replace(timestamp=after.timestamp), after._replace(timestamp=before.timestamp)),
        (before._replace(headers=[("", before.value), *before.headers]), after),
        (after, before),
    ]
    for pair in moved:
        changed = [*records[:place], *pair, *records[place + 2 :]]
        assert (digest_of(changed) == digest_of(records)) == (changed == records)


@given(RECORDS, st.integers(0, 12), st.integers(0, 12))
def test_rows_of_a_dump_become_the_same_records(records: list[Record], first: int, end: int) -> None:
    rows = pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "timestamp": pa.array([record.timestamp for record in records], pa.int64()),
            "headers": pa.array(
                # A dump has null for no headers in some files, and an empty list in others.
                [
                    [{"key": name, "value": value} for name, value in record.headers] or (None if row % 2 else [])
                    for row, record in enumerate(records)
                ],
                HEADERS,
            ),
        }
    )
    # Chunks, and slices that do not begin with the first row of their buffers, as a filtered table of Parquet has them.
    chunked = pa.concat_tables([rows.slice(0, first), rows.slice(first)])
    assert list(batch_of(chunked)) == records
    assert list(batch_of(chunked.slice(first, end))) == records[first : first + end]
    assert list(batch_of(rows.drop_columns("headers"))) == [record._replace(headers=[]) for record in records]
    assert list(batch_of(rows).part(first, end)) == records[first:end]

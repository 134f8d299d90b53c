"""Infer the kind of store that wrote a database from its column families and a few rows.

Column families decide most of it: since they name the layout, they cannot be wrong. What shares the family ``default``
(plain, versioned, list-value; or plain window, session, time-ordered and grace buffer) is told apart by rows, and only
by rules that rows of the other kinds could meet by accident alone. Where rows allow two answers, none is given.

The kinds themselves are in :mod:`~kstate_cli.formats.store_kinds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kstate_cli.formats.binary import MAX_I64, MalformedBytesError
from kstate_cli.formats.keys import (
    BASE_PREFIX,
    INDEX_PREFIX,
    CombinedKey,
    JoinSideKey,
    SessionKey,
    VersionedKey,
    WindowKey,
)
from kstate_cli.formats.layouts import Inner, KeySchema, ValueLayout
from kstate_cli.formats.store_kinds import (
    AMBIGUOUS,
    DEFAULT_CF,
    OFFSETS_CF,
    SINGLE_AMBIGUOUS,
    StoreKind,
    all_families,
    kinds_of_family,
    named_by_dsl,
    store_kinds,
)
from kstate_cli.formats.values import (
    UNKNOWN_TIMESTAMP,
    BufferValue,
    HeadersValue,
    SubscriptionWrapper,
    TimestampedValue,
    decode_list,
)
from kstate_cli.formats.versioned import LatestValue, oldest_of_any_order

# With no segment but the one at 0 nothing bounds its end. A time in it is then taken for milliseconds before the year
# 2248: enough to see that four bytes of a key and four of a time are not one number.
_UNBOUNDED_END: Final = 1 << 43

Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Kind:
    """A name of ``store_kinds``, whether the bytes leave no other, and what it was taken from, as text for a reader."""

    name: str
    certain: bool
    inferred_from: str


def infer_kind(
    families: frozenset[str],
    segment_starts: Sequence[int] | None,
    samples: Mapping[str, Sequence[Row]],
    store_name: str,
    sample_start: int | None = None,
) -> Kind:
    """Return the kind of a store, as its databases show it; :class:`Kind` says whether it is certain, and why.

    ``families`` are the column families of one database of the store (none if it has no segment), and ``samples`` the
    first and last few rows of each family with data. ``segment_starts`` is None for a store in ``rocksdb/<store>``,
    else the starts (ms) of its segments ``<store>/<store>.<start>``. Then the rows come from the segment that starts at
    ``sample_start``, or from the first one if that is None, and the other starts show where it ends. Without rows the
    kind follows from families and name, and is never certain. Strange rows raise nothing: they fit no special kind.
    """
    rows = {family: tuple(samples.get(family, ())) for family in families if family != OFFSETS_CF}
    foreign = sorted(families - all_families())
    # A later release or the application itself made these families. Their rows may have any layout, so no kind is
    # certain.
    if foreign:
        name = AMBIGUOUS
        if segment_starts is None:
            name = SINGLE_AMBIGUOUS
        return Kind(name, False, f"column families that Streams does not create: {', '.join(foreign)}")
    if segment_starts is None:
        kind = _single(rows, store_name)
    else:
        starts = sorted(segment_starts)
        if sample_start is not None:
            # Put first, because ``_span`` takes the first start as that of the segment with the sampled rows.
            starts.insert(0, sample_start)
        kind = _segmented(rows, starts, store_name)
    # Without rows the families prove only what the store may hold. Nothing is lost if the kind stays open: the store is
    # empty.
    if kind.certain and not any(rows.values()):
        return Kind(kind.name, False, f"{kind.inferred_from} (the store has no rows)")
    return kind


# --- stores of one database -------------------------------------------------------------------------------------------


def _single(rows: Mapping[str, tuple[Row, ...]], store_name: str) -> Kind:
    """Return the kind of a store that has one database, not one per segment."""
    kinds = _kinds(segmented=False)
    wrong = sorted(name for name in rows if all(kind.layout_in(name) is None for kind in kinds))
    # Streams creates no such family in a store of one database: the folder contains a segment, or files of another
    # store.
    if wrong:
        return Kind(SINGLE_AMBIGUOUS, False, f"column family {wrong[0]} belongs to a segmented store")
    family = _newest(rows, kinds)
    candidates = _with_all(rows, kinds_of_family(family, segmented=False))
    if not candidates:
        return Kind(
            SINGLE_AMBIGUOUS, False, f"a combination of column families that no store has: {', '.join(sorted(rows))}"
        )
    dsl_kind = _by_name(candidates, store_name)
    if family != DEFAULT_CF:
        return _single_by_family(family, candidates, rows, dsl_kind)
    return _single_by_rows(rows.get(DEFAULT_CF, ()), candidates, dsl_kind)


def _single_by_family(
    family: str, candidates: Sequence[StoreKind], rows: Mapping[str, tuple[Row, ...]], dsl_kind: str | None
) -> Kind:
    """Return the kind of a store of one database whose newest family is not ``default``."""
    # A foreign-key subscription has the same families as a timestamped store, so its rows are tested for it first.
    if any(kind.inner is Inner.SUBSCRIPTION for kind in candidates):
        by_rows = _subscription(rows)
        if by_rows is not None:
            return by_rows
    if dsl_kind is not None and not any(rows.values()):
        return Kind(dsl_kind, False, f"column family {family} and the store's name (the store has no rows)")
    # The rows are of no special form, so kinds remain whose values the application alone understands.
    plain = [kind.name for kind in candidates if kind.inner is Inner.ANY]
    if len(plain) == 1:
        return Kind(plain[0], True, f"column family {family}")
    return Kind(plain[0], False, f"column family {family}, which {' and '.join(plain)} stores have")


def _single_by_rows(sampled: Sequence[Row], candidates: Sequence[StoreKind], dsl_kind: str | None) -> Kind:
    """Return the kind of a store of one database that only has the family ``default``, which several kinds share."""
    if not sampled:
        if dsl_kind is not None:
            return Kind(dsl_kind, False, "the store's name (the store has no rows)")
        others = " or ".join(kind.name for kind in candidates if kind.name != SINGLE_AMBIGUOUS)
        why = f"column family default (the store has no rows, so it could also be {others})"
        return Kind(SINGLE_AMBIGUOUS, False, why)
    # Tested before versioned rows, because a join-side key too begins with a number of eight bytes.
    if _every(_is_list_row, sampled):
        return Kind("list-value", True, "rows with join-side keys and lists of entries from that side")
    if _every(_is_versioned_row, sampled):
        if any(key.startswith(b"\xff" * 8) for key, _ in sampled):
            return Kind("versioned", True, "rows of latest values")
        return Kind("versioned", True, "rows of version segments")
    return Kind(SINGLE_AMBIGUOUS, True, "rows in column family default that are neither versioned nor list-value")


def _kinds(*, segmented: bool) -> list[StoreKind]:
    return [kind for kind in store_kinds() if kind.is_exact and kind.key.segmented is segmented]


def _newest(rows: Mapping[str, tuple[Row, ...]], kinds: Sequence[StoreKind]) -> str:
    """Return the newest of the column families: the one with most families before it in some kind."""
    older: dict[str, int] = {}
    for kind in kinds:
        for number, family in enumerate(reversed(kind.families)):
            older[family.name] = max(number, older.get(family.name, 0))
    # Sorted first: of families that no kind ranks, the choice must not depend on a hash.
    return max(sorted(rows), key=lambda name: older.get(name, -1), default=DEFAULT_CF)


def _with_all(families: Iterable[str], kinds: Sequence[StoreKind]) -> list[StoreKind]:
    """Return the kinds that may have all of these column families in one store."""
    return [kind for kind in kinds if all(kind.layout_in(name) is not None for name in families)]


def _by_name(kinds: Sequence[StoreKind], store_name: str) -> str | None:
    """Return the kind whose stores the DSL names as this one is named; None if it names none so."""
    kind = named_by_dsl(kinds, store_name)
    if kind is None:
        return None
    return kind.name


def _subscription(rows: Mapping[str, tuple[Row, ...]]) -> Kind | None:
    """Return the kind if all rows are foreign-key subscriptions, certain if keys and values agree; else None."""
    try:
        inner = {name: _inner_value(name) for name in rows}
        unwrapped = [(key, inner[name](value)) for name, sampled in rows.items() for key, value in sampled]
    except MalformedBytesError:
        return None
    if not unwrapped or not _every(_is_subscription_row, unwrapped):
        return None
    # The primary key is in the row's key and in its value. Both may be serialized differently (schema ids), so that
    # unequal bytes do not rule the kind out. But then only a few bits of the rows speak for it, and it is not certain.
    agree = all(
        CombinedKey.from_bytes(key).primary_key == SubscriptionWrapper.from_bytes(value).primary_key
        for key, value in unwrapped
    )
    if agree:
        return Kind("foreign-key-subscription", True, "combined keys and subscriptions with the same primary keys")
    return Kind("foreign-key-subscription", False, "rows that decode as combined keys and subscriptions")


def _inner_value(family: str) -> Callable[[bytes], bytes]:
    """Return the function that takes the value proper out of a value of a column family."""
    layouts = (kind.layout_in(family) for kind in _kinds(segmented=False))
    layout = next((layout for layout in layouts if layout is not None), ValueLayout.PLAIN)
    if layout is ValueLayout.HEADERS:
        return lambda value: HeadersValue.from_bytes(value).value
    if layout is ValueLayout.TIMESTAMPED:
        return lambda value: TimestampedValue.from_bytes(value).value
    # A row of default has not been migrated: it is the plain value.
    return bytes


def _is_subscription_row(key: bytes, value: bytes) -> bool:
    CombinedKey.from_bytes(key)
    wrapper = SubscriptionWrapper.from_bytes(value)
    return wrapper.partition is None or wrapper.partition >= 0


def _is_list_row(key: bytes, value: bytes) -> bool:
    join_key = JoinSideKey.from_bytes(key)
    entries = decode_list(value)
    return (
        # All conditions at once: by accident a row of another kind may meet one or two of them.
        join_key.timestamp >= UNKNOWN_TIMESTAMP
        and bool(entries)
        and all(entry is not None and entry.left == join_key.left for entry in entries)
    )


def _is_versioned_row(key: bytes, value: bytes) -> bool:
    versioned_key = VersionedKey.from_bytes(key)
    # MAX_I64 would be a time that no record has: eight bytes ff are more likely another kind's key.
    if versioned_key.is_latest:
        return 0 <= LatestValue.from_bytes(value).valid_from < MAX_I64
    return oldest_of_any_order(value) >= 0


# --- stores of one database per segment -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Span:
    """Times that belong to the sampled segment: ``start <= time < end``."""

    start: int
    end: int

    def __contains__(self, time: int) -> bool:
        return self.start <= time < self.end


def _segmented(rows: Mapping[str, tuple[Row, ...]], starts: Sequence[int], store_name: str) -> Kind:
    """Return the kind of a store that has one database per segment; ``starts`` begins with the segment of the rows."""
    # A family that only one kind has decides alone. Other families are shared, and the keys decide: whether their times
    # are within the segment.
    kinds = _kinds(segmented=True)
    family = _newest(rows, kinds)
    candidates = _with_all(rows, kinds_of_family(family, segmented=True))
    if not candidates:
        return Kind(AMBIGUOUS, False, f"a combination of column families that no store has: {', '.join(sorted(rows))}")
    # No other kind has this family, so no row need be read.
    if family != DEFAULT_CF and len(candidates) == 1:
        return Kind(candidates[0].name, True, f"column family {family}")
    sampled = [row for name in rows for row in rows[name]]
    span = _span(starts)
    if family != DEFAULT_CF:
        return _by_keys(family, candidates, sampled, span)
    if not sampled:
        return _empty_segmented(candidates, starts, store_name)
    return _buffer(candidates, starts, sampled, store_name) or _by_schema(candidates, sampled, span)


def _buffer(
    candidates: Sequence[StoreKind], starts: Sequence[int], sampled: Sequence[Row], store_name: str
) -> Kind | None:
    """Return the kind of a grace buffer, a store with segment 0 and no other; None if the rows are of another store."""
    buffers = [kind for kind in candidates if kind.key is KeySchema.BUFFER]
    # Only a buffer (``RocksDBTimeOrderedKeyValueBytesStore``) has all its rows in segment 0.
    if set(starts) == {0} and buffers:
        if _every(_is_buffer_row, sampled):
            return Kind(buffers[0].name, True, "one segment at 0, with time-first keys and buffered records")
        if _by_name(buffers, store_name):
            return Kind(
                buffers[0].name, False, "the store's name and its only segment, 0 (the rows do not show the kind)"
            )
    return None


def _by_schema(candidates: Sequence[StoreKind], sampled: Sequence[Row], span: _Span) -> Kind:
    """Return the only kind whose key schema all rows fit within their segment."""
    # Each schema reads time from other bytes: a key that fits its segment by a wrong schema is rare, and several rows
    # hardly ever do.
    fitting = [kind.name for kind in candidates if kind.key.expires and _every(_row_of(kind, span), sampled)]
    if len(fitting) == 1:
        rows = f"{len(sampled)} rows"
        if len(sampled) == 1:
            rows = "1 row"
        return Kind(fitting[0], True, f"{rows} whose keys fit their segment only if the store has this kind")
    if not fitting:
        return Kind(AMBIGUOUS, False, "rows whose keys do not fit their segment in any schema")
    return Kind(AMBIGUOUS, False, f"rows whose keys fit {' and '.join(fitting)}")


def _by_keys(family: str, candidates: Sequence[StoreKind], sampled: Sequence[Row], span: _Span) -> Kind:
    """Return the one of the kinds that share a column family whose keys all rows have.

    Uncertain if none or several fit.

    Keys are the same in each family of a store, so rows that still wait in ``default`` for their migration count too.
    Values are not tested, because those of a time-ordered store may be any bytes.
    """
    first = candidates[0].name
    others = " or ".join(_short(kind) for kind in candidates[1:])
    if not sampled:
        return Kind(first, False, f"column family {family} (the store has no rows, so it could be {others})")
    fitting = [kind for kind in candidates if _every(_key_of(kind, span), sampled)]
    if len(fitting) == 1:
        return Kind(fitting[0].name, True, f"column family {family} and keys")
    schema = "schema"
    if all(kind.key.sessions for kind in candidates):
        schema = "session schema"
    why = f"no {schema}"
    if fitting:
        why = f"both {schema}s"
    return Kind(first, False, f"column family {family}, rows whose keys fit {why}")


def _short(kind: StoreKind) -> str:
    if kind.key.time_ordered:
        return "time-ordered"
    return kind.name


def _empty_segmented(candidates: Sequence[StoreKind], starts: Sequence[int], store_name: str) -> Kind:
    dsl_kind = _by_name(candidates, store_name)
    # A segment .0 without rows is no sign of a buffer: it may merely carry the offset of a store without segments.
    buffer = any(kind.name == dsl_kind and kind.key is KeySchema.BUFFER for kind in candidates)
    if dsl_kind is not None and not (buffer and set(starts) - {0}):
        return Kind(dsl_kind, False, "the store's name (the store has no rows)")
    return Kind(AMBIGUOUS, False, "segments that have only the column family default (the store has no rows)")


def _span(starts: Sequence[int]) -> _Span:
    start = 0
    if starts:
        start = starts[0]
    # Every start is a multiple of the segment interval, so the interval divides all of them; and no segment reaches
    # into the next one that is there.
    interval = math.gcd(*starts)
    ends = [other for other in starts if other > start]
    if interval:
        ends.append(start + interval)
    return _Span(start, min(ends, default=_UNBOUNDED_END))


def _is_window(key: WindowKey, span: _Span) -> bool:
    return key.start in span and key.seq >= 0


def _is_session(key: SessionKey, span: _Span) -> bool:
    return key.end in span and 0 <= key.start <= key.end


Test = Callable[[bytes, bytes], bool]


def _key_of(kind: StoreKind, span: _Span) -> Test:
    """Return a function that tests whether a row has a key of this kind with a time within the segment.

    A row of the index of a time-ordered store must also have the value of such a row.
    """

    def test(key: bytes, value: bytes) -> bool:
        indexed = kind.key.time_ordered and key.startswith(INDEX_PREFIX)
        # A row of the index only repeats a key, so its value is empty or one zero byte.
        if indexed and not _is_index_value(value):
            return False
        if kind.key.sessions:
            return _is_session(SessionKey.from_key_first(key) if indexed else kind.key.session(key), span)
        return _is_window(WindowKey.from_key_first(key) if indexed else kind.key.window(key), span)

    return test


def _row_of(kind: StoreKind, span: _Span) -> Test:
    """Return a function that tests whether this kind wrote a row of ``default`` so, before any migration."""
    of_key = _key_of(kind, span)

    def test(key: bytes, value: bytes) -> bool:
        if not of_key(key, value):
            return False
        if kind.key.time_ordered and key.startswith(INDEX_PREFIX):
            return not value
        if kind.family.layout is ValueLayout.TIMESTAMPED:
            return TimestampedValue.from_bytes(value).timestamp >= UNKNOWN_TIMESTAMP
        return True

    return test


def _is_index_value(value: bytes) -> bool:
    return value in {b"", b"\x00"}


def _is_buffer_row(key: bytes, value: bytes) -> bool:
    # The time in the key is not looked at: Streams garbles it when it restores a buffer.
    if not key.startswith(BASE_PREFIX):
        return False
    WindowKey.from_time_first(key)
    return BufferValue.from_bytes(value).partition >= UNKNOWN_TIMESTAMP


# --- helpers ----------------------------------------------------------------------------------------------------------


def _every(test: Callable[[bytes, bytes], bool], rows: Iterable[Row]) -> bool:
    try:
        return all(test(key, value) for key, value in rows)
    except MalformedBytesError:
        return False

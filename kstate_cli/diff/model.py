"""The result of a comparison, as data; and rows of two stores side by side, with the fields that views print.

Both stores are read in the order of their row keys, so only the two rows at hand are in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any, Final

from kstate_cli import option
from kstate_cli.errors import InUse
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.keys import CombinedKey, JoinSideKey, SessionKey, VersionedKey, WindowKey
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.rocks.scanning import Row
from kstate_cli.rows.errors import Advice, StoreUnreadable, own_advice
from kstate_cli.rows.records import Layout
from kstate_cli.rows.segment import Segment, StoreReader
from kstate_cli.rows.values import timestamp_or_none


class In(Enum):
    """Which of the two directories has something."""

    BOTH = "both"
    A = "a"
    B = "b"

    @property
    def side(self) -> str:
        """``A`` or ``B``, as messages call them."""
        return self.value.upper()


class RowIn(Enum):
    """What is different about a row."""

    ONLY_A = "only-in-a"
    ONLY_B = "only-in-b"
    BOTH = "different"


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that could not be read."""

    text: str
    by_host: bool
    """A disk that does not answer, or rights: that says nothing of the store."""
    advice: Advice | None = None
    """That of an error which no damage has caused."""

    @classmethod
    def of(cls, error: StoreUnreadable | MalformedBytesError | InUse) -> Unread:
        """What an error says."""
        by_host = isinstance(error, StoreUnreadable) and error.by_host
        return cls(str(error), by_host=by_host, advice=own_advice(error))


@dataclass(frozen=True, slots=True)
class Difference:
    """A row that is not the same in both; None for a value that is not there."""

    key: bytes
    kind: str
    a: tuple[Layout, bytes] | None
    b: tuple[Layout, bytes] | None

    @property
    def rows(self) -> RowIn:
        """Where there is such a row."""
        if self.a is None:
            return RowIn.ONLY_B
        if self.b is None:
            return RowIn.ONLY_A
        return RowIn.BOTH


@dataclass(slots=True)
class StoreDiff:
    """One store of one task. ``where`` is ``A`` or ``B`` where the other directory has no such store."""

    task: str
    store: str
    where: In = In.BOTH
    kinds: tuple[str, str] = ("", "")
    rows_a: int = 0
    rows_b: int = 0
    only_a: int = 0
    only_b: int = 0
    different: int = 0
    left_out: tuple[str, ...] = ()
    """Fields that were not compared."""
    unreadable: Unread | None = None
    offsets: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """``changelog`` and ``position`` in A and in B, where they are not the same."""

    @property
    def comparable(self) -> bool:
        """Return True if rows of these two kinds can be compared."""
        # No kind: the store could not be opened, which is reported in another way.
        return self.where is not In.BOTH or not self.kinds[0] or comparable(*self.kinds)

    @property
    def equal(self) -> bool:
        """Return True if all rows are equal; False if any could not be read. Offsets do not count."""
        if self.unreadable is not None or self.where is not In.BOTH or not self.comparable:
            return False
        return not (self.only_a or self.only_b or self.different)


@dataclass(slots=True)
class Diff:
    """Everything that was compared. ``tasks`` are those that only one directory has: (name, which)."""

    stores: list[StoreDiff]
    tasks: list[tuple[str, In]]
    unreadable: list[Unread]
    """Problems of a directory outside the stores that were compared."""
    positions: bool
    as_of: tuple[str, str]
    remarks: tuple[str, ...] = ()
    """Facts that do not stop the comparison, and may be the reason of a difference."""

    @property
    def only_the_hosts(self) -> bool:
        """Return True if only this host cannot read some of it, which proves nothing about the stores."""
        return all(unread.by_host for unread in self.everything_unread)

    @property
    def everything_unread(self) -> list[Unread]:
        """Of the directories, and of stores."""
        return [*self.unreadable, *(store.unreadable for store in self.stores if store.unreadable is not None)]

    @property
    def unread(self) -> int:
        """Return how many parts could not be read: with any, the directories are not equal."""
        return len(self.unreadable) + sum(store.unreadable is not None for store in self.stores)

    @property
    def doubtful(self) -> int:
        """Return how many remarks leave a doubt: rows may be missing in both. None count while an application runs."""
        # While an application is running, missing SSTs and silent segments are its normal state.
        if set(self.as_of) != {"closed"}:
            return 0
        return len(self.remarks)

    @property
    def equal(self) -> bool:
        """Return True if all of both was read, and is the same."""
        return not (self.unread or self.differing or self.doubtful)

    @property
    def differing(self) -> int:
        """Return how many stores and tasks differ."""
        return len(self.tasks) + sum(self.differs(store) for store in self.stores)

    def differs(self, store: StoreDiff) -> bool:
        """Return True if a store counts as different."""
        return store.unreadable is None and (not store.equal or (self.positions and bool(store.offsets)))


class DiffWatcher:
    """Progress that a caller may print."""

    def difference(self, of: StoreDiff, difference: Difference) -> None:
        """A row that differs, as soon as it is known."""

    def store(self, compared: StoreDiff) -> None:
        """A store is done."""

    def at(self, of: StoreDiff, rows: int) -> None:
        """So many rows of a store were compared."""


Same = Callable[[bytes, bytes], bool]
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Compared:
    """The fields that values of two layouts are compared by, besides the value itself."""

    timestamps: bool
    headers: bool
    left_out: tuple[str, ...]
    """The fields that are not compared, each with the reason, for people."""


def comparable(kind: str, other: str) -> bool:
    """Return True for kinds with the same row keys. A key schema that bytes leave open counts as windows."""
    return _key_schema(kind) is _key_schema(other)


def _key_schema(kind: str) -> KeySchema:
    key = store_kind(kind).key
    # Bytes alone do not distinguish windows from sessions (docs/internals/stores.md#keys).
    if key is KeySchema.AMBIGUOUS:
        return KeySchema.WINDOW
    return key


def fields_to_compare(a: Layout, b: Layout, *, ignore_timestamps: bool, ignore_headers: bool) -> Compared:
    """Return the fields that both layouts have, without those that the user ignores."""
    left_out: list[str] = []
    answers = []
    for name, in_a, in_b, ignored, ignoring in (
        ("timestamps", a.has_timestamps, b.has_timestamps, ignore_timestamps, option.IGNORE_TIMESTAMPS),
        ("headers", a.has_headers, b.has_headers, ignore_headers, option.IGNORE_HEADERS),
    ):
        # A field that only one layout has is not compared: otherwise a migration to headers would look like changed
        # rows.
        answers.append(in_a and in_b and not ignored)
        if ignored and (in_a or in_b):
            left_out.append(f"{name}, because you passed {ignoring}")
        elif in_a != in_b:
            # The difference of the layouts is reported, because rows may count as equal although one side has more
            # information.
            side = "A"
            if in_a:
                side = "B"
            left_out.append(f"{name}, because the layout in {side} has none")
    return Compared(answers[0], answers[1], tuple(left_out))


def same_values(a: Layout, b: Layout, fields: Compared) -> Same:
    """Return a function that compares the value of a row in A with the value of the row with the same key in B.

    ``a`` and ``b`` are the layouts of the two stores. Equal values have the same bytes after the timestamp and headers
    are removed. Timestamps and headers must be equal too if ``fields`` includes them. The function raises
    MalformedBytesError if the bytes are no value of the layout.
    """
    # Assigned once, because the function below is called for every row.
    decode_a, decode_b = a.read, b.read
    same_layout = a.values is b.values

    def same(left: bytes, right: bytes) -> bool:
        # Most rows have equal bytes. Decoding all of them would take most of the time.
        if same_layout and left == right:
            return True
        value, other = decode_a(left), decode_b(right)
        return (
            value.value == other.value
            and (not fields.timestamps or value.timestamp == other.timestamp)
            and (not fields.headers or value.headers == other.headers)
        )

    return same


def value_fields(layout: Layout, data: bytes) -> Fields:
    """Return the parts of a value for people: bytes as hexadecimal digits, timestamp and headers if it has them."""
    read = layout.read(data)
    fields: Fields = {"value": read.value.hex()}
    if layout.has_timestamps:
        fields["timestamp"] = timestamp_or_none(read.timestamp)
    if layout.has_headers:
        fields["headers"] = [
            {"key": header.key, "value": None if header.value is None else header.value.hex()}
            for header in read.headers
        ]
    return fields


def is_value(layout: Layout, data: bytes) -> bool:
    """Return True if the bytes are a value of the layout."""
    try:
        layout.read(data)
    except MalformedBytesError:
        return False
    return True


def key_fields(kind: str, row: bytes) -> Fields:
    """Return the parts of a row key, bytes unchanged; the whole key if it is none of that kind."""
    try:
        return _key_fields(kind, row)
    except MalformedBytesError:
        return {"key": row}


def _key_fields(kind: str, row: bytes) -> Fields:
    """Return the parts of a row's key by name, for people."""
    schema = _key_schema(kind)
    key = schema.read(row)
    if isinstance(key, bytes):
        return {"key": key}
    if isinstance(key, WindowKey):
        # A row of a grace buffer has the layout of a window row, but the time of the record instead of the start.
        time = "window_start"
        if schema is KeySchema.BUFFER:
            time = "buffer_time"
        return {"key": key.key, time: key.start, "seq": key.seq}
    if isinstance(key, SessionKey):
        return {"key": key.key, "window_start": key.start, "window_end": key.end}
    if isinstance(key, VersionedKey):
        return {"key": key.key, "segment": "latest" if key.is_latest else key.segment}
    if isinstance(key, JoinSideKey):
        return {"key": key.key, "timestamp": key.timestamp, "side": key.side}
    assert isinstance(key, CombinedKey)
    return {"key": key.primary_key, "foreign_key": key.foreign_key}


def as_text(fields: Mapping[str, Any]) -> str:
    """Parts of a key on one line: the key first, the rest by name."""
    rest = "".join(f" {name}={_text(value)}" for name, value in fields.items() if name != "key")
    return f"{_text(fields['key'])}{rest}"


def as_json(fields: Mapping[str, Any]) -> Fields:
    """Parts of a key, bytes as hexadecimal digits."""
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


def _text(value: Any) -> str:
    if not isinstance(value, bytes):
        return str(value)
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{value.hex()}"
    if text and text.isprintable():
        return text
    return f"0x{value.hex()}"


Pair = tuple[bytes, bytes | None, bytes | None]
"""The key of a row, its value in A and in B; None if that side lacks the row."""
_KEY: Final = itemgetter(0)


def pairs(a: StoreReader, b: StoreReader, filled_a: Sequence[Segment], filled_b: Sequence[Segment]) -> Iterator[Pair]:
    """Yield every row of both stores once, with its value in A and in B (None if one side has no row with that key).

    ``filled_a`` and ``filled_b`` are the segments that have rows. If they begin at the same times in both stores, they
    are compared one after the other. Otherwise all segments of a store are merged by key, so that equal keys are
    compared even if they are in different segments. Raises StoreUnreadable.
    """
    # Comparing segment by segment needs one open iterator for each side. A merge needs one for each segment.
    if [segment.start for segment in filled_a] == [segment.start for segment in filled_b]:
        for left, right in zip(filled_a, filled_b, strict=True):
            yield from _join(rows_of("A", a, [left]), rows_of("B", b, [right]))
    else:
        yield from _join(rows_of("A", a, filled_a), rows_of("B", b, filled_b))


def rows_of(side: str, store: StoreReader, segments: Sequence[Segment]) -> Iterator[Row]:
    """Yield the rows of one store by key, without index rows. Raises StoreUnreadable, naming ``side``, A or B."""
    # Index rows follow from the base rows, and a store of another kind may have none.
    bounds = store.layout.key.base_rows
    try:
        scans = [segment.scan(*bounds) for segment in segments]
        # heapq.merge calls Python functions for every row, which a single segment does not need.
        if len(scans) == 1:
            yield from scans[0]
        else:
            yield from heapq.merge(*scans, key=_KEY)
    except StoreUnreadable as error:
        raise error.on(side) from None


def _join(left: Iterator[Row], right: Iterator[Row]) -> Iterator[Pair]:
    """Yield every key of two sorted iterators once, with its value on each side."""
    row, other = next(left, None), next(right, None)
    while row is not None or other is not None:
        # Both sides are sorted by key. So a key that is smaller than the other side's next key exists on one side only.
        if other is None or (row is not None and row[0] < other[0]):
            assert row is not None
            yield row[0], row[1], None
            row = next(left, None)
        elif row is None or other[0] < row[0]:
            yield other[0], None, other[1]
            other = next(right, None)
        else:
            yield row[0], row[1], other[1]
            row, other = next(left, None), next(right, None)

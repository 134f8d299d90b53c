"""One database of a store, its column families read as the newest layout, and the pool of open databases.

Opening a database costs milliseconds; keeping it open costs descriptors and memory. :class:`Databases` shares and
limits them. :class:`StoreReader` is one store of one task: its segments, layout and serdes, and the time before which
rows have expired.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstate_cli import option
from kstate_cli.errors import InUse, KstateError
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.host import STORES_STAY, host_error, most_descriptors
from kstate_cli.rocks.errors import RocksError, cannot_be_read
from kstate_cli.rocks.scanning import FlatPiece, PieceSizes, Row, in_pieces
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rows.errors import SerdeError, StoreUnreadable, look_closer
from kstate_cli.rows.records import Family, Layout
from kstate_cli.rows.serde_type import BYTES, SERDE_ERRORS, StoreSerdes
from kstate_cli.rows.values import FOREVER, Unreadable, ValueAndTimestamp
from kstate_cli.statedir.model import Store, Task
from kstate_cli.statedir.problems import Place
from kstate_cli.texts import command

UNREADABLE = (RocksError, OSError, MalformedBytesError, InUse)
"""The errors of reading a database."""


class Segment:
    """The rows of one database: a whole store, or one segment of it, from ``start`` until ``end`` (ms, exclusive)."""

    def __init__(
        self,
        path: Path,
        app: Path,
        start: int | None,
        layout: Layout,
        databases: Databases,
        *,
        end: int = FOREVER + 1,
    ) -> None:
        self.path = path
        self.app = app
        self.start = start
        self.end = end
        self._layout = layout
        self._databases = databases

    @property
    def relative_path(self) -> str:
        """Its path below the application directory: ``0_1/rocksdb/count``."""
        return str(self.path.relative_to(self.app))

    @property
    def _store(self) -> str:
        """The name of the store, which is that of the folder around a segment."""
        if self.start is None:
            return self.path.name
        return self.path.parent.name

    @property
    def _task(self) -> str | None:
        return Place.of(self.app, self.path).task

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a row in the newest layout, or None. Raise StoreUnreadable."""
        with self._reading() as shadow:
            # The newest family first, as Streams looks up a key: when Streams converts a row, the old one may stay in
            # the older family.
            for family, prefix in self._present(shadow):
                value = shadow.get(family, key)
                if value is not None:
                    return prefix + value
        return None

    def scan(self, lower: bytes | None = None, below: bytes | None = None, *, reverse: bool = False) -> Iterator[Row]:
        """Yield the rows with ``lower <= key < below``, values in the newest layout.

        The database is open from the first row to the last, or until the iterator is dropped. Raises StoreUnreadable at
        any row, the first too.
        """
        with self._reading() as shadow:
            yield from _rows(shadow, self._filled(shadow), lower, below, reverse=reverse)

    def pieces(self, lower: bytes | None, below: bytes | None, sizes: PieceSizes) -> Iterator[FlatPiece]:
        """Yield the rows of :meth:`scan`, forwards, in lists of many rows."""
        with self._reading() as shadow:
            families = self._filled(shadow)
            # Usually there is one family, whose values are in the newest layout already. Then no object is needed for
            # each row.
            if [prefix for _, prefix in families] == [b""]:
                yield from shadow.flat(families[0][0], lower, below, sizes)
            else:
                yield from in_pieces(_rows(shadow, families, lower, below), sizes)

    def ids(self, prefix_bytes: int) -> list[bytes]:
        """Return the distinct beginnings of its keys, of ``prefix_bytes`` bytes each, ascending.

        Raise StoreUnreadable.
        """
        prefixes: list[bytes] = []
        lower: bytes | None = b""
        while lower is not None:
            row = next(self.scan(lower), None)
            if row is None:
                break
            prefixes.append(row[0][:prefix_bytes])
            # Seeks to the first row after all rows with this prefix, instead of reading these rows.
            lower = next_prefix(prefixes[-1])
        return prefixes

    def own(self, time: int) -> int:
        """Return ``time``, that of a row in this segment.

        Raise StoreUnreadable if the row belongs to another segment.
        """
        # Streams computes the segment by a division towards zero, so rows before 1970 are in segment 0.
        if not (self.start or 0) <= max(time, 0) < self.end:
            raise StoreUnreadable(
                f"{self.relative_path} has a row of {time}, which is outside this segment, so the segments do not "
                "all have the same segment interval",
                hint="the store's retention was changed, or a segment was renamed. To read the rows of every segment:",
                hint_details=[command("query", "raw-scan", self.app, self._store)],
                is_damage=False,
            )
        return time

    def _filled(self, shadow: Shadow) -> list[Family]:
        return [family for family in self._present(shadow) if _has_rows(shadow, family[0])]

    def _present(self, shadow: Shadow) -> list[Family]:
        """Return the families of the layout that the database has. Raise StoreUnreadable if it has any other one."""
        foreign = set(shadow.column_families) - {name for name, _ in self._layout.families} - {OFFSETS_CF}
        if foreign:
            # Rows of the other family would be missing from every result.
            names = ", ".join(sorted(foreign))
            raise StoreUnreadable(
                f"{self.relative_path}: column family {names} does not belong to a {self._layout.kind} store",
                hint=(
                    "this database does not belong to the store, or a newer release wrote it. Replace it with the "
                    "right one. Or move it out with a command that you can undo:"
                ),
                hint_details=[command("wipe", self.app, option.TASK, str(self._task), option.STORE, self._store)],
                is_damage=False,
            )
        return [family for family in self._layout.families if family[0] in shadow.column_families]

    def blame(self, error: Exception) -> KstateError:
        """Return the error to raise for ``error``.

        Its message has the file that ``error`` names, otherwise the database.

        A shortage of this host, a disk that does not answer, or another process says nothing about the store. Then the
        message neither mentions damage nor suggests to rebuild the store.
        """
        if isinstance(error, InUse):
            return StoreUnreadable(
                f"{self.relative_path}: {error.message}",
                hint=error.hint or look_closer(self.app),
                hint_details=error.hint_details,
            )
        # A shortage of the host is checked first, because it would make any database look unreadable.
        if isinstance(error, OSError) and (short := host_error(error)) is not None:
            return short
        if isinstance(error, OSError) and cannot_be_read(error):
            text = f"kstate cannot read {self.relative_path}: {error.strerror}"
            return StoreUnreadable(text, hint=STORES_STAY, by_host=True)
        text = str(error)
        if not self._is_named_by(error):
            text = f"{self.relative_path}: {error}"
        if cannot_be_read(error):
            return StoreUnreadable(text, hint=STORES_STAY, by_host=True)
        rebuild = command("restore", self.app, option.FROM_CHANGELOG, "DUMP", option.FOR, "RELEASE")
        return StoreUnreadable(
            text,
            hint=look_closer(self.app),
            hint_details=[f"to rebuild the store from a dump, run {rebuild}"],
        )

    def _is_named_by(self, error: Exception) -> bool:
        """Return whether the text of an error names the place."""
        if isinstance(error, OSError):
            return isinstance(error.filename, str) and Path(error.filename).is_relative_to(self.path)
        return isinstance(error, RocksError) and error.names_database

    @contextmanager
    def _reading(self) -> Iterator[Shadow]:
        try:
            # take is inside of the outer try, because opening a database fails with the same errors as reading it.
            shadow = self._databases.take(self.path)
            try:
                yield shadow
            finally:
                self._databases.give_back(self.path)
        except UNREADABLE as error:
            raise self.blame(error) from None


def next_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest bytes that are greater than all bytes with this prefix; None if there are none."""
    # A byte ff cannot be increased. So trailing ones are removed, and the byte before them is increased.
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def _has_rows(shadow: Shadow, family: str) -> bool:
    return next(shadow.scan(family), None) is not None


def _rows(
    shadow: Shadow, families: list[Family], lower: bytes | None, below: bytes | None, *, reverse: bool = False
) -> Iterator[Row]:
    scans = [_converted(shadow.scan(name, lower, below, reverse=reverse), prefix) for name, prefix in families]
    if len(scans) == 1:
        return scans[0]  # no merge: most stores have one family with rows
    return _newest(scans, reverse)


def _converted(rows: Iterator[Row], prefix: bytes) -> Iterator[Row]:
    return ((key, prefix + value) for key, value in rows) if prefix else rows


def _newest(scans: list[Iterator[Row]], reverse: bool) -> Iterator[Row]:
    """Merge rows by key.

    If families have the same key, the row of the family that comes first in the layout is kept.
    """
    last: bytes | None = None
    # heapq.merge is stable: of equal keys, the one from the first iterator comes first, in both directions.
    for key, value in heapq.merge(*scans, key=lambda row: row[0], reverse=reverse):
        if key != last:
            yield key, value
            last = key


_IDLE = 16
"""The number of unused databases that stay open for the next query. Each has open SSTs and a table cache."""


@dataclass(slots=True)
class _Open:
    shadow: Shadow
    users: int = 0


class Databases:
    """A pool of open shadows.

    If more than ``_IDLE`` are unused, the ones that are unused for the longest time are closed.
    """

    def __init__(self) -> None:
        # Raises the limit of descriptors: a query of all partitions opens a database for each of them.
        most_descriptors()
        self._open: OrderedDict[Path, _Open] = OrderedDict()

    def take(self, path: Path) -> Shadow:
        """Return the database in ``path``; the caller gives it back. Raise RocksError and OSError."""
        entry = self._open.get(path)
        if entry is None:
            entry = self._open[path] = _Open(Shadow(path).__enter__())
        entry.users += 1
        # Moved to the end, so that the database at the beginning is the least recently used one, which is closed first.
        self._open.move_to_end(path)
        return entry.shadow

    def give_back(self, path: Path) -> None:
        """End one use of a database."""
        entry = self._open.get(path)
        if entry is None:
            return  # close() was called meanwhile
        entry.users -= 1
        idle = [other for other, state in self._open.items() if not state.users]
        # Only unused databases are closed, so that no iterator loses its database.
        for other in idle[: max(0, len(idle) - _IDLE)]:
            self._open.pop(other).shadow.close()

    def close(self) -> None:
        """Close all of them, used or not."""
        while self._open:
            self._open.popitem()[1].shadow.close()


@dataclass(frozen=True, slots=True)
class ReadAs:
    """The options of the caller for reading a store."""

    kind: str | None = None
    """Its kind in the specification."""
    serdes: StoreSerdes = field(default_factory=StoreSerdes)
    retention_ms: int | None = None
    """Rows expire after so many ms, by the newest row of the store; None: never."""


class StoreReader:
    """A store to read. It opens databases at the first reading, and never writes."""

    def __init__(
        self,
        task: Task,
        store: Store,
        layout: Layout,
        segments: tuple[Segment, ...],
        read_as: ReadAs,
        *,
        misplaced_segments: StoreUnreadable | None = None,
    ) -> None:
        self.name = store.name
        self.task = task.name
        self.partition = task.partition
        self.layout = layout
        self.segments = segments
        """In the order of their starts; a store that is not segmented has one without a start."""
        self.serdes = read_as.serdes
        self.retention_ms = read_as.retention_ms
        self._misplaced_segments = misplaced_segments
        """The error that queries by time raise if a sampled row is outside of its segment; None if all are inside."""
        self._read = layout.read
        self._earliest: int | None = None

    @property
    def kind(self) -> str:
        """A name of ``formats.store_kinds``."""
        return self.layout.kind

    def __str__(self) -> str:
        return f"{self.kind} store {self.name} of task {self.task}"

    @property
    def database(self) -> Segment | None:
        """The only database of a store that is not segmented; None if it was never opened."""
        if self.layout.key.expires:
            raise StoreUnreadable(f"{self} has a database per segment")
        if not self.segments:
            return None
        return self.segments[0]

    def between(self, time_from: int, time_to: int) -> tuple[Segment, ...]:
        """Return the segments that may have rows from ``time_from`` to ``time_to``, in the order of time.

        Raises StoreUnreadable if rows and starts of segments contradict each other.
        """
        if self._misplaced_segments is not None:
            raise self._misplaced_segments
        return tuple(
            segment for segment in self.segments if (segment.start or 0) <= time_to and segment.end > time_from
        )

    def earliest(self, stream_time: Callable[[StoreReader], int | None]) -> int:
        """Return the first time that has not expired: that of the newest row minus the retention; 0 if nothing expires.

        ``stream_time`` returns the time of the newest row; None without rows.
        """
        if self.retention_ms is None:
            return 0
        if self._earliest is None:
            newest = stream_time(self)
            self._earliest = 0
            if newest is not None:
                # Computed once for each reader, so that all rows of a query expire at the same time.
                self._earliest = max(0, newest - self.retention_ms + 1)
        return self._earliest

    # --- keys and values -----------------------------------------------------------------------------------------

    @property
    def plain_bytes(self) -> bool:
        """Whether keys and values need no decoding at all."""
        return self.layout.decode is None and self.serdes.key is BYTES and self.serdes.value is BYTES

    def key_bytes(self, key: Any) -> bytes:
        """Return a key as bytes of the store. Raise SerdeError."""
        serde = self.serdes.key
        try:
            return serde.serialize(key)
        except SERDE_ERRORS as error:
            raise self._serde_error(f"kstate cannot write key {key!r}", serde.name, error) from None

    def key(self, data: bytes) -> Any:
        """Return a key as a value of the caller. Raise SerdeError, unless the serdes are tolerant."""
        serde = self.serdes.key
        try:
            return serde.deserialize(data)
        except SERDE_ERRORS as error:
            return self._unreadable(data, self._serde_error(f"kstate cannot read key {data!r}", serde.name, error))

    def value(self, data: bytes, key: bytes | None = None) -> Any:
        """Return the value of a row, without timestamp and headers; ``key`` is for messages.

        Raises SerdeError and MalformedBytesError, unless the serdes are tolerant.
        """
        return self.stamped(data, key).value

    def stamped(self, data: bytes, key: bytes | None = None) -> ValueAndTimestamp[Any]:
        """Return the value of a row with its timestamp; -1 in a store without. Raise as :meth:`value`."""
        try:
            parts = self._read(data)
        except MalformedBytesError as error:
            if not self.serdes.tolerant:
                raise
            why = f"{self.task}/{self.name}: {_value_of(key)} does not belong to a {self.kind} store: {error}"
            return ValueAndTimestamp(Unreadable(data, why), -1)
        return ValueAndTimestamp(self._deserialized(parts.value, key), parts.timestamp, parts.headers)

    def _deserialized(self, value: bytes, key: bytes | None) -> Any:
        serde = self.serdes.value
        try:
            return serde.deserialize(value)
        except SERDE_ERRORS as error:
            return self._unreadable(value, self._serde_error(f"kstate cannot read {_value_of(key)}", serde.name, error))

    def _unreadable(self, data: bytes, error: SerdeError) -> Unreadable:
        if not self.serdes.tolerant:
            raise error
        return Unreadable(data, error.message)

    def _serde_error(self, failure: str, serde: str, error: Exception) -> SerdeError:
        return SerdeError(
            f"{self.task}/{self.name}: {failure} as {serde}: {error}",
            hint="pass the application's serde, or hex",
        )


def _value_of(key: bytes | None) -> str:
    if key is None:
        return "a value"
    return f"the value of key {key!r}"

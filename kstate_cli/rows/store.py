"""One store of one task for handlers: its databases, layout and serdes, and the time before which rows have expired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kstate_cli.formats.malformed import MalformedBytesError
from kstate_cli.rows.errors import SerdeError, StoreUnreadable
from kstate_cli.rows.layout import Layout
from kstate_cli.rows.segment import Segment
from kstate_cli.rows.serde_type import BYTES, SERDE_ERRORS, StoreSerdes
from kstate_cli.rows.values import Unreadable, ValueAndTimestamp
from kstate_cli.statedir.model import Store, Task


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
        return self.segments[0] if self.segments else None

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
        """Return the first time that has not expired: that of the newest row less the retention; 0 without one."""
        if self.retention_ms is None:
            return 0
        if self._earliest is None:
            newest = stream_time(self)
            self._earliest = 0 if newest is None else max(0, newest - self.retention_ms + 1)
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
            raise self._serde_error(f"key {key!r} cannot be written", serde.name, error) from None

    def key(self, data: bytes) -> Any:
        """Return a key as a value of the caller. Raise SerdeError, unless the serdes are tolerant."""
        serde = self.serdes.key
        try:
            return serde.deserialize(data)
        except SERDE_ERRORS as error:
            return self._unreadable(data, self._serde_error(f"key {data!r} cannot be read", serde.name, error))

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
            why = f"{self.task}/{self.name}: {_value_of(key)} is none of a {self.kind} store: {error}"
            return ValueAndTimestamp(Unreadable(data, why), -1)
        return ValueAndTimestamp(self._deserialized(parts.value, key), parts.timestamp, parts.headers)

    def _deserialized(self, value: bytes, key: bytes | None) -> Any:
        serde = self.serdes.value
        try:
            return serde.deserialize(value)
        except SERDE_ERRORS as error:
            return self._unreadable(value, self._serde_error(f"{_value_of(key)} cannot be read", serde.name, error))

    def _unreadable(self, data: bytes, error: SerdeError) -> Unreadable:
        if not self.serdes.tolerant:
            raise error
        return Unreadable(data, error.message)

    def _serde_error(self, failure: str, serde: str, error: Exception) -> SerdeError:
        return SerdeError(
            f"{self.task}/{self.name}: {failure} as {serde}: {error}",
            hint="name the serde that the application uses, or hex",
        )


def _value_of(key: bytes | None) -> str:
    return "a value" if key is None else f"the value of key {key!r}"

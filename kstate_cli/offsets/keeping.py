"""How a release keeps the offsets and the Positions of a task's stores, as steps of a plan: nobody else makes them.

From 4.3 on (KIP-1035) both are in the column family ``offsets`` of every database of a store: in an empty one where it
has none. The offset of a grace buffer is in ``.checkpoint_<store>`` all the same. Up to 4.2 the offsets of a task's
stores are the lines of its ``.checkpoint``, and each Position is a file of its own, ``<store>.position``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kstate_cli.change.plan import CreateDatabase, RemoveFile, WriteFile
from kstate_cli.formats.checkpoint import render
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord
from kstate_cli.formats.position import Position
from kstate_cli.formats.store_kinds import has_key
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.statedir.names import CHECKPOINT, position_file, segment_folder, store_checkpoint, store_folder

Offsets = Mapping[TopicPartition, int]
FIRST_SEGMENT = 0
"""What a store has that is segmented and has no row: 0 is a multiple of every segment interval.

Without any segment its offset would have no home, and, under exactly-once, 4.3 wipes the whole task at every start.
"""


def closed(offsets: Offsets, position: Position | None = None) -> OffsetsRecord:
    """What the column family ``offsets`` holds of a store that was closed."""
    known = None if position is None or position.is_empty else position
    return OffsetsRecord(dict(offsets), known, STATUS_CLOSED)


def in_a_file(kind: str) -> bool:
    """Whether 4.3 keeps the offset of such a store in ``.checkpoint_<store>``, not inside."""
    return has_key(kind, KeySchema.BUFFER)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The steps that keep offsets and Positions of one task. ``task`` is its directory, relative to the application's.

    What renders a file raises ValueError for offsets that Streams does not write, or could not read back.
    """

    task: str

    def carrier(self, store: str, record: OffsetsRecord, *, segmented: bool) -> CreateDatabase:
        """A database without rows, which is all that the store has."""
        path = f"{self.task}/{store_folder(store, segmented=segmented)}"
        if segmented:
            return CreateDatabase(f"{path}/{segment_folder(store, FIRST_SEGMENT)}", record)
        return CreateDatabase(path, record, "create empty store")

    def lines(self, offsets: Offsets, *, keep_time: bool = False) -> WriteFile:
        """``.checkpoint``."""
        return self._offsets(CHECKPOINT, offsets, keep_time=keep_time)

    def without_lines(self, why: str) -> RemoveFile:
        """No ``.checkpoint``."""
        return self._without(CHECKPOINT, why)

    def lines_of(self, store: str, offsets: Offsets) -> WriteFile:
        """``.checkpoint_<store>``."""
        return self._offsets(store_checkpoint(store), offsets)

    def without_lines_of(self, store: str, why: str) -> RemoveFile:
        """No ``.checkpoint_<store>``."""
        return self._without(store_checkpoint(store), why)

    def position(self, store: str, position: Position, what: str) -> WriteFile:
        """``<store>.position``; ``what`` is its line in the plan."""
        return WriteFile(f"{self.task}/{position_file(store)}", render(position.to_checkpoint_entries()), what)

    def without_position(self, store: str, why: str) -> RemoveFile:
        """No ``<store>.position``."""
        return self._without(position_file(store), why)

    def _offsets(self, name: str, offsets: Offsets, *, keep_time: bool = False) -> WriteFile:
        return WriteFile(f"{self.task}/{name}", render(offsets), f"offsets: {offsets_text(offsets)}", keep_time)

    def _without(self, name: str, why: str) -> RemoveFile:
        return RemoveFile(f"{self.task}/{name}", why)

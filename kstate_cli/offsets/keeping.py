"""How a release stores the offsets and the Positions of a task's stores, as steps of a plan.

Only this module makes these steps.

From 4.3 on (KIP-1035) both are in the column family ``offsets`` of every database of a store. A store without a
database gets an empty one for them. Only the offset of a grace buffer is in ``.checkpoint_<store>``. Up to 4.2 the
offsets of a task's stores are the lines of its ``.checkpoint``, and each Position is in ``<store>.position``.

If a store is removed from its task, the offset -4 replaces its offset. Under exactly-once Streams deletes a whole task
in which a logged store has no offset (docs/internals/start.md#wiped-tasks). -4 means "consistent, read from the
beginning". It is a line of ``.checkpoint`` up to 4.2, and in an empty database from 4.3 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kstate_cli.change.plan import CreateDatabase, RemoveFile, WriteFile
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN, render
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.offsets import STATUS_CLOSED, OffsetsRecord, Position
from kstate_cli.formats.store_kinds import OFFSETS_CF, has_key
from kstate_cli.formats.topic_partition import TopicPartition, offsets_text
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.resolve import usual_changelog
from kstate_cli.releases import RELEASES, OffsetsHome, Release, representative
from kstate_cli.statedir.model import Application, Store
from kstate_cli.statedir.names import CHECKPOINT, position_file, segment_folder, store_checkpoint, store_folder
from kstate_cli.texts import plural

Offsets = Mapping[TopicPartition, int]
FIRST_SEGMENT = 0
"""The start of the only segment of a segmented store without rows: 0 is a multiple of every segment interval.

Without this segment the offset could not be stored, and under exactly-once 4.3 would wipe the whole task at every
start.
"""


def closed(offsets: Offsets, position: Position | None = None) -> OffsetsRecord:
    """Return the contents of the column family ``offsets`` of a store that was closed; no Position if it is empty."""
    # An empty Position needs no row: Streams would merge it, which changes nothing.
    if position is not None and position.is_empty:
        position = None
    return OffsetsRecord(dict(offsets), position, STATUS_CLOSED)


def in_a_file(kind: str) -> bool:
    """Return True if 4.3 keeps the offset of such a store in ``.checkpoint_<store>``."""
    return has_key(kind, KeySchema.BUFFER)


@dataclass(frozen=True, slots=True)
class Keeping:
    """The steps that store offsets and Positions of one task; ``task`` is its directory, relative to the application's.

    Methods that render a file raise ValueError for offsets that Streams does not write, or could not read back.
    """

    task: str

    def carrier(self, store: str, record: OffsetsRecord, *, segmented: bool) -> CreateDatabase:
        """Return the step that creates the only database of a store: without rows, with ``record`` as its offsets."""
        path = f"{self.task}/{store_folder(store, segmented=segmented)}"
        if segmented:
            return CreateDatabase(f"{path}/{segment_folder(store, FIRST_SEGMENT)}", record)
        return CreateDatabase(path, record, "create empty store")

    def lines(self, offsets: Offsets, *, keep_time: bool = False) -> WriteFile:
        """Return the step that writes ``.checkpoint``; ``keep_time`` keeps the mtime of the file that it replaces."""
        return self._offsets(CHECKPOINT, offsets, keep_time=keep_time)

    def without_lines(self, why: str) -> RemoveFile:
        """Return the step that removes ``.checkpoint``."""
        return self._without(CHECKPOINT, why)

    def lines_of(self, store: str, offsets: Offsets) -> WriteFile:
        """Return the step that writes ``.checkpoint_<store>``."""
        return self._offsets(store_checkpoint(store), offsets)

    def without_lines_of(self, store: str, why: str) -> RemoveFile:
        """Return the step that removes ``.checkpoint_<store>``."""
        return self._without(store_checkpoint(store), why)

    def position(self, store: str, position: Position, summary: str) -> WriteFile:
        """Return the step that writes ``<store>.position``; ``summary`` is its line in the plan."""
        entries = position.to_checkpoint_entries()
        short = ""
        if len(entries) > 1:
            short = f"position of {plural(len(entries), 'partition')}"
        return WriteFile(f"{self.task}/{position_file(store)}", render(entries), summary, short_text=short)

    def without_position(self, store: str, why: str) -> RemoveFile:
        """Return the step that removes ``<store>.position``."""
        return self._without(position_file(store), why)

    def _offsets(self, name: str, offsets: Offsets, *, keep_time: bool = False) -> WriteFile:
        # A task may have dozens of changelogs, and a terminal shows a step on one line.
        short = ""
        if len(offsets) > 1:
            short = plural(len(offsets), "changelog offset")
        text = f"offsets: {offsets_text(offsets)}"
        return WriteFile(f"{self.task}/{name}", render(offsets), text, keep_time, short)

    def _without(self, name: str, why: str) -> RemoveFile:
        return RemoveFile(f"{self.task}/{name}", why)


def keeps_offsets_inside(app: Application) -> bool:
    """Return True if a release that keeps offsets in its stores has opened the application."""
    return any(task.has_offsets_family for task in app.tasks)


def release_of(app: Application) -> Release:
    """Return any release that stores offsets in the same place as this directory."""
    # One database with the column family is enough, because releases up to 4.2 cannot open such a directory.
    home = OffsetsHome.FILES
    if keeps_offsets_inside(app):
        home = OffsetsHome.COLUMN_FAMILY
    return representative([release for release in RELEASES if release.offsets_home is home])


def left_behind(
    keeping: Keeping, store: Store, unknown: Mapping[TopicPartition, int], *, inside: bool
) -> Iterator[CreateDatabase | WriteFile | RemoveFile]:
    """Yield the steps after which the removal of ``store`` does not make exactly-once 4.3 wipe the rest of the task.

    ``unknown`` has the changelog partitions of the store, each with the offset -4; it is empty if the store has no
    changelog. ``inside`` is the result of :func:`keeps_offsets_inside`.
    """
    if store.store_file is not None:
        # The file remains if the folder of its store is removed. 4.3 reads it for a custom store and for a grace
        # buffer.
        if unknown:
            yield keeping.lines_of(store.name, unknown)
        else:
            yield keeping.without_lines_of(store.name, "the store is wiped")
    # If the store is too damaged to show its column families, those of other stores show which release ran last.
    keeps_offsets = store.has_offsets_family or (_unreadable(store) and inside)
    # Up to 4.2 the caller writes -4 into .checkpoint. For a grace buffer the file above has it.
    if not keeps_offsets or store.is_grace_buffer or not unknown:
        return
    yield keeping.carrier(store.name, closed(unknown), segmented=store.segmented)


def offset_unreadable(store: Store) -> bool:
    """Return True if the store may have an offset that kstate cannot read because of damage."""
    # A database has the column family, but its rows could not be decoded.
    return _unreadable(store) or any(
        OFFSETS_CF in database.column_families and database.offsets is None for database in store.databases
    )


def _unreadable(store: Store) -> bool:
    return not any(database.column_families for database in store.databases)


@dataclass(slots=True)
class Guesses:
    """The changelogs that stores probably have whose databases cannot be read, or whose line is missing."""

    app: Application
    tasks: Sequence[TaskOffsets]
    """The offsets of all tasks: the same store in another task may show which changelog it has."""
    warnings: list[str]
    """Gets a text for each assumption that no other task confirms."""
    _topics: dict[str, set[str]] = field(default_factory=dict)
    """Store name -> the topics of its changelog, so that the store gets the same ones in every task."""

    def offsets(self, task: TaskOffsets, store: StoreOffsets) -> Offsets:
        """Return the offsets of a store. If it has none, return −4 for each partition of its probable changelog.

        The result is empty if the store probably has no changelog.
        """
        if store.offsets or task.task.partition is None:
            return store.offsets
        name = store.store.name
        # The same store has the same changelog topic in all tasks, only other partitions of it.
        twins = [twin for twin in self._stores(name) if twin is not store]
        topics = {key.topic for twin in twins for key in twin.offsets} | self._topics.get(name, set())
        if not topics:
            # The store is probably not logged: it is readable in another task, where it has no offset either, or no
            # .checkpoint has a line for it.
            readable = any(not _unreadable(twin.store) for twin in twins)
            if readable or not keeps_offsets_inside(self.app):
                return store.offsets
            # The usual name of a changelog is only a guess, so a warning reports it. Without any offset 4.3 would
            # certainly wipe the task.
            topics = {usual_changelog(self.app.app_id, task.task, name).topic}
            self.warnings.append(
                f"kstate cannot read {task.task.name}/{name} and assumes that the store's changelog is "
                f"{min(topics)}. If the store has a different changelog, Streams wipes the whole task under "
                "exactly-once"
            )
        self._topics[name] = topics
        return {TopicPartition(topic, task.task.partition): OFFSET_UNKNOWN for topic in topics}

    def _stores(self, name: str) -> Iterator[StoreOffsets]:
        """Yield the stores of this name in all tasks."""
        return (store for task in self.tasks for store in task.stores if store.store.name == name)

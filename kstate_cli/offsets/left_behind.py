"""What a store leaves behind when it leaves its task: the offset -4, without which the rest of the task is wiped.

Under exactly-once Streams deletes a whole task in which a logged store has no offset
(docs/internals/start.md#wiped-tasks). -4 says "consistent, read from the beginning": as the line of ``.checkpoint`` up
to 4.2, in an empty database from 4.3 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kstate_cli.change.plan import CreateDatabase, RemoveFile, WriteFile
from kstate_cli.formats.checkpoint import OFFSET_UNKNOWN
from kstate_cli.formats.families import OFFSETS_CF
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.offsets.keeping import Keeping, Offsets, closed
from kstate_cli.offsets.model import StoreOffsets, TaskOffsets
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.releases import RELEASES, OffsetsHome, Release, representative
from kstate_cli.statedir.model import Application, Store


def keeps_offsets_inside(app: Application) -> bool:
    """Whether a release has opened the application that keeps offsets in its stores."""
    return any(task.has_offsets_family for task in app.tasks)


def release_of(app: Application) -> Release:
    """A release that keeps offsets where they are in this directory."""
    home = OffsetsHome.COLUMN_FAMILY if keeps_offsets_inside(app) else OffsetsHome.FILES
    return representative([release for release in RELEASES if release.offsets_home is home])


def left_behind(
    keeping: Keeping, store: Store, unknown: Mapping[TopicPartition, int], *, inside: bool
) -> Iterator[CreateDatabase | WriteFile | RemoveFile]:
    """What keeps 4.3 under exactly-once from wiping the rest of the task; ``unknown`` are the store's, each -4.

    ``inside``: :func:`keeps_offsets_inside`.
    """
    if store.store_file is not None:
        if unknown:
            yield keeping.lines_of(store.name, unknown)
        else:
            yield keeping.without_lines_of(store.name, "its store is wiped")
    keeps_offsets = store.has_offsets_family or (_unreadable(store) and inside)
    if not keeps_offsets or store.is_grace_buffer or not unknown:
        return
    yield keeping.carrier(store.name, closed(unknown), segmented=store.segmented)


def offset_unreadable(store: Store) -> bool:
    """Whether there may be an offset that damage hides."""
    return _unreadable(store) or any(
        OFFSETS_CF in database.column_families and database.offsets is None for database in store.databases
    )


def _unreadable(store: Store) -> bool:
    return not any(database.column_families for database in store.databases)


@dataclass(slots=True)
class Guesses:
    """Which changelog a store is taken to have where its databases cannot be read, or its line is gone."""

    app: Application
    tasks: Sequence[TaskOffsets]
    """Of the whole application: other partitions tell."""
    warnings: list[str]
    """Where what was guessed is told."""
    _topics: dict[str, set[str]] = field(default_factory=dict)

    def offsets(self, task: TaskOffsets, one: StoreOffsets) -> Offsets:
        """What damage hides, or a line that is gone. Which changelog it has other tasks tell, else its usual name."""
        if one.offsets or task.task.partition is None:
            return one.offsets
        same = [s for other in self.tasks for s in other.stores if s.store.name == one.store.name and s is not one]
        topics = {tp.topic for s in same for tp in s.offsets} | self._topics.get(one.store.name, set())
        if not topics and any(not _unreadable(s.store) for s in same):
            return one.offsets  # the others have none: it is not logged
        if not topics and not keeps_offsets_inside(self.app):
            return one.offsets  # no line of .checkpoint anywhere: it is not logged
        if not topics:
            topics = {usual_changelog(self.app.app_id, task.task, one.store.name).topic}
            self.warnings.append(
                f"{task.task.name}/{one.store.name} cannot be read: its changelog is taken to be {min(topics)}; if it "
                "has another, exactly-once Streams wipes the whole task at the next start"
            )
        self._topics[one.store.name] = topics
        return {TopicPartition(topic, task.task.partition): OFFSET_UNKNOWN for topic in topics}

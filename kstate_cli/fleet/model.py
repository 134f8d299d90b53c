"""What each host said of its stores, as far as it could be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kstate_cli.formats.task_id import TaskId
from kstate_cli.formats.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A store of a task on one host: one line ``store`` of ``kstate ls -o json``."""

    task: str
    store: str
    kind: str
    kind_certain: bool
    has_directory: bool
    """False where only an offset is there: a custom store, one in memory, or one that is gone."""
    segmented: bool
    size: int
    """Bytes."""
    offsets: Mapping[TopicPartition, int] | None
    """As they are stored: of the last record applied, for a global store of the next one. None where unreadable."""
    inputs: frozenset[TopicPartition]
    """The partitions of source topics that its Position has."""
    opens_in: tuple[str, ...]
    offsets_in: str
    """Where the offset is kept, as ``kstate ls`` calls it."""
    unclean: bool
    """The application is stopped, and what it left may hold uncommitted rows."""

    @property
    def id(self) -> TaskId:
        """What the name of the task says."""
        return TaskId.parse(self.task)


@dataclass(frozen=True, slots=True)
class ToldProblem:
    """A line ``problem``, or the error that a listing ended with."""

    code: str
    task: str | None
    path: str
    said: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Why what a host said is not all, and on which line of its file that shows; None where it is of no line."""

    line: int | None
    why: str


@dataclass(slots=True)
class HostReport:
    """What was read of one host."""

    name: str
    source: str
    """The file, or ``-``."""
    line: int
    """Its first line in that file."""
    app: str | None = None
    """The application directory there, absolute."""
    hostname: str | None = None
    """What the host calls itself; None of an older kstate."""
    process_id: str | None = None
    """``processId`` of ``kafka-streams-process-metadata``; None where it is not known."""
    tells_process_id: bool = False
    """False of an older kstate, which says nothing of it."""
    running: bool | None = None
    copies: list[StoreCopy] = field(default_factory=list)
    problems: list[ToldProblem] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all that the host has is here."""
        return not self.gaps

    @property
    def app_id(self) -> str | None:
        """``application.id``: the name of the directory."""
        return None if self.app is None else self.app.rstrip("/").rpartition("/")[2]

    @property
    def size(self) -> int:
        """Bytes of its stores."""
        return sum(one.size for one in self.copies)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks that it has, in order."""
        return tuple(sorted({one.task for one in self.copies}, key=lambda name: TaskId.parse(name).order))

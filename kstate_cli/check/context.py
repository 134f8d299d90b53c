"""What all rules look at: the application, the release, the guarantee, the logs; and where findings are collected."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import timedelta

from kstate_cli.change.ages import Age
from kstate_cli.check.findings import Finding, Level, finding
from kstate_cli.check.grid import off_grid
from kstate_cli.check.logs import LogSource
from kstate_cli.check.outcome import Records
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.logs.log import Log
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.owners import usual_changelog
from kstate_cli.releases import OffsetsHome, Release
from kstate_cli.statedir.model import Application, Database, Store, Task
from kstate_cli.statedir.names import CHECKPOINT, LOCK
from kstate_cli.texts import filled


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asks about."""

    release: Release
    exactly_once: bool = True
    logs: tuple[LogSource, ...] = ()
    """The first that knows a partition tells; the others only whether they name the same topic."""
    headers_format: bool = False
    """The application is started with ``dsl.store.format=HEADERS``."""
    max_age: timedelta | None = None
    """``state.cleanup.dir.max.age.ms``; None is off, as it is by default."""
    delete_retention: timedelta | None = None
    """``delete.retention.ms`` of the changelogs; None: what the broker or the dump says, or a day."""

    @property
    def into_family(self) -> bool:
        """True for a release that keeps offsets in the column family."""
        return self.release.offsets_home is OffsetsHome.COLUMN_FAMILY


@dataclass(slots=True)
class Context:
    """One check."""

    app: Application
    asked: Asked
    resolved: dict[str, TaskOffsets]
    findings: list[Finding] = field(default_factory=list)
    ages: tuple[Age, ...] = ()
    """What kstate knows of the age of stores that it has made."""

    def found(self, code: str, text: str, task: Task | None = None, store: str | None = None,
              level: Level | None = None) -> str:  # fmt: skip
        """Adds a finding, once; returns its code."""
        name = task.name if task else None
        new = finding(code, text, task=name, store=store, level=level)
        values: dict[str, str | os.PathLike[str] | None]
        values = {"APP": self.app.path, "RELEASE": self.asked.release.name, "TASK": name, "STORE": store}
        new = replace(new, mend=filled(new.mend, values))
        if new not in self.findings:
            self.findings.append(new)
        return code

    def log(self, key: TopicPartition) -> Log | None:
        """The log of a partition, by the first source that knows it."""
        return next((log for log in (source.log(key) for source in self.asked.logs) if log is not None), None)

    def lacks(self, key: TopicPartition) -> bool:
        """Whether the broker that was asked has no such partition."""
        return any(source.lacks(key) for source in self.asked.logs)

    def records(self, key: TopicPartition, first: int) -> Records | None:
        """How many records lie from ``first`` to the end; None where nobody knows the log.

        A dump counts them, where it was taken of the very log that the first source knows.
        """
        known = [source for source in self.asked.logs if source.log(key) is not None]
        best: Records | None = None
        for source in known:
            if self._same_log(source, known[0], key):
                found = source.records(key, first, transactional=self.asked.exactly_once)
                best = found if best is None or (found is not None and found.exact) else best
        return best

    @staticmethod
    def _same_log(one: LogSource, other: LogSource, key: TopicPartition) -> bool:
        a, b = one.log(key), other.log(key)
        ids = {one.topic_id(key), other.topic_id(key)} - {None}
        return a is not None and b is not None and (a.start, a.end) == (b.start, b.end) and len(ids) < 2

    def off_grid(self, task: Task, store: Store) -> tuple[Database, ...]:
        """Segments that Streams does not open, because it would give them other names."""
        others = [other for one in self.siblings(task) for other in one.stores if other.name == store.name]
        return off_grid(store, others)

    def siblings(self, task: Task) -> list[Task]:
        """The tasks of the same subtopology, other than ``task``."""
        return [other for other in self.app.tasks if other is not task and subtopology(other) == subtopology(task)]

    def changelog(self, task: Task, store: str) -> TopicPartition | None:
        """The changelog partition of a store, by its own offsets or those of the same store in other tasks.

        None where it has no offset anywhere: whether it has a changelog at all nobody knows then.
        """
        own = self.own_changelog(task, store)
        topics = [tp.topic for one in (task, *self.siblings(task)) for tp in self._offsets(one, store)]
        known = {key for source in self.asked.logs for key in source.partitions()}
        if own.topic in topics or own in known:
            return own
        return TopicPartition(topics[0], own.partition) if topics else None

    def _offsets(self, task: Task, store: str) -> list[TopicPartition]:
        """The partitions that any place of a task names for a store."""
        resolved = self.resolved[task.name]
        for one in resolved.stores:
            if one.store.name == store:
                return sorted(one.offsets)
        return sorted(resolved.absent.get(store, {}))

    def own_changelog(self, task: Task, store: str) -> TopicPartition:
        """The changelog partition of a store, by the name that it usually has."""
        return usual_changelog(self.app.app_id, task, store)

    def task_is_empty(self, task: Task) -> bool:
        """``StateDirectory.taskDirIsEmpty``: ``.checkpoint`` does not count, in 4.3 nothing that begins so."""
        for name in os.listdir(task.path):
            ignored = name.startswith(CHECKPOINT) if self.asked.into_family else name == CHECKPOINT
            if not ignored and not name.endswith(LOCK):
                return False
        return True


def subtopology(task: Task) -> tuple[str | None, int | None]:
    """The topology and the number of the subtopology that a task belongs to; None of the global stores."""
    return task.id.topology, task.id.subtopology

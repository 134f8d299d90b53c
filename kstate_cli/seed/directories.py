"""State directories as the source of a seed: the changelogs are lost, and the directories are what is left.

Together the directories of all hosts must have every task once, closed cleanly. Bytes do not show whether a copy was
the active one or a standby that lagged behind, and the end of the lost log is unknown. What is left as proof are the
inputs: the Position of an active task has reached the committed offset of each input partition. Where that cannot be
shown, the user must accept the store by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kstate_cli import clock, option
from kstate_cli.change.lockfile import in_use, reader_lock
from kstate_cli.errors import Refused, UsageError
from kstate_cli.formats.layouts import KeySchema
from kstate_cli.formats.store_kinds import JOIN_WINDOW, store_kind
from kstate_cli.formats.topic_partition import store_of_changelog
from kstate_cli.rows.open import Steady, refuse_several_places
from kstate_cli.seed.cluster import TopicFacts
from kstate_cli.seed.rows import RowRecords, count_records
from kstate_cli.specification.combine import merge
from kstate_cli.specification.draft import IN_MEMORY, SOURCE_TOPIC, Spec, SpecDraft, StoreSpec, complete
from kstate_cli.specification.topic_settings import DAY_MS
from kstate_cli.statedir.find import find_application
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.scan import read_application
from kstate_cli.texts import command, first_lines, plural, quoted, some

_MOST: Final = 5
_POLICY: Final = "cleanup.policy"
_RETENTION: Final = "retention.ms"
_UNLIMITED: Final = "-1"

Subtopology = tuple[str | None, int | None]
"""The named topology, and the number in it."""


@dataclass(frozen=True, slots=True)
class SeedDirectories:
    """The tasks of all directories, each once, and what is known about their stores."""

    app: Application
    """Of the first directory, with the tasks of all."""
    paths: tuple[Path, ...]
    spec: Spec
    steady: Steady
    lost: tuple[str, ...]
    """What cannot be seeded, in sentences."""
    partitions: Mapping[Subtopology, int] = field(default_factory=dict)
    """Tasks of each sub-topology, by its input topics or the specification."""
    by_broker: frozenset[Subtopology] = frozenset()
    """Those whose number of tasks the input topics show."""
    doubts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Store -> why it may lack updates."""

    @property
    def app_id(self) -> str:
        """``application.id``."""
        return self.app.app_id

    @property
    def stores(self) -> tuple[StoreSpec, ...]:
        """The stores whose changelogs are written."""
        return tuple(store for store in self.spec.stores if self._is_seeded(store))

    def store_of(self, changelog: str) -> StoreSpec:
        """Return the store of a changelog."""
        return next(store for store in self.stores if store.changelog == changelog)

    def topics(self) -> dict[str, TopicFacts]:
        """Return the changelogs as the lost ones were: Kafka Streams' defaults for each kind of store."""
        for store in self.stores:
            if store_of_changelog(str(store.changelog), self.app_id) is None:
                # Under another prefix, which only an internal setting gives, kstate does not know the new name.
                raise Refused(
                    f"the changelog of {store.name} was {store.changelog}, which is not a changelog name of "
                    f"{self.app_id}",
                    hint="kstate cannot seed this store. Let the application build it from its input",
                )
        return {
            str(store.changelog): TopicFacts("", self.partitions[self._place(store.name)], -1, _settings(store))
            for store in self.stores
        }

    def records_of(self, changelog: str) -> tuple[RowRecords, ...]:
        """Read all rows of a store, and return its records by partition. Raises StoreUnreadable and Refused."""
        spec = self.store_of(changelog)
        places = sorted(self._places(spec.name), key=lambda place: place[0].partition or 0)
        others = tuple(store for _, store in places)
        records = tuple(
            count_records(RowRecords(task.partition or 0, task, store, others, spec.kind)) for task, store in places
        )
        if negative := sum(part.counts.negative for part in records):
            raise Refused(
                f"{spec.name} has {plural(negative, 'row')} with a timestamp below -1, which no broker accepts",
                hint="kstate cannot seed this store. Let the application build it from its input",
            )
        return records

    def check(self) -> None:
        """Raise InUse if the application was started, or a database changed, since the directories were read."""
        self.steady.check()
        for path in self.paths:
            _refuse_running(path)

    def _is_seeded(self, store: StoreSpec) -> bool:
        return (
            store.changelog is not None
            and not store.is_global
            and store.source != SOURCE_TOPIC
            and bool(self._places(store.name))
        )

    def _places(self, name: str) -> list[tuple[Task, Store]]:
        return [
            (task, store)
            for task in self.app.tasks
            if not task.is_global
            for store in task.stores
            if store.name == name
        ]

    def _place(self, name: str) -> Subtopology:
        return self._places(name)[0][0].sub_topology


@contextmanager
def hold(paths: Iterable[Path]) -> Iterator[None]:
    """Keep other commands of kstate from changing the directories. Raises InUse and Refused."""
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(reader_lock(path, None))
        yield


def find_directories(texts: Sequence[str], option_name: str = option.FROM) -> tuple[Path, ...]:
    """Return the application directories. Raise UsageError if they are of different applications, or given twice."""
    paths = tuple(find_application(Path(text)) for text in texts)
    if len(set(paths)) < len(paths):
        raise UsageError(f"{option_name} names the same directory twice", hint="pass each directory once")
    if len({path.name for path in paths}) > 1:
        raise UsageError(
            f"the directories have different names: {', '.join(sorted({path.name for path in paths}))}",
            hint="give each copy the name of the application.id, for example host1/orders and host2/orders",
        )
    return paths


def read_directories(
    paths: Sequence[Path], draft: SpecDraft | None, spec_name: str, skipped_tasks: Collection[Path]
) -> SeedDirectories:
    """Read the directories, and return their tasks and stores. Raises UsageError, Refused and InUse."""
    for path in paths:
        _refuse_running(path)
    apps = [read_application(path) for path in paths]
    for app in apps:
        _refuse_unreadable(app)
    tasks = _each_once([task for app in apps for task in app.tasks], skipped_tasks)
    whole = replace(apps[0], tasks=tuple(tasks))
    merged = merge(whole, draft, file_name=spec_name)
    names = {store.name for task in tasks if not task.is_global for store in task.stores}
    for name in sorted(names):
        refuse_several_places([task for task in tasks if any(store.name == name for store in task.stores)], name)
    # Stores that the specification calls unlogged are complete without a retention.
    tables = None if draft is None else frozenset(store.name for store in draft.stores)
    spec = complete(merged, file_name=spec_name, only=names, tables=tables)
    stores = [store for task in tasks for store in task.stores]
    return SeedDirectories(whole, tuple(paths), spec, Steady.of(whole, stores), tuple(_lost(merged, spec, names)))


def _refuse_running(path: Path) -> None:
    # The kernel also reports locks of other pid namespaces, which /proc/locks does not list.
    with reader_lock(path, None) as lock:
        pid = lock.application_pid()
    if pid is not None:
        raise in_use(path, pid, can_wait=False)


def _refuse_unreadable(app: Application) -> None:
    if app.running:
        raise in_use(app.path, app.pid, can_wait=False)
    problem = next((problem for problem in app.all_problems() if problem.fatal or problem.doubt), None)
    if problem is not None:
        raise Refused(f"{app.path}: {problem.text}", hint=f"to see all problems, run {command('ls', app.path)}")


def _each_once(tasks: Sequence[Task], skipped_tasks: Collection[Path]) -> list[Task]:
    """Return the tasks without the skipped ones. Raise Refused if two directories have one, UsageError."""
    unknown = sorted(set(skipped_tasks) - {task.path for task in tasks})
    if unknown:
        raise UsageError(
            f"{option.SKIP_TASK} {quoted(unknown[0])} is not the path of a task in the directories",
            hint="pass the path of a task directory",
        )
    by_name: dict[str, list[Task]] = {}
    for task in tasks:
        # Global stores are restored from their input topics, and each host has its own copy.
        if task.path not in skipped_tasks and task.stores and not task.is_global:
            by_name.setdefault(task.name, []).append(task)
    double = {name: same for name, same in by_name.items() if len(same) > 1}
    if double:
        raise Refused(
            f"several directories have the same task: {some(sorted(double), _MOST)}",
            details=first_lines([str(task.path) for same in double.values() for task in same]),
            hint=(
                "only one copy of each task is current. The others belong to standbys, or were left behind when the "
                f"task moved. Exclude them with {option.SKIP_TASK}. To see which copy is ahead, compare the Positions "
                "that `kstate inspect-position` prints"
            ),
        )
    return [task for name in by_name for task in by_name[name]]


def _lost(merged: SpecDraft, spec: Spec, names: Collection[str]) -> Iterator[str]:
    """Yield what cannot be seeded, of stores that are known."""
    unlogged = [draft.name for draft in merged.stores if draft.logged is False]
    if unlogged:
        yield f"these stores start empty, because they have no changelog: {some(sorted(unlogged), _MOST)}"
    memory = {store.name for store in spec.stores if store.kind == IN_MEMORY}
    # Only an offset is there: such a store was in memory, or is a custom one.
    memory |= {draft.name for draft in merged.stores if draft.name not in names and not draft.is_global}
    if memory:
        yield f"these stores have no directory, so their rows are lost: {some(sorted(memory), _MOST)}"
    yield "in-memory stores and suppress buffers start empty, because they have no files on disk"
    tables = [store.name for store in spec.stores if store.source == SOURCE_TOPIC]
    if tables:
        yield f"Kafka Streams restores these tables from their input topics: {some(sorted(tables), _MOST)}"


def _settings(store: StoreSpec) -> dict[str, str]:
    """Return the settings that Kafka Streams gives the changelog of such a store (``InternalTopicConfig``)."""
    kind = store_kind(store.kind)
    settings = {_POLICY: "compact", "message.timestamp.type": "CreateTime"}
    if store.retention_ms is not None and kind.key.expires:
        # ``windowstore.changelog.additional.retention.ms`` is a day by default.
        settings |= {_POLICY: "compact,delete", _RETENTION: str(store.retention_ms + DAY_MS)}
    if store.retention_ms is not None and kind.key is KeySchema.VERSIONED:
        settings["min.compaction.lag.ms"] = str(store.retention_ms + DAY_MS)
    return settings


def final_settings(store: StoreSpec, records: Sequence[RowRecords]) -> dict[str, str]:
    """Return the settings that follow from the store and its rows.

    A retention by which the broker would delete records of the store at once is not among them.
    """
    settings = _settings(store)
    if _retains_duplicates(store, records):
        # Its keys never repeat, except after a restart, which numbers from 1 again: compaction would lose records.
        settings[_POLICY] = "delete"
    times = [part.counts.oldest_ms for part in records if part.counts.oldest_ms is not None]
    retention = settings.get(_RETENTION)
    if retention is None or not times or min(times) > clock.now_ms() - int(retention):
        return settings
    # Kafka Streams expires windows by the time of the input, the broker by the clock: of old input it would delete all.
    return {**settings, _RETENTION: _UNLIMITED}


def _retains_duplicates(store: StoreSpec, records: Sequence[RowRecords]) -> bool:
    """Return whether a window store numbers its rows, as those of joins do; without rows its name decides."""
    if not store_kind(store.kind).key.windows:
        return False
    if any(part.records for part in records):
        return any(part.counts.duplicates for part in records)
    return JOIN_WINDOW.fullmatch(store.name) is not None


# --- what the plan says -----------------------------------------------------------------------------------------------


def stale_offsets_notes(directories: SeedDirectories) -> Iterator[str]:
    """Yield what to do before an application starts under its own id on the directories that it has."""
    yield (
        "the directories have offsets of the lost changelogs, and Kafka Streams would use these offsets with the new "
        "changelogs. Before you start the application, run on every host: "
        f"{command('wipe', directories.paths[0], option.ALL)}"
    )
    buffers = sorted(store.name for store in directories.stores if store_kind(store.kind).key is KeySchema.BUFFER)
    if buffers:
        # A corrupted store is closed without writing its file, and under at-least-once the next start reads the same
        # offset from it (``LegacyCheckpointingStateStore.close``). Custom stores, which kstate does not seed, do too.
        yield (
            f"under at-least-once, Kafka Streams 4.3 and later would restart the tasks of {some(buffers, _MOST)} in "
            "an endless loop. The reason is that it keeps a grace buffer's offset even if the changelog ends before "
            "this offset"
        )


def directory_notes(
    directories: SeedDirectories, records: Mapping[str, Sequence[RowRecords]], accepted: Collection[str]
) -> Iterator[str]:
    """Yield what the user should know about records that are made of rows. ``records`` by changelog."""
    yield from directories.lost
    for store in sorted(set(accepted) & directories.doubts.keys()):
        yield f"you accept that updates may be missing from {store}: {'; '.join(directories.doubts[store][:_MOST])}"
    for changelog, parts in sorted(records.items()):
        spec = directories.store_of(changelog)
        count = sum(part.counts.without_time for part in parts)
        if count:
            yield (
                f"{spec.name}: the rows have no timestamps, so kstate writes {plural(count, 'record')} without a "
                "timestamp"
            )
        overlaps = sum(part.counts.overlaps for part in parts)
        if overlaps:
            yield f"{spec.name}: in {plural(overlaps, 'row')}, newer versions hide part of the older ones"
        settings = _settings(spec)
        if final_settings(spec, parts).get(_RETENTION) != settings.get(_RETENTION):
            yield (
                f"{changelog}: kstate leaves {_RETENTION} unlimited. With {settings[_RETENTION]} (the value that "
                "Kafka Streams sets), the broker would delete records of windows that Kafka Streams still keeps"
            )
        kind = store_kind(spec.kind)
        if kind.headers_of is not None and not kind.needs_headers:
            yield (
                f"{spec.name}: Kafka Streams does not keep headers in this kind of store, so kstate writes its records "
                "without headers"
            )
        if kind.key is KeySchema.BUFFER:
            yield (
                f"{spec.name}: when Kafka Streams restores this kind of buffer from a changelog, it garbles the keys"
            )
    by_file = [place for place in directories.partitions if place not in directories.by_broker]
    if by_file:
        names = [str(number) for _, number in by_file]
        yield (
            "the broker does not show how many tasks these sub-topologies have, so kstate takes the numbers from "
            f"the specification: {some(names, _MOST)}"
        )
    yield "kstate writes record headers only for stores that keep them"
    yield (
        "kstate creates topics with Kafka Streams' default settings for each kind of store, and with the broker's "
        "replication factor"
    )

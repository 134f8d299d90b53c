"""Restore stores from snapshots: copy and digest the files, and let the change engine do the rest.

The files of a store are copied into the folder of the run, which is beside the application directory and on its file
system. Every byte is compared with the SHA-256 of the generation before the engine moves the databases into the staged
directory. A damaged repository ends the run before anything of the application directory has changed.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from kstate_cli import clock, option
from kstate_cli.change import nofollow
from kstate_cli.change.access import make_own_directory
from kstate_cli.change.course import Course, Terms, follow
from kstate_cli.change.earlier_runs import refuse_after_error
from kstate_cli.change.engine import RunResult, execute
from kstate_cli.change.folder import read_runs
from kstate_cli.change.journal import SORTED_FILES, Run, RunState
from kstate_cli.change.plan import PlaceDatabase, Step
from kstate_cli.change.removal import remove_directory, remove_sorted_files
from kstate_cli.errors import Refused, RunFailed, naming
from kstate_cli.formats.offsets import OffsetsRecord, encode_rows
from kstate_cli.formats.store_kinds import OFFSETS_CF
from kstate_cli.formats.topic_partition import GLOBAL
from kstate_cli.offsets.ages import Age, LogMark, add_ages
from kstate_cli.releases import OffsetsHome
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.rocks.writable import WritableStore
from kstate_cli.signals import submitted
from kstate_cli.snapshot.choice import release_of
from kstate_cli.snapshot.log_facts import Ask, following, read_logs, require_unchanged, why_not_continued
from kstate_cli.snapshot.model import (
    MOST_AHEAD_MS,
    NamedGeneration,
    StoredDatabase,
    StoredFile,
)
from kstate_cli.snapshot.places import generation_named, require_repository
from kstate_cli.snapshot.planner import SnapshotOptions, SnapshotPlan, plan_restore
from kstate_cli.snapshot.repository import (
    CHUNK,
    DamagedError,
    Repository,
    generation_path,
    object_path,
    write_all,
)
from kstate_cli.snapshot.rules import closed_record
from kstate_cli.snapshot.task_steps import ChosenStore
from kstate_cli.statedir.model import Application
from kstate_cli.texts import first_lines, printable

_DAMAGED_HINT = f"restore another snapshot ({option.GENERATION}) or use another copy of the repository"
_LiveFiles = Mapping[str, tuple[tuple[str, int], ...]]
"""Column family -> name and size of each SST and blob file."""
Progress = Callable[[str, str, int], None]
"""Is called with a phase, a path and bytes."""


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The request of the user."""

    terms: Terms
    repository: Repository
    options: SnapshotOptions
    generation: str | None = None
    """The name of a generation, or the beginning of one; None for all of them."""
    after_error: bool = False
    further: Callable[[SnapshotPlan, Application | None], SnapshotPlan] | None = None
    """Adds further changes to the plan, such as a migration: they are one run with the restoration."""
    ask: Ask | None = None
    """Asks a broker about the logs; None without one."""

    def options_now(self, generations: Sequence[NamedGeneration]) -> SnapshotOptions:
        """Return the options with the logs as the broker states them now. Raise RunFailed if it does not answer."""
        if self.ask is None:
            return self.options
        keys = {key for generation in generations for _, store in generation.content.stores for key in store.offsets}
        return replace(self.options, logs=read_logs(self.ask, keys))


@dataclass(frozen=True, slots=True)
class SnapshotOutcome:
    """The plan and its result (None for a dry run, or if there was nothing to do)."""

    plan: SnapshotPlan
    result: RunResult | None


def restore_snapshot(
    request: SnapshotRequest,
    *,
    on_plan: Callable[[SnapshotPlan], None],
    progress: Progress,
    notify: Callable[[str], None],
) -> SnapshotOutcome:
    """Restore, or only plan. Raise InUse, Refused, UsageError, RunFailed and RunHalfway."""
    app = request.terms.app
    generations, damaged = read_generations(request.repository, app.name, request.generation)

    def carry_out(plan: SnapshotPlan) -> RunResult:
        refuse_after_error(app, after_error=request.after_error)
        remove_earlier_files(app)
        files = SnapshotFiles(request.repository, plan, request.terms.run.workers, progress, request.ask)
        return execute(plan.change, request.terms.run, progress, prepare=files.prepare)

    def planned_for(existing: Application | None) -> SnapshotPlan:
        options = request.options_now(generations)
        planned = plan_restore(app, existing, generations, options, now_ms=clock.now_ms(), damaged=damaged)
        if request.further is None:
            return planned
        return request.further(planned, existing)

    course = Course(
        plan=planned_for,
        on_plan=on_plan,
        carry_out=carry_out,
        notify=notify,
        progress=progress,
        workers=request.terms.run.workers,
    )
    plan, result = follow(course, request.terms)
    return SnapshotOutcome(plan, result)


def read_generations(
    repository: Repository, application: str, name: str | None
) -> tuple[list[NamedGeneration], tuple[str, ...]]:
    """Return the generations of an application, newest first, and which ones could not be read.

    Raise Refused if there is no readable one, UsageError for a name that fits none or several.
    """
    require_repository(repository)
    names = repository.generation_names()
    if name is not None:
        names = [generation_named(names, name)]
    generations: list[NamedGeneration] = []
    damaged: list[str] = []
    others: set[str] = set()
    for candidate in reversed(names):
        try:
            content = repository.generation(candidate)
        except FileNotFoundError:
            continue  # it expired since the listing
        except DamagedError as error:
            damaged.append(str(error))
            continue
        if content.created_ms > clock.now_ms() + MOST_AHEAD_MS:
            damaged.append(
                f"{generation_path(candidate)}: its time is in the future, because its host's clock was wrong"
            )
        elif content.application == application:
            generations.append(NamedGeneration(candidate, content))
        else:
            others.add(content.application)
    if not generations:
        raise _no_generation(repository, application, damaged, others)
    return generations, tuple(damaged)


def _no_generation(repository: Repository, application: str, damaged: Sequence[str], others: set[str]) -> Refused:
    details = list(damaged)
    if others:
        details.append(f"it has snapshots of other applications: {', '.join(sorted(map(printable, others)))}")
    return Refused(
        f"{repository.where} has no readable snapshot of application {application}",
        details=first_lines(details),
        hint="pass state.dir/application.id, with the application.id of one of the snapshots",
    )


def remove_earlier_files(app: Path) -> None:
    """Remove the copies that interrupted restorations left: they come from a repository, and are never an only copy."""
    for run in read_runs(app):
        # Sorted files of a restoration from a dump stay: the next one of these resumes it.
        if run.state is RunState.FAILED and run.last("snapshot"):
            with suppress(OSError, Refused):
                remove_sorted_files(run)


class SnapshotFiles:
    """The files of a plan, as they are copied into the folder of a run. A dump may add records to these copies."""

    def __init__(
        self, repository: Repository, plan: SnapshotPlan, workers: int, progress: Progress, ask: Ask | None
    ) -> None:
        self._repository, self._plan, self._workers, self._progress = repository, plan, workers, progress
        self._ask = ask
        self._stopped = threading.Event()
        self._folders: dict[str, Path] = {}

    @property
    def folders(self) -> Mapping[str, Path]:
        """Return the folder of the copy of each store with one database, by the path of the store in APP."""
        return self._folders

    def prepare(self, run: Run) -> tuple[Step, ...]:
        """Copy every file, and return the steps of the plan with those that place the databases.

        Raise Refused for a damaged repository, and RunFailed if a log was changed; the copies are removed then.
        """
        run.write("snapshot", generations=sorted({chosen.generation for chosen in self._plan.stores}))
        folder = run.path / SORTED_FILES
        # A restoration from a dump has created it: its sorted files are in it too.
        with suppress(FileExistsError):
            make_own_directory(folder, nofollow.stat(run.path), 0o750)
        try:
            databases = list(self._databases(folder))
            self._copy_all(databases)
            self._require_same_logs()
            # Each byte fits its digest by now. A cut is as a kill would leave it: Streams must not see it so.
            placed = [_step(place) for place in databases]
        except BaseException:
            with suppress(OSError):
                remove_directory(folder)
            raise
        # Before the switch: without it old data would look as young as its new files, if their SSTs have no time.
        add_ages(self._plan.change.app, [age_of_chosen(chosen, run.name) for chosen in self._plan.stores])
        return (*self._plan.change.steps, *placed)

    def _require_same_logs(self) -> None:
        """Ask the broker again: a copy of many GiB takes long enough for a topic to change, or for a log to be cut off.

        Raise RunFailed.
        """
        before = self._plan.logs
        if before is None:
            return
        after = read_logs(self._ask, before)
        again = "run the command again. kstate has not changed the directory"
        require_unchanged(before, after, "topics changed while kstate was restoring the snapshot", again)
        for chosen in self._plan.stores:
            is_global = chosen.task == GLOBAL
            why = why_not_continued(chosen.store, after, is_global=is_global)
            if why is not None and why_not_continued(chosen.store, before, is_global=is_global) is None:
                raise RunFailed(f"{chosen.title}: {why}", hint=again)
            for key, offset in chosen.store.offsets.items():
                # The start moves all the time in a log with a retention. Only an offset that it passes matters.
                if key in after and before[key].start <= following(offset, is_global=is_global) < after[key].start:
                    raise RunFailed(
                        f"{chosen.title}: its changelog has lost the records after offset {offset}",
                        hint=again,
                    )

    def _databases(self, folder: Path) -> Iterator[_PlacedDatabase]:
        model = nofollow.stat(folder)
        number = 0
        for chosen in self._plan.stores:
            for database in chosen.store.databases:
                # A name that no sorted file has.
                place = folder / f"snapshot-{number}"
                make_own_directory(place, model, 0o755, durable=False)
                number += 1
                if database.folder is None:
                    self._folders[chosen.path] = place
                yield _PlacedDatabase(chosen, database, place)

    def _copy_all(self, databases: Sequence[_PlacedDatabase]) -> None:
        # The largest first: the last thread then ends with a small file.
        files = sorted(
            ((place, file) for place in databases for file in place.database.files), key=lambda pair: -pair[1].size
        )
        with ThreadPoolExecutor(self._workers) as pool:
            try:
                futures = submitted(pool, self._copy, [(file, place.folder / file.name) for place, file in files])
                for (place, file), future in zip(files, futures, strict=True):
                    future.result()
                    self._progress("copy", place.chosen.path, file.size)
            except DamagedError as error:
                self._stop(pool)
                raise Refused(
                    f"the snapshot is damaged: kstate cannot use {error.path}: {error.why}",
                    where=self._repository.where,
                    hint=_DAMAGED_HINT,
                ) from None
            except BaseException:
                self._stop(pool)
                raise

    def _stop(self, pool: ThreadPoolExecutor) -> None:
        # A thread cannot be killed: each looks at the event after every chunk.
        self._stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)

    def _copy(self, job: tuple[StoredFile, Path]) -> None:
        """Copy one file. Raise DamagedError if the bytes do not have the size and digest of the generation."""
        file, target = job
        # 0644 whatever the repository has: the files of a RocksDB, whose owner and mode staging sets afterwards.
        descriptor = nofollow.open_file(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with naming(target), open(descriptor, "wb", buffering=0) as copy:
            if file.data is not None:
                write_all(copy, memoryview(file.data))
            else:
                self._copy_object(file, copy)
            os.fchmod(copy.fileno(), 0o644)
            os.utime(copy.fileno(), ns=(file.mtime_ns, file.mtime_ns))

    def _copy_object(self, file: StoredFile, target: BinaryIO) -> None:
        path = object_path(file.object)
        digest, copied = hashlib.sha256(), 0
        buffer = memoryview(bytearray(CHUNK))
        try:
            source = self._repository.open_object(file.object)
        except FileNotFoundError:
            raise DamagedError(path, "the object is missing") from None
        with source:
            while count := _read_into(source, buffer, path):
                if self._stopped.is_set():
                    return
                copied += count
                if copied > file.size:
                    break  # an endless file must not fill the disk
                digest.update(buffer[:count])
                write_all(target, buffer[:count])
        if copied != file.size:
            raise DamagedError(path, f"the object does not have the {file.size:,} bytes that the snapshot records")
        if digest.hexdigest() != file.sha256:
            raise DamagedError(path, "its content does not match its name")


@dataclass(frozen=True, slots=True)
class _PlacedDatabase:
    """A database of a chosen store, and the folder that it is copied to."""

    chosen: ChosenStore
    database: StoredDatabase
    folder: Path


def _step(place: _PlacedDatabase) -> PlaceDatabase:
    path = place.chosen.path
    if place.database.folder is not None:
        path = f"{path}/{place.database.folder}"
    live, offsets = _live(place.database), place.database.offsets
    if place.chosen.store.is_cut:
        closed = closed_record(place.chosen.store, place.database)
        if closed is not None and closed != offsets:
            live, offsets = _close(place.folder, live, closed), closed
    return PlaceDatabase(path, str(place.folder), live, offsets)


def _close(folder: Path, live: _LiveFiles, record: OffsetsRecord) -> _LiveFiles:
    """Write the offsets of a closed store into the copy of a database; return its live files.

    The rows stay in the very files of the snapshot: only the column family ``offsets`` gets another SST. Raise
    RocksError.
    """
    # The release creates the family in a segment that lacks it.
    release = release_of(OffsetsHome.COLUMN_FAMILY)
    with nofollow.unmoved(folder), WritableStore(folder, release) as store:
        store.set_offsets(encode_rows(record))
    # A process leaves it, and the application makes its own.
    nofollow.unlink(folder / "LOCK", missing_ok=True)
    with Shadow(folder) as shadow:
        written = {
            family: tuple((file.name, file.size) for file in shadow.live_files(family))
            for family in shadow.column_families
        }
    return {**live, OFFSETS_CF: written[OFFSETS_CF]}


def _live(database: StoredDatabase) -> _LiveFiles:
    sizes = {file.name: file.size for file in database.files}
    return {family: tuple((name, sizes[name]) for name in names) for family, names in database.families.items()}


def age_of_chosen(chosen: ChosenStore, run: str = "") -> Age:
    """Return the age of the data of a store, as the snapshot states it."""
    logs = {
        key: LogMark(topic_id=chosen.store.topic_ids[key.topic])
        for key in chosen.store.offsets
        if key.topic in chosen.store.topic_ids
    }
    return Age(chosen.title, chosen.store.offsets, chosen.store.as_of_ms, logs, run=run)


def _read_into(source: BinaryIO, buffer: memoryview, path: str) -> int:
    try:
        return source.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
    except OSError as error:
        raise DamagedError(path, f"kstate cannot read it: {error.strerror}") from None

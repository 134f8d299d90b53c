"""The snapshot and the options of a migration: it reads the disk once, and the rules after it read nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kstate_cli import option
from kstate_cli.errors import Refused
from kstate_cli.formats.binary import MalformedBytesError
from kstate_cli.formats.layouts import Inner
from kstate_cli.formats.store_kinds import store_kind
from kstate_cli.formats.values import subscription_version
from kstate_cli.host import STORES_STAY
from kstate_cli.offsets.last_run import left_committed
from kstate_cli.offsets.model import TaskOffsets
from kstate_cli.offsets.resolve import resolve_to_plan
from kstate_cli.releases import SUBSCRIPTION_VERSION_SINCE, OffsetsHome, Release, prefer_proven, release, written_by
from kstate_cli.rocks.errors import RocksError, cannot_be_read
from kstate_cli.rocks.shadow import Shadow
from kstate_cli.statedir.model import Application, Store, Task
from kstate_cli.statedir.problems import Problem, ProblemCode
from kstate_cli.texts import command, first_lines

StoreKey = tuple[str, str]
"""Task and store."""


@dataclass(frozen=True, slots=True)
class MigrationSnapshot:
    """An application directory as it was read, the target release and the options."""

    app: Application
    target: Release
    options: MigrateOptions
    offsets: tuple[TaskOffsets, ...]
    """Those of every task, in the order of the tasks."""
    unfinished: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    """The tasks with a database that a killed application was creating or dropping, with the problems of each."""
    subscriptions: Mapping[StoreKey, str] = field(default_factory=dict)
    """Stores of foreign-key subscriptions that the target cannot read, and why."""
    logged: frozenset[str] = frozenset()
    """The stores that have an offset in any task, so that they have a changelog."""
    left_transactional: bool = False
    """The last run had transactional stores (KIP-892), which need not write an offset. Other releases require one."""

    @property
    def into_family(self) -> bool:
        """Return True if the target keeps offsets in the store (KIP-1035)."""
        return self.target.offsets_home is OffsetsHome.COLUMN_FAMILY

    @property
    def whole_tasks(self) -> tuple[Task, ...]:
        """The tasks without an unfinished database."""
        return tuple(task for task in self.app.tasks if task.name not in self.unfinished)

    def relative(self, path: Path) -> str:
        """Return a path for steps: relative to the application directory."""
        return str(path.relative_to(self.app.path))


def read_snapshot(app: Application, target: Release, options: MigrateOptions) -> MigrationSnapshot:
    """Read everything that the rules of a migration need.

    Raise OSError, and Refused if a part cannot be read or migrated.
    """
    unfinished = _unfinished(app)
    # Refused before any row is read: in a damaged database the reading of subscriptions would fail with another error.
    _refuse_fatal(app, target, options, unfinished)
    whole = [task for task in app.tasks if task.name not in unfinished]
    subscriptions = _subscriptions(whole, target)
    offsets = tuple(resolve_to_plan(app, transactional=options.transactional))
    logged = frozenset(state.store.name for task in offsets for state in task.stores if state.offsets)
    left_transactional = any(
        left_committed(store, transactional=options.transactional) for task in app.tasks for store in task.stores
    )
    return MigrationSnapshot(app, target, options, offsets, unfinished, subscriptions, logged, left_transactional)


def _unfinished(app: Application) -> dict[str, tuple[Problem, ...]]:
    """Return the fatal problems of each task that a kill explains: it was creating or dropping a database.

    A task with any other fatal problem is not among them. An incomplete copy or a broken disk may look the same, and
    a ``.checkpoint`` does not disprove it, because a task has one while it is restored. So a migration refuses these
    tasks too, unless the user permits to wipe them.
    """
    by_task: dict[str, list[Problem]] = {}
    for problem in app.all_problems():
        if problem.fatal and problem.place.task is not None:
            by_task.setdefault(problem.place.task, []).append(problem)
    return {
        task: tuple(problems) for task, problems in by_task.items() if all(problem.left_by_kill for problem in problems)
    }


def _refuse_fatal(
    app: Application, target: Release, options: MigrateOptions, unfinished: Mapping[str, tuple[Problem, ...]]
) -> None:
    """Raise Refused if the directory has problems that kstate cannot migrate, such as a database without its SSTs.

    ``unfinished`` has the tasks with a database that a killed process has created only in part. ``wipe_unclean``
    removes these tasks, and Streams restores them. Without it their problems are refused too.
    """
    wiped_tasks = unfinished if options.wipe_unclean else {}
    fatal = [problem for problem in app.all_problems() if problem.fatal and problem.place.task not in wiped_tasks]
    if not fatal:
        return
    # If the disk does not answer, nothing proves damage. So no hint may suggest to remove these stores.
    if all(problem.code is ProblemCode.UNREADABLE for problem in fatal):
        raise _not_all_read(app.path, [problem.text for problem in fatal])
    checking = f"to see what to do about each problem, run {command('check', app.path, option.FOR, target.version)}"
    hint = checking
    hint_details: list[str] = []
    # Wiping is only suggested if it is enough: with other problems the command would be refused again.
    if {problem.place.task for problem in fatal} <= unfinished.keys():
        wipe = options.command(app.path, target.version, option.WIPE_UNCLEAN)
        hint = f"if the application was killed, remove these tasks so that Streams restores them: {wipe}"
        hint_details = [checking]
    raise Refused(
        "kstate cannot migrate the directory in its current state",
        details=first_lines([problem.reasoned for problem in fatal]),
        where=str(app.path),
        hint=hint,
        hint_details=hint_details,
    )


def _subscriptions(tasks: list[Task], target: Release) -> dict[StoreKey, str]:
    """Return the stores of foreign-key subscriptions that are too new for the target, and why. It reads their rows."""
    first_releases = {v: name for v, name in SUBSCRIPTION_VERSION_SINCE.items() if target.number < release(name).number}
    # Only an older target lacks versions of the subscription wrapper. A new one reads all of them, so no row is read.
    if not first_releases:
        return {}
    reasons = {
        (task.name, store.name): _newer_subscription(f"{task.name}/{store.name}", store, first_releases)
        for task in tasks
        for store in task.stores
        if store_kind(store.kind.name).inner is Inner.SUBSCRIPTION
    }
    return {key: reason for key, reason in reasons.items() if reason is not None}


def _newer_subscription(name: str, store: Store, first_releases: Mapping[int, str]) -> str | None:
    """Return why the target cannot read the rows of a store; None if it can.

    ``name`` is the store in messages. ``since`` has the versions that the target does not read, with the release of
    each.
    """
    try:
        for database in store.databases:
            with Shadow(database.path) as shadow:
                for family in database.data_families:
                    # Only a row shows its version. The first version that is too new decides.
                    for _, value in shadow.rows(family):
                        version = subscription_version(value)
                        if version in first_releases:
                            first_release = first_releases[version]
                            return f"foreign-key subscriptions of version {version} require {first_release} or later"
    except (RocksError, MalformedBytesError, OSError) as error:
        # An error of the disk proves nothing, because the rows may be undamaged.
        if cannot_be_read(error):
            raise _not_all_read(store.path, [f"{name}: {error}"]) from None
        if isinstance(error, OSError):
            raise
        return f"kstate cannot read the rows: {error}"
    return None


def _not_all_read(where: Path, lines: list[str]) -> Refused:
    """Return the error for unreadable data. It may be whole, so kstate neither plans nor advises its removal."""
    return Refused(
        "kstate cannot read the whole directory, so it does not migrate it",
        details=first_lines(lines),
        where=str(where),
        hint=STORES_STAY,
    )


@dataclass(frozen=True, slots=True)
class MigrateOptions:
    """What the user says about the directory and allows."""

    at_least_once: bool = False
    """Uncommitted data cannot be in the stores: the application never ran with exactly-once."""
    wipe_unclean: bool = False
    """Tasks that may hold uncommitted data are left out, so that Streams restores them."""
    drop_headers: bool = False
    """Headers stores are converted to the older layout; their headers are lost."""
    headers_format: bool = False
    """The application is to be started with ``dsl.store.format=HEADERS``."""
    transactional: bool = False
    """The application runs with transactional stores (KIP-892)."""
    unproven: bool = False
    """A release that kstate was never run against is allowed as the target."""

    def command(self, app: Path, target: str, *more: str) -> str:
        """Return the command line that states these options, and ``more``."""
        options = (
            (self.at_least_once, (option.GUARANTEE, "at_least_once")),
            (self.wipe_unclean, (option.WIPE_UNCLEAN,)),
            (self.drop_headers, (option.DROP_HEADERS,)),
            (self.headers_format, (option.DSL_STORE_FORMAT, "HEADERS")),
            (self.transactional, (option.TRANSACTIONAL_STORES,)),
            (self.unproven, (option.UNPROVEN,)),
        )
        words = (word for is_set, words in options if is_set for word in words)
        return command("migrate", app, option.TO, target, *words, *more)


def sources_of(tasks: Collection[Task], *, transactional: bool) -> tuple[Release, ...]:
    """Return the releases that may have written these tasks, oldest first: those that fit all databases.

    If the disk does not distinguish them, the releases with transactional stores are returned if the application ran
    with them (``transactional``), otherwise those that kstate was tested with.
    """
    releases: set[Release] | None = None
    for database in (database for task in tasks for store in task.stores for database in store.databases):
        # RocksDB writes its own version into the OPTIONS file whenever it opens a database for writing.
        version = database.options.rocksdb_version if database.options else None
        names = set(written_by(version, frozenset(database.column_families)))
        if names:
            # If two databases contradict each other, the releases of both remain possible.
            releases = names if releases is None else (releases & names or releases | names)
    in_order = sorted(releases or (), key=lambda candidate: candidate.number)
    # 4.3 and 4.4 have the same RocksDB. Only the user knows whether the last run had transactional stores.
    with_transactions = [candidate for candidate in in_order if candidate.transactional]
    if transactional and with_transactions:
        return tuple(with_transactions)
    return tuple(prefer_proven(in_order))

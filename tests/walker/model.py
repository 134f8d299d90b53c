"""What a command is expected to do: a small model of an application directory and of the runs that changed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from .content import GLOBAL, UNKNOWN, Content, Store, Task
from .databases import OFFSETS
from .snapshot import Tree
from .streams import RELEASES, Release

Meaning = dict[tuple[str, str], Store]
_WATCHED = ("CURRENT", "MANIFEST-", ".checkpoint")
"""What every start of Streams replaces."""


@dataclass(frozen=True)
class Version:
    """The application directory as it was at some time: what somebody may need again."""

    tree: Tree
    content: Content
    unclean: frozenset[str]
    """Tasks that Streams did not close: whatever kstate does, they do not become clean."""


class Pending(Enum):
    """Where the process of a run has died."""

    STAGED = "before the exchange"
    SWITCHED = "after the exchange"
    UNDOING = "before the exchange back"
    UNDONE = "after the exchange back"
    CLEANING = "while what it kept was being deleted"


@dataclass
class Run:
    """One run that the directory beside the application knows."""

    name: str
    state: str
    """As `kstate status` says it, once nothing is pending."""
    version: Version | None = None
    """What its tree must be, byte for byte; None where nothing is promised any more."""
    changed_tree: Tree | None = None
    """The application directory as the run left it."""
    pending: Pending | None = None
    old: bool = False
    """It ended long ago."""
    precious: bool = False
    """It keeps what may be the only copy of records that a log has lost: `clean` deletes it by name alone."""
    announced: bool = True
    """Its journal has at least one line."""


class Effect(Enum):
    """What a command does to the application directory."""

    NOTHING = "nothing"
    CHANGE = "a new directory, the old one is kept"
    UNDO = "the kept directory comes back"
    CLEAN = "what is kept goes"


@dataclass(frozen=True)
class Expected:
    """How a command should end, and what it leaves."""

    statuses: frozenset[int]
    effect: Effect = Effect.NOTHING
    meaning: Meaning = field(default_factory=dict)
    unclean: frozenset[str] = frozenset()
    release: Release | None = None
    """The one that must be able to open what is left; None where it stays what it was for."""
    purge: bool = False
    precious: bool = False
    runs: tuple[str, ...] = ()
    """The run that is undone, or those that are deleted."""
    takes_over: bool = False
    """Runs that died are brought to an end first."""
    texts: tuple[str, ...] = ()


def nothing(*statuses: int, takes_over: bool = False, names: Sequence[str] = ()) -> Expected:
    """The application directory stays as it is."""
    return Expected(frozenset(statuses), takes_over=takes_over, texts=tuple(names))


def migration(version: Version | None, options: dict[str, str | bool]) -> Expected:
    """`kstate migrate`; options: to, dry-run, at-least-once, wipe-unclean."""
    if version is None:
        return nothing(2)
    target, really = RELEASES[str(options["to"])], not options.get("dry-run")
    content = version.content
    moving = {name for name, task in content.tasks.items() if _moves(task, target)}
    unclean = moving & version.unclean
    if unclean and not (options.get("at-least-once") or options.get("wipe-unclean")):
        return nothing(4, takes_over=really, names=["unclean shutdown"])
    left_out = unclean if options.get("wipe-unclean") else frozenset()
    rewritten = any(
        max(formats, default=0) > target.sst_format
        for name, task in content.tasks.items()
        if name not in left_out
        for formats in task.storage.formats.values()
    )
    if not moving and not rewritten:
        return nothing(0, takes_over=really)
    homeless = {name for name in moving - left_out if target.inside and _homeless(content, name)}
    if any(_without_changelog(content.tasks[name]) for name in homeless) and not options.get("at-least-once"):
        return nothing(4, takes_over=really, names=["the application would lose rows when it starts"])
    # A killed versioned store whose offset stays where it is only causes a warning.
    statuses = frozenset({1} if left_out or homeless else {0, 1} if version.unclean else {0})
    if not really:
        return Expected(statuses)
    return Expected(
        statuses,
        Effect.CHANGE,
        {key: store for key, store in content.meaning.items() if key[0] not in left_out},
        version.unclean - unclean,
        target if not unclean or left_out else None,
        takes_over=True,
    )


def _homeless(content: Content, name: str) -> bool:
    """A store was wiped in every task: nothing tells what its database, which has to carry the -4, is to look like."""
    task = content.tasks[name]
    absent = [
        store for store, entry in task.stores.items() if store not in task.folders and UNKNOWN in entry.offsets.values()
    ]
    parts = {place.split("/")[0] for other in content.tasks.values() for place in other.storage.families}
    return name != GLOBAL and any(
        f".checkpoint_{store}" not in task.storage.files for store in absent if store not in parts
    )


def _without_changelog(task: Task) -> bool:
    """It has a store with rows and no offset anywhere: gone for good when the task is wiped."""
    return any(not store.offsets and not store.empty for name, store in task.stores.items() if name in task.folders)


def _moves(task: Task, target: Release) -> bool:
    """Its offsets are not where the target keeps them."""
    if target.inside:
        outside = [family for family in task.storage.families.values() if OFFSETS not in family]
        return bool(task.folders) and (".checkpoint" in task.storage.files or bool(outside))
    return task.storage.inside or any(name.startswith(".checkpoint_") for name in task.storage.files)


@dataclass(frozen=True)
class Wipe:
    """What `kstate wipe` is asked for."""

    tasks: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    global_stores: bool = False
    everything: bool = False
    """--all"""
    purge: bool = False
    dry_run: bool = False


def wiping(version: Version | None, wipe: Wipe) -> Expected:
    """`kstate wipe`."""
    if version is None:
        return nothing(2)
    tasks = version.content.tasks
    choice = {
        name
        for name in tasks
        if wipe.everything
        or name in wipe.tasks
        or (name == GLOBAL and wipe.global_stores)
        or (wipe.stores and not wipe.tasks and not wipe.global_stores)
    }
    stores = {store for name in choice for store in tasks[name].stores}
    if wipe.tasks - tasks.keys() or wipe.stores - stores:
        return nothing(2, takes_over=not wipe.dry_run)
    meaning, warned, empty = dict(version.content.meaning), False, True
    unclean = set(version.unclean)
    for name in choice:
        task = tasks[name]
        if not wipe.stores:
            empty = False
            unclean.discard(name)
            warned |= any(store.rows and not store.offsets for store in task.stores.values())
            meaning = {key: store for key, store in meaning.items() if key[0] != name}
            continue
        for store in wipe.stores & task.folders & task.stores.keys():
            empty = False
            before = meaning.pop((name, store))
            warned |= bool(before.rows and not before.offsets)
            if name != GLOBAL and before.offsets:
                meaning[name, store] = Store({}, dict.fromkeys(before.offsets, UNKNOWN), {})
        if not any(store.rows for key, store in meaning.items() if key[0] == name):
            unclean.discard(name)
    statuses = frozenset({1} if warned else {0})
    if empty:
        return nothing(0, takes_over=not wipe.dry_run)
    if wipe.dry_run:
        return Expected(statuses)
    return Expected(statuses, Effect.CHANGE, meaning, frozenset(unclean), purge=wipe.purge, takes_over=True)


def rehoming(version: Version, numbers: tuple[int, int]) -> Expected:
    """`kstate rehome --map OLD=NEW` of the tasks of a sub-topology that is there, whatever their state is vouched for."""
    old, new = (f"{number}_" for number in numbers)
    meaning: Meaning = {}
    for (name, store), entry in version.content.meaning.items():
        if not name.startswith(old):
            meaning[name, store] = entry
            continue
        home = new + name.removeprefix(old)
        folder = store in version.content.tasks[name].folders
        if entry.empty and not entry.offsets:
            continue  # nothing is lost with it, and nobody can tell it from what a failed start has made
        topics = {
            topic
            for (other, same_store), other_store in version.content.meaning.items()
            if same_store == store and other.startswith(old)
            for topic, _ in other_store.offsets
        }
        if folder and not entry.offsets and topics:
            # Other partitions tell that it has a changelog: rows without an offset are not kept.
            unknown = {(topic, int(name.removeprefix(old))): UNKNOWN for topic in topics}
            entry = Store({}, unknown, {})
        meaning[home, store] = entry
    unclean = frozenset(new + name.removeprefix(old) if name.startswith(old) else name for name in version.unclean)
    return Expected(frozenset({0}), Effect.CHANGE, meaning, unclean, takes_over=True)


NO_HOST = (0, 2)
"""Of a directory that is lost: there was none, but where kstate knows it still by how old its data was."""


def undoing(version: Version | None, runs: Sequence[Run], *, discard: bool) -> Expected:
    """`kstate undo`, once what died is brought to an end: `runs` are as they are then."""
    if version is None and not runs:
        return nothing(*NO_HOST)
    backup = [run for run in runs if run.state == "kept" and run.pending is None]
    if not backup:
        return nothing(0, takes_over=True, names=["nothing to undo"])
    run = backup[-1]
    if version is not None and not discard and not same(version.tree, run.changed_tree or {}):
        return nothing(4, takes_over=True, names=["--discard-newer"])
    return Expected(frozenset({0}), Effect.UNDO, runs=(run.name,), takes_over=True)


def same(element: Tree, other: Tree) -> bool:
    """Whether Streams has not run in between."""
    mine, theirs = (
        {path: entry for path, entry in tree.items() if path.rpartition("/")[2].startswith(_WATCHED)}
        for tree in (element, other)
    )
    return mine == theirs


def cleaning(version: Version | None, runs: Sequence[Run], *, old_only: bool, dry_run: bool) -> Expected:
    """`kstate clean`."""
    if version is None and not runs:
        return nothing(*NO_HOST)
    # From cron: what died is left to the command that needs the directory next.
    died = (Pending.SWITCHED, Pending.UNDOING, Pending.UNDONE)
    choice = [
        run
        for run in runs
        if (run.old or not old_only or not run.announced)
        and run.pending not in died
        and not run.precious
        and not (run.pending is Pending.STAGED and run.announced)
    ]
    if version is None and any(run.version is not None for run in choice):
        return nothing(4, names=["only copy"])
    if dry_run or not choice:
        return nothing(0)
    return Expected(frozenset({0}), Effect.CLEAN, runs=tuple(run.name for run in choice))


def misfits(content: Content, release: Release) -> list[str]:
    """What a release could not take from a directory that was migrated to it."""
    wrong = []
    for name, task in content.tasks.items():
        if not task.folders:
            continue  # nothing is there, but perhaps a line of .checkpoint
        for place, formats in task.storage.formats.items():
            if max(formats, default=0) > release.sst_format:
                wrong.append(f"{name}/{place}: SST formats {sorted(formats)}")
        for place, families in task.storage.families.items():
            if (OFFSETS in families) != release.inside:
                wrong.append(f"{name}/{place}: column families {sorted(families)}")
        if release.inside and ".checkpoint" in task.storage.files:
            wrong.append(f"{name}: .checkpoint is left, and would win over the stores")
        if not release.inside and any(file.startswith(".checkpoint_") for file in task.storage.files):
            wrong.append(f"{name}: {sorted(task.storage.files)}")
    return wrong

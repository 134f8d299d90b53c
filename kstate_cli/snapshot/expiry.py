"""Expire generations beside writers on other hosts, without a lock: intents, condemned files, and a grace period.

The order of the steps is what makes it safe:

1. A writer creates its intent, reads the condemned lists, records them in its intent, and only then lists objects. It
   relies on no condemned object: the same bytes get another name (``Repository.put``).
2. A cleaner publishes a list of condemned generations and objects. It deletes nothing yet.
3. At least a grace period later a cleaner lists intents again. A writer that has not recorded the condemned list may
   rely on one of its objects, so the list waits for the end of that writer. Then it lists generations again: an object
   that one of them needs stays. Generations go first, objects second, and the list last.

So an object is deleted only if no generation needs it, and no writer can come to need it: later writers know the list.
Readers of a condemned generation have the grace period. A killed writer leaves its intent, which counts for a week.
Nothing is deleted while any generation cannot be read: what it needs is unknown.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kstate_cli import clock
from kstate_cli.errors import RunFailed
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.snapshot.model import (
    MOST_AHEAD_MS,
    Generation,
    StoredTask,
    is_generation_name,
    is_object_name,
    utc_name,
)
from kstate_cli.snapshot.repository import (
    CLAIMED,
    CONDEMNED,
    INTENTS,
    DamagedError,
    Repository,
    generation_path,
)
from kstate_cli.texts import printable

GRACE_SECONDS: Final = 86_400
INTENT_SECONDS: Final = 7 * 86_400
"""An intent counts for so long. A writer whose intent is older does not publish."""
_RECENT_SECONDS: Final = 3_600
"""A young object may be of a writer that is at work: condemning it would only cost a second copy."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which generations stay. Without a rule, all of them."""

    keep: int | None = None
    """The newest generations of each task stay."""
    keep_ms: int | None = None
    """Generations that are younger stay."""
    abandoned_ms: int | None = None
    """The newest generation of a task and host stays until its application has a generation younger by so much."""
    grace_seconds: int = GRACE_SECONDS

    @property
    def has_limit(self) -> bool:
        """Return whether older generations of a task and host expire."""
        return self.keep is not None or self.keep_ms is not None

    @property
    def has_rule(self) -> bool:
        """Return whether a generation can expire."""
        return self.has_limit or self.abandoned_ms is not None


class ExpiryObstacle(str, Enum):
    """Why a cleaner deletes nothing, or not all that it could."""

    CLEANER = "another process is cleaning the repository"
    UNREADABLE = "kstate cannot read a snapshot, so it does not know which files this snapshot needs"
    WRITER = "another snapshot that began earlier is still in progress"


@dataclass(slots=True)
class Expiry:
    """What a cleaner has done so far, or would do."""

    condemned: set[str] = field(default_factory=set)
    """Generations that were newly condemned."""
    deleted: set[str] = field(default_factory=set)
    """Generations that were deleted."""
    removed: int = 0
    """Generations, objects and drafts that were deleted."""
    removed_bytes: int = 0
    """The bytes of these objects."""
    waiting: set[str] = field(default_factory=set)
    """Generations and objects that are condemned and still exist."""
    waiting_bytes: int = 0
    """The bytes of these objects."""
    obstacle: ExpiryObstacle | None = None
    unreadable: str | None = None
    """The generation that cannot be read, and why."""

    @property
    def has_changed(self) -> bool:
        """Return whether the repository is different from before."""
        return bool(self.condemned or self.removed)


class _UnreadableError(Exception):
    """A generation cannot be read. Its text is the path and the reason."""


class Intent:
    """The intent of one writer."""

    def __init__(self, repository: Repository, token: str, condemned: frozenset[str]) -> None:
        self._repository, self._token = repository, token
        self.condemned = condemned
        """Objects that this writer must not rely on."""

    def require(self) -> None:
        """Raise RunFailed if the intent does not count any more: a cleaner may have deleted what it relies on."""
        if f"{self._token}.begun" not in self._repository.notes(INTENTS):
            raise RunFailed(
                "the snapshot took so long that another host may already have deleted files that it needs",
                where=self._repository.where,
                hint="run the command again. kstate has not written a snapshot",
            )


@contextmanager
def intent_to_write(repository: Repository) -> Iterator[Intent]:
    """Announce a writer for the time of the block, before it asks what exists. Raise OSError."""
    token = secrets.token_hex(8)
    # Without the second note the writer knows no condemned list, which is the cautious reading.
    with repository.intent(token, {"created_ms": clock.now_ms()}):
        lists = _condemned(repository)
        repository.create_note(INTENTS, f"{token}.aware", {"condemned": sorted(lists)})
        yield Intent(repository, token, _objects_of(lists))


def condemned_objects(repository: Repository) -> frozenset[str]:
    """Return the objects that cleaners are about to delete."""
    return _objects_of(_condemned(repository))


def _objects_of(lists: Mapping[str, _CondemnedList]) -> frozenset[str]:
    return frozenset(name for condemned in lists.values() for name in condemned.objects)


@dataclass(frozen=True, slots=True)
class _CondemnedList:
    written_ms: int
    """When the list was written, by the clock of the place."""
    generations: frozenset[str]
    objects: frozenset[str]
    is_claimed: bool = False
    """A cleaner of a bucket has begun to delete by it, so no other one ever does. A folder has a lock instead."""


def expire(repository: Repository, retention: Retention, *, now_ms: int, expiry: Expiry | None = None) -> Expiry:
    """Delete what was condemned long enough ago, and condemn what the retention does not keep.

    ``expiry`` grows with each step, so a caller that catches an error knows what was done before. Raise OSError,
    Refused and RunFailed.
    """
    expiry = expiry or Expiry()
    with repository.only_cleaner() as alone:
        if not alone:
            expiry.obstacle = ExpiryObstacle.CLEANER
            return expiry
        try:
            _expire(repository, retention, now_ms, expiry)
        except _UnreadableError as error:
            expiry.obstacle, expiry.unreadable = ExpiryObstacle.UNREADABLE, str(error)
    return expiry


def _expire(repository: Repository, retention: Retention, now_ms: int, expiry: Expiry) -> None:
    _generations(repository)
    lists = _condemned(repository)
    expiry.removed += repository.remove_drafts(INTENT_SECONDS * 1000)
    for name, condemned in sorted(lists.items()):
        # By the clock of the place: the list may come from another host, whose clock is ahead.
        if not _is_due(condemned, retention, repository.clock_ms()):
            continue
        if _is_awaited(repository, name):
            expiry.obstacle = ExpiryObstacle.WRITER
            continue
        if repository.claim(name):
            _delete(repository, name, condemned, retention, now_ms, expiry)
    generations = _generations(repository)
    lists = _condemned(repository)
    new = _unneeded(repository, generations, lists, retention, now_ms, repository.clock_ms())
    if new.generations or new.objects:
        document = {"created_ms": now_ms, "generations": sorted(new.generations), "objects": sorted(new.objects)}
        repository.create_note(CONDEMNED, f"{utc_name(now_ms)}-{secrets.token_hex(4)}", document)
    expiry.condemned |= new.generations
    _count_waiting(repository, _condemned(repository).values(), expiry)


def preview(repository: Repository, retention: Retention, *, now_ms: int) -> Expiry:
    """Return what :func:`expire` would do. It writes nothing, so the clock of this host replaces that of the place.

    Raise OSError, Refused and RunFailed.
    """
    expiry = Expiry()
    try:
        generations = _generations(repository)
    except _UnreadableError as error:
        expiry.obstacle, expiry.unreadable = ExpiryObstacle.UNREADABLE, str(error)
        return expiry
    lists = _condemned(repository)
    sizes = repository.object_sizes()
    due = _due_lists(lists, retention, now_ms)
    for condemned in due.values():
        doomed = condemned.generations & expired(generations, retention, now_ms, sizes)
        expiry.deleted |= doomed
        generations = {name: content for name, content in generations.items() if name not in doomed}
    needed = _needed(generations)
    listed = {name for condemned in due.values() for name in condemned.objects}
    objects = {name for name in listed if name in sizes and name not in needed}
    expiry.removed = len(expiry.deleted) + len(objects)
    expiry.removed_bytes = sum(sizes[name] for name in objects)
    others = {name: condemned for name, condemned in lists.items() if name not in due}
    new = _unneeded(repository, generations, others, retention, now_ms, now_ms)
    new = _CondemnedList(now_ms, new.generations, new.objects - objects)
    expiry.condemned |= new.generations
    _count_waiting(repository, [*others.values(), new], expiry)
    return expiry


def condemned_generations(repository: Repository) -> frozenset[str]:
    """Return the generations that cleaners are about to delete. Raise RunFailed if a list cannot be read."""
    lists = _condemned(repository).values()
    # What a claimed list has left was judged again, and stays.
    return frozenset(name for condemned in lists if not condemned.is_claimed for name in condemned.generations)


def _due_lists(lists: Mapping[str, _CondemnedList], retention: Retention, place_ms: int) -> dict[str, _CondemnedList]:
    """Return the lists by which a cleaner would delete now; ``place_ms`` is the time of the place."""
    return {
        name: condemned
        for name, condemned in lists.items()
        if not condemned.is_claimed and _is_due(condemned, retention, place_ms)
    }


def _is_due(condemned: _CondemnedList, retention: Retention, place_ms: int) -> bool:
    """Return whether the grace period of a list is over, and this cleaner may delete by it."""
    # Without a rule no generation expires, and a list that is carried out is removed: the next cleaner with a rule
    # would have to condemn its generations again.
    if condemned.generations and not retention.has_rule:
        return False
    return place_ms - condemned.written_ms >= retention.grace_seconds * 1000


def _count_waiting(repository: Repository, lists: Collection[_CondemnedList], expiry: Expiry) -> None:
    """Record in ``expiry`` which generations and objects of the lists still exist, and the bytes of these objects."""
    sizes = repository.object_sizes()
    names = {*repository.generation_names()} - expiry.deleted
    # What a claimed list has left was judged again, and stays.
    open_lists = [condemned for condemned in lists if not condemned.is_claimed]
    expiry.waiting = {name for condemned in open_lists for name in condemned.generations & names}
    objects = {name for condemned in open_lists for name in condemned.objects if name in sizes}
    expiry.waiting |= objects
    expiry.waiting_bytes = sum(sizes[name] for name in objects)


def expired(
    generations: Mapping[str, Generation], retention: Retention, now_ms: int, sizes: Mapping[str, int]
) -> set[str]:
    """Return the names of generations that no rule keeps. ``sizes`` are those of the objects that exist.

    The newest generation of each task of each host stays, so a left-over directory of another host displaces nothing;
    unless the user lets abandoned ones expire. A part of a task displaces no whole task. A generation that lacks an
    object, or that comes from the future, can displace nothing either: it stays, and does not count.
    """
    if not retention.has_rule:
        return set()
    remaining: set[str] = set()
    counts: dict[tuple[str, str, str, str | None], int] = {}
    newest_ms: dict[str, int] = {}
    for name in sorted(generations, reverse=True):
        generation = generations[name]
        if generation.lacking(sizes) or generation.created_ms > now_ms + MOST_AHEAD_MS:
            remaining.add(name)
            continue
        # The newest of an application is never abandoned: a stopped application has nothing but its snapshots.
        newest_ms.setdefault(generation.application, generation.created_ms)
        if retention.keep_ms is not None and now_ms - generation.created_ms < retention.keep_ms:
            remaining.add(name)
        if retention.abandoned_ms is not None:
            if newest_ms[generation.application] - generation.created_ms >= retention.abandoned_ms:
                continue
            if not retention.has_limit:
                # Without another rule, only the abandoned ones expire.
                remaining.add(name)
        for task in generation.tasks:
            for part in _parts(task):
                key = generation.application, generation.host, task.name, part
                counts[key] = counts.get(key, 0) + 1
                if counts[key] <= max(1, retention.keep or 1):
                    remaining.add(name)
    return set(generations) - remaining


def _parts(task: StoredTask) -> list[str | None]:
    """Return what a retention counts of a task: the whole task (None), or each of the selected stores."""
    if task.is_whole:
        return [None]
    return [store.name for store in task.stores]


def _unneeded(
    repository: Repository,
    generations: Mapping[str, Generation],
    lists: Mapping[str, _CondemnedList],
    retention: Retention,
    now_ms: int,
    place_ms: int,
) -> _CondemnedList:
    """Return the generations that expire and the objects that nothing needs, without those that a list has.

    ``now_ms`` is the time of this host, ``place_ms`` that of the place.
    """
    already = {name for condemned in lists.values() for name in (*condemned.generations, *condemned.objects)}
    objects = repository.objects()
    old = expired(generations, retention, now_ms, {name: entry.size for name, entry in objects.items()})
    needed = _needed({name: content for name, content in generations.items() if name not in old})
    before_ms = place_ms - min(_RECENT_SECONDS, retention.grace_seconds) * 1000
    unneeded = {name for name, entry in objects.items() if name not in needed and entry.written_ms <= before_ms}
    return _CondemnedList(place_ms, frozenset(old - already), frozenset(unneeded - already))


def _needed(generations: Mapping[str, Generation]) -> set[str]:
    """Return the names of the objects that generations need."""
    return {name for generation in generations.values() for name in generation.objects}


def _is_awaited(repository: Repository, name: str) -> bool:
    """Return whether a writer may rely on an object of a condemned list: it has not recorded that it knows the list."""
    awaited = False
    notes = repository.notes(INTENTS)
    now_ms = repository.clock_ms()
    for token, kind in (note.split(".", 1) for note in notes if "." in note):
        # The other notes of an intent are looked up with this one.
        if kind != "begun":
            continue
        document = _document(repository, INTENTS, f"{token}.begun")
        if document is None:
            continue  # the writer has ended since the listing
        is_old = now_ms - notes[f"{token}.begun"].written_ms > INTENT_SECONDS * 1000
        if is_old or f"{token}.ended" in notes or repository.is_ended(token, document):
            # Of a killed writer, or one that has ended. One that lives finds its intent missing, and does not publish.
            for ending in ("aware", "begun", "ended"):
                repository.remove_note(INTENTS, f"{token}.{ending}")
            continue
        # Without this note the writer has not read the lists yet, so it knows none.
        aware = _document(repository, INTENTS, f"{token}.aware") or {"condemned": []}
        try:
            awaited = awaited or name not in _texts(aware, "condemned")
        except MalformedBytesError as error:
            raise _unreadable(repository, INTENTS, f"{token}.aware", error) from None
    return awaited


def _delete(
    repository: Repository,
    name: str,
    condemned: _CondemnedList,
    retention: Retention,
    now_ms: int,
    expiry: Expiry,
) -> None:
    """Delete what a list condemns and no generation needs. ``now_ms`` is the time of this host."""
    sizes = repository.object_sizes()
    # Judged again: meanwhile a newer generation may have been moved away or damaged, or the user asked to keep more.
    still_expired = expired(_generations(repository), retention, now_ms, sizes)
    for generation in sorted(condemned.generations & still_expired):
        if repository.remove_generation(generation):
            expiry.deleted.add(generation)
            expiry.removed += 1
    # Only now: objects of the deleted generations are not needed any more, and those of later ones are.
    needed = _needed(_generations(repository))
    for digest in sorted(condemned.objects - needed):
        if repository.remove_object(digest):
            expiry.removed += 1
            expiry.removed_bytes += sizes.get(digest, 0)
    repository.settle(name)


def _generations(repository: Repository) -> dict[str, Generation]:
    """Return all generations. Raise _UnreadableError for one that cannot be read: what it needs is unknown."""
    generations = {}
    for name in repository.generation_names():
        try:
            generations[name] = repository.generation(name)
        except FileNotFoundError:
            # A cleaner, or the user, has removed it since the listing: then it needs no object.
            continue
        except DamagedError as error:
            raise _UnreadableError(str(error)) from None
        except OSError as error:
            raise _UnreadableError(f"{generation_path(name)}: {error.strerror}") from None
    return generations


def _condemned(repository: Repository) -> dict[str, _CondemnedList]:
    """Return the condemned lists by name. Raise RunFailed for one that cannot be read: what it condemns is unknown.

    A name that no generation or object can have is ignored. It names no file, so no cleaner deletes by it, and no
    writer relies on it. A wrong name leads to no other file either.
    """
    lists = {}
    notes = repository.notes(CONDEMNED)
    for name, entry in notes.items():
        # The note by which a cleaner claims a list, before it deletes by it, is not a list. It is looked up below. A
        # claim since the listing is missed here, so ``Repository.claim`` decides, by an exclusive creation.
        if name.endswith(CLAIMED):
            continue
        document = _document(repository, CONDEMNED, name)
        if document is None:
            # Another cleaner has carried out the list, and removed it since the listing.
            continue
        try:
            lists[name] = _CondemnedList(
                entry.written_ms,
                frozenset(filter(is_generation_name, _texts(document, "generations"))),
                frozenset(filter(is_object_name, _texts(document, "objects"))),
                is_claimed=f"{name}{CLAIMED}" in notes,
            )
        except MalformedBytesError as error:
            raise _unreadable(repository, CONDEMNED, name, error) from None
    return lists


def _document(repository: Repository, folder: str, name: str) -> dict[str, Any] | None:
    """Return the content of a note; None if its owner removed it since the listing. Raise RunFailed."""
    try:
        document = parse_json(repository.read_note(folder, name))
    except FileNotFoundError:
        return None
    except (DamagedError, MalformedBytesError) as error:
        raise _unreadable(repository, folder, name, error) from None
    if not isinstance(document, dict):
        raise _unreadable(repository, folder, name, ValueError("it is not a JSON object"))
    return document


def _unreadable(repository: Repository, folder: str, name: str, error: Exception) -> RunFailed:
    return RunFailed(
        f"kstate cannot read {folder}/{printable(name)}.json: {error}",
        where=repository.where,
        hint="wait until no other host writes to the repository, then move this file away",
    )


def _texts(document: Mapping[str, Any], member: str) -> Sequence[str]:
    """Return a list of texts. Raise MalformedBytesError for anything else: what a note means would be unknown."""
    value = document.get(member)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MalformedBytesError(f"{member} is not a list of names")
    return value

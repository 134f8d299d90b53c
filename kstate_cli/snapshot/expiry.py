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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kstate_cli import clock
from kstate_cli.errors import RunFailed
from kstate_cli.formats.binary import MalformedBytesError, parse_json
from kstate_cli.snapshot.model import MOST_AHEAD_MS, Generation, is_generation_name, is_object_name, utc_name
from kstate_cli.snapshot.repository import CLAIMED, CONDEMNED, INTENTS, DamagedError, Repository
from kstate_cli.texts import printable

GRACE_SECONDS: Final = 86_400
INTENT_SECONDS: Final = 7 * 86_400
"""An intent counts for so long. A writer whose intent is older does not publish."""
_UNKNOWN: Final = "kstate cannot read a snapshot, so it does not know which files that snapshot needs"
_RECENT_SECONDS: Final = 3_600
"""A young object may be of a writer that is at work: condemning it would only cost a second copy."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Which generations stay. Without a rule, all of them."""

    keep: int | None = None
    """The newest generations of each task stay."""
    keep_ms: int | None = None
    """Generations that are younger stay."""
    grace_seconds: int = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class Expiry:
    """What a cleaner has done."""

    condemned: int = 0
    """Generations that were newly condemned."""
    removed: int = 0
    """Generations and objects that were deleted."""
    waiting: int = 0
    """Generations and objects that are condemned and still exist."""
    why_not: str | None = None
    """Why nothing was deleted; None if nothing is in the way."""


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
                "the snapshot took so long that its intent has expired",
                where=self._repository.where,
                hint="no snapshot was written. Run the command again",
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
    """By the clock of the place."""
    generations: frozenset[str]
    objects: frozenset[str]


def expire(repository: Repository, retention: Retention, *, now_ms: int) -> Expiry:
    """Delete what was condemned long enough ago, and condemn what the retention does not keep. Raise OSError."""
    with repository.only_cleaner() as alone:
        if not alone:
            return Expiry(why_not="another process is cleaning the repository")
        return _expire(repository, retention, now_ms)


def _expire(repository: Repository, retention: Retention, now_ms: int) -> Expiry:
    generations = _generations(repository)
    if generations is None:
        return Expiry(why_not=_UNKNOWN)
    lists = _condemned(repository)
    removed = repository.remove_drafts(INTENT_SECONDS * 1000)
    why_not = None
    for name, condemned in sorted(lists.items()):
        # By the clock of the place: the list may come from another host, whose clock is ahead.
        if repository.clock_ms() - condemned.written_ms < retention.grace_seconds * 1000:
            continue
        if _is_awaited(repository, name):
            why_not = "another snapshot that began earlier is still in progress"
            continue
        if not repository.claim(name):
            continue
        count = _delete(repository, name, condemned, retention, now_ms)
        if count is None:
            return Expiry(removed=removed, why_not=_UNKNOWN)
        removed += count
    generations = _generations(repository)
    if generations is None:
        return Expiry(removed=removed, why_not=_UNKNOWN)
    lists = _condemned(repository)
    new = _condemn(repository, generations, lists, retention, now_ms)
    present = {*generations, *repository.objects()}
    waiting = sum(len((rows.generations | rows.objects) & present) for rows in _condemned(repository).values())
    return Expiry(new, removed, waiting, why_not)


def expired(
    generations: Mapping[str, Generation], retention: Retention, now_ms: int, sizes: Mapping[str, int]
) -> set[str]:
    """Return the names of generations that no rule keeps. ``sizes`` are those of the objects that exist.

    The newest generation of each task of each host always stays, so a left-over directory of another host displaces
    nothing. A part of a task displaces no whole task. A generation that lacks an object, or that comes from the future,
    can displace nothing either: it stays, and does not count.
    """
    if retention.keep is None and retention.keep_ms is None:
        return set()
    kept: set[str] = set()
    counts: dict[tuple[str, str, str, str | None], int] = {}
    for name in sorted(generations, reverse=True):
        generation = generations[name]
        if generation.lacking(sizes) or generation.created_ms > now_ms + MOST_AHEAD_MS:
            kept.add(name)
            continue
        if retention.keep_ms is not None and now_ms - generation.created_ms < retention.keep_ms:
            kept.add(name)
        for task in generation.tasks:
            parts: list[str | None] = [None]
            if not task.is_whole:
                parts = [store.name for store in task.stores]
            for part in parts:
                key = generation.application, generation.host, task.name, part
                counts[key] = counts.get(key, 0) + 1
                if counts[key] <= max(1, retention.keep or 1):
                    kept.add(name)
    return set(generations) - kept


def _condemn(
    repository: Repository,
    generations: Mapping[str, Generation],
    lists: Mapping[str, _CondemnedList],
    retention: Retention,
    now_ms: int,
) -> int:
    """Publish a list of what nothing needs, unless another list has it; return how many generations are new in it."""
    already = {name for condemned in lists.values() for name in (*condemned.generations, *condemned.objects)}
    objects = repository.objects()
    old = expired(generations, retention, now_ms, {name: entry.size for name, entry in objects.items()})
    needed = {name for generation in set(generations) - old for name in generations[generation].objects}
    recent_ms = min(_RECENT_SECONDS, retention.grace_seconds) * 1000
    before_ms = repository.clock_ms() - recent_ms
    unneeded = {name for name, entry in objects.items() if name not in needed and entry.written_ms <= before_ms}
    new_generations, new_objects = sorted(old - already), sorted(unneeded - already)
    if new_generations or new_objects:
        document = {"created_ms": now_ms, "generations": new_generations, "objects": new_objects}
        repository.create_note(CONDEMNED, f"{utc_name(now_ms)}-{secrets.token_hex(4)}", document)
    return len(new_generations)


def _is_awaited(repository: Repository, name: str) -> bool:
    """Return whether a writer may rely on an object of a condemned list: it has not recorded that it knows the list."""
    awaited = False
    notes = repository.notes(INTENTS)
    now_ms = repository.clock_ms()
    for token, kind in (note.split(".", 1) for note in notes if "." in note):
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
        aware = _document(repository, INTENTS, f"{token}.aware") or {"condemned": []}
        try:
            awaited = awaited or name not in _texts(aware, "condemned")
        except MalformedBytesError as error:
            raise _unreadable(repository, INTENTS, f"{token}.aware", error) from None
    return awaited


def _delete(
    repository: Repository, name: str, condemned: _CondemnedList, retention: Retention, now_ms: int
) -> int | None:
    """Delete what a list condemns and no generation needs; None if a generation cannot be read."""
    removed = 0
    present = _generations(repository)
    if present is None:
        return None
    # Judged again: meanwhile a newer generation may have been moved away or damaged, or the user asked to keep more.
    still_expired = expired(present, retention, now_ms, repository.object_sizes())
    for generation in sorted(condemned.generations & still_expired):
        removed += repository.remove_generation(generation)
    # Only now: objects of the deleted generations are not needed any more, and those of later ones are.
    generations = _generations(repository)
    if generations is None:
        return None
    needed = {digest for generation in generations.values() for digest in generation.objects}
    for digest in sorted(condemned.objects - needed):
        removed += repository.remove_object(digest)
    repository.settle(name)
    return removed


def _generations(repository: Repository) -> dict[str, Generation] | None:
    generations = {}
    for name in repository.generation_names():
        try:
            generations[name] = repository.generation(name)
        except FileNotFoundError:
            continue
        except (DamagedError, OSError):
            return None
    return generations


def _condemned(repository: Repository) -> dict[str, _CondemnedList]:
    """Return the condemned lists by name. Raise RunFailed for one that cannot be read: what it condemns is unknown."""
    lists = {}
    for name, entry in repository.notes(CONDEMNED).items():
        if name.endswith(CLAIMED):
            continue
        document = _document(repository, CONDEMNED, name)
        if document is None:
            continue
        try:
            lists[name] = _CondemnedList(
                entry.written_ms,
                frozenset(filter(is_generation_name, _texts(document, "generations"))),
                frozenset(filter(is_object_name, _texts(document, "objects"))),
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
        raise _unreadable(repository, folder, name, ValueError("it is not an object"))
    return document


def _unreadable(repository: Repository, folder: str, name: str, error: Exception) -> RunFailed:
    return RunFailed(
        f"kstate cannot read {folder}/{printable(name)}.json: {error}",
        where=repository.where,
        hint="no snapshot was written. Move the file away when no other host writes to the repository",
    )


def _texts(document: Mapping[str, Any], member: str) -> Sequence[str]:
    """Return a list of texts. Raise MalformedBytesError for anything else: what a note means would be unknown."""
    value = document.get(member)
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise MalformedBytesError(f"{member} is not a list of names")
    return value

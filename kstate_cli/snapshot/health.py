"""What a repository holds, and which of its files are damaged.

:func:`list_generations` compares names and sizes only. :func:`verify` reads objects in full, a rotating part of them if
asked. A removed generation leaves no trace by itself, so each generation is judged alone.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from kstate_cli.errors import RunFailed
from kstate_cli.signals import mapped
from kstate_cli.snapshot.expiry import condemned_generations
from kstate_cli.snapshot.model import Generation, digest_of
from kstate_cli.snapshot.repository import CHUNK, DamagedError, Repository, generation_path, object_path

MISSING: Final = "missing"
DAMAGED: Final = "damaged"
UNREADABLE: Final = "unreadable"
"""Codes of findings. What cannot be read is not damaged: the bytes are unknown."""
_DIGITS: Final = 8
"""Of a SHA-256: they decide in which part an object is, so that it stays in its part while the repository grows."""


@dataclass(frozen=True, slots=True)
class ListedGeneration:
    """A generation as ``ls`` shows it."""

    name: str
    content: Generation | None
    """None if it cannot be read."""
    shared_bytes: int
    """Bytes of its objects that other generations need too."""
    damage: str | None
    """The first file that is missing or damaged, and why; None if the listing shows none."""
    is_condemned: bool | None = False
    """A cleaner is about to delete it; None if a list of cleaners cannot be read."""

    def is_usable(self, now_ms: int) -> bool | None:
        """Return whether the logs are certain to continue it now; None if that is unknown, or it cannot be read.

        A generation without a store that a log continues does not become too old.
        """
        if self.content is None:
            return None
        if not self.content.continued_stores:
            return True
        if self.usable_until_ms is None:
            return None
        return now_ms <= self.usable_until_ms

    @property
    def usable_until_ms(self) -> int | None:
        """Return until when the logs are certain to have every later delete, in ms since 1970; None if unknown."""
        if self.content is None:
            return None
        return self.content.usable_until_ms

    @property
    def delete_retention_ms(self) -> int | None:
        """Return how long the logs keep deletes, as the broker stated; None if it did not, for one of them."""
        if self.content is None:
            return None
        stores = self.content.continued_stores
        if not stores or any(not store.logs.keys() >= store.offsets.keys() for store in stores):
            return None
        return min(store.delete_retention_ms for store in stores)


def list_generations(repository: Repository) -> list[ListedGeneration]:
    """Return all generations, oldest first; objects are compared by name and size."""
    sizes = repository.object_sizes()
    read = [(name, *_read(repository, name)) for name in repository.generation_names()]
    condemned = _condemned(repository)
    users = Counter(digest for _, content, _ in read if content is not None for digest in content.objects)
    listed = []
    for name, content, damage in read:
        shared = 0
        if content is not None:
            shared = sum(size for digest, size in content.objects.items() if users[digest] > 1)
            damage = next(_lacking(content, sizes), None)
        is_condemned = None
        if condemned is not None:
            is_condemned = name in condemned
        listed.append(ListedGeneration(name, content, shared, damage, is_condemned))
    return listed


def _condemned(repository: Repository) -> frozenset[str] | None:
    try:
        return condemned_generations(repository)
    except RunFailed:
        # Only cleaners need the list. A listing must also show a repository with a damaged one.
        return None


def _read(repository: Repository, name: str) -> tuple[Generation | None, str | None]:
    """Return a generation, or why it cannot be read."""
    try:
        return repository.generation(name), None
    except DamagedError as error:
        return None, str(error)
    except OSError as error:
        return None, f"kstate cannot read {generation_path(name)}: {error.strerror}"


def _lacking(content: Generation, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield a text for each object of a generation that is missing or has another size."""
    for digest in content.lacking(sizes):
        if digest not in sizes:
            yield f"{object_path(digest)}: the object is missing"
        else:
            yield f"{object_path(digest)}: the object has {sizes[digest]:,} bytes, not {content.objects[digest]:,}"


@dataclass(frozen=True, slots=True)
class RepositoryFinding:
    """A file of a repository that is damaged, missing or unreadable."""

    code: str
    path: str
    """Relative to the repository."""
    message: str


@dataclass(frozen=True, slots=True)
class RepositoryReading:
    """The result of :func:`verify`."""

    findings: tuple[RepositoryFinding, ...]
    files: int
    bytes: int
    left_out: int
    """Objects of other parts."""


def verify(
    repository: Repository,
    part: tuple[int, int],
    *,
    workers: int,
    begin: Callable[[int], None],
    progress: Callable[[int], None],
) -> RepositoryReading:
    """Read every generation, and the objects of part i of n, and compare all bytes with their SHA-256."""
    findings: list[RepositoryFinding] = []
    needed: dict[str, int] = {}
    names = repository.generation_names()
    for name in names:
        try:
            needed.update(repository.generation(name).objects)
        except DamagedError as error:
            findings.append(RepositoryFinding(DAMAGED, error.path, error.why))
        except FileNotFoundError:
            continue  # it expired since the listing
        except OSError as error:
            findings.append(RepositoryFinding(UNREADABLE, generation_path(name), str(error.strerror)))
    # A link that no generation needs is named too: what it leads to must never become a part of a snapshot.
    findings += [RepositoryFinding(DAMAGED, path, why) for path, why in repository.misplaced()]
    number, parts = part
    # Objects that no generation needs are read too: the next snapshot may rely on one of them.
    present = repository.object_sizes()
    objects = sorted(digest for digest in {*present, *needed} if _part(digest, parts) == number)
    begin(sum(min(present.get(digest, 0), needed.get(digest, present.get(digest, 0))) for digest in objects))
    with ThreadPoolExecutor(workers) as pool:
        results = mapped(pool, lambda name: _verified(repository, name, needed.get(name), progress), objects)
        findings += [finding for finding in results if finding is not None]
    return RepositoryReading(
        tuple(findings),
        len(names) + len(objects),
        sum(present.get(digest, 0) for digest in objects),
        len({*present, *needed}) - len(objects),
    )


def _part(name: str, parts: int) -> int:
    return int(name[:_DIGITS], 16) % parts + 1


def _verified(
    repository: Repository, name: str, needed: int | None, progress: Callable[[int], None]
) -> RepositoryFinding | None:
    """Read an object; return what is wrong with it. ``needed`` is the size that generations state."""
    path = object_path(name)
    content, size = hashlib.sha256(), 0
    try:
        with repository.open_object(name) as file:
            while data := file.read(CHUNK):
                content.update(data)
                size += len(data)
                progress(len(data))
                if needed is not None and size > needed:
                    # A sparse file of a TiB takes hours, and its first byte too many proves the damage.
                    return RepositoryFinding(DAMAGED, path, f"it has more than {needed:,} bytes")
    except FileNotFoundError:
        if needed is None:
            return None  # it expired since the listing
        return RepositoryFinding(MISSING, path, "the object is missing")
    except DamagedError as error:
        return RepositoryFinding(DAMAGED, error.path, error.why)
    except OSError as error:
        return RepositoryFinding(UNREADABLE, path, f"kstate cannot read it: {error.strerror}")
    if needed is not None and size != needed:
        return RepositoryFinding(DAMAGED, path, f"it has {size:,} bytes, not {needed:,}")
    if content.hexdigest() != digest_of(name):
        return RepositoryFinding(DAMAGED, path, "its content does not match its name")
    return None


def damaged(findings: Sequence[RepositoryFinding]) -> list[RepositoryFinding]:
    """Return the findings about bytes that are known to be wrong or missing."""
    return [finding for finding in findings if finding.code != UNREADABLE]

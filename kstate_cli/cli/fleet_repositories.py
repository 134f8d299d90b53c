"""The repositories of snapshots that ``fleet`` compares with the hosts of an application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kstate_cli import clock
from kstate_cli.broker.facts import LogFacts
from kstate_cli.cli.other_places import is_repository_folder
from kstate_cli.errors import Refused
from kstate_cli.fleet.model import RepositoryReport, SnapshotCopy, StoreCopy
from kstate_cli.formats.topic_partition import TopicPartition
from kstate_cli.s3_objects import is_s3
from kstate_cli.snapshot.choice import StoreSource, sources
from kstate_cli.snapshot.model import NamedGeneration
from kstate_cli.snapshot.places import repository_of, require_repository
from kstate_cli.snapshot.repository import DamagedError, Repository
from kstate_cli.snapshot.restoring import read_generations
from kstate_cli.texts import first_lines


class FleetRepository:
    """A repository on the command line, and the snapshots of the application in it."""

    def __init__(self, name: str, repository: Repository) -> None:
        self._name, self._repository = name, repository
        self._generations: Sequence[NamedGeneration] = ()
        self._messages: tuple[str, ...] = ()

    @property
    def applications(self) -> list[str]:
        """Return the applications of its readable snapshots. Raise Refused if there are none."""
        require_repository(self._repository)
        applications, damage = set(), []
        for name in self._repository.generation_names():
            try:
                applications.add(self._repository.generation(name).application)
            except FileNotFoundError:
                continue  # it expired since the listing
            except DamagedError as error:
                damage.append(str(error))
        if not applications:
            raise Refused(
                f"{self._repository.where} contains no readable snapshots",
                details=first_lines(damage),
                hint="pass another copy of the repository or the listing of a host",
            )
        return sorted(applications)

    def read(self, application: str) -> None:
        """Read the snapshots of an application. Raise Refused if there are none."""
        self._generations, self._messages = read_generations(self._repository, application, None)

    @property
    def topics(self) -> set[str]:
        """Return the topics of its stores."""
        stores = (store for generation in self._generations for _, store in generation.content.stores)
        return {key.topic for store in stores for key in store.offsets}

    def report(self, logs: Mapping[TopicPartition, LogFacts] | None) -> RepositoryReport:
        """Return the copies that a restoration would take. ``logs`` are those of a broker; None without one."""
        place = self._repository.where
        copies = sources(self._generations, logs, now_ms=clock.now_ms())
        return RepositoryReport(
            self._name,
            place,
            tuple(generation.name for generation in reversed(self._generations)),
            tuple(_copy(place, source) for source in copies),
            self._messages,
        )


def split_listings(words: Sequence[str]) -> tuple[list[str], list[FleetRepository]]:
    """Return the listings of hosts, and the repositories of snapshots: ``REPO`` or ``NAME=REPO``."""
    listings, repositories = [], []
    for word in words:
        name, _, place = word.partition("=")
        if not place or _is_repository(word):
            name, place = word, word
        if _is_repository(place):
            repositories.append(FleetRepository(name, repository_of(place)))
        else:
            listings.append(word)
    return listings, repositories


def _is_repository(place: str) -> bool:
    # Listings are files, so a folder or an object prefix is meant as a repository, also if it is none.
    return is_s3(place) or is_repository_folder(place)


def _copy(place: str, source: StoreSource) -> SnapshotCopy:
    store = source.store
    copy = StoreCopy(
        task=source.task,
        store=store.name,
        kind=store.kind,
        kind_certain=False,
        has_directory=True,
        segmented=store.segmented,
        size=store.size,
        offsets=store.offsets,
        inputs=frozenset(),
        opens_in=(),
        offsets_in="",
        unclean=False,
    )
    return SnapshotCopy(place, source.generation, copy, source.why_not, source.may_lack_deletes)

"""Refuse a path of another kind: a dump where a command reads an application directory, a repository for a dump, ….

The metavar of an argument or option states what its path is. A path that no marker identifies is left to the command.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from kstate_cli.errors import Refused, UsageError
from kstate_cli.texts import command


class PlaceKind(Enum):
    """What a folder is, as messages name it."""

    APPLICATION = "an application directory"
    STATE_DIR = "a state.dir"
    REPOSITORY = "a snapshot repository"
    DUMP = "a changelog dump"
    LISTING = "a listing of ls -o json"


_OF_METAVAR: Final[Mapping[str, tuple[PlaceKind, ...]]] = {
    "APP": (PlaceKind.APPLICATION,),
    "A": (PlaceKind.APPLICATION,),
    "B": (PlaceKind.APPLICATION,),
    "REPO": (PlaceKind.REPOSITORY,),
    "DUMP": (PlaceKind.DUMP,),
    "DUMP/APP": (PlaceKind.DUMP, PlaceKind.APPLICATION),
    "HOST=FILE": (PlaceKind.LISTING, PlaceKind.REPOSITORY),
}


def notes_of(parameter: Any) -> Iterator[Callable[[Any], None]]:
    """Yield the function that refuses a value of Click's ``parameter``; none if it is no such path."""
    places = _OF_METAVAR.get(parameter.metavar or "")
    if places is None:
        return

    def refuse(value: Any) -> None:
        for text in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(text, (str, os.PathLike)):
                _refuse_other(os.fspath(text), places)

    yield refuse


def _refuse_other(path: str, places: tuple[PlaceKind, ...]) -> None:
    """Raise UsageError if a folder is certainly another place than ``places``."""
    if PlaceKind.LISTING in places and not os.path.lexists(path):
        path = path.partition("=")[2]  # HOST=FILE
    # A command on an application finds the only one in a state.dir, and reports several itself.
    accepted = {*places, *((PlaceKind.STATE_DIR,) if PlaceKind.APPLICATION in places else ())}
    # The expected kinds first, because a command mostly gets the right path, and the others take longer to load.
    if not os.path.isdir(path) or any(test(path) for place, test in _IS.items() if place in accepted):
        return
    other = next((place for place, test in _IS.items() if place not in accepted and test(path)), None)
    if other is None:
        return
    negation, conjunction = ("not ", "") if len(places) == 1 else ("neither ", " nor ")
    raise UsageError(
        f"{path} is {other.value}, {negation}{conjunction.join(place.value for place in places)}",
        hint=f"pass {' or '.join(place.value for place in places)}. To list {path}:",
        hint_details=_listing_commands(other, path),
    )


def _listing_commands(place: PlaceKind, path: str) -> list[str]:
    """Return the command that lists a place; for a ``state.dir``, a command for each application in it."""
    match place:
        case PlaceKind.REPOSITORY:
            return [command("ls-snapshots", path)]
        case PlaceKind.DUMP:
            return [command("ls-dump", path)]
        case PlaceKind.STATE_DIR:
            return [command("ls", application) for application in _applications_of(path)]
        case _:
            return [command("ls", path)]


def is_repository_folder(path: str) -> bool:
    """Return whether a folder has the marker of a snapshot repository."""
    from kstate_cli.statedir.names import SNAPSHOTS_MARKER

    return os.path.isfile(os.path.join(path, SNAPSHOTS_MARKER))


def _is_application(path: str) -> bool:
    from pathlib import Path

    from kstate_cli.statedir.find import looks_like_application

    try:
        return looks_like_application(Path(path))
    except Refused:
        return False  # unreadable: the command reports it


def _is_state_dir(path: str) -> bool:
    try:
        return bool(_applications_of(path))
    except Refused:
        return False  # unreadable: the command reports it


def _applications_of(path: str) -> list[os.PathLike[str]]:
    """Return the absolute paths of the applications in a ``state.dir``. Raise Refused if kstate cannot read it."""
    from pathlib import Path

    from kstate_cli.statedir.find import applications_of_state_dir

    return list(applications_of_state_dir(Path(path).absolute()))


def _is_dump(path: str) -> bool:
    from kstate_cli.dump_reader.growing import is_manifest

    try:
        names = os.listdir(path)
    except OSError:
        return False
    return any(map(is_manifest, names))


_IS: Final[Mapping[PlaceKind, Callable[[str], bool]]] = {
    PlaceKind.REPOSITORY: is_repository_folder,
    PlaceKind.APPLICATION: _is_application,
    PlaceKind.STATE_DIR: _is_state_dir,
    PlaceKind.DUMP: _is_dump,
}
"""The places that a folder may be, those that are recognized first in front."""

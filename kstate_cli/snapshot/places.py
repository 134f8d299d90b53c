"""The repository that an option names, and the checks that come before a command uses it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.diagnosis import shown_uri
from kstate_cli.errors import UsageError
from kstate_cli.s3_objects import is_s3, place_in_bucket
from kstate_cli.snapshot.bucket import BucketRepository
from kstate_cli.snapshot.folder import FolderRepository
from kstate_cli.snapshot.repository import ForeignFilesError, Repository
from kstate_cli.texts import first_lines, printable, quoted

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def repository_of(place: str) -> Repository:
    """Return the repository at a place: a folder, or ``s3://BUCKET/PREFIX``.

    Raise UsageError for any other place, and if the client of buckets is not installed.
    """
    if is_s3(place):
        return BucketRepository(place_in_bucket(place))
    if _SCHEME.match(place):
        # A folder "gs:" in the working directory is not what a user means.
        raise UsageError(
            f"{printable(shown_uri(place))} is neither a folder nor s3://BUCKET/PREFIX",
            hint="pass a local or mounted folder or a bucket with a prefix",
        )
    folder = os.path.realpath(place)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{printable(place)} is not a folder", hint="pass a new folder or a snapshot repository")
    return FolderRepository(Path(folder))


def require_repository(repository: Repository) -> None:
    """Raise UsageError unless snapshots were written to the place."""
    state, details = "is not a snapshot repository", []
    try:
        if repository.exists():
            return
        if isinstance(repository, FolderRepository) and not repository.path.exists():
            state = "does not exist"
    except ForeignFilesError as error:
        # A writer refuses such a folder. A reader has only the wrong path.
        details = [error.headline]
    raise UsageError(
        f"{repository.where} {state}",
        details=details,
        hint="pass the folder, or the bucket and prefix, that contains the snapshots",
    )


def refuse_inside(repository: Repository, app: Path) -> None:
    """Raise UsageError if the repository is in an application directory, or the other way round.

    A snapshot changes nothing in the directory that it reads, and Streams would find foreign files there.
    """
    if not isinstance(repository, FolderRepository):
        return
    inner, outer = f"the repository {repository.path}", f"the application directory {app}"
    if app.is_relative_to(repository.path):
        inner, outer = outer, inner
    if app.is_relative_to(repository.path) or repository.path.is_relative_to(app):
        raise UsageError(
            f"{inner} is inside {outer}",
            hint="pass a folder that is neither inside the application directory nor above it",
        )


def generation_named(names: Sequence[str], beginning: str) -> str:
    """Return the name that begins so; ``names`` are oldest first. Raise UsageError unless there is exactly one."""
    fitting = [name for name in names if name.startswith(beginning)]
    if len(fitting) != 1:
        raise UsageError(
            f"{option.GENERATION} {quoted(beginning)} matches the names of {len(fitting)} snapshots",
            hint="pass a complete name or a longer prefix of one:",
            hint_details=first_lines(list(reversed(fitting or names))),
        )
    return fitting[0]

"""``STATE_DIR/.kstate/<application.id>/standby.json``: the proof that APP is an unused standby.

Only a restoration creates a standby, and catches it up in later rounds. Once Streams has started on it,
or a user or another command has changed it, its rows are no longer those of a dump up to an offset. kstate adds nothing
to it then.

The proof is the list of its files (:mod:`kstate_cli.change.fingerprint`): each start of RocksDB replaces some of them.
The file with the proof is durable before the exchange, and has the digests of both directories. So after a kill at any
point the directory in place is still proved to be a standby. ``kstate clean`` keeps this file. It may delete the runs,
which have the lists.
which have the lists.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from kstate_cli import option
from kstate_cli.change.access import reading
from kstate_cli.change.fingerprint import STAGED_LIST, Listing, differences_from, digest, every_file
from kstate_cli.change.folder import STANDBY, read_runs, runs_folder, write_own_file
from kstate_cli.change.journal import Run, RunState
from kstate_cli.errors import Refused
from kstate_cli.formats.binary import JsonObject, parse_json
from kstate_cli.regular_files import read_small
from kstate_cli.texts import shell, some

STANDBY_EVENT: Final = "standby"
"""Event of a run that creates a standby, or catches it up."""
_SCHEMA: Final = 1
_MOST_BYTES: Final = 1 << 16
_MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class Standby:
    """The proof that a directory is a standby."""

    run: str
    """The name of the run that wrote the proof."""
    before: str
    """Digest of the list of files before the exchange of that run."""
    after: str
    """Digest of the list of files after that exchange."""


def announce_standby(app: Path, run: Run, *, before: str, after: str) -> None:
    """Write the proof, durably, before APP is exchanged with the tree of ``run``. Raise OSError."""
    row = {"schema_version": _SCHEMA, "run": run.name, "before": before, "after": after}
    write_own_file(app, standby_path(app), json.dumps(row, indent=1).encode() + b"\n")


def standby_path(app: Path) -> Path:
    """Return the path of the file of an application."""
    return runs_folder(app) / STANDBY


def read_standby(app: Path) -> Standby | None:
    """Return the proof for APP; None if there is none. Raise Refused if it is damaged, or a newer kstate wrote it."""
    path = standby_path(app)
    try:
        with reading():
            row = JsonObject.of(parse_json(read_small(path, _MOST_BYTES)), STANDBY)
        version = row.members.get("schema_version")
        if version != _SCHEMA:
            raise ValueError(f"the schema_version is {version!r}, but this version of kstate reads only {_SCHEMA}")
        return Standby(row.text("run"), row.text("before"), row.text("after"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(
            f"kstate cannot determine whether {app} is a standby: {error}",
            where=str(path),
            hint=(
                "if a newer version of kstate created this standby, use that version. Otherwise, create the standby "
                "again, here or in another directory"
            ),
        ) from None


class StandbyUse(str, Enum):
    """The use of a directory since it became a standby."""

    unused = "unused"
    """The next round catches it up to the dump."""
    used = "used"
    """It was started, changed or rolled back since its last round. No round catches it up again."""
    unreadable = "unreadable"
    """Its proof cannot be read."""


def standby_use(app: Path) -> StandbyUse | None:
    """Return the use of APP as a standby; None if it was never a standby, or if it is empty or missing."""
    try:
        now = _files(app)
        # The file with the proof outlives the directory. It proves nothing about an empty one.
        if not now:
            return None
        standby = read_standby(app)
        if standby is None:
            return None
        if _why_used(app, standby, now) is None:
            return StandbyUse.unused
        return StandbyUse.used
    except (Refused, OSError):
        return StandbyUse.unreadable


def refuse_no_standby(app: Path) -> None:
    """Raise Refused unless APP is missing, empty, or a standby that is unused since its last round."""
    now = _files(app)
    if not now:
        return
    standby = read_standby(app)
    why: str | None = "kstate did not create the directory as a standby"
    if standby is not None:
        why = _why_used(app, standby, now)
    if why is not None:
        raise Refused(
            f"kstate does not update {app} from the dump: {why}",
            hint=(
                f"start the application on this directory, or update the directory once without {option.STANDBY}. To "
                "create a standby in its place, first move the directory away:"
            ),
            hint_details=[shell("mv", app, app.with_name(f"{app.name}.old"))],
        )


def _files(app: Path) -> Listing:
    return every_file(app) if app.exists() else {}


def _why_used(app: Path, standby: Standby, now: Listing) -> str | None:
    """Return why a directory is not an unused standby; None if it is one. ``now`` is the list of its files."""
    run = next((run for run in read_runs(app) if run.name == standby.run), None)
    # The files would equal ``before``. But the user has rolled the round back, so the next round must not repeat it.
    if run is not None and run.state in (RunState.UNDOING, RunState.UNDONE):
        return f"its last update (run {standby.run}) was undone"
    # Either digest proves it: if a kill came before the exchange, the directory is the one before the round.
    if digest(now) not in (standby.before, standby.after):
        return (
            "an application has used or changed the directory since its last update (run "
            f"{standby.run}){_changed(run, now)}"
        )
    return None


def _changed(run: Run | None, now: Listing) -> str:
    # ``clean`` may have deleted the run and its lists. The proof still counts without them.
    if run is None:
        return ""
    list_digest = str(run.last("switching").get("staged", ""))
    if not list_digest:
        return ""
    return f": {some(differences_from(run.path / STAGED_LIST, list_digest, now), _MOST_NAMES)}"

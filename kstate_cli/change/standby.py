"""``STATE_DIR/.kstate/<application.id>/standby.json``: that APP is a standby, and that nobody has used it since.

A standby is made and caught up by ``kstate restore --standby`` alone. Once Streams has started on it, or somebody has
changed it by hand or with another command, its rows are no longer those of a dump up to some offset: nothing is added
to it then.

What proves it is what the directory consists of (:mod:`kstate_cli.change.fingerprint`): each start of RocksDB replaces
files. The file is written before the exchange, and names the directory on both sides of it, so that a process that dies
between them leaves a standby whichever of the two it is. ``kstate clean`` leaves the file: the runs, which have the
lists of files, may be gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kstate_cli.change.access import reading
from kstate_cli.change.fingerprint import STAGED_LIST, Listing, differences_from, digest, every_file
from kstate_cli.change.folder import STANDBY, read_runs, runs_folder, write_own_file
from kstate_cli.change.journal import Run, RunState
from kstate_cli.errors import Refused
from kstate_cli.formats.json_text import parse_json
from kstate_cli.regular_files import read_small
from kstate_cli.texts import shell, some

STANDBY_EVENT: Final = "standby"
"""In the journal of a run that makes a standby, or catches one up."""
_SCHEMA: Final = 1
_MOST_BYTES: Final = 1 << 16
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Standby:
    """What is known of a standby."""

    run: str
    """The run that wrote it."""
    before: str
    """Digest of the files before the exchange of that run."""
    after: str
    """And after it."""


def announce_standby(app: Path, run: Run, *, before: str, after: str) -> None:
    """Writes down that APP is a standby, before it is exchanged with the tree of ``run``. Raises OSError."""
    row = {"schema_version": _SCHEMA, "run": run.name, "before": before, "after": after}
    write_own_file(app, standby_path(app), json.dumps(row, indent=1).encode() + b"\n")


def standby_path(app: Path) -> Path:
    """Where the file of an application lies."""
    return runs_folder(app) / STANDBY


def read_standby(app: Path) -> Standby | None:
    """What is written of APP; None where nothing is. Raises Refused for what is damaged, or of a newer kstate."""
    path = standby_path(app)
    try:
        with reading():
            row = parse_json(read_small(path, _MOST_BYTES))
        if not isinstance(row, dict):
            raise ValueError("it is not an object")
        if row.get("schema_version") != _SCHEMA:
            raise ValueError(f"schema_version {row.get('schema_version')!r} is not known (known: {_SCHEMA})")
        return Standby(_text(row, "run"), _text(row, "before"), _text(row, "after"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Refused(
            f"whether {app} is a standby cannot be read: {error}",
            where=str(path),
            hint="a newer kstate may have written it; else make the standby anew, beside it or in its place",
        ) from None


class StandbyUse(str, Enum):
    """What has become of a directory that was a standby once."""

    unused = "unused"
    """It is followed when the dump has grown."""
    used = "used"
    """It was started, changed or taken back since its last round: it is never followed again."""
    unreadable = "unreadable"
    """What was written of it cannot be read."""


def standby_use(app: Path) -> StandbyUse | None:
    """Whether APP is a standby; None where it never was one, or nothing is left of it."""
    try:
        now = every_file(app) if app.exists() else {}
        known = read_standby(app) if now else None
        if known is None:
            return None
        return StandbyUse.unused if _why_used(app, known, now) is None else StandbyUse.used
    except (Refused, OSError):
        return StandbyUse.unreadable


def refuse_no_standby(app: Path) -> None:
    """Lets pass what is lost or empty, and a standby that nobody has used since it was caught up. Raises Refused."""
    now = every_file(app) if app.exists() else {}
    if not now:
        return
    known = read_standby(app)
    why = "it is no standby: kstate has not made it as one" if known is None else _why_used(app, known, now)
    if why is not None:
        raise Refused(
            f"{app} is not followed: {why}",
            hint="start the application from it, or catch it up once, without --standby; to make a standby in its "
            "place, move it away first:",
            hint_details=[shell("mv", app, app.with_name(f"{app.name}.old"))],
        )


def _why_used(app: Path, known: Standby, now: Listing) -> str | None:
    run = next((one for one in read_runs(app) if one.name == known.run), None)
    if run is not None and run.state in (RunState.UNDOING, RunState.UNDONE):
        return f"its last round, run {known.run}, was taken back"
    if digest(now) not in (known.before, known.after):
        return f"it was started or changed since its last round, run {known.run}{_changed(run, now)}"
    return None


def _changed(run: Run | None, now: Listing) -> str:
    wanted = "" if run is None else str(run.last("switching").get("staged", ""))
    if run is None or not wanted:
        return ""
    return f": {some(differences_from(run.path / STAGED_LIST, wanted, now), _NAMED)}"


def _text(row: dict[str, Any], name: str) -> str:
    if not isinstance(row.get(name), str):
        raise ValueError(f"{name}: {row.get(name)!r} is no text")
    return str(row[name])

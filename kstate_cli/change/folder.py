"""The folder of an application's runs: ``STATE_DIR/.kstate/<application.id>``. Foreign files in it are never touched.

Only real directories count as runs, and only those with a run's name: ``NNNN-command``. Nothing here follows a link.

Each folder is created, gets its owner and mode, and then its *parent* is synced: the first line of a journal must not
be durable in a folder that a power loss removes. Files of kstate's own are written under a draft name, synced, renamed
into place, and then the folder is synced, so that a reader gets the old or the new file, whole.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import socket
import sys
from pathlib import Path
from typing import Any, Final

from kstate_cli import __version__
from kstate_cli.change import nofollow
from kstate_cli.change.access import make_own_directory, own_like, reading
from kstate_cli.change.fingerprint import LISTS
from kstate_cli.change.journal import EMPTY_AT_START, JOURNAL, JOURNALS, SORTED_FILES, TREE, Run, read_run
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.diagnosis import redacted
from kstate_cli.errors import Refused
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.names import OWN_FOLDER

_NAMES: Final = frozenset({"migrate", "wipe", "restore", "rehome"})
"""Commands whose runs are recognized by the name of their folder alone.

The runs of all other commands have a journal, a directory or sorted files, so a new command needs no entry here.
"""
_OF_RUNS: Final = (*JOURNALS, TREE, SORTED_FILES)
_OF_ANOTHER = (
    "kstate does not restore or delete backups that belong to another application. Move the folder to that "
    "application's runs. If you renamed the application directory together with its runs, rename both back, because "
    "Kafka Streams finds its state by application.id"
)
_NAME = re.compile(r"(\d{4,})-([a-z][a-z-]*)")


def runs_folder(app: Path) -> Path:
    """Return ``STATE_DIR/.kstate/<application.id>``: on the file system of APP, and ignored by Streams."""
    return app.parent / OWN_FOLDER / app.name


def read_runs(app: Path) -> list[Run]:
    """Return the runs of an application, oldest first, damaged ones included.

    A run whose journal names another application is marked as damaged. Raise Refused for links, and if this user may
    not read the folder.
    """
    folder = runs_folder(app)
    with reading():
        # The outer folder is checked first: a link at either level would lead every later read and write elsewhere.
        for path in (folder.parent, folder):
            if path.is_symlink():
                raise Refused(
                    f"{path} is a symbolic link",
                    hint="replace it with a directory. kstate keeps its runs there and does not follow links",
                )
            if not os.path.lexists(path):
                return []
            if not path.is_dir():
                raise Refused(
                    f"{path} is not a directory",
                    hint="kstate keeps its runs in a directory with this name. Move this entry elsewhere",
                )
        runs = [read_run(path) for _, path in sorted(_folders(folder))]
    for run in runs:
        other = _of_another(run)
        if other is not None and run.damage is None:
            run.damage = f"its journal belongs to application {other} instead of {app.name}"
    return runs


def _folders(folder: Path) -> list[tuple[int, Path]]:
    """Return the number and path of each folder that is a run. Other entries are ignored."""
    numbered = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name is None or not entry.is_dir(follow_symlinks=False):
                continue
            # A newer kstate may have other commands. A run whose journal was lost may still have the only backup, so
            # its directory is enough to recognize it.
            if name[2] in _NAMES or any(os.path.lexists(os.path.join(entry.path, part)) for part in _OF_RUNS):
                numbered.append((int(name[1]), Path(entry.path)))
    return numbered


def _of_another(run: Run) -> str | None:
    """Return the application.id in the journal of a run if it differs from that of its folder; None otherwise."""
    app: Any = None
    if run.events:
        app = run.events[0].get("app")
    # Only the last part of the path is compared: a state.dir may be mounted or moved elsewhere.
    if not isinstance(app, str) or os.path.basename(app) == run.path.parent.name:
        return None
    return os.path.basename(app)


def require_understood(runs: list[Run]) -> list[Run]:
    """Return the runs if every one is understood. Raise Refused, naming the first that is not."""
    _refuse_copies(runs)
    for run in runs:
        if run.damage is not None:
            hint = (
                f"{run.path} may contain the only copy of an application directory. If you do not need {run.tree}, "
                "move the folder elsewhere. Until then, kstate refuses to change the application directory"
            )
            if _of_another(run):
                hint = _OF_ANOTHER
            raise Refused(f"kstate cannot read run {run.name}: {run.damage}", where=str(run.path), hint=hint)
    return runs


def make_runs_folder(app: Path) -> Path:
    """Return the folder of the runs, which is created durably if it is missing.

    Only the application's owner may use it.

    Raise OSError; this function leaves no empty folder then.
    """
    folder = runs_folder(app)
    try:
        if not folder.parent.exists():
            # ``.kstate`` gets the owner of state.dir. Applications of several owners may share a state.dir, and whoever
            # may create an application there may also create its runs.
            model = nofollow.stat(app.parent)
            # It gets the mode and the sticky bit of state.dir. Every user may search it (x), because the folder of each
            # application has its own mode.
            make_own_directory(folder.parent, model, (model.st_mode & 0o1777) | 0o111)
        if not folder.exists():
            make_own_directory(folder, nofollow.stat(app), 0o750)
    except BaseException:
        remove_empty_folders(app)
        raise
    return folder


def _refuse_copies(runs: list[Run]) -> None:
    """Raise Refused if two folders are copies of one run: the journal of one may not describe the tree of the other."""
    by_token: dict[str, Run] = {}
    for run in runs:
        if run.token is not None:
            # Each run has a random token, so two folders with the same token are a folder and its copy.
            first = by_token.setdefault(run.token, run)
            if first is not run:
                raise Refused(
                    f"run {run.name} is a copy of run {first.name}",
                    where=str(run.path),
                    hint="move one of the two elsewhere, then run the command again",
                )


def create_run(app: Path, command: str, *, reason: str | None = None, **details: Any) -> Run:
    """Create the folder of a run, and write the event ``created`` with ``details`` to its journal. Raise OSError.

    ``command`` is the command as ``kstate status`` prints it. If the event cannot be written, the folder remains. It
    has no event then, so kstate ignores it.
    """
    folder = make_runs_folder(app)
    owner = nofollow.stat(app)  # the owner of the application can then continue and delete the run
    # The number of each entry is counted, also of foreign links and folders: a number is never used twice.
    numbers = [int(digits[0]) for name in nofollow.listed(folder) if (digits := re.match(r"\d+", name))]
    path = folder / f"{max(numbers, default=0) + 1:04d}-{command.split(maxsplit=1)[0]}"
    make_own_directory(path, owner, 0o750)
    run = Run(path, [])
    # 128 random bits connect a mark to its journal. Names and inodes change with a copy, the token does not.
    token = secrets.token_hex(16)
    if not holds_tasks(app):
        # Recorded before staging: later only this member shows that APP was empty then, and so has lost nothing.
        details[EMPTY_AT_START] = True
    run.write("created", command=command, app=str(app), token=token, **invoker(), reason=reason, **details)
    own_like(path / JOURNAL, owner)
    nofollow.chmod(path / JOURNAL, 0o644)  # whatever the umask: the owner must be able to continue
    return run


def remove_empty_folders(app: Path) -> None:
    """Remove ``.kstate/<application.id>`` and ``.kstate`` if they are empty."""
    folder = runs_folder(app)
    for path in (folder, folder.parent):
        if path.is_symlink():
            return
        try:
            nofollow.rmdir(path)
        except FileNotFoundError:
            continue
        except OSError:
            return


def forget(app: Path, run: Run) -> None:
    """Remove the folder of a run that has nothing but its journal and its lists. Suppress OSError."""
    with contextlib.suppress(OSError):
        names = set(nofollow.listed(run.path))
        # A tree or sorted files are data. Only a run that has neither is removed.
        if names - JOURNALS - LISTS:
            return
        # The journal is deleted last: without it the next command could not know whose files the others are.
        for name in sorted(names, key=lambda name: name in JOURNALS):
            nofollow.unlink(run.path / name)
        nofollow.rmdir(run.path)
        sync_directory(run.path.parent)
        remove_empty_folders(app)


def invoker() -> dict[str, Any]:
    """Return who runs kstate, for the journal: ``argv`` without secrets, ``user``, ``host``, ``pid``, ``version``."""
    user = str(os.geteuid())
    with contextlib.suppress(ImportError, KeyError, OSError):  # in a container, a uid may have no name
        user = getpass.getuser()
    return {
        "argv": redacted(sys.argv[1:]),
        "user": user,
        "uid": os.geteuid(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": __version__,
    }


AGES: Final = "ages.json"
STANDBY: Final = "standby.json"
OWN_FILES: Final = (AGES, STANDBY)
"""The names of all files that kstate keeps in the folder of the runs; ``kstate clean`` keeps them too."""
_DRAFT: Final = ".tmp"
"""The suffix of the temporary name of a file that is not complete yet."""


def write_own_file(app: Path, path: Path, data: bytes) -> None:
    """Replace ``path``, a file in the folder of the runs of ``app``. Raise OSError; the old file is unchanged then.

    The caller holds the application lock. The file gets the owner of the application, who can then replace it.
    """
    make_runs_folder(app)
    draft = path.with_name(path.name + _DRAFT)
    nofollow.unlink(draft, missing_ok=True)  # a process that died has left it: the lock excludes other living ones
    try:
        with open(nofollow.open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        own_like(draft, nofollow.stat(app))
        # Owner and bytes are complete before the rename, so a reader never sees a partial file.
        nofollow.rename(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            nofollow.unlink(draft)
        raise
    sync_directory(path.parent)


def remove_drafts(app: Path) -> None:
    """Remove the temporary files of processes that died in :func:`write_own_file`. Suppress OSError.

    The caller holds the application lock.
    """
    for name in OWN_FILES:
        with contextlib.suppress(OSError):
            nofollow.unlink(runs_folder(app) / (name + _DRAFT))

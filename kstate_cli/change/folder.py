"""The folder of an application's runs: ``STATE_DIR/.kstate/<application.id>``. What is not kstate's is never touched.

Only real directories count, and only those that are named like a run: ``NNNN-command``. Nothing here follows a link.
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
from kstate_cli.change.access import drop_acl, own_like, reading
from kstate_cli.change.fingerprint import LISTS
from kstate_cli.change.journal import FOUND_EMPTY, JOURNAL, JOURNALS, Run, read_run
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import Refused
from kstate_cli.redaction import redacted
from kstate_cli.statedir.find import holds_tasks
from kstate_cli.statedir.names import OWN_FOLDER

COMMANDS: Final = frozenset({"migrate", "wipe", "restore", "rehome"})
"""The commands that make runs."""
_OF_ANOTHER = (
    "what it keeps is neither put in the place of this application nor deleted here: move the folder to the runs of "
    "its own. Was the application directory renamed, and its runs with it? Kafka Streams knows it by its "
    "application.id alone: rename both back"
)
_NAME = re.compile(r"(\d{4,})-([a-z][a-z-]*)")


def runs_folder(app: Path) -> Path:
    """``STATE_DIR/.kstate/<application.id>``: on the file system of APP, and Streams never looks there."""
    return app.parent / OWN_FOLDER / app.name


def read_runs(app: Path) -> list[Run]:
    """The runs of an application, oldest first, those that are damaged among them.

    Raises Refused for links, and for what this user may not read.
    """
    folder = runs_folder(app)
    with reading():
        for path in (folder.parent, folder):
            if path.is_symlink():
                raise Refused(
                    f"{path} is a symbolic link",
                    hint="kstate keeps its runs there and follows no link: put a directory in its place",
                )
            if not os.path.lexists(path):
                return []
            if not path.is_dir():
                raise Refused(f"{path} is not a directory", hint="kstate keeps its runs there: move it away")
        runs = [read_run(path) for _, path in sorted(_folders(folder))]
    for run in runs:
        other = _of_another(run)
        if other is not None and run.damage is None:
            run.damage = f"its journal is of application {other}, not of {app.name}"
    return runs


def _folders(folder: Path) -> list[tuple[int, Path]]:
    numbered = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = _NAME.fullmatch(entry.name)
            if name is None or not entry.is_dir(follow_symlinks=False):
                continue
            # A newer kstate may have other commands: their journal tells that they are kstate's.
            if name[2] in COMMANDS or any(os.path.lexists(os.path.join(entry.path, one)) for one in JOURNALS):
                numbered.append((int(name[1]), Path(entry.path)))
    return numbered


def _of_another(run: Run) -> str | None:
    """The application.id that the journal of a run names, where it is not that of the folder which the run lies in."""
    told = run.events[0].get("app") if run.events else None
    name = os.path.basename(told) if isinstance(told, str) else run.path.parent.name
    return name if name != run.path.parent.name else None


def understood(runs: list[Run]) -> list[Run]:
    """The runs, all of them understood whole. Raises Refused, naming the first that is not."""
    _refuse_copies(runs)
    for run in runs:
        if run.damage is not None:
            raise Refused(
                f"run {run.name} is not understood: {run.damage}",
                where=str(run.path),
                hint=(
                    _OF_ANOTHER
                    if _of_another(run)
                    else "it may keep the only copy of an application directory, so nothing is done until it is out of "
                    f"the way: look at {run.path}; if {run.tree} is nothing that you need, move the folder elsewhere"
                ),
            )
    return runs


def make_runs_folder(app: Path) -> Path:
    """The folder of the runs, made durable if it is not there; the application's owner's alone.

    Raises OSError, and leaves no empty folder then.
    """
    folder = runs_folder(app)
    try:
        if not folder.parent.exists():
            # Applications of several owners may share a state.dir: who may make one there may have runs of it, too.
            model = app.parent.stat()
            folder.parent.mkdir(mode=0o700)
            drop_acl(folder.parent)
            own_like(folder.parent, model)
            os.chmod(folder.parent, (model.st_mode & 0o1777) | 0o111)
            sync_directory(app.parent)
        if not folder.exists():
            folder.mkdir(mode=0o750)
            drop_acl(folder)
            own_like(folder, app.stat())
            os.chmod(folder, 0o750)
            sync_directory(folder.parent)
    except BaseException:
        remove_empty_folders(app)
        raise
    return folder


def _refuse_copies(runs: list[Run]) -> None:
    """Two folders of one run: what one of them says may be about the tree of the other. Raises Refused."""
    known: dict[str, Run] = {}
    for run in runs:
        if run.token is not None:
            first = known.setdefault(run.token, run)
            if first is not run:
                raise Refused(
                    f"{run.name} is a copy of run {first.name}",
                    where=str(run.path),
                    hint="move one of the two elsewhere, then run the command again",
                )


def create_run(app: Path, command: str, *, reason: str | None = None, **details: Any) -> Run:
    """A new run directory with its first event. Raises OSError, leaving nothing that counts."""
    folder = make_runs_folder(app)
    owner = app.stat()  # the application's, who can then clean up
    # Whatever is there keeps its number, a link or a folder of somebody else's too.
    numbers = [int(digits[0]) for name in os.listdir(folder) if (digits := re.match(r"\d+", name))]
    path = folder / f"{max(numbers, default=0) + 1:04d}-{command.split(maxsplit=1)[0]}"
    path.mkdir(mode=0o750)
    drop_acl(path)
    own_like(path, owner)
    os.chmod(path, 0o750)
    sync_directory(folder)
    run = Run(path, [])
    token = secrets.token_hex(16)
    if not holds_tasks(app):
        details[FOUND_EMPTY] = True
    run.write("created", command=command, app=str(app), token=token, **invoker(), reason=reason, **details)
    own_like(path / JOURNAL, owner)
    os.chmod(path / JOURNAL, 0o644)  # whatever the umask: the owner must be able to go on
    return run


def remove_empty_folders(app: Path) -> None:
    """Removes ``.kstate/<application.id>`` and ``.kstate`` once nothing is in them."""
    folder = runs_folder(app)
    for path in (folder, folder.parent):
        if path.is_symlink():
            return
        try:
            path.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def forget(app: Path, run: Run) -> None:
    """Removes the folder of a run that has nothing but its journal and its lists, and no other. Suppresses OSError."""
    with contextlib.suppress(OSError):
        names = set(os.listdir(run.path))
        if names - JOURNALS - LISTS:
            return
        # The journal goes last: without it nothing would say whose the rest is.
        for name in sorted(names, key=lambda name: name in JOURNALS):
            os.unlink(run.path / name)
        run.path.rmdir()
        sync_directory(run.path.parent)
        remove_empty_folders(app)


def invoker() -> dict[str, Any]:
    """``argv`` without secrets, ``user``, ``host``, ``pid`` and ``version``."""
    user = str(os.geteuid())
    with contextlib.suppress(ImportError, KeyError, OSError):  # a uid without a name: containers have them
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
"""All of them; ``kstate clean`` leaves them."""
_DRAFT: Final = ".tmp"
"""What is behind the name of one that is not whole yet."""


def write_own_file(app: Path, path: Path, data: bytes) -> None:
    """Replaces ``path``, which lies in the folder of the runs of ``app``. Raises OSError; then it is as it was."""
    make_runs_folder(app)
    draft = path.with_name(path.name + _DRAFT)
    draft.unlink(missing_ok=True)  # of a process that died: whoever holds the lock is alone
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        own_like(draft, app.stat())
        os.rename(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync_directory(path.parent)


def remove_drafts(app: Path) -> None:
    """Removes what processes that died in :func:`write_own_file` have left. The lock is held. Suppresses OSError."""
    for name in OWN_FILES:
        with contextlib.suppress(OSError):
            (runs_folder(app) / (name + _DRAFT)).unlink()

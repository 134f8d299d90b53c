"""The folder that a run has below the staging area: its own, with a mark in it, and never that of another run.

Hosts share the area, and two of them may have the same application and the same number of run. So the folder's name
ends in a token; the run's journal names folder and token before the folder is made, and the mark in the folder has the
token too. What a killed run left is removed only where both agree: a journal alone may have been written by anybody.

The files in the folder belong to ``staging``; the staged application directory belongs to ``change.engine``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kstate_cli import option
from kstate_cli.change.access import own_like
from kstate_cli.change.journal import Run
from kstate_cli.diagnosis import kept_uri, leads_there
from kstate_cli.dump_reader.location import absolute, is_here, open_location, uri_text
from kstate_cli.errors import KstateError, Refused, RunFailed
from kstate_cli.formats.binary import parse_json
from kstate_cli.host import umask_before
from kstate_cli.parallel import another_python, same_modules
from kstate_cli.restore.jobs import fitting
from kstate_cli.signals import start
from kstate_cli.texts import command, printable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STAGING_EVENT, REMOVED_EVENT = "staging", "staging-removed"
MARK: Final = "_kstate.json"
_FORMAT: Final = 1
_TOKEN: Final = re.compile("[0-9a-f]{32}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_LOOK_SECONDS: Final = 20.0
"""The wait for a place that does not answer: its client would try again and again by itself."""
_LOOK: Final = "from kstate_cli.restore.staging_area import serve; serve()"


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a run left in its staging area."""

    run: str
    place: str
    """Where, without what may be a secret."""
    files: int
    size: int
    """Bytes of all files."""
    why: str | None
    """Why kstate does not remove it; None where it does."""


def settled(uri: str) -> str:
    """Return the staging area as an absolute local path, or a URI that pyarrow knows. Raises UsageError."""
    uri = absolute(uri)
    filesystem, path = open_location(uri)
    if is_here(filesystem):
        return path
    return uri


def below(uri: str, name: str) -> str:
    """Return a file or folder below a path, or below a URI with or without a query."""
    if "://" not in uri:
        return os.path.join(uri, name)
    base, mark, query = uri.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def check_area(uri: str) -> None:
    """Raise Refused for an area that cannot be written, or whose URI leads nowhere without its secrets.

    Nothing is left there. Raises UsageError too.
    """
    if not leads_there(uri):
        raise Refused(
            (
                f"{option.STAGING} {uri_text(uri)}: kstate does not record passwords. Without its password, a URI with "
                "an @ in the path is ambiguous"
            ),
            hint=(
                "pass a path without an @, or a URI without user and password. kstate takes credentials from the "
                "environment"
            ),
        )
    filesystem, path = open_location(uri)
    try:
        if settled(uri) == path:
            # The run makes a folder that is missing, so the first parent that exists must be writable.
            while not os.path.lexists(path):
                path = os.path.dirname(path)
            # The file has no name, so that nothing is left if the process is killed.
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"kstate")
            return
        # Object stores have only files with names: one that nothing else has is written and deleted at once.
        name = f"{path.rstrip('/')}/.kstate-{uuid.uuid4().hex}"
        with filesystem.open_output_stream(name) as sink:
            sink.write(b"kstate")
        filesystem.delete_file(name)
    except (OSError, KstateError) as error:
        raise Refused(
            f"kstate cannot write to {option.STAGING} {uri_text(uri)}: {_words(error)}",
            hint="pass a folder or URI that this host and the executors can write to",
        ) from None


def make_area(uri: str, app: str, run: Run) -> str:
    """Make the folder of ``run`` below ``uri``, after the journal names it; return its path or URI. Raises OSError."""
    # The name is random: two hosts may have the same application and the same number of run.
    token = uuid.uuid4().hex
    host = socket.gethostname()
    name = fitting(_UNSAFE.sub("_", f"{app}-{run.name}-{host}")) + f"-{token}"
    target = below(uri, name)
    local = {}
    if "://" not in target:
        # The mount is recorded: while it is missing the folder would seem removed, and its journal could be deleted.
        local = {"mount": _mount_of(target)}
    # The journal names the folder before it exists: a kill between the two leaves no folder that nothing names.
    run.write(STAGING_EVENT, uri=kept_uri(target), token=token, host=host, **local)
    mark = json.dumps({"format": _FORMAT, "app": app, "run": run.name, "host": host, "token": token}).encode()
    filesystem, path = open_location(target)
    if path == target:
        parent = os.path.dirname(path)
        _make_parents(parent)
        # exist_ok is not set: a folder with this name would be that of another run.
        os.mkdir(path)
        # Executors may run as another user: whoever may write to the area may write to its folders.
        model = os.stat(parent)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            own_like(descriptor, model)
            os.fchmod(descriptor, stat.S_IMODE(model.st_mode))
        finally:
            os.close(descriptor)
    else:
        filesystem.create_dir(path, recursive=True)
    # The mark is written last: a folder without a mark is removed only if it is empty.
    with filesystem.open_output_stream(f"{path}/{MARK}") as sink:
        sink.write(mark)
    return target


def _make_parents(path: str) -> None:
    """Create a missing directory and its parents, with the mode that the umask of the user allows. Raises OSError.

    Executors may run as another user, so the narrower umask of this process is not the right one.
    """
    if os.path.isdir(path):
        return
    _make_parents(os.path.dirname(path))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
        if umask_before() >= 0:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                os.fchmod(descriptor, mode | (0o777 & ~umask_before()))
            finally:
                os.close(descriptor)


def left_in_area(run: Run) -> Leftover | None:
    """Return what a run has in its staging area now; None if it has none, or nothing exists any more.

    The file system of the area is asked unless the run has recorded that it removed its folder. It may be on another
    host, whatever its path looks like, so the answer is awaited for ``_LOOK_SECONDS`` at most.
    """
    event = run.last(STAGING_EVENT)
    if not event or run.last(REMOVED_EVENT):
        return None
    uri, token = event.get("uri"), event.get("token")
    if not isinstance(uri, str) or not isinstance(token, str) or not _TOKEN.fullmatch(token):
        return Leftover(run.name, "?", 0, 0, "the run's journal does not record its location")
    if not _is_ours(uri, token):
        # Anybody may have written a journal: only a path that has the form of such a folder is examined.
        return Leftover(run.name, uri_text(uri) or "?", 0, 0, "its name is not the name of a staging folder")
    try:
        if "://" not in uri or uri.startswith("file:"):
            contents = _contents_here(uri, token, event.get("mount"))
        else:
            contents = _contents_elsewhere(uri, token)
    except (OSError, KstateError, ValueError, subprocess.SubprocessError) as error:
        return Leftover(run.name, uri_text(uri), 0, 0, f"kstate cannot check it: {_words(error)}")
    if contents is None:
        return None
    return Leftover(run.name, uri_text(uri), *contents)


def _is_ours(uri: str, token: str) -> bool:
    """Return True for what ``make_area`` records: an absolute path or a URI of a folder named by the token."""
    if "://" in uri:
        # What follows the question mark are options of the store, not a part of the path.
        return uri.partition("?")[0].rstrip("/").endswith(f"-{token}")
    return os.path.isabs(uri) and uri.rstrip("/").endswith(f"-{token}")


def _contents(uri: str, token: str) -> tuple[int, int, str | None] | None:
    """Return files and bytes, and why they are not ours; None if nothing exists. Raises OSError and UsageError."""
    filesystem, path = _open_place(uri)
    contents = _look(filesystem, path)
    if contents is None:
        return None
    files, size, empty = contents
    if empty or _mark(filesystem, path).get("token") == token:
        return files, size, None
    return files, size, f"its file {MARK} does not name this run"


def _contents_here(uri: str, token: str, mount: object) -> tuple[int, int, str | None] | None:
    """Return :func:`_contents` of a path of this host, from a thread that is abandoned if a mount does not answer."""
    answers: list[tuple[int, int, str | None] | Exception | None] = []

    def look() -> None:
        try:
            if "://" not in uri:
                _must_be_mounted(uri, mount)
            answers.append(_contents(uri, token))
        except Exception as error:
            answers.append(error)

    # A call that waits for a hung mount cannot be ended: the thread is left behind, and ends with the process.
    thread = threading.Thread(target=look, daemon=True)
    start(thread)
    thread.join(_LOOK_SECONDS)
    if not answers:
        raise OSError(_no_answer(_LOOK_SECONDS))
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _contents_elsewhere(uri: str, token: str) -> tuple[int, int, str | None] | None:
    """Return :func:`_contents` of another URI, from a process, because nothing else ends a hanging call of pyarrow."""
    # The client of an object store retries for minutes, in C++: a thread could not be ended.
    process = subprocess.run(
        another_python(_LOOK),
        input=json.dumps([uri, token]).encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=same_modules(),
        timeout=_LOOK_SECONDS,
        check=True,
    )
    answer = parse_json(process.stdout)
    if isinstance(answer, str):
        raise OSError(answer)
    if answer is None:
        return None
    files, size, why = answer
    return files, size, why


def serve() -> None:
    """Run the process that looks: it reads a JSON array of URI and token, and writes the contents, or why not."""
    uri, token = parse_json(sys.stdin.buffer.read())
    answer: object
    try:
        answer = _contents(uri, token)
    except (OSError, KstateError) as error:
        answer = _words(error)
    sys.stdout.write(json.dumps(answer))


def _mount_of(path: str) -> str:
    """Return the mount point that a path is below, whether or not the path exists."""
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _must_be_mounted(path: str, mount: object) -> None:
    """Raise OSError if the file system of a missing path may be unmounted: unknown is not nothing."""
    if os.path.lexists(path):
        return
    if isinstance(mount, str) and os.path.isabs(mount) and not os.path.ismount(mount):
        raise OSError(f"its file system {printable(mount)} is not mounted")
    if not os.path.isdir(os.path.dirname(path.rstrip("/"))):
        raise OSError("its parent folder was removed or is not mounted")


def remove_from_area(run: Run) -> Leftover | None:
    """Remove what a run that has ended left in its staging area, and record that; return what it was.

    The caller holds a lock that keeps other commands of kstate out. Raises RunFailed if anything is there that cannot
    be removed: the journal, which alone knows of it, must then stay as well.
    """
    leftover = left_in_area(run)
    if leftover is None:
        return None
    # Token and mark agree, so the folder certainly belongs to this run.
    if leftover.why is None:
        filesystem, path = _open_place(run.last(STAGING_EVENT)["uri"])
        try:
            _delete(filesystem, path)
        except OSError as error:
            leftover = Leftover(leftover.run, leftover.place, leftover.files, leftover.size, _words(error))
        else:
            # The folder is gone. If the disk has no space to record that, a later command finds nothing there, which is
            # as good.
            with contextlib.suppress(OSError):
                run.write(REMOVED_EVENT)
            return leftover
    raise RunFailed(
        f"kstate does not delete the files of run {run.name} in its staging area {leftover.place}: {leftover.why}",
        hint="check this folder and remove it yourself, unless you want to keep it. Then delete the run by name: "
        + command("clean", run.path.parents[2] / run.path.parent.name, option.RUN, run.name),
    )


def end_area(run: Run, target: str) -> None:
    """Remove the folder of a run and record that; ``kstate status`` shows what cannot be removed."""
    try:
        filesystem, path = open_location(target)
        _delete(filesystem, path)
        # The journal may have gone with its run.
        if run.path.is_dir():
            run.write(REMOVED_EVENT)
    except (OSError, KstateError):
        return


def _open_place(uri: str) -> tuple[FileSystem, str]:
    """Return ``open_location`` without the slash at the end, which would follow a link."""
    filesystem, path = open_location(uri)
    return filesystem, path.rstrip("/")


def _look(filesystem: FileSystem, path: str) -> tuple[int, int, bool] | None:
    """Return files and bytes of a folder, and whether it is empty; None if it does not exist."""
    from pyarrow.fs import FileSelector, FileType

    if is_here(filesystem):
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(mode):
            raise OSError(f"{path} is not a directory")
    # An object store has no folders: something is there if any object has the prefix.
    elif filesystem.get_file_info(path).type == FileType.NotFound:
        return None
    entries = filesystem.get_file_info(FileSelector(path, recursive=True))
    files = [entry for entry in entries if entry.type == FileType.File]
    return len(files), sum(entry.size for entry in files), not entries


def _mark(filesystem: FileSystem, path: str) -> dict[str, Any]:
    try:
        with filesystem.open_input_stream(f"{path}/{MARK}") as source:
            members = parse_json(source.read(1 << 16))
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(members, dict):
        return {}
    return members


def _delete(filesystem: FileSystem, path: str) -> None:
    """Remove a folder, its mark last: if that is interrupted, the rest still has the mark. Links are never followed."""
    from pyarrow.fs import FileSelector, FileType

    if is_here(filesystem):
        if not os.path.isdir(path):
            return
        for name in os.listdir(path):
            entry_path = os.path.join(path, name)
            if name == MARK:
                continue
            if os.path.isdir(entry_path) and not os.path.islink(entry_path):
                shutil.rmtree(entry_path)
            else:
                os.unlink(entry_path)
        shutil.rmtree(path)
        return
    for entry in filesystem.get_file_info(FileSelector(path, allow_not_found=True)):
        if entry.base_name == MARK:
            continue
        if entry.type == FileType.Directory:
            filesystem.delete_dir(entry.path)
        else:
            filesystem.delete_file(entry.path)
    with contextlib.suppress(FileNotFoundError):
        filesystem.delete_dir(path)


def _no_answer(seconds: float) -> str:
    return f"it did not respond within {seconds:g} s"


def _words(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return _no_answer(error.timeout)
    if isinstance(error, subprocess.CalledProcessError):
        return f"the process that was checking it ended (exit status {error.returncode})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

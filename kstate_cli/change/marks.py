"""Marks: small files in the root of an application directory that record the state of its tree.

A journal is stored beside the trees and can be lost, cut or copied apart from them. An inode proves nothing either:
overlay file systems renumber after a remount, and a copy has others. So the proof that a tree may be removed is a file
in that tree.

``.kstate-staged`` is the first file of a tree that is being staged (built beside APP). The exchange moves it to APP
with its tree. It is removed from APP once the journal's ``switched`` is durable. So a tree with it was never in APP's
place, and may be deleted; an APP with it has been exchanged. A tree without it may be the only copy of an application.

``.kstate-undoing`` is added to a backup before it is exchanged back, and removed from APP once ``undone`` is durable.
It shows whether that exchange happened. It never allows kstate to delete a tree.

A mark is durable before the step that it proves: its bytes are synced before the file is closed, then the entry in the
directory. Its removal is synced too, since a mark that came back after a power loss would make a backup look staged.

Kafka Streams reads task directories, ``.lock`` and its process file only: it starts from an APP with either mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Final

from kstate_cli.change import nofollow
from kstate_cli.change.access import own_like, reading
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import naming
from kstate_cli.formats.binary import parse_json

STAGED: Final = ".kstate-staged"
UNDOING: Final = ".kstate-undoing"
MARKS: Final = frozenset({STAGED, UNDOING})
_SCHEMA = 1
_MOST_BYTES = 4096


def put_mark(folder: Path, mark: str, token: str) -> None:
    """Add the mark of the run with this token to ``folder``, durably. Raise OSError, FileExistsError included."""
    # O_EXCL: an existing mark belongs to another run and must not be overwritten.
    descriptor = nofollow.open_file(folder / mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        own_like(descriptor, nofollow.stat(folder))
        os.fchmod(descriptor, 0o644)  # whatever the umask: another user may continue the run
        with naming(folder / mark):
            os.write(descriptor, json.dumps({"schema_version": _SCHEMA, "token": token}).encode() + b"\n")
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(folder)


def token_of(folder: Path, mark: str) -> str | None:
    """Return the token in a mark; empty if the mark is unreadable or malformed, None if there is no mark.

    Raise Refused if this user may not read it, OSError for other errors than a missing file.
    """
    try:
        with reading():
            # O_NONBLOCK: a FIFO with the name of a mark must not make a command wait forever.
            descriptor = nofollow.open_file(folder / mark, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        # The mark is a link or a socket, for example. kstate writes only regular files, so another program created it.
        if os.path.lexists(folder / mark):
            return ""
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        # A single read is enough: a mark is one line, and kstate has not written a longer file.
        row = parse_json(os.read(descriptor, _MOST_BYTES))
    except ValueError:
        return ""
    finally:
        os.close(descriptor)
    # "" and not None: the mark exists, although its contents prove nothing.
    if not isinstance(row, dict) or not isinstance(row.get("token"), str):
        return ""
    return str(row["token"])


def remove_mark(folder: Path, mark: str) -> None:
    """Remove a mark, durably. Raise OSError."""
    with contextlib.suppress(FileNotFoundError):
        nofollow.unlink(folder / mark)
        sync_directory(folder)


def remove_marks(folder: Path) -> None:
    """Remove both marks, durably.

    For a tree that leaves APP: it becomes a backup, and must not look like a staged tree.
    """
    for mark in sorted(MARKS):
        remove_mark(folder, mark)

"""Marks: small files in the root of an application directory that say what its tree is.

A journal lies beside the trees and can be lost, cut or copied apart from them, and an inode is no proof either: overlay
file systems give others after a remount, and so does a copy. So what decides whether a tree may be removed lies in it.

``.kstate-staged``: the first thing in a tree that is being staged. It goes through the exchange with its tree, and is
removed from APP once the journal's ``switched`` is durable. A tree that has it was never switched in and may be swept;
an APP that has it was. A tree without it is somebody's only copy.

``.kstate-undoing``: put into a kept tree before it is exchanged back, and removed from APP once ``undone`` is durable.
It tells whether that exchange happened, and never allows anything to be removed.

Kafka Streams looks at task directories, ``.lock`` and its process file only: it starts from an APP with either mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Final

from kstate_cli.change.access import own_like, reading
from kstate_cli.change.system_calls import sync_directory
from kstate_cli.errors import naming
from kstate_cli.formats.json_text import parse_json

STAGED: Final = ".kstate-staged"
UNDOING: Final = ".kstate-undoing"
MARKS: Final = frozenset({STAGED, UNDOING})
_SCHEMA = 1
_MOST_BYTES = 4096


def put_mark(folder: Path, mark: str, token: str) -> None:
    """Makes the mark of the run with this token durable in ``folder``. Raises OSError, FileExistsError included."""
    descriptor = os.open(folder / mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        own_like(descriptor, os.stat(folder))
        os.fchmod(descriptor, 0o644)  # whatever the umask: who goes on with it may be another user
        with naming(folder / mark):
            os.write(descriptor, json.dumps({"schema_version": _SCHEMA, "token": token}).encode() + b"\n")
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(folder)


def token_of(folder: Path, mark: str) -> str | None:
    """The token of the run whose mark is there; empty when it cannot be told, None when there is no mark.

    Raises Refused where this user may not read it, OSError other than for a file that is not there.
    """
    try:
        with reading():
            descriptor = os.open(folder / mark, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        if os.path.lexists(folder / mark):
            return ""
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        row = parse_json(os.read(descriptor, _MOST_BYTES))
    except ValueError:
        return ""
    finally:
        os.close(descriptor)
    token = row.get("token") if isinstance(row, dict) else None
    return token if isinstance(token, str) else ""


def remove_mark(folder: Path, mark: str) -> None:
    """Removes a mark, durably. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(folder / mark)
        sync_directory(folder)


def remove_marks(folder: Path) -> None:
    """Removes both marks, durably: what is exchanged away must not look as if it had only been staged."""
    for mark in sorted(MARKS):
        remove_mark(folder, mark)

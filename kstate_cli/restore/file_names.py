"""File names of bounded length from names of any length: a store's may fill a whole file name by itself."""

from __future__ import annotations

import hashlib
from typing import Final

_LONGEST: Final = 96
_DIGEST: Final = 16


def task_key(task: str) -> str:
    """A task as part of a file name: those of a named topology, ``__name__/0_1``, have a slash."""
    return task.replace("/", ".")


def task_of(key: str) -> str:
    """The task of a ``task_key``: in a topology's name there may be dots, behind it there are none."""
    topology, _, task = key.rpartition(".")
    return f"{topology}/{task}" if topology else task


def fitting(name: str) -> str:
    """``name`` where it is short; else its beginning and a digest of all of it. At most 96 bytes of UTF-8."""
    encoded = name.encode()
    if len(encoded) <= _LONGEST:
        return name
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST]
    return f"{encoded[: _LONGEST - _DIGEST - 1].decode(errors='ignore')}~{digest}"

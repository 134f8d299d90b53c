"""What RocksDB makes in a staged database belongs to the application, as the application's own files do."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

from kstate_cli.change.access import keep_access
from kstate_cli.change.owner import own_like

_KIND = re.compile(r"(?<=LOG)\..*|\d+")
"""What is taken out of a file's name to get its kind: numbers, and what tells one LOG from another."""


def take_access(path: Path, app: Path, original: Path) -> None:
    """Gives the database in ``path`` and its new files owner, mode and ACL of those of ``original``, file by file.

    A file that the original has not gets those of one of its kind. Where there is no such database, another one of the
    application is the model; without any, only the owner is carried over. Files that are linked are the original's.
    """
    model = original if (original / "CURRENT").exists() else _any_database(app)
    parent = os.stat(path.parent)
    own_like(path, os.stat(model) if model == original else parent)
    models = {} if model is None else _by_kind(model)
    if model is not None and model != original:
        keep_access(model, path)
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_nlink > 1:
                continue
            like = models.get(entry.name) or models.get(_kind(entry.name)) or models.get("CURRENT")
            own_like(Path(entry.path), parent if like is None else os.stat(like))
            if like is not None:
                keep_access(like, Path(entry.path))


def _kind(name: str) -> str:
    return _KIND.sub("", name)


def _by_kind(database: Path) -> dict[str, Path]:
    models: dict[str, Path] = {}
    with os.scandir(database) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file(follow_symlinks=False):
                models[entry.name] = Path(entry.path)
                models.setdefault(_kind(entry.name), Path(entry.path))
    return models


@functools.lru_cache(maxsize=4)
def _any_database(app: Path) -> Path | None:
    for folder, folders, files in os.walk(app):
        folders.sort()
        if "CURRENT" in files:
            return Path(folder)
    return None

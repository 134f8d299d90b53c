"""Trees byte for byte: what somebody may need again must be there exactly as it was put aside."""

from __future__ import annotations

import hashlib
import os
import stat as modes
from dataclasses import dataclass
from pathlib import Path

_facts: dict[tuple[int, int, int, int, int], str] = {}
_MANY = 200_000


@dataclass(frozen=True)
class Entry:
    """One file, folder or link."""

    kind: str
    mode: int
    size: int
    mtime_ns: int
    digest: str


Tree = dict[str, Entry]
"""Path relative to the top -> what is there. The top itself is `.`."""


def snapshot(top: Path, ignore: frozenset[str] = frozenset()) -> Tree:
    """Every entry of a tree; `ignore` are names at its top. Times of folders are left out: who looks away changes them."""
    tree: Tree = {}
    for folder, folders, files in os.walk(top):
        place = os.path.relpath(folder, top)
        tree[place] = Entry("folder", os.lstat(folder).st_mode, 0, 0, "")
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(folder, name)))):
            if place == "." and name in ignore:
                continue
            path = os.path.join(folder, name)
            tree[os.path.normpath(os.path.join(place, name))] = _entry(path)
    return tree


def _entry(path: str) -> Entry:
    stat = os.lstat(path)
    if modes.S_ISLNK(stat.st_mode):
        return Entry("link", 0, 0, 0, os.readlink(path))
    key = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    if key not in _facts:
        if len(_facts) > _MANY:
            _facts.clear()
        with open(path, "rb") as file:
            _facts[key] = hashlib.sha256(file.read()).hexdigest()
    return Entry("file", stat.st_mode, stat.st_size, stat.st_mtime_ns, _facts[key])


def differences(tree: Tree, other: Tree) -> list[str]:
    """Where two trees differ, for a message."""
    results = []
    for path in sorted(tree.keys() | other.keys()):
        remainder, right = tree.get(path), other.get(path)
        if remainder != right:
            text = "missing" if right is None else "new" if remainder is None else _content(remainder, right)
            results.append(f"{path}: {text}")
    return results


def _content(entry: Entry, other: Entry) -> str:
    names = ("kind", "mode", "size", "mtime_ns", "digest")
    return ", ".join(
        f"{name} {getattr(entry, name)} -> {getattr(other, name)}"
        for name in names
        if getattr(entry, name) != getattr(other, name)
    )

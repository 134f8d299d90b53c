"""
Small state directories that real Kafka Streams releases wrote, with what those releases said about them.

`NAME.tar.xz` holds an application directory as it was on disk, `NAME.expected.json` what Streams said of it, and `index.json`
lists them all. `python -m tests.golden.make [NAME...]` makes them anew.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent


def index() -> dict[str, dict[str, Any]]:
    """Every golden directory: name -> release, topology, guarantee, command, what it shows, and so on."""
    document: dict[str, dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    return document


def names() -> list[str]:
    """The names of all golden directories."""
    return sorted(index())


def expected(name: str) -> dict[str, Any]:
    """What real Streams said: stores, Positions, changelog offsets, rows; make.py explains the members."""
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.expected.json").read_text(encoding="utf-8"))
    return document


_unpacked: dict[str, Path | None] = {}
"""Name -> an unpacked copy to copy from, which tests must not change; None until a process unpacks a directory again."""


def unpack(name: str, target: Path) -> Path:
    """Unpack the state directory into `target`, with the times that its files had, and return the application directory."""
    if name not in _unpacked:
        _unpacked[name] = None
        return _extract(name, target)
    source = _unpacked[name]
    if source is None:
        # A copy takes a third of the time of the decompression.
        source = _unpacked[name] = _extract(name, _folder() / name)
    target.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copytree(source, target / source.name, symlinks=True, dirs_exist_ok=True))


def _extract(name: str, target: Path) -> Path:
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        top = archive.getnames()[0].partition("/")[0]
        archive.extractall(target, filter="data")
    return target / top


@functools.cache
def _folder() -> Path:
    folder, process = tempfile.mkdtemp(prefix="kstate-golden-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not at the end of a child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)

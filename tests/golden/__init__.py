"""
Small state directories that real Kafka Streams releases wrote, with what those releases said about them.

`NAME.tar.xz` holds an application directory as it was on disk, `NAME.expected.json` what Streams said of it, and `index.json`
lists them all. `python -m tests.golden.make [NAME...]` makes them anew.
"""

from __future__ import annotations

import json
import tarfile
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


def unpack(name: str, target: Path) -> Path:
    """Unpack the state directory into `target`, with the times that its files had, and return the application directory."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        top = archive.getnames()[0].partition("/")[0]
        archive.extractall(target, filter="data")
    return target / top

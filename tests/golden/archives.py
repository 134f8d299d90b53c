"""
Small state directories that real Kafka Streams releases wrote: NAME.tar.xz, told of in index.json.

They hold `state/<application>/…`; `python -m tests.golden.make_archives [NAME...]` makes them anew.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INDEX = HERE / "index.json"


def index() -> dict[str, dict[str, Any]]:
    """What is known of every archive, by name."""
    loaded: dict[str, dict[str, Any]] = json.loads(INDEX.read_text(encoding="utf-8"))
    return loaded


def names() -> list[str]:
    """The names of all archives."""
    return sorted(index())


def unpack(name: str, target: Path) -> Path:
    """Unpack an archive to the folder target, which is made if need be; return the application's folder in it."""
    with tarfile.open(HERE / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    return target / "state" / str(index()[name]["application"])

"""The corpus: ``corpus.tar.xz`` has the inputs of each target, ``TARGET/<digits of SHA-256>``."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(__file__).with_name("corpus.tar.xz")
FINDINGS: Final = Path(__file__).with_name("findings")
"""Minimized inputs that once were defects, ``TARGET-<what it showed>``: they are inputs of every run."""


@cache
def corpus() -> Mapping[str, Sequence[bytes]]:
    """Return the inputs of each target, with those that once were defects."""
    inputs: dict[str, list[bytes]] = {}
    with tarfile.open(ARCHIVE) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                inputs.setdefault(member.name.partition("/")[0], []).append(file.read())
    for path in sorted(FINDINGS.glob("*")):
        inputs.setdefault(path.name.partition("@")[0], []).append(path.read_bytes())
    return inputs


def name_of(data: bytes) -> str:
    """Return the name of an input, by which no input occurs twice."""
    return hashlib.sha256(data).hexdigest()[:16]


def write_corpus(inputs: Mapping[str, Sequence[bytes]]) -> None:
    """Replace the archive. Equal inputs give equal bytes."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
        for target in sorted(inputs):
            for data in sorted(set(inputs[target]), key=lambda data: (len(data), data)):
                member = tarfile.TarInfo(f"{target}/{name_of(data)}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))

"""File systems of a test's own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """What `mount OPTIONS FOLDER` mounts, until the block is left. Only root may mount: others are told so."""
    folder.mkdir(exist_ok=True)
    process = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if process.returncode:
        pytest.skip(f"only root can mount a file system: {process.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)

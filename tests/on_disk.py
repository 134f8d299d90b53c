"""Temporary folders on a disk, for tests whose subject is what a file system keeps; others may be in memory."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

TEMPORARY: Final = "PYTEST_DEBUG_TEMPROOT"
"""The variable with the folder of all temporary folders."""
_PARENTS: Final = ("/var/tmp", "/tmp")


def factory(config: pytest.Config) -> Iterator[pytest.TempPathFactory]:
    """Yield a factory whose folders are on a disk; they are removed at its end."""
    parent = os.environ.get("TMPDIR") or next((path for path in _PARENTS if os.access(path, os.W_OK)), None)
    folder = Path(tempfile.mkdtemp(prefix="kstate-tests-", dir=parent))
    try:
        yield pytest.TempPathFactory(folder / "of", 3, "failed", config.trace.get("tmpdir"), _ispytest=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

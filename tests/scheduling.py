"""How pytest-xdist gives tests to its workers: a file stays together, and so do files that share what is slow to start."""

from __future__ import annotations

import functools
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).resolve().parents[1]
_SWEEPS = "sweeps of the source"
_BROKER = "a broker, and a JVM for each release"
_TOGETHER: Final = {
    "tests/interop/test_[a-c]*.py": f"{_BROKER}: check",
    "tests/interop/test_[d-l]*.py": f"{_BROKER}: dump",
    "tests/interop/test_[m-q]*.py": f"{_BROKER}: migrate",
    "tests/interop/test_r*.py": f"{_BROKER}: rehome and restore",
    "tests/interop/test_seed*.py": f"{_BROKER}: seed",
    "tests/interop/test_[s-z]*.py": f"{_BROKER}: snapshot",
    "tests/restore/test_[a-hw]*.py": "a large dump that is restored",
}
"""Files -> what they share, each for some minutes: every other worker would start it again."""


@functools.cache
def _sweeps_source(file: str) -> bool:
    return file.startswith("tests/unit/") and "import syntax\n" in (_ROOT / file).read_text(encoding="utf-8")


@functools.cache
def scope(file: str) -> str:
    """Return the name of what one worker runs, of which this file is a part."""
    if _sweeps_source(file):
        # Every worker would parse all modules again: five seconds, and as much memory as all other unit tests need.
        return _SWEEPS
    return next((shared for files, shared in _TOGETHER.items() if fnmatch(file, files)), file)


class Together(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Give each file to one worker, and files that share something to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(super()._split_scope(nodeid))

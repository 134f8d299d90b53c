"""How pytest-xdist gives tests to its workers: a file stays together, and so do all sweeps of the source."""

from __future__ import annotations

import functools
from pathlib import Path

from xdist.scheduler import LoadFileScheduling

_ROOT = Path(__file__).resolve().parents[1]
_SWEEPS = "sweeps of the source"


@functools.cache
def _sweeps_source(file: str) -> bool:
    return file.startswith("tests/unit/") and "import syntax\n" in (_ROOT / file).read_text(encoding="utf-8")


class SweepsTogether(LoadFileScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Give each file to one worker, and all unit tests that read the syntax trees of `tests.syntax` to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        # Every worker would parse all modules again: five seconds, and as much memory as all other unit tests need.
        return _SWEEPS if _sweeps_source(file) else file

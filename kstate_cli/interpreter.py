"""Start another Python with the modules of this one."""

from __future__ import annotations

import os
import sys


def another_python(statements: str) -> list[str]:
    """Return the command of another Python; with ``same_modules`` as environment it finds what this one finds.

    Python would search the working directory first, for its own modules too: anybody's modules may be there, or those
    of another version.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path); {statements}"]


def same_modules() -> dict[str, str]:
    """Return the environment of another Python that finds the modules that this one finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or "." for path in sys.path)}

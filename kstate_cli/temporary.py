"""Where temporary files go: ``TMPDIR``, else ``/tmp`` or ``/var/tmp``, and never the working directory.

Python's own choice tries each by writing a file, and takes the working directory where all others fail: on a full disk
that may be the very state directory that is only to be looked at.
"""

from __future__ import annotations

import os
import tempfile
from typing import Final

_USUAL: Final = ("/tmp", "/var/tmp")


def settle() -> None:
    """Decides for this process and for those that it starts; what fails there later, fails by its name."""
    tempfile.tempdir = folder()


def folder() -> str:
    """The folder, absolute; the first that is one and may be written to, else the one that was asked for."""
    asked = [os.path.abspath(path) for name in ("TMPDIR", "TEMP", "TMP") if (path := os.environ.get(name))]
    candidates = [*asked, *_USUAL]
    return next(
        (path for path in candidates if os.path.isdir(path) and os.access(path, os.W_OK | os.X_OK)), candidates[0]
    )

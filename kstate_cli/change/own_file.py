"""Small files of kstate's own in the folder of an application's runs: replaced as a whole, durably, or not at all.

They are written by whoever holds the application lock, and belong to the application's owner, who can then go on.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from kstate_cli.change.folder import make_runs_folder, runs_folder
from kstate_cli.change.owner import own_like
from kstate_cli.change.system_calls import sync_directory

AGES: Final = "ages.json"
STANDBY: Final = "standby.json"
OWN_FILES: Final = (AGES, STANDBY)
"""All of them; ``kstate clean`` leaves them."""
_DRAFT: Final = ".tmp"
"""What is behind the name of one that is not whole yet."""


def write_own_file(app: Path, path: Path, data: bytes) -> None:
    """Replaces ``path``, which lies in the folder of the runs of ``app``. Raises OSError; then it is as it was."""
    make_runs_folder(app)
    draft = path.with_name(path.name + _DRAFT)
    draft.unlink(missing_ok=True)  # of a process that died: whoever holds the lock is alone
    try:
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        own_like(draft, app.stat())
        os.rename(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    sync_directory(path.parent)


def remove_drafts(app: Path) -> None:
    """Removes what processes that died in :func:`write_own_file` have left. The lock is held. Suppresses OSError."""
    for name in OWN_FILES:
        with contextlib.suppress(OSError):
            (runs_folder(app) / (name + _DRAFT)).unlink()

"""Writes journal lines on a full disk: a run whose end cannot be written could never be cleaned."""

from __future__ import annotations

import os
from typing import Any

from kstate_cli.change.fingerprint import STAGED_LIST
from kstate_cli.change.journal import Run
from kstate_cli.change.system_calls import free
from kstate_cli.host import FULL


def written_on_full_disk(run: Run, event: str, **details: Any) -> None:
    """As ``run.write``, for an event after which nobody asks for the list of what was staged. Raises OSError.

    Where there is no room for the line, that list makes some.
    """
    try:
        run.write(event, **details)
    except OSError as error:
        spare = run.path / STAGED_LIST
        if error.errno not in FULL or not spare.exists():
            raise
        os.unlink(spare)
        free(run.path)
        run.write(event, **details)

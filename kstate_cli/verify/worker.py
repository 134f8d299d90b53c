"""What a worker process runs. It imports no more than that needs: every process pays for it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from kstate_cli.verify.database import DatabaseJob, DatabaseReport, verify_database


def verify_in_worker(told: tuple[DatabaseJob, Path]) -> tuple[DatabaseReport, float]:
    """The report on a database, and the seconds it took; shadows are made in the folder that the parent removes."""
    job, scratch = told
    # Everything that this process leaves when it is killed goes with that folder.
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    began = time.monotonic()
    return verify_database(job), time.monotonic() - began

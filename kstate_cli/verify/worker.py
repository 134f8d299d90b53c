"""What a worker process runs. It imports no more than that needs: every process pays for it."""

from __future__ import annotations

import time
from pathlib import Path

from kstate_cli.parallel.workers import leave_everything_in
from kstate_cli.verify.database import DatabaseJob, DatabaseReport, verify_database


def verify_in_worker(told: tuple[DatabaseJob, Path]) -> tuple[DatabaseReport, float]:
    """The report on a database, and the seconds it took; shadows are made in the folder that the parent removes."""
    job, scratch = told
    leave_everything_in(scratch)
    began = time.monotonic()
    return verify_database(job), time.monotonic() - began

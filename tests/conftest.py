"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import settings

from kstate_cli.change.commits_made import forget_commits

# How long an example takes says nothing here: first calls import pyarrow, and machines are busy.
settings.register_profile("kstate", deadline=None)
settings.load_profile("kstate")


@pytest.fixture(autouse=True)
def _a_process_of_its_own() -> None:
    """What a command in this process has changed is told at the end of that one, not of one that another test runs."""
    forget_commits()

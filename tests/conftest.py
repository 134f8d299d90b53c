"""What all tests share."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing here: first calls import pyarrow, and machines are busy.
settings.register_profile("kstate", deadline=None)
settings.load_profile("kstate")
